"""Planned: how wide an interval will be, before anyone has reported.

The rules that choose an interval look at public parameters alone, so its method at n reports is known. Where its width
depends on what is reported, it is that of reports in the proportions that the mechanism gives them on average, for the
widest of some populations: all people on one value (each level, and between two), half at each bound, spread evenly.
A real survey of such a population comes out wider or shorter by the fluctuation of its sample variance.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hush_aggregator.estimate.bits import coins
from hush_aggregator.estimate.bounded import Group, ends
from hush_aggregator.estimate.finite import Finite, finite
from hush_aggregator.estimate.pooled import pooled_coins
from hush_common.mechanisms import RandomizedResponse, Single, SubsetSelection

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["planned_half_width"]

_SHARES = tuple(np.linspace(0, 1, 9).tolist())
_MOST_LEVELS = 9


def planned_half_width(
    mechanisms: Sequence[tuple[Single, int]], target: str, confidence: float, *, enrolled: int | None = None
) -> float:
    """Half the width, as a share of the range, of the interval for `target` at its widest population.

    Args:
        mechanisms: bounded ones of one number, a bit or one category each, and how many reports come under it: one,
            or several if the task offers several epsilons. For a coordinate of a vector its part.
        target: `"reporters"`, `"population"`, or with `enrolled` `"enrolled"`.
        confidence: of the interval; for one of d that hold jointly 1 - (1 - confidence)/d.
        enrolled: devices asked.

    Raises:
        KeyError: a target that these reports have no interval for.
    """
    parts = tuple((mechanism, n) for mechanism, n in mechanisms if n)
    return max(_half_widths(parts, target, confidence, enrolled))


@lru_cache(maxsize=4096)
def _half_widths(
    parts: tuple[tuple[Single, int], ...], target: str, confidence: float, enrolled: int | None
) -> tuple[float, ...]:
    whole = isinstance(parts[0][0], RandomizedResponse | SubsetSelection)
    return tuple(
        _questions(parts, target, confidence, enrolled) if whole else _numbers(parts, target, confidence, enrolled)
    )


def _questions(
    parts: Sequence[tuple[Single, int]], target: str, confidence: float, enrolled: int | None
) -> Iterator[float]:
    channels = [(finite(mechanism), n) for mechanism, n in parts]
    n = sum(size for _, size in channels)
    counts = [
        [round(size * (channel.p[0, 1] + share * (channel.p[1, 1] - channel.p[0, 1]))) for share in _SHARES]
        for channel, size in channels
    ]
    if len(channels) == 1:
        channel = channels[0][0]
        found = coins((channel.rows[0][1], channel.rows[1][1]), n, counts[0], [confidence], enrolled=enrolled)
    else:
        pooled = [(channel, size, yes) for (channel, size), yes in zip(channels, counts, strict=True)]
        found = pooled_coins(pooled, [confidence], enrolled=enrolled)
    for one in found.intervals[0]:
        low, high = one[target]
        yield (high - low) / 2


def _numbers(
    parts: Sequence[tuple[Single, int]], target: str, confidence: float, enrolled: int | None
) -> Iterator[float]:
    channels = [(finite(mechanism), n) for mechanism, n in parts]
    for values in _populations(max((channel for channel, _ in channels), key=lambda one: len(one.nodes))):
        groups = [Group(channel, _expected(channel, n, values)) for channel, n in channels]
        low, high = ends(groups, confidence, target, enrolled=enrolled)
        yield (high - low) / 2


def _populations(channel: Finite) -> Iterator[dict[float, float]]:
    nodes = channel.nodes if len(channel.nodes) <= _MOST_LEVELS else np.linspace(0, 1, _MOST_LEVELS)
    for value in (*nodes.tolist(), *((nodes[:-1] + nodes[1:]) / 2).tolist()):
        yield {value: 1.0}
    yield {0.0: 0.5, 1.0: 0.5}
    yield dict.fromkeys(nodes.tolist(), 1 / len(nodes))


def _expected(channel: Finite, n: int, values: dict[float, float]) -> tuple[int, ...]:
    """Counts of n reports nearest to their means: rounded down, and the largest remainders up."""
    law: NDArray[np.float64] = np.zeros(len(channel.used))
    for value, weight in values.items():
        law += weight * np.array([np.interp(value, channel.nodes, column) for column in channel.p.T])
    mean = n * law / law.sum()
    counts = np.floor(mean).astype(np.int64)
    lack = n - int(counts.sum())
    counts[np.argsort(counts - mean)[:lack]] += 1
    every = [0] * len(channel.positions)
    for place, count in zip(channel.used, counts.tolist(), strict=True):
        every[place] = count
    return tuple(every)
