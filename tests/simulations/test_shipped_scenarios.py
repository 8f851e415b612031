"""Every scenario that comes with hush runs on real devices and in bulk, and each sentence of its paragraph is true.

Each sentence is the docstring of what asserts it: a paragraph that changes fails until its claim is tested. Real
devices run over the broker in memory. Seeds are fixed; verdicts that rest on chance are six deviations wide, as are the
intervals, unless one is to miss.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from math import sqrt
from typing import Any

import numpy as np
import pytest
from decoding import decoded

import hush
from hush import Scenario
from hush_client import Gateway
from hush_common.domain import BitDomain, CategoryDomain, NumberDomain, VectorDomain
from hush_common.mechanisms import Laplace, Mechanism, Offers
from hush_common.wire import Refusal
from hush_simulations.brokers.memory import MemoryBroker
from hush_simulations.scenarios.behaviour import STEADY, Faults, Liars
from hush_simulations.scenarios.population import Grouped

SCENARIOS: Mapping[str, Scenario] = hush.SCENARIOS
ENGINES = ("memory", "bulk")
WIDE = 0.999999  # 4.9 deviations
Run = hush.Run


@cache
def simulated(scenario: str, engine: str, confidence: float, options: tuple[tuple[str, Any], ...]) -> Run:
    return hush.simulate(scenario, engine=engine, seed=5, confidence=confidence, **dict(options))


@dataclass(frozen=True)
class Case:
    """A scenario on an engine."""

    name: str
    engine: str

    def run(self, *, confidence: float = WIDE, **options: object) -> Run:
        return simulated(self.name, self.engine, confidence, tuple(options.items()))

    def other(self, scenario: Scenario, *, confidence: float = WIDE) -> Run:
        return hush.simulate(scenario, engine=self.engine, seed=5, confidence=confidence)

    @property
    def scenario(self) -> Scenario:
        return SCENARIOS[self.name]

    @property
    def devices(self) -> bool:
        """Whether there are devices, and reports to look at."""
        return self.engine != "bulk"


CLAIMS: dict[str, list[Callable[[Case], None]]] = {}


def claim(name: str) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """What asserts the sentence of a scenario's paragraph that its docstring is."""

    def keep(check: Callable[[Case], None]) -> Callable[[Case], None]:
        CLAIMS.setdefault(name, []).append(check)
        return check

    return keep


def stderr(run: Run) -> float:
    return run.result.stderr["reporters"]


def mechanism_of(run: Run) -> Mechanism:
    randomizer = run.task.randomizer
    assert isinstance(randomizer, Mechanism)
    return randomizer


# A number.


@claim("heights")
def asks_for_a_number_with_laplace_noise(case: Case) -> None:
    """A number with Laplace noise."""
    assert isinstance(case.run().task.domain, NumberDomain)
    assert isinstance(mechanism_of(case.run()), Laplace)


@claim("heights")
def one_report_says_little_and_500_a_few_per_cent_with_half_of_them_by_the_best_mechanism(case: Case) -> None:
    """One report says next to nothing about its sender, 500 of them give the mean to a few per cent of the range;
    `mechanism = "auto"` needs half the people for the same error.
    """
    run = case.run()
    width = 100.0
    assert sqrt(mechanism_of(run).variance) * width / (1 << 20) > width  # type: ignore[attr-defined]  # of Laplace noise
    if case.devices:
        assert decoded(run.task, run.last.received.bodies).std() > width
    assert run.result.n == 500
    assert 0.02 < stderr(run) / width < 0.07
    assert run.covered["reporters"]
    best = case.run(mechanism="auto")
    assert (stderr(run) / stderr(best)) ** 2 == pytest.approx(2, abs=0.1)


# Yes or no.


@claim("survey")
def asks_yes_or_no(case: Case) -> None:
    """Yes or no."""
    assert isinstance(case.run().task.domain, BitDomain)


