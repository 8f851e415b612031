"""The betting interval: means of bounded reports at every n, whatever the distribution of the values is.

Reports a_1, …, a_n lie in [lo, hi] and have mean mu. A bet l ≥ 0 with l·(mu - lo) ≤ 1 pays 1 + l·(a - mu) ≥ 0, and 1 on
average; so the product over all reports, averaged over bets l_1, …, l_K of fixed weights, is a variable of mean at
most 1, and exceeds 2/alpha with probability at most alpha/2 (Markov). All mu where it does not are kept; the mirror
image gives the upper limit. (Waudby-Smith and Ramdas 2024, with constant bets: then the order of the reports does not
matter, and counts are enough.)

It holds as well for the mean of finitely many people, and where they report under different epsilons: given their
values x_i the noise leaves the product of 1 + l·(x_i - mu), which is at most 1 (inequality of means; no factor is
negative). If a random subset of them reports, as a coordinate of a vector is drawn, its mean over subsets is at most
that of independent draws, which is 1 (Maclaurin's inequality). And nothing is assumed about who chose which epsilon.

The bets are those that were best if the variance of a report were one of K values spread evenly, on the scale of its
logarithm, from the smallest that the noise allows to the largest that the values can add. So the interval adapts to
the reports, which a bound by the largest variance cannot; what K costs is log K in the threshold. No bet stakes more
than `_STAKE` of what it can lose. Each factor falls as mu grows, also where the stake is what limits the bet, so that
the mu that are kept form an interval.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import log

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.finite import Finite
from hush_aggregator.estimate.guard import underflow

__all__ = ["betting_interval", "betting_intervals"]

_BETS = 5
_TILT = 0.35  # weights grow as variance^0.35: a wide interval is the one that a shorter one helps most
_STAKE = 0.9
_CLOSE = 1e-10

_Array = NDArray[np.float64]
_Reports = Sequence[tuple[Finite, tuple[int, ...]]]


def betting_interval(reports: _Reports, confidence: float) -> tuple[float, float]:
    """All means that no bet refuses, rounded outwards; both limits lie between the least and the largest report.

    Args:
        reports: of each channel, how often each of its outputs came; at least one did.
        confidence: 1 - alpha.
    """
    counts = [np.array([[counts[y] for y in channel.used]], dtype=float) for channel, counts in reports]
    low, high = betting_intervals([channel for channel, _ in reports], counts, confidence)
    return float(low[0]), float(high[0])


def betting_intervals(channels: Sequence[Finite], counts: Sequence[_Array], confidence: float) -> tuple[_Array, _Array]:
    """The same for many samples at once, each with as many reports of every channel as the first one.

    Args:
        channels: of the reports.
        counts: of each channel, how often each output that it uses came, shape (samples, outputs).
        confidence: 1 - alpha.
    """
    sizes = tuple((channel, int(seen[0].sum())) for channel, seen in zip(channels, counts, strict=True))
    weighed, needed = _bets(sizes, confidence), log(2 / (1 - confidence))
    a, seen = np.concatenate([channel.a for channel in channels]), np.concatenate(counts, axis=1)
    some = seen.any(axis=0)
    low = _lower(a[some], seen[:, some], float(a.min()), weighed, needed)
    high = -_lower(-a[some], seen[:, some], -float(a.max()), weighed, needed)
    return low, high


@lru_cache(maxsize=256)
def _bets(sizes: tuple[tuple[Finite, int], ...], confidence: float) -> tuple[_Array, _Array]:
    """The bets, and the logarithms of their weights."""
    n = sum(size for _, size in sizes)
    least = sum(size * channel.variances[0] for channel, size in sizes) / n
    most = sum(size * channel.second_moment for channel, size in sizes) / n
    variances = np.geomspace(least, most, _BETS)
    weights = variances**_TILT
    bets = np.sqrt(2 * (log(2 / (1 - confidence)) + log(_BETS)) / (n * variances))
    return bets, np.log(weights / weights.sum())


def _lower(a: _Array, seen: _Array, least: float, weighed: tuple[_Array, _Array], needed: float) -> _Array:
    """The largest mu known to be refused, of each sample.

    The wealth falls from mu = `least`, where everything pays, to the largest report, where nothing does. In each round
    it is looked at in the middle of the bracket, and close around the root of the chord.
    """
    bets, weights = weighed

    def excess(mu: _Array, seen: _Array) -> _Array:
        stakes = np.minimum(bets[:, None, None], _STAKE / (mu - least))
        wealth = np.einsum("ksim,sm->ksi", np.log1p(stakes[..., None] * (a - mu[..., None])), seen)
        wealth += weights[:, None, None]
        top = wealth.max(axis=0)
        with underflow("the wealth of the other bets"):
            return np.asarray(top + np.log(np.exp(wealth - top).sum(axis=0)) - needed)

    close = _CLOSE * max(float(a.max()) - least, 1.0)
    found, high = np.full(len(seen), least), np.where(seen > 0, a, least).max(axis=1)
    low = np.full(len(seen), least + close)
    rows = np.flatnonzero(high > low)
    heights = excess(np.stack((low, high), axis=1)[rows], seen[rows])
    rows, heights = rows[heights[:, 0] >= 0], heights[heights[:, 0] >= 0]
    mus = np.stack((low[rows], high[rows]), axis=1)
    while len(rows):
        width = mus[:, 1] - mus[:, 0]
        root = mus[:, 1] + width * heights[:, 1] / (heights[:, 0] - heights[:, 1])
        near = np.maximum(width / 256, close / 4)
        inside = np.stack((root - near, root + near, mus.mean(axis=1)), axis=1)
        inside = np.sort(np.clip(inside, mus[:, :1], mus[:, 1:]), axis=1)
        mus = np.concatenate((mus[:, :1], inside, mus[:, 1:]), axis=1)
        heights = np.concatenate((heights[:, :1], excess(inside, seen[rows]), heights[:, 1:]), axis=1)
        at = (heights[:, 1:4] >= 0).sum(axis=1)[:, None] + np.arange(2)
        mus, heights = np.take_along_axis(mus, at, axis=1), np.take_along_axis(heights, at, axis=1)
        found[rows] = mus[:, 0]
        open_ = mus[:, 1] - mus[:, 0] > close
        rows, mus, heights = rows[open_], mus[open_], heights[open_]
    return found
