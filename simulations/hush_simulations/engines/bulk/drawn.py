"""Drawn: what either way of the bulk engine gives."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from hush_aggregator.tally import Tally

__all__ = ["Drawn", "merged"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """All rounds of some devices.

    Args:
        tallies: one for each round.
        sums: of the true values, as `Crowd.sums`.
        known: how many values are in each sum.
        moved: how many devices move a value into the domain.
    """

    tallies: tuple[Tally, ...]
    sums: tuple[float, ...]
    known: tuple[int, ...]
    moved: int

    @property
    def truth(self) -> tuple[float | None, ...]:
        """The mean of each coordinate, the share of each label, or one number; None where nobody has a value."""
        return tuple(total / n if n else None for total, n in zip(self.sums, self.known, strict=True))


def merged(parts: Iterable[Drawn]) -> Drawn:
    """That of all devices; the sums are exact before they are rounded once, whatever the order is."""
    every = list(parts)
    return Drawn(
        tuple(reduce(Tally.merge, tallies) for tallies in zip(*(part.tallies for part in every), strict=True)),
        tuple(math.fsum(column) for column in zip(*(part.sums for part in every), strict=True)),
        tuple(sum(column) for column in zip(*(part.known for part in every), strict=True)),
        sum(part.moved for part in every),
    )
