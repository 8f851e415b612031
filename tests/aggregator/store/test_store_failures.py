"""A store that fails at any call of any loop: the service ends with the error, or counts everything. It never hangs.

The calls are those of `CALLS`: what the loop named first awaits of the store. Before the failure, together with the end
of the service, or while the service ends because of another failure.
"""

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_bytes
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numpy as np
import pytest
from virtual_time import VirtualLoop

from hush_aggregator import Aggregator, SqliteStore, closing, retention
from hush_aggregator.aggregator import SeparateConnections
from hush_aggregator.broker.session import Broker, BrokerSession
from hush_aggregator.closing import TaskCloser
from hush_aggregator.commands.serve import _run_with
from hush_aggregator.release_schedule import ReleaseSchedule
from hush_aggregator.retention import Retention
from hush_aggregator.store import Accepted
from hush_aggregator.store.location import open_editor
from hush_aggregator.tasks import KnownTasks
from hush_aggregator.workers import WorkerGroup
from hush_common.errors import StoreError, StoreUnavailableError
from hush_common.task import make_task
from hush_common.topics import BROKER_DROPPED, BROKER_UPTIME, report_topic, task_topic
from hush_common.wire import Report, encode_frame
from hush_simulations.brokers.memory import MemoryBroker

if TYPE_CHECKING:
    from hush_aggregator.store.base import Store

T = TypeVar("T")
START = datetime(2027, 3, 1, 12, tzinfo=UTC)
DRAFT: dict[str, object] = {"epsilon": "1", "domain": {"kind": "bit"}}
PLAIN, RELEASED, KEPT, CLOSING, ENDED, LEARNED = (
    make_task(DRAFT | {"id": name} | more)
    for name, more in (
        ("plain", {}),
        ("released", {"release_every": "1m"}),
        ("kept", {"retention": "1h"}),
        ("closing", {"closes": "2027-03-01T11:00:00Z"}),
        ("ended", {}),
        ("learned", {}),
    )
)
ROUNDS = make_task(
    DRAFT | {"id": "rounds", "rounds": 9, "round_every": "1h", "opens": "2027-03-01T12:00:00Z", "retention": "1h"}
)
GIVEN = (PLAIN, RELEASED, KEPT, CLOSING, ENDED)
LASTS_S, ENDS_WITHIN_S, OUTAGE_S = 40, 10, 5
RESTARTS_AT, CLOSES_AT = 8, 20

CALLS: dict[str, set[str]] = {
    "aggregator": {"add_tasks", "broker", "changes", "counts", "marks", "public_identity", "recalls", "task_rows"},
    "hush-closings": {"close_task", "marks", "recalls", "restored", "task_rows"},
    "hush-ownership": {"public_identity", "set_owners", "task_rows"},
    "hush-recalls": {"recall", "recalls", "restored"},
    "hush-release": {"is_closed", "latest_round", "refusals", "release_of", "tally"},
    "hush-retention": {"drop_reports", "recalls", "stored_rounds"},
    "hush-steps": {"thin_steps"},
    "hush-to-the-end": {
        "add_task", "commit", "counted_since", "marks", "put_steps", "recalls", "refusals", "release", "release_of",
        "restored", "task_rows",
    },
    "hush-watch": {"changes", "marks", "recalls", "restored", "task_rows"},
}  # fmt: skip
"""Where the store is called: the names of the tasks that wait for it, and what they call."""
OF_CONNECTIONS: Mapping[str, dict[str, set[str]]] = {
    "alone": {"hush-connections": {"recall"}},
    "separate": {"hush-intake": {"recall"}},
    "worker": {
        "hush-intake": {"recall"},
        "hush-lease": {"take_lease"},
        "hush-renew": {"take_lease"},
        "hush-publish": {"broker", "recalls"},
        "hush-counts": {"counts", "version"},
    },
}


