"""The pipeline over a broker that misbehaves: every report counts once, nothing is lost, garbage never stops it."""

import asyncio
import json
import logging
import secrets
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from scripted_broker import ScriptedBroker
from stored import read_ids
from waiting import until

from hush import Task
from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.store import UNKNOWN, Accepted, CommitOutcome
from hush_common.errors import StoreError, TaskError
from hush_common.task import make_task
from hush_common.topics import task_topic
from hush_common.wire import Refusal, Report, encode_frame, encode_json

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": NUMBER})
TOPIC = "hush/v1/reports/heights/device"
ESTIMATE = "hush/v1/estimates/heights"


class WatchedStore(SqliteStore):
    """A store that tells a test when it commits, from the worker thread."""

    before: Callable[[], object] = staticmethod(int)
    after: Callable[[], object] = staticmethod(int)

    def commit(self, accepted: Sequence[Accepted], refused: Mapping[tuple[str, Refusal], int]) -> CommitOutcome:
        self.before()
        outcome = super().commit(accepted, refused)
        self.after()
        return outcome


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WatchedStore]:
    with WatchedStore(tmp_path / "hush.sqlite") as store:
        yield store


def frames(count: int, task: Task = HEIGHTS, body: int = 1) -> list[bytes]:
    return [encode_frame([Report(task.report_digest, 0, secrets.token_bytes(16), (body,))]) for _ in range(count)]


def rows(store: WatchedStore) -> int:
    return len(read_ids(store._connection))


def n(store: WatchedStore) -> int:
    counted = store.tally(HEIGHTS.digest, 0).n
    assert counted == rows(store)
    return counted


@asynccontextmanager
async def running(
    bus: ScriptedBroker,
    store: WatchedStore,
    *,
    tasks: tuple[Task, ...] = (HEIGHTS,),
    settle_s: float = 0.2,
    any_task: bool = False,
    on_commit: Callable[[CommitOutcome], None] | None = None,
) -> AsyncIterator[Aggregator]:
    aggregator = Aggregator(bus, store, tasks=tasks, settle_s=settle_s, any_task=any_task, on_commit=on_commit)
    task = asyncio.create_task(aggregator.run(), name="aggregator")
    try:
        yield aggregator
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_reports_are_counted_acknowledged_and_released(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={})
    async with running(bus, store):
        bus.send(TOPIC, *frames(50))
        await bus.emptied()
    assert n(store) == 50
    assert bus.published[0] == ("hush/v1/tasks/heights", HEIGHTS.payload)
    assert json.loads(bus.retained[ESTIMATE])["n"] == 50


async def test_a_report_delivered_twice_is_counted_once_and_told(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={})
    async with running(bus, store) as aggregator:
        (frame,) = frames(1)
        bus.send(TOPIC, frame, frame)
        await bus.emptied()
        bus.send(TOPIC, frame)
        await bus.emptied()
        assert (await aggregator.estimate("heights")).refused == {"duplicate": 2}
    assert n(store) == 1


async def test_a_connection_lost_between_commit_and_acknowledgement_counts_nothing_twice(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={})
    loop = asyncio.get_running_loop()
    drops = iter(range(3))

    def drop() -> None:
        if next(drops, None) is not None:
            loop.call_soon_threadsafe(bus.drop)

    store.after = drop
    bus.send(TOPIC, *frames(500))
    async with running(bus, store):
        await bus.emptied()
    assert n(store) == 500
    assert bus.connections > 1


async def test_nothing_is_acknowledged_before_it_is_committed(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={}, window=7)
    counts: list[tuple[int, int]] = []
    store.after = lambda: counts.append((bus.acknowledged, rows(store)))
    async with running(bus, store):
        bus.send(TOPIC, *frames(100))
        await bus.emptied()
    assert len(counts) >= 100 / 7
    assert all(acknowledged < committed for acknowledged, committed in counts)


@pytest.mark.virtual_time
async def test_a_report_that_arrives_before_its_task_is_counted(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={}, retained_after=0.1)
    bus.retained["hush/v1/tasks/heights"] = HEIGHTS.payload
    bus.send(TOPIC, *frames(30))
    async with running(bus, store, tasks=(), settle_s=5, any_task=True):
        await asyncio.wait_for(bus.emptied(), 60)
    assert n(store) == 30
    assert store.refusals(UNKNOWN) == {}


