"""`hush.simulate` with real devices and a real aggregator: each device counts once, over each kind of broker."""

import asyncio
import inspect
import json
import re
import subprocess
import tempfile
import threading
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting import shell
from servers import Mosquitto, need
from virtual_time import VirtualLoop, in_virtual_time

import hush
from hush_common.domain import NumberDomain
from hush_common.errors import BrokerError
from hush_simulations.brokers.memory import MemoryBroker

AGES = {"kind": "number", "lower": 0, "upper": 110, "unit": "years"}


async def simulate(scenario: Any = "heights", **options: Any) -> hush.Run:  # noqa: ANN401 - as hush.simulate
    asked: dict[str, Any] = {"engine": "memory", "clients": 60, "seed": 1, **options}
    return await hush.simulate_async(scenario, **asked)


def in_memory(scenario: Any = "heights", **options: Any) -> hush.Run:  # noqa: ANN401 - as hush.simulate
    return in_virtual_time(simulate(scenario, **options))


def bodies(run: hush.Run) -> list[int]:
    return sorted(run.last.received.bodies.ravel().tolist())


def assert_complete(run: hush.Run, count: int) -> None:
    """Every device is counted once: none lost, none doubled."""
    assert run.lost == 0
    for done in run.rounds:
        assert (done.result.n, done.result.refused) == (count, {})
        assert tuple(done.reporters) == tuple(range(count))
        assert len(set(done.received.ids)) == count


@pytest.mark.medium
@pytest.mark.face
@pytest.mark.parametrize(
    ("name", "broker"),
    [
        ("heights", "embedded"),
        ("commute", "embedded"),
        ("offices", "embedded"),
        ("sleep", "mosquitto"),
        ("many-rounds", "mosquitto"),
    ],
)
def test_every_device_is_counted_once_over_a_real_broker(name: str, broker: str) -> None:
    if broker == "mosquitto":
        need("mosquitto")
    progress: list[int] = []
    run = hush.simulate(name, clients=40, seed=1, broker=broker, progress=lambda made, _: progress.append(made))
    assert_complete(run, 40)
    assert progress[-1] == 40 * len(run.rounds)
    assert progress == sorted(progress)
    assert run.to_document()["broker"] == broker


@pytest.mark.medium
@pytest.mark.parametrize(("clients", "connections"), [(50, 1), (50, 7), (1, None)])
def test_every_device_is_counted_once_in_memory(clients: int, connections: int | None) -> None:
    assert_complete(in_memory(clients=clients, connections=connections), clients)


@pytest.mark.medium
def test_the_defaults_are_500_heights_with_a_known_truth() -> None:
    run = in_memory(clients=None, seed=7)
    assert (run.task.id, run.task.mechanism, run.task.unit) == ("heights", "laplace", "cm")
    assert run.task.epsilon == 1
    assert (run.result.n, len(run.results)) == (500, 1)
    assert run.truth["population"] == 170.0
    assert run.covered.keys() == {"reporters", "population", "anytime", "anytime_population"}


@pytest.mark.medium
@pytest.mark.parametrize("name", ["heights", "survey"])
def test_sticky_devices_repeat_their_answer_and_pay_once(name: str) -> None:
    sticky = hush.SCENARIOS[name].repeated(3, datetime.now(UTC)).asking(repeat="sticky", mechanism="auto")
    run = in_memory(sticky, clients=40)
    assert_complete(run, 40)
    assert len({done.received.ids for done in run.rounds}) == 3
    assert len({done.result.mean for done in run.rounds}) == 1
    assert run.epsilon_spent == 1


def test_every_device_answers_every_round_and_epsilon_is_split() -> None:
    run = in_memory(rounds=3, clients=20, epsilon="0.3")
    assert_complete(run, 20)
    assert [done.result.round for done in run.rounds] == [0, 1, 2]
    assert len({done.received.ids for done in run.rounds}) == 3
    assert str(run.task.epsilon_per_round) == "1/10"
    found = run.to_document()
    assert (found["epsilon_spent"], found["published"], len(found["rounds"])) == ("0.3", 60, 3)
    json.dumps(found, allow_nan=False)


