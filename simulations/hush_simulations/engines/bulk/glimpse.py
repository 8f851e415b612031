"""Glimpse: some people of an experiment in bulk and their reports, for a picture; the experiment itself keeps none.

They are drawn once more from the same population and the same laws, with a seed of their own, so that no figure of a
result depends on whether somebody looks.
"""

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import Domain, NumberDomain
from hush_common.mechanisms import Mechanism
from hush_simulations.engines.bulk.laws import law_of
from hush_simulations.engines.bulk.streams import people_of
from hush_simulations.engines.experiment import Experiment
from hush_simulations.scenarios.population import Value

__all__ = ["MOST", "people", "reports"]

MOST = 1 << 17
_CELL = (1 << 20) + 1  # that no sweep and no kind of people has


def people(experiment: Experiment) -> list[Value]:
    """True values of at most `MOST` devices."""
    rng = people_of(experiment.seed or 0, _CELL, 0)
    return list(experiment.scenario.population.draw(min(experiment.clients, MOST), rng))


def reports(experiment: Experiment, mechanism: Mechanism, domain: Domain) -> NDArray[np.int64]:
    """Reports of such people about a number, shape (reports, width); of liars who tell a value, that."""
    if not isinstance(domain, NumberDomain):
        raise TypeError("there is no noise without number but about a number")
    rng = people_of(experiment.seed or 0, _CELL, 1)
    values = np.array(people(experiment), dtype=np.float64)  # None is NaN
    told = [
        np.full(some.among(len(values)) * some.reports, some.value) for some in experiment.scenario.liars if some.value
    ]
    values = np.concatenate((values[: len(values) - sum(map(len, told))], *told))
    indices = np.rint((values - domain.lower) / float(domain.step))
    indices = np.where(np.isnan(indices), rng.integers(domain.sizes[0], size=len(indices)), indices)
    return law_of(mechanism).bodies(mechanism, np.clip(indices, 0, domain.steps).astype(np.int64), rng)
