"""Quantiles for intervals, for whole arrays at once: normal, Student's t, and those of the incomplete beta function.

scipy is not needed at run time. I_x(a, b) is the regularised incomplete beta function.
P(Bin(n, x) ≥ k) = I_x(k, n - k + 1), so all limits of Clopper and Pearson are made here; and Student's t.

The variable is the logit u of x, which has no ends to step over. There the density is f(u) = x^a y^b / B(a, b),
y = 1 - x: log-concave for all a, b > 0. With phi(t) = log f(u) - log f(u - t), convex, phi(0) = 0,

    I_x(a, b) = f(u) · Q,    Q = ∫ e^(-phi(t)) dt over t > 0.

- f is taken from deviances and Stirling's series, so that nothing cancels at large a + b.
- phi(t) = A·t + (a + b)·log(1 + B·(e^(S·t) - 1)), (A, B, S) = (a, x, -1) or (-b, y, 1), whichever of x, y is smaller.
- Q is cut off where phi = 32, that is e^-32 of the first value, and summed by Gauss and Legendre: the integrand is
  analytic and has one top, and its shape is between those of an exponential and a Gaussian. For I up to 1/2, 48 nodes
  leave a relative error of 2e-12 where a, b ≥ 1, and 4e-10 where one of them is 1/2 (Student's t), at the median.

The inverse is Newton's method on log I, whose slope is 1/Q. log I is concave, and the tangent of a concave function
lies above it: after one step all iterates stand on one side of the root and approach it, whatever the start. Near the
root two further terms of the inverted Taylor series, whose coefficients follow from (log f)' = ay - bx, make it of
fourth order. No bracket, no lost digits in either tail: relative error below 1e-10 for a + b up to 1e9.

The band `beta_band` of `anytime` for the population: the likelihood ratio of the Beta(1/2, 1/2) mixture is below
1/alpha where the deviance K·log(K/nc) + (n-K)·log((n-K)/n(1-c)) is below log(1/alpha) plus a number that depends on K
and n alone. The deviance is convex in the logit of c; Newton's method comes to its edges from outside.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import exp, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hush_aggregator.estimate.numerics.guard import underflow

Array = NDArray[np.float64]

_STEPS = 100  # 1 to 4 are taken
_NEAR = 0.3  # a step, in units of the scale of log I, below which its Taylor series is worth more than its slope
_CLOSE = 2e-3  # a step of fourth order after which the error is below 1e-11
_NEGLIGIBLE = 32.0
_END_STEPS = 4
_FARTHEST = 700.0  # e^700 is a float
_STIRLING_FROM = 16
_BLOCK = 256  # rows of nodes: 100 kB, which stay in the cache of a processor
_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(48) + np.array([[1.0], [0.0]])) / 2  # on (0, 1)


def beta_quantile(probability: float, a: float, b: float) -> float:
    """The x with I_x(a, b) = `probability` in (0, 1); relative error below 1e-10 for a + b up to 1e9."""
    if probability > 0.5:  # noqa: PLR2004 - one half: the smaller of the two tails is solved for
        return float(expit(-beta_logits(1 - probability, b, a))[0])
    return float(expit(beta_logits(probability, a, b))[0])


def beta_logits(tail: ArrayLike, a: ArrayLike, b: ArrayLike, start: ArrayLike | None = None) -> Array:
    """The logit of the x with I_x(a, b) = `tail`.

    Args:
        tail: in (0, 1/2].
        a: positive; arguments are broadcast, and the result has one dimension.
        b: positive.
        start: where to start from, if something good is known.
    """
    tail, a, b = (np.ravel(one).astype(float) for one in np.broadcast_arrays(tail, a, b))
    logits = _guess(tail, a, b) if start is None else np.broadcast_to(start, tail.shape).astype(float)
    corrections = stirling(np.concatenate((a + b, a, b))).reshape(3, -1)
    top = np.log(a * (b / (a + b)) / (2 * pi)) / 2 + corrections[0] - corrections[1] - corrections[2]
    target, open_ = np.log(tail) - top, np.arange(len(tail))
    for _ in range(_STEPS):
        step, close = _step(logits[open_], a[open_], b[open_], target[open_])
        logits[open_] += step
        open_ = open_[~close]
        if not len(open_):
            break
    return logits


def _guess(tail: Array, a: Array, b: Array) -> Array:
    """Abramowitz and Stegun 26.5.22, which is for a, b ≥ 1; below, a start like any other."""
    tails, which = np.unique(tail, return_inverse=True)
    z = np.array([-NormalDist().inv_cdf(one) for one in tails])[which]
    p, q = 1 / np.maximum(2 * a - 1, 1), 1 / np.maximum(2 * b - 1, 1)
    h = 2 / (p + q)
    bend = (z**2 - 3) / 6
    w = z * np.sqrt(h + bend) / h - (q - p) * (bend + 5 / 6 - 2 / (3 * h))
    return np.asarray(np.log(a / b) - 2 * w)


def _step(logit: Array, a: Array, b: Array, target: Array) -> tuple[Array, NDArray[np.bool_]]:
    """The step towards log I = `target` + log f at its top, and whether it is the last."""
    log_x, log_y = -log1p_exp(-logit), -log1p_exp(logit)
    with underflow("a logit far from the middle"):
        x, y = np.exp(log_x), np.exp(log_y)
    slope, bend = a * y - b * x, (a + b) * x * y
    area = _area(a, b, x, y)
    g = 1 / area
    step = (target + deviance(log_x, log_y, a, b) - np.log(area)) * area
    size = np.abs(step) * np.maximum(np.maximum(np.abs(slope - g), g), np.sqrt(bend))
    m = slope - g
    series = step * (1 - step * m / 2 + step**2 * (2 * m**2 + bend + g * m) / 6)
    return np.where(size < _NEAR, series, step), size < _CLOSE


def _area(a: Array, b: Array, x: Array, y: Array) -> Array:
    """Q of this module's docstring."""
    low, total, area = x <= y, a + b, np.empty(len(a))
    linear, share, sign = np.where(low, a, -b), np.where(low, x, y), np.where(low, -1.0, 1.0)
    end = _end(a, b, x, y)
    for start in range(0, len(a), _BLOCK):
        rows = slice(start, start + _BLOCK)
        t = end[rows, None] * _NODES
        phi = sign[rows, None] * t
        np.expm1(phi, out=phi)
        phi *= share[rows, None]
        np.log1p(phi, out=phi)
        phi *= total[rows, None]
        t *= linear[rows, None]
        phi += t
        np.negative(phi, out=phi)
        with underflow("the end of an integral"):
            np.exp(phi, out=phi)
        area[rows] = phi @ _WEIGHTS
    return area * end