class SlowLoop(VirtualLoop):
    """A call of the store takes a while, and the next one waits for it."""

    takes, _free = 0.02, 0.0

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: object) -> asyncio.Future[Any]:  # noqa: ANN401 - as inherited
        if not str(getattr(executor, "_thread_name_prefix", "")).startswith("hush-store"):
            return super().run_in_executor(executor, func, *args)
        future = self.create_future()
        task = asyncio.current_task()
        name = "" if task is None else task.get_name()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - it is raised where the future is awaited
                self.call_later(self.takes, self._settle, future, None, error)
            else:
                self.call_later(self.takes, self._settle, future, result, None)

        self._free = max(self.time(), self._free) + self.takes
        self.call_at(self._free, self._named, name, work)
        return future

    def _named(self, name: str, work: Callable[[], None]) -> None:
        FailingStore.caller = name
        work()

    def _settle(self, future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class FailingStore:
    """A store whose calls fail from `first` to before `last`."""

    caller = ""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.calls: list[tuple[str, str]] = []
        self.fails: Callable[[int], Exception | None] = lambda _: None
        self.leased = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the store
        found = getattr(type(self._store), name)
        if isinstance(found, property):
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
        if (error := self.fails(len(self.calls) - 1)) is not None:
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
class Run:
    """A service on a store that fails, from its start to its end."""

    path: Path
    way: str
    loop: SlowLoop
    sent: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.tell(BROKER_DROPPED, b"0")
        self.broker.deliver(task_topic(LEARNED.id), LEARNED.payload, retain=True)
        self.begun = self.loop.time()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.loop.time() - self.begun)

    def aggregator(self, store: FailingStore) -> Aggregator:
        def bus(name: str) -> Broker:
            return SharedBus(self.broker.bus(name))

        return Aggregator(
            bus("aggregator"),
            cast("Store", store),
            tasks=GIVEN,
            clock=self.now,
            settle_s=0.1,
            any_task=True,
            separate=None if self.way == "alone" else SeparateConnections(bus("aggregator"), bus("control")),
            group=WorkerGroup("g", "1", store) if self.way == "worker" else None,
        )

    async def live(self) -> None:
        """Send reports each second; the broker restarts, and a command closes a task."""
        for second in itertools.count(1):
            await asyncio.sleep(1)
            up = second if second < RESTARTS_AT else second - RESTARTS_AT
            self.broker.tell(BROKER_UPTIME, b"%d seconds" % up)
            for task in (PLAIN, RELEASED, LEARNED):
                self.sent[task.id] += 1
                frame = encode_frame([Report(task.report_digest, 0, token_bytes(16), (1,))])
                self.broker.deliver(report_topic(task.id, "device"), frame)
            if second == CLOSES_AT:
                with open_editor(self.path) as editor:
                    editor.close_task(ENDED.id)

    def problem(self, store: SqliteStore) -> str:
        counted = Counter({task.id: store.counted_tally(task.digest, 0).n for task in (PLAIN, RELEASED, LEARNED)})
        return "" if counted == self.sent else f"counted {counted} of {self.sent}"