@pytest.mark.medium
def test_the_seed_fixes_the_people_and_never_the_noise() -> None:
    first, second, other = in_memory(), in_memory(), in_memory(seed=2)
    assert first.experiment.values == second.experiment.values != other.experiment.values
    assert bodies(first) != bodies(second)
    assert in_memory(seed=None).experiment.seed is not None


@pytest.mark.medium
def test_deterministic_noise_repeats_every_body_and_no_id() -> None:
    with pytest.warns(UserWarning, match="NOT private"):
        first, second, other = [in_memory(seed=seed, deterministic_noise=True, connections=3) for seed in (5, 5, 6)]
    assert bodies(first) == bodies(second) != bodies(other)
    ids = [set(run.last.received.ids) for run in (first, second)]
    assert len(ids[0]) == len(ids[1]) == 60
    assert not ids[0] & ids[1]


def test_a_device_that_must_not_answer_is_declined() -> None:
    heights = hush.SCENARIOS["heights"]
    closed = hush.Scenario({**heights.document, "closes": "2000-01-01T00:00:00Z"}, heights.population)
    run = in_memory(closed)
    assert (list(run.last.reporters), run.last.declined, run.result.n) == ([], {"closed": 60}, 0)


def test_clamped_values_are_counted() -> None:
    run = in_memory(data=[150.0, 160.0, 170.0, 190.0, 200.0], domain={**AGES, "lower": 160, "upper": 180}, clients=None)
    assert run.last.clamped == 3


@pytest.mark.medium
def test_each_device_spends_the_epsilon_that_it_chose() -> None:
    run = in_memory("sleep", clients=400, shares=[0, 1, 3])
    found = run.to_document()
    assert (found["chosen"]["0.5"], found["epsilon_spent"]) == (0, "2")
    assert abs(found["chosen"]["1"] - 100) < 6 * np.sqrt(400 * 3 / 16)
    offers = run.last.received.bodies[:, 0]
    assert [int((offers == place).sum()) for place in range(3)] == list(found["chosen"].values())
    values = np.array(run.experiment.values, dtype=float)
    assert np.corrcoef(values, run.experiment.choices)[0, 1] == pytest.approx(0, abs=6 / np.sqrt(400))


def test_a_large_epsilon_may_be_simulated() -> None:
    with pytest.warns(UserWarning, match="epsilon 40"):
        assert_complete(in_memory(epsilon=40), 60)


@pytest.mark.virtual_time
async def test_a_look_sees_the_estimate_grow_while_reports_are_counted() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    seen: list[int] = []
    run = await simulate(clients=200, progress=lambda *_: loop.sleep(1), look=lambda result: seen.append(result.n))
    assert run.result.n == 200
    assert len(set(seen)) > 1
    assert seen == sorted(seen)
    assert seen[-1] <= 200


@pytest.mark.medium
def test_a_broker_of_others_is_left_as_it_was(guarded_mosquitto: Mosquitto) -> None:
    port = guarded_mosquitto.port
    login = ("-u", "alice", "-P", "right")
    shell("mosquitto_pub", port, *login, "-t", "hush/v1/tasks/theirs", "-r", "-m", "theirs")
    run = hush.simulate(clients=40, seed=1, broker=f"mqtt://alice:right@127.0.0.1:{port}")
    assert_complete(run, 40)
    assert run.task.id.startswith("heights-simulation-")
    listening = [need("mosquitto_sub"), "-h", "127.0.0.1", "-p", str(port), *login, "-t", "hush/#", "-W", "1"]
    assert subprocess.run(listening, capture_output=True, check=False).stdout == b"theirs\n"
    guarded_mosquitto.stop()
    memory = (guarded_mosquitto.directory / "mosquitto.db").read_bytes()
    assert b"simulation" not in memory  # neither a session nor a message


@pytest.mark.medium
@pytest.mark.parametrize("login", ["", "alice:wrong@"])
def test_a_refused_login_is_an_error_without_its_password(guarded_mosquitto: Mosquitto, login: str) -> None:
    with pytest.raises(BrokerError, match="login") as caught:
        hush.simulate(clients=2, broker=f"mqtt://{login}127.0.0.1:{guarded_mosquitto.port}")
    assert "wrong" not in str(caught.value)


