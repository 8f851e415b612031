"""Choose the interval for the reporters of few bounded reports: betting, Chernoff's bound, or their average.

Betting is valid for the reporters too, and is then the interval of the population. Its width depends on the reports:
the least where all are equal, the largest where half of the people are at either bound. Chernoff's depends on n, the
channels and the confidence alone.

- "betting": even at its widest it is little wider than Chernoff's bound at alpha/2. Then the two targets have one
  interval.
- "chernoff": it is narrower than betting could ever be.
- "chernoff-betting": bets on the noise and Chernoff's, half of the weight each (`noise_limits`). Where all values are
  alike this may be wider than the interval of the population. docs/statistics.md says why, and by how much.

The rule knows n, the channels and the confidence, and never reads the reports.
"""

from functools import lru_cache
from itertools import pairwise
from math import expm1, log

import numpy as np

from hush_aggregator.estimate.batches import noise_bounds
from hush_aggregator.estimate.finite_channel import FiniteChannel
from hush_aggregator.estimate.intervals.betting import STAKE, betting_limits, half_as_often
from hush_aggregator.estimate.intervals.chernoff import Sizes

__all__ = ["rule"]

_LITTLE = 1.2


@lru_cache(maxsize=1024)
def rule(sizes: Sizes, confidence: float) -> str:
    """The name of the method."""
    (alone,) = map(sum, noise_bounds([(sizes, confidence)]))
    if alone <= _least_of_betting(sizes, confidence):
        return "chernoff"
    (halved,) = map(sum, noise_bounds([(sizes, half_as_often(confidence))]))
    mirrored = all(channel.symmetric for channel, _ in sizes)
    kinds = (None, 0, 1) if mirrored else (None, 0, 1, 2)
    tallies = [tuple((channel, _counts(channel, n, at)) for channel, n in sizes) for at in kinds]
    widths = [high - low for low, high in betting_limits([(one, confidence) for one in tallies])]
    if widths[0] <= _LITTLE * halved:
        return "betting"
    return "chernoff" if alone <= min(widths[1:]) else "chernoff-betting"


def _least_of_betting(sizes: Sizes, confidence: float) -> float:
    """No betting interval is shorter, were all reports equal and each bet as high as it may be."""
    growth = expm1(log(2 / (1 - confidence)) / sum(n for _, n in sizes)) / STAKE
    ends = [end for channel, _ in sizes for end in (float(channel.a[0]), float(channel.a[-1]))]
    return (max(ends) - min(ends)) * growth / (1 + growth)


def _counts(channel: FiniteChannel, n: int, at: int | None) -> tuple[int, ...]:
    """All of the first output used, the middle one or the last (0, 1, 2); None: half of the people at either bound."""
    law = channel.parted
    if at is not None:
        law = np.zeros(len(channel.used))
        law[at * (len(law) - 1) // 2] = 1
    until = [0, *(round(n * share) for share in np.cumsum(law).tolist())]
    counts = [0] * len(channel.positions)
    for place, (before, after) in zip(channel.used, pairwise(until), strict=True):
        counts[place] = after - before
    return tuple(counts)
