"""The exact inversion of a sum of two binomials: for the reporters of a yes-or-no question.

Of n people j have the trait, so that K = Bin(j, p_1) + Bin(n-j, p_0) report it; the tails of K are monotone in j.

The tail is Cauchy's integral of the generating function g over a circle |z| = r > 1,

    P(K ≥ k) = 1/(2·pi) · ∫ g(z)·z^(-k) / (1 - 1/z) dt,    z = r·e^(it),

with r near the saddle point, where nothing cancels. There |g(z)/g(r)| ≤ e^(-v·(1 - cos t)), v the variance of K tilted
by r: the integral is cut off at e^-25. The integrand is analytic and periodic, so the midpoint rule converges
geometrically: what h leaves out is a sum of tails that are P(K ≥ k ± 2·pi·i/h), weighted by r^(±2·pi·i/h). With 32
nodes the relative error is below 1e-9 at any n to 1e9, and the cost does not depend on n (Abate and Whitt 1992).
"""

from math import pi
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.numerics.guard import underflow

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

_NODES = 32
_NEGLIGIBLE = 25.0
_FROM_POLE = 1.5  # deviations between the circle and the pole at z = 1
_CERTAIN = 15.0
_GUESSES = 4
_SURE, _FLAT = 1e-3, 0.05
_NEWTON = 8  # steps, of which 2 or 3 are taken; then bisection
_BLOCK = 512  # rows, whose nodes stay in the cache of a processor


def fewest(n: int, counts: Counts, p: Array, tail: Array) -> Counts:
    """The fewest j with P(Bin(j, p_1) + Bin(n-j, p_0) ≥ count) > tail, or n if none does; row by row.

    The probability rises with j, and its logarithm is concave and all but straight over a few j: Newton's method inside
    a bracket, which is halved where that takes long. Both neighbours of the root are looked at, unless it lies farther
    from a whole number than the bend of the logarithm can move it.

    Args:
        n: reports, 1 to 1e9.
        counts: of each row.
        p: p_0, p_1, 1 - p_0 and 1 - p_1 of each row: shape (4, rows), 0 < p_0 < p_1 < 1.
        tail: of each row, in (0, 1/2].
    """
    low, high = np.zeros(len(counts), dtype=np.int64), np.where(counts > 0, n, 0)
    at, target = _guess(n, counts, p, tail), np.log(tail)
    for step in range(_NEWTON + n.bit_length() + 1):
        open_ = np.flatnonzero(low < high)
        if not open_.size:
            break
        here = at[open_]
        log_tail, slope = log_at_least(n, counts[open_], here, p[:, open_])
        enough = log_tail > target[open_]
        high[open_], low[open_] = np.where(enough, here, high[open_]), np.where(enough, low[open_], here + 1)
        if step < _NEWTON:
            real = np.clip((target[open_] - log_tail) / slope, -n, n)
            move = np.ceil(real).astype(np.int64)
            doubt = real**2 * slope + _SURE  # how far the root of the tangent may lie from that of a concave function
            sure = (np.abs(real - np.rint(real)) > doubt) & (np.abs(slope) < _FLAT)
            settled = np.clip(here + move, low[open_], high[open_])
            low[open_], high[open_] = np.where(sure, settled, low[open_]), np.where(sure, settled, high[open_])
            wanted = here + np.where(enough, np.minimum(move, 0), np.maximum(move, 1))
            wanted = np.where(enough & (wanted == here), here - 1, wanted)
        else:
            wanted = (low[open_] + high[open_]) // 2
        at[open_] = np.clip(wanted, low[open_], np.maximum(high[open_] - 1, low[open_]))
    return low


def _guess(n: int, counts: Counts, p: Array, tail: Array) -> Counts:
    """The j in [0, n) at which count - 1/2 is the quantile, by Cornish and Fisher's first correction."""
    none, all_ = p[0] * p[2], p[1] * p[3]
    tails, which = np.unique(tail, return_inverse=True)
    z = -np.array([NormalDist().inv_cdf(one) for one in tails])[which]
    j = np.full(len(counts), n / 2)
    for _ in range(_GUESSES):
        variance = j * all_ + (n - j) * none
        third = j * all_ * (p[3] - p[1]) + (n - j) * none * (p[2] - p[0])
        reach = z * np.sqrt(variance) + (z**2 - 1) / 6 * third / variance
        j = np.clip((counts - 0.5 - reach - n * p[0]) / (p[1] - p[0]), 0, n)
    return np.asarray(np.minimum(np.ceil(j), n - 1).astype(np.int64))


