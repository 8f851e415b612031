"""The law of a sum of Laplace variables, of one scale or of several: tail, density and quantile, at every size.

X = Σ_c b_c·(sum of n_c Laplace variables of scale 1) has M(s) = E e^(sX) = Π (1 - b_c^2 s^2)^(-n_c) for |Re s| < 1/max
b. By inversion, for h > 0 and any path from below to above through (0, 1/max b),

    P(X > h) = (1/2πi) ∫ e^(-sh) M(s)/s ds,    density at h = (1/2πi) ∫ e^(-sh) M(s) ds.

The path is one arm of a hyperbola, s(u) = c + w·(sin(θ + iu) - sin θ), u real, through the saddle point c of the first
integrand on the real axis. It bends to the right, where e^(-sh) decays doubly exponentially in u. Seen from c its
directions lie between 90° and 90° - θ > 60°, and *on every ray from c in such a direction the modulus of the integrand
decreases*, whatever the scales and counts are: nothing can blow up far from c.

Proof. Let s = c + re^(iφ), 60° ≤ φ ≤ 90°, C = cos φ ≤ 1/2, D = 1 - 2C^2 ≥ 1/2. Put p = b/(1 - bc) ≥ q = b/(1 + bc), x
= pr, y = qr, t = r/c, so that y ≤ x, y ≤ t, and g(y) = y(yC - D)/(1 + 2yC + y^2). By differentiation

    (d/dr) log |1 - b^2 s^2| = -(p - q)C + p·a - q·g(y),    a = x(D + xC)/(1 - 2xC + x^2) = C + (x - C)/(1 - 2xC +
    x^2), (d/dr) log |s| = (C - g(t))/c.

The saddle has Σ n(p - q) = h + 1/c. So the logarithmic derivative of the modulus is g(t)/c - Σ n(p·a - q·g(y)), and
for it to be negative where g(t) > 0 (elsewhere g(y) ≤ 0 too) it is enough that p·a - q·g(y) ≥ (p - q)g(t) for each
scale, since Σ n(p - q) ≥ 1/c. Where g is positive it increases, and is below C. If x ≥ C, then a ≥ C ≥ g(t) and g(y) ≤
g(t). If x < C, then g(y) < 0 and a ≥ xD, and p·xD ≥ (p - q)g(t) because p - q = 2c·pq ≤ 2cp^2 and D(1 + 2tC + t^2) ≥
2(tC - D): the difference is at least 2√3·tD - 2tC(1 - D) > 0.

On such a path the trapezoidal rule converges geometrically (Trefethen and Weideman 2014): the integrand is analytic
where |Im u| < min(θ, π/2 - θ). Nothing cancels, for the path goes through the saddle; the logarithm of M is taken
with `log1p`, so that a billion factors next to 1 lose no digits.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import acosh, cos, exp, log, log1p, pi, sin, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.numerics.guard import underflow

_BEND = pi / 8  # θ: as far from a straight line as from 45°, where a normal factor of M begins to grow
_SPACING = 1 / 15
_NEGLIGIBLE = 40.0  # e^-40 of the largest term
_FARTHEST = 25.0
_SADDLE_STEPS = 100
_SADDLE_CLOSE = 1e-4
_NEWTON_STEPS = 100  # 3 to 8 are taken
_CLOSE = 1e-12

Array = NDArray[np.float64]

Scales = tuple[tuple[float, int], ...]
"""(b_c, n_c) of each group, b_c > 0, n_c ≥ 1."""


@lru_cache(maxsize=4096)
def mixed_laplace_quantile(scales: Scales, confidence: float) -> float:
    """The h with P(|X| ≤ h) = `confidence`, to 1e-9 relative for 0.5 ≤ `confidence` ≤ 1 - 1e-9.

    Newton's method on the logarithm of the tail, which is concave (`quantiles` says why that cannot diverge).
    """
    target = log((1 - confidence) / 2)
    h = NormalDist().inv_cdf((1 + min(confidence, 1 - 1e-12)) / 2) * sqrt(2 * sum(n * b**2 for b, n in scales))
    for _ in range(_NEWTON_STEPS):
        log_tail, hazard = laplace_log_tail(scales, h)
        step = (log_tail - target) / hazard
        h = max(h + step, 0.0)
        if abs(step) <= _CLOSE * h or h == 0:
            break
    return h


def laplace_log_tail(scales: Scales, h: float) -> tuple[float, float]:
    """The logarithm of P(X > h), and the hazard -(d/dh) log P(X > h), at any real h."""
    largest = max(b for b, _ in scales)
    relative = [(b / largest, n) for b, n in scales]
    log_tail, log_density = _invert(relative, abs(h) / largest)
    if h < 0:
        return _complement(log_tail), exp(log_density - _complement(log_tail)) / largest
    return log_tail, exp(log_density - log_tail) / largest


def _complement(log_tail: float) -> float:
    return log1p(-exp(log_tail))


def _invert(scales: Sequence[tuple[float, int]], h: float) -> tuple[float, float]:
    """Logarithms of the tail and of the density at h ≥ 0, where the largest scale is 1."""
    c = _saddle(scales, h)
    curvature = sum(2 * n * b**2 * (1 + (b * c) ** 2) / (1 - (b * c) ** 2) ** 2 for b, n in scales) + 1 / c**2
    w = 1 / sqrt(curvature)
    end = min(acosh(1 + _NEGLIGIBLE / max(h * w * sin(_BEND), 1e-12)), _FARTHEST)
    u = np.arange(0.0, end, _SPACING)
    cosh, sinh = np.cosh(u), np.sinh(u)
    s = c + w * sin(_BEND) * (cosh - 1) + 1j * w * cos(_BEND) * sinh
    ds = w * (sin(_BEND) * sinh + 1j * cos(_BEND) * cosh)
    exponent = -h * s - np.log(s) - _log_quotient(scales, s)
    top = float(exponent[0].real)
    with underflow("laplace-contour"):
        values = np.exp(exponent - top) * ds
        values[0] /= 2
        tail, density = float(values.imag.sum()), float((values * s).imag.sum())
    scale = top + log(_SPACING / pi)
    return scale + log(tail), scale + log(density)


def _log_quotient(scales: Sequence[tuple[float, int]], s: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Σ n·log(1 - b^2 s^2) where Im s ≥ 0: the modulus by log1p, since numpy's for complex numbers loses digits."""
    total = np.zeros_like(s)
    for b, n in scales:
        z = -((b * s) ** 2)
        x, y = z.real, z.imag
        total += n * (0.5 * np.log1p(x * (2 + x) + y**2) + 1j * np.arctan2(y, 1 + x))
    return total


def _saddle(scales: Sequence[tuple[float, int]], h: float) -> float:
    """The c in (0, 1) where Σ 2n b^2 c/(1 - b^2 c^2) = h + 1/c, closely enough.

    Times c this is a convex function: Newton's method descends to its root from any point above it.
    """
    variance = sum(2 * n * b**2 for b, n in scales)
    many = max(n for b, n in scales if b == 1)
    c = min((h + sqrt(h * h + 4 * variance)) / (2 * variance), sqrt((h + 1) / (h + 1 + 2 * many)))
    for _ in range(_SADDLE_STEPS):
        value, slope = -h * c - 1, -h
        for b, n in scales:
            inside = 1 - (b * c) ** 2
            value += 2 * n * (b * c) ** 2 / inside
            slope += 4 * n * b**2 * c / inside**2
        step = value / slope
        c -= step
        if step <= _SADDLE_CLOSE * c:
            break
    return c
