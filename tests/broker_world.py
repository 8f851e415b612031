"""Whole aggregators, alone or as a group of workers, over a broker in memory that can be killed, in virtual time."""

import asyncio
import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from virtual_time import VirtualLoop

from hush import Task
from hush_aggregator import Aggregator, Result, SqliteStore
from hush_aggregator.aggregator import SeparateConnections
from hush_aggregator.delivery.recalls import new_recall
from hush_aggregator.delivery.session import Broker as Bus
from hush_aggregator.delivery.session import BrokerSession
from hush_aggregator.delivery.workers import LeaseKeeper, WorkerGroup
from hush_aggregator.store import BrokerMemory, SqliteEditor, StoredRecall
from hush_common.errors import StoreError
from hush_common.recall import Recall, decode_recall, encode_recall
from hush_common.task import make_task
from hush_common.topics import BROKER_DROPPED, BROKER_UPTIME, estimate_topic, matches, recall_topic, report_topic
from hush_common.wire import Report, encode_frame
from hush_simulations.brokers.memory import MemoryBroker

if TYPE_CHECKING:
    from hush_aggregator.estimate.process import Estimator
    from hush_aggregator.store.base import Store

START = datetime(2027, 3, 1, 12, tzinfo=UTC)
DRAFT = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}}
HEIGHTS = make_task(DRAFT)
CLOSING = make_task(DRAFT | {"closes": "2027-03-01T13:00:00Z"})
TOPIC, ESTIMATE = recall_topic("heights"), estimate_topic("heights")
FOREIGN = encode_recall(Recall("heights", HEIGHTS.digest, bytes(16), 86_400))
"""A recall that another client made."""
HOUR, WEEK = 3600.0, 7 * 86400.0


def frame(task: Task = HEIGHTS, round_: int = 0) -> bytes:
    return encode_frame([Report(task.report_digest, round_, token_bytes(16), (1,))])


def told(caplog: pytest.LogCaptureFixture, *words: str) -> int:
    """How many lines that ask for attention have all these words."""
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return sum(all(word in line for word in words) for line in lines)


class Seen(NamedTuple):
    """An estimate, as a reader sees it."""

    lease: int
    n: int


