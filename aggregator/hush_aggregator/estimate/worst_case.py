"""Worst-case tallies for planning: of the population whose reports vary most, and of unlucky samples of it.

Whose reports. Where the values are known (`Values`), theirs. Else of all distributions of values the one whose reports
vary most: on two of the levels between which the second moment of a report is linear, at the mean where the chord of
the second moments lies highest above the square of the mean.

Which of their reports. Samples differ. The tally is the expected one, given that the sample variance (and of a vector
the number that drew the coordinate, at its worst along with it) lies at its quantile `KEPT`: with psi = (a - mu)^2 -
sigma^2 for a report a, its deviation is that of the mean of n psi's, corrected for skewness (Cornish and Fisher), and
the expected share of an output moves by z·psi·share/sqrt(n·Var psi).
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.finite_channel import FiniteChannel
from hush_aggregator.estimate.numerics.quantiles import normal_quantile

__all__ = ["KEPT", "Assumed", "Values", "largest_variance", "quantile", "worst_counts", "worst_people"]

KEPT = 0.95
"""In so many of all samples an interval is no longer than planned, however the values are distributed."""

_Z = normal_quantile(2 * KEPT - 1)
_NONE = 1e-30

_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Who has which value: compared by identity, as a key of caches.

    Args:
        places: different values in [0, 1].
        shares: how large a share of the people has each; they add up to 1.
    """

    places: _Array
    shares: _Array

    @property
    def mean(self) -> float:
        return float(self.shares @ self.places)

    def moment(self, order: int) -> float:
        """About the mean; the second is the variance."""
        return float(self.shares @ (self.places - self.mean) ** order)

    def at(self, nodes: _Array) -> _Array:
        """How large a share is rounded to each node: to one of the two beside a value, so that its mean is the value.

        Args:
            nodes: ascending, from 0 to 1.
        """
        above = np.clip(np.searchsorted(nodes, self.places, side="left"), 1, len(nodes) - 1)
        upwards = (self.places - nodes[above - 1]) / (nodes[above] - nodes[above - 1])
        found = np.zeros(len(nodes))
        np.add.at(found, above, self.shares * upwards)
        np.add.at(found, above - 1, self.shares * (1 - upwards))
        return found


Assumed = Values | float | None
"""Of the values: who has which, or their mean alone, or nothing. What is not known is the worst there is."""


def largest_variance(channel: FiniteChannel) -> float:
    """Of a report of a person drawn from a population, whatever that is."""
    x, people = worst_people(channel, None)
    return float(people @ channel.p @ channel.a**2 - x**2)


@lru_cache(maxsize=256)
def worst_people(channel: FiniteChannel, assumed: Assumed) -> tuple[float, _Array]:
    """The mean of the worst values, the given one if any, and which share of them lies at each node."""
    if isinstance(assumed, Values):
        return assumed.mean, assumed.at(channel.nodes)
    mean = assumed
    squares, x = (channel.p @ channel.a**2).tolist(), channel.nodes.tolist()
    most, best = -1.0, (0, 0, 0.0)
    for i, j in combinations_with_replacement(range(len(x)), 2):
        slope = (squares[j] - squares[i]) / (x[j] - x[i]) if i < j else 0.0
        at = min(max(slope / 2 if mean is None else mean, x[i]), x[j])
        variance = squares[i] + slope * (at - x[i]) - at**2
        if variance > most and (mean is None or at == mean):
            most, best = variance, (i, j, at)
    i, j, at = best
    people = np.zeros(len(x))
    people[i] = 1 - ((at - x[i]) / (x[j] - x[i]) if i < j else 0.0)
    people[j] += 1 - people[i] if i < j else 0.0
    return at, people


def worst_counts(channel: FiniteChannel, people: int, assumed: Assumed, drawn: float = 1.0) -> tuple[float, list[int]]:
    """The mean of the values, and how often each used output came, of those whom chance drew."""
    mu, people_at = worst_people(channel, assumed)
    share = people_at @ channel.p
    squares = (channel.a - mu) ** 2
    psi = squares / float(share @ squares) - 1
    n, missed = people * drawn, 1 - drawn  # psi's mean less the relative excess of those drawn, at its quantile:
    variance = (float(share @ psi**2) + missed) / n
    third = (float(share @ psi**3) - missed * (missed - drawn)) / n**2
    if variance > _NONE:
        z = quantile(third / variance**1.5)
        likely = np.maximum(share * (1 + z * psi / n / sqrt(variance)), 0)
        n *= 1 - z * missed / n / sqrt(variance)
        fair = len(share) == 2 and (likely[0] > likely[1]) != (share[0] > share[1])  # noqa: PLR2004 - a coin
        share = share if fair else likely / likely.sum()  # a coin that chance may make fair varies as one does
    return mu, _rounded(share, max(round(n), 1))


def quantile(skewness: float) -> float:
    """At `KEPT`, of a deviation whose skewness, beyond what the expansion is good for, counts as 1."""
    return _Z + min(max(skewness, -1.0), 1.0) * (_Z**2 - 1) / 6


def _rounded(share: _Array, n: int) -> list[int]:
    """Integers of sum n, by largest remainders."""
    exact = [float(one) * n for one in share]
    counts = [int(one) for one in exact]
    by_rest = sorted(range(len(counts)), key=lambda place: counts[place] - exact[place])
    for turn in range(n - sum(counts)):
        counts[by_rest[turn % len(by_rest)]] += 1
    return counts