@dataclass
class Failure:
    """The failure of a call of the store, by its number, and perhaps of those after it.

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
    """Makes calls fail, from the one with a number on."""

    def __init__(self, failure: Failure, number: int, loop: SlowLoop, running: "asyncio.Task[NoReturn]") -> None:
        self._failure, self._number, self._loop, self._running = failure, number, loop, running
        self.began: float | None = None
        self.arrived = asyncio.Event()

    def __call__(self, number: int) -> StoreError | None:
        if number == self._number:
            self.began = self._loop.time()
            self.arrived.set()
            if self._failure.stops:
                self._running.cancel()
        if self.began is None or (number > self._number and self._loop.time() - self.began >= self._failure.lasts_s):
            return None
        return self._failure.kind("the store is gone; see that it is there")


async def serve(run: Run, number: int, failure: Failure | None) -> tuple[list[tuple[str, str]], str]:
    """Serve while a call of the store fails; then again, without. Return the calls, and what was wrong."""
    with SqliteStore(run.path) as opened:
        opened.add_tasks([KEPT])
        ids, bodies = np.frombuffer(token_bytes(16), dtype="V16"), np.array([[1]])
        opened.commit([Accepted(KEPT, 0, ids, bodies)], {})
        opened.close_task(KEPT.id, at=START - timedelta(hours=2))
        store = FailingStore(opened)
        running = asyncio.create_task(run.aggregator(store).run(), name="aggregator")
        living = asyncio.create_task(run.live())
        if failure is None:
            await asyncio.wait({running}, timeout=LASTS_S)
        else:
            store.fails = trouble = Trouble(failure, number, run.loop, running)
            async with asyncio.timeout(2 * LASTS_S):
                await trouble.arrived.wait()
            await asyncio.wait({running}, timeout=ENDS_WITHIN_S)
        calls, has_ended = list(store.calls), running.done()
        store.fails = lambda _: None
        problem = ""
        if failure is not None and failure.ends not in (None, has_ended):
            tasks = sorted(task.get_name() for task in asyncio.all_tasks())
            problem = f"ended: {has_ended} ({running}), running: {tasks}"
        running.cancel()
        await asyncio.wait({running}, timeout=ENDS_WITHIN_S)
        living.cancel()
        if not running.done():
            problem = problem or "it does not end when it is told to"
        elif not running.cancelled() and not isinstance(running.exception(), StoreError):
            problem = problem or f"it ends with {running.exception()!r}"
        again = asyncio.create_task(run.aggregator(FailingStore(opened)).run(), name="aggregator")
        await asyncio.wait({again}, timeout=15)
        again.cancel()
        await asyncio.wait({again})
        return calls, problem or run.problem(opened)


def tried(
    directory: Path, way: str, number: int = 0, failure: Failure | None = None
) -> tuple[list[tuple[str, str]], str]:
    with asyncio.Runner(loop_factory=SlowLoop) as runner:
        loop = cast("SlowLoop", runner.get_loop())
        run = Run(directory / f"{token_bytes(8).hex()}.sqlite", way, loop)
        return runner.run(serve(run, number, failure))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes minutes takes seconds."""
    monkeypatch.setattr(closing, "LASTING_S", 3.0)
    monkeypatch.setattr(closing, "_CHECK_S", 3.0)
    monkeypatch.setattr(retention, "_EVERY_S", 3.0)


def firsts(directory: Path, way: str) -> dict[tuple[str, str], int]:
    """The number of the first call of each kind."""
    calls, problem = tried(directory, way)
    assert problem == ""
    found: dict[tuple[str, str], int] = {}
    for number, call in enumerate(calls):
        found.setdefault(call, number)
    return found


def problems(directory: Path, way: str, numbers: Iterable[int], failures: Iterable[str]) -> list[str]:
    """What goes wrong when these calls fail."""
    found = []
    for number, name in itertools.product(numbers, failures):
        failure = FAILURES[name]
        calls, problem = tried(directory, way, number, failure)
        if problem and not (calls[number][0] == "aggregator" and failure.ends is False):  # a start does not wait
            found.append(f"{way}, {name}, {number} {calls[number]}: {problem}")
    return found


@pytest.mark.parametrize("way", OF_CONNECTIONS)
def test_each_of_these_calls_is_reached(tmp_path: Path, way: str) -> None:
    found: dict[str, set[str]] = {}
    for caller, name in firsts(tmp_path, way):
        found.setdefault(caller, set()).add(name)
    expected = CALLS | OF_CONNECTIONS[way]
    assert found.keys() == expected.keys()
    assert all(names <= found[caller] for caller, names in expected.items()), found


@pytest.mark.parametrize(
    "call",
    [
        ("hush-to-the-end", "put_steps"),
        ("hush-to-the-end", "release"),
        ("hush-to-the-end", "commit"),
        ("hush-to-the-end", "marks"),
        ("hush-steps", "thin_steps"),
        ("hush-retention", "drop_reports"),
        ("hush-ownership", "task_rows"),
        ("hush-closings", "task_rows"),
    ],
)
def test_a_store_that_fails_while_the_service_is_told_to_end_does_not_keep_it(
    tmp_path: Path, call: tuple[str, str]
) -> None:
    number = firsts(tmp_path, "alone")[call]
    failures = ["all from when it is told to end", "one call while it is told to end"]
    assert problems(tmp_path, "alone", [number], failures) == []


