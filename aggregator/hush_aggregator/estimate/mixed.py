"""The quantile of a sum of Laplace variables of different scales.

X = Σ_c b_c·(sum of n_c Laplace variables of scale 1) has E e^(sX) = Π (1 - b_c^2 s^2)^(-n_c) for |Re s| < 1/max b. By
inversion, for h > 0,

    P(X > h) = (1/2πi) ∫ e^(-sh) E e^(sX)/s ds,    along any path from below to above through (0, 1/max b).

The path s = c + κy^2 + iy goes through the saddle point c and bends to the right, where e^(-sh) decays; it encloses
no pole, for these lie on the real axis. On such a path the trapezoidal rule converges geometrically (Trefethen and
Weideman 2014). Where n_eff ≥ 20 Cornish and Fisher's expansion with the fourth cumulant is as good: the skewness is
0.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import log, sqrt

import numpy as np

from hush_aggregator.estimate.quantiles import normal_quantile

__all__ = ["mixed_laplace_quantile", "mixed_laplace_tail"]

_EXACT_BELOW = 20
_POINTS = 300
_STEPS = 60
_SADDLE_STEPS = 30
_CLOSE = 1e-10
_LEAST = 1e-300

Scales = tuple[tuple[float, int], ...]


@lru_cache(maxsize=512)
def mixed_laplace_quantile(scales: Scales, confidence: float) -> tuple[float, bool]:
    """The h with P(|X| ≤ h) = `confidence`, and whether it is exact.

    Args:
        scales: (b_c, n_c), at least one with n_c > 0.
        confidence: in (0, 1).
    """
    second = sum(count * b**2 for b, count in scales)
    fourth = sum(count * b**4 for b, count in scales)
    z = normal_quantile(confidence)
    rough = sqrt(2 * second) * (z + (z**3 - 3 * z) * 12 * fourth / (24 * (2 * second) ** 2))
    if second**2 / fourth >= _EXACT_BELOW:
        return rough, False
    target, low, high = (1 - confidence) / 2, 0.0, max(rough, sqrt(second))
    while mixed_laplace_tail(scales, high) > target:
        low, high = high, 2 * high
    at_low = log(max(mixed_laplace_tail(scales, low), _LEAST) / target)
    at_high = log(max(mixed_laplace_tail(scales, high), _LEAST) / target)
    side = 0.0
    for _ in range(_STEPS):  # regula falsi (Illinois) on the logarithm of the tail, which is concave
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        at = log(max(mixed_laplace_tail(scales, middle), _LEAST) / target)
        if at > 0:
            low, at_low, at_high = middle, at, at_high / 2 if side > 0 else at_high
        else:
            high, at_high, at_low = middle, at, at_low / 2 if side < 0 else at_low
        side = at
        if high - low <= _CLOSE * high or abs(at) < _CLOSE:
            break
    return middle, True


def mixed_laplace_tail(scales: Scales, h: float) -> float:
    """P(X > h), h ≥ 0."""
    if h <= 0:
        return 0.5
    largest = max(b for b, _ in scales)
    b = np.array([b / largest for b, _ in scales])
    counts = np.array([count for _, count in scales], dtype=float)
    h /= largest
    c = _saddle([(b / largest, count) for b, count in scales], h)
    width = 1 / sqrt(float((counts * 2 * b**2 * (1 + b**2 * c**2) / (1 - b**2 * c**2) ** 2).sum()) + 1 / c**2)
    # y = width·sinh(x): fine near the saddle, far where the integrand decays slowly.
    x = np.linspace(0, 12, _POINTS)
    y, dy = width * np.sinh(x), width * np.cosh(x)
    bend = 0.5 / c
    s = c + bend * y**2 + 1j * y
    exponent = -s * h - (counts[:, None] * np.log(1 - (b[:, None] * s) ** 2)).sum(axis=0) - np.log(s)
    values = (np.exp(exponent) * (2 * bend * y + 1j)).imag * dy
    return float((values.sum() - values[0] / 2 - values[-1] / 2) * (x[1] - x[0]) / np.pi)


def _saddle(scales: Sequence[tuple[float, int]], h: float) -> float:
    """The c in (0, 1) where the derivative of the exponent, less log s, vanishes; by bisection, closely enough."""
    low, high = 0.0, 1.0
    for _ in range(_SADDLE_STEPS):
        c = (low + high) / 2
        slope = sum(count * 2 * b**2 * c / (1 - b**2 * c**2) for b, count in scales) - h - 1 / c
        low, high = (c, high) if slope < 0 else (low, c)
    return (low + high) / 2