def log_at_least(n: int, counts: Counts, j: Counts, p: Array) -> tuple[Array, Array]:
    """The logarithm of P(K ≥ count) of each row, count ≥ 1, and how it grows with j."""
    found = [
        _log_at_least(n, counts[rows], j[rows].astype(float), p[:, rows])
        for rows in (slice(start, start + _BLOCK) for start in range(0, len(counts), _BLOCK))
    ]
    return np.concatenate([one[0] for one in found]), np.concatenate([one[1] for one in found])


def _log_at_least(n: int, counts: Counts, j: Array, p: Array) -> tuple[Array, Array]:
    others = n - j
    r = _radius(np.asarray(counts - 0.5), j, others, p)
    lift, lift_0 = p[3] + p[1] * r, p[2] + p[0] * r
    true, lie = p[1] * r / lift, p[0] * r / lift_0  # probabilities of a yes, tilted by r
    true_no, lie_no = p[3] / lift, p[2] / lift_0
    deviation = np.sqrt(j * true * true_no + others * lie * lie_no)
    end = 2 * np.arcsin(np.minimum(np.sqrt(_NEGLIGIBLE / 2) / deviation, 1))
    t = end[:, None] * ((np.arange(_NODES) + 0.5) / _NODES)
    square, sine = np.sin(t / 2) ** 2, np.sin(t)
    mod, phase = _turned(true, true_no, square, sine)
    mod_0, phase_0 = _turned(lie, lie_no, square, sine)
    angle = j[:, None] * phase + others[:, None] * phase_0 - counts[:, None] * t
    with underflow("the tail of a sum of two binomials"):
        size = np.exp(j[:, None] * mod + others[:, None] * mod_0)
        real, imaginary = size * np.cos(angle), size * np.sin(angle)
        w = 1 / r[:, None]  # 1/(1 - e^(-it)/r) = (1 - w·cos t - i·w·sin t)/|…|^2
        scale = (1 - w) ** 2 + 4 * w * square
        left, turn = (1 - w + 2 * w * square) / scale, -w * sine / scale
        value, conjugate = real * left - imaginary * turn, real * turn + imaginary * left
        total = value.sum(axis=1)
        slope = (value * (mod - mod_0) - conjugate * (phase - phase_0)).sum(axis=1) / np.where(total > 0, total, 1)
    log_lift, log_lift_0 = np.log1p(p[1] * (r - 1)), np.log1p(p[0] * (r - 1))
    top = j * log_lift + others * log_lift_0 - counts * np.log(r)
    certain = (total <= 0) | (top > _CERTAIN)  # the count is far below the mean: the tail is 1, and the sum cancels
    log_tail = np.where(certain, 0.0, top + np.log(np.where(certain, 1.0, total) * end / (_NODES * pi)))
    return log_tail, np.where(certain, (p[1] - p[0]) / deviation, slope + log_lift - log_lift_0)


def _radius(mean: Array, j: Array, others: Array, p: Array) -> Array:
    """The r whose tilted law has this mean, a root of a quadratic; but not too near to the pole."""
    odds, odds_0 = p[1] / p[3], p[0] / p[2]
    square = odds * odds_0 * (j + others - mean)
    linear = j * odds + others * odds_0 - mean * (odds + odds_0)
    root = np.sqrt(linear**2 + 4 * square * mean)
    saddle = np.where(linear > 0, 2 * mean / (np.abs(linear) + root), (np.abs(linear) + root) / (2 * square))
    deviation = np.sqrt(j * p[1] * p[3] + others * p[0] * p[2])
    return np.asarray(np.maximum(saddle, np.exp(_FROM_POLE / np.maximum(deviation, 1))))


def _turned(yes: Array, no: Array, square: Array, sine: Array) -> tuple[Array, Array]:
    """Logarithm of the modulus, and phase, of 1 + yes·(e^(it) - 1), from sin^2(t/2) and sin t."""
    modulus = np.log1p(-4 * (yes * no)[:, None] * square) / 2
    return modulus, np.arctan2(yes[:, None] * sine, 1 - 2 * yes[:, None] * square)
