"""A sample of the people of an experiment in bulk and of their reports, for a picture; the experiment stores neither.

Numbers are taken evenly from the cells of the population, so that a picture is as smooth as the law. Reports are drawn
from the laws of the engine with a separate seed: no result depends on whether somebody draws a picture.
"""

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import Domain, NumberDomain
from hush_common.mechanisms import Mechanism
from hush_simulations.engines.bulk.cells import MISSING, Cells, Places, cells_of
from hush_simulations.engines.bulk.draws import people_of
from hush_simulations.engines.bulk.laws import law_of
from hush_simulations.engines.experiment import Experiment
from hush_simulations.scenarios.population import Value

MOST = 1 << 17
_CELL = (1 << 20) + 1  # which no sweep and no subpopulation has


def people(experiment: Experiment) -> list[Value]:
    """Return true values of at most `MOST` devices in the first round."""
    rng = people_of(experiment.seed or 0, _CELL, 0)
    return list(experiment.scenario.population.draw(min(experiment.clients, MOST), rng))


def numbers(experiment: Experiment) -> NDArray[np.float64]:
    """Return true numbers of at most `MOST` of the devices that answer in the last round; NaN where there is none."""
    cells, places = _answering(experiment)
    return cells.values[places]


def reports(experiment: Experiment, mechanism: Mechanism, domain: Domain) -> NDArray[np.int64]:
    """Return reports of such people about a number, shape (reports, width); liars report their false value."""
    if not isinstance(domain, NumberDomain):
        raise TypeError("only reports about a number have unlimited noise")
    rng = people_of(experiment.seed or 0, _CELL, 1)
    cells, places = _answering(experiment)
    indices = _with_liars(experiment, domain, rng.permutation(cells.indices[places]))
    indices = np.where(indices == MISSING, rng.integers(domain.sizes[0], size=len(indices)), indices)
    return law_of(mechanism).bodies(mechanism, indices.astype(np.int64), rng)


def _answering(experiment: Experiment) -> tuple[Cells, NDArray[np.int64]]:
    """The cells of a number in the last round, and the cells of the people who answer."""
    task, scenario = experiment.task, experiment.scenario
    cells = cells_of(task.domain, scenario.population, scenario.panel, task.rounds)
    cells = cells.at(task.domain, scenario.panel.moved(task.domain, task.rounds - 1))
    weights = cells.shares if cells.refusing is None else cells.shares * (1 - cells.refusing)
    count, below = min(experiment.clients, MOST), np.cumsum(weights)
    evenly = (np.arange(count) + 0.5) / count * below[-1]
    return cells, np.minimum(np.searchsorted(below, evenly, side="right"), len(below) - 1)


def _with_liars(experiment: Experiment, domain: NumberDomain, indices: Places) -> Places:
    """Replace some by the false values of liars."""
    for some in experiment.scenario.liars:
        reading = domain.read(some.value, strict=False).parts[0] if some.lie == "value" else None
        if reading is not None:
            lying = min(some.among(len(indices)) * some.reports, len(indices))
            indices = np.concatenate((indices[lying:], np.full(lying, reading)))
    return indices