def _end(a: Array, b: Array, x: Array, y: Array) -> Array:
    """The t where phi is `_NEGLIGIBLE`, or somewhat farther: by Newton's method on a convex function."""
    slope, bend = a * y - b * x, (a + b) * x * y
    end = 2 * _NEGLIGIBLE / (slope + np.sqrt(slope**2 + 2 * _NEGLIGIBLE * bend))
    for _ in range(_END_STEPS):
        end = np.minimum(end, _FARTHEST)
        left = x * np.exp(-end) + y
        phi = a * end + (a + b) * np.log(left)  # loses digits, of which the end of a sum needs none
        end += (_NEGLIGIBLE - phi) / np.maximum(a - (a + b) * (1 - y / left), 1e-3 * a)
    return np.clip(end, 0, _FARTHEST)


def deviance(log_x: Array, log_y: Array, a: Array, b: Array) -> Array:
    """a·log(a/(x(a+b))) + b·log(b/(y(a+b))), a, b ≥ 0, a + b > 0: what a likelihood lacks to its top, at least 0.

    With d = xb - ya it is -a·log1p(d/a) - b·log1p(-d/b), which cancel to first order only.
    """
    with underflow("a logit far from the middle"):
        d = np.exp(log_x) * b - np.exp(log_y) * a
    some, rest = np.where(a > 0, a, 1.0), np.where(b > 0, b, 1.0)
    first = np.where(d > -a / 2, np.log1p(np.maximum(d / some, -0.5)), log_x - np.log(some / (a + b)))
    second = np.where(d < b / 2, np.log1p(np.maximum(-d / rest, -0.5)), log_y - np.log(rest / (a + b)))
    return np.asarray(-a * first - b * second)


