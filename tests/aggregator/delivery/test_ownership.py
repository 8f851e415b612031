"""Several aggregators on one broker: only the owner of a task publishes it, through starts, stops and errors."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest
from broker_world import DRAFT, ESTIMATE, HEIGHTS, TOPIC, Broker, World, beside, frame, living, told
from virtual_time import in_virtual_time

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.delivery.ownership import TAKE_OVER
from hush_aggregator.delivery.session import BrokerSession
from hush_aggregator.estimate.result import HIGHEST_TERM
from hush_aggregator.store import Owner, SqliteEditor, TaskRow, TaskState
from hush_common.aio import AT_ONCE, run_all
from hush_common.errors import BrokerError
from hush_common.task import make_task
from hush_common.topics import estimate_topic, task_topic
from hush_common.wire import Refusal

CHANGED = make_task(DRAFT | {"epsilon": "2"})
TASK = task_topic("heights")
OTHER = "f" * 32


@pytest.fixture
def first(memory_path: Path) -> Iterator[World]:
    with living(memory_path / "first") as world:
        yield world


@pytest.fixture
def second(first: World, memory_path: Path) -> Iterator[World]:
    with beside(first, memory_path / "second") as world:
        yield world


@pytest.fixture
def history(first: World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """What was published on the two topics of `heights` from now on, in order."""
    published: list[tuple[str, bytes]] = []
    deliver = first.broker.deliver

    def watched(topic: str, payload: bytes, *, retain: bool = False) -> None:
        if topic in (TASK, ESTIMATE):
            published.append((topic, payload))
        deliver(topic, payload, retain=retain)

    monkeypatch.setattr(first.broker, "deliver", watched)
    return published


def row(world: World) -> TaskRow:
    return world.store.task_rows()[0]


def owner(world: World) -> str:
    """Whose estimate is retained."""
    return str(world.estimate["store"])


def identity(world: World) -> str:
    return world.store.public_identity


def report(world: World, count: int, task: Task = HEIGHTS) -> None:
    world.send(*(frame(task) for _ in range(count)))
    world.wait(3)


def take_over(world: World) -> None:
    with SqliteEditor(world.path) as command:
        command.set_owners([Owner("heights", row(world).owner, row(world).term, TAKE_OVER)])


def forget(world: World) -> None:
    with SqliteEditor(world.path) as command:
        command.forget("heights")


def kept(world: World) -> dict[str, bytes]:
    """What is retained of the task."""
    return {topic: payload for topic, payload in world.broker.retained.items() if "heights" in topic}


def owned(world: World, reports: int = 3) -> None:
    """That store is the owner, with so many reports, and does not run."""
    world.serve()
    report(world, reports)
    world.stop()
    assert (owner(world), world.estimate["n"]) == (identity(world), reports)


# Who publishes


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("task", [HEIGHTS, CHANGED])
def test_a_second_aggregator_changes_nothing_that_the_first_published(
    first: World, second: World, caplog: pytest.LogCaptureFixture, *, online: bool, task: Task
) -> None:
    owned(first)
    if online:
        first.serve()
    before, second.task = kept(first), task
    second.serve()
    report(first, 2)
    assert kept(first)[TASK] == before[TASK] == HEIGHTS.payload
    if online:
        assert (owner(first), first.estimate["n"]) == (identity(first), 5)
    else:
        assert kept(first) == before
    assert told(caplog, "heights", identity(first), "hush task take-over heights") == 1
    assert row(second).owner == identity(first)


def test_a_second_aggregator_counts_and_warns_once(
    first: World, second: World, caplog: pytest.LogCaptureFixture
) -> None:
    owned(first)
    second.serve()
    for _ in range(3):
        first.broker.drop()
        second.wait(20)
    report(second, 7)
    assert (second.n, first.estimate["n"]) == (7, 3)
    assert told(caplog, "heights", "take-over") == 1


def test_a_task_of_another_client_without_an_estimate_stays(first: World, caplog: pytest.LogCaptureFixture) -> None:
    first.broker.deliver(TASK, CHANGED.payload, retain=True)
    first.serve()
    assert kept(first) == {TASK: CHANGED.payload}
    assert told(caplog, "heights", CHANGED.digest.hex(), HEIGHTS.digest.hex()) == 1


EVENTS = ("first", "second", "changed", "forgets")  # the first two are alike
ORDERS = [order for order in permutations(EVENTS) if order.index("first") < order.index("second")]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_in_every_order_of_starts_and_losses_the_first_owner_stays(
    first: World, memory_path: Path, order: tuple[str, ...]
) -> None:
    """Each starts, and stays; a broker that forgets everything comes in between."""
    with ExitStack() as stack:
        owners: list[World] = []
        for event in order:
            if event == "forgets":
                first.broker.retained.clear()
                first.broker.drop()
            else:
                world = stack.enter_context(beside(first, memory_path / f"{event}-store"))
                world.task = CHANGED if event == "changed" else HEIGHTS
                world.serve(for_s=3)
                owners.append(world)
            first.wait(3)
            if owners:
                assert owner(first) == identity(owners[0])
                assert first.broker.retained[TASK] == owners[0].task.payload


@pytest.mark.parametrize("order", list(permutations(("first", "second", "crossed"))), ids="-".join)
def test_restarts_in_every_order_leave_the_bytes_of_the_owner(
    first: World, second: World, memory_path: Path, order: tuple[str, ...]
) -> None:
    with beside(first, memory_path / "crossed", Broker(first.loop)) as elsewhere:
        owned(elsewhere)  # an owner as well, on another broker
    with beside(first, memory_path / "crossed") as crossed:
        owned(first)
        worlds = {"first": first, "second": second, "crossed": crossed}
        for name in 2 * order:
            worlds[name].serve(for_s=5)
            worlds[name].stop()
            assert (first.broker.retained[TASK], owner(first), first.estimate["n"]) == (
                (HEIGHTS.payload, identity(first), 3)
            )
            assert row(worlds[name]).owner == identity(first)


@pytest.mark.parametrize("apart", [0.001, 0.01, 0.03])
def test_of_two_that_start_on_an_empty_broker_one_yields(
    first: World, second: World, history: list[tuple[str, bytes]], apart: float
) -> None:
    second.task = CHANGED
    first.serve(for_s=apart)
    second.serve()
    assert row(first).owner == row(second).owner == owner(first)
    (winner,) = (world for world in (first, second) if identity(world) == owner(first))
    assert first.broker.retained[TASK] == row(winner).payload
    report(first, 2, HEIGHTS)
    report(first, 2, CHANGED)
    assert first.estimate["n"] == 2
    assert len(history) < 25


# What is overwritten


def test_an_owner_publishes_again_what_others_overwrite(first: World, caplog: pytest.LogCaptureFixture) -> None:
    first.serve()
    good = kept(first)
    forged = json.dumps(json.loads(good[ESTIMATE]) | {"n": 10**6}).encode()  # in the name of this very store
    for topic, payload in (
        (TASK, CHANGED.payload),
        (TASK, b""),
        *((ESTIMATE, payload) for payload in (b'{"n":9}', b"", b"\xff", forged)),
    ):
        first.write(topic, payload, for_s=70)
        assert kept(first) == good
    assert told(caplog, "heights", "another client", "take-over") > 0


def test_a_client_that_goes_on_overwriting_is_answered_less_often(
    first: World, history: list[tuple[str, bytes]]
) -> None:
    first.serve()
    history.clear()
    for _ in range(300):
        first.write(TASK, CHANGED.payload, for_s=0.005)
    assert 1 <= history.count((TASK, HEIGHTS.payload)) <= 3
    first.wait(20)
    assert first.broker.retained[TASK] == HEIGHTS.payload


def test_a_claim_that_an_own_estimate_hides_at_once_is_obeyed(first: World) -> None:
    """As between two stores that publish in step: each would only ever see its own estimate last."""
    first.serve()
    own = first.broker.retained[ESTIMATE]
    first.broker.deliver(ESTIMATE, first.claim("0" * 32, 0, term=HIGHEST_TERM), retain=True)
    first.write(ESTIMATE, own)
    assert row(first).owner == "0" * 32


@pytest.mark.parametrize("n", [0, 3, 4])
def test_an_estimate_that_names_no_store_stays_as_it_is(first: World, caplog: pytest.LogCaptureFixture, n: int) -> None:
    owned(first)
    before = {key: value for key, value in first.estimate.items() if key not in {"store", "term"}}
    there = json.dumps(before | {"n": n}).encode()
    first.broker.retained[ESTIMATE] = there
    first.serve()
    assert first.broker.retained[ESTIMATE] == there
    assert told(caplog, "heights", "take-over") == 1


def test_a_user_who_may_not_write_estimates_is_told_once(
    first: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = first.broker.deliver

    def forbidden(topic: str, payload: bytes, *, retain: bool = False) -> None:
        if not topic.startswith("hush/v1/estimates/"):
            deliver(topic, payload, retain=retain)

    monkeypatch.setattr(first.broker, "deliver", forbidden)
    first.serve(for_s=60)
    assert ESTIMATE not in kept(first)
    assert told(caplog, "hush/v1/estimates/+", "acknowledged", "allow") == 1


# Commands


@pytest.mark.parametrize("online", [True, False])
def test_a_take_over_is_obeyed_and_survives_restarts_of_both(first: World, second: World, *, online: bool) -> None:
    owned(first)
    second.serve()
    if online:
        first.serve()
    take_over(second)
    second.wait(5)
    assert (owner(first), first.estimate["taken_from"]) == (identity(second), identity(first))
    assert row(second).term == first.estimate["term"] > row(first).term - online
    for world in (first, second):
        world.stop()
    for world in (first, second, first):
        world.serve(for_s=5)
        assert (row(world).owner, owner(first)) == (identity(second), identity(second))
        world.stop()
    first.broker.retained.clear()
    first.serve()
    assert kept(first) == {}


def test_what_was_taken_over_can_be_taken_back_while_both_run(
    first: World, second: World, history: list[tuple[str, bytes]]
) -> None:
    owned(first)
    first.serve()
    second.serve()
    for taker, other in ((second, first), (first, second), (second, first)):
        take_over(taker)
        first.wait(5)
        assert owner(first) == row(other).owner == identity(taker)
        assert first.estimate["taken_from"] == identity(other)
    assert len(history) < 25


def test_a_take_over_while_the_aggregator_still_looks_is_not_lost(first: World, second: World) -> None:
    owned(first)
    second.serve(settle_s=10, for_s=1)  # it looks at the broker for two seconds
    take_over(second)
    second.wait(10)
    assert owner(first) == identity(second)


def test_a_take_over_while_the_owner_is_stored_is_not_lost(first: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store_owners = SqliteStore.set_owners

    def late(store: SqliteStore, owners: Sequence[Owner]) -> None:
        if not row(first).taken_from:
            with SqliteEditor(first.path) as command:
                command.set_owners([Owner("heights", "e" * 32, 4, TAKE_OVER)])
        store_owners(store, owners)

    monkeypatch.setattr(SqliteStore, "set_owners", late)
    first.serve()
    assert (row(first).owner, row(first).term, row(first).taken_from) == (identity(first), 5, "e" * 32)


def test_a_withdrawn_task_is_cleared_counts_on_and_stays_withdrawn(first: World) -> None:
    first.serve()
    with SqliteEditor(first.path) as command:
        command.set_state("heights", TaskState.WITHDRAWN)
    first.wait(3)
    assert TASK not in kept(first)
    report(first, 4)
    first.write(TASK, HEIGHTS.payload)
    assert (first.estimate["n"], TASK in kept(first)) == (4, False)
    first.stop()
    first.serve()
    report(first, 1)
    assert (first.estimate["n"], TASK in kept(first)) == (5, False)


@pytest.mark.parametrize("online", [True, False])
def test_a_forgotten_task_is_cleared_and_counts_no_more(first: World, *, online: bool) -> None:
    owned(first)
    first.serve(tasks=())
    first.ask()
    first.wait(2)
    assert kept(first).keys() == {TASK, ESTIMATE, TOPIC}
    if online:
        forget(first)
        first.wait(3)
    else:
        first.stop()
        forget(first)
        first.serve(tasks=())
    assert kept(first) == {}
    report(first, 2)
    assert (first.n, first.store.refusals("(unknown)")) == (0, {Refusal.UNKNOWN_TASK: 2})


def test_a_task_that_is_forgotten_while_its_owner_is_stored_ends_nothing(
    first: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_owners = SqliteStore.set_owners

    def forgotten_meanwhile(store: SqliteStore, owners: Sequence[Owner]) -> None:
        store_owners(store, owners)
        forget(first)

    owned(first)
    first.broker.retained.clear()
    monkeypatch.setattr(SqliteStore, "set_owners", forgotten_meanwhile)
    first.serve(tasks=())
    assert kept(first) == {}


def test_a_forgotten_task_of_another_store_stays_on_the_broker(first: World, second: World) -> None:
    owned(first)
    before = kept(first)
    second.serve()
    second.stop()
    forget(second)
    second.serve(tasks=())
    assert kept(first) == before


def test_a_task_on_the_broker_is_counted_only_where_that_is_wanted(
    first: World, caplog: pytest.LogCaptureFixture
) -> None:
    for task_id in ("t1", "t2", "heights"):
        first.broker.deliver(task_topic(task_id), HEIGHTS.payload, retain=True)
    first.serve(tasks=())
    report(first, 3)
    assert ESTIMATE not in kept(first)
    assert [told(caplog, f"'{task_id}'") for task_id in ("t1", "t2", "heights")] == [1, 1, 1]


# Hundreds of tasks, on a broker that acknowledges late

MANY = [make_task({"id": f"task-{k}", "epsilon": "1", "domain": {"kind": "bit"}}) for k in range(300)]


class LateBus:
    """A connection over which each acknowledgement takes a while; it counts what is under way."""

    def __init__(self, broker: Broker) -> None:
        self.name, self._broker = broker.name, broker
        self.published: list[str] = []
        self.late_s = 0.05
        self.most = self._under_way = 0

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[BrokerSession]:
        async with self._broker.bus().connect(filters) as session:
            publish = session.publish

            async def late(topic: str, payload: bytes, *, retain: bool = False) -> None:
                self._under_way += 1
                self.most = max(self.most, self._under_way)
                await asyncio.sleep(self.late_s)
                self._under_way -= 1
                self.published.append(topic)
                await publish(topic, payload, retain=retain)

            session.publish = late  # type: ignore[method-assign]
            yield session


@pytest.fixture
def many(first: World) -> LateBus:
    first.store.add_tasks(MANY)
    return LateBus(first.broker)


@pytest.mark.medium
def test_hundreds_of_tasks_are_published_without_waiting_for_each(first: World, many: LateBus) -> None:
    before = first.store.version()
    first.serve(bus=many, tasks=(), for_s=6)
    assert {found.owner for found in first.store.task_rows()} == {identity(first)}
    assert first.store.version() - before <= 10  # they are owned together
    retained = first.broker.retained
    assert all(retained[task_topic(task.id)] == task.payload for task in MANY)
    assert all(estimate_topic(task.id) in retained for task in MANY)
    assert 10 < many.most <= 2 * AT_ONCE
    many.published.clear()
    for task in MANY:
        first.broker.deliver(task_topic(task.id), b"{}", retain=True)
    first.wait(5)
    assert all(retained[task_topic(task.id)] == task.payload for task in MANY)


@pytest.mark.medium
def test_a_task_forgotten_before_it_is_published_again_ends_nothing(first: World, many: LateBus) -> None:
    first.serve(bus=many, tasks=(), for_s=6)
    many.late_s = 2
    for task in MANY:
        first.broker.deliver(task_topic(task.id), b"{}", retain=True)
    first.wait(1)
    last = max(task.id for task in MANY)
    assert first.broker.retained[task_topic(last)] == b"{}"
    with SqliteEditor(first.path) as command:
        command.forget(last)
    first.wait(60)
    retained = first.broker.retained
    assert {task.id for task in MANY if estimate_topic(task.id) not in retained} == {last}
    assert retained[task_topic(last)] == b"{}"  # another client's, and published again by nobody
    assert all(retained[task_topic(task.id)] == task.payload for task in MANY if task.id != last)


def test_hundreds_of_tasks_of_another_store_are_left_alone(first: World, many: LateBus) -> None:
    claims = {
        estimate_topic(task.id): json.dumps({"store": OTHER, "term": 0, "digest": task.digest.hex(), "n": 5}).encode()
        for task in MANY
    }
    first.broker.retained |= claims
    before = first.store.version()
    first.serve(bus=many, tasks=())
    assert {found.owner for found in first.store.task_rows()} == {OTHER}
    assert first.store.version() - before <= 10
    assert many.published == []


@pytest.mark.medium
def test_hundreds_of_claims_at_once_are_yielded_to_together(first: World, many: LateBus) -> None:
    first.serve(bus=many, tasks=())
    before = first.store.version()
    for task in MANY[:200]:
        claim = {"store": OTHER, "term": 7, "digest": task.digest.hex(), "n": 5}
        first.broker.deliver(estimate_topic(task.id), json.dumps(claim).encode(), retain=True)
    first.wait(5)
    owners = {found.id: found.owner for found in first.store.task_rows()}
    assert [owners[task.id] == OTHER for task in MANY] == [k < 200 for k in range(300)]
    assert first.store.version() - before <= 2


def test_calls_begin_in_order_and_only_so_many_run_at_once() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def call(k: int) -> None:
        begun.append(k)
        assert len(begun) - len(ended) <= 7
        await asyncio.sleep(1 if k % 3 else 2)
        ended.append(k)

    in_virtual_time(run_all((partial(call, k) for k in range(40)), at_once=7))
    assert begun == list(range(40))
    assert sorted(ended) == begun


def test_the_first_call_that_fails_ends_the_others() -> None:
    begun: list[int] = []
    cancelled: list[int] = []

    async def call(k: int) -> None:
        begun.append(k)
        try:
            await asyncio.sleep(1 + k / 100)
        except asyncio.CancelledError:
            cancelled.append(k)
            raise
        if k == 3:
            raise BrokerError("fake", "planted")

    calls: Iterator[Callable[[], object]] = (partial(call, k) for k in range(40))
    with pytest.raises(BrokerError, match="planted"):
        in_virtual_time(run_all(calls, at_once=7))  # type: ignore[arg-type]
    assert begun == list(range(7 + 3))
    assert sorted(cancelled) == [4, 5, 6, 7, 8, 9]
