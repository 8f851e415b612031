"""Crowd: the values of many people as arrays, and the index that a device gives each. In floats, for simulations alone.

A number x of [lower, upper] has the index rint((x - lower)·(m/(upper - lower))). A device divides exactly; both agree
unless x lies within a few units of the last place of half a step, which a drawn value does with probability 2^-30.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_simulations.engines.bulk.cells import MISSING, Cells, cells_of
from hush_simulations.engines.bulk.drawn import Truth
from hush_simulations.scenarios.population import Bernoulli, Frequencies, Independent, Mixture, Numbers, Population
from hush_simulations.scenarios.shapes import Lognormal, Points

__all__ = ["Crowd", "Source", "source_of"]


@dataclass(frozen=True, slots=True)
class Crowd:
    """Some people.

    Args:
        indices: shape (people, coordinates) of a vector, else (people,); `MISSING` where there is no value.
        sums: of the true values, one for each coordinate; of a category how many have each label.
        known: how many values are in each sum.
        moved: how many devices move a value into the domain.
        groups: what is true of each group; empty where there are none.
    """

    indices: NDArray[np.int64]
    sums: tuple[float, ...]
    known: tuple[int, ...]
    moved: int
    groups: tuple[Truth, ...] = ()

    @property
    def truth(self) -> Truth:
        """What is true of them."""
        return Truth(self.sums, self.known, len(self.indices), self.moved, self.groups)


class Source(Protocol):
    """Where people come from."""

    def draw(self, first: int, count: int, rng: np.random.Generator) -> Crowd:
        """People number `first` and on."""
        ...


def source_of(domain: Domain, population: Population) -> Source:
    """The people of a task.

    Raises:
        TypeError: a population that the bulk engine does not know.
    """
    match domain, population:
        case NumberDomain(), Mixture() | Lognormal() | Points():
            return _Numbers((domain,), (population,), vector=False)
        case VectorDomain(coordinates=coordinates), Independent(coordinates=numbers):
            return _Numbers(coordinates, numbers, vector=True)
        case BitDomain(), Bernoulli(proportion=yes):
            return _Shares((yes,), bit=True)
        case CategoryDomain(), Frequencies():
            return _Shares(population.mean, bit=False)
    return _Rows(domain, cells_of(domain, population))


@dataclass(frozen=True, slots=True)
class _Numbers:
    domains: tuple[NumberDomain, ...]
    people: tuple[Numbers, ...]
    vector: bool

    def draw(self, first: int, count: int, rng: np.random.Generator) -> Crowd:  # noqa: ARG002 - all are alike
        indices = np.empty((count, len(self.domains)), dtype=np.int64)
        sums, moved = [], np.zeros(count if self.vector else 0, dtype=bool)
        clamped = 0
        for place, (domain, people) in enumerate(zip(self.domains, self.people, strict=True)):
            values = _of_mixture(people, count, rng) if isinstance(people, Mixture) else people.numbers(count, rng)
            if self.vector:
                rng.shuffle(values)  # groups come one after the other, and coordinates know nothing of each other
                moved |= (values < domain.lower) | (values > domain.upper)
            else:
                clamped = int(np.count_nonzero(values < domain.lower) + np.count_nonzero(values > domain.upper))
            sums.append(float(values.sum()))
            values -= domain.lower
            values *= float(1 / domain.step)
            np.rint(values, out=values)
            if self.vector or clamped:
                np.clip(values, 0, domain.steps, out=values)
            indices[:, place] = values
        found = indices if self.vector else indices[:, 0]
        return Crowd(found, tuple(sums), (count,) * len(sums), int(moved.sum()) if self.vector else clamped)


def _of_mixture(mixture: Mixture, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Values of each group in turn."""
    values = rng.standard_normal(count)
    start = 0
    for size, part in zip(rng.multinomial(count, mixture.shares).tolist(), mixture.parts, strict=True):
        group = values[start : start + size]
        group *= part.sd
        group += part.mean
        start += size
    return values


@dataclass(frozen=True, slots=True)
class _Shares:
    shares: tuple[float, ...]
    bit: bool

    def draw(self, first: int, count: int, rng: np.random.Generator) -> Crowd:  # noqa: ARG002 - all are alike
        if self.bit:
            ones = (rng.random(count) < self.shares[0]).astype(np.int64)
            return Crowd(ones, (float(ones.sum()),), (count,), 0)
        places = rng.choice(len(self.shares), size=count, p=self.shares)
        return Crowd(places, _by_place(places, len(self.shares)), (count,) * len(self.shares), 0)


@dataclass(frozen=True, slots=True)
class _Rows:
    domain: Domain
    cells: Cells

    def draw(self, first: int, count: int, rng: np.random.Generator) -> Crowd:
        cells = self.cells
        rows = np.arange(first, first + count) if cells.fixed else rng.integers(len(cells.shares), size=count)
        indices, values = cells.indices[rows].astype(np.int64), cells.values[rows]
        moved = int((cells.moved[rows] & ~_lacking(indices)).sum())
        if isinstance(self.domain, CategoryDomain):
            there = indices[indices != MISSING]
            labels = len(self.domain.labels)
            return Crowd(indices, _by_place(there, labels), (len(there),) * labels, moved)
        columns = values.reshape(count, -1)
        known = (~np.isnan(columns)).sum(axis=0).tolist()
        return Crowd(indices, tuple(np.nansum(columns, axis=0).tolist()), tuple(known), moved)


def _lacking(indices: NDArray[np.int64]) -> NDArray[np.bool_]:
    missing = indices == MISSING
    lacking: NDArray[np.bool_] = missing if missing.ndim == 1 else missing.any(axis=1)
    return lacking


def _by_place(places: NDArray[np.int64], labels: int) -> tuple[float, ...]:
    return tuple(np.bincount(places, minlength=labels).astype(float).tolist())