def stirling(z: Array) -> Array:
    """The error of Stirling's formula for log Γ(z); its series (DLMF 5.11.1) is exact to 1e-16 from z = 16."""
    w = 1 / (z * z)
    error = np.asarray((1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w / 1188)))) / z)
    for place in np.flatnonzero(z < _STIRLING_FROM):
        one = float(z[place])
        error[place] = lgamma(one) - (one - 0.5) * log(one) + one - log(2 * pi) / 2
    return error


def expit(logit: Array) -> Array:
    """The x of a logit."""
    with underflow("a logit far from the middle"):
        return np.asarray(np.exp(-log1p_exp(-logit)))


def log1p_exp(u: Array) -> Array:
    """log(1 + e^u) at any u."""
    with underflow("a logit far from the middle"):
        return np.asarray(np.maximum(u, 0.0) + np.log1p(np.exp(-np.abs(u))))


def binomial_chances(n: int, counts: NDArray[np.int64], chance: float) -> Array:
    """P(Bin(n, `chance`) = count) of each count, 0 < chance < 1; by Stirling's series, so that nothing cancels."""
    yes, no = counts.astype(float), (n - counts).astype(float)
    logs = -deviance(np.full(len(yes), log(chance)), np.full(len(yes), log1p(-chance)), yes, no)
    return np.asarray(np.exp(logs + _beyond_powers(np.array([float(n)])) - _beyond_powers(yes) - _beyond_powers(no)))


def _beyond_powers(count: Array) -> Array:
    """log(k!) less k·log(k) - k."""
    some = np.maximum(count, 1.0)
    return np.where(count > 0, np.log(2 * pi * some) / 2 + stirling(some), 0.0)


@lru_cache(maxsize=256)
def normal_quantile(confidence: float) -> float:
    """The z with P(|N(0, 1)| ≤ z) = `confidence`."""
    return -_normal_quantile_below((1 - confidence) / 2)


@lru_cache(maxsize=4096)
def student_quantile(freedom: int, confidence: float) -> float:
    """The t with P(|T| ≤ t) = `confidence` for Student's T with `freedom` ≥ 1 degrees of freedom f.

    P(|T| > t) = I_x(f/2, 1/2) at x = f/(f + t^2) (Abramowitz and Stegun 26.7.1), so t^2 = f·(1 - x)/x. Of the two
    tails the smaller is solved for, so that neither end of (0, 1) loses digits.
    """
    return student_quantiles([(freedom, confidence)])[0]


def student_quantiles(asked: Sequence[tuple[int, float]]) -> list[float]:
    """`student_quantile` of many degrees of freedom and confidences."""
    tails, a, b, starts, signs = [], [], [], [], []
    for freedom, confidence in asked:
        z = max(normal_quantile(confidence), confidence)  # the former is 0 where 1 - confidence is 1
        start = log(freedom) - 2 * log(z + (z**3 + z) / (4 * freedom))  # 26.7.5, two terms
        outer = confidence > 0.5  # noqa: PLR2004 - one half: where the tails are equal
        tails.append(1 - confidence if outer else confidence)
        a.append(freedom / 2 if outer else 0.5)
        b.append(0.5 if outer else freedom / 2)
        starts.append(start if outer else -start)
        signs.append(1 if outer else -1)
    logits = beta_logits(tails, a, b, starts).tolist()
    return [
        sqrt(freedom) * exp(-sign * logit / 2) for (freedom, _), sign, logit in zip(asked, signs, logits, strict=True)
    ]


