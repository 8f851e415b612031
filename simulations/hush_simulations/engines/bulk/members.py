"""Members: people as arrays where they are of groups, drift or do not all answer. `crowd` has none of that.

Everybody has a row with the value of the first round; each round picks the rows of those who answer, and moves them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_simulations.engines.bulk.cells import MISSING, Cells, cells_of
from hush_simulations.engines.bulk.crowd import Crowd
from hush_simulations.engines.bulk.drawn import Truth
from hush_simulations.engines.bulk.number_cells import on_grid
from hush_simulations.scenarios.grouped import Grouped
from hush_simulations.scenarios.panel import Panel
from hush_simulations.scenarios.population import (
    Bernoulli,
    Frequencies,
    Independent,
    Mixture,
    Numbers,
    Population,
)
from hush_simulations.scenarios.shapes import Lognormal, Points

__all__ = ["MemberSource", "Members"]

Floats = NDArray[np.float64]

_Drawn = Bernoulli | Frequencies | Independent | Numbers
_DRAWN = (Bernoulli, Frequencies, Independent, Mixture, Lognormal, Points)  # the others are rows of somebody's data


@dataclass(frozen=True, slots=True)
class Members:
    """Some people.

    Args:
        domain: of the task.
        indices: shape (people, coordinates); `MISSING` where there is no value.
        values: of the same shape; NaN where there is none, of categories the place of the label.
        moved: whether a device moves the value into the domain, shape (people,).
        groups: the group of each, shape (people,).
        many: how many groups there are; 0 where there are none.
    """

    domain: Domain
    indices: NDArray[np.int64]
    values: Floats
    moved: NDArray[np.bool_]
    groups: NDArray[np.int64]
    many: int = 0

    def __getitem__(self, chosen: NDArray[np.bool_]) -> Self:
        """Some of them."""
        rows = (self.indices[chosen], self.values[chosen], self.moved[chosen], self.groups[chosen])
        return type(self)(self.domain, *rows, self.many)

    def at(self, by: Sequence[float]) -> Self:
        """The same people with other values: higher by so much in each coordinate."""
        if not any(by):
            return self
        values = self.values + np.array(by)
        indices, moved = _read(self.domain, values)
        indices[self.indices == MISSING] = MISSING
        return type(self)(self.domain, indices, values, moved, self.groups, self.many)

    def crowd(self) -> Crowd:
        """As a device sees them."""
        truth = self.truth()
        indices = self.indices if isinstance(self.domain, VectorDomain) else self.indices[:, 0]
        return Crowd(indices, truth.sums, truth.known, truth.moved, truth.groups)

    def truth(self) -> Truth:
        """What is true of them, and of each group."""
        groups = tuple(self[self.groups == group].truth_of_all() for group in range(self.many))
        every = self.truth_of_all()
        return Truth(every.sums, every.known, every.people, every.moved, groups)

    def truth_of_all(self) -> Truth:
        """What is true of them."""
        people = len(self.indices)
        lacking = (self.indices == MISSING).any(axis=1)
        moved = int((self.moved & ~lacking).sum())
        if isinstance(self.domain, CategoryDomain):
            labels = len(self.domain.labels)
            there = self.indices[~lacking, 0]
            sums = np.bincount(there, minlength=labels).astype(float)
            return Truth(tuple(sums.tolist()), (len(there),) * labels, people, moved)
        known = (~np.isnan(self.values)).sum(axis=0).tolist()
        return Truth(tuple(np.nansum(self.values, axis=0).tolist()), tuple(known), people, moved)


class MemberSource:
    """Where members come from.

    Args:
        domain: of the task.
        population: with or without groups.
        panel: how they behave from round to round.
    """

    def __init__(self, domain: Domain, population: Population, panel: Panel) -> None:
        self._domain, self._panel = domain, panel
        self._names: tuple[str, ...] = ()
        self._shares: tuple[float, ...] = (1.0,)
        people = [population]
        if isinstance(population, Grouped):
            self._names, self._shares = population.names, population.shares
            people = [group.people for group in population.groups]
        self._people = [one if isinstance(one, _DRAWN) else cells_of(domain, one) for one in people]

    def draw(self, first: int, count: int, rng: np.random.Generator) -> tuple[Members, NDArray[np.bool_]]:
        """People number `first` and on, and who of them ever answers."""
        sizes = rng.multinomial(count, self._shares).tolist()
        parts = [self._of_one(one, first, size, rng) for one, size in zip(self._people, sizes, strict=True)]
        indices, values, moved = (np.concatenate(column) for column in zip(*parts, strict=True))
        groups = np.repeat(np.arange(len(sizes)), sizes)
        members = Members(self._domain, indices, values, moved, groups, len(self._names))
        if not self._panel.nonresponse:
            return members, np.ones(count, dtype=bool)
        refusing = self._panel.refusing(self._domain, values[:, 0], groups, self._names)
        return members, rng.random(count) >= refusing

    def _of_one(
        self, people: "_Drawn | Cells", first: int, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], Floats, NDArray[np.bool_]]:
        """Indices, values and whether they are moved."""
        if isinstance(people, Cells):
            rows = np.arange(first, first + count) if people.fixed else rng.integers(len(people.shares), size=count)
            indices, values = people.indices[rows].astype(np.int64), people.values[rows]
            return indices.reshape(count, -1), values.reshape(count, -1), people.moved[rows]
        if isinstance(people, Bernoulli | Frequencies):
            shares = (1 - people.mean, people.mean) if isinstance(people, Bernoulli) else people.mean
            places = rng.choice(len(shares), size=(count, 1), p=shares)
            return places, places.astype(float), np.zeros(count, dtype=bool)
        each = people.coordinates if isinstance(people, Independent) else (people,)
        values = np.stack([_numbers(one, count, rng) for one in each], axis=1)
        indices, moved = _read(self._domain, values)
        return indices, values, moved


def _read(domain: Domain, values: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The indices of numbers, and whether any of a person's is moved."""
    read = [on_grid(one, values[:, c]) for c, one in enumerate(_coordinates(domain))]
    return np.stack([index for index, _ in read], axis=1), np.any([beyond for _, beyond in read], axis=0)


def _numbers(population: Numbers, count: int, rng: np.random.Generator) -> Floats:
    if isinstance(population, Mixture):
        return np.array(population.draw(count, rng))
    return population.numbers(count, rng)


def _coordinates(domain: Domain) -> tuple[NumberDomain, ...]:
    match domain:
        case NumberDomain():
            return (domain,)
        case VectorDomain(coordinates=coordinates):
            return coordinates
    return ()
