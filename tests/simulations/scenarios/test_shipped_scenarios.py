"""Every scenario that comes with hush shows on both engines what its paragraph says.

Real devices run over the broker in memory. Seeds are fixed; verdicts that rest on chance are six deviations wide, as
are the intervals, unless one is to miss.
"""

from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hush
from hush import Scenario, Task
from hush_aggregator.estimate.mechanisms import analysis_of
from hush_common.domain import BitDomain, NumberDomain
from hush_common.mechanisms import Laplace, Mechanism, Offers
from hush_common.wire import Refusal
from hush_simulations.brokers.memory import MemoryBroker
from hush_simulations.engines.experiment import offers_of
from hush_simulations.scenarios.behaviour import STEADY, Faults, Liars
from hush_simulations.scenarios.population import Grouped

pytestmark = [pytest.mark.medium, pytest.mark.face]


def decoded(task: Task, bodies: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each report as an unbiased estimate of its device's value: noisy, in the unit of the task, never clipped."""
    assert isinstance(task.domain, NumberDomain | BitDomain)
    parts, offers, rest = offers_of(task, bodies)
    values = np.empty(len(bodies))
    for offer, part in enumerate(parts):
        chosen = offers == offer
        values[chosen] = analysis_of(part).said(part, task.domain, rest[chosen], 0)
    return values


WIDE = 0.999999  # 4.9 deviations


@cache
def simulated(scenario: str, engine: str, confidence: float, options: tuple[tuple[str, Any], ...]) -> hush.Run:
    return hush.simulate(scenario, engine=engine, seed=5, confidence=confidence, **dict(options))


@dataclass(frozen=True)
class Engine:
    """An engine, and whether it has devices and reports of theirs."""

    name: str

    @property
    def devices(self) -> bool:
        return self.name == "memory"

    def run(self, scenario: str, *, confidence: float = WIDE, **options: object) -> hush.Run:
        return simulated(scenario, self.name, confidence, tuple(options.items()))

    def other(self, scenario: Scenario, *, confidence: float = WIDE) -> hush.Run:
        return hush.simulate(scenario, engine=self.name, seed=5, confidence=confidence)


@pytest.fixture(params=["memory", "bulk"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(request.param)


def stderr(run: hush.Run) -> float:
    return run.result.stderr["reporters"]


def mechanism_of(run: hush.Run) -> Any:  # noqa: ANN401 - one of the mechanisms
    assert isinstance(run.task.randomizer, Mechanism)
    return run.task.randomizer


def test_heights_one_report_says_little_and_500_the_mean(engine: Engine) -> None:
    run, width = engine.run("heights"), 100.0
    assert isinstance(mechanism_of(run), Laplace)
    assert sqrt(mechanism_of(run).variance) * width / (1 << 20) > width
    if engine.devices:
        assert decoded(run.task, run.last.received.bodies).std() > width
    assert run.result.n == 500
    assert 0.02 < stderr(run) / width < 0.07
    assert run.covered["reporters"]
    best = engine.run("heights", mechanism="auto")
    assert (stderr(run) / stderr(best)) ** 2 == pytest.approx(2, abs=0.1)  # half the people for the same error


def test_survey_lies_by_design_and_keeps_the_share_of_yes(engine: Engine) -> None:
    run = engine.run("survey")
    assert 0.2 < mechanism_of(run).probability_of_one[0] < 0.5
    if engine.devices:
        assert run.last.received.bodies.mean() > 0.3  # the share of yes among the values
    assert run.covered["reporters"]
    assert run.covered["population"]


def test_commute_names_sets_and_is_unbiased_without_clipping(engine: Engine) -> None:
    run, mechanism = engine.run("commute"), mechanism_of(engine.run("commute"))
    bodies = list(mechanism.outputs())
    with_first = next(body for body in bodies if body[0] & 1 and not body[0] >> 7 & 1)
    true, false = (mechanism.probability(with_first, index) for index in (0, 7))
    assert 1 < true / false < 8  # somewhat likelier
    assert sum(one.mean or 0 for one in run.result.parts) == pytest.approx(1, abs=1e-9)
    assert all(run.covered.values())
    few = [hush.simulate("commute", engine=engine.name, seed=seed, clients=60) for seed in range(7)]  # 6 % have none
    assert any((one.mean or 0) < 0 for some in few for one in some.result.parts)


def test_offices_answers_one_coordinate_with_all_of_epsilon(engine: Engine) -> None:
    run = engine.run("offices")
    assert sum(one.n for one in run.result.parts) == run.result.n == 2000
    assert all(run.covered.values())
    alone = hush.SCENARIOS["offices"].asking(domain={"kind": "number", "lower": 0.0, "upper": 1.0}, mechanism="auto")
    of_all, of_a_quarter = (alone.asking(epsilon=epsilon).task().randomizer for epsilon in ("2", "0.5"))
    assert isinstance(of_all, Mechanism)
    assert isinstance(of_a_quarter, Mechanism)
    assert of_a_quarter.worst_variance > 2 * 4 * of_all.worst_variance  # of n reports, and of n/4


def test_sleep_the_careful_add_more_noise_and_pooling_helps(engine: Engine) -> None:
    run = engine.run("sleep")
    assert sum(run.chosen.values()) == 1000
    randomizer = run.task.randomizer
    assert isinstance(randomizer, Offers)
    noise = [part.worst_variance for part in randomizer.parts]
    assert noise[0] > noise[1] > noise[2]
    if engine.devices:
        bodies = run.last.received.bodies
        each = [decoded(run.task, bodies[bodies[:, 0] == offer]).std() for offer in range(3)]
        assert each[0] > each[1] > each[2]
    assert run.covered["reporters"]
    pooled = run.result.estimate.pooled
    assert pooled is not None
    assert pooled.weights["2"] > pooled.weights["1"] > pooled.weights["0.5"]
    assert run.result.stderr["population"] < run.result.stderr["reporters"]


def test_flaky_links_every_device_counts_exactly_once(engine: Engine) -> None:
    scenario, run = hush.SCENARIOS["flaky-links"], engine.run("flaky-links")
    assert scenario.faults == Faults(lost=0.02, cut=0.02, twice=0.1)
    assert (run.accepted, run.lost, run.published) == (100, 0, 100)
    assert set(run.result.refused) <= {Refusal.DUPLICATE}
    assert bool(run.result.refused) == engine.devices  # something did arrive twice
    assert run.covered["reporters"]
    good = engine.other(replace(scenario, faults=Faults()))
    assert stderr(run) == pytest.approx(stderr(good), rel=1e-12)
    assert run.truth == good.truth


def test_forgetful_broker_costs_precision_and_no_bias(engine: Engine) -> None:
    scenario, run = hush.SCENARIOS["forgetful-broker"], engine.run("forgetful-broker")
    assert scenario.faults == Faults(forgotten=0.3)
    assert abs(run.lost - 120) < 6 * sqrt(400 * 0.3 * 0.7)
    assert (run.accepted + run.lost, run.result.refused) == (400, {})
    assert run.covered["population"]
    every = engine.other(replace(scenario, faults=Faults()))
    assert stderr(run) / stderr(every) == pytest.approx(sqrt(400 / run.accepted), rel=1e-3)


def test_gateway_each_device_has_a_ledger_and_noise(engine: Engine) -> None:
    scenario, run = hush.SCENARIOS["gateway"], engine.run("gateway")
    own = engine.other(replace(scenario, gateways=None))
    assert (scenario.gateways, scenario.faults) == (1, Faults(twice=0.1, reordered=0.1))
    assert (run.accepted, run.lost, run.epsilon_spent) == (300, 0, run.task.epsilon)  # and not 300 times that
    assert stderr(run) == pytest.approx(stderr(own), rel=1e-12)
    assert run.truth == own.truth
    assert run.covered["reporters"]
    assert set(run.result.refused) <= {Refusal.DUPLICATE}
    assert bool(run.result.refused) == engine.devices
    if engine.devices:
        assert (run.experiment.gateways, own.experiment.gateways > 1) == (1, True)
        assert len(np.unique(run.last.received.bodies)) == 2


def test_gateway_the_broker_sees_one_sender_and_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bytes]] = []
    deliver = MemoryBroker.deliver

    def listen(broker: MemoryBroker, topic: str, payload: bytes, **rest: bool) -> None:
        seen.append((topic, payload))
        deliver(broker, topic, payload, **rest)

    monkeypatch.setattr(MemoryBroker, "deliver", listen)
    Engine("memory").other(hush.SCENARIOS["gateway"])
    reports = [(topic, payload) for topic, payload in seen if "gateway" in topic and "/reports/" in f"{topic}/"]
    assert len(reports) >= 300
    assert len({topic for topic, _ in reports}) == 1
    assert not any(b"device" in payload for _, payload in reports)


def test_poisoned_the_mean_is_wrong_within_its_bound(engine: Engine) -> None:
    scenario, run = hush.SCENARIOS["poisoned"], engine.run("poisoned", confidence=0.95)
    assert scenario.liars == (Liars(0.05, "edge"),)
    if engine.devices:
        rows = decoded(run.task, run.last.received.bodies)
        honest = engine.other(replace(scenario, liars=()))
        of_honest = decoded(honest.task, honest.last.received.bodies)
        assert (rows == rows.max()).sum() - (of_honest == rows.max()).sum() > 50  # of 200
    error, bound = run.score.error["reporters"], run.result.estimate.single.worst_case_bias["5%"]
    low, high = run.result.intervals["reporters"]
    assert not run.covered["reporters"]
    assert (high - low) / 2 < error < bound + 6 * stderr(run)


def test_poisoned_small_epsilons_make_lies_expensive(engine: Engine) -> None:
    half, one, two = (
        engine.run("poisoned", confidence=0.95, epsilon=epsilon).result.estimate.single.worst_case_bias["5%"]
        for epsilon in ("0.5", "1", "2")
    )
    assert half > one > two
    assert half > 1.5 * two


def test_many_rounds_averaging_gains_nothing_over_asking_once(engine: Engine) -> None:
    run, once = engine.run("many-rounds"), engine.run("many-rounds", rounds=1)
    assert (len(run.rounds), run.accepted) == (10, 10 * 300)
    assert len({one.score.truth["reporters"] for one in run.rounds}) == 1  # the same devices
    assert [stderr(one) for one in run.rounds] == pytest.approx([10 * stderr(once)] * 10, rel=1e-3)  # type: ignore[arg-type]
    together = run.together
    assert together is not None
    averaged = together.result.stderr["reporters"]
    assert averaged == pytest.approx(10 / sqrt(10) * stderr(once), rel=1e-3)  # never below asking once
    assert abs(together.score.error["reporters"]) < 6 * averaged
    assert run.epsilon_spent == run.task.epsilon == 10 * run.task.epsilon_per_round


def test_two_groups_the_error_bar_misses_those_who_are_silent(engine: Engine) -> None:
    scenario, run = hush.SCENARIOS["two-groups"], engine.run("two-groups")
    people = scenario.population
    assert isinstance(people, Grouped)
    assert people.shares == pytest.approx((0.7, 0.3))
    assert [group.people.mean for group in people.groups] == [7.5, 4.5]
    assert run.groups.keys() == {"day shift", "night shift"}
    day, night = run.groups.values()
    assert abs(day.people - 2100) < 6 * sqrt(3000 * 0.7 * 0.3)
    assert abs(night.people - 180) < 6 * sqrt(180)  # four in five never answer
    assert run.declined == {"absent": 3000 - day.people - night.people}
    assert night.means[0] is not None
    assert day.means[0] is not None
    assert night.means[0] < run.result.intervals["reporters"][0]
    assert night.means[0] < run.truth["reporters"] < day.means[0]
    assert run.covered["reporters"]
    assert not engine.run("two-groups", confidence=0.95).covered["population"]
    assert run.truth["population"] == pytest.approx(0.7 * 7.5 + 0.3 * 4.5)


def test_two_groups_no_report_tells_its_group(engine: Engine) -> None:
    run = engine.run("two-groups")
    assert "groups" not in run.result.to_document()
    if engine.devices:
        assert run.last.received.bodies.shape[1] == 1  # an output, as any other device's
        assert {body[0] for body in mechanism_of(run).outputs()} >= set(run.last.received.bodies[:, 0].tolist())


def test_two_groups_asking_each_group_gives_its_mean(engine: Engine) -> None:
    scenario = hush.SCENARIOS["two-groups"]
    people = scenario.population
    assert isinstance(people, Grouped)
    for group in people.groups:
        run = engine.other(replace(scenario, population=group.people, panel=STEADY, clients=1000))
        assert run.covered["population"]
        assert run.truth["population"] == group.people.mean
