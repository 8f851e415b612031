"""Whole simulations: real devices, a real aggregator, each kind of broker."""

import asyncio
import json
import subprocess
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from servers import Mosquitto, need
from virtual_time import VirtualLoop

from hush import SCENARIOS, Run, Scenario
from hush_common.errors import BrokerError
from hush_simulations.brokers.memory import MemoryBroker
from hush_simulations.engines import live
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import Progress, Watch, simulate


def plan(name: str = "heights", count: int = 60, **options: Any) -> Experiment:  # noqa: ANN401 - any field of a plan
    scenario: Scenario = options.pop("scenario", SCENARIOS[name])
    values = scenario.population.draw(count, np.random.default_rng(1))
    offers = len(scenario.task().offers)
    choices = [number % offers for number in range(count)] if offers else []
    return Experiment(scenario=scenario, values=values, choices=choices, **options)


def numbers(the_plan: Experiment) -> list[float]:
    return [value for value in the_plan.values if isinstance(value, float)]


async def run(the_plan: Experiment, progress: Progress | None = None, look: Watch | None = None) -> Run:
    return Run.of(the_plan, await simulate(the_plan, progress, look))


def assert_complete(done_run: Run, count: int) -> None:
    """Every device is counted once: none lost, none doubled."""
    assert done_run.lost == 0
    for done in done_run.rounds:
        assert (done.result.n, done.result.refused) == (count, {})
        assert tuple(done.reporters) == tuple(range(count))
        assert len(set(done.received.ids)) == count


@pytest.mark.parametrize("name", [name for name, one in SCENARIOS.items() if not one.faults and not one.panel])
@pytest.mark.parametrize("broker", ["embedded", "mosquitto"])
async def test_every_device_is_counted_once_over_a_real_broker(name: str, broker: str) -> None:
    if broker == "mosquitto":
        need("mosquitto")
    progress: list[int] = []
    outcome = await run(plan(name, 60, broker=broker), progress.append)
    assert_complete(outcome, 60)
    assert progress[-1] == 60
    assert progress == sorted(progress)


@pytest.mark.parametrize("connections", [1, 7])
async def test_every_device_is_counted_once_in_memory(connections: int) -> None:
    assert_complete(await run(plan(count=50, engine="memory", connections=connections)), 50)


async def test_one_device_is_enough() -> None:
    assert_complete(await run(plan(count=1)), 1)


@pytest.mark.parametrize("name", ["heights", "survey"])
async def test_sticky_devices_that_do_not_change_report_the_same_in_every_round_and_pay_once(name: str) -> None:
    scenario = SCENARIOS[name].repeated(3, datetime.now(UTC)).asking(repeat="sticky", mechanism="auto")
    the_plan = plan(name, 40, scenario=scenario, engine="memory")
    outcome = await run(the_plan)
    assert_complete(outcome, 40)
    assert len({done.received.ids for done in outcome.rounds}) == 3
    assert len({done.result.mean for done in outcome.rounds}) == 1
    assert outcome.epsilon_spent == 1


async def test_every_device_answers_every_round_and_epsilon_is_split() -> None:
    scenario = SCENARIOS["heights"].repeated(3, datetime.now(UTC))
    the_plan = plan(scenario=scenario, count=20, engine="memory")
    outcome = await run(the_plan)
    assert_complete(outcome, 20)
    assert [done.result.round for done in outcome.rounds] == [0, 1, 2]
    assert len({done.received.ids for done in outcome.rounds}) == 3
    found = outcome.to_document()
    assert (found["epsilon_spent"], found["published"], len(found["rounds"])) == ("1", 60, 3)


async def test_the_seed_fixes_the_people_and_never_the_noise() -> None:
    first, second = [await run(plan(engine="memory")) for _ in range(2)]
    assert plan().values == plan().values
    assert sorted(first.rounds[0].received.bodies.tolist()) != sorted(second.rounds[0].received.bodies.tolist())


async def test_deterministic_noise_repeats_every_body_and_never_an_id() -> None:
    def bodies(outcome: Run) -> list[int]:
        return sorted(outcome.rounds[0].received.bodies.ravel().tolist())

    first, second, other = [await run(plan(engine="memory", noise_seed=seed)) for seed in (5, 5, 6)]
    assert bodies(first) == bodies(second)
    assert bodies(first) != bodies(other)
    ids = [set(outcome.rounds[0].received.ids) for outcome in (first, second)]
    assert len(ids[0]) == len(ids[1]) == 60
    assert not ids[0] & ids[1]


async def test_a_device_that_must_not_answer_is_reported_and_nothing_waits_for_it() -> None:
    closed = {**SCENARIOS["heights"].document, "closes": "2000-01-01T00:00:00Z"}
    (done,) = (await run(plan(scenario=Scenario(closed, SCENARIOS["heights"].population), engine="memory"))).rounds
    assert list(done.reporters) == []
    assert done.declined == {"closed": 60}
    assert done.result.n == 0


async def test_clamped_values_are_counted() -> None:
    document_ = {**SCENARIOS["heights"].document, "domain": {"kind": "number", "lower": 160.0, "upper": 180.0}}
    the_plan = plan(scenario=Scenario(document_, SCENARIOS["heights"].population), engine="memory")
    (done,) = (await run(the_plan)).rounds
    assert done.clamped == sum(not 160 <= value <= 180 for value in numbers(the_plan))


