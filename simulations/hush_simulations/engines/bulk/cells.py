"""Cells: where the values of people may lie, with how many people each is expected to have, or has.

A grid point of a number is a cell, which holds the values that a device rounds to it. Beyond the bounds there are cells
as well, for a device moves their values to the bound while the truth is about the values as they are: as many as
`_BEYOND` on each side, each with the mean of what lies in it. Values somebody has are a cell each.

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
from hush_simulations.engines.bulk.normal_cells import moments_between, reach
from hush_simulations.engines.bulk.scatter import Counts, scatter
from hush_simulations.scenarios.population import (
    Bernoulli,
    Frequencies,
    Independent,
    Mixture,
    Observed,
    Population,
    Value,
)

__all__ = ["MISSING", "Cells", "Places", "cells_of", "coordinates_of", "filled"]

MISSING = -1
"""The index of no usable value: a device draws one uniformly."""

Places = NDArray[np.int64] | NDArray[np.float64]

_BEYOND = 1 << 14
_WIDEST, _WORTH = 256, 32
_MOST_APART = 1 << 22
_FINEST = 1e-9  # of the range: cells beyond a bound need not be narrower


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
    """

    indices: Places
    values: NDArray[np.float64]
    shares: NDArray[np.float64]
    moved: NDArray[np.bool_]
    fixed: bool = False

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
        some = replace(
            self, indices=self.indices[used], values=self.values[used], shares=self.shares[used], moved=self.moved[used]
        )
        return some, flat.reshape(trials, len(used)).astype(np.int64)

    def merged(self, steps: int, levels: Sequence[int], people: int) -> Self:
        """The same for a mechanism whose law is linear in the index between levels, with fewer cells.

        Args:
            steps: of the grid.
            levels: for each epsilon offered, between how many levels (less one) its law is linear.
            people: of one trial.
        """
        width = min(1 << max(isqrt(people) // 8, 1).bit_length() - 1, _WIDEST)
        if self.fixed or self.indices.ndim > 1 or width < _WORTH or len(self.indices) < _BEYOND:
            return self
        if not self._is_ordered:
            return self.ordered().merged(steps, levels, people)
        first, last = np.searchsorted(self.indices, (1, steps))
        edges = [np.searchsorted(self.indices, -(-np.arange(1, some) * steps // some)) for some in levels]
        ends = np.arange(first), np.arange(last, len(self.indices))
        return self._joined(np.unique(np.concatenate((*ends, np.arange(first, last, width), *edges))))

    def coarse(self, groups: int) -> Self:
        """A population of at most `groups` different values that is close to this one: for sweeps, which ask often.

        Neighbours become one cell at a grid point near their mean. It is another population, with a truth of its own,
        and nothing about the devices is approximated. Not for categories, which have no neighbours.
        """
        if self.fixed or self.indices.ndim > 1 or len(self.indices) <= groups or (self.indices == MISSING).any():
            return self
        if not self._is_ordered:
            return self.ordered().coarse(groups)
        joined = self._joined(np.arange(0, len(self.indices), -(-len(self.indices) // groups)))
        return replace(joined, indices=np.rint(joined.indices).astype(np.int64))

    @property
    def _is_ordered(self) -> bool:
        return bool((np.diff(self.indices) >= 0).all())

    def ordered(self) -> Self:
        """The same with neighbours beside each other: rows of somebody's table come in any order."""
        order = np.argsort(self.indices, kind="stable")
        columns = {name: getattr(self, name)[order] for name in ("indices", "values", "shares", "moved")}
        return replace(self, **columns)

    def _joined(self, starts: NDArray[np.int64]) -> Self:
        """Neighbours as one cell each, from each of `starts` to the next; indices are means."""
        shares = np.add.reduceat(self.shares, starts)
        indices, values = (np.add.reduceat(self.shares * some, starts) / shares for some in (self.indices, self.values))
        return replace(
            self, indices=indices, values=values, shares=shares, moved=np.maximum.reduceat(self.moved, starts)
        )


def cells_of(domain: Domain, population: Population) -> Cells:
    """The cells of the people of a task about a number, a bit or a category, or of vectors that somebody has.

    Raises:
        TypeError: a population that the bulk engine does not know.
    """
    match domain, population:
        case NumberDomain(), Mixture():
            return _of_mixture(domain, population)
        case BitDomain(), Bernoulli(proportion=yes):
            return _plain((1 - yes, yes))
        case CategoryDomain(), Frequencies():
            return _plain(population.mean)
        case _, Observed(values=values):
            return _of_values(domain, values, fixed=not population.resampled)
    raise TypeError(f"no cells of {type(population).__name__}")


def coordinates_of(domain: VectorDomain, population: Independent) -> tuple[Cells, ...]:
    """The cells of each coordinate, of people whose coordinates know nothing of each other."""
    pairs = zip(domain.coordinates, population.coordinates, strict=True)
    return tuple(_of_mixture(coordinate, mixture) for coordinate, mixture in pairs)


def filled(cells: Cells, counts: Counts, sizes: Sequence[int], rng: np.random.Generator) -> tuple[Places, Counts]:
    """Indices and counts with one drawn uniformly for every person without a value.

    Args:
        cells: where the people are.
        counts: shape (trials, cells).
        sizes: of the domain: how many indices each coordinate has.
        rng: the randomness of the devices.
    """
    missing = cells.indices == MISSING
    if not missing.any():
        return cells.indices, counts
    if cells.indices.ndim > 1:  # somebody's vectors: each is a person, or as many as were drawn of the row
        return _filled_vectors(cells.indices, missing, counts, sizes, rng)
    lost = counts[:, missing].sum(axis=1)
    drawn = scatter(lost, np.ones(sizes[0]), rng)
    kept = ~missing
    indices = np.concatenate((cells.indices[kept], np.arange(sizes[0])))
    return indices, np.concatenate((counts[:, kept], drawn), axis=1)


def _filled_vectors(
    indices: Places,
    missing: NDArray[np.bool_],
    counts: Counts,
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> tuple[Places, Counts]:
    partial = missing.any(axis=1)
    copies = counts[:, partial].max(axis=0)
    rows = np.repeat(indices[partial], copies, axis=0)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
    drawn = rng.integers(0, np.array(sizes), size=rows.shape)
    there = (number < np.repeat(counts[:, partial], copies, axis=1)).astype(np.int64)
    every = np.concatenate((indices[~partial], np.where(rows == MISSING, drawn, rows)))
    return every, np.concatenate((counts[:, ~partial], there), axis=1)


def _plain(shares: Sequence[float]) -> Cells:
    places = np.arange(len(shares))
    return Cells(places, places.astype(np.float64), np.array(shares), np.zeros(len(shares), dtype=bool))


def _of_mixture(domain: NumberDomain, mixture: Mixture) -> Cells:
    step, steps = float(domain.step), domain.steps
    points = domain.lower + step * np.arange(steps + 1)
    inner = np.concatenate(((domain.lower,), (points[:-1] + points[1:]) / 2, (domain.upper,)))
    low, high = reach(mixture)
    least = _FINEST * (domain.upper - domain.lower)
    below = np.linspace(min(low, domain.lower - least), domain.lower, _BEYOND + 1)
    above = np.linspace(domain.upper, max(high, domain.upper + least), _BEYOND + 1)
    parts = [moments_between(mixture, edges) for edges in (below, inner, above)]
    ends = np.zeros(_BEYOND, dtype=np.int64), np.full(_BEYOND, steps, dtype=np.int64)
    indices = np.concatenate((ends[0], np.arange(steps + 1), ends[1]))
    moved = np.ones(len(indices), dtype=bool)
    moved[_BEYOND : _BEYOND + steps + 1] = False
    shares, values = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    used = shares > 0
    return Cells(indices[used], values[used], shares[used], moved[used])


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