@pytest.mark.medium
def test_an_unreachable_broker_is_an_error_without_its_password() -> None:
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1") as caught:
        hush.simulate(clients=2, broker="mqtt://alice:hunter2@127.0.0.1:1")
    assert "hunter2" not in str(caught.value)


@pytest.mark.medium
def test_a_broker_that_vanishes_ends_the_run(mosquitto: Mosquitto) -> None:
    def stop_after_some(counted: int, _: int) -> None:
        if counted > 100:
            mosquitto.stop()

    with pytest.raises(BrokerError, match=r"\d+ reports"):
        hush.simulate(clients=5_000, broker=mosquitto.url, progress=stop_after_some)


@pytest.mark.large
def test_a_broker_that_comes_back_loses_nothing(mosquitto: Mosquitto) -> None:
    restarts: list[int] = []

    def restart_once(counted: int, _: int) -> None:
        if counted > 500 and not restarts:
            restarts.append(counted)
            mosquitto.stop()
            mosquitto.start()

    run = hush.simulate(clients=3000, broker=mosquitto.url, progress=restart_once)
    assert restarts
    assert (run.lost, run.result.n) == (0, 3000)
    assert set(run.result.refused) <= {"duplicate"}


def test_reports_that_never_arrive_are_lost_and_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver, reports = MemoryBroker.deliver, 0

    def careless(broker: MemoryBroker, topic: str, payload: bytes, *, retain: bool = False) -> None:
        nonlocal reports
        reports += "/reports/" in topic
        if "/reports/" not in topic or reports % 2:  # half of the devices share a message
            deliver(broker, topic, payload, retain=retain)

    monkeypatch.setattr(MemoryBroker, "deliver", careless)
    with pytest.warns(RuntimeWarning, match="30 reports"):
        run = in_memory()
    assert (run.lost, run.result.n) == (30, 30)


