"""A broker in memory that fails on demand, for tests of the device."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

from hush_client.link import SubscriptionRefusedError
from hush_common.errors import BrokerError
from hush_common.rng import SystemRng
from hush_common.task_file import make_task
from hush_common.topics import task_topic

__all__ = ["HEIGHTS", "FakeTransport", "RecordingRng", "make_heights"]

Fault = Literal["lost before it arrives", "lost before the acknowledgement", "never acknowledged"]


def make_heights(**changes: object) -> bytes:
    """The payload of a task about heights, with some fields changed."""
    document: dict[str, object] = {
        "id": "heights",
        "purpose": "workplaces",
        "epsilon": "1",
        "domain": {"kind": "number", "lower": 120.0, "upper": 220.0},
    }
    return make_task(document | changes).payload


HEIGHTS = make_heights()


class RecordingRng:
    """The system's randomness, counted."""

    def __init__(self) -> None:
        self.draws = 0

    def randbelow(self, n: int, /) -> int:
        self.draws += 1
        return SystemRng().randbelow(n)

    def token_bytes(self, count: int, /) -> bytes:
        self.draws += 1
        return SystemRng().token_bytes(count)


@dataclass
class FakeTransport:
    """One broker, which every connection of a test shares.

    Args:
        retained: payloads by topic, handed out on subscription.
        faults: what happens to the next publications, one each; acknowledged at once when there are none left.
        refusals: errors of the next attempts to connect.
        forbidden: topics that may not be subscribed.
    """

    retained: dict[str, bytes] = field(default_factory=lambda: {task_topic("heights"): HEIGHTS})
    faults: deque[Fault] = field(default_factory=deque)
    refusals: deque[str] = field(default_factory=deque)
    forbidden: frozenset[str] = frozenset()
    arrived: list[tuple[str, bytes]] = field(default_factory=list)
    attempts: list[tuple[str, bytes]] = field(default_factory=list)
    connections: int = 0
    on_publish: Callable[[], None] = lambda: None
    name: str = "fake://broker"
    _link: "_FakeLink | None" = None

    def connect(self) -> AbstractAsyncContextManager["_FakeLink"]:
        return self._connect()

    def drop(self) -> None:
        """Cut the present connection."""
        if self._link is not None:
            self._link.lose()

    def publish_task(self, topic: str, payload: bytes) -> None:
        """Retain a payload and hand it to the present connection."""
        self.retained[topic] = payload
        if self._link is not None:
            self._link.inbox.put_nowait((topic, payload))

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator["_FakeLink"]:
        if self.refusals:
            raise BrokerError(self.name, self.refusals.popleft())
        self.connections += 1
        self._link = link = _FakeLink(self)
        try:
            yield link
        finally:
            self._link = None


class _FakeLink:
    def __init__(self, broker: FakeTransport) -> None:
        self.inbox: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._broker = broker
        self._lost = asyncio.Event()

    def lose(self) -> None:
        self._lost.set()

    async def publish(self, topic: str, payload: bytes) -> None:
        broker = self._broker
        broker.attempts.append((topic, payload))
        broker.on_publish()
        await asyncio.sleep(0)
        fault = broker.faults.popleft() if broker.faults else None
        if fault == "lost before it arrives":
            self.lose()
        if self._lost.is_set():
            raise self._error()
        broker.arrived.append((topic, payload))
        if fault == "lost before the acknowledgement":
            self.lose()
            raise self._error()
        if fault == "never acknowledged":
            await self._lost.wait()
            raise self._error()

    async def subscribe(self, topic: str) -> None:
        if topic in self._broker.forbidden:
            raise SubscriptionRefusedError(self._broker.name, f"{topic} is forbidden")
        for name, payload in self._broker.retained.items():
            if name == topic or f"{name.rpartition('/')[0]}/+" == topic:
                self.inbox.put_nowait((name, payload))

    async def receive(self) -> tuple[str, bytes]:
        message = asyncio.ensure_future(self.inbox.get())
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait((message, lost), return_when=asyncio.FIRST_COMPLETED)
            if message.done():
                return message.result()
            raise self._error()
        finally:
            message.cancel()
            lost.cancel()

    def _error(self) -> BrokerError:
        return BrokerError(self._broker.name, "the connection is lost")
