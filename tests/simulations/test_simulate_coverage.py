"""Do the error bars of whole simulations keep their promise? 200 runs of 100 devices, from population to estimate.

The people and the noise follow from the seed of a run, so that this test gives the same verdict every time. For an
interval that covers with probability 0.95, a random choice of seeds would leave the band with probability 0.0015.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from made_results import changed
from virtual_time import in_virtual_time

from hush import SCENARIOS
from hush_aggregator import Estimate
from hush_aggregator.estimate.estimates import ByTarget
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import simulate
from hush_simulations.results.run import covered, score

pytestmark = [pytest.mark.medium, pytest.mark.usefixtures("temporary_in_memory")]

RUNS, DEVICES = 200, 100
LOWER, UPPER = 120.0, 220.0

Scored = list[tuple[Estimate, ByTarget]]


def _runs() -> Iterator[tuple[Estimate, ByTarget]]:
    scenario = SCENARIOS["heights"]
    for seed in range(RUNS):
        values = scenario.population.draw(DEVICES, np.random.default_rng(seed))
        experiment = Experiment(scenario=scenario, values=values, engine="memory", connections=1, noise_seed=seed)
        (done,) = in_virtual_time(simulate(experiment)).rounds
        assert done.result.n == DEVICES
        found = score(scenario.task().domain, done.result.estimate, values, scenario.population.mean)
        yield done.result.estimate, found.truth


@pytest.fixture(scope="module")
def scored() -> Scored:
    return list(_runs())


def share(scored: Scored, target: str = "reporters") -> float:
    """The share of runs whose interval covers its truth."""
    return sum(covered(made.intervals, made.methods, truths)[target] for made, truths in scored) / len(scored)


def keeps_its_promise(coverage: float) -> bool:
    return 0.90 <= coverage <= 1.0


@pytest.mark.large
def test_the_interval_of_the_reporters_covers_the_truth_in_95_of_100_runs(scored: Scored) -> None:
    assert keeps_its_promise(share(scored))
    assert share(scored) <= 0.99  # an interval far too wide would cover always


def test_the_interval_of_the_population_covers_as_well(scored: Scored) -> None:
    assert keeps_its_promise(share(scored, "population"))


def test_intervals_at_six_tenths_of_their_width_are_found_out(scored: Scored) -> None:
    def shrunk(made: Estimate) -> Estimate:
        low, high = made.intervals["reporters"]
        middle, half = made.mean or 0.0, 0.6 * (high - low) / 2
        return changed(made, intervals={"reporters": (middle - half, middle + half)})

    assert not keeps_its_promise(share([(shrunk(made), truths) for made, truths in scored]))


def test_reports_decoded_under_half_the_range_are_found_out(scored: Scored) -> None:
    def misread(made: Estimate) -> Estimate:
        low, high = (LOWER + (end - LOWER) / 2 for end in made.intervals["reporters"])
        return changed(made, intervals={"reporters": (low, high)})

    assert not keeps_its_promise(share([(misread(made), truths) for made, truths in scored]))