@claim("survey")
def answers_are_lies_by_design_and_the_share_of_yes_is_not_lost(case: Case) -> None:
    """Some of the answers are lies by design, so that none can be held against its sender, and the share of lies is
    known, so that the share of yes is not lost.
    """
    run = case.run()
    lying = mechanism_of(run).probability_of_one[0]  # type: ignore[attr-defined]  # of randomized response
    assert 0.2 < lying < 0.5
    if case.devices:
        assert run.last.received.bodies.mean() > 0.3  # the share of yes among the values
    assert run.covered["reporters"]
    assert run.covered["population"]


# Categories.


@claim("commute")
def asks_for_a_category(case: Case) -> None:
    """Categories."""
    assert isinstance(case.run().task.domain, CategoryDomain)


@claim("commute")
def names_sets_and_is_unbiased_sums_to_one_and_is_not_clipped(case: Case) -> None:
    """Each report names a set of ways to work in which the true one is somewhat likelier; the frequencies are
    unbiased, sum to one and may be below zero, because none is clipped.
    """
    run, mechanism = case.run(), mechanism_of(case.run())
    sets = {frozenset(name for name in range(8) if body[0] >> name & 1) for body in mechanism.outputs()}
    assert len(sets) == len(list(mechanism.outputs()))
    true, false = (mechanism.probability(_body_with(mechanism, 0), index) for index in (0, 7))
    assert 1 < true / false < 8  # somewhat likelier
    assert sum(one.mean or 0 for one in run.result.parts) == pytest.approx(1, abs=1e-9)
    assert all(run.covered.values())
    few = [hush.simulate("commute", engine=case.engine, seed=seed, clients=60) for seed in range(7)]  # 6 % have none
    assert any((one.mean or 0) < 0 for some in few for one in some.result.parts)


def _body_with(mechanism: Mechanism, place: int) -> tuple[int, ...]:
    """A set that has this category and not the last."""
    return next(body for body in mechanism.outputs() if body[0] >> place & 1 and not body[0] >> 7 & 1)


# Vectors.


@claim("offices")
def asks_for_vectors(case: Case) -> None:
    """Vectors."""
    assert isinstance(case.run().task.domain, VectorDomain)


@claim("offices")
def each_report_is_about_one_coordinate_with_all_of_epsilon(case: Case) -> None:
    """Each device answers about one coordinate, drawn whatever its values are, with all of its epsilon: asking for
    all four at once would cost far more than a quarter of the reports does.
    """
    run = case.run()
    assert sum(one.n for one in run.result.parts) == run.result.n == 2000
    assert all(run.covered.values())
    alone = case.scenario.asking(domain={"kind": "number", "lower": 0.0, "upper": 1.0}, mechanism="auto")
    of_all, of_a_quarter = (alone.asking(epsilon=epsilon).task().randomizer for epsilon in ("2", "0.5"))
    assert isinstance(of_all, Mechanism)
    assert isinstance(of_a_quarter, Mechanism)
    assert of_a_quarter.worst_variance > 2 * 4 * of_all.worst_variance  # of n reports, and of n/4


# Several epsilons.


@claim("sleep")
def offers_several_epsilons(case: Case) -> None:
    """Several epsilons."""
    assert len(case.run().task.offers) == 3
    assert sum(case.run().chosen.values()) == 1000


@claim("sleep")
def the_careful_add_more_noise(case: Case) -> None:
    """Devices that are more careful add more noise."""
    randomizer = case.run().task.randomizer
    assert isinstance(randomizer, Offers)
    noise = [part.worst_variance for part in randomizer.parts]
    assert noise[0] > noise[1] > noise[2]
    if case.devices:
        bodies = case.run().last.received.bodies
        each = [decoded(case.run().task, bodies[bodies[:, 0] == offer]).std() for offer in range(3)]
        assert each[0] > each[1] > each[2]