class Broker(MemoryBroker):
    """A broker that publishes its uptime, gives a shared report to one worker in turn, and can be killed.

    Attributes:
        recalls: each payload that was published as a recall of `heights`.
        seen: each estimate of `heights`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._identifiers: set[str] = set()
        self._turns = count()
        self.started = loop.time()
        self.mute = False
        self.recalls: list[bytes] = []
        self.seen: list[Seen] = []

    def bus(self, identifier: str = "aggregator") -> Bus:
        self._identifiers.add(identifier)
        return super().bus(identifier)

    def deliver(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if topic == TOPIC:
            self.recalls.append(payload)
        if topic == ESTIMATE and payload.startswith(b"{") and (document := json.loads(payload)).keys() >= {"n"}:
            self.seen.append(Seen(document.get("lease", 0), document["n"]))
        shared = [
            session
            for session in map(self.session, sorted(self._identifiers))
            if any(one.startswith("$share/") and matches(one.split("/", 2)[2], topic) for one in session.filters)
        ]
        if shared:
            there = [session for session in shared if session.connection is not None] or shared
            there[next(self._turns) % len(there)].put(topic, payload)
        super().deliver(topic, payload, retain=retain)

    def say(self) -> None:
        if not self.mute:
            self.tell(BROKER_UPTIME, b"%d seconds" % (self._loop.time() - self.started))

    def kill(self, *, keep: bool = False) -> None:
        """SIGKILL, and up again; with `keep` it has an older snapshot, of the session too."""
        self.started = self._loop.time()
        self.drop()
        for session in map(self.session, self._identifiers):
            session.waiting.clear()
            session.unacknowledged.clear()
            if not keep:
                session.known = False
                session.filters.clear()
        if not keep:
            self.retained.clear()
        self.forget_routes()
        self.about.clear()
        self.tell(BROKER_DROPPED, b"0")
        self.say()


class Lease:
    """The row of the lease.

    Attributes:
        ahead: what a test adds to the clock, in seconds.
        answers: whether the database answers; only `test_lease` waits for it.
        is_down: whether each question to the database fails.
    """

    def __init__(self, clock: Callable[[], float] = float) -> None:
        self._clock = clock
        self.ahead = 0.0
        self.holder, self.expires, self.number = "", 0.0, 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_down = False

    @property
    def now(self) -> float:
        return self._clock() + self.ahead

    def of(self, worker: str) -> "RowOfWorker":
        return RowOfWorker(self, worker)


@dataclass
class RowOfWorker:
    row: Lease
    worker: str

    def take_lease(self, seconds: float) -> int | None:
        self._check()
        row = self.row
        if row.expires > row.now and row.holder != self.worker:
            return None
        row.number += row.expires <= row.now or row.holder != self.worker
        row.holder, row.expires = self.worker, row.now + seconds
        return row.number

    def release_lease(self) -> None:
        self._check()
        if self.row.holder == self.worker:
            self.row.expires = 0.0

    def lease(self) -> tuple[str, int]:
        self._check()
        return self.row.holder if self.row.expires > self.row.now else "", self.row.number

    def _check(self) -> None:
        if self.row.is_down:
            raise StoreError("postgresql://…: the server does not answer")


class _StoreOfWorker:
    """The store as a worker of PostgreSQL sees it: what it knows of its session is in a row for each worker."""

    def __init__(self, store: SqliteStore, rows: dict[str, BrokerMemory], worker: str) -> None:
        self._store, self._rows, self._worker = store, rows, worker

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    def changes(self) -> int:
        return self._store.version()

    def broker(self) -> BrokerMemory:
        latest = max(self._rows.values(), key=lambda row: row.alive or 0, default=BrokerMemory())
        return replace(latest, session=self._rows.get(self._worker, BrokerMemory()).session)

    def recall(self, rows: Sequence[StoredRecall], memory: BrokerMemory | None = None) -> list[StoredRecall]:
        if memory is not None:
            self._rows[self._worker] = memory
        return self._store.recall(rows)


class _SharedBus:
    """A connection of a worker, which may leave the shared subscription."""

    def __init__(self, broker: Broker, identifier: str) -> None:
        self._broker, self._identifier, self.name = broker, identifier, broker.name

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[BrokerSession]:
        async with self._broker.bus(self._identifier).connect(filters) as session:
            session.leave = self._leave  # type: ignore[attr-defined]  # of a worker's session
            yield session

    def _leave(self, topic_filter: str) -> None:
        self._broker.session(self._identifier).filters.remove(topic_filter)
        self._broker.forget_routes()


_WORKER: ContextVar[str] = ContextVar("worker", default="")


class _Loop(VirtualLoop):
    """A loop whose store may not answer a worker, or only not when it renews the lease."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: dict[str, bool] = {}  # whether only the lease is not answered
        self._held: list[tuple[str, asyncio.Future[Any], Callable[[], Any]]] = []

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        worker = _WORKER.get()
        is_lease = isinstance(getattr(func, "__self__", None), LeaseKeeper)
        if worker in self.silent and (is_lease or not self.silent[worker]):
            self._held.append((worker, future := self.create_future(), lambda: func(*args)))
            return future
        return super().run_in_executor(executor, func, *args)

    def answer(self, worker: str) -> None:
        """Answer a worker again, first what it has asked meanwhile."""
        self.silent.pop(worker, None)
        held, self._held = self._held, []
        for asked, future, call in held:
            if asked != worker:
                self._held.append((asked, future, call))
            elif not future.done():
                try:
                    future.set_result(call())
                except StoreError as error:
                    future.set_exception(error)


