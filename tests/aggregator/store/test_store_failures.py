"""A store that fails at any call of any loop: the service goes on or ends with the error, and counts everything.

A call is one that a named task of the service awaits of the store; of each kind the first is tried.
"""

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pytest
from virtual_time import VirtualLoop

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.aggregator import SeparateConnections
from hush_aggregator.count.tasks import KnownTasks
from hush_aggregator.delivery import closing
from hush_aggregator.delivery.closing import TaskCloser
from hush_aggregator.delivery.session import Broker, BrokerSession
from hush_aggregator.delivery.workers import WorkerGroup
from hush_aggregator.publish.retention import Retention
from hush_aggregator.publish.schedule import ReleaseSchedule
from hush_aggregator.store import Accepted, SqliteEditor
from hush_common.errors import StoreError, StoreUnavailableError
from hush_common.task import make_task
from hush_common.topics import BROKER_DROPPED, BROKER_UPTIME, report_topic, task_topic
from hush_common.wire import Report, encode_frame
from hush_simulations.brokers.memory import MemoryBroker

if TYPE_CHECKING:
    from hush import Task
    from hush_aggregator.store.base import Store

T = TypeVar("T")
Call = tuple[str, str]  # the task that waits for the store, and what it calls
START = datetime(2027, 3, 1, 12, tzinfo=UTC)
DRAFT: dict[str, object] = {"epsilon": "1", "domain": {"kind": "bit"}}
PLAIN, RELEASED, KEPT, CLOSING, ENDED, LEARNED, ROUNDS = (
    make_task(DRAFT | {"id": name} | more)
    for name, more in (
        ("plain", {}),
        ("released", {"release_every": "1m"}),
        ("kept", {"retention": "1h"}),
        ("closing", {"closes": "2027-03-01T11:00:00Z"}),
        ("ended", {}),
        ("learned", {}),
        ("rounds", {"rounds": 9, "round_every": "1h", "opens": "2027-03-01T12:00:00Z", "retention": "1h"}),
    )
)
GIVEN = (PLAIN, RELEASED, KEPT, CLOSING, ENDED)
LASTS_S, ENDS_WITHIN_S, OUTAGE_S = 200, 10, 5
EVERY_S, RESTARTS_AT, CLOSES_AT = 5, 40, 100


class SlowLoop(VirtualLoop):
    """A call of the store takes a while, and the next one waits for it."""

    takes, _free = 0.02, 0.0

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        if executor is None:  # not the thread of the store
            return super().run_in_executor(executor, func, *args)
        future, task = self.create_future(), asyncio.current_task()
        name = "" if task is None else task.get_name()

        def work() -> None:
            FailingStore.caller = name
            try:
                self.call_later(self.takes, self._settle, future, func(*args), None)
            except Exception as error:  # noqa: BLE001 - it is raised where the future is awaited
                self.call_later(self.takes, self._settle, future, None, error)

        self._free = max(self.time(), self._free) + self.takes
        self.call_at(self._free, work)
        return future

    def _settle(self, future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class FailingStore:
    """A store that asks before each call whether it fails."""

    caller = ""

    def __init__(self, store: SqliteStore, fails: Callable[[Call], Exception | None] = lambda _: None) -> None:
        self._store, self.fails = store, fails
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the store
        if isinstance(getattr(type(self._store), name), property):
            self._count(name)
            return getattr(self._store, name)
        method = getattr(self._store, name)

        def call(*arguments: object, **options: object) -> object:
            self._count(name)
            return method(*arguments, **options)

        return call

    def take_lease(self, _: float) -> int:
        self._count("take_lease")
        return 1

    def lease(self) -> tuple[str, int]:
        self._count("lease")
        return "1", 1

    def release_lease(self) -> None:
        self._count("release_lease")

    def _count(self, name: str) -> None:
        self.calls.append((FailingStore.caller, name))
        if (error := self.fails(self.calls[-1])) is not None:
            raise error


class SharedBus:
    """A broker with shared subscriptions, and one worker."""

    def __init__(self, bus: Broker) -> None:
        self._bus = bus

    @property
    def name(self) -> str:
        return self._bus.name

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[BrokerSession]:
        async with self._bus.connect([one.removeprefix("$share/g/") for one in filters]) as session:
            session.leave = lambda _: None  # type: ignore[attr-defined]
            yield session


@dataclass
class World:
    """A service on a store that fails, and the devices and the operator around it."""

    path: Path
    way: str  # how it is connected: alone, with separate connections, or as a worker
    loop: SlowLoop
    sent: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.tell(BROKER_DROPPED, b"0")
        self.broker.deliver(task_topic(LEARNED.id), LEARNED.payload, retain=True)
        self.begun = self.loop.time()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.loop.time() - self.begun)

    def serve(self, store: FailingStore) -> "asyncio.Task[None]":
        def bus(name: str) -> Broker:
            return SharedBus(self.broker.bus(name))

        aggregator = Aggregator(
            bus("aggregator"),
            cast("Store", store),
            tasks=GIVEN,
            clock=self.now,
            settle_s=0.1,
            any_task=True,
            separate=None if self.way == "alone" else SeparateConnections(bus("aggregator"), bus("control")),
            group=WorkerGroup("g", "1", store) if self.way == "worker" else None,
        )
        return asyncio.create_task(aggregator.run(), name="aggregator")

    async def live(self) -> None:
        """Send reports; the broker restarts, and a command closes a task."""
        for second in itertools.count(EVERY_S, EVERY_S):
            await asyncio.sleep(EVERY_S)
            up = second if second < RESTARTS_AT else second - RESTARTS_AT
            self.broker.tell(BROKER_UPTIME, b"%d seconds" % up)
            for task in (PLAIN, RELEASED, LEARNED):
                self.sent[task.id] += 1
                frame = encode_frame([Report(task.report_digest, 0, token_bytes(16), (1,))])
                self.broker.deliver(report_topic(task.id, "device"), frame)
            if second == CLOSES_AT:
                with SqliteEditor(self.path) as editor:
                    editor.close_task(ENDED.id)