def _normal_quantile_below(probability: float) -> float:
    """The z with P(N(0, 1) ≤ z) = `probability`, 0 < probability."""
    return NormalDist().inv_cdf(probability)


Counts = NDArray[np.int64]

_BAND_STEPS = 60
_BAND_CLOSE = 1e-13


def clopper_pearson_shares(asked: Sequence[tuple[int, int, float]]) -> list[tuple[float, float]]:
    """The limits for reports, ones among them and a confidence each, both tails (1 - confidence)/2."""
    confidences = sorted({confidence for _, _, confidence in asked})
    n, ones = (np.array([one[at] for one in asked], dtype=np.int64) for at in (0, 1))
    low, high = clopper_pearson(n, ones, [(1 - confidence) / 2 for confidence in confidences])
    row = [confidences.index(confidence) for _, _, confidence in asked]
    every = np.arange(len(asked))
    return list(zip(low[row, every].tolist(), high[row, every].tolist(), strict=True))


def clopper_pearson(n: int | Counts, counts: Counts, tails: list[float]) -> tuple[Array, Array]:
    """Lower and upper limits; a row for each tail, in (0, 1/2], the largest probability to be wrong."""
    some, most = counts > 0, counts < n
    a, b = (np.concatenate(pair).astype(float) for pair in _ends(n, counts, some, most))
    tail = np.repeat(tails, len(a))
    logits = beta_logits(tail, np.tile(a, len(tails)), np.tile(b + 1, len(tails))).reshape(len(tails), -1)
    return _unfolded(logits, some, most)


def beta_band(n: int, counts: Counts, alphas: list[float]) -> tuple[Array, Array]:
    """Both ends of the band, which is ever wrong with probability at most alpha > 0."""
    some, most = counts > 0, counts < n
    ones, others = (np.concatenate(pair).astype(float) for pair in _ends(n, counts, some, most))
    excess = np.log(n + 1) / 2 + log(pi / 2) / 2 + n * np.log1p(1 / n) + stirling(np.array([n + 1.0]))
    for part in (ones, others):
        excess = excess - part * np.log1p(0.5 / np.maximum(part, 0.5)) - stirling(part + 0.5)
    needed = excess - np.log(alphas)[:, None]
    logits = _left_edge(*np.broadcast_arrays(ones, others, needed))
    return _unfolded(logits, some, most)


def _ends(
    n: int | Counts, counts: Counts, some: NDArray[np.bool_], most: NDArray[np.bool_]
) -> tuple[tuple[Counts, Counts], tuple[Counts, Counts]]:
    """Ones and others for all lower ends, and then for all upper ends: those are lower ends of the zeros."""
    others = n - counts
    return (counts[some], others[most]), (others[some], counts[most])


def _unfolded(logits: Array, some: NDArray[np.bool_], most: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Lower and upper ends from the logits of `_ends`; without ones the lower is 0, without others the upper is 1."""
    low, high = np.zeros((len(logits), len(some))), np.ones((len(logits), len(most)))
    lower = int(some.sum())
    low[:, some], high[:, most] = expit(logits[:, :lower]), expit(-logits[:, lower:])
    return low, high


def _left_edge(ones: Array, others: Array, needed: Array) -> Array:
    """The logit below the top, log(ones/others), where the deviance is `needed`; ones > 0."""
    rest = others + 0.5
    logit = np.log(ones / rest) - np.sqrt(2 * needed * (1 / ones + 1 / rest))
    for _ in range(_BAND_STEPS):
        log_x, log_y = -log1p_exp(-logit), -log1p_exp(logit)
        slope = ones * np.exp(log_y) - others * np.exp(log_x)
        step = (deviance(log_x, log_y, ones, others) - needed) / slope
        logit += step
        if (np.abs(step) <= _BAND_CLOSE * np.maximum(np.abs(logit), 1)).all():
            break
    return logit
