"""Draw the trials of a cell: their tallies, and the truth of each.

Without liars and a broker that forgets, the people and the reports of all trials are drawn at once, as counts. Else
each trial is drawn separately, as the bulk engine does (`draw_subpopulations`). A chunk of trials has its own seed.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import cast

import numpy as np

from hush_aggregator.tally import Tally
from hush_common.domain import Domain
from hush_simulations.engines.bulk.cells import Cells, cells_of, coordinates_of
from hush_simulations.engines.bulk.devices import draw_devices
from hush_simulations.engines.bulk.draws import SimulatedRounds, noise_of, people_of
from hush_simulations.engines.bulk.engine import (
    Subpopulation,
    draw_subpopulations,
    draw_tallies,
    drawing_of,
    is_plain,
    shares_of,
)
from hush_simulations.engines.bulk.tallies import draw_population
from hush_simulations.engines.experiment import Experiment, bulk_experiment
from hush_simulations.scenarios.behaviour import STEADY, Panel
from hush_simulations.scenarios.population import Grouped, Independent, Population
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.sweeps.sweep import CellWork

MOST_VALUES = 1024
"""Different values of a number in a sweep, at most."""


def cached_cells(
    domain: Domain, population: Population, panel: Panel = STEADY, rounds: int = 1
) -> Cells | tuple[Cells, ...]:
    """Return the cells of a population, or of each independent coordinate, cached across cells of a sweep.

    Numbers have at most `GROUPS` different values (`Cells.coarse`), which have the mean of the scenario's: what is left
    out of their spread is below that of rounding them to a thousandth of the range, and nothing is of the truth.
    """
    return _cached_cells(domain, cast("Hashable", population), panel, rounds)


@lru_cache(maxsize=8)
def _cached_cells(domain: Domain, hashable: Hashable, panel: Panel, rounds: int) -> Cells | tuple[Cells, ...]:
    population = cast("Population", hashable)
    if isinstance(population, Independent):
        return tuple(cells.coarse(MOST_VALUES) for cells in coordinates_of(domain, population))
    cells = cells_of(domain, population, panel, rounds)
    return cells if domain.is_share else cells.coarse(MOST_VALUES)


_AT_ONCE = 1 << 21
"""Numbers in memory."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial.

    The truth is that of the last round, `together` that of the answers of all rounds: the mean of the values, of each
    coordinate, or the share of each label; None if nobody has a value.
    """

    tallies: tuple[Tally, ...]
    truth: tuple[float | None, ...]
    together: tuple[float | None, ...]


def experiment_of(work: CellWork) -> Experiment:
    """Return the experiment of a cell: it draws tallies if they have a law, unless devices are requested.

    Raises:
        OptionError: tallies are requested that cannot be drawn.
    """
    scenario, drawing = work.scenario, work.drawing
    made = bulk_experiment(scenario, (), work.seed, confidence=work.confidence, drawing="tally")
    if drawing == "devices" or (drawing == "auto" and _is_separate(scenario, made.task.domain)):
        made = replace(made, drawing="devices")
    drawing_of(made)
    return made


def _is_separate(scenario: Scenario, domain: Domain) -> bool:
    """Whether the people are vectors whose tallies have no law."""
    if isinstance(scenario.population, Independent):
        return scenario.rounds > 1 or bool(scenario.panel.nonresponse)
    return isinstance(scenario.population, Grouped) and bool(domain.value_names)


def trials_of(work: CellWork, experiment: Experiment) -> Iterator[Trial]:
    """Yield all trials of a cell."""
    together = experiment.drawing == "tally" and is_plain(work.scenario)
    return (_together if together else _one_by_one)(work, experiment)


def _together(work: CellWork, experiment: Experiment) -> Iterator[Trial]:
    task, scenario, clients = experiment.task, work.scenario, work.scenario.clients
    shares = shares_of(experiment, honest=True)
    cells = cached_cells(task.domain, scenario.population)
    size = max(len(one.shares) for one in (cells if isinstance(cells, tuple) else (cells,))) * max(len(shares), 1)
    together = max(_AT_ONCE // size, 1)
    for number, first in enumerate(range(0, work.trials, together)):
        trials = min(together, work.trials - first)
        people = people_of(work.seed, work.place, number)
        groups = draw_population(task, scenario.population, clients, shares, people, trials=trials, cells=cells)
        rounds = 1 if task.repeat == "sticky" else task.rounds
        drawn = [groups.tallies(noise_of(work.seed, work.place, number, round_)) for round_ in range(rounds)]
        truths = groups.truths()
        means = np.divide(truths.sums, truths.known, out=np.full(truths.sums.shape, np.nan), where=truths.known > 0)
        for tallies, truth in zip(zip(*drawn, strict=True), means.tolist(), strict=True):
            true = tuple(None if mean != mean else mean for mean in truth)  # noqa: PLR0124 - not a number
            yield Trial(tallies * (task.rounds // rounds), true, true)


def _one_by_one(work: CellWork, experiment: Experiment) -> Iterator[Trial]:
    draw = _drawer(experiment)
    for number in range(work.trials):
        entropy = int(people_of(work.seed, work.place, number).integers(1 << 62))
        drawn = draw_subpopulations(work.scenario, experiment.task, entropy, partial(draw, entropy))
        yield Trial(drawn.tallies, drawn.truth, drawn.together)


def _drawer(experiment: Experiment) -> Callable[[int, Subpopulation], SimulatedRounds]:
    """Return the function that draws a subpopulation."""
    task = experiment.task

    def draw(entropy: int, kind: Subpopulation) -> SimulatedRounds:
        shares, seed = shares_of(experiment, honest=kind.honest), kind.seed(entropy)
        if experiment.drawing == "devices":
            people, panel, present = kind.population, kind.panel, kind.present
            return draw_devices(task, people, kind.clients, shares, seed, panel=panel, present=present)
        return draw_tallies(
            task, kind, shares, seed, cached_cells(task.domain, kind.population, kind.panel, task.rounds)
        )

    return draw