@pytest.mark.virtual_time
async def test_a_full_window_of_unknown_tasks_does_not_stop_reports_of_known_ones_for_good(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={}, window=5)
    bus.send("hush/v1/reports/nobody/device", *frames(5))
    bus.send(TOPIC, *frames(5))
    async with running(bus, store):
        await bus.emptied()
    assert n(store) == 5
    assert store.refusals(UNKNOWN) == {Refusal.UNKNOWN_TASK: 5}


OTHER = make_task({"id": "other", "epsilon": "1", "domain": NUMBER})
ELSEWHERE = "hush/v1/reports/other/device"


@pytest.mark.virtual_time
async def test_reports_of_a_task_that_is_published_for_another_store_are_not_refused(store: WatchedStore) -> None:
    foreign: list[int] = []
    bus = ScriptedBroker(retained={})
    async with running(bus, store, on_commit=lambda outcome: foreign.append(outcome.foreign)):
        await bus.up.wait()
        bus.retain(task_topic("other"), OTHER.payload)
        await asyncio.sleep(0.1)
        bus.send(ELSEWHERE, *frames(5, OTHER), b"no frame")
        bus.send("hush/v1/reports/nobody/device", *frames(2))
        bus.send(TOPIC, *frames(3), b"no frame")
        await bus.emptied()
        bus.retain(task_topic("other"), b"")
        await asyncio.sleep(0.1)
        bus.send(ELSEWHERE, *frames(4, OTHER))
        await bus.emptied()
    assert sum(foreign) == 6
    assert n(store) == 3
    assert store.refusals(UNKNOWN) == {Refusal.UNKNOWN_TASK: 2 + 4}
    assert store.refusals("heights") == {Refusal.UNKNOWN_VERSION: 1}


