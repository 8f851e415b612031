"""Limits for the probability behind n reports of which K are ones: for many counts and confidences at once.

Every function takes m counts and c error probabilities, and gives arrays of shape (c, m).

`clopper_pearson`: the limits of Clopper and Pearson (1934), from beta quantiles.

`beta_band`: the band of `anytime` for the population. The likelihood ratio of the Beta(1/2, 1/2) mixture is below
1/alpha where the deviance K·log(K/nc) + (n-K)·log((n-K)/n(1-c)) is below log(1/alpha) plus a number that depends on K
and n alone. The deviance is convex in the logit of c; Newton's method comes to its edges from outside.
"""

from collections.abc import Sequence
from math import log, pi

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.numerics.incomplete_beta import beta_logits, deviance, expit, log1p_exp, stirling

__all__ = ["beta_band", "clopper_pearson", "clopper_pearson_shares"]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

_STEPS = 60
_CLOSE = 1e-13


def clopper_pearson_shares(asked: Sequence[tuple[int, int, float]]) -> list[tuple[float, float]]:
    """The limits for reports, ones among them and a confidence each, both tails (1 - confidence)/2."""
    confidences = sorted({confidence for _, _, confidence in asked})
    n, ones = (np.array([one[at] for one in asked], dtype=np.int64) for at in (0, 1))
    low, high = clopper_pearson(n, ones, [(1 - confidence) / 2 for confidence in confidences])
    row = [confidences.index(confidence) for _, _, confidence in asked]
    every = np.arange(len(asked))
    return list(zip(low[row, every].tolist(), high[row, every].tolist(), strict=True))


def clopper_pearson(n: int | Counts, counts: Counts, tails: list[float]) -> tuple[Array, Array]:
    """Lower and upper limits; each is wrong with probability at most its tail, in (0, 1/2].

    Args:
        n: reports, of all counts or of each.
        counts: ones.
        tails: of each row of what comes back.
    """
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
    for _ in range(_STEPS):
        log_x, log_y = -log1p_exp(-logit), -log1p_exp(logit)
        slope = ones * np.exp(log_y) - others * np.exp(log_x)
        step = (deviance(log_x, log_y, ones, others) - needed) / slope
        logit += step
        if (np.abs(step) <= _CLOSE * np.maximum(np.abs(logit), 1)).all():
            break
    return logit
