"""A broker in memory that misbehaves on demand, for tests of the aggregator."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from hush_aggregator.bus import Delivery, Session
from hush_common.errors import BrokerError
from hush_common.topics import task_topic

__all__ = ["FakeBus"]


@dataclass
class FakeBus:
    """One persistent session: what is not acknowledged is delivered again, before anything retained.

    Attributes:
        window: most messages unacknowledged on one connection.
        retained: messages kept by topic; those of tasks are sent `retained_after` seconds after connecting.
        published: everything the aggregator published, in order.
        acknowledged: ids of messages, in the order of their acknowledgement.
        connections: how many there were; `up` is set with the first.
        refuses: how many attempts to connect are refused first.
    """

    window: int = 1_000_000
    retained_after: float = 0.0
    refuses: int = 0
    name: str = "fake"
    retained: dict[str, bytes] = field(default_factory=dict)
    published: list[tuple[str, bytes]] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    connections: int = 0
    waiting: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    session: "_FakeSession | None" = None
    numbers: "count[int]" = field(default_factory=count)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    up: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, topic: str, *payloads: bytes) -> None:
        """Messages of QoS 1 for the aggregator; they wait while it is away."""
        for payload in payloads:
            self.waiting[next(self.numbers)] = (topic, payload)
        if self.session is not None:
            self.session.wake.set()

    def retain(self, task_id: str, payload: bytes) -> None:
        """A retained task; an aggregator that is connected gets it now."""
        self.retained[task_topic(task_id)] = payload
        if self.session is not None:
            self.session.extra.append(Delivery(task_topic(task_id), payload))
            self.session.wake.set()

    def drop(self) -> None:
        """Break the connection."""
        if self.session is not None:
            self.session.lose()

    async def emptied(self) -> None:
        """Wait until everything is acknowledged."""
        while self.waiting:
            self.moved.clear()
            await self.moved.wait()

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[Session]:
        assert list(filters) == ["hush/v1/tasks/+", "hush/v1/reports/+/+"]
        if self.refuses:
            self.refuses -= 1
            raise BrokerError(self.name, "cannot connect")
        self.connections += 1
        session = self.session = _FakeSession(self)
        timer = asyncio.get_running_loop().call_later(self.retained_after, session.bring_retained)
        self.up.set()
        try:
            yield session
        finally:
            timer.cancel()
            session.lose()
            self.session = None


class _FakeSession:
    def __init__(self, bus: FakeBus) -> None:
        self.wake = asyncio.Event()
        self.extra: deque[Delivery] = deque()
        self._bus = bus
        self._given: set[int] = set()
        self._lost = False

    def bring_retained(self) -> None:
        self.extra.extend(
            Delivery(topic, payload) for topic, payload in self._bus.retained.items() if "/tasks/" in topic
        )
        self.wake.set()

    def lose(self) -> None:
        self._lost = True
        self.wake.set()

    async def batch(self) -> list[Delivery]:
        while True:
            if self._lost:
                raise BrokerError(self._bus.name, "the connection was lost")
            if batch := self._take():
                return batch
            self.wake.clear()
            await self.wake.wait()

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        await asyncio.sleep(0)
        if self._lost:
            raise BrokerError(self._bus.name, "the connection was lost")
        self._bus.published.append((topic, payload))
        if retain:
            self._bus.retained[topic] = payload

    def _take(self) -> list[Delivery]:
        batch = []
        for number, (topic, payload) in self._bus.waiting.items():
            if number not in self._given and len(self._given) < self._bus.window:
                self._given.add(number)
                batch.append(Delivery(topic, payload, partial(self._acknowledge, number)))
        batch += self.extra
        self.extra.clear()
        return batch

    def _acknowledge(self, number: int) -> None:
        if self._lost:
            return
        self._given.discard(number)
        if self._bus.waiting.pop(number, None) is not None:
            self._bus.acknowledged.append(number)
            self._bus.moved.set()
            self.wake.set()