@claim("sleep")
def the_pooled_mean_trusts_the_bolder_and_is_more_precise(case: Case) -> None:
    """Everybody weighs the same in the mean of those who answered; the pooled mean, which trusts the bolder more, is
    more precise.
    """
    result = case.run().result
    assert case.run().covered["reporters"]  # the mean of those who answered, each of the same weight
    pooled = result.estimate.pooled
    assert pooled is not None
    assert pooled.weights["2"] > pooled.weights["1"] > pooled.weights["0.5"]
    assert result.stderr["population"] < result.stderr["reporters"]


# Links and brokers.


@claim("flaky-links")
def every_device_counts_exactly_once(case: Case) -> None:
    """A device sends the same bytes until they are acknowledged and an aggregator counts them once: every device
    counts exactly once, and the estimate is what it would have been over good links.
    """
    run = case.run()
    assert (run.accepted, run.lost, run.published) == (100, 0, 100)
    assert set(run.result.refused) <= {Refusal.DUPLICATE}
    assert bool(run.result.refused) == case.devices  # something did arrive twice
    assert run.covered["reporters"]
    good = case.other(replace(case.scenario, faults=Faults()))
    assert stderr(run) == pytest.approx(stderr(good), rel=1e-12)
    assert run.truth == good.truth


@claim("forgetful-broker")
def three_in_ten_are_acknowledged_and_never_delivered(case: Case) -> None:
    """Three reports in ten are acknowledged and never delivered, as when a broker dies that keeps its queue in
    memory.
    """
    assert case.scenario.faults == Faults(forgotten=0.3)
    assert abs(case.run().lost - 120) < 6 * sqrt(400 * 0.3 * 0.7)


@claim("forgetful-broker")
def nobody_counts_twice_and_what_is_lost_costs_precision_alone(case: Case) -> None:
    """Nobody is counted twice and the estimate stays unbiased, for forgetting has nothing to do with what a report
    says; it is less precise than the number of devices promises, and `lost` says by how many reports.
    """
    run = case.run()
    assert (run.accepted + run.lost, run.result.refused) == (400, {})
    assert run.covered["population"]
    every = case.other(replace(case.scenario, faults=Faults()))
    assert stderr(run) / stderr(every) == pytest.approx(sqrt(400 / run.accepted), rel=1e-3)


@claim("gateway")
def has_one_gateway(case: Case) -> None:
    """Many devices behind one gateway."""
    assert case.scenario.gateways == 1
    if case.devices:
        assert case.run().experiment.gateways == 1


@claim("gateway")
def each_device_has_a_ledger_and_noise_of_its_own_and_counts_once(case: Case) -> None:
    """The gateway answers for each: each has a ledger of its own, draws its own noise and counts once, so that the
    estimate and its error bar are what as many devices with connections of their own give.
    """
    run, own = case.run(), case.other(replace(case.scenario, gateways=None))
    assert (run.accepted, run.epsilon_spent) == (300, run.task.epsilon)  # and not 300 times that
    assert stderr(run) == pytest.approx(stderr(own), rel=1e-12)
    assert run.truth == own.truth
    assert run.covered["reporters"]
    if case.devices:
        assert own.experiment.gateways > 1
        assert len(np.unique(run.last.received.bodies)) == 2


@claim("gateway")
def the_broker_sees_one_sender(case: Case) -> None:
    """The broker sees one sender, and nothing that would tell its devices apart."""
    if not case.devices:
        return
    seen: list[tuple[str, bytes]] = []
    deliver = MemoryBroker.deliver

    def listen(broker: MemoryBroker, topic: str, payload: bytes, **rest: bool) -> None:
        seen.append((topic, payload))
        deliver(broker, topic, payload, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryBroker, "deliver", listen)
        case.other(case.scenario)
    reports = [(topic, payload) for topic, payload in seen if "gateway" in topic and "/reports/" in f"{topic}/"]
    assert len(reports) >= 300
    assert len({topic for topic, _ in reports}) == 1
    assert not any(b"device" in payload for _, payload in reports)


