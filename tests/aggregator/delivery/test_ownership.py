"""Several aggregators at one broker: what is published of a task stays its owner's, whoever starts, stops or errs."""

import asyncio
import json
import logging
import math
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from broker_world import living
from waiting import until

from hush import Task
from hush_aggregator import Aggregator, SqliteReader, SqliteStore
from hush_aggregator.ownership import TAKE_OVER, Ownership, OwnershipClaim
from hush_aggregator.result import HIGHEST_TERM
from hush_aggregator.store import Owner, SqliteEditor, TaskRow, TaskState
from hush_common.task import make_task
from hush_common.wire import Report, encode_frame
from hush_simulations.brokers.memory import MemoryBroker

pytestmark = pytest.mark.virtual_time

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": NUMBER})
CHANGED = make_task({"id": "heights", "epsilon": "2", "domain": NUMBER})
TASK, ESTIMATE = "hush/v1/tasks/heights", "hush/v1/estimates/heights"


class Watched(MemoryBroker):
    """Keeps what was published on the two topics, in order, and can forget everything as a broker without memory."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[str, bytes]] = []

    def deliver(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if retain:
            self.history.append((topic, payload))
        super().deliver(topic, payload, retain=retain)

    def forget(self) -> None:
        self.retained.clear()
        self.drop()

    def report(self, count: int, task: Task = HEIGHTS) -> None:
        for _ in range(count):
            frame = encode_frame([Report(task.report_digest, 0, secrets.token_bytes(16), (1,))])
            self.deliver("hush/v1/reports/heights/device", frame)

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.retained[ESTIMATE])
        return document


@asynccontextmanager
async def serving(broker: Watched, path: Path, *tasks: Task, settle_s: float = 0) -> AsyncIterator[Aggregator]:
    with SqliteStore(path) as store:
        aggregator = Aggregator(broker.bus(path.name), store, tasks=tasks, settle_s=settle_s, name=path.name)
        running = asyncio.create_task(aggregator.run(), name=path.name)
        try:
            yield aggregator
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def row(path: Path) -> TaskRow:
    with SqliteReader(path) as reader:
        return next(iter(reader.task_rows()), TaskRow("", b"", b""))


def name(path: Path) -> str:
    with SqliteReader(path) as reader:
        return reader.public_identity


def decided(path: Path) -> bool:
    with SqliteReader(path) as reader:
        return any(row.owner for row in reader.task_rows())


def take_over(path: Path) -> None:
    with SqliteEditor(path) as command:
        there = row(path)
        command.set_owners([Owner("heights", there.owner, there.term, TAKE_OVER)])


async def owned(broker: Watched, path: Path, reports: int = 3) -> None:
    """That store is the owner, with so many reports."""
    async with serving(broker, path, HEIGHTS):
        await until(lambda: ESTIMATE in broker.retained)
        broker.report(reports)
        await until(lambda: broker.document()["n"] == reports)
    assert broker.document()["store"] == name(path)


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("task", [HEIGHTS, CHANGED])
async def test_a_second_aggregator_changes_nothing_that_the_first_published(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, online: bool, task: Task
) -> None:
    broker, first, second = Watched(), tmp_path / "first", tmp_path / "second"
    await owned(broker, first)
    before, history = dict(broker.retained), len(broker.history)
    if not online:
        async with serving(broker, second, task):
            await until(lambda: decided(second))
        assert broker.retained == before
        assert broker.history[history:] == []
    else:
        async with serving(broker, first):
            await until(lambda: len(broker.history) > history)
            async with serving(broker, second, task):
                await until(lambda: decided(second))
                broker.report(2)
                await until(lambda: broker.document()["n"] == 5)
        assert {json.loads(payload)["store"] for topic, payload in broker.history if topic == ESTIMATE} == {name(first)}
        assert broker.retained[TASK] == HEIGHTS.payload
    assert f"but not published: the published estimate is from another store, {name(first)}" in caplog.text
    assert "run: hush task take-over heights --store" in caplog.text
    assert row(second).owner == name(first)


def test_that_a_task_is_another_stores_is_told_once_however_often_it_connects(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = {"store": "f" * 32, "term": 3, "digest": HEIGHTS.digest.hex(), "n": 10**6}
    with living(tmp_path / "store") as world:
        world.broker.retained[ESTIMATE] = json.dumps(others).encode()
        world.serve()
        for _ in range(3):
            world.broker.drop()
            world.wait(60)
        assert caplog.text.count("the connection is lost") == 3
    assert caplog.text.count("but not published") == 1


async def test_a_second_aggregator_counts_all_the_same(tmp_path: Path) -> None:
    broker, first, second = Watched(), tmp_path / "first", tmp_path / "second"
    await owned(broker, first)
    async with serving(broker, second, HEIGHTS) as aggregator:
        await until(lambda: decided(second))
        broker.report(7)
        with SqliteReader(second) as reader:
            await until(lambda: reader.tally(HEIGHTS.digest, 0).n == 7)
        assert (await aggregator.estimate("heights")).n == 7
    assert broker.document()["n"] == 3


async def test_a_task_of_somebody_else_without_an_estimate_is_not_overwritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Watched()
    broker.deliver(TASK, CHANGED.payload, retain=True)
    async with serving(broker, tmp_path / "store", HEIGHTS):
        await until(lambda: "another task is published" in caplog.text)
    assert broker.retained == {TASK: CHANGED.payload}
    assert f"digest {CHANGED.digest.hex()}; this store has digest {HEIGHTS.digest.hex()}" in caplog.text


EVENTS = ("first", "second", "changed", "forgets")  # the first two are alike
ORDERS = [order for order in permutations(EVENTS) if order.index("first") < order.index("second")]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_in_whatever_order_they_start_and_the_broker_forgets_the_first_owner_stays_it(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    """Each starts, and stays; a broker that forgets everything comes in between."""
    broker = Watched()
    tasks = {"first": HEIGHTS, "second": HEIGHTS, "changed": CHANGED}
    starters = [event for event in order if event in tasks]
    path, task = tmp_path / starters[0], tasks[starters[0]]
    async with serving(broker, tmp_path / starters[0], task):
        await until(lambda: ESTIMATE in broker.retained)
        for event in order[order.index(starters[0]) + 1 :]:
            if event == "forgets":
                broker.forget()
                await until(lambda: {TASK, ESTIMATE} <= broker.retained.keys())
            else:
                async with serving(broker, tmp_path / event, tasks[event]):
                    await until(lambda event=event: decided(tmp_path / event))
            await until(lambda: broker.retained[TASK] == task.payload)
            assert broker.document()["store"] == name(path)
    assert broker.document()["store"] == name(path)


@pytest.mark.parametrize("order", list(permutations(("first", "second", "crossed"))), ids="-".join)
async def test_restarts_in_every_order_leave_the_bytes_of_the_owner(tmp_path: Path, order: tuple[str, ...]) -> None:
    broker, elsewhere = Watched(), Watched()
    await owned(broker, tmp_path / "first")
    await owned(elsewhere, tmp_path / "crossed")  # an owner as well, at another broker
    before = broker.retained[TASK], name(tmp_path / "first"), 3
    for _ in range(2):
        for store in order:
            history = len(broker.history)
            async with serving(broker, tmp_path / store, HEIGHTS):
                if store == "first":
                    await until(lambda history=history: len(broker.history) > history)
                else:
                    await until(lambda store=store: row(tmp_path / store).owner == before[1])
            document = broker.document()
            assert (broker.retained[TASK], document["store"], document["n"]) == before


async def test_an_owner_publishes_again_what_others_overwrite_delete_or_forge(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Watched()
    async with serving(broker, tmp_path / "store", HEIGHTS):
        await until(lambda: {TASK, ESTIMATE} <= broker.retained.keys())
        good = dict(broker.retained)
        broker.deliver(TASK, CHANGED.payload, retain=True)
        await until(lambda: broker.retained == good)
        for topic, payload in ((ESTIMATE, b'{"n":9}'), (ESTIMATE, b""), (TASK, b""), (ESTIMATE, b"\xff")):
            broker.deliver(topic, payload, retain=True)
        forged = json.dumps(json.loads(good[ESTIMATE]) | {"n": 10**6}).encode()  # in the name of this very store
        broker.deliver(ESTIMATE, forged, retain=True)
        await until(lambda: broker.retained == good)
    assert "overwrote its messages; republished" in caplog.text


async def test_whoever_goes_on_overwriting_is_answered_less_and_less_often(tmp_path: Path) -> None:
    broker = Watched()
    async with serving(broker, tmp_path / "store", HEIGHTS):
        await until(lambda: {TASK, ESTIMATE} <= broker.retained.keys())
        before = len(broker.history)
        async with asyncio.timeout(60):
            for _ in range(300):
                broker.deliver(TASK, CHANGED.payload, retain=True)
                await asyncio.sleep(0.005)
        own = [payload for _, payload in broker.history[before:] if payload == HEIGHTS.payload]
        assert 1 <= len(own) <= 3
        await until(lambda: broker.retained[TASK] == HEIGHTS.payload)


@pytest.mark.virtual_time(False)  # two that take turns of one clock never part
@pytest.mark.parametrize("attempt", range(4))
async def test_of_two_that_start_at_once_on_an_empty_broker_one_yields(tmp_path: Path, attempt: int) -> None:
    broker, paths = Watched(), [tmp_path / f"{number}-{attempt}" for number in (1, 2)]
    async with serving(broker, paths[0], HEIGHTS), serving(broker, paths[1], CHANGED):
        await until(lambda: all(map(decided, paths)))
        await until(lambda: row(paths[0]).owner == row(paths[1]).owner)
        (winner,) = (path for path in paths if name(path) == row(path).owner)
        await until(lambda: broker.retained[TASK] == row(winner).payload)
        await until(lambda: broker.document()["store"] == name(winner))
        broker.report(2, HEIGHTS)
        broker.report(2, CHANGED)
        await until(lambda: broker.document()["n"] == 2)
    assert len(broker.history) < 25


async def test_a_claim_that_an_own_estimate_hides_at_once_is_obeyed(tmp_path: Path) -> None:
    """As between two stores that publish in step: each would only ever see its own estimate last."""
    broker, path = Watched(), tmp_path / "store"
    async with serving(broker, path, HEIGHTS):
        await until(lambda: ESTIMATE in broker.retained)
        own, claim = broker.retained[ESTIMATE], {"store": "0" * 32, "term": HIGHEST_TERM}
        broker.deliver(ESTIMATE, json.dumps(json.loads(own) | claim).encode(), retain=True)
        broker.deliver(ESTIMATE, own, retain=True)
        await until(lambda: row(path).owner == claim["store"])


@pytest.mark.parametrize("online", [True, False])
async def test_a_take_over_is_obeyed_by_the_owner_and_survives_restarts_of_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, online: bool
) -> None:
    broker, first, second = Watched(), tmp_path / "first", tmp_path / "second"
    await owned(broker, first)
    async with serving(broker, second, HEIGHTS):
        await until(lambda: decided(second))
        if online:
            async with serving(broker, first):
                take_over(second)
                await until(lambda: row(first).owner == name(second))
        else:
            take_over(second)
            await until(lambda: broker.document()["store"] == name(second))
    document = broker.document()
    assert (document["store"], document["taken_from"]) == (name(second), name(first))
    assert row(second).term == document["term"] > row(first).term - online
    for path in (first, second, first):
        async with serving(broker, path):
            await until(lambda path=path: row(path).owner == name(second))
        assert broker.document()["store"] == name(second)
    broker.forget()
    async with serving(broker, first):
        await until(lambda: "published it when it was seen last" in caplog.text)
        assert broker.retained == {}


@pytest.mark.large
async def test_what_was_taken_over_can_be_taken_back_while_both_run(tmp_path: Path) -> None:
    broker, first, second = Watched(), tmp_path / "first", tmp_path / "second"
    await owned(broker, first)
    async with serving(broker, first), serving(broker, second, HEIGHTS):
        await until(lambda: decided(second))
        for taker, other in ((second, first), (first, second), (second, first)):
            take_over(taker)
            await until(lambda taker=taker, other=other: row(other).owner == name(taker))
            await until(lambda taker=taker: broker.document()["store"] == name(taker))
            assert broker.document()["taken_from"] == name(other)
    assert len(broker.history) < 25


async def test_a_take_over_that_is_asked_for_while_the_aggregator_still_looks_is_not_lost(tmp_path: Path) -> None:
    broker, first, second = Watched(), tmp_path / "first", tmp_path / "second"
    await owned(broker, first)
    async with serving(broker, second, HEIGHTS, settle_s=3):  # it looks at the broker for 0.6 s
        await until(lambda: broker.session("second").connection is not None)
        take_over(second)
        await until(lambda: broker.document()["store"] == name(second))


@pytest.mark.parametrize("n", [0, 3, 4])
async def test_an_estimate_that_names_no_store_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, n: int
) -> None:
    broker, path = Watched(), tmp_path / "store"
    await owned(broker, path)
    before = {key: value for key, value in broker.document().items() if key not in {"store", "term"}}
    broker.retained[ESTIMATE] = there = json.dumps(before | {"n": n}).encode()
    async with serving(broker, path):
        await until(lambda: "does not name a store" in caplog.text)
    assert broker.retained[ESTIMATE] == there


def test_messages_that_did_not_come_back_are_told_once_whatever_the_name_they_were_sent_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SqliteStore(tmp_path / "store") as store:
        ownership = Aggregator(Watched().bus("a"), store)._ownership
        for number in range(3):
            ownership.unconfirmed[f"hush/v1/estimates/probe-{number}"] = -math.inf
            ownership._miss(f"hush/v1/estimates/probe-{number}")
    (record,) = caplog.records
    assert record.message.startswith("a message to hush/v1/estimates/+ was acknowledged and did not come back: allow")


async def test_a_withdrawn_task_is_cleared_counts_on_and_stays_withdrawn(tmp_path: Path) -> None:
    broker, path = Watched(), tmp_path / "store"
    async with serving(broker, path, HEIGHTS):
        await until(lambda: {TASK, ESTIMATE} <= broker.retained.keys())
        with SqliteEditor(path) as command:
            command.set_state("heights", TaskState.WITHDRAWN)
        await until(lambda: TASK not in broker.retained)
        broker.report(4)
        await until(lambda: broker.document()["n"] == 4)
        broker.deliver(TASK, HEIGHTS.payload, retain=True)
        await until(lambda: TASK not in broker.retained)
    async with serving(broker, path, HEIGHTS):
        broker.report(1)
        await until(lambda: broker.document()["n"] == 5)
        assert TASK not in broker.retained


@pytest.mark.parametrize("online", [True, False])
async def test_a_forgotten_task_is_cleared_at_the_broker_and_counts_no_more(tmp_path: Path, *, online: bool) -> None:
    broker, path = Watched(), tmp_path / "store"
    await owned(broker, path)
    if not online:
        with SqliteEditor(path) as command:
            command.forget("heights")
    async with serving(broker, path) as aggregator:
        if online:
            await until(lambda: aggregator._ownership.owns("heights"))
            with SqliteEditor(path) as command:
                command.forget("heights")
        await until(lambda: not broker.retained)
        broker.report(2)
        with SqliteReader(path) as reader:
            await until(lambda: sum(reader.refusals("(unknown)").values()) == 2)
            assert reader.tally(HEIGHTS.digest, 0).n == 0


async def test_a_task_that_is_forgotten_between_the_decision_and_its_publication_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, path, note, went_on = Watched(), tmp_path / "store", Ownership._note, asyncio.Event()

    async def forgotten_meanwhile(self: Ownership, claims: Iterable[tuple[TaskRow, OwnershipClaim | None]]) -> None:
        await note(self, claims)
        with SqliteEditor(path) as command:
            command.forget("heights")
        await until(lambda: "heights" not in self._tasks)
        asyncio.get_running_loop().call_later(0.1, went_on.set)

    await owned(broker, path)
    broker.retained.clear()
    monkeypatch.setattr(Ownership, "_note", forgotten_meanwhile)
    async with serving(broker, path):
        async with asyncio.timeout(60):
            await went_on.wait()
        await until(lambda: not broker.retained)


async def test_a_forgotten_task_of_another_store_stays_at_the_broker(tmp_path: Path) -> None:
    broker, first, second = Watched(), tmp_path / "first", tmp_path / "second"
    await owned(broker, first)
    before = dict(broker.retained)
    async with serving(broker, second, HEIGHTS):
        await until(lambda: decided(second))
    with SqliteEditor(second) as command:
        command.forget("heights")
    async with serving(broker, second):
        await until(lambda: broker.session("second").connection is not None)
        await asyncio.sleep(0.1)
    assert broker.retained == before


async def test_a_task_at_the_broker_is_counted_only_where_that_is_wanted_and_told_otherwise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Watched()
    for number in range(30):
        broker.deliver(f"hush/v1/tasks/t{number}", HEIGHTS.payload, retain=True)
    broker.deliver(TASK, HEIGHTS.payload, retain=True)
    async with serving(broker, tmp_path / "store"):
        await until(lambda: broker.session("store").acknowledged > 30)
        broker.report(3)
        await until(lambda: not broker.session("store").waiting and not broker.session("store").unacknowledged)
    assert ESTIMATE not in broker.retained
    told = [record.levelno for record in caplog.records if "not counted here" in record.message]
    assert told == [logging.WARNING] * 31  # the log bounds the lines of a minute
