"""Do the error bars keep their promise for categories, vectors and several epsilons? Whole simulations, as for heights.

People, choices and noise follow from the seed of a run, so that this test gives the same verdict every time. For an
interval that covers with probability 0.95, a random choice of seeds would leave the band of 60 runs, 0.85 to 1, with
probability 0.0006; that of all categories or coordinates together, 0.91, with less.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from virtual_time import in_virtual_time

from hush import SCENARIOS
from hush_aggregator import Estimate
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import simulate
from hush_simulations.results.run import Score, score

pytestmark = [pytest.mark.medium, pytest.mark.usefixtures("temporary_in_memory")]

RUNS, DEVICES = 60, 100

Scored = list[tuple[Estimate, Score]]


def _runs(name: str) -> Iterator[tuple[Estimate, Score]]:
    scenario = SCENARIOS[name]
    task = scenario.task()
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        values = scenario.population.draw(DEVICES, rng)
        choices = rng.integers(0, len(task.offers), DEVICES).tolist() if task.offers else []
        experiment = Experiment(
            scenario=scenario, values=values, choices=choices, engine="memory", connections=1, noise_seed=seed
        )
        (done,) = in_virtual_time(simulate(experiment)).rounds
        assert done.result.n == DEVICES
        yield done.result.estimate, score(task.domain, done.result.estimate, values, scenario.population.mean)


@pytest.fixture(scope="module")
def commute() -> Scored:
    return list(_runs("commute"))


@pytest.fixture(scope="module")
def offices() -> Scored:
    return list(_runs("offices"))


@pytest.fixture(scope="module")
def sleep() -> Scored:
    return list(_runs("sleep"))


def share(verdicts: list[bool]) -> float:
    return sum(verdicts) / len(verdicts)


def singles(scored: Scored, target: str) -> list[bool]:
    """The verdicts on all categories, or coordinates, of all runs."""
    return [part.covered[target] for _, found in scored for part in found.parts.values()]


@pytest.mark.large
@pytest.mark.parametrize("target", ["reporters", "population", "anytime"])
def test_the_interval_of_a_category_covers_its_share(commute: Scored, target: str) -> None:
    assert 0.91 <= share(singles(commute, target)) <= 1


@pytest.mark.parametrize("target", ["reporters", "population"])
def test_the_joint_intervals_cover_all_shares_at_once_where_the_single_ones_do_not(
    commute: Scored, target: str
) -> None:
    assert share([found.joint[target] for _, found in commute]) >= 0.9
    alone = [all(part.covered[target] for part in found.parts.values()) for _, found in commute]
    assert share(alone) < 0.9


@pytest.mark.large
@pytest.mark.parametrize("target", ["reporters", "population", "anytime"])
def test_the_interval_of_a_coordinate_covers_its_mean(offices: Scored, target: str) -> None:
    assert 0.91 <= share(singles(offices, target)) <= 1


@pytest.mark.large
@pytest.mark.parametrize("target", ["reporters", "population", "anytime"])
def test_the_interval_of_a_mean_under_several_epsilons_covers_it(sleep: Scored, target: str) -> None:
    assert 0.85 <= share([found.covered[target] for _, found in sleep]) <= 1


def test_errors_average_to_nought(commute: Scored, offices: Scored, sleep: Scored) -> None:
    """Each mean error within five of its standard errors: one of thirteen fails by chance once in 130 000 choices."""
    columns = [
        *zip(*([part.error["reporters"] for part in found.parts.values()] for _, found in commute), strict=True),
        *zip(*([part.error["reporters"] for part in found.parts.values()] for _, found in offices), strict=True),
        [found.error["reporters"] for _, found in sleep],
    ]
    assert len(columns) == 13
    for column in columns:
        assert abs(np.mean(column)) < 5 * np.std(column) / np.sqrt(RUNS)


def test_a_truth_that_belongs_to_the_next_category_is_found_out(commute: Scored) -> None:
    """The planted twin: every category judged by the share of its neighbour."""
    wrong = []
    for made, found in commute:
        truths = [part.truth["reporters"] for part in found.parts.values()]
        for one, truth in zip(made.parts, truths[1:] + truths[:1], strict=True):
            low, high = one.intervals["reporters"]
            wrong.append(low <= truth <= high)
    assert share(wrong) < 0.91


def test_intervals_at_half_their_width_are_found_out(sleep: Scored) -> None:
    def holds(made: Estimate, found: Score) -> bool:
        low, high = made.intervals["reporters"]
        return abs(found.error["reporters"]) <= (high - low) / 4

    assert share([holds(*one) for one in sleep]) < 0.85
