"""The betting interval: means of bounded reports at every n, whatever the distribution of the values is.

Reports a_1, …, a_n lie in [lo, hi] and have mean mu. A bet l ≥ 0 with l·(mu - lo) ≤ 1 pays 1 + l·(a - mu) ≥ 0, and 1 on
average; so the product over all reports, averaged over bets l_1, …, l_K of fixed weights, is a variable of mean at
most 1, and exceeds 2/alpha with probability at most alpha/2 (Markov). All mu where it does not are kept; the mirror
image gives the upper limit. (Waudby-Smith and Ramdas 2024, with constant bets: then the order of the reports does not
matter, and counts are enough.)

It holds as well for the mean of finitely many people of whom a random subset reports, as a coordinate of a vector is
drawn: given who they are, the noise leaves the product of 1 + l·(x - mu) over the subset, and its mean over subsets is
at most that of independent draws, which is 1 (Maclaurin's inequality; no factor is negative).

The bets are those that were best if the variance of a report were one of K values spread evenly, on the scale of its
logarithm, from the smallest that the noise allows to the largest that the values can add. So the interval adapts to
the reports, which a bound by the largest variance cannot; what K costs is log K in the threshold. No bet stakes more
than `_STAKE` of what it can lose. Each factor falls as mu grows, also where the stake is what limits the bet, so that
the mu that are kept form an interval.
"""

from functools import lru_cache
from math import log

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.finite import Finite

__all__ = ["betting_interval"]

_BETS = 5
_TILT = 0.35  # weights grow as variance^0.35: a wide interval is the one that a shorter one helps most
_STAKE = 0.9
_POINTS = 17
_CLOSE = 1e-10

_Array = NDArray[np.float64]


def betting_interval(channel: Finite, counts: tuple[int, ...], confidence: float) -> tuple[float, float]:
    """All means that no bet refuses, rounded outwards; both limits lie between the least and the largest report.

    Args:
        channel: of the reports.
        counts: how often each output came; at least one did.
        confidence: 1 - alpha.
    """
    bets, weights = _bets(channel, sum(counts), confidence)
    needed = log(2 / (1 - confidence))
    seen = np.array([counts[y] for y in channel.used], dtype=float)
    low = _lower(channel.a, seen, bets, weights, needed)
    high = -_lower(-channel.a[::-1], seen[::-1], bets, weights, needed)
    return low, high


@lru_cache(maxsize=256)
def _bets(channel: Finite, n: int, confidence: float) -> tuple[_Array, _Array]:
    """The bets, and the logarithms of their weights."""
    variances = np.geomspace(channel.variances[0], channel.second_moment, _BETS)
    weights = variances**_TILT
    bets = np.sqrt(2 * (log(2 / (1 - confidence)) + log(_BETS)) / (n * variances))
    return bets, np.log(weights / weights.sum())


def _lower(a: _Array, seen: _Array, bets: _Array, weights: _Array, needed: float) -> float:
    """The largest mu known to be refused: a grid of candidates, refined around the place where it ends."""
    low, high = float(a[0]), float(a[-1])  # everything pays at the first, nothing at the last
    while high - low > _CLOSE:
        mu = np.linspace(low, high, _POINTS)[1:-1]
        stakes = np.minimum(bets[:, None], _STAKE / (mu - a[0]))
        wealth = np.log1p(stakes[:, :, None] * (a - mu[:, None])) @ seen + weights[:, None]
        top = wealth.max(axis=0)
        refused = int((top + np.log(np.exp(wealth - top).sum(axis=0)) >= needed).sum())
        low, high = (low, *mu.tolist(), high)[refused : refused + 2]
    return low
