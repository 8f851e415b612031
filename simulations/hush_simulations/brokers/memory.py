"""An MQTT broker without a network: retained messages, QoS 1, and persistent sessions, in one event loop.

The client and the aggregator that run over it are the real ones; what is missing is the socket. A link of a device
forgets everything when it ends; the session of an aggregator keeps what nobody acknowledged and delivers it again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from hush_aggregator.mqtt import Bus, Delivery, Session
from hush_client.link import Link, Transport
from hush_common.errors import BrokerError

__all__ = ["MemoryBroker", "matches"]

_BATCH = 4096


class MemoryBroker:
    """A broker for devices and aggregators of one event loop.

    Args:
        name: what messages to people call it.

    Attributes:
        reachable: whether connections succeed; a test may set it to False and call `drop`.
    """

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.reachable = True
        self._retained: dict[str, bytes] = {}
        self._links: list[_Link] = []
        self._sessions: dict[str, _Memory] = {}

    def transport(self) -> Transport:
        """A way to this broker for a device."""
        return _Transport(self)

    def bus(self, identifier: str = "aggregator") -> Bus:
        """This broker for an aggregator; the session belongs to the identifier."""
        return _Bus(self, identifier)

    def retained(self, topic: str) -> bytes | None:
        """The message that a new subscriber of `topic` would get first."""
        return self._retained.get(topic)

    def drop(self) -> None:
        """Break every connection, as a broker does that dies. What sessions remember stays."""
        for link in list(self._links):
            link.lose()
        for memory in self._sessions.values():
            if memory.connection is not None:
                memory.connection.lose()

    def deliver(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Hand a message to everybody who subscribed; a retained one with no payload clears the topic."""
        if retain and payload:
            self._retained[topic] = payload
        elif retain:
            self._retained.pop(topic, None)
        for link in self._links:
            if any(matches(wanted, topic) for wanted in link.filters):
                link.put(topic, payload)
        for memory in self._sessions.values():
            if any(matches(wanted, topic) for wanted in memory.filters):
                memory.put(topic, payload)

    def retained_under(self, wanted: str) -> list[tuple[str, bytes]]:
        return [(topic, payload) for topic, payload in self._retained.items() if matches(wanted, topic)]

    def admit(self) -> None:
        if not self.reachable:
            raise BrokerError(self.name, "cannot connect (the broker is switched off)")

    def lost(self) -> BrokerError:
        return BrokerError(self.name, "the connection is lost")

    def attach(self, link: "_Link") -> None:
        self._links.append(link)

    def detach(self, link: "_Link") -> None:
        self._links.remove(link)

    def memory_of(self, identifier: str) -> "_Memory":
        return self._sessions.setdefault(identifier, _Memory())


def matches(wanted: str, topic: str) -> bool:
    """Whether a topic filter, with `+` for one level and `#` for the rest, takes in `topic`."""
    if "+" not in wanted and "#" not in wanted:
        return wanted == topic
    levels = topic.split("/")
    for position, level in enumerate(wanted.split("/")):
        if level == "#":
            return True
        if position >= len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted.split("/")) == len(levels)


class _Transport:
    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    @property
    def name(self) -> str:
        return self._broker.name

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Link]:
        self._broker.admit()
        link = _Link(self._broker)
        self._broker.attach(link)
        try:
            yield link
        finally:
            self._broker.detach(link)


class _Link:
    def __init__(self, broker: MemoryBroker) -> None:
        self.filters: list[str] = []
        self._broker = broker
        self._inbox: deque[tuple[str, bytes]] = deque()
        self._something = asyncio.Event()
        self._lost = False

    async def publish(self, topic: str, payload: bytes) -> None:
        if not self._lost:
            self._broker.deliver(topic, bytes(payload))
            await asyncio.sleep(0)  # an acknowledgement takes a turn: the link may break before it comes
        if self._lost:
            raise self._broker.lost()

    async def subscribe(self, topic: str) -> None:
        if self._lost:
            raise self._broker.lost()
        self.filters.append(topic)
        for name, payload in self._broker.retained_under(topic):
            self.put(name, payload)

    async def receive(self) -> tuple[str, bytes]:
        while not self._inbox:
            if self._lost:
                raise self._broker.lost()
            self._something.clear()
            await self._something.wait()
        return self._inbox.popleft()

    def put(self, topic: str, payload: bytes) -> None:
        self._inbox.append((topic, payload))
        self._something.set()

    def lose(self) -> None:
        self._lost = True
        self._something.set()


@dataclass(slots=True)
class _Memory:
    """What outlives a connection of an aggregator: its subscriptions, and the messages it has not acknowledged.

    Args:
        filters: topic filters subscribed to.
        waiting: messages not handed over on the connection of now, in order.
        unacknowledged: messages handed over, by number, in order.
        connection: the connection of now, if there is one.
    """

    filters: list[str] = field(default_factory=list)
    waiting: deque[tuple[str, bytes]] = field(default_factory=deque)
    unacknowledged: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    connection: "_Session | None" = None

    def put(self, topic: str, payload: bytes) -> None:
        self.waiting.append((topic, payload))
        if self.connection is not None:
            self.connection.wake()

    def restore(self) -> None:
        """Put back what was handed over and never acknowledged, ahead of everything newer."""
        self.waiting.extendleft(reversed(self.unacknowledged.values()))
        self.unacknowledged.clear()


class _Bus:
    def __init__(self, broker: MemoryBroker, identifier: str) -> None:
        self._broker = broker
        self._identifier = identifier

    @property
    def name(self) -> str:
        return self._broker.name

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[Session]:
        self._broker.admit()
        memory = self._broker.memory_of(self._identifier)
        if memory.connection is not None:
            memory.connection.lose()  # as a broker does when a client id connects twice
        memory.restore()
        memory.connection = session = _Session(self._broker, memory)
        memory.filters = list(filters)
        for wanted in filters:
            for topic, payload in self._broker.retained_under(wanted):
                memory.put(topic, payload)
        try:
            yield session
        finally:
            session.lose()


class _Session:
    def __init__(self, broker: MemoryBroker, memory: _Memory) -> None:
        self._broker = broker
        self._memory = memory
        self._something = asyncio.Event()
        self._number = 0
        self._lost = False

    async def batch(self) -> list[Delivery]:
        await asyncio.sleep(0)  # let the devices that are ready send first, as a socket's buffer would
        while not self._memory.waiting:
            if self._lost:
                raise self._broker.lost()
            self._something.clear()
            await self._something.wait()
        if self._lost:
            raise self._broker.lost()
        count = min(len(self._memory.waiting), _BATCH)
        return [self._hand_over(*self._memory.waiting.popleft()) for _ in range(count)]

    def _hand_over(self, topic: str, payload: bytes) -> Delivery:
        self._number += 1
        self._memory.unacknowledged[self._number] = (topic, payload)
        return Delivery(topic, payload, partial(self._acknowledge, self._number))

    def _acknowledge(self, number: int) -> None:
        if not self._lost:
            self._memory.unacknowledged.pop(number, None)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if not self._lost:
            self._broker.deliver(topic, payload, retain=retain)
            await asyncio.sleep(0)
        if self._lost:
            raise self._broker.lost()

    def wake(self) -> None:
        self._something.set()

    def lose(self) -> None:
        self._lost = True
        self._something.set()
        if self._memory.connection is self:
            self._memory.connection = None
