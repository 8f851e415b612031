"""Limits for the probability behind n reports of which K are ones: for many counts and confidences at once.

Every function takes m counts and c error probabilities, and gives arrays of shape (c, m).

`clopper_pearson`: the limits of Clopper and Pearson (1934), from beta quantiles.

`beta_band`: the band of `anytime` for the population. The likelihood ratio of the Beta(1/2, 1/2) mixture is below
1/alpha where the deviance K·log(K/nc) + (n-K)·log((n-K)/n(1-c)) is below log(1/alpha) plus a number that depends on K
and n alone. The deviance is convex in the logit of c; Newton's method comes to its edges from outside.

`fewest`: the exact inversion of the sum of two binomials, for reporters.
"""

from fractions import Fraction
from functools import lru_cache
from math import log, pi
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.beta import beta_logits, deviance, expit, log1p_exp, log_gamma, stirling

__all__ = ["INVERSION_LIMIT", "beta_band", "clopper_pearson", "clopper_pearson_share", "fewest"]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Pair = tuple[Fraction, Fraction]

INVERSION_LIMIT = 10_000
"""Most reports for which a sum of two binomials is inverted."""

_STEPS = 60
_CLOSE = 1e-13
_DEVIATIONS, _BEYOND = 9.5, 30
_GUESSES = 4


@lru_cache(maxsize=4096)
def clopper_pearson_share(n: int, ones: int, confidence: float) -> tuple[float, float]:
    """The limits for one count, both tails (1 - confidence)/2."""
    low, high = clopper_pearson(n, np.array([ones]), [(1 - confidence) / 2])
    return float(low[0, 0]), float(high[0, 0])


def clopper_pearson(n: int, counts: Counts, tails: list[float]) -> tuple[Array, Array]:
    """Lower and upper limits; each is wrong with probability at most its tail, in (0, 1/2]."""
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
    n: int, counts: Counts, some: NDArray[np.bool_], most: NDArray[np.bool_]
) -> tuple[tuple[Counts, Counts], tuple[Counts, Counts]]:
    """Ones and others for all lower ends, and then for all upper ends: those are lower ends of the zeros."""
    return (counts[some], n - counts[most]), (n - counts[some], counts[most])


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
    for _ in range(_STEPS):
        log_x, log_y = -log1p_exp(-logit), -log1p_exp(logit)
        slope = ones * np.exp(log_y) - others * np.exp(log_x)
        step = (deviance(log_x, log_y, ones, others) - needed) / slope
        logit += step
        if (np.abs(step) <= _CLOSE * np.maximum(np.abs(logit), 1)).all():
            break
    return logit


def fewest(n: int, counts: Counts, p: Array, tail: Array) -> Counts:
    """The fewest j with P(Bin(j, p_1) + Bin(n-j, p_0) ≥ count) > tail, or n if none does; row by row.

    The probability rises with j: from a guess (normal, corrected for skewness) steps that double, then bisection.

    Args:
        n: at most `INVERSION_LIMIT`.
        counts: of each row.
        p: p_0, p_1, 1 - p_0 and 1 - p_1 of each row: shape (4, rows), 0 < p_0 < p_1 < 1.
        tail: of each row.
    """
    low, high = np.zeros(len(counts), dtype=np.int64), np.full(len(counts), n)
    at, stride = _guess(n, counts, p, tail), 1
    while (open_ := np.flatnonzero(low < high)).size:
        here = at[open_]
        enough = at_least(n, counts[open_], here, p[:, open_]) > tail[open_]
        high[open_], low[open_] = np.where(enough, here, high[open_]), np.where(enough, low[open_], here + 1)
        middle = (low[open_] + high[open_]) // 2
        down = np.maximum(here - stride, np.where(low[open_] > 0, middle, 0))
        up = np.minimum(here + stride, np.where(high[open_] < n, middle, n - 1))
        at[open_] = np.where(enough, down, up)
        stride *= 2
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


def at_least(n: int, counts: Counts, j: Counts, p: Array) -> Array:
    """P(Bin(j, p_1) + Bin(n-j, p_0) ≥ count) of each row: one product of positive terms."""
    first, true_ones = _binomial(j, p[1], p[3])
    least, others = _binomial(n - j, p[0], p[2])
    tails = np.zeros((len(counts), others.shape[1] + 1))  # P(≥ least + i)
    tails[:, :-1] = np.cumsum(others[:, ::-1], axis=1)[:, ::-1]
    needed = (counts - least - first)[:, None] - np.arange(true_ones.shape[1])
    np.clip(needed, 0, others.shape[1], out=needed)
    return np.asarray(np.einsum("ij,ij->i", true_ones, np.take_along_axis(tails, needed, axis=1)))


def _binomial(n: Counts, p: Array, q: Array) -> tuple[Counts, Array]:
    """The smallest i and P(Bin(n, p) = i), … of all but 1e-18 of the mass, 0 < p < 1 (Bernstein's inequality)."""
    reach = _DEVIATIONS * np.sqrt(n * p * q) + _BEYOND
    low = np.maximum(n * p - reach, 0).astype(np.int64)
    high = np.minimum((n * p + reach).astype(np.int64) + 1, n)
    i = low[:, None] + np.arange(int((high - low).max()) + 1)
    others = n[:, None] - i
    log_factorial = _log_factorials()
    logs = i * np.log(p)[:, None] + others * np.log(q)[:, None] + log_factorial[n][:, None]
    logs -= log_factorial.take(i, mode="clip") + log_factorial.take(others, mode="clip")
    return low, np.where(i <= high[:, None], np.exp(np.minimum(logs, 0)), 0.0)


@lru_cache(maxsize=1)
def _log_factorials() -> Array:
    return log_gamma(np.arange(1.0, INVERSION_LIMIT + 2))
