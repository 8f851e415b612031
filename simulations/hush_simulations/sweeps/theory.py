"""Theory: the standard deviation of estimate less target, from the law of a report and that of the people alone.

Given the values of the people, n reports are independent. A report decodes to a with mean x, its value, so that the
mean of n of them is off the mean of their values by a standard deviation of sqrt((E a^2 - E x^2)/n), and off that of
the population by sqrt((E a^2 - (E x)^2)/n). A vector of which a report draws a share s of the coordinates has s·n
reports of each, and who drew is chance for either target. Several rounds together have as many reports of the same
people.

Values beyond the bounds count as the bounds: what a bound moves is bias. Where devices lie, or a broker forgets, or
values are missing, nothing is known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.estimate.worst_case import Values
from hush_common.domain import CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.mechanisms import Mechanism
from hush_common.task import Task
from hush_simulations.engines.bulk.cells import MISSING, Cells
from hush_simulations.engines.bulk.engine import is_plain
from hush_simulations.engines.bulk.tallies import parts_of_offers
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.sweeps.crowds import crowd_of

__all__ = ["theory"]

_Array = NDArray[np.float64]

Theory = dict[tuple[str, str, bool], float]
"""By part, by target, and whether it is about all rounds together."""


@dataclass(frozen=True, slots=True)
class _Law:
    """Values of one part of the answer, as shares of its range, and how wide that is in its unit."""

    part: str
    values: Values
    width: float


def theory(scenario: Scenario, task: Task, shares: Sequence[float]) -> Theory:
    """The standard deviation of each part for each target; nothing where it is not known.

    Args:
        scenario: who answers.
        task: what is asked.
        shares: of the devices that take each epsilon offered; empty where there is one.
    """
    if not is_plain(scenario):
        return {}
    mechanisms = parts_of_offers(task.randomizer)
    weights = tuple(shares) or (1.0,)
    found: Theory = {}
    for law in _laws(task.domain, crowd_of(task.domain, scenario.population)):
        drawn = float(sum(weight * part.drawn for weight, part in zip(weights, mechanisms, strict=True)))
        noises = (_noise(part.part, law.values) for part in mechanisms)
        noise = max(sum(weight * one for weight, one in zip(weights, noises, strict=True)), 0.0)
        spread, n = law.values.moment(2), scenario.clients * drawn
        given = noise + spread * (1 - drawn)  # the values, and who drew this one
        for rounds, together in ((1, False), (task.rounds, True)):
            variances = {REPORTERS: given / rounds / n, POPULATION: given / rounds / n + spread * drawn / n}
            for target, variance in variances.items():
                found[law.part, target, together] = law.width * sqrt(variance)
    return found


def _noise(mechanism: Mechanism, values: Values) -> float:
    """Variance of a report given the value, on average over the values."""
    if mechanism.law is None:
        return mechanism.worst_variance
    channel = finite(mechanism)
    inner = values.at(channel.nodes) @ channel.noise
    return float(inner) + _between(values, channel.nodes)


def _between(values: Values, nodes: _Array) -> float:
    """What rounding a value to one of the two nodes beside it adds: (x - x_j)(x_(j+1) - x), on average."""
    above = np.clip(np.searchsorted(nodes, values.places, side="left"), 1, len(nodes) - 1)
    return float(values.shares @ ((values.places - nodes[above - 1]) * (nodes[above] - values.places)))


def _laws(domain: Domain, crowd: Cells | tuple[Cells, ...]) -> Iterator[_Law]:
    if isinstance(domain, VectorDomain):
        for place, one in enumerate(domain.coordinates):
            cells = crowd[place] if isinstance(crowd, tuple) else crowd
            indices = cells.indices if isinstance(crowd, tuple) else cells.indices[:, place]
            if not (cells.indices == MISSING).any():
                yield _law(one.name, indices / one.steps, cells, one.upper - one.lower)
    elif not isinstance(crowd, tuple) and not (crowd.indices == MISSING).any():
        if isinstance(domain, CategoryDomain):
            for place, label in enumerate(domain.labels):
                yield _law(label, (crowd.indices == place).astype(np.float64), crowd, 1.0)
        else:
            width = domain.upper - domain.lower if isinstance(domain, NumberDomain) else 1.0
            yield _law("", crowd.indices / (domain.sizes[0] - 1), crowd, width)


def _law(part: str, places: _Array, cells: Cells, width: float) -> _Law:
    return _Law(part, Values(places, cells.shares / cells.shares.sum()), width)
