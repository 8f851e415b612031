"""Cells: where the values of people may lie, with how many people each is expected to have, or has.

A grid point of a number is a cell, which holds the values that a device rounds to it. Beyond the bounds there are cells
as well, for a device moves their values to the bound while the truth is about the values as they are: as many as
`BEYOND` on each side, each with the mean of what lies in it. Values somebody has are a cell each, and so are those of
each group of people.

A mechanism whose law is linear between two levels makes of people in a few neighbouring cells what it makes of as many
at their mean position: so such cells are one (`merged`), as wide as sqrt(n)/8 steps for n people. No tally changes its
law by that; the truth of one trial is off by the spread within cells over sqrt(n), at most 0.04 steps (rms).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_simulations.engines.bulk.number_cells import BEYOND, number_cells, on_grid
from hush_simulations.engines.bulk.scatter import Counts, scatter
from hush_simulations.scenarios.grouped import Grouped
from hush_simulations.scenarios.panel import STEADY, Panel
from hush_simulations.scenarios.population import (
    Bernoulli,
    Frequencies,
    Independent,
    Mixture,
    Numbers,
    Observed,
    Population,
    Value,
)
from hush_simulations.scenarios.shapes import Lognormal, Points

__all__ = ["MISSING", "Cells", "Places", "cells_of", "coordinates_of"]

MISSING = -1
"""The index of no usable value: a device draws one uniformly."""

Places = NDArray[np.int64] | NDArray[np.float64]

_WIDEST, _WORTH = 256, 32
_MOST_APART = 1 << 22


@dataclass(frozen=True, slots=True)
class Cells:
    """Where values may lie.

    Args:
        indices: of the domain, shape (cells,), of a vector (cells, coordinates); `MISSING` where there is no value. Of
            cells that were merged a mean, which is no integer.
        values: what they are truly, of the same shape; NaN where there is none. Of categories the place of the label.
        shares: how much of the people each has, shape (cells,).
        moved: whether a device moves the value into the domain.
        fixed: whether every cell is one person, none more or less.
        refusing: how likely a person there never answers, shape (cells,); None where everybody does.
        groups: the group of the people there; None where there are none.
    """

    indices: Places
    values: NDArray[np.float64]
    shares: NDArray[np.float64]
    moved: NDArray[np.bool_]
    fixed: bool = False
    refusing: NDArray[np.float64] | None = None
    groups: NDArray[np.int64] | None = None

    def drawn(self, people: Counts, rng: np.random.Generator) -> tuple[Self, Counts]:
        """The cells in which somebody may be, and how many people are in each.

        Where people are few each finds a cell by a uniform number, whose 53 bits are as exact as `scatter` is.

        Args:
            people: of each trial, shape (trials,).
            rng: the randomness.

        Returns:
            The second of shape (trials, cells).
        """
        cells, trials, every = len(self.shares), len(people), int(people.sum())
        if self.fixed:
            counts = (np.arange(cells) < people[:, None]).astype(np.int64)
            return self, counts
        if 8 * every >= trials * cells or trials * every > _MOST_APART:
            return self, scatter(people, self.shares, rng)
        below = np.cumsum(self.shares)
        places = np.searchsorted(below, rng.random(every) * below[-1], side="right")
        used, where = np.unique(np.minimum(places, cells - 1), return_inverse=True)
        flat = np.bincount(np.repeat(np.arange(trials), people) * len(used) + where, minlength=trials * len(used))
        return self[used], flat.reshape(trials, len(used)).astype(np.int64)

    def __getitem__(self, used: NDArray[np.int64]) -> Self:
        """Some of them."""
        return replace(
            self,
            indices=self.indices[used],
            values=self.values[used],
            shares=self.shares[used],
            moved=self.moved[used],
            refusing=None if self.refusing is None else self.refusing[used],
            groups=None if self.groups is None else self.groups[used],
        )

    def at(self, domain: Domain, by: Sequence[float]) -> Self:
        """The same people with other values: higher by so much, of a vector in each coordinate."""
        if not any(by):
            return self
        coordinates = domain.coordinates if isinstance(domain, VectorDomain) else (domain,)
        columns = (self.values + np.array(by)).reshape(len(self.values), -1)
        read = [on_grid(one, columns[:, c]) for c, one in enumerate(coordinates) if isinstance(one, NumberDomain)]
        indices = np.stack([index for index, _ in read], axis=1).reshape(self.indices.shape)
        moved = np.any([beyond for _, beyond in read], axis=0)
        indices[self.indices == MISSING] = MISSING
        return replace(self, indices=indices, values=columns.reshape(self.values.shape), moved=moved)

    def merged(self, steps: int, levels: Sequence[int], people: int) -> "Cells":
        """The same for a mechanism whose law is linear in the index between levels, with fewer cells.

        Args:
            steps: of the grid.
            levels: for each epsilon offered, between how many levels (less one) its law is linear.
            people: of one trial.
        """
        width = min(1 << max(isqrt(people) // 8, 1).bit_length() - 1, _WIDEST)
        if self.fixed or self.indices.ndim > 1 or width < _WORTH or len(self.indices) < BEYOND:
            return self
        if self._are_several:
            return _beside([some.merged(steps, levels, people) for some in self._by_group()])
        if not self._is_ordered:
            return self.ordered().merged(steps, levels, people)
        first, last = np.searchsorted(self.indices, (1, steps))
        if not first < last or self.indices[last - 1] - self.indices[first] > 2 * (last - first):
            return self  # points that lie apart
        edges = [np.searchsorted(self.indices, -(-np.arange(1, some) * steps // some)) for some in levels]
        ends = np.arange(first), np.arange(last, len(self.indices))
        return self._joined(np.unique(np.concatenate((*ends, np.arange(first, last, width), *edges))))

    def coarse(self, groups: int) -> "Cells":
        """A population of at most `groups` different values that is close to this one: for sweeps, which ask often.

        Neighbours become one cell at a grid point near their mean. It is another population, with a truth of its own,
        and nothing about the devices is approximated. Not for categories, which have no neighbours.
        """
        if self.fixed or self.indices.ndim > 1 or len(self.indices) <= groups or (self.indices == MISSING).any():
            return self
        if self._are_several:
            some = self._by_group()
            return _beside([one.coarse(max(groups // len(some), 1)) for one in some])
        if not self._is_ordered:
            return self.ordered().coarse(groups)
        joined = self._joined(np.arange(0, len(self.indices), -(-len(self.indices) // groups)))
        return replace(joined, indices=np.rint(joined.indices).astype(np.int64))

    @property
    def _are_several(self) -> bool:
        """Whether there are cells of more than one group."""
        return self.groups is not None and bool((self.groups != self.groups[0]).any())

    @property
    def _is_ordered(self) -> bool:
        return bool((np.diff(self.indices) >= 0).all() and self.shares.all())

    def ordered(self) -> Self:
        """The same with neighbours beside each other, for rows of a table come in any order; without empty cells."""
        order = np.argsort(self.indices, kind="stable")
        return self[order[self.shares[order] > 0]]

    def _joined(self, starts: NDArray[np.int64]) -> Self:
        """Neighbours as one cell each, from each of `starts` to the next; indices are means.

        Cells are of one group; those that answer with another probability stay apart.
        """
        if self.refusing is not None:
            starts = np.union1d(starts, np.nonzero(np.diff(self.refusing))[0] + 1)
        shares = np.add.reduceat(self.shares, starts)
        indices, values = (np.add.reduceat(self.shares * some, starts) / shares for some in (self.indices, self.values))
        moved = np.maximum.reduceat(self.moved, starts)
        return replace(self[starts], indices=indices, values=values, shares=shares, moved=moved)

    def _by_group(self) -> "list[Self]":
        groups = np.zeros(len(self.shares), dtype=np.int64) if self.groups is None else self.groups
        return [self[np.nonzero(groups == group)[0]] for group in np.unique(groups).tolist()]


def cells_of(domain: Domain, population: Population, panel: Panel = STEADY, rounds: int = 1) -> Cells:
    """The cells of the people of a task about a number, a bit or a category, or of vectors that somebody has.

    Args:
        domain: of the task.
        population: where values come from.
        panel: how people behave from round to round.
        rounds: how many there are: so far values drift.

    Raises:
        TypeError: a population that the bulk engine does not know.
    """
    cells = _cells(domain, population, panel, rounds)
    if not panel.nonresponse:
        return cells
    numbers = cells.values if cells.values.ndim == 1 else np.zeros(len(cells.values))
    names = population.names if isinstance(population, Grouped) else ()
    return replace(cells, refusing=panel.refusing(domain, numbers, cells.groups, names))


def _cells(domain: Domain, population: Population, panel: Panel, rounds: int) -> Cells:
    match domain, population:
        case _, Grouped(groups=groups):
            parts = [_cells(domain, group.people, panel, rounds) for group in groups]
            return _beside(
                [
                    replace(
                        part, shares=part.shares * (share / part.shares.sum()), groups=np.full(len(part.shares), place)
                    )
                    for place, (part, share) in enumerate(zip(parts, population.shares, strict=True))
                    if share > 0
                ]
            )
        case NumberDomain(), Mixture() | Lognormal() | Points():
            (steps,) = panel.steps(domain)
            return _of_numbers(domain, population, panel.cuts, [steps * round_ for round_ in range(rounds)])
        case BitDomain(), Bernoulli(proportion=yes):
            return _plain((1 - yes, yes))
        case CategoryDomain(), Frequencies():
            return _plain(population.mean)
        case _, Observed(values=values):
            return _of_values(domain, values, fixed=not population.resampled)
    raise TypeError(f"no cells of {type(population).__name__}")


def _beside(parts: Sequence[Cells]) -> Cells:
    """The cells of several groups."""
    columns = [[getattr(part, name) for part in parts] for name in ("indices", "values", "shares", "moved", "groups")]
    indices, values, shares, moved, groups = map(np.concatenate, columns)
    refusing = None if parts[0].refusing is None else np.concatenate([part.refusing for part in parts])
    return Cells(indices, values, shares, moved, refusing=refusing, groups=groups)


def coordinates_of(domain: VectorDomain, population: Independent) -> tuple[Cells, ...]:
    """The cells of each coordinate, of people whose coordinates know nothing of each other."""
    pairs = zip(domain.coordinates, population.coordinates, strict=True)
    return tuple(_of_numbers(coordinate, numbers) for coordinate, numbers in pairs)


def _plain(shares: Sequence[float]) -> Cells:
    places = np.arange(len(shares))
    return Cells(places, places.astype(np.float64), np.array(shares), np.zeros(len(shares), dtype=bool))


def _of_numbers(
    domain: NumberDomain, population: Numbers, cuts: Sequence[float] = (), shifts: Sequence[int] = (0,)
) -> Cells:
    shares, values = number_cells(domain, population, cuts, shifts)
    indices, moved = on_grid(domain, values)
    return Cells(indices, values, shares, moved)


def _of_values(domain: Domain, values: Sequence[Value], *, fixed: bool) -> Cells:
    readings = [domain.read(value, strict=False) for value in values]
    parts = [[MISSING if part is None else part for part in reading.parts] for reading in readings]
    indices = np.array(parts, dtype=np.int64)
    true: NDArray[np.float64]
    match domain:
        case VectorDomain(coordinates=coordinates):
            nothing = (None,) * len(coordinates)
            true = np.array([value if isinstance(value, tuple) else nothing for value in values], dtype=np.float64)
        case CategoryDomain():
            indices = indices[:, 0]
            true = np.where(indices == MISSING, np.nan, indices)
        case _:
            indices = indices[:, 0]
            true = np.array(values, dtype=np.float64)
    moved = np.array([reading.moved for reading in readings], dtype=bool)
    return Cells(indices, true, np.ones(len(values)), moved, fixed)
