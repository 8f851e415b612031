"""Tally: the sufficient statistics of one round, as exact integers.

Which integers they are is the business of each mechanism (`hush_aggregator.estimate.mechanisms`); here they only add
up. Merging commutes and associates, so shards in any order give the same tally bit for bit.
"""

from dataclasses import dataclass
from operator import add


@dataclass(frozen=True, slots=True)
class Tally:
    """How many reports were counted, and an exact sum for each column of the mechanism; none if nothing was counted."""

    n: int = 0
    moments: tuple[int, ...] = ()

    def merge(self, other: "Tally") -> "Tally":
        """Return the tally of both sets of reports; ValueError if their columns differ: they are of different tasks."""
        if not self.moments or not other.moments:
            return Tally(self.n + other.n, self.moments or other.moments)
        if len(self.moments) != len(other.moments):
            raise ValueError(
                f"tallies of {len(self.moments)} and {len(other.moments)} sums are of different tasks; merge one task"
            )
        return Tally(self.n + other.n, tuple(map(add, self.moments, other.moments)))
