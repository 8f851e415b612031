"""Cells: the ranges of values that people may have, and how many people are in each.

A grid point of a number is a cell with the values that a device rounds to it. Values beyond the bounds are in `_BEYOND`
cells on each side, each with the mean of its values: a device moves them to the bound, but the truth is about the
values themselves. Each value of a data file is a cell, and each group of people has separate cells.

A mechanism whose law is linear between two levels gives people in neighbouring cells the law of as many at their mean
position: so such cells become one (`merged`), as wide as sqrt(n)/8 steps for n people. No tally changes its law; the
truth of one trial is off by the spread within cells over sqrt(n), at most 0.04 steps (rms).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import Domain, NumberDomain
from hush_simulations.engines.bulk.draws import Counts, scatter
from hush_simulations.scenarios.behaviour import STEADY, Panel
from hush_simulations.scenarios.population import (
    Bernoulli,
    Frequencies,
    Grouped,
    Independent,
    Lognormal,
    Mixture,
    Normal,
    Numbers,
    Observed,
    Points,
    Population,
    Value,
)

Floats = NDArray[np.float64]

MISSING = -1
"""The index of a missing value: a device draws one uniformly."""

Places = NDArray[np.int64] | NDArray[np.float64]

_NARROW = 1e-3  # deviations: cells that are narrower have a share that is their density times their width
_REACH = 39.0  # deviations: beyond, nothing is left that a float could hold
_LARGEST = 709.0  # the logarithm of about the largest float
_BEYOND = 1 << 14  # cells beyond each bound
_AT_ONCE = 1 << 14  # cells whose numbers stay in the caches of a core
_FINEST = 1e-9  # of the range: cells beyond a bound need not be narrower
_WIDEST, _WORTH = 256, 32
_MOST_APART = 1 << 22


@dataclass(frozen=True, slots=True)
class Cells:
    """Ranges of values, with the people in each."""

    # Of the domain, shape (cells,), of a vector (cells, coordinates); `MISSING` if there is no value; of merged cells a
    # mean.
    indices: Places
    # The true values, of the same shape; NaN if there is none; of categories the place of the label.
    values: NDArray[np.float64]
    shares: NDArray[np.float64]  # of the people in each, shape (cells,)
    moved: NDArray[np.bool_]  # whether a device moves the value into the domain
    fixed: bool = False  # whether each cell is exactly one person
    # Probability that a person there never answers, shape (cells,); None if everybody answers.
    refusing: NDArray[np.float64] | None = None
    groups: NDArray[np.int64] | None = None  # the group of the people there; None if there are no groups

    def drawn(self, people: Counts, rng: np.random.Generator) -> tuple[Self, Counts]:
        """Draw how many of the people of each trial are in each cell: the cells that are not empty, and the counts.

        If people are few, a uniform number finds the cell of each; its 53 bits are as exact as `scatter`. `people` have
        shape (trials,), the counts (trials, cells).
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
        """The same people with `by` added to their values, a number for each coordinate."""
        if not any(by):
            return self
        columns = (self.values + np.array(by)).reshape(len(self.values), -1)
        indices, moved = on_grids(domain, columns)
        indices = indices.reshape(self.indices.shape)
        indices[self.indices == MISSING] = MISSING
        return replace(self, indices=indices, values=columns.reshape(self.values.shape), moved=moved)

    def merged(self, steps: int, levels: Sequence[int], people: int) -> "Cells":
        """Merge cells for mechanisms whose law is linear in the index between levels.

        There are `levels` (less one) for each epsilon offered, `steps` of the grid, and `people` in one trial.
        """
        width = min(1 << max(isqrt(people) // 8, 1).bit_length() - 1, _WIDEST)
        if self.fixed or self.indices.ndim > 1 or width < _WORTH or len(self.indices) < _BEYOND:
            return self
        if self._are_several:
            return _concatenated([some.merged(steps, levels, people) for some in self._by_group()])
        if not self._is_ordered:
            return self.ordered().merged(steps, levels, people)
        first, last = np.searchsorted(self.indices, (1, steps))
        if not first < last or self.indices[last - 1] - self.indices[first] > 2 * (last - first):
            return self  # points far from each other
        edges = [np.searchsorted(self.indices, -(-np.arange(1, some) * steps // some)) for some in levels]
        ends = np.arange(first), np.arange(last, len(self.indices))
        return self._joined(np.unique(np.concatenate((*ends, np.arange(first, last, width), *edges))))

    def coarse(self, groups: int) -> "Cells":
        """Return a similar population of at most `groups` different values, for sweeps, which draw it often.

        Neighbours become one cell at a grid point near their mean. It is another population with its own truth; devices
        are not approximated. Not for categories, which have no neighbours.
        """
        if self.fixed or self.indices.ndim > 1 or len(self.indices) <= groups or (self.indices == MISSING).any():
            return self
        if self._are_several:
            some = self._by_group()
            return _concatenated([one.coarse(max(groups // len(some), 1)) for one in some])
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
        """Sort by index and drop empty cells: the rows of a table come in any order."""
        order = np.argsort(self.indices, kind="stable")
        return self[order[self.shares[order] > 0]]

    def _joined(self, starts: NDArray[np.int64]) -> Self:
        """Join the cells of one group from each of `starts` to the next, if they answer alike; indices become means."""
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
    """Return the cells of a population, except of vectors with a law, with values that drift over `rounds`."""
    cells = _cells(domain, population, panel, rounds)
    if not panel.nonresponse:
        return cells
    numbers = cells.values if cells.values.ndim == 1 else np.zeros(len(cells.values))
    names = population.names if isinstance(population, Grouped) else ()
    return replace(cells, refusing=panel.refusing(domain, numbers, cells.groups, names))


def _cells(domain: Domain, population: Population, panel: Panel, rounds: int) -> Cells:
    match population:
        case Grouped(groups=groups):
            parts = [_cells(domain, group.people, panel, rounds) for group in groups]
            return _concatenated(
                [
                    replace(
                        part, shares=part.shares * (share / part.shares.sum()), groups=np.full(len(part.shares), place)
                    )
                    for place, (part, share) in enumerate(zip(parts, population.shares, strict=True))
                    if share > 0
                ]
            )
        case Mixture() | Lognormal() | Points():
            ((number,), (steps,)) = domain.numbers, panel.steps(domain)
            return _of_numbers(number, population, panel.cuts, tuple(steps * round_ for round_ in range(rounds)))
        case Bernoulli(proportion=yes):
            return _plain((1 - yes, yes))
        case Frequencies():
            return _plain(population.mean)
        case Observed(values=values):
            return _of_values(domain, values, fixed=not population.resampled)
    raise TypeError(f"no cells of {type(population).__name__}")


def _concatenated(parts: Sequence[Cells]) -> Cells:
    """The cells of several groups."""
    columns = [[getattr(part, name) for part in parts] for name in ("indices", "values", "shares", "moved", "groups")]
    indices, values, shares, moved, groups = map(np.concatenate, columns)
    refusing = None if parts[0].refusing is None else np.concatenate([part.refusing for part in parts])
    return Cells(indices, values, shares, moved, refusing=refusing, groups=groups)


def coordinates_of(domain: Domain, population: Independent) -> tuple[Cells, ...]:
    """Return the cells of each coordinate of people with independent coordinates."""
    pairs = zip(domain.numbers, population.coordinates, strict=True)
    return tuple(_of_numbers(coordinate, numbers) for coordinate, numbers in pairs)


def _plain(shares: Sequence[float]) -> Cells:
    places = np.arange(len(shares))
    return Cells(places, places.astype(np.float64), np.array(shares), np.zeros(len(shares), dtype=bool))


@lru_cache(maxsize=2)  # liars have the values of everybody; an entry has up to 30 MB
def _of_numbers(
    domain: NumberDomain, population: Numbers, cuts: tuple[float, ...] = (), shifts: tuple[int, ...] = (0,)
) -> Cells:
    shares, values = _number_cells(domain, population, cuts, shifts)
    indices, moved = on_grid(domain, values)
    for column in (indices, values, shares, moved):
        column.flags.writeable = False  # other runs share it
    return Cells(indices, values, shares, moved)


def _of_values(domain: Domain, values: Sequence[Value], *, fixed: bool) -> Cells:
    readings = [domain.read(value, strict=False) for value in values]
    parts = [[MISSING if part is None else part for part in reading.parts] for reading in readings]
    indices = np.array(parts, dtype=np.int64)
    true: NDArray[np.float64]
    if domain.value_names:
        nothing = (None,) * len(domain.value_names)
        true = np.array([value if isinstance(value, tuple) else nothing for value in values], dtype=np.float64)
    else:
        indices = indices[:, 0]
        places = np.where(indices == MISSING, np.nan, indices)
        true = places if domain.is_share else np.array(values, dtype=np.float64)
    moved = np.array([reading.moved for reading in readings], dtype=bool)
    return Cells(indices, true, np.ones(len(values)), moved, fixed)


def _number_cells(
    domain: NumberDomain, population: Numbers, cuts: Sequence[float], shifts: Sequence[int]
) -> tuple[Floats, Floats]:
    """Return the shares and means of the nonempty cells, in ascending order.

    There is one for each grid point, cut at `cuts` and where values begin to be beyond a bound, and many beyond bounds.
    Values that drift move by whole steps, the `shifts` of each round, so that a cell stays within one grid point in
    every round. So the grid continues beyond a bound as far as values enter from there, and is cut where they pass it.
    """
    if isinstance(population, Points):
        return population.shares, np.array(population.values)
    step = float(domain.step)
    first, last = -max(*shifts, 0), domain.steps - min(*shifts, 0)
    points = domain.lower + step * np.arange(first, last + 1)
    bounds = [bound - step * shift for bound in (domain.lower, domain.upper) for shift in shifts]
    inner = _cut((points[:-1] + points[1:]) / 2, (*bounds, points[0], points[-1]))
    parts = [_edges_below(domain, population, points[0]), inner, _edges_above(domain, population, points[-1])]
    found = [_moments(population, _cut(edges, _inside(cuts, edges))) for edges in parts]
    shares, means = (np.concatenate([part[place] for part in found]) for place in (0, 1))
    used = shares > 0
    return shares[used], means[used]


def on_grid(domain: NumberDomain, values: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the index of each value, and whether a device moves it into the domain. NaN gets any index."""
    beyond = (values < domain.lower) | (values > domain.upper)
    steps = np.rint((np.clip(values, domain.lower, domain.upper) - domain.lower) * float(1 / domain.step))
    return np.clip(np.nan_to_num(steps), 0, domain.steps).astype(np.int64), beyond


def on_grids(domain: Domain, values: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the indices of rows of numbers, shape (people, numbers), and whether a device moves any of a row."""
    read = [on_grid(one, values[:, c]) for c, one in enumerate(domain.numbers)]
    return np.stack([index for index, _ in read], axis=1), np.any([beyond for _, beyond in read], axis=0)


def _cut(edges: Floats, cuts: Sequence[float]) -> Floats:
    return np.unique(np.concatenate((edges, cuts))) if len(cuts) else edges


def _inside(cuts: Sequence[float], edges: Floats) -> list[float]:
    return [cut for cut in cuts if edges[0] < cut < edges[-1]]


def _edges_below(domain: NumberDomain, population: Mixture | Lognormal, bound: float) -> Floats:
    """Edges of at most `_BEYOND` cells below a bound."""
    if isinstance(population, Mixture):
        least = min(part.mean - _REACH * part.sd for part in population.parts if part.weight > 0)
        return np.linspace(min(least, bound - _FINEST * (domain.upper - domain.lower)), bound, _BEYOND + 1)
    if bound <= 0:  # nobody is below 0
        return np.array([bound - 1.0, bound])
    end = _deviations(population, np.array([bound]))[0]
    starts = np.exp(population.sigma * np.linspace(min(end - 1, -_REACH), min(end, _REACH), _BEYOND)[:-1])
    return np.concatenate(((0.0,), np.minimum(population.median * starts, bound), (bound,)))


def _edges_above(domain: NumberDomain, population: Mixture | Lognormal, bound: float) -> Floats:
    """Edges of `_BEYOND` cells above a bound; of a lognormal distribution with equal ratios."""
    if isinstance(population, Mixture):
        most = max(part.mean + _REACH * part.sd for part in population.parts if part.weight > 0)
        return np.linspace(bound, max(most, bound + _FINEST * (domain.upper - domain.lower)), _BEYOND + 1)
    start = _deviations(population, np.array([bound]))[0]
    logarithms = population.sigma * np.linspace(max(start, -_REACH), max(start + 1, _REACH), _BEYOND + 1)[1:]
    ends = np.exp(np.minimum(logarithms + math.log(population.median), _LARGEST))
    return np.concatenate(((bound,), np.maximum(ends, bound)))


def _moments(population: Mixture | Lognormal, edges: Floats) -> tuple[Floats, Floats]:
    if isinstance(population, Mixture):
        return _normal_moments(population, edges)
    return _lognormal_moments(population, edges)


def _normal_moments(mixture: Mixture, edges: Floats) -> tuple[Floats, Floats]:
    """Return the share of the people between each edge and the next (ascending), and the mean of their values.

    The share of a narrow cell (below a thousandth of a deviation) is the density in its middle times its width, with
    the next term of the series; the remainder is below 2e-14·(1 + z^4) of it. Other shares are differences of
    complementary error functions on the side where they are small. A part of deviation 0 is in the cell it begins.
    """
    share, moment = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for weight, part in zip(mixture.shares, mixture.parts, strict=True):
        one, mean = _moments_of_one(part, edges)
        share += weight * one
        moment += weight * one * mean
    middles = (edges[:-1] + edges[1:]) / 2
    return share, np.clip(np.divide(moment, share, out=middles, where=share > 0), edges[:-1], edges[1:])


def _moments_of_one(part: Normal, edges: Floats) -> tuple[Floats, Floats]:
    share, mean = np.zeros(len(edges) - 1), (edges[:-1] + edges[1:]) / 2
    if part.sd == 0:
        place = int(np.searchsorted(edges, part.mean, side="right")) - 1
        if 0 <= place < len(share):
            share[place], mean[place] = 1.0, part.mean
        return share, mean
    z = (edges - part.mean) / part.sd
    first, last = np.searchsorted(z, (-_REACH, _REACH))
    some = slice(max(int(first) - 1, 0), min(int(last) + 1, len(share)))
    left, right = z[:-1][some], z[1:][some]
    if float((right - left).max(initial=0.0)) < _NARROW:
        for start in range(0, len(left), _AT_ONCE):
            block = slice(start, start + _AT_ONCE)
            middle, width = (left[block] + right[block]) / 2, right[block] - left[block]
            share[some][block] = _densities(middle, width)
            mean[some][block] = part.mean + part.sd * (middle - middle * width**2 / 12)
        return share, mean
    share[some] = _between(left.tolist(), right.tolist())
    ends = [np.exp(-(side**2) / 2) / math.sqrt(2 * math.pi) for side in (left, right)]
    inner = np.divide(ends[0] - ends[1], share[some], out=(left + right) / 2, where=share[some] > 0)
    mean[some] = part.mean + part.sd * inner
    return share, mean


def _densities(middle: Floats, width: Floats) -> Floats:
    """Return the share of a standard normal distribution in narrow cells."""
    density = np.exp(-(middle**2) / 2) / math.sqrt(2 * math.pi)
    share: Floats = density * width * (1 + width**2 * (middle**2 - 1) / 24)
    return share


def _between(left: Sequence[float], right: Sequence[float]) -> list[float]:
    """Return the share of it between two numbers each."""
    root = math.sqrt(2)
    return [
        (math.erfc(a / root) - math.erfc(b / root)) / 2 if a > 0 else (math.erfc(-b / root) - math.erfc(-a / root)) / 2
        for a, b in zip(left, right, strict=True)
    ]


def _lognormal_moments(population: Lognormal, edges: Floats) -> tuple[Floats, Floats]:
    """Return the same of a lognormal distribution.

    The logarithm is normal, so that a cell has the share of the cell of its logarithms, and the part above a point has
    the mean times P(Z > z - sigma). In a narrow cell the mean is the middle, moved along the slope of the density by a
    twelfth of its squared width.
    """
    z = _deviations(population, edges)
    left, right = z[:-1], z[1:]
    middles, widths = (edges[:-1] + edges[1:]) / 2, edges[1:] - edges[:-1]
    with np.errstate(invalid="ignore"):  # from -inf to -inf
        wide = ~(right - left < _NARROW)
    some = ~wide & (np.abs(left) < _REACH)
    share, mean = np.zeros(len(left)), middles.copy()
    center = (left[some] + right[some]) / 2
    share[some] = _densities(center, right[some] - left[some])
    mean[some] -= widths[some] ** 2 / 12 * (1 + center / population.sigma) / middles[some]
    share[wide] = _between(left[wide].tolist(), right[wide].tolist())
    above = _between((left[wide] - population.sigma).tolist(), (right[wide] - population.sigma).tolist())
    held = population.mean * np.array(above)
    mean[wide] = np.divide(held, share[wide], out=middles[wide], where=share[wide] > 0)
    return share, np.clip(mean, edges[:-1], edges[1:])


def _deviations(population: Lognormal, edges: Floats) -> Floats:
    """Of the logarithms of some edges; -inf at 0 and below."""
    found = np.full(len(edges), -math.inf)
    above = edges > 0
    found[above] = np.log(edges[above] / population.median) / population.sigma
    return found