def test_devices_that_wait_for_ever_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = MemoryBroker.deliver

    def without_tasks(broker: MemoryBroker, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if "/tasks/" not in topic:
            deliver(broker, topic, payload, retain=retain)

    monkeypatch.setattr(MemoryBroker, "deliver", without_tasks)
    with pytest.raises(BrokerError):
        in_memory()


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
            loop.sleep(3600)
        deliver(broker, topic, payload, retain=retain)

    monkeypatch.setattr(MemoryBroker, "deliver", sleepy)
    run = await simulate()
    assert asleep
    assert (run.lost, run.result.n) == (0, 60)


def test_the_asynchronous_twin_takes_the_same_arguments() -> None:
    assert inspect.signature(hush.simulate) == inspect.signature(hush.simulate_async)


@pytest.mark.medium
async def test_in_a_running_loop_the_simulation_has_its_own_thread() -> None:
    threads: set[threading.Thread] = set()
    run = hush.simulate(clients=9, engine="memory", progress=lambda *_: threads.add(threading.current_thread()))
    assert run.result.n == 9
    assert threading.current_thread() not in threads
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.medium
async def test_the_asynchronous_twin_runs_in_the_loop_of_its_caller() -> None:
    loops = set()
    run = await simulate(clients=9, progress=lambda *_: loops.add(asyncio.get_running_loop()))
    assert run.result.n == 9
    assert loops == {asyncio.get_running_loop()}


@pytest.mark.medium
def test_progress_counts_all_answers_of_all_rounds() -> None:
    seen: list[tuple[int, int]] = []
    run = in_memory(clients=10, rounds=3, progress=lambda *counts: seen.append(counts))
    assert seen == sorted(seen)
    assert seen[-1] == (30, 30)
    assert run.result == run.results[-1]


def test_an_error_in_progress_ends_the_simulation() -> None:
    def enough(counted: int, total: int) -> None:
        raise LookupError(f"{counted} of {total}")

    with pytest.raises(LookupError, match="of 60"):
        in_memory(progress=enough)


@pytest.mark.medium
def test_a_scenario_is_a_name_a_path_or_an_object(tmp_path: Path) -> None:
    path = tmp_path / "coins.toml"
    path.write_text(
        'clients = 3\n[task]\nid = "coins"\nepsilon = "0.5"\n[task.domain]\nkind = "bit"\n'
        '[population]\nkind = "bernoulli"\nproportion = 0.5\n',
        encoding="utf-8",
    )
    for scenario in (path, str(path)):
        run = in_memory(scenario, clients=None)
        assert (run.task.id, run.result.n) == ("coins", 3)
    survey = hush.SCENARIOS["survey"]
    assert in_memory(hush.Scenario({**survey.document, "id": "mine"}, survey.population), clients=2).task.id == "mine"


@pytest.mark.parametrize("domain", [AGES, NumberDomain(0, 110, "years")])
def test_own_data_are_all_clients_and_their_mean_is_the_truth(domain: object) -> None:
    run = in_memory(data=np.array([30.0, 41.0, 52.0]), domain=domain, epsilon=2, clients=None, seed=None)
    assert (run.result.n, run.truth, run.task.unit) == (3, {"reporters": 41.0}, "years")
    assert "seed" not in run.to_document()


@pytest.mark.medium
def test_own_data_may_be_the_people_of_a_scenario() -> None:
    assert in_memory("survey", data=[True, True, False, True], clients=None).truth == {"reporters": 0.75}
    parts = in_memory("commute", data=["car", "bus", "bus", "bus"], clients=None).score.parts
    assert [parts[way].truth["reporters"] for way in ("car", "bus", "train")] == [0.25, 0.75, 0.0]


@pytest.mark.medium
def test_devices_without_a_value_answer_and_are_no_part_of_the_truth() -> None:
    labels = in_memory(
        data=["1", None, "1", "0"], domain={"kind": "category", "labels": ["0", "1"]}, missing="replace", clients=None
    )
    assert labels.result.n == 4
    assert [part.truth["reporters"] for part in labels.score.parts.values()] == pytest.approx([1 / 3, 2 / 3])
    numbers = in_memory(data=[2.0, None, 4.0], domain=AGES, missing="replace", clients=40)
    assert numbers.truth["population"] == 3.0


QUESTIONS: list[tuple[Any, dict[str, object], list[float]]] = [
    ([12.0, 40.0, 130.0, 55.0], AGES, [59.25]),  # one is outside the bounds: the truth is that of the values
    ([1, 0, 1, 1], {"kind": "bit"}, [0.75]),
    (["a", "c", "a", "a"], {"kind": "category", "labels": ["a", "b", "c"]}, [0.75, 0.0, 0.25]),
]


@pytest.mark.medium
@pytest.mark.parametrize("engine", ["memory", "bulk"])
@pytest.mark.parametrize(("data", "domain", "truth"), QUESTIONS)
def test_rows_that_devices_are_drawn_from_are_the_population(
    data: object, domain: dict[str, object], truth: list[float], engine: str
) -> None:
    drawn = hush.simulate(data=data, domain=domain, clients=60, seed=1, engine=engine)
    parts = drawn.score.parts.values() or [drawn.score]
    assert [part.truth["population"] for part in parts] == pytest.approx(truth, abs=1e-12)
    assert all("population" in part.covered for part in parts)
    asked = hush.simulate(data=data, domain=domain, seed=1, engine=engine)
    assert not any("population" in part.truth for part in asked.score.parts.values() or [asked.score])


@pytest.mark.medium
@pytest.mark.parametrize("epsilon", ["0.25", 0.25, np.float64(0.25), np.float32(0.25), Decimal("0.25"), Fraction(1, 4)])
def test_an_epsilon_is_exact_however_it_is_written(epsilon: object) -> None:
    assert in_memory(clients=2, epsilon=epsilon).task.epsilon == Fraction(1, 4)
    assert in_memory(clients=2, epsilon=0.1).task.epsilon == Fraction(1, 10)


def test_a_run_shows_neither_values_nor_addresses() -> None:
    run = in_memory(data=[30.125, 41.125], domain=AGES, clients=None)
    assert not re.search("30.125|41.125|embedded", repr((run, run.experiment, run.last)))


def test_a_simulation_leaves_no_file_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    in_memory(clients=5)
    assert list(tmp_path.iterdir()) == []