@pytest.mark.virtual_time
async def test_reports_of_a_task_for_which_there_is_no_room_are_refused_as_that(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush_aggregator.tasks.TASKS", 1)
    bus = ScriptedBroker(retained={})
    async with running(bus, store, tasks=(), any_task=True) as aggregator:
        await bus.up.wait()
        bus.retain(task_topic("heights"), HEIGHTS.payload)
        await asyncio.sleep(0.1)
        assert aggregator.task_limit == ""
        bus.retain(task_topic("other"), OTHER.payload)
        await asyncio.sleep(0.1)
        assert aggregator.task_limit.startswith("1 published tasks are not counted: no more than 1 tasks found")
        assert aggregator.intake.without_room == 1
        bus.send(ELSEWHERE, *frames(5, OTHER))
        bus.send("hush/v1/reports/nobody/device", *frames(2))
        await bus.emptied()
        bus.retain(task_topic("other"), b"")
        await asyncio.sleep(0.1)
        assert (aggregator.task_limit, aggregator.intake.without_room) == ("", 0)
    assert store.refusals(UNKNOWN) == {Refusal.TASK_LIMIT: 5, Refusal.UNKNOWN_TASK: 2}


@pytest.mark.virtual_time
async def test_more_reports_of_an_unknown_task_than_can_be_held_are_counted_all_the_same(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush_aggregator.intake._LIMIT", 10)
    bus = ScriptedBroker(retained={}, retained_after=0.1)
    bus.retained["hush/v1/tasks/heights"] = HEIGHTS.payload
    bus.send(TOPIC, *frames(100))
    bus.send("hush/v1/reports/nobody/device", *frames(100))
    async with running(bus, store, tasks=(), any_task=True):
        await bus.emptied()
    assert n(store) == 100
    assert bus.connections == 2
    assert store.refusals(UNKNOWN) == {Refusal.UNKNOWN_TASK: 100}


async def test_a_storm_of_garbage_is_counted_and_the_reports_in_it_are_not_lost(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={})
    good = iter(frames(200))
    garbage = [b"", b"\x00", b"{", b"[]", b"\x02" * 25, b'{"v":2,"v":2}', b'{"v":1}', bytes(41), b"[" * 100_000]
    async with running(bus, store):
        for k in range(200):
            bus.send(TOPIC, garbage[k % len(garbage)], next(good))
            bus.send(f"hush/v1/reports/invented-{k}/device", *frames(1))
            bus.send(f"nonsense/{k}", secrets.token_bytes(k))
            bus.send(f"hush/v1/tasks/task-{k}", secrets.token_bytes(k))
        await bus.emptied()
    assert n(store) == 200
    assert sum(store.refusals("heights").values()) == 200
    assert sum(store.refusals(UNKNOWN).values()) == 400
    (names,) = store._connection.execute("SELECT count(DISTINCT task) FROM refusal").fetchone()
    assert names == 2


async def test_a_task_that_is_none_is_logged_and_ignored(store: WatchedStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bus = ScriptedBroker(retained={})
    async with running(bus, store, tasks=(), any_task=True):
        await bus.up.wait()
        for payload in (b"\xff", b"[1]", b"", b'{"id":"else"}', HEIGHTS.payload):
            bus.retain(task_topic("else"), payload)
        bus.retain(task_topic("heights"), HEIGHTS.payload)
        bus.send(TOPIC, *frames(1))
        await bus.emptied()
    assert store.tasks() == [HEIGHTS.payload]
    assert n(store) == 1
    refused = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(refused) == 5
    assert all("'else'" in line and "\n" not in line for line in refused)


async def test_the_first_task_under_an_id_wins_and_the_other_is_told(
    store: WatchedStore, caplog: pytest.LogCaptureFixture
) -> None:
    other = make_task({"id": "heights", "epsilon": "2", "domain": NUMBER})
    bus = ScriptedBroker(retained={})
    async with running(bus, store, tasks=(), any_task=True):
        await bus.up.wait()
        bus.retain(task_topic("heights"), HEIGHTS.payload)
        bus.retain(task_topic("heights"), other.payload)
        bus.send(TOPIC, *frames(3), *frames(2, other))
        await bus.emptied()
    assert n(store) == 3
    assert store.refusals("heights") == {Refusal.WRONG_DIGEST: 2}
    assert "tasks never change; use a new id" in caplog.text


async def test_a_task_of_ones_own_that_contradicts_the_store_is_an_error(store: WatchedStore) -> None:
    store.add_task(make_task({"id": "heights", "epsilon": "2", "domain": NUMBER}))
    with pytest.raises(TaskError, match="choose another id"):
        await Aggregator(ScriptedBroker(retained={}), store, tasks=(HEIGHTS,)).run()


async def test_a_stored_task_keeps_what_an_earlier_version_decided_for_the_same_draft(
    store: WatchedStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    draft = {"id": "heights", "epsilon": "4.2", "domain": NUMBER, "mechanism": "auto"}
    before = make_task(draft | {"mechanism": "multilevel", "levels": 4})  # to the byte what "auto" meant once
    assert store.add_task(before) == before.payload
    bus, now = ScriptedBroker(retained={}), make_task(draft)
    assert now.mechanism == "table"
    async with running(bus, store, tasks=(now,)):
        bus.send(TOPIC, *frames(3, before), *frames(2, now))
        await bus.emptied()
    assert store.tally(before.digest, 0).n == 3
    assert store.refusals("heights") == {Refusal.WRONG_DIGEST: 2}
    assert [bytes_ for topic, bytes_ in bus.published if topic == "hush/v1/tasks/heights"] == [before.payload]
    assert store.tasks() == [before.payload]
    assert "task heights stays as it was stored: multilevel" in caplog.text


async def test_a_restart_continues_where_it_stopped(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={})
    async with running(bus, store):
        bus.send(TOPIC, *frames(10))
        await bus.emptied()
    bus.send(TOPIC, *frames(5))
    bus.retained.clear()
    async with running(bus, store, tasks=()):
        await bus.emptied()
    assert n(store) == 15
    assert json.loads(bus.retained[ESTIMATE])["n"] == 15


async def test_a_full_disk_stops_the_run_and_acknowledges_nothing(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={})
    aggregator = Aggregator(bus, store, tasks=(HEIGHTS,))
    store.add_task(HEIGHTS)
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    bus.send(TOPIC, *frames(3000))
    with pytest.raises(StoreError, match="full; free some space"):
        await aggregator.run()
    assert bus.acknowledged == 0
    store._connection.execute("PRAGMA max_page_count = 100000")
    async with running(bus, store):
        await bus.emptied()
    assert n(store) == 3000


@pytest.mark.parametrize("turns", range(6))
async def test_stopping_while_the_connection_is_lost_stops(store: WatchedStore, turns: int) -> None:
    bus = ScriptedBroker(retained={})
    running = asyncio.create_task(Aggregator(bus, store).run(), name="aggregator")
    await bus.up.wait()
    bus.drop()
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait((running,), timeout=60)
    assert running.cancelled()


async def test_stopping_in_the_middle_of_a_batch_finishes_it(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={}, window=50)
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    store.before = lambda: loop.call_soon_threadsafe(begun.set)
    bus.send(TOPIC, *frames(500))
    task = asyncio.create_task(Aggregator(bus, store, tasks=(HEIGHTS,)).run(), name="aggregator")
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert n(store) == bus.acknowledged > 0
    assert json.loads(bus.retained[ESTIMATE])["n"] == n(store)


async def test_a_broker_that_is_not_there_at_first_is_told_once_and_found_later(
    store: WatchedStore, caplog: pytest.LogCaptureFixture
) -> None:
    bus = ScriptedBroker(retained={}, refusals=["cannot connect"] * 3)
    bus.send(TOPIC, *frames(2))
    async with running(bus, store):
        await bus.emptied()
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert told == ["fake://broker: cannot connect; retrying until it works"]
    assert n(store) == 2


@pytest.mark.virtual_time
async def test_estimates_are_released_at_most_once_a_second_and_after_the_last_report(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={})
    loop = asyncio.get_running_loop()
    async with running(bus, store):
        began = loop.time()
        for _ in range(12):
            bus.send(TOPIC, *frames(1))
            await asyncio.sleep(0.1)
        await bus.emptied()
        for _ in range(100):
            if json.loads(bus.retained[ESTIMATE])["n"] == 12:
                break
            await asyncio.sleep(0.02)
        took = loop.time() - began
        releases = [json.loads(payload)["n"] for topic, payload in bus.published if topic == ESTIMATE]
    assert releases[-1] == 12
    assert len(releases) <= took + 2


async def test_the_document_of_a_task_without_reports_has_no_mean_and_no_nulls(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={})
    async with running(bus, store) as aggregator:
        bus.send(TOPIC, b"garbage")
        await bus.emptied()
        document = await aggregator.estimate("heights")
    assert document.n == 0
    assert document.refused == {"unknown_version": 1}
    assert "mean" not in document.to_document()
    assert None not in document.to_document().values()


@pytest.mark.virtual_time
async def test_a_result_that_nobody_can_have_is_refused(store: WatchedStore) -> None:
    async with running(ScriptedBroker(retained={}), store) as aggregator:
        await asyncio.sleep(0.05)
        with pytest.raises(TaskError, match="no task 'weights' is known"):
            await aggregator.estimate("weights")
        with pytest.raises(TaskError, match="1 is not one of the 1 rounds"):
            await aggregator.estimate("heights", 1)


async def test_a_json_report_and_the_same_as_a_frame_are_one_report(store: WatchedStore) -> None:
    bus = ScriptedBroker(retained={})
    report = Report(HEIGHTS.report_digest, 0, bytes(range(16)), (571231,))
    async with running(bus, store):
        bus.send(TOPIC, encode_json("heights", report), encode_frame([report]))
        await bus.emptied()
    assert n(store) == 1
    assert store.tally(HEIGHTS.digest, 0).moments[0] == 571231


async def test_the_latest_round_is_the_one_that_is_released(store: WatchedStore) -> None:
    task = make_task(
        {
            "id": "heights",
            "epsilon": "3",
            "domain": NUMBER,
            "rounds": 3,
            "round_every": "1d",
            "opens": "2026-01-01T00:00:00Z",
        }
    )
    bus = ScriptedBroker(retained={})
    async with running(bus, store, tasks=(task,)) as aggregator:
        for round_ in (1, 0):
            bus.send(TOPIC, encode_frame([Report(task.report_digest, round_, bytes(16), (round_,))]))
            await bus.emptied()
        earlier = await aggregator.estimate("heights", 0)
    released = json.loads(bus.retained[ESTIMATE])
    assert (released["round"], released["n"], released["epsilon"], released["epsilon_per_round"]) == (1, 1, "3", "1")
    assert (earlier.round, earlier.n) == (0, 1)


async def test_the_event_loop_is_never_blocked_by_the_store(store: WatchedStore) -> None:
    writer = sqlite3.connect(store._path, isolation_level=None)
    bus, begun, ended = ScriptedBroker(retained={}), threading.Event(), threading.Event()
    async with asyncio.timeout(60), running(bus, store):
        await until(lambda: ESTIMATE in bus.retained)
        writer.execute("BEGIN IMMEDIATE")  # the store waits for this lock, in its thread, until it gives up after 10 s
        store.before, store.after = begun.set, ended.set
        bus.send(TOPIC, *frames(5))
        await until(begun.is_set)
        for _ in range(30):
            await asyncio.sleep(0.01)
        assert not ended.is_set()
        assert not read_ids(writer)
        writer.execute("ROLLBACK")
        writer.close()
        await bus.emptied()
    assert n(store) == 5
