"""An aggregator over a broker that misbehaves: every report counts once, nothing is lost, garbage never stops it."""

import asyncio
import json
import logging
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest
from broker_world import DRAFT, ESTIMATE, HEIGHTS, START, World, frame, living, told
from stored import stored_ids
from waiting import until

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.aggregator import SeparateConnections
from hush_aggregator.delivery.session import BrokerSession
from hush_aggregator.store import UNKNOWN, Accepted, CommitOutcome
from hush_common.errors import BrokerError, StoreError, TaskError
from hush_common.task import make_task
from hush_common.topics import BATCH_LIMIT, report_topic, task_topic
from hush_common.wire import Refusal, Report, encode_frame, encode_json
from hush_simulations.brokers.memory import MemoryBroker

OTHER = make_task(DRAFT | {"id": "other"})
NOBODY = report_topic("nobody", "device")


@pytest.fixture
def world(memory_path: Path) -> Iterator[World]:
    with living(memory_path / "hush.sqlite") as world:
        yield world


def counted(world: World) -> int:
    assert len(stored_ids(world.path)) == world.n
    return world.n


def publish(world: World, topic: str, *payloads: bytes) -> None:
    for payload in payloads:
        world.broker.deliver(topic, payload)


def frames(count: int) -> list[bytes]:
    return [frame() for _ in range(count)]


def commits(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], object] = int, after: Callable[[], object] = int
) -> None:
    """Call these around each commit, in its thread."""
    commit = SqliteStore.commit

    def watched(
        store: SqliteStore, accepted: Sequence[Accepted], refused: Mapping[tuple[str, Refusal], int]
    ) -> CommitOutcome:
        before()
        outcome = commit(store, accepted, refused)
        after()
        return outcome

    monkeypatch.setattr(SqliteStore, "commit", watched)


# Each report counts once


def test_reports_are_counted_acknowledged_and_released(world: World) -> None:
    world.serve()
    before = world.broker.session().acknowledged
    world.send(*frames(50))
    world.wait(3)
    assert (counted(world), world.broker.session().acknowledged - before) == (50, 50)
    assert world.broker.retained[task_topic("heights")] == HEIGHTS.payload
    assert world.estimate["n"] == 50


def test_a_report_that_comes_again_counts_once(world: World) -> None:
    world.serve()
    again = frame()
    world.send(again, again)
    world.send(again)
    world.wait(3)
    assert (counted(world), world.estimate["refused"]) == (1, {"duplicate": 2})


def test_a_report_in_json_and_in_a_frame_is_one_report(world: World) -> None:
    report = Report(HEIGHTS.report_digest, 0, bytes(range(16)), (571231,))
    world.serve()
    world.send(encode_json("heights", report), encode_frame([report]))
    assert counted(world) == 1
    assert world.store.tally(HEIGHTS.digest, 0).moments[0] == 571231


def test_a_connection_lost_before_the_acknowledgement_counts_nothing_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    drops = iter(range(3))
    commits(monkeypatch, after=lambda: world.broker.drop() if next(drops, None) is not None else None)
    world.serve()
    for _ in range(3):
        world.send(*frames(100))
        world.wait(30)
    assert next(drops, None) is None
    assert counted(world) == 300
    assert sum(world.store.refusals("heights").values()) >= 300
    assert not world.broker.session().unacknowledged


def test_nothing_is_acknowledged_before_it_is_committed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    world.serve()
    session, world.broker.window = world.broker.session(), 7
    before = session.acknowledged
    commits(monkeypatch, after=lambda: seen.append((session.acknowledged - before, len(stored_ids(world.path)))))
    world.send(*frames(100))
    world.wait(3)
    assert len(seen) >= 100 / 7
    assert all(acknowledged < stored for acknowledged, stored in seen)


def test_a_restart_continues_where_it_stopped(world: World) -> None:
    world.serve()
    world.send(*frames(10))
    world.stop()
    world.send(*frames(5))
    world.broker.retained.clear()
    world.serve(tasks=())
    assert (counted(world), world.estimate["n"]) == (15, 15)


