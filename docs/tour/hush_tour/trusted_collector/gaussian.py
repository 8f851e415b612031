"""The Gaussian mechanism of a trusted collector: (epsilon, delta)-differential privacy, beside which Laplace stands.

It is a reference curve. hush has no delta: a device that fails with probability delta fails for somebody.

Calibration. With noise of standard deviation sigma and l2 sensitivity Delta the smallest delta is, exactly,

    delta(sigma) = Phi(Delta/(2·sigma) - epsilon·sigma/Delta) - e^epsilon·Phi(-Delta/(2·sigma) - epsilon·sigma/Delta)

(Balle and Wang 2018, theorem 8): it falls in sigma, and `analytic_sigma` inverts it by bisection. The classical
calibration sigma = Delta·sqrt(2·ln(1.25/delta))/epsilon suffices for epsilon < 1 only (Dwork and Roth 2014,
theorem A.1).

Sampler. The noise of a release is discrete Gaussian, P(z) ∝ e^(-z²/(2·sigma²)) on the integers, drawn exactly by
rejection from discrete Laplace noise (Canonne, Kamath and Steinke 2020, algorithm 3). Its own delta is a sum of two
tails (their theorem 7), which `discrete_delta` evaluates; on a fine grid it equals the continuous one.
"""

from fractions import Fraction
from math import ceil, erfc, exp, fsum, inf, isqrt, log, sqrt

from hush_common.mechanisms.laplace import bernoulli_exp, discrete_laplace
from hush_common.rng import Rng

_TIGHT = 1e-12
_TAIL = 40  # standard deviations: beyond, a density is below 1e-347


def classical_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Standard deviation by the classical calibration.

    Raises:
        ValueError: epsilon outside (0, 1), where alone it is proved, or delta outside (0, 1).
    """
    if not 0 < epsilon < 1:
        raise ValueError(f"the classical calibration holds for 0 < epsilon < 1, not for {epsilon}")
    _check(delta)
    return sensitivity * sqrt(2 * log(1.25 / delta)) / epsilon


def analytic_delta(sigma: float, epsilon: float, sensitivity: float = 1.0) -> float:
    """The smallest delta of Gaussian noise of standard deviation `sigma`, in (0, 1)."""
    half, slope = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
    return _upper(slope - half) - exp(epsilon) * _upper(slope + half)


def analytic_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The smallest standard deviation of Gaussian noise that is (epsilon, delta)-DP, rounded up within 1e-12 of it.

    Raises:
        ValueError: epsilon below 0 or above 50, or delta outside (0, 1).
    """
    if not 0 <= epsilon <= 50:  # noqa: PLR2004 - as far as hush's own epsilons go
        raise ValueError(f"epsilon: {epsilon} is outside [0, 50]")
    _check(delta)
    low, high = 0.0, 1.0
    while analytic_delta(high, epsilon) > delta:
        low, high = high, 2 * high
    while high - low > _TIGHT * high:
        middle = (low + high) / 2
        if analytic_delta(middle, epsilon) > delta:
            low = middle
        else:
            high = middle
    return high * sensitivity


def discrete_delta(variance: float, epsilon: float, sensitivity: int) -> float:
    """The smallest delta of discrete Gaussian noise of parameter sigma² = `variance` on integers (CKS 2020, theorem 7).

    Args:
        variance: sigma², in steps squared.
        epsilon: at least 0.
        sensitivity: in steps, at least 1.
    """
    sigma = sqrt(variance)
    ends = ceil(_TAIL * sigma) + sensitivity
    weights = {z: exp(-(z**2) / (2 * variance)) for z in range(-ends, ends + 1)}
    center, half = epsilon * variance / sensitivity, sensitivity / 2
    above = fsum(weight for z, weight in weights.items() if z > center - half)
    beyond = fsum(weight for z, weight in weights.items() if z > center + half)
    return (above - exp(epsilon) * beyond) / fsum(weights.values())


def discrete_gaussian(variance: Fraction, rng: Rng) -> int:
    """An exact draw of P(z) ∝ e^(-z²/(2·variance)) on the integers (CKS 2020, algorithm 3); variance above 0."""
    n, d = variance.numerator, variance.denominator
    t = isqrt(n // d) + 1  # floor(sigma) + 1
    while True:
        z = discrete_laplace(1, t, rng)
        # accepted with e^(-(|z| - sigma²/t)²/(2·sigma²)) = e^(-(|z|·t·d - n)²/(2·n·d·t²))
        if _bernoulli_exp_of_any((abs(z) * t * d - n) ** 2, 2 * n * d * t**2, rng):
            return z


def _bernoulli_exp_of_any(numerator: int, denominator: int, rng: Rng) -> bool:
    """True with probability exactly e^(-numerator/denominator), whatever size the exponent has."""
    whole, rest = divmod(numerator, denominator)
    return all(bernoulli_exp(1, 1, rng) for _ in range(whole)) and bernoulli_exp(rest, denominator, rng)


def _upper(x: float) -> float:
    """P(N(0, 1) > x), to full relative precision."""
    return erfc(x / sqrt(2)) / 2 if x < inf else 0.0


def _check(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta: {delta} is outside (0, 1)")
