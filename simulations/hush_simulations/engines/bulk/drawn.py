"""Drawn: what either way of the bulk engine gives."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from hush_aggregator.tally import Tally

__all__ = ["Drawn", "StoppedError", "Truth", "merged"]


class StoppedError(Exception):
    """Somebody wants no more of it, before anything was drawn."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true of those who answer in one round.

    Args:
        sums: of their values, one for each coordinate; of a category how many have each label.
        known: how many values are in each sum.
        people: how many they are.
        moved: how many of their devices move a value into the domain.
        groups: the same of each group; empty where there are none.
    """

    sums: tuple[float, ...]
    known: tuple[int, ...]
    people: int
    moved: int
    groups: "tuple[Truth, ...]" = ()

    @property
    def means(self) -> tuple[float | None, ...]:
        """The mean of each coordinate, the share of each label, or one number; None where nobody has a value."""
        return tuple(total / n if n else None for total, n in zip(self.sums, self.known, strict=True))

    def nobody(self) -> "Truth":
        """The same of nobody."""
        nothing = tuple(one.nobody() for one in self.groups)
        return Truth((0.0,) * len(self.sums), (0,) * len(self.known), 0, 0, nothing)


@dataclass(frozen=True, slots=True)
class Drawn:
    """All rounds of some devices.

    Args:
        tallies: one for each round.
        truths: likewise.
    """

    tallies: tuple[Tally, ...]
    truths: tuple[Truth, ...]

    @property
    def truth(self) -> tuple[float | None, ...]:
        """The means of the last round."""
        return self.truths[-1].means

    @property
    def together(self) -> tuple[float | None, ...]:
        """The means over the answers of all rounds."""
        return _joined(self.truths).means


def merged(parts: Iterable[Drawn]) -> Drawn:
    """That of all devices; the sums are exact before they are rounded once, whatever the order is."""
    every = list(parts)
    return Drawn(
        tuple(reduce(Tally.merge, tallies) for tallies in zip(*(part.tallies for part in every), strict=True)),
        tuple(_joined(truths) for truths in zip(*(part.truths for part in every), strict=True)),
    )


def _joined(truths: Sequence[Truth]) -> Truth:
    grouped = [one.groups for one in truths if one.groups]
    return Truth(
        tuple(math.fsum(column) for column in zip(*(one.sums for one in truths), strict=True)),
        tuple(sum(column) for column in zip(*(one.known for one in truths), strict=True)),
        sum(one.people for one in truths),
        sum(one.moved for one in truths),
        tuple(_joined(of_one) for of_one in zip(*grouped, strict=True)),
    )