@pytest.mark.medium
def test_a_store_that_fails_stops_the_run_and_acknowledges_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise StoreError("full")

    world.serve()
    world.stop()
    acknowledged = world.broker.session().acknowledged
    world.send(*frames(3000))
    with monkeypatch.context() as patched:
        commits(patched, before=full)
        failing = Aggregator(world.broker.bus(), world.store, clock=world.now)
        with pytest.raises(StoreError, match="full"):
            world.loop.run_until_complete(failing.run())
    assert world.broker.session().acknowledged - acknowledged <= 2  # tasks
    world.serve()
    assert counted(world) == 3000


# Tasks


def test_a_report_that_arrives_before_its_task_is_counted(world: World) -> None:
    world.serve(for_s=0, tasks=(), any_task=True, settle_s=5)
    world.send(*frames(30))
    world.write(task_topic("heights"), HEIGHTS.payload, for_s=10)
    assert counted(world) == 30
    assert world.store.refusals(UNKNOWN) == {}


def test_a_full_window_of_unknown_tasks_does_not_stop_known_ones(world: World) -> None:
    world.broker.window = 5
    world.serve()
    publish(world, NOBODY, *frames(5))
    world.send(*frames(5))
    assert counted(world) == 5
    assert world.store.refusals(UNKNOWN) == {Refusal.UNKNOWN_TASK: 5}


@pytest.mark.medium
def test_more_reports_of_an_unknown_task_than_can_be_held_are_counted(world: World) -> None:
    world.serve(for_s=0, tasks=(), any_task=True)
    publish(world, report_topic("heights", "device"), *frames(3 * BATCH_LIMIT))
    world.wait(0.05)
    publish(world, NOBODY, *frames(100))
    world.write(task_topic("heights"), HEIGHTS.payload, for_s=20)
    assert world.aggregator is not None
    assert world.aggregator.intake.connections["intake"] == 2  # the broker delivers them again
    assert counted(world) == 3 * BATCH_LIMIT
    assert world.store.refusals(UNKNOWN) == {Refusal.UNKNOWN_TASK: 100}


def test_reports_of_a_task_of_another_store_are_not_refused(world: World) -> None:
    outcomes: list[CommitOutcome] = []
    world.serve(on_commit=outcomes.append)
    world.write(task_topic("other"), OTHER.payload)
    publish(world, report_topic("other", "device"), *(frame(OTHER) for _ in range(5)), b"no frame")
    publish(world, NOBODY, *frames(2))
    world.send(*frames(3), b"no frame")
    world.write(task_topic("other"), b"")
    publish(world, report_topic("other", "device"), *(frame(OTHER) for _ in range(4)))
    world.wait(3)
    assert sum(outcome.foreign for outcome in outcomes) == 6
    assert counted(world) == 3
    assert world.store.refusals(UNKNOWN) == {Refusal.UNKNOWN_TASK: 2 + 4}
    assert world.store.refusals("heights") == {Refusal.UNKNOWN_VERSION: 1}


def test_reports_of_a_task_without_room_are_refused_as_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_aggregator.count.tasks.TASKS", 1)
    world.serve(tasks=(), any_task=True)
    assert world.aggregator is not None
    world.write(task_topic("heights"), HEIGHTS.payload)
    assert (world.aggregator.task_limit, world.aggregator.intake.without_room) == ("", 0)
    world.write(task_topic("other"), OTHER.payload)
    assert "1 published tasks" in world.aggregator.task_limit
    assert world.aggregator.intake.without_room == 1
    publish(world, report_topic("other", "device"), *frames(5))
    publish(world, NOBODY, *frames(2))
    world.wait(3)
    world.write(task_topic("other"), b"")
    assert (world.aggregator.task_limit, world.aggregator.intake.without_room) == ("", 0)
    assert world.store.refusals(UNKNOWN) == {Refusal.TASK_LIMIT: 5, Refusal.UNKNOWN_TASK: 2}