@dataclass
class World:
    """A broker, a store, and the aggregators that run: one alone (`serve`) or several workers (`start`)."""

    loop: _Loop
    broker: Broker
    store: SqliteStore
    path: Path
    task: Task = HEIGHTS
    name: str = "aggregator"
    row: Lease = field(default_factory=Lease)
    offset: timedelta = field(default_factory=timedelta)
    aggregator: Aggregator | None = None  # the one that was started last
    running: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    published: list[Result] = field(default_factory=list)
    memories: dict[str, BrokerMemory] = field(default_factory=dict)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.loop.time()) + self.offset

    def serve(self, *, for_s: float = 20, bus: Bus | None = None, **options: Any) -> None:  # noqa: ANN401 - of an aggregator
        bus = bus or self.broker.bus(self.name)
        self._run("", Aggregator(bus, self.store, **self._options(options)), for_s)

    def start(
        self, worker: str, *, for_s: float = 20, settle_s: float = 0.1, estimator: "Estimator | None" = None
    ) -> None:
        """Start a worker of the group."""
        buses = [_SharedBus(self.broker, f"{worker}-{of}") for of in ("intake", "control")]
        store = cast("Store", _StoreOfWorker(self.store, self.memories, worker))
        options = {"settle_s": settle_s, "estimator": estimator, "separate": SeparateConnections(*buses)}
        group = WorkerGroup("g", worker, self.row.of(worker), self.loop.time)
        self._run(worker, Aggregator(buses[0], store, **self._options({**options, "group": group})), for_s)

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        common = {"tasks": (self.task,), "clock": self.now, "settle_s": 0.1, "on_published": self.published.append}
        return common | options

    def _run(self, worker: str, aggregator: Aggregator, for_s: float) -> None:
        self.aggregator = aggregator
        context = copy_context()
        context.run(_WORKER.set, worker)
        self.running[worker] = self.loop.create_task(aggregator.run(), context=context)
        self.wait(for_s)

    def end(self, worker: str) -> None:
        """SIGINT."""
        running = self.running.pop(worker)
        running.cancel()
        with suppress(asyncio.CancelledError):
            self.loop.run_until_complete(running)

    def kill(self, worker: str) -> None:
        """SIGKILL: nothing more comes from it, and its lease ends by itself."""
        until, number = self.row.expires, len(self.broker.seen)
        for of in ("intake", "control"):
            if (connection := self.broker.session(f"{worker}-{of}").connection) is not None:
                connection.lose()
        self.end(worker)
        self.row.expires = until
        assert len(self.broker.seen) == number

    def cut_off(self, worker: str, *, only_lease: bool = False) -> None:
        """From now on the database does not answer this worker, or not when it renews its lease."""
        self.loop.silent[worker] = only_lease

    def reconnect(self, worker: str) -> None:
        self.loop.answer(worker)

    def fail(self) -> None:
        """The database does not answer: every worker ends with an error, and the database answers the next ones."""
        self.row.is_down = True
        running, self.running = self.running, {}
        done = self.loop.run_until_complete(asyncio.gather(*running.values(), return_exceptions=True))
        assert all(isinstance(error, StoreError) for error in done), done
        self.row.is_down = False

    def stop(self) -> None:
        """All processes end, at the same time."""
        running, self.running = self.running, {}
        for worker in running:
            self.reconnect(worker)
        for one in running.values():
            one.cancel()
        self.loop.run_until_complete(asyncio.gather(*running.values(), return_exceptions=True))

    def wait(self, seconds: float) -> None:
        """Time passes; the broker says every ten seconds how long it is up."""

        async def pass_by() -> None:
            step = seconds if not self.running else 10 if seconds < WEEK else 600
            for _ in range(int(seconds // step) if step else 0):
                await asyncio.sleep(step)
                self.broker.say()
            await asyncio.sleep(seconds % step if step else 0)

        self.loop.run_until_complete(pass_by())
        for one in self.running.values():
            assert not one.done(), one

    def send(self, *frames: bytes) -> None:
        for payload in frames:
            self.broker.deliver(report_topic("heights", "device"), payload)
        self.wait(1)

    def write(self, topic: str, payload: bytes, for_s: float = 2) -> None:
        """Another client writes a retained message."""
        self.broker.deliver(topic, payload, retain=True)
        self.wait(for_s)

    def ask(self) -> Recall:
        """`hush task recall`, as far as the store goes."""
        row = new_recall(self.store, self.task, self.now())
        with SqliteEditor(self.path) as command:
            command.recall([row])
        return row.recall

    def copy(self, to: Path) -> None:
        with closing(sqlite3.connect(self.path)) as there, closing(sqlite3.connect(to)) as copy:
            there.backup(copy)

    def put_back(self, copy: Path, *, by_command: bool = False) -> None:
        """Put a copy back; `hush store restore` leaves a note that it was one."""
        with closing(sqlite3.connect(copy)) as there, closing(sqlite3.connect(self.path)) as store:
            there.backup(store)
        if by_command:
            self.mark_restored()

    def mark_restored(self) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as store:
            store.execute("UPDATE identity SET restored = 1")

    @property
    def open(self) -> Recall | None:
        return decode_recall(self.broker.retained.get(TOPIC, b""))

    @property
    def made(self) -> int:
        """How many different recalls there were."""
        return len({payload for payload in self.broker.recalls if payload})

    @property
    def n(self) -> int:
        return self.store.tally(self.task.digest, 0).n

    @property
    def estimate(self) -> dict[str, Any]:
        """The retained estimate."""
        document: dict[str, Any] = json.loads(self.broker.retained[ESTIMATE])
        return document

    def claim(self, store: str, n: int, term: int = 1) -> bytes:
        """An estimate that a store has published."""
        document = {"store": store, "term": term, "digest": self.task.digest.hex(), "n": n}
        return json.dumps(document).encode()

    def assert_readers_see_no_step_back(self) -> None:
        """An estimate under the same lease or a later one has as many reports at least."""
        seen = self.broker.seen
        assert seen == sorted(seen), seen
        assert [one.n for one in seen] == sorted(one.n for one in seen), seen


@contextmanager
def beside(world: World, path: Path, broker: Broker | None = None) -> Iterator[World]:
    """Another store and its aggregators in the same time, on the same broker or on another one."""
    with SqliteStore(path) as store:
        other = World(world.loop, broker or world.broker, store, path, name=path.name)
        try:
            yield other
        finally:
            other.stop()


@contextmanager
def living(path: Path) -> Iterator[World]:
    """Until the block ends; nothing runs yet."""
    loop = _Loop()
    asyncio.set_event_loop(loop)
    with SqliteStore(path) as store:
        world = World(loop, Broker(loop), store, path, row=Lease(loop.time))
        world.broker.tell(BROKER_DROPPED, b"0")
        world.broker.say()
        try:
            yield world
        finally:
            world.stop()
            loop.close()
            asyncio.set_event_loop(None)