async def test_each_device_spends_the_epsilon_that_it_chose() -> None:
    the_plan = plan("sleep", 30, engine="memory")
    outcome = await run(the_plan)
    assert_complete(outcome, 30)
    found = outcome.to_document()
    assert (found["chosen"], found["epsilon_spent"]) == ({"0.5": 10, "1": 10, "2": 10}, "2")
    bodies = outcome.rounds[0].received.bodies
    assert sorted(bodies[:, 0].tolist()) == [0] * 10 + [1] * 10 + [2] * 10


async def test_who_looks_sees_the_estimate_grow_and_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_FIRST_LOOK_S", 0)
    monkeypatch.setattr(live, "_LOOK_EVERY_S", 0)
    monkeypatch.setattr(live, "_LOOK_SHARE", float("inf"))
    seen: list[int] = []
    await run(plan(count=3000, engine="memory"), None, lambda result: seen.append(result.n))
    assert seen == sorted(seen)
    assert len(seen) > 1
    assert seen[-1] <= 3000


async def test_a_large_epsilon_may_be_looked_at() -> None:
    scenario = SCENARIOS["heights"].asking(epsilon="40")
    assert_complete(await run(plan(scenario=scenario, engine="memory")), 60)


async def test_a_broker_of_others_is_left_as_it_was(guarded_mosquitto: Mosquitto) -> None:
    address = f"mqtt://alice:right@127.0.0.1:{guarded_mosquitto.port}"
    outcome = await run(plan(broker=address))
    assert_complete(outcome, 60)
    assert outcome.task.id.startswith("heights-simulation-")
    login = ["-h", "127.0.0.1", "-p", str(guarded_mosquitto.port), "-u", "alice", "-P", "right"]
    listening = [need("mosquitto_sub"), *login, "-t", "hush/#", "-W", "1"]
    retained = await asyncio.to_thread(subprocess.run, listening, capture_output=True, check=False)
    assert retained.stdout == b""
    guarded_mosquitto.stop()
    memory = (guarded_mosquitto.directory / "mosquitto.db").read_bytes()
    assert b"simulation" not in memory  # neither a session nor a message


@pytest.mark.parametrize("login", ["", "alice:wrong@"])
async def test_a_refused_login_is_told_at_once(guarded_mosquitto: Mosquitto, login: str) -> None:
    with pytest.raises(BrokerError, match="refuses the login") as caught:
        await run(plan(broker=f"mqtt://{login}127.0.0.1:{guarded_mosquitto.port}"))
    assert "wrong" not in str(caught.value)


async def test_a_broker_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(BrokerError, match=r"mqtt://127\.0\.0\.1:1: cannot connect"):
        await run(plan(broker="mqtt://127.0.0.1:1"))


async def test_a_broker_that_vanishes_is_told(mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_GRACE_SECONDS", 0.5)

    def stop_after_some(counted: int) -> None:
        if counted > 100:
            mosquitto.stop()

    with pytest.raises(BrokerError, match=r"vanished after \d+ reports were counted; start it, and run again"):
        await run(plan(count=20_000, broker=mosquitto.url), stop_after_some)


@pytest.mark.large
async def test_a_broker_that_comes_back_loses_nothing(mosquitto: Mosquitto) -> None:
    restarts = 0

    def restart_once(counted: int) -> None:
        nonlocal restarts
        if counted > 500 and restarts == 0:
            restarts = 1
            mosquitto.stop()
            mosquitto.start()

    outcome = await run(plan(count=3000, broker=mosquitto.url), restart_once)
    assert restarts == 1
    done = outcome.rounds[0]
    assert outcome.lost == 0
    assert done.result.n == 3000
    assert set(done.result.refused) <= {"duplicate"}


@pytest.mark.virtual_time
async def test_reports_that_never_arrive_are_counted_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver, reports = MemoryBroker.deliver, 0

    def careless(broker: MemoryBroker, topic: str, payload: bytes, *, retain: bool = False) -> None:
        nonlocal reports
        reports += "/reports/" in topic
        if "/reports/" not in topic or reports % 2:  # half of the devices share a message
            deliver(broker, topic, payload, retain=retain)

    monkeypatch.setattr(MemoryBroker, "deliver", careless)
    outcome = await run(plan(engine="memory"))
    assert (outcome.lost, outcome.rounds[0].result.n) == (30, 30)


@pytest.mark.virtual_time
async def test_devices_that_wait_for_ever_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = MemoryBroker.deliver

    def without_tasks(broker: MemoryBroker, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if "/tasks/" not in topic:
            deliver(broker, topic, payload, retain=retain)

    monkeypatch.setattr(MemoryBroker, "deliver", without_tasks)
    with pytest.raises(BrokerError, match="no report came through"):
        await run(plan(engine="memory"))


@pytest.mark.virtual_time
async def test_a_machine_that_sleeps_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the pause, what came meanwhile and the end of all patience are seen at once."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    deliver, asleep = MemoryBroker.deliver, False

    def sleepy(broker: MemoryBroker, topic: str, payload: bytes, *, retain: bool = False) -> None:
        nonlocal asleep
        if "/reports/" in topic and not asleep:
            asleep = True
            loop.sleep(2 * live._STALL_SECONDS)
        deliver(broker, topic, payload, retain=retain)

    monkeypatch.setattr(MemoryBroker, "deliver", sleepy)
    outcome = await run(plan(engine="memory"))
    assert asleep
    assert (outcome.lost, outcome.rounds[0].result.n) == (0, 60)


async def test_the_object_of_a_run_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    the_plan = plan(engine="memory")
    assert json.loads(json.dumps((await run(the_plan)).to_document(), allow_nan=False))["lost"] == 0
    assert capsys.readouterr() == ("", "")