def test_the_first_task_under_an_id_wins_and_what_is_no_task_is_ignored(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    changed = make_task(DRAFT | {"epsilon": "2"})
    world.serve(tasks=(), any_task=True)
    for payload in (b"\xff", b"[1]", b'{"id":"else"}', HEIGHTS.payload):
        world.write(task_topic("else"), payload)
    world.write(task_topic("heights"), HEIGHTS.payload)
    world.write(task_topic("heights"), changed.payload)
    world.send(*frames(3), frame(changed), frame(changed))
    assert world.store.tasks() == [HEIGHTS.payload]
    assert counted(world) == 3
    assert world.store.refusals("heights") == {Refusal.WRONG_DIGEST: 2}
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("'else'" in line and "\n" not in line for line in warnings) == 4
    assert any("heights" in line and "new id" in line for line in warnings)


def test_an_own_task_that_contradicts_the_store_is_an_error(world: World) -> None:
    world.store.add_task(make_task(DRAFT | {"epsilon": "2"}))
    with pytest.raises(TaskError, match="another id"):
        world.loop.run_until_complete(Aggregator(world.broker.bus(), world.store, tasks=(HEIGHTS,)).run())


def test_a_stored_task_keeps_what_an_earlier_version_decided(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    draft = DRAFT | {"epsilon": "4.2", "mechanism": "auto"}
    before, now = (
        make_task(draft | {"mechanism": "multilevel", "levels": 4}),
        make_task(draft),
    )  # what "auto" meant once
    world.store.add_task(before)
    assert now.mechanism == "table"
    world.serve(tasks=(now,))
    world.send(frame(before), frame(now), frame(now))
    assert world.store.tally(before.digest, 0).n == 1
    assert world.store.refusals("heights") == {Refusal.WRONG_DIGEST: 2}
    assert world.store.tasks() == [before.payload] == [world.broker.retained[task_topic("heights")]]
    assert any("heights" in line and "multilevel" in line for line in caplog.messages)


# Garbage and outages


def test_a_storm_of_garbage_is_counted_and_the_reports_in_it_too(world: World) -> None:
    garbage = [b"", b"\x00", b"{", b"[]", b"\x02" * 25, b'{"v":2,"v":2}', b'{"v":1}', bytes(41), b"[" * 100_000]
    world.serve()
    for k in range(200):
        publish(world, f"hush/v1/reports/invented-{k}/device", frame())
        publish(world, f"nonsense/{k}", secrets.token_bytes(k))
        publish(world, task_topic(f"task-{k}"), secrets.token_bytes(k))
        publish(world, report_topic("heights", "device"), garbage[k % len(garbage)], frame())
    world.wait(3)
    assert counted(world) == 200
    assert sum(world.store.refusals("heights").values()) == 200
    assert sum(world.store.refusals(UNKNOWN).values()) == 200
    assert world.store.refused().keys() >= {Refusal.UNKNOWN_TASK, Refusal.UNKNOWN_VERSION}


def test_a_broker_that_is_away_at_first_is_warned_about_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.broker.reachable = False
    world.serve(for_s=5)
    world.broker.reachable = True
    world.wait(30)
    world.send(*frames(2))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.startswith("memory") for line in warnings] == [True]
    assert counted(world) == 2


@pytest.mark.parametrize("turns", range(6))
def test_stopping_while_the_connection_is_lost_stops(world: World, turns: int) -> None:
    world.serve(for_s=1)
    world.broker.drop()
    world.loop.turn(turns)
    (running,) = world.running.values()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        world.loop.run_until_complete(asyncio.wait_for(running, 60))


class Refusing:
    """A broker that accepts no connection of this user."""

    name = "memory"

    def connect(self, filters: Sequence[str]) -> AbstractAsyncContextManager[BrokerSession]:
        raise BrokerError(self.name, f"refused {filters}")


@pytest.mark.parametrize("refuses", [True, False], ids=["refuses the second", "ends the first"])
def test_a_broker_that_allows_one_connection_is_served_over_one(
    world: World, caplog: pytest.LogCaptureFixture, *, refuses: bool
) -> None:
    intake = world.broker.bus()
    control = Refusing() if refuses else world.broker.bus()
    world.serve(bus=intake, separate=SeparateConnections(intake, control), for_s=120)
    world.send(*frames(10))
    world.wait(5)
    assert (counted(world), world.estimate["n"]) == (10, 10)
    assert told(caplog, "--control-user") == 1


# What is released


def test_estimates_are_released_once_a_second_and_after_the_last_report(world: World) -> None:
    world.serve()
    before = len(world.broker.seen)
    for _ in range(12):
        publish(world, report_topic("heights", "device"), frame())
        world.wait(0.1)
    world.wait(3)
    released = [one.n for one in world.broker.seen[before:]]
    assert released[-1] == 12
    assert 2 <= len(released) <= 4


def test_a_task_without_reports_has_no_mean_and_no_nulls(world: World) -> None:
    world.serve()
    world.send(b"garbage")
    world.wait(3)
    assert (world.estimate["n"], world.estimate["refused"]) == (0, {"unknown_version": 1})
    assert "mean" not in world.estimate
    assert None not in world.estimate.values()


def test_the_latest_round_is_released_and_an_earlier_one_can_be_asked_for(world: World) -> None:
    daily = {"epsilon": "3", "rounds": 3, "round_every": "1d", "opens": "2027-02-27T00:00:00Z"}
    world.task = make_task(DRAFT | daily)
    world.serve()
    for round_ in (1, 0):
        world.send(frame(world.task, round_))
    world.wait(3)
    assert world.aggregator is not None
    ask = world.aggregator.estimate
    earlier = world.loop.run_until_complete(ask("heights", 0))
    assert (earlier.round, earlier.n, earlier.updated_at > START) == (0, 1, True)
    document = world.estimate
    assert (document["round"], document["n"], document["epsilon"], document["epsilon_per_round"]) == (1, 1, "3", "1")
    for task_id, round_ in (("weights", 0), ("heights", 3)):
        with pytest.raises(TaskError, match=task_id if task_id == "weights" else str(round_)):
            world.loop.run_until_complete(ask(task_id, round_))


# In real threads


@pytest.mark.medium
async def test_stopping_in_the_middle_of_a_batch_finishes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, begun, may_end = MemoryBroker(window=50), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        may_end.wait(60)

    commits(monkeypatch, before=wait)
    with SqliteStore(tmp_path / "store") as store:
        running = asyncio.create_task(Aggregator(broker.bus(), store, tasks=(HEIGHTS,)).run())
        await until(lambda: ESTIMATE in broker.retained)
        for payload in frames(500):
            broker.deliver(report_topic("heights", "device"), payload)
        await until(begun.is_set)
        running.cancel()
        await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        n = store.tally(HEIGHTS.digest, 0).n
    waiting = len(broker.session().waiting) + len(broker.session().unacknowledged)
    assert 0 < n == 500 - waiting
    assert json.loads(broker.retained[ESTIMATE])["n"] == n


@pytest.mark.medium
async def test_the_event_loop_is_never_blocked_by_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, begun, ended = MemoryBroker(), threading.Event(), threading.Event()
    with SqliteStore(tmp_path / "store") as store:
        running = asyncio.create_task(Aggregator(broker.bus(), store, tasks=(HEIGHTS,)).run())
        await until(lambda: ESTIMATE in broker.retained)
        commits(monkeypatch, begun.set, ended.set)
        with closing(sqlite3.connect(tmp_path / "store", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")  # the store waits for this lock, in its thread
            broker.deliver(report_topic("heights", "device"), frame())
            await until(begun.is_set)
            for _ in range(30):
                await asyncio.sleep(0.01)
            assert not ended.is_set()
            writer.execute("ROLLBACK")
        await until(ended.is_set)
        running.cancel()
        await asyncio.wait({running})
        assert store.tally(HEIGHTS.digest, 0).n == 1