@dataclass(frozen=True)
class Failure:
    """The failure of a call of the store, and perhaps of those after it.

    Attributes:
        lasts_s: how long every call fails; 0 for one call.
        kind: of the error.
        stops: whether the service is told to end while the call is under way.
        ends: whether the service has to end; None where it may.
    """

    lasts_s: float
    kind: type[StoreError] = StoreError
    stops: bool = False
    ends: bool | None = None


FAILURES = {
    "one call": Failure(0),
    "all from then on": Failure(math.inf, ends=True),
    "one call while it is told to end": Failure(0, stops=True, ends=True),
    "all from when it is told to end": Failure(math.inf, stops=True, ends=True),
    "its server restarts": Failure(OUTAGE_S, StoreUnavailableError, ends=False),
    "its server ends": Failure(math.inf, StoreUnavailableError, ends=True),
    "its server ends when it is told to end": Failure(math.inf, StoreUnavailableError, stops=True, ends=True),
}


class Trouble:
    """Makes a call fail, by its number, and those after it as long as the failure lasts."""

    def __init__(self, failure: Failure, number: int, loop: SlowLoop) -> None:
        self._failure, self._loop = failure, loop
        self._left = number
        self._began: float | None = None
        self.arrived = asyncio.Event()
        self.running: asyncio.Task[None] | None = None

    def __call__(self, _: Call) -> StoreError | None:
        self._left -= 1
        if self._left == -1:
            self._began = self._loop.time()
            self.arrived.set()
            if self._failure.stops and self.running is not None:
                self.running.cancel()
        elif self._began is None or self._loop.time() - self._began >= self._failure.lasts_s:
            return None
        return self._failure.kind("planted")


class EachKindOnce:
    """Fails for a moment at the first call of each kind, one outage after the other."""

    def __init__(self, loop: SlowLoop) -> None:
        self._loop = loop
        self._until = self._next = 0.0
        self.kinds = set[Call]()

    def __call__(self, call: Call) -> StoreError | None:
        now = self._loop.time()
        if now < self._until:
            return StoreUnavailableError("planted")
        if now >= self._next and call not in self.kinds and call[0] != "aggregator":  # a start does not wait
            self.kinds.add(call)
            self._until, self._next = now + 0.2, now + 0.4
            return StoreUnavailableError("planted")
        return None


