"""Do the error bars of whole simulations keep their promise, from the people to the estimate?

People, choices and noise follow from the seed of a run, so that these tests give the same verdict every time. For an
interval that covers with probability 0.95, a random choice of seeds would leave the band of 200 runs, 0.90 to 0.99,
with probability 0.003, and that of 60 runs, 0.85 to 1, with probability 0.0006.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from virtual_time import in_virtual_time

from hush import SCENARIOS, Run
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import simulate

pytestmark = [pytest.mark.large, pytest.mark.usefixtures("temporary_in_memory")]

DEVICES = 100
LOWER = 120.0


def runs(name: str, count: int) -> Iterator[Run]:
    scenario = SCENARIOS[name]
    offers = len(scenario.task().offers)
    for seed in range(count):
        rng = np.random.default_rng(seed)
        values = scenario.population.draw(DEVICES, rng)
        choices = rng.integers(0, offers, DEVICES).tolist() if offers else []
        experiment = Experiment(
            scenario=scenario, values=values, choices=choices, engine="memory", connections=1, noise_seed=seed
        )
        run = Run.of(experiment, in_virtual_time(simulate(experiment)))
        assert run.result.n == DEVICES
        yield run


@pytest.fixture(scope="module")
def heights() -> list[Run]:
    return list(runs("heights", 200))


@pytest.fixture(scope="module")
def commute() -> list[Run]:
    return list(runs("commute", 60))


@pytest.fixture(scope="module")
def offices() -> list[Run]:
    return list(runs("offices", 60))


@pytest.fixture(scope="module")
def sleep() -> list[Run]:
    return list(runs("sleep", 60))


def share(verdicts: list[bool]) -> float:
    return sum(verdicts) / len(verdicts)


def of_parts(made: list[Run], target: str) -> float:
    """The share of all categories, or coordinates, of all runs whose interval covers."""
    return share([part.covered[target] for run in made for part in run.score.parts.values()])


def held(made: list[Run], changed: Callable[[float, float, float], tuple[float, float]]) -> float:
    """The share of runs whose interval covers, after each was changed."""
    verdicts = []
    for run in made:
        low, high = changed(run.result.mean or 0.0, *run.result.intervals["reporters"])
        verdicts.append(low <= run.truth["reporters"] <= high)
    return share(verdicts)


def test_intervals_of_a_number_cover_in_95_of_100_runs(heights: list[Run]) -> None:
    assert 0.90 <= share([run.covered["reporters"] for run in heights]) <= 0.99
    assert 0.90 <= share([run.covered["population"] for run in heights]) <= 1


def test_narrow_or_misread_intervals_do_not_cover(heights: list[Run]) -> None:
    assert held(heights, lambda _, low, high: (low, high)) >= 0.90
    narrow = held(heights, lambda mean, low, high: (mean - 0.3 * (high - low), mean + 0.3 * (high - low)))
    misread = held(heights, lambda _, low, high: (LOWER + (low - LOWER) / 2, LOWER + (high - LOWER) / 2))
    assert narrow < 0.90  # at six tenths of their width
    assert misread < 0.90  # decoded under half the range


@pytest.mark.parametrize("target", ["reporters", "population", "anytime"])
def test_intervals_of_categories_coordinates_and_offers_cover(
    commute: list[Run], offices: list[Run], sleep: list[Run], target: str
) -> None:
    assert 0.91 <= of_parts(commute, target) <= 1
    assert 0.91 <= of_parts(offices, target) <= 1
    assert 0.85 <= share([run.covered[target] for run in sleep]) <= 1


@pytest.mark.parametrize("target", ["reporters", "population"])
def test_simultaneous_intervals_cover_where_individual_ones_do_not(commute: list[Run], target: str) -> None:
    assert share([run.score.joint[target] for run in commute]) >= 0.9
    alone = [all(part.covered[target] for part in run.score.parts.values()) for run in commute]
    assert share(alone) < 0.9


def test_errors_average_to_zero(commute: list[Run], offices: list[Run], sleep: list[Run]) -> None:
    """Each mean error within five of its standard errors: one of thirteen fails by chance once in 130 000 choices."""
    columns = [
        *zip(*([part.error["reporters"] for part in run.score.parts.values()] for run in commute), strict=True),
        *zip(*([part.error["reporters"] for part in run.score.parts.values()] for run in offices), strict=True),
        [run.score.error["reporters"] for run in sleep],
    ]
    assert len(columns) == 13
    for column in columns:
        assert abs(np.mean(column)) < 5 * np.std(column) / np.sqrt(len(column))


def test_the_truth_of_another_category_is_not_covered(commute: list[Run]) -> None:
    wrong = []
    for run in commute:
        truths = [part.truth["reporters"] for part in run.score.parts.values()]
        for one, truth in zip(run.result.parts, truths[1:] + truths[:1], strict=True):
            low, high = one.intervals["reporters"]
            wrong.append(low <= truth <= high)
    assert share(wrong) < 0.91


def test_intervals_under_offers_at_half_their_width_do_not_cover(sleep: list[Run]) -> None:
    halved = [
        abs(run.score.error["reporters"]) <= (high - low) / 4
        for run in sleep
        for low, high in [run.result.intervals["reporters"]]
    ]
    assert share(halved) < 0.85