@pytest.mark.virtual_time
async def test_a_round_that_is_dropped_is_reported_whatever_call_fails(tmp_path: Path) -> None:
    for number in itertools.count():
        with SqliteStore(tmp_path / f"{number}.sqlite") as opened:
            opened.add_tasks([ROUNDS])
            ids, bodies = np.frombuffer(token_bytes(16), dtype="V16"), np.array([[1]])
            opened.commit([Accepted(ROUNDS, 0, ids, bodies)], {})
            store, reported = FailingStore(opened), set[str]()
            tasks = KnownTasks(cast("Store", store), (ROUNDS,))
            tasks.load()
            loop, begun = asyncio.get_running_loop(), asyncio.get_running_loop().time()

            async def work(function: Callable[[], T]) -> T:
                return function()

            async def changed(task_ids: set[str], reported: set[str] = reported) -> None:
                reported |= task_ids

            def now() -> datetime:
                return START + timedelta(hours=3, seconds=loop.time() - begun)  # noqa: B023 - of this round of the loop

            closer = TaskCloser(cast("Store", store), tasks, grace=dict, work=work, clock=now, changed=changed)
            dropping = Retention(cast("Store", store), tasks, None, work=work, clock=now, changed=closer.refresh)
            await dropping.step()
            await asyncio.sleep(closing.LASTING_S + 1)
            first = len(store.calls)
            store.fails = lambda call, at=first + number: StoreError("gone") if call == at else None  # type: ignore[misc]
            try:
                await dropping.step()
            except StoreError:
                await dropping.step()
            else:
                assert number > 4
                return
            assert reported == {ROUNDS.id}, store.calls[first + number]
            assert [*opened.reports(ROUNDS.digest, 0)] == []


async def test_a_release_is_reported_once_whatever_call_fails(tmp_path: Path) -> None:
    for number in itertools.count():
        with SqliteStore(tmp_path / f"{number}.sqlite") as opened:
            opened.add_tasks([RELEASED])
            ids, bodies = np.frombuffer(token_bytes(16), dtype="V16"), np.array([[1]])
            opened.commit([Accepted(RELEASED, 0, ids, bodies)], {})
            store, reported = FailingStore(opened), Counter[str]()
            tasks = KnownTasks(cast("Store", store), (RELEASED,))
            tasks.load()

            async def work(function: Callable[[], T]) -> T:
                return function()

            schedule = ReleaseSchedule(
                cast("Store", store),
                tasks,
                work=work,
                clock=lambda: START,
                on_release=lambda _, outcome, reported=reported: reported.update(outcome.counted),  # type: ignore[misc]
            )
            first = len(store.calls)
            store.fails = lambda call, at=first + number: StoreError("gone") if call == at else None  # type: ignore[misc]
            try:
                await schedule.step()
            except StoreError:
                await schedule.step()
            else:
                assert number > 4
                return
            assert reported == {RELEASED.id: 1}, store.calls[first + number]


@pytest.mark.large
@pytest.mark.parametrize("failure", ["one call", "all from then on", "its server restarts"])
def test_a_store_that_fails_ends_the_service_or_stops_nothing(tmp_path: Path, failure: str) -> None:
    assert problems(tmp_path, "alone", firsts(tmp_path, "alone").values(), [failure]) == []


@pytest.mark.parametrize("failure", ["its server ends", "its server ends when it is told to end"])
def test_a_worker_whose_server_ends_does_not_wait_for_it_again(tmp_path: Path, failure: str) -> None:
    there = firsts(tmp_path, "worker")
    numbers = [there[caller, name] for caller, names in OF_CONNECTIONS["worker"].items() for name in names]
    assert problems(tmp_path, "worker", numbers, [failure]) == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(("way", "stride"), [("alone", 1), ("separate", 7), ("worker", 7)])
def test_a_store_may_fail_at_any_call(tmp_path: Path, way: str, stride: int, failure: str) -> None:
    calls, _ = tried(tmp_path, way)
    assert problems(tmp_path, way, range(0, len(calls), stride), [failure]) == []


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_background_work_that_fails_ends_the_service_with_its_error(*, is_cancelled: bool) -> None:
    async def serve() -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError

    async def fail() -> None:
        await asyncio.sleep(0)
        raise StoreError("gone")

    running = asyncio.create_task(serve())
    beside = [asyncio.create_task(asyncio.sleep(0) if is_cancelled else fail())]
    ending = asyncio.create_task(_run_with(running, beside, running.cancel))
    if is_cancelled:
        await asyncio.sleep(0.01)
        assert not ending.done()
        running.cancel()
    await asyncio.wait({ending})
    assert isinstance(ending.exception(), NoneType if is_cancelled else StoreError)