@claim("gateway")
def some_arrive_twice_or_out_of_order_and_nobody_counts_twice(case: Case) -> None:
    """One publication in ten arrives twice and one in ten out of order, and still nobody counts twice."""
    assert case.scenario.faults == Faults(twice=0.1, reordered=0.1)
    run = case.run()
    assert set(run.result.refused) <= {Refusal.DUPLICATE}
    assert bool(run.result.refused) == case.devices
    assert (run.accepted, run.lost) == (300, 0)


@claim("gateway")
def a_gateway_is_told_the_values(case: Case) -> None:
    """Whoever runs the gateway sees the values: it has to be trusted as a device is."""
    assert case.name
    assert "value" in signature(Gateway.report).parameters


# Dishonest devices.


@claim("poisoned")
def has_liars(case: Case) -> None:
    """Devices that lie."""
    assert case.scenario.liars


@claim("poisoned")
def one_in_twenty_sends_the_edge(case: Case) -> None:
    """One in twenty sends the report that moves the mean up furthest, whatever it was asked."""
    assert case.scenario.liars == (Liars(0.05, "edge"),)
    run = case.run(confidence=0.95)
    if case.devices:
        rows = decoded(run.task, run.last.received.bodies)
        honest = case.other(replace(case.scenario, liars=()))
        of_honest = decoded(honest.task, honest.last.received.bodies)
        assert (rows == rows.max()).sum() - (of_honest == rows.max()).sum() > 50  # of 200


@claim("poisoned")
def the_mean_is_wrong_by_more_than_its_error_bar_and_no_more_than_the_bound(case: Case) -> None:
    """The mean is wrong by more than its error bar, and no interval can know; it is wrong by no more than
    `worst_case_bias` says for 5 % of the reports, because reports of this mechanism are bounded.
    """
    run = case.run(confidence=0.95)
    error, bound = run.score.error["reporters"], run.result.estimate.single.worst_case_bias["5%"]
    low, high = run.result.intervals["reporters"]
    assert not run.covered["reporters"]
    assert (high - low) / 2 < error < bound + 6 * stderr(run)


@claim("poisoned")
def small_epsilons_make_lies_expensive(case: Case) -> None:
    """Small epsilons make lies expensive for everybody else."""
    biases = [
        case.run(confidence=0.95, epsilon=e).result.estimate.single.worst_case_bias["5%"] for e in ("0.5", "1", "2")
    ]
    assert biases[0] > biases[1] > biases[2]
    assert biases[0] > 1.5 * biases[2]


# Rounds.


@claim("many-rounds")
def is_asked_ten_times(case: Case) -> None:
    """The same devices are asked ten times."""
    run = case.run()
    assert len(run.rounds) == 10
    assert run.accepted == 10 * 300
    assert len({one.score.truth["reporters"] for one in run.rounds}) == 1  # the same devices


@claim("many-rounds")
def averaging_gains_nothing_over_asking_once_and_the_ledger_is_full(case: Case) -> None:
    """The averaging attack, and what a ledger does about it."""
    run = case.run()
    once = case.run(rounds=1)
    assert [stderr(one) for one in run.rounds] == pytest.approx([10 * stderr(once)] * 10, rel=1e-3)  # type: ignore[arg-type]
    together = run.together
    assert together is not None
    averaged = together.result.stderr["reporters"]
    assert averaged == pytest.approx(10 / sqrt(10) * stderr(once), rel=1e-3)  # never below asking once
    assert abs(together.score.error["reporters"]) < 6 * averaged
    naive = stderr(once) / sqrt(10)  # ten answers with fresh noise of all of epsilon each: what it would let them do
    assert naive < stderr(once) < averaged
    assert run.epsilon_spent == run.task.epsilon
    assert run.task.epsilon_per_round * 10 == run.task.epsilon


# Groups.


@claim("two-groups")
def has_two_groups(case: Case) -> None:
    """Two groups that are not alike."""
    assert case.run().groups.keys() == {"day shift", "night shift"}