def problem(opened: SqliteStore, world: World) -> str:
    counted = Counter({task.id: opened.counted_tally(task.digest, 0).n for task in (PLAIN, RELEASED, LEARNED)})
    return "" if counted == world.sent else f"counted {counted} of {world.sent}"


async def served(world: World, failure: Failure | None, number: int) -> tuple[list[Call], str]:
    """Serve while a call of the store fails; then again, without. Return the calls, and what was wrong."""
    with SqliteStore(world.path) as opened:
        fill(opened)
        store = FailingStore(opened)
        running = world.serve(store)
        living = asyncio.create_task(world.live())
        if failure is None:
            await asyncio.wait({running}, timeout=LASTS_S)
        else:
            store.fails = trouble = Trouble(failure, number, world.loop)
            trouble.running = running
            async with asyncio.timeout(2 * LASTS_S):
                await trouble.arrived.wait()
            await asyncio.wait({running}, timeout=ENDS_WITHIN_S)
        calls, has_ended = list(store.calls), running.done()
        store.fails = lambda _: None
        wrong = "" if failure is None or failure.ends in (None, has_ended) else f"ended: {has_ended} ({running})"
        running.cancel()
        await asyncio.wait({running}, timeout=ENDS_WITHIN_S)
        living.cancel()
        if not running.done():
            wrong = wrong or "it does not end when it is told to"
        elif not running.cancelled() and not isinstance(running.exception(), StoreError):
            wrong = wrong or f"it ends with {running.exception()!r}"
        again = world.serve(FailingStore(opened))
        await asyncio.wait({again}, timeout=15)
        again.cancel()
        await asyncio.wait({again})
        return calls, wrong or problem(opened, world)


def fill(opened: SqliteStore) -> None:
    """Reports of a round that is over, so that the retention drops them."""
    opened.add_tasks([KEPT])
    count_one(opened, KEPT)
    opened.close_task(KEPT.id, at=START - timedelta(hours=2))


def count_one(opened: SqliteStore, task: "Task") -> None:
    opened.commit([Accepted(task, 0, np.frombuffer(token_bytes(16), dtype="V16"), np.array([[1]]))], {})


def run(directory: Path, way: str, failure: Failure | None = None, number: int = 0) -> tuple[list[Call], str]:
    with asyncio.Runner(loop_factory=SlowLoop) as runner:
        world = World(directory / f"{token_bytes(8).hex()}.sqlite", way, cast("SlowLoop", runner.get_loop()))
        return runner.run(served(world, failure, number))


def first_calls(directory: Path, way: str) -> dict[Call, int]:
    """The number of the first call of each kind."""
    calls, wrong = run(directory, way)
    assert wrong == ""
    return {call: number for number, call in reversed([*enumerate(calls)])}


