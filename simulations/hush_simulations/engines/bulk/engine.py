"""The bulk engine: draw the outcome of an experiment without devices, broker or store, from the same laws.

If the law of a whole tally is known (every mechanism of finitely many outputs), tallies are drawn at once. For Laplace
noise only the law of the sum is known, which gives the mean, the intervals without a sample variance, and the anytime
interval; the others need each device, which is the choice up to `MOST_DEVICES_DRAWN` answers. The outcome has the
choice. The estimate is the aggregator's own.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Event

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import Estimate, estimate
from hush_aggregator.estimate.mechanisms import fold, parts_of
from hush_aggregator.estimate.result import RoundCounts, result_of
from hush_aggregator.estimate.tally import Tally
from hush_common.errors import OptionError
from hush_common.mechanisms import Mechanism, Offers
from hush_common.task import Task
from hush_common.wire import Refusal
from hush_simulations.engines.bulk.cells import MISSING, Cells, Places, cells_of, coordinates_of
from hush_simulations.engines.bulk.devices import draw_devices
from hush_simulations.engines.bulk.draws import Counts, SimulatedRounds, Truth, merged, noise_of, people_of, scatter
from hush_simulations.engines.bulk.laws import CoordinateTruth, extreme_body, law_of
from hush_simulations.engines.cluster import Cluster
from hush_simulations.engines.experiment import (
    ABSENT,
    Drawing,
    Experiment,
    Outcome,
    Received,
    RoundOutcome,
    StoppedError,
)
from hush_simulations.scenarios.behaviour import STEADY, Liars, Panel, people_with, truthful_count
from hush_simulations.scenarios.population import Grouped, Independent, Observed, Population
from hush_simulations.scenarios.scenario import Scenario

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

    People and their choice of an epsilon are the same in every round; absences and drift are applied to their counts.
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
        laws, columns = [law_of(part) for part in parts], [sums.tolist() for sums in self.reports(rng, round_)]
        found = []
        for trial, takers in enumerate(self.takers.T.tolist()):
            moments: list[int] = []
            for law, n, sums in zip(laws, takers, columns, strict=True):
                whole = law.filled_sums(n, tuple(sums[trial]))
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


MOST_DEVICES_DRAWN = 20_000_000
"""Answers up to which each device is drawn, if the law of the tally does not give everything."""

_SEEDS = 1 << 20  # the number of a cell for the seeds of subpopulations


@dataclass(frozen=True, slots=True)
class Subpopulation:
    """People who behave alike: honest ones, honest ones whose reports the broker forgets, or one part of liars.

    Each is drawn separately, from its own seed, and their tallies add up. Publications that are lost, cut off, late,
    duplicated or out of order change nothing: a device sends the same bytes until they are acknowledged, and an
    aggregator counts them once. The broker forgets a binomial number of reports. Liars have reliable connections.
    """

    population: Population  # where their values come from, or the false value that they report
    clients: int  # people
    number: int  # of the subpopulation, for its seed
    honest: bool = True  # whether they choose among several epsilons as asked; else they take the largest
    counted: bool = True  # whether the aggregator gets their reports
    true: bool = True  # whether these values are the truth
    panel: Panel = STEADY  # their behaviour from round to round
    # Probability that a device of each group answers, shape (rounds, 1, groups); None if all do.
    present: NDArray[np.float64] | None = None

    def seed(self, entropy: int) -> int:
        """Return its seed; the first one has that of the run."""
        if not self.number:
            return entropy
        return int(people_of(entropy, _SEEDS, self.number).integers(1 << 62))


async def simulate(
    experiment: Experiment, on_progress: Callable[[int], None] | None = None, stop: asyncio.Event | None = None
) -> Outcome:
    """Run an experiment to its end, or until `stop` is set: the result is then about the devices drawn so far.

    Raises:
        OptionError: the law of its mechanism is unknown, or its tallies cannot be drawn.
        StoppedError: `stop` was set before anything was drawn.
    """
    stopped = Event()

    async def pass_on(wanted: asyncio.Event) -> None:
        await wanted.wait()
        stopped.set()

    passing = None if stop is None else asyncio.create_task(pass_on(stop), name="hush-pass-on")
    try:
        return await asyncio.to_thread(simulate_now, experiment, on_progress or (lambda _: None), stopped)
    finally:
        stopped.set()
        if passing is not None:
            passing.cancel()


def simulate_now(
    experiment: Experiment, on_progress: Callable[[int], None] = lambda _: None, stopped: Event | None = None
) -> Outcome:
    """As `simulate`, without an event loop."""
    task, drawing, began = experiment.task, drawing_of(experiment), time.perf_counter()
    drawn = draw_rounds(experiment, on_progress, stopped)
    estimates = [drawn_part(task, estimate(task, tally, experiment.confidence), drawing) for tally in drawn.tallies]
    elapsed = (time.perf_counter() - began) / len(estimates)
    halted = stopped is not None and stopped.is_set()
    if not halted:
        on_progress(experiment.clients * task.rounds)
    again = duplicates_of(experiment.scenario, task.rounds)
    refused = {Refusal.DUPLICATE: again} if again else {}
    nothing = Received(b"", np.empty((0, task.randomizer.width), dtype=np.int64))
    rounds = [
        RoundOutcome(
            result_of(
                RoundCounts(task, number, tally, refused),
                made,
                experiment.confidence,
                task.round_opens(number) or datetime.now(UTC),
            ),
            range(truth.people),
            truth.moved,
            {ABSENT: experiment.clients - truth.people} if truth.people < experiment.clients and not halted else {},
            elapsed,
            nothing,
            truth=truth.means,
            known=truth.known,
            by_group=tuple((group.people, group.means) for group in truth.groups),
            tally=tally,
            chosen=tuple(part.n for _, part in parts_of(task.randomizer, tally)) if task.offers else (),
        )
        for number, (tally, truth, made) in enumerate(zip(drawn.tallies, drawn.truths, estimates, strict=True))
    ]
    return Outcome(task, tuple(rounds), stopped=halted, drawing=drawing)


def draw_rounds(
    experiment: Experiment, on_progress: Callable[[int], None] = lambda _: None, stopped: Event | None = None
) -> SimulatedRounds:
    """Draw the tallies and the truth of all rounds, without an estimate; errors as of `simulate`."""
    task, drawing = experiment.task, drawing_of(experiment)
    entropy, done = experiment.seed or 0, 0
    cluster = _cluster(experiment, drawing)

    def draw(part: Subpopulation) -> SimulatedRounds:
        nonlocal done
        shares, seed, before = shares_of(experiment, honest=part.honest), part.seed(entropy), done
        done += part.clients * task.rounds
        if drawing == "tally":
            return draw_tallies(task, part, shares, seed)
        return draw_devices(
            task,
            part.population,
            part.clients,
            shares,
            seed,
            panel=part.panel,
            present=part.present,
            workers=experiment.workers,
            cluster=cluster,
            on_progress=lambda answers: on_progress(before + answers),
            stopped=stopped,
        )

    with cluster or nullcontext():
        return draw_subpopulations(experiment.scenario, task, entropy, draw)


def _cluster(experiment: Experiment, drawing: Drawing) -> Cluster | None:
    if experiment.dask is None:
        return None
    if drawing == "tally":
        raise OptionError("--dask", "shares out devices, and tallies are drawn at once; draw devices, or leave it out")
    return Cluster(experiment.dask)


def drawing_of(experiment: Experiment) -> Drawing:
    """Return whether tallies or devices are drawn; errors as of `simulate`."""
    task = experiment.task
    laws = [law_of(part) for part in parts_of_offers(task.randomizer)]
    if task.repeat == "sticky" and experiment.scenario.panel:
        raise OptionError("engine", "sticky answers of devices that drift or drop out are for mqtt or memory")
    has_law = tallies_have_law(experiment)
    if experiment.drawing == "tally" and not has_law:
        raise OptionError("draw", "vectors in several rounds, or of groups, have no law of their tallies; draw devices")
    if experiment.drawing != "auto":
        return experiment.drawing
    few = experiment.clients * task.rounds <= MOST_DEVICES_DRAWN
    return "tally" if has_law and (not few or all(law.is_complete for law in laws)) else "devices"


def tallies_have_law(experiment: Experiment) -> bool:
    """Return whether tallies can be drawn: not of vectors in groups, several rounds or with nonresponse."""
    people = experiment.scenario.population
    if isinstance(people, Independent):
        return experiment.task.rounds == 1 and not experiment.scenario.panel.nonresponse
    return not (isinstance(people, Grouped) and experiment.task.domain.value_names)


def shares_of(experiment: Experiment, *, honest: bool) -> tuple[float, ...]:
    """Return the shares of the devices that take each epsilon offered; liars take the largest."""
    offers = len(experiment.task.offers)
    shares = experiment.scenario.shares or (1.0,) * offers
    if not honest:
        shares = tuple(float(place == offers - 1) for place in range(offers))
    return tuple(share / sum(shares) for share in shares)


def draw_tallies(
    task: Task,
    part: Subpopulation,
    shares: tuple[float, ...],
    entropy: int,
    cells: Cells | tuple[Cells, ...] | None = None,
) -> SimulatedRounds:
    """Draw the rounds of a subpopulation as tallies, from `cells` of its population if they are known."""
    people, panel = people_of(entropy, 0, 0), part.panel
    groups = draw_population(
        task, part.population, part.clients, shares, people, cells=cells, panel=panel, present=part.present
    )
    rounds = 1 if task.repeat == "sticky" else task.rounds
    tallies, truths = [], []
    for round_ in range(rounds):
        tallies += groups.tallies(noise_of(entropy, 0, 0, round_), round_)
        truths.append(groups.truths().of(0))
    again = task.rounds // rounds  # sticky answers: a memory gives the same report again
    return SimulatedRounds(tuple(tallies) * again, tuple(truths) * again)


def drawn_part(task: Task, made: Estimate, drawing: Drawing) -> Estimate:
    """Return an estimate without what needs sums of a tally that were not drawn."""
    return made if drawing == "devices" else law_of(parts_of_offers(task.randomizer)[0]).without_filled(made)


def draw_subpopulations(
    scenario: Scenario, task: Task, entropy: int, draw: Callable[[Subpopulation], SimulatedRounds]
) -> SimulatedRounds:
    """Draw all rounds of all subpopulations with `draw`, and add them up.

    Raises:
        OptionError: a broker that forgets, in several rounds.
        StoppedError: `draw` was stopped before anything was drawn.
    """
    parts: list[SimulatedRounds] = []
    stopped = False
    for part in _subpopulations(scenario, task, entropy):
        if not part.clients:
            continue
        try:
            drawn = draw(part)
        except StoppedError:
            stopped = True
            break
        if not part.counted:
            drawn = replace(drawn, tallies=(Tally(),) * task.rounds)
        if not part.true:
            drawn = replace(drawn, truths=tuple(truth.emptied() for truth in drawn.truths))
        if not part.honest:
            drawn = replace(drawn, truths=tuple(replace(truth, moved=0) for truth in drawn.truths))
        parts.append(drawn)
    if not parts:
        raise StoppedError
    every = merged(parts)
    if stopped:  # before all liars were drawn
        return every
    extremes = [
        _extreme_reports(task, some.among(scenario.clients) * some.reports)
        for some in scenario.liars
        if some.lie == "edge"
    ]
    for tally in extremes:
        every = replace(every, tallies=tuple(one.merge(tally) for one in every.tallies))
    return every


def is_plain(scenario: Scenario) -> bool:
    """Return whether all people are honest, counted, and the same in every round: one subpopulation."""
    lying = any(some.among(scenario.clients) for some in scenario.liars)
    return not lying and not scenario.faults.forgotten and not scenario.panel


def duplicates_of(scenario: Scenario, rounds: int) -> int:
    """Return how many repeated reports of liars are refused."""
    return sum(some.among(scenario.clients) * some.reports * rounds for some in scenario.liars if some.lie == "replay")


def _subpopulations(scenario: Scenario, task: Task, entropy: int) -> Iterator[Subpopulation]:
    truthful = truthful_count(scenario.clients, scenario.liars)
    people, kept = scenario.population, truthful
    if scenario.faults.forgotten:
        if task.rounds > 1:
            raise OptionError("network.forgotten", "in several rounds is for real devices; choose mqtt or memory")
        rng = people_of(entropy, _SEEDS, 0)
        kept = int(rng.binomial(truthful, 1 - scenario.faults.forgotten))
        people = _shuffled(people, truthful, rng)
    panel, present = scenario.panel, _present(scenario, task, entropy)
    yield Subpopulation(_select(people, 0, kept), kept, 0, panel=panel, present=present)
    yield Subpopulation(
        _select(people, kept, truthful), truthful - kept, 1, counted=False, panel=panel, present=present
    )
    first, moving = truthful, Panel(drift=panel.drift)
    for place, some in enumerate(scenario.liars):
        liars = some.among(scenario.clients)
        who = _select(people, first, first + liars)
        first += liars
        yield Subpopulation(who, liars, 2 + 2 * place, honest=False, counted=some.lie == "replay", panel=moving)
        yield from _false_values(task, some, liars, 3 + 2 * place)


def _present(scenario: Scenario, task: Task, entropy: int) -> NDArray[np.float64] | None:
    """Draw once for all subpopulations who is absent."""
    people, dropout = scenario.population, scenario.panel.dropout
    if not dropout.share:
        return None
    groups = len(people.names) if isinstance(people, Grouped) else 1
    return dropout.present(task.rounds, 1, groups, noise_of(entropy, _SEEDS, 0, 0))


def _false_values(task: Task, some: Liars, liars: int, number: int) -> Iterator[Subpopulation]:
    if some.lie == "value":
        yield Subpopulation(
            people_with(task.domain, some.value), liars * some.reports, number, honest=False, true=False
        )


def _select(people: Population, start: int, stop: int) -> Population:
    """Select people by number, if the population lists them."""
    if not isinstance(people, Observed) or people.resampled:
        return people
    return replace(people, values=people.values[start:stop])


def _shuffled(people: Population, count: int, rng: np.random.Generator) -> Population:
    """Shuffle the first `count` people, so that which reports are lost does not depend on their order."""
    if not isinstance(people, Observed) or people.resampled:
        return people
    some = [people.values[place] for place in rng.permutation(count).tolist()]
    return replace(people, values=(*some, *people.values[count:]))


def _extreme_reports(task: Task, reports: int) -> Tally:
    """Return the tally of that number of reports that move the estimate up most."""
    one = fold(task.randomizer, np.array([extreme_body(task.randomizer)], dtype=np.int64))
    return Tally(reports, tuple(reports * number for number in one.moments)) if reports else Tally()