@claim("two-groups")
def shares_and_means_are_as_said_and_four_in_five_are_silent(case: Case) -> None:
    """Seven people in ten work by day and sleep 7.5 hours, three in ten by night and sleep 4.5 hours; four in five
    of the night shift never answer.
    """
    people = case.scenario.population
    assert isinstance(people, Grouped)
    assert people.shares == pytest.approx((0.7, 0.3))
    assert [group.people.mean for group in people.groups] == [7.5, 4.5]
    day, night = case.run().groups.values()
    assert abs(day.people - 2100) < 6 * sqrt(3000 * 0.7 * 0.3)
    assert abs(night.people - 180) < 6 * sqrt(180)
    assert case.run().declined == {"absent": 3000 - day.people - night.people}


@claim("two-groups")
def the_mean_is_that_of_neither_and_no_report_tells_a_group(case: Case) -> None:
    """The mean lies between the groups and is that of neither, and no report says who belongs to which."""
    run = case.run()
    low, _ = run.result.intervals["reporters"]
    day, night = (group.means[0] for group in run.groups.values())
    assert day is not None
    assert night is not None
    assert night < low
    assert night < run.truth["reporters"] < day
    assert "groups" not in run.result.to_document()
    if case.devices:
        assert run.last.received.bodies.shape[1] == 1  # an output, as any other device's
        assert {body[0] for body in mechanism_of(run).outputs()} >= set(run.last.received.bodies[:, 0].tolist())


@claim("two-groups")
def the_error_bar_holds_those_who_answered_and_misses_everybody(case: Case) -> None:
    """The error bar holds the mean of those who answered and misses that of everybody, for hush does not see who is
    silent, nor why.
    """
    assert case.run().covered["reporters"]
    assert not case.run(confidence=0.95).covered["population"]
    assert case.run().truth["population"] == pytest.approx(0.7 * 7.5 + 0.3 * 4.5)


@claim("two-groups")
def asking_each_group_gives_its_mean(case: Case) -> None:
    """Asking each group for itself gives the mean of each."""
    people = case.scenario.population
    assert isinstance(people, Grouped)
    for group in people.groups:
        run = case.other(replace(case.scenario, population=group.people, panel=STEADY, clients=1000))
        assert run.covered["population"]
        assert run.truth["population"] == group.people.mean


@claim("flaky-links")
def links_that_die(case: Case) -> None:
    """Links that die."""
    assert case.scenario.faults == Faults(lost=0.02, cut=0.02, twice=0.1)


@claim("flaky-links")
def of_the_publications_one_in_fifty_is_lost_with_its(case: Case) -> None:
    """Of the publications one in fifty is lost with its connection, one in fifty arrives without the device ever
    knowing, and one in ten arrives twice.
    """
    assert case.scenario.faults == Faults(lost=0.02, cut=0.02, twice=0.1)


@claim("forgetful-broker")
def a_broker_without_a_disk(case: Case) -> None:
    """A broker without a disk."""
    assert case.scenario.faults == Faults(forgotten=0.3)


@claim("many-rounds")
def fresh_noise_in_each_round_would_let_anybody_averag(case: Case) -> None:
    """Fresh noise in each round would let anybody average it away, so the epsilon of a task is that of all rounds
    together and each round gets a tenth of it: one round is ten times as noisy as asking once, and all ten
    together are no more precise than asking once.
    """
    averaging_gains_nothing_over_asking_once_and_the_ledger_is_full(case)


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_sentence_of_a_paragraph_has_a_test_here(name: str) -> None:
    sentences = sorted((" ".join(str(check.__doc__).split()) for check in CLAIMS[name]), key=SCENARIOS[name].about.find)
    assert " ".join(sentences) == SCENARIOS[name].about


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_runs_and_each_sentence_of_its_paragraph_is_true(name: str, engine: str) -> None:
    for check in CLAIMS[name]:
        check(Case(name, engine))