def problems(directory: Path, way: str, calls: Mapping[Call, int], *failures: str) -> list[str]:
    """What goes wrong when these calls fail."""
    found = []
    for (call, number), name in itertools.product(calls.items(), failures):
        _, wrong = run(directory, way, FAILURES[name], number)
        if wrong and not (call[0] == "aggregator" and FAILURES[name].ends is False):  # a start does not wait
            found.append(f"{way}, {name}, {number} {call}: {wrong}")
    return found


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has to be so for minutes has to be so for seconds."""
    monkeypatch.setattr(closing, "LASTING_S", 3.0)


@pytest.mark.parametrize(
    "way", ["alone", *(pytest.param(way, marks=pytest.mark.medium) for way in ("separate", "worker"))]
)
def test_every_loop_survives_a_store_that_fails_for_a_moment(memory_path: Path, way: str) -> None:
    async def story(world: World) -> tuple[set[Call], str]:
        with SqliteStore(world.path) as opened:
            fill(opened)
            failing = EachKindOnce(world.loop)
            store = FailingStore(opened, failing)
            running = world.serve(store)
            living = asyncio.create_task(world.live())
            await asyncio.wait({running}, timeout=LASTS_S)
            living.cancel()
            assert not running.done(), running
            store.fails = lambda _: None
            await asyncio.sleep(1)
            running.cancel()
            await asyncio.wait({running})
            return failing.kinds, problem(opened, world)

    with asyncio.Runner(loop_factory=SlowLoop) as runner:
        world = World(memory_path / "s", way, cast("SlowLoop", runner.get_loop()))
        kinds, wrong = runner.run(story(world))
    assert wrong == ""
    assert len({name for name, _ in kinds}) >= 6  # loops
    assert len(kinds) >= 20, sorted(kinds)


@pytest.mark.large
@pytest.mark.parametrize("failure", ["all from then on", "one call while it is told to end"])
def test_no_loop_keeps_a_service_whose_store_fails_from_ending(memory_path: Path, failure: str) -> None:
    assert problems(memory_path, "alone", first_calls(memory_path, "alone"), failure) == []


@pytest.mark.large
@pytest.mark.parametrize(
    ("way", "failure"),
    [("alone", "one call"), ("alone", "its server restarts"), ("worker", "its server ends when it is told to end")],
)
def test_a_store_may_fail_at_the_first_call_of_each_kind(memory_path: Path, way: str, failure: str) -> None:
    assert problems(memory_path, way, first_calls(memory_path, way), failure) == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(("way", "stride"), [("alone", 1), ("separate", 7), ("worker", 7)])
def test_a_store_may_fail_at_any_call(memory_path: Path, way: str, stride: int, failure: str) -> None:
    calls, _ = run(memory_path, way)
    numbered = {(f"{call[0]} {number}", call[1]): number for number, call in enumerate(calls)}
    chosen = dict([*numbered.items()][::stride])
    assert problems(memory_path, way, chosen, failure) == []


# What was done is reported, whatever call fails


async def at_once(function: Callable[[], T]) -> T:
    return function()


class FailingAt:
    """Fails at one call, by its number from when it is armed."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.is_armed = False

    def __call__(self, _: Call) -> StoreError | None:
        self._left -= self.is_armed
        return StoreError("planted") if self._left == -1 and self.is_armed else None


async def steps_until_done(failing: FailingAt, step: Callable[[], Any]) -> bool:
    """Step, and again if that failed; return whether it failed."""
    failing.is_armed = True
    try:
        await step()
    except StoreError:
        await step()
        return True
    return False


@pytest.mark.medium
@pytest.mark.virtual_time
async def test_a_dropped_round_is_reported_whatever_call_fails(tmp_path: Path) -> None:
    for number in itertools.count():
        with SqliteStore(tmp_path / f"{number}.sqlite") as opened:
            opened.add_tasks([ROUNDS])
            count_one(opened, ROUNDS)
            failing, reported = FailingAt(number), set[str]()
            store = cast("Store", FailingStore(opened, failing))
            tasks = KnownTasks(store, (ROUNDS,))
            tasks.load()

            async def changed(task_ids: set[str], reported: set[str] = reported) -> None:
                reported |= task_ids

            def now() -> datetime:
                return START + timedelta(hours=3, seconds=asyncio.get_running_loop().time())

            closer = TaskCloser(store, tasks, grace=dict, work=at_once, clock=now, changed=changed)
            dropping = Retention(store, tasks, None, work=at_once, clock=now, changed=closer.refresh)
            await dropping.step()
            await asyncio.sleep(closing.LASTING_S + 1)
            if not await steps_until_done(failing, dropping.step):
                assert number > 4
                return
            assert reported == {ROUNDS.id}, number
            assert [*opened.reports(ROUNDS.digest, 0)] == []


@pytest.mark.medium
@pytest.mark.virtual_time
async def test_a_release_is_reported_once_whatever_call_fails(tmp_path: Path) -> None:
    for number in itertools.count():
        with SqliteStore(tmp_path / f"{number}.sqlite") as opened:
            opened.add_tasks([RELEASED])
            count_one(opened, RELEASED)
            failing, reported = FailingAt(number), Counter[str]()
            store = cast("Store", FailingStore(opened, failing))
            tasks = KnownTasks(store, (RELEASED,))
            tasks.load()
            schedule = ReleaseSchedule(
                store,
                tasks,
                work=at_once,
                clock=lambda: START,
                on_release=lambda _, outcome, reported=reported: reported.update(outcome.counted),  # type: ignore[misc]
            )
            if not await steps_until_done(failing, schedule.step):
                assert number > 4
                return
            assert reported == {RELEASED.id: 1}, number
