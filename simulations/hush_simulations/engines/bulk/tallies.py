"""Tallies drawn at once: the people of many trials as counts, the truth of each trial, and the sums of its reports.

The people and their choice of an epsilon are the same in every round; absences and drift are applied to their counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.tally import Tally
from hush_common.mechanisms import Mechanism, Offers
from hush_common.task import Task
from hush_simulations.engines.bulk.cells import MISSING, Cells, Places, cells_of, coordinates_of
from hush_simulations.engines.bulk.draws import Counts, Truth, scatter
from hush_simulations.engines.bulk.laws import CoordinateTruth, law_of
from hush_simulations.scenarios.behaviour import STEADY, Panel
from hush_simulations.scenarios.population import Grouped, Independent, Population

Floats = NDArray[np.float64]

Sums = tuple[Counts, ...]
"""For each epsilon offered, the sums of its reports in each trial: shape (trials, sums), as `Law.sums` has them."""


@dataclass(frozen=True, slots=True)
class TrialTruths:
    """The true values of the people of each trial: `Truth` with shape (trials, parts) or (trials,)."""

    sums: NDArray[np.float64]
    known: Counts
    moved: Counts
    people: Counts
    groups: "tuple[TrialTruths, ...]" = ()

    def of(self, trial: int) -> Truth:
        """The truth of one trial."""
        sums, known = tuple(self.sums[trial].tolist()), tuple(self.known[trial].tolist())
        groups = tuple(group.of(trial) for group in self.groups)
        return Truth(sums, known, int(self.people[trial]), int(self.moved[trial]), groups)


class PopulationCounts:
    """The people of many trials as counts. Draw one round after the other.

    `takers` counts the people who take each epsilon offered, shape (offers, trials).
    """

    def __init__(self, task: Task, takers: Counts) -> None:
        self.task = task
        self.takers: Counts = takers

    def reports(self, rng: np.random.Generator, round_: int = 0) -> Sums:
        """Draw the sums of one round; `takers` then counts those who answer in it."""
        self.select_answering(rng, round_)
        parts = enumerate(parts_of_offers(self.task.randomizer))
        return tuple(self._sums(part, offer, rng) for offer, part in parts)

    def tallies(self, rng: np.random.Generator, round_: int = 0) -> list[Tally]:
        """Draw one round as a tally for each trial; sums without a law are filled (`Law.filled_sums`)."""
        parts = parts_of_offers(self.task.randomizer)
        columns = [sums.tolist() for sums in self.reports(rng, round_)]
        found = []
        for trial, takers in enumerate(self.takers.T.tolist()):
            moments: list[int] = []
            for part, n, sums in zip(parts, takers, columns, strict=True):
                whole = law_of(part).filled_sums(n, tuple(sums[trial]))
                moments += (n, *whole) if self.task.offers else whole
            found.append(Tally(sum(takers), tuple(moments)))
        return found

    def select_answering(self, rng: np.random.Generator, round_: int) -> None:
        """Select the people who answer in a round, with their values in it."""
        raise NotImplementedError

    def _sums(self, part: Mechanism, offer: int, rng: np.random.Generator) -> Counts:
        raise NotImplementedError

    def truths(self) -> TrialTruths:
        """The truth of the people who answered in the last round drawn."""
        raise NotImplementedError


def parts_of_offers(randomizer: Mechanism | Offers) -> tuple[Mechanism, ...]:
    """Return the mechanism of each epsilon offered."""
    return randomizer.parts if isinstance(randomizer, Offers) else (randomizer,)


def draw_population(
    task: Task,
    population: Population,
    clients: int,
    shares: tuple[float, ...],
    rng: np.random.Generator,
    *,
    trials: int = 1,
    cells: Cells | tuple[Cells, ...] | None = None,
    panel: Panel = STEADY,
    present: Floats | None = None,
) -> PopulationCounts:
    """Draw the people of independent trials, `clients` in each.

    Args:
        task: the question.
        population: where their values come from.
        clients: people in each trial.
        shares: of the people that take each epsilon offered, adding up to 1; empty if there is one.
        rng: the randomness.
        trials: independent repetitions.
        cells: from `cells_of` or `coordinates_of`. A sweep makes them once, and coarse ones: trials times cells must
            fit in memory.
        panel: their behaviour from round to round.
        present: probability that a device of each group answers, shape (rounds, trials, groups); None draws it.
    """
    weights = np.array(shares or (1.0,))
    groups = len(population.names) if isinstance(population, Grouped) else 1
    if present is None and panel.dropout.share:
        present = panel.dropout.present(task.rounds, trials, groups, rng)
    if isinstance(population, Independent):
        takers = scatter(np.full(trials, clients), weights, rng).T
        if not isinstance(cells, tuple):
            cells = tuple(_merged(task, one, clients) for one in coordinates_of(task.domain, population))
        return _CoordinateCounts(task, takers, cells, present)
    if not isinstance(cells, Cells):
        cells = cells_of(task.domain, population, panel, task.rounds)
        cells = cells if any(panel.drift) else _merged(task, cells, clients)
    cells, people = cells.drawn(np.full(trials, clients), rng)
    if cells.refusing is not None:
        people = rng.binomial(people, 1 - cells.refusing)
    by_offer = scatter(people.reshape(-1), weights, rng).T.reshape(len(weights), *people.shape)
    return CellCounts(task, by_offer, cells, panel=panel, present=present, groups=groups)


def _merged(task: Task, cells: Cells, clients: int) -> Cells:
    """Merge cells as far as the mechanisms of the task allow."""
    found = [law_of(part).linear_levels(part) for part in parts_of_offers(task.randomizer)]
    levels = [some for some in found if some is not None]
    return cells.merged(task.domain.sizes[0] - 1, levels, clients) if len(levels) == len(found) else cells


class CellCounts(PopulationCounts):
    """People counted by cell.

    Attributes:
        cells: with the values of the last round drawn.
        counts: who answered in it, shape (offers, trials, cells).
    """

    def __init__(
        self, task: Task, counts: Counts, cells: Cells, *, panel: Panel, present: Floats | None, groups: int
    ) -> None:
        super().__init__(task, counts.sum(axis=2))
        self._groups = groups
        self._everybody, self._first = counts, cells
        self.counts: Counts = counts
        self.cells: Cells = cells
        self._panel, self._present = panel, present

    def select_answering(self, rng: np.random.Generator, round_: int) -> None:
        self.cells = self._first.at(self.task.domain, self._panel.moved(self.task.domain, round_))
        if self._present is not None:
            groups = np.zeros(len(self.cells.shares), np.int64) if self.cells.groups is None else self.cells.groups
            self.counts = rng.binomial(self._everybody, self._present[round_][:, groups])
            self.takers: Counts = self.counts.sum(axis=2)

    def _sums(self, part: Mechanism, offer: int, rng: np.random.Generator) -> Counts:
        return law_of(part).sums(
            part, *_impute_missing(self.cells, self.counts[offer], self.task.domain.sizes, rng), rng
        )

    def truths(self) -> TrialTruths:
        counts, groups = self.counts.sum(axis=0), self.cells.groups
        every = self._truths(counts)
        if groups is None:
            return every
        return replace(every, groups=tuple(self._truths(counts * (groups == one)) for one in range(self._groups)))

    def _truths(self, counts: Counts) -> TrialTruths:
        cells, people = self.cells, counts.sum(axis=1)
        lacking = cells.indices == MISSING
        none = lacking if lacking.ndim == 1 else lacking.any(axis=1)
        moved = counts @ (cells.moved & ~none)
        domain = self.task.domain
        if domain.is_share:  # the index of a bit is 1 for yes, its one part
            size, parts = domain.sizes[0], len(domain.parts)
            held = np.array([np.bincount(cells.indices[~none], row[~none], minlength=size) for row in counts])
            known = np.repeat(held.sum(axis=1, keepdims=True), parts, axis=1).astype(np.int64)
            held = held[:, -parts:]
            return TrialTruths(held, known, moved, people)
        values, there = cells.values.reshape(len(none), -1), ~lacking.reshape(len(none), -1)
        sums = [(counts * np.where(there[:, c], values[:, c], 0.0)).sum(axis=1) for c in range(values.shape[1])]
        return TrialTruths(np.stack(sums, axis=1), counts @ there, moved, people)


class _CoordinateCounts(PopulationCounts):
    """Vectors with independent coordinates: their values are drawn with the reports.

    Vectors have too many cells, so each coordinate has counts of those who draw it and of those who do not. Given these
    counts, coordinates are independent, so that this is exact; but a second round would draw the same people again.
    """

    def __init__(self, task: Task, takers: Counts, coordinates: tuple[Cells, ...], present: Floats | None) -> None:
        super().__init__(task, takers)
        self._everybody, self._present = takers, present
        self._coordinates = coordinates
        self._drawn: list[CoordinateTruth] = []

    def select_answering(self, rng: np.random.Generator, round_: int) -> None:
        self._drawn = []
        if self._present is not None:
            self.takers = rng.binomial(self._everybody, self._present[round_][:, 0])

    def _sums(self, part: Mechanism, offer: int, rng: np.random.Generator) -> Counts:
        sums, held = law_of(part).independent_sums(part, self._coordinates, self.takers[offer], rng)
        self._drawn.append(held)
        return sums

    def truths(self) -> TrialTruths:
        everybody = self.takers.sum(axis=0)
        sums = np.sum([held.sums for held in self._drawn], axis=0)
        moved = np.sum([held.moved for held in self._drawn], axis=0)
        return TrialTruths(sums, np.repeat(everybody[:, None], sums.shape[1], axis=1), moved, everybody)


def _impute_missing(
    cells: Cells, counts: Counts, sizes: Sequence[int], rng: np.random.Generator
) -> tuple[Places, Counts]:
    """Return indices and counts in which each person without a value has one drawn uniformly.

    Counts have shape (trials, cells).
    """
    missing = cells.indices == MISSING
    if not missing.any():
        return cells.indices, counts
    if cells.indices.ndim > 1:  # vectors from a file: each is a person, or as many as were drawn of the row
        return _impute_vectors(cells.indices, missing, counts, sizes, rng)
    lost = counts[:, missing].sum(axis=1)
    drawn = scatter(lost, np.ones(sizes[0]), rng)
    kept = ~missing
    indices = np.concatenate((cells.indices[kept], np.arange(sizes[0])))
    return indices, np.concatenate((counts[:, kept], drawn), axis=1)


def _impute_vectors(
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
