"""A group of workers over one store and a broker in memory that can be killed, in virtual time."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from broker_world import Broker, World
from virtual_time import VirtualLoop

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.aggregator import SeparateConnections
from hush_aggregator.broker.session import BrokerSession
from hush_aggregator.estimation import Estimator
from hush_aggregator.store import BrokerMemory, StoredRecall
from hush_aggregator.workers import WorkerGroup
from hush_common.errors import StoreError
from hush_common.topics import BROKER_DROPPED, estimate_topic, matches

if TYPE_CHECKING:
    from hush_aggregator.store.base import Store

__all__ = ["Group", "Lease", "Published", "in_group"]


class Lease:
    """The lease row.

    Attributes:
        ahead: what a test adds to the clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = float) -> None:
        self._clock = clock
        self.ahead = 0.0
        self.holder, self.expires, self.number = "", 0.0, 0
        self.answers = asyncio.Event()  # whether the database answers
        self.answers.set()
        self.is_down = False  # whether each question to it fails

    @property
    def now(self) -> float:
        return self._clock() + self.ahead

    def of(self, worker: str) -> "RowOfWorker":
        return RowOfWorker(self, worker)


class RowOfWorker:
    def __init__(self, row: Lease, worker: str) -> None:
        self._row, self._worker = row, worker

    def take_lease(self, seconds: float) -> int | None:
        row = self._row
        self._check()
        if row.expires > row.now and row.holder != self._worker:
            return None
        row.number += row.expires <= row.now or row.holder != self._worker
        row.holder, row.expires = self._worker, row.now + seconds
        return row.number

    def release_lease(self) -> None:
        self._check()
        if self._row.holder == self._worker:
            self._row.expires = 0.0

    def _check(self) -> None:
        if self._row.is_down:
            raise StoreError("postgresql://…: the server does not answer")

    def lease(self) -> tuple[str, int]:
        self._check()
        return self._row.holder if self._row.expires > self._row.now else "", self._row.number


class _StoreOfWorker:
    """The store as a worker sees it: what it knows of the broker and of its session there is in a row of its own."""

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


class Published(NamedTuple):
    """What a reader of the estimates sees."""

    lease: int
    n: int


class _Bus:
    """A connection of a worker, which may leave the shared subscription."""

    def __init__(self, broker: "GroupBroker", identifier: str) -> None:
        self._broker, self._identifier = broker, identifier
        self.name = broker.name

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[BrokerSession]:
        async with self._broker.bus(self._identifier).connect(filters) as session:
            session.leave = self._leave  # type: ignore[attr-defined]  # of a worker's session
            yield session

    def _leave(self, topic_filter: str) -> None:
        self._broker.session(self._identifier).filters.remove(topic_filter)
        self._broker.forget_routes()


