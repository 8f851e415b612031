"""Intervals of Laplace reports for the population and for all enrolled: coverage by exact sums, and width."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import sqrt
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import interpolate, stats

from hush_aggregator.estimate.intervals import sampling
from hush_aggregator.estimate.intervals.sampling import finite_spread, is_many, noise_and_sampling
from hush_aggregator.estimate.numerics.laplace_sums import laplace_log_tail, mixed_laplace_quantile
from hush_common.domain import GRID_STEPS
from hush_common.mechanisms import Laplace

Array = NDArray[np.float64]

CONFIDENCES = (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
RUNS = 20_000
SHARES: Array = np.concatenate([np.linspace(0, 0.5, 21), np.geomspace(0.002, 0.02, 4)])
"""Of the people at the upper bound, the others being at the lower one."""


def allowed(confidence: float) -> float:
    """Four standard errors of `RUNS` runs; at 0.999 nothing but a hundredth of alpha, since the sums are exact."""
    if confidence > 0.99:
        return 0.01 * (1 - confidence)
    return 4 * sqrt(confidence * (1 - confidence) / RUNS)


def scales(epsilon: float, n: int) -> tuple[tuple[float, int], ...]:
    return ((1 / epsilon / n, n),)


def missed(epsilon: float, n: int) -> Callable[[float, Array], Array]:
    """P(|noise + offset| > half) as a function of half and offsets: the tail interpolated with its derivative."""
    top = mixed_laplace_quantile(scales(epsilon, n), 1 - 1e-12)
    x = np.linspace(0, top, 100)
    logs, hazards = np.array([laplace_log_tail(scales(epsilon, n), float(at)) for at in x]).T
    spline = interpolate.CubicHermiteSpline(x, logs, -hazards)

    def above(at: Array) -> Array:
        size = abs(at)
        tail = np.where(size < top, np.exp(spline(np.minimum(size, top))), 0)
        return np.asarray(np.where(at >= 0, tail, 1 - tail))

    return lambda half, offsets: above(half - offsets) + above(half + offsets)


def least_coverage(epsilon: float, n: int, half: float) -> float:
    """Over populations of which a share is at one bound and the rest at the other: exact sums."""
    outside, ones = missed(epsilon, n), np.arange(n + 1)
    return min(1 - float(stats.binom.pmf(ones, n, p) @ outside(half, ones / n - p)) for p in SHARES)


EPSILONS, SIZES = (1, 4, 8, 50), (1, 2, 5, 20, 100, 700)


@pytest.mark.medium
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_interval_for_the_population_covers_less_than_it_says(epsilon: float) -> None:
    worst = 0.0
    for n in (n for n in SIZES if n <= max(100, 6 * epsilon**2)):
        for confidence in CONFIDENCES:
            half, how = noise_and_sampling(scales(epsilon, n), (1 / (4 * n), 1 / (4 * n)), 1 / n, confidence)
            short = confidence - least_coverage(epsilon, n, half)
            assert short <= (1e-9 if how == sampling.HOEFFDING else allowed(confidence)), (n, confidence)
            worst = max(worst, short)
    assert worst < 0.0013  # as `sampling` says


def test_popoviciu_at_any_confidence_and_epsilon_would_be_found() -> None:
    half = sqrt(mixed_laplace_quantile(scales(8, 1), 0.5) ** 2 + NormalDist().inv_cdf(0.75) ** 2 / 4)
    assert least_coverage(8, 1, half) == pytest.approx(0.148, abs=0.001)
    two = sqrt(mixed_laplace_quantile(scales(8, 2), 0.8) ** 2 + NormalDist().inv_cdf(0.9) ** 2 / 8)
    assert least_coverage(8, 2, two) < 0.71


@pytest.mark.medium
@pytest.mark.parametrize(("n", "enrolled"), [(1, 2), (5, 6), (20, 30), (20, 200), (60, 60)])
def test_no_interval_for_all_enrolled_covers_less_than_it_says(n: int, enrolled: int) -> None:
    for epsilon, confidence in product((1.0, 16.0), (0.5, 0.9, 0.99)):
        half, how = noise_and_sampling(scales(epsilon, n), finite_spread(n, enrolled), 1 / n, confidence)
        outside, drawn = missed(epsilon, n), np.arange(n + 1)
        for ones in {round(p * enrolled) for p in SHARES}:
            law = stats.hypergeom.pmf(drawn, enrolled, ones, n)
            short = confidence - 1 + float(law @ outside(half, drawn / n - ones / enrolled))
            assert short <= (1e-8 if how == sampling.HOEFFDING or n == enrolled else allowed(confidence))


def test_a_correction_that_forgets_the_noise_of_answers_is_found() -> None:
    n = enrolled = 60
    half, _ = noise_and_sampling(scales(1, n), finite_spread(n, enrolled), 1 / n, 0.95)
    wrong = noise_and_sampling(scales(1, n), (1 / (4 * n), 1 / (4 * n)), 1 / n, 0.95)[0] * (1 - n / enrolled)
    zero: Array = np.zeros(1)
    assert missed(1, n)(half, zero)[0] == pytest.approx(0.05, rel=1e-8)
    assert missed(1, n)(wrong, zero)[0] > 0.9


# ---- the choice of Student's t


def test_students_t_begins_later_the_surer_and_less_noisy_it_is() -> None:
    def first(epsilon: int, confidence: float) -> int:
        mechanism = Laplace(Fraction(epsilon), GRID_STEPS)
        return next(n for n in range(1, 10**5) if is_many(((mechanism, n),), confidence))

    z = stats.norm.isf((1 - np.array(CONFIDENCES)) / 2)
    error = 2 * stats.norm.pdf(z) * z * abs(z**4 + 2 * z**2 - 3) / 18  # for a squared skewness of 1 and n = 1
    for epsilon in (1, 8):
        needed = 16 * error * 2 * epsilon**2 / 27 / (1 - np.array(CONFIDENCES))
        expected = np.maximum(np.ceil(needed), max(100, 3 * epsilon**2)).tolist()
        assert [first(epsilon, confidence) for confidence in CONFIDENCES] == expected
    assert [first(8, confidence) for confidence in (0.9, 0.95, 0.99)] == [192, 376, 1705]
    both = ((Laplace(Fraction(1), GRID_STEPS), 100), (Laplace(Fraction(8), GRID_STEPS), 376))
    assert is_many(both, 0.95)
    assert not is_many(both, 0.99)
    assert not is_many(((both[0][0], 99), both[1]), 0.95)
