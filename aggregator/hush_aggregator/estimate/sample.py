"""Sample: bounded reports by channel, and the statistics that their intervals need."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import sqrt
from operator import mul

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.finite_channel import FiniteChannel
from hush_aggregator.estimate.intervals.betting import Reports
from hush_aggregator.estimate.intervals.chernoff import Sizes
from hush_aggregator.estimate.intervals.lattice import Lattice, Spread, lattices
from hush_aggregator.estimate.intervals.student_score import enough

__all__ = ["Group", "Sample", "is_normal"]

_USUAL = 0.95


def is_normal(sizes: Sizes, confidence: float) -> bool:
    """Whether so many reports have a mean that is close to normal, far enough out for this confidence."""
    reach = max(channel.reach for channel, _ in sizes)
    return sum(size * channel.variances[0] for channel, size in sizes) >= enough(confidence) * reach**2


@dataclass(frozen=True)
class Group:
    """The reports of one channel: how often each output came."""

    channel: FiniteChannel
    counts: tuple[int, ...]

    @cached_property
    def n(self) -> int:
        return sum(self.counts)

    @cached_property
    def total(self) -> Fraction:
        """The sum of the decoded positions."""
        positions, unit = self.channel.scaled
        return Fraction(sum(map(mul, self.counts, positions)), unit)

    @cached_property
    def squares(self) -> float:
        """The sum of squares of the decoded positions around their mean."""
        counts = np.array([self.counts[y] for y in self.channel.used], dtype=float)
        return float(counts @ (self.channel.a - float(self.total / self.n)) ** 2)


@dataclass(frozen=True)
class Sample:
    """All reports of at least one device; empty groups are left out."""

    groups: tuple[Group, ...]

    @cached_property
    def sizes(self) -> Sizes:
        return tuple((group.channel, group.n) for group in self.groups)

    @cached_property
    def reports(self) -> Reports:
        return tuple((group.channel, group.counts) for group in self.groups)

    @cached_property
    def n(self) -> int:
        return sum(group.n for group in self.groups)

    @cached_property
    def center(self) -> Fraction:
        return sum((group.total for group in self.groups), Fraction(0)) / self.n

    @cached_property
    def noise(self) -> tuple[float, float]:
        """Bounds of the mean variance of a report given its value."""
        low, high = (sum(size * channel.variances[at] for channel, size in self.sizes) / self.n for at in (0, 1))
        return low, high

    @cached_property
    def variance(self) -> float:
        """Of all reports, not below that of the noise."""
        squares = sum(
            group.squares + group.n * float(group.total / group.n - self.center) ** 2 for group in self.groups
        )
        return max(squares / max(self.n - 1, 1), self.noise[0])

    def without(self, answered: float) -> float:
        """The variance, where that of the values counts but for a share of it: no more than this is noise for sure."""
        return self.variance - answered * max(self.variance - self.noise[1], 0.0)

    def lattices(self, shortest: float, answered: float) -> list[Lattice]:
        """Those of the sum that show in an interval of this half-length; the values smooth but for a share of them."""
        return lattices(self.sizes, shortest, seen=lambda: self._spread, answered=answered)

    @cached_property
    def _spread(self) -> Spread:
        return Spread(self.sizes, self._seen())

    def _seen(self) -> list[NDArray[np.float64]]:
        return [np.array([[group.counts[y] for y in group.channel.used]], dtype=float) for group in self.groups]

    def deviation(self) -> float:
        """A standard error for the population: of the sample if it is large, else of the largest variance there is."""
        if is_normal(self.sizes, _USUAL):
            return sqrt(self.variance / self.n)
        return sqrt(sum(size * channel.second_moment for channel, size in self.sizes)) / self.n