class GroupBroker(Broker):
    """A broker that gives each report to one worker in turn, and notes what readers see."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.seen: list[Published] = []
        self._turns = count()

    def deliver(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if topic == estimate_topic("heights") and payload:
            document = json.loads(payload)
            self.seen.append(Published(document["lease"], document["n"]))
        shared = [
            session
            for session in self._sessions.values()
            if any(one.startswith("$share/") and matches(one.split("/", 2)[2], topic) for one in session.filters)
        ]
        if shared:
            there = [session for session in shared if session.connection is not None] or shared
            there[next(self._turns) % len(there)].put(topic, payload)
        super().deliver(topic, payload, retain=retain)


class _Gated(Aggregator):
    """An aggregator whose database may not answer.

    Attributes:
        answers: whether it answers.
        is_renewed: whether it answers the questions for the lease, too.
    """

    answers: asyncio.Event
    is_renewed: asyncio.Event

    async def _in_worker(self, function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401 - as its own
        await self.answers.wait()
        if getattr(function, "__self__", None) is self._lease:
            await self.is_renewed.wait()
        return await super()._in_worker(function, *args)


@dataclass
class Member:
    """A worker that runs."""

    aggregator: _Gated
    running: "asyncio.Task[None]"


@dataclass
class Group(World):
    """A world with several workers. `store` is that of all of them; `tasks` are those of `heights`."""

    workers: dict[str, Member] = field(default_factory=dict)
    row: Lease = field(default_factory=Lease)
    memories: dict[str, BrokerMemory] = field(default_factory=dict)
    estimators: dict[str, Estimator] = field(default_factory=dict)
    settle: dict[str, float] = field(default_factory=dict)  # seconds, where they are not those of a quick broker

    @property
    def readers(self) -> GroupBroker:
        assert isinstance(self.broker, GroupBroker)
        return self.broker

    def start(self, worker: str, *, for_s: float = 20) -> None:
        buses = [_Bus(self.readers, f"{worker}-{of}") for of in ("intake", "control")]
        aggregator = _Gated(
            buses[0],
            cast("Store", _StoreOfWorker(self.store, self.memories, worker)),
            tasks=(self.task,),
            name=f"worker {worker}",
            clock=self.now,
            settle_s=self.settle.get(worker, 0.1),
            estimator=self.estimators.get(worker),
            separate=SeparateConnections(*buses),
            group=WorkerGroup("g", worker, self.row.of(worker), self.loop.time),
        )
        aggregator.answers, aggregator.is_renewed = asyncio.Event(), asyncio.Event()
        aggregator.answers.set()
        aggregator.is_renewed.set()
        self.workers[worker] = Member(aggregator, self.loop.create_task(aggregator.run()))
        self.wait(for_s)

    def end(self, worker: str) -> None:
        """SIGINT."""
        running = self.workers.pop(worker).running
        running.cancel()
        with suppress(asyncio.CancelledError):
            self.loop.run_until_complete(running)

    def kill(self, worker: str) -> None:
        """SIGKILL: nothing more comes from it, and its lease ends by itself."""
        member, until, number = self.workers[worker], self.row.expires, len(self.readers.seen)
        for of in ("intake", "control"):
            if (connection := self.readers.session(f"{worker}-{of}").connection) is not None:
                connection.lose()
        self.end(worker)
        self.row.expires = until
        assert len(self.readers.seen) == number, member

    def cut_off(self, worker: str, *, only_lease: bool = False) -> None:
        """From now on the database does not answer this worker, or not when it renews its lease."""
        aggregator = self.workers[worker].aggregator
        (aggregator.is_renewed if only_lease else aggregator.answers).clear()

    def reconnect(self, worker: str) -> None:
        self.workers[worker].aggregator.answers.set()
        self.workers[worker].aggregator.is_renewed.set()

    def wait(self, seconds: float) -> None:
        self._running = next((one.running for one in self.workers.values()), None)
        super().wait(seconds)
        assert not any(one.running.done() for one in self.workers.values())

    def fail(self) -> None:
        """The database does not answer: every worker ends with an error, and the database answers the next ones."""
        self.row.is_down = True
        running, self.workers = [one.running for one in self.workers.values()], {}
        done = self.loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))
        assert all(isinstance(error, StoreError) for error in done), done
        self.row.is_down = False

    def stop(self) -> None:
        """SIGINT, to all at the same time."""
        running, self._running = [one.running for one in self.workers.values()], None
        for worker in [*self.workers]:
            self.reconnect(worker)
        for one in running:
            one.cancel()
        self.workers = {}
        self.loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))

    def assert_readers_see_no_step_back(self) -> None:
        """An estimate under the same lease or a later one has as many reports at least."""
        seen = self.readers.seen
        assert seen == sorted(seen), seen
        assert [one.n for one in seen] == sorted(one.n for one in seen), seen


@contextmanager
def in_group(path: Path) -> Iterator[Group]:
    """Until the block ends; nobody runs yet."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    with SqliteStore(path) as store:
        group = Group(loop, GroupBroker(loop), store, path, row=Lease(loop.time))
        group.broker.tell(BROKER_DROPPED, b"0")
        group.broker.say()
        try:
            yield group
        finally:
            group.stop()
            loop.close()
            asyncio.set_event_loop(None)
