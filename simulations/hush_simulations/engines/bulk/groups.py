"""Groups: the people of many trials at once, as counts; the truth of each trial, and what its reports add up to.

They stay the same in every round, as their choice of an epsilon does. Vectors of independent coordinates have too many
cells: there each coordinate has counts of those who drew it and of those who did not. Given who drew what, coordinates
know nothing of each other, so that this is exact; but a second round would draw among the same people again.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.tally import Tally
from hush_common.domain import CategoryDomain, VectorDomain
from hush_common.mechanisms import Mechanism, Offers
from hush_common.task import Task
from hush_simulations.engines.bulk.cells import MISSING, Cells, cells_of, coordinates_of, filled
from hush_simulations.engines.bulk.laws import law_of
from hush_simulations.engines.bulk.scatter import Counts, scatter
from hush_simulations.scenarios.population import Independent, Population

if TYPE_CHECKING:
    from hush_simulations.engines.bulk.laws.law import Held

__all__ = ["Groups", "Sums", "Truths", "groups_of", "parts_of_offers"]

Sums = tuple[Counts, ...]
"""For each epsilon offered, the sums of its reports in each trial: shape (trials, sums), as `Law.sums` has them."""


@dataclass(frozen=True, slots=True)
class Truths:
    """What is true of the people of each trial.

    Args:
        sums: of the values, one column for each coordinate, or how many have each label; shape (trials, parts).
        known: how many values are in each sum.
        moved: how many devices move a value into the domain; shape (trials,).
    """

    sums: NDArray[np.float64]
    known: Counts
    moved: Counts


class Groups:
    """People, as counts. One round after the other is drawn from `reports`.

    Args:
        task: what is asked.
        takers: how many people take each epsilon offered, shape (offers, trials).
    """

    def __init__(self, task: Task, takers: Counts) -> None:
        self.task = task
        self.takers = takers

    def reports(self, rng: np.random.Generator) -> Sums:
        """The sums of one round."""
        parts = enumerate(parts_of_offers(self.task.randomizer))
        return tuple(self._sums(part, offer, rng) for offer, part in parts)

    def tallies(self, rng: np.random.Generator) -> list[Tally]:
        """One round as a tally for each trial; sums that no law gives are possible ones (`Law.completed`)."""
        parts = parts_of_offers(self.task.randomizer)
        columns = [sums.tolist() for sums in self.reports(rng)]
        found = []
        for trial, takers in enumerate(self.takers.T.tolist()):
            moments: list[int] = []
            for part, n, sums in zip(parts, takers, columns, strict=True):
                whole = law_of(part).completed(part, n, tuple(sums[trial]))
                moments += (n, *whole) if self.task.offers else whole
            found.append(Tally(sum(takers), tuple(moments)))
        return found

    def _sums(self, part: Mechanism, offer: int, rng: np.random.Generator) -> Counts:
        raise NotImplementedError

    def truths(self) -> Truths:
        """What is true of them, after a round at least."""
        raise NotImplementedError


def parts_of_offers(randomizer: Mechanism | Offers) -> tuple[Mechanism, ...]:
    """The mechanism of each epsilon offered."""
    return randomizer.parts if isinstance(randomizer, Offers) else (randomizer,)


def groups_of(
    task: Task,
    population: Population,
    clients: int,
    shares: tuple[float, ...],
    rng: np.random.Generator,
    *,
    trials: int = 1,
    cells: Cells | tuple[Cells, ...] | None = None,
) -> Groups:
    """Draw the people of some trials.

    Args:
        task: what is asked.
        population: where their values come from.
        clients: how many, in each trial.
        shares: of them that take each epsilon offered, adding up to 1; empty where there is one.
        rng: the randomness.
        trials: how many times.
        cells: what `cells_of` made of this population before, or `coordinates_of`. A sweep makes them once, and
            `coarse` ones, for trials times cells have to be held in memory.
    """
    weights = np.array(shares or (1.0,))
    if isinstance(population, Independent) and isinstance(task.domain, VectorDomain):
        takers = scatter(np.full(trials, clients), weights, rng).T
        if not isinstance(cells, tuple):
            cells = tuple(_merged(task, one, clients) for one in coordinates_of(task.domain, population))
        return _Separate(task, takers, cells)
    if not isinstance(cells, Cells):
        cells = _merged(task, cells_of(task.domain, population), clients)
    cells, people = cells.drawn(np.full(trials, clients), rng)
    by_offer = scatter(people.reshape(-1), weights, rng).T.reshape(len(weights), *people.shape)
    return _Together(task, by_offer.sum(axis=2), cells, by_offer)


def _merged(task: Task, cells: Cells, clients: int) -> Cells:
    """As few cells as the mechanisms of a task need."""
    found = [law_of(part).levels(part) for part in parts_of_offers(task.randomizer)]
    levels = [some for some in found if some is not None]
    return cells.merged(task.domain.sizes[0] - 1, levels, clients) if len(levels) == len(found) else cells


class _Together(Groups):
    """All that is known of a value is known of its cell."""

    def __init__(self, task: Task, takers: Counts, cells: Cells, counts: Counts) -> None:
        super().__init__(task, takers)
        self._cells, self._counts = cells, counts

    def _sums(self, part: Mechanism, offer: int, rng: np.random.Generator) -> Counts:
        return law_of(part).sums(part, *filled(self._cells, self._counts[offer], self.task.domain.sizes, rng), rng)

    def truths(self) -> Truths:
        counts, cells = self._counts.sum(axis=0), self._cells
        lacking = cells.indices == MISSING
        none = lacking if lacking.ndim == 1 else lacking.any(axis=1)
        moved = counts @ (cells.moved & ~none)
        if isinstance(self.task.domain, CategoryDomain):
            labels = len(self.task.domain.labels)
            held = np.array([np.bincount(cells.indices[~none], row[~none], minlength=labels) for row in counts])
            return Truths(held, np.repeat(held.sum(axis=1, keepdims=True), labels, axis=1).astype(np.int64), moved)
        values, there = cells.values.reshape(len(none), -1), ~lacking.reshape(len(none), -1)
        sums = [(counts * np.where(there[:, c], values[:, c], 0.0)).sum(axis=1) for c in range(values.shape[1])]
        return Truths(np.stack(sums, axis=1), counts @ there, moved)


class _Separate(Groups):
    """Vectors whose coordinates know nothing of each other: their values are drawn with the reports."""

    def __init__(self, task: Task, takers: Counts, coordinates: tuple[Cells, ...]) -> None:
        super().__init__(task, takers)
        self._coordinates = coordinates
        self._found: list[Held] = []

    def reports(self, rng: np.random.Generator) -> Sums:
        self._found = []
        return super().reports(rng)

    def _sums(self, part: Mechanism, offer: int, rng: np.random.Generator) -> Counts:
        sums, held = law_of(part).of_coordinates(part, self._coordinates, self.takers[offer], rng)
        self._found.append(held)
        return sums

    def truths(self) -> Truths:
        everybody = self.takers.sum(axis=0)
        sums = np.sum([held.sums for held in self._found], axis=0)
        moved = np.sum([held.moved for held in self._found], axis=0)
        return Truths(sums, np.repeat(everybody[:, None], sums.shape[1], axis=1), moved)
