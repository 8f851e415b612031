"""Every scenario that comes with hush runs on real devices and in bulk, and what its paragraph claims is true on both.

Real devices run over the broker in memory. Seeds are fixed; verdicts that rest on chance are six deviations wide.
"""

from collections.abc import Mapping
from math import sqrt

import pytest

import hush
from hush_common.refusal import Refusal
from hush_simulations.scenarios.scenario import Scenario

ENGINES = ("memory", "bulk")
SCENARIOS: Mapping[str, Scenario] = hush.SCENARIOS
Run = hush.Run


def run(name: str, engine: str, seed: int = 5, **options: object) -> Run:
    return hush.simulate(name, engine=engine, seed=seed, confidence=0.999999, **options)  # type: ignore[arg-type]


pytestmark = pytest.mark.parametrize("engine", ENGINES)


def test_heights_few_per_cent_of_the_range_from_500_and_auto_needs_half_the_people(engine: str) -> None:
    done = run("heights", engine)
    assert done.result.n == 500
    assert abs(done.score.error["reporters"]) < 40  # six deviations of 6.3 cm
    assert done.covered["reporters"]
    best = run("heights", engine, mechanism="auto")
    ratio = done.result.stderr["reporters"] / best.result.stderr["reporters"]
    assert ratio**2 == pytest.approx(2, abs=0.1)


def test_survey_keeps_the_share_of_yes_though_answers_are_lies_by_design(engine: str) -> None:
    done = run("survey", engine)
    assert done.covered["reporters"]
    assert done.covered["population"]


def test_commute_is_unbiased_and_sums_to_one_and_nothing_is_clipped(engine: str) -> None:
    done = run("commute", engine)
    assert sum(one.frequency for one in done.result.categories) == pytest.approx(1, abs=1e-9)
    assert all(done.covered.values())
    few = [run("commute", engine, seed=seed, clients=60) for seed in range(2)]
    assert any(one.frequency < 0 for some in few for one in some.result.categories)


def test_offices_each_report_is_about_one_coordinate_with_all_of_its_epsilon(engine: str) -> None:
    done = run("offices", engine)
    assert sum(one.n for one in done.result.coordinates) == done.result.n == 2000
    assert all(done.covered.values())


def test_sleep_the_pooled_mean_is_more_precise_than_that_of_all_alike(engine: str) -> None:
    done = run("sleep", engine)
    pooled = done.result.estimate.pooled
    assert pooled is not None
    assert pooled.weights["2"] > pooled.weights["1"] > pooled.weights["0.5"]
    assert done.result.stderr["population"] < done.result.stderr["reporters"]


def test_flaky_links_count_every_device_exactly_once(engine: str) -> None:
    done = run("flaky-links", engine)
    assert (done.accepted, done.lost, done.published) == (100, 0, 100)
    assert set(done.result.refused) <= {Refusal.DUPLICATE}
    assert done.covered["reporters"]


def test_a_forgetful_broker_makes_the_estimate_less_precise_and_not_wrong(engine: str) -> None:
    done = run("forgetful-broker", engine)
    assert abs(done.lost - 120) < 6 * sqrt(400 * 0.3 * 0.7)
    assert (done.accepted + done.lost, done.result.refused) == (400, {})
    assert done.covered["population"]
    noise = 0.181015  # variance of a report at epsilon 2
    assert done.result.stderr["reporters"] == pytest.approx(sqrt(noise / done.accepted), rel=1e-3)


def test_poison_moves_the_mean_by_more_than_its_error_bar_and_no_more_than_the_bound_says(engine: str) -> None:
    done = hush.simulate("poisoned", engine=engine, seed=5)
    error, bound = done.score.error["reporters"], done.result.estimate.worst_case_bias["5%"]
    assert not done.covered["reporters"]
    honest = 6 * done.result.stderr["reporters"]
    assert 0.5 < error < bound + honest
    low, high = done.result.intervals["reporters"]
    assert error > (high - low) / 2


def test_many_rounds_together_are_no_more_precise_than_asking_once(engine: str) -> None:
    done = run("many-rounds", engine)
    assert len(done.rounds) == 10
    once = hush.simulate("many-rounds", engine="bulk", rounds=1, seed=5)
    noise = [one.result.stderr["reporters"] for one in done.rounds]
    assert noise == pytest.approx([10 * once.result.stderr["reporters"]] * 10, rel=1e-3)
    together = done.together
    assert together is not None
    assert together.result.stderr["reporters"] > 3 * once.result.stderr["reporters"]  # 10 / sqrt(10)
    assert done.epsilon_spent == done.task.epsilon


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_a_paragraph_and_a_test_of_it(engine: str, name: str) -> None:
    assert engine
    assert SCENARIOS[name].about
    assert name.rsplit("-", maxsplit=1)[-1].removesuffix("ed").removesuffix("ing") in " ".join(globals())
