"""How many people the mean of numbers in [0, 1] takes: with a trusted collector, with coins, with local noise."""

from fractions import Fraction
from math import ceil, sqrt

from hush_common.mechanisms import Laplace, RandomizedResponse

_STEPS = 1 << 20  # as fine a grid as continuous noise, for all figures here


def central(error: float, epsilon: Fraction) -> int:
    """With a trusted collector: Lap(1/(n·epsilon)) has a root mean square of sqrt(2)/(n·epsilon)."""
    return _least(sqrt(2) / (error * float(epsilon)))


def by_coins(error: float, epsilon: Fraction) -> int:
    """By randomized response about a yes or no: its variance is e^epsilon/(e^epsilon - 1)² for each report."""
    return _least(RandomizedResponse.from_epsilon(epsilon).worst_variance / error**2)


def by_local_noise(error: float, epsilon: Fraction) -> int:
    """By Laplace noise on every device: 2/epsilon² for each report."""
    return _least(Laplace(epsilon, _STEPS).worst_variance / error**2)


def central_error(n: int, epsilon: Fraction) -> float:
    """Root mean square error of a trusted collector's mean."""
    return sqrt(2) / (n * float(epsilon))


def local_error(n: int, variance: float) -> float:
    """Root mean square error of the mean of n reports of this variance each."""
    return sqrt(variance / n)


def _least(exact: float) -> int:
    """The next integer, unless rounding alone made it one."""
    return ceil(exact * (1 - 1e-12))
