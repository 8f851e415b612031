"""An MQTT broker without a network: retained messages, QoS 1, and persistent sessions, in one event loop.

Client and aggregator are the real ones; only the socket is missing. The link of a device keeps nothing when it ends;
the session of an aggregator keeps unacknowledged messages and delivers them again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from hush_aggregator.delivery.session import Broker, BrokerSession
from hush_client.sending.transport import Link, Transport
from hush_common.errors import BrokerError, SubscriptionRefusedError
from hush_common.topics import ALL_RECALLS, BATCH_LIMIT, Acknowledgement, Delivery, matches


@dataclass(slots=True)
class PersistentSession:
    """What outlives a connection of an aggregator: its topic filters, and the messages it has not acknowledged."""

    filters: list[str] = field(default_factory=list)
    known: bool = False
    waiting: deque[tuple[str, bytes]] = field(default_factory=deque)  # not delivered on the current connection
    unacknowledged: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    acknowledged: int = 0
    connection: "_Session | None" = None

    def put(self, topic: str, payload: bytes) -> None:
        self.waiting.append((topic, payload))
        if self.connection is not None:
            self.connection.wake()

    def restore(self) -> None:
        """Put back delivered messages that were never acknowledged, ahead of all newer ones."""
        self.waiting.extendleft(reversed(self.unacknowledged.values()))
        self.unacknowledged.clear()

    def acknowledge(self, number: int) -> None:
        if self.unacknowledged.pop(number, None) is not None:
            self.acknowledged += 1
            if self.connection is not None:
                self.connection.wake()


_MOST_ROUTES = 10_000  # topics whose subscribers are cached


class MemoryBroker:
    """A broker for devices and aggregators of one event loop.

    A session may leave at most `window` messages unacknowledged; None for no limit.

    Attributes:
        reachable: whether connections succeed; a test may set it to False and call `drop`.
        retained: the message that a new subscriber of a topic gets first, by topic.
        forbidden: topics that no device may subscribe to.
        about: its messages about itself, such as its uptime, by topic.
    """

    def __init__(self, name: str = "memory", *, window: int | None = None) -> None:
        self.name: str = name
        self.window: int | None = window
        self.reachable = True
        self.retained: dict[str, bytes] = {}
        self.forbidden: set[str] = set()
        self.about: dict[str, bytes] = {}
        self._links: list[_Link] = []
        self._sessions: dict[str, PersistentSession] = {}
        self._routes: dict[str, list[_Link | PersistentSession]] = {}

    def transport(self) -> Transport:
        """Return a transport to this broker for a device."""
        return _Transport(self)

    def bus(self, identifier: str = "aggregator") -> Broker:
        """Return a bus to this broker for an aggregator; the session belongs to the identifier."""
        return _Bus(self, identifier)

    def drop(self) -> None:
        """Break every connection, as a broker that crashes. The sessions stay."""
        connections: list[_Link | _Session] = [*self._links, *self._connections()]
        for connection in connections:
            connection.lose()

    def deliver(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Send a message to all subscribers; a retained one with no payload clears the topic."""
        if retain and payload:
            self.retained[topic] = payload
        elif retain:
            self.retained.pop(topic, None)
        if (route := self._routes.get(topic)) is None:
            if len(self._routes) >= _MOST_ROUTES:
                self.forget_routes()
            route = self._routes[topic] = self._route(topic)
        for receiver in route:
            receiver.put(topic, payload)
        if matches(ALL_RECALLS, topic):
            self._notify(topic, payload)
        self.show(topic, payload)

    def _route(self, topic: str) -> "list[_Link | PersistentSession]":
        """Return the subscribers of a topic. `deliver` caches them until a subscription or connection changes."""
        everybody: list[_Link | PersistentSession] = [*self._links, *self._sessions.values()]
        return [one for one in everybody if any(matches(wanted, topic) for wanted in one.filters)]

    def forget_routes(self) -> None:
        self._routes.clear()

    def show(self, topic: str, payload: bytes) -> None:
        """Pass a message to every aggregator that reads the topic outside its session."""
        for connection in self._connections():
            if topic in connection.looks:
                connection.looks[topic](topic, payload)

    def tell(self, topic: str, payload: bytes) -> None:
        """Publish a message about itself to every aggregator, now and when one connects."""
        self.about[topic] = payload
        self._notify(topic, payload)

    def _notify(self, topic: str, payload: bytes) -> None:
        for connection in self._connections():
            connection.listen(topic, payload)

    def _connections(self) -> "list[_Session]":
        return [session.connection for session in self._sessions.values() if session.connection is not None]

    def retained_under(self, wanted: str) -> list[tuple[str, bytes]]:
        return [(topic, payload) for topic, payload in self.retained.items() if matches(wanted, topic)]

    def admit(self) -> None:
        if not self.reachable:
            raise BrokerError(self.name, "cannot connect (the broker is switched off)")

    def lost(self) -> BrokerError:
        return BrokerError(self.name, "the connection is lost")

    def attach(self, link: "_Link") -> None:
        self._links.append(link)
        self.forget_routes()

    def detach(self, link: "_Link") -> None:
        self._links.remove(link)
        self.forget_routes()

    def session(self, identifier: str = "aggregator") -> "PersistentSession":
        """Return the session of an aggregator, connected or not."""
        return self._sessions.setdefault(identifier, PersistentSession())


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

    async def publish(self, topic: str, payload: bytes) -> Acknowledgement:
        if not self._lost:
            self._broker.deliver(topic, bytes(payload))
            await asyncio.sleep(0)  # an acknowledgement takes a turn: the link may break before it comes
        if self._lost:
            raise self._broker.lost()
        return Acknowledgement()

    async def subscribe(self, topic: str) -> None:
        if self._lost:
            raise self._broker.lost()
        if topic in self._broker.forbidden:
            raise SubscriptionRefusedError(self._broker.name, f"{topic} is forbidden")
        self.filters.append(topic)
        self._broker.forget_routes()
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


class _Bus:
    def __init__(self, broker: MemoryBroker, identifier: str) -> None:
        self._broker = broker
        self._identifier = identifier

    @property
    def name(self) -> str:
        return self._broker.name

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[BrokerSession]:
        self._broker.admit()
        session = self._broker.session(self._identifier)
        if session.connection is not None:
            session.connection.lose()  # as a broker does when a client id connects twice
        session.restore()
        session.connection = connection = _Session(self._broker, session, resumed=session.known)
        session.known = True
        session.filters = list(filters)
        self._broker.forget_routes()
        for wanted in filters:
            for topic, payload in self._broker.retained_under(wanted):
                session.put(topic, payload)
        try:
            yield connection
        finally:
            connection.lose()


class _Session:
    def __init__(self, broker: MemoryBroker, kept: PersistentSession, *, resumed: bool) -> None:
        self.resumed = resumed
        self.listen: Callable[[str, bytes], object] = lambda *_: None
        self._broker, self._kept = broker, kept
        self._something, self._number, self._lost = asyncio.Event(), 0, False
        self._loop = asyncio.get_running_loop()
        self.looks: dict[str, Callable[[str, bytes], object]] = {}

    @property
    def waiting(self) -> int:
        return len(self._kept.waiting)

    @property
    def repeated(self) -> int:
        return 0

    @property
    def current_until(self) -> float:
        return self._loop.time()

    async def batch(self) -> list[Delivery]:
        await asyncio.sleep(0)  # let the devices that are ready send first, as a socket's buffer would
        while self._lost or not (count := self._deliverable()):
            if self._lost:
                raise self._broker.lost()
            self._something.clear()
            await self._something.wait()
        return [self._hand_over(*self._kept.waiting.popleft()) for _ in range(count)]

    def _deliverable(self) -> int:
        window = self._broker.window
        free = BATCH_LIMIT if window is None else window - len(self._kept.unacknowledged)
        return min(len(self._kept.waiting), BATCH_LIMIT, free)

    def _hand_over(self, topic: str, payload: bytes) -> Delivery:
        self._number += 1
        self._kept.unacknowledged[self._number] = (topic, payload)
        return Delivery(topic, payload, self._number, self)

    def acknowledge(self, numbers: Iterable[int]) -> None:
        if not self._lost:
            for number in numbers:
                self._kept.acknowledge(number)

    async def look(self, topics: Sequence[str], listen: Callable[[str, bytes], object]) -> None:
        self.looks.update(dict.fromkeys(topics, listen))
        for topic in filter(self._broker.retained.__contains__, topics):
            listen(topic, self._broker.retained[topic])

    async def hear(self, topic: str, listen: Callable[[str, bytes], object]) -> None:
        self.looks[topic] = listen

    async def watch(self, listen: Callable[[str, bytes], object]) -> None:
        self.listen = listen
        for topic, payload in [*self._broker.about.items(), *self._broker.retained_under(ALL_RECALLS)]:
            listen(topic, payload)

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
        if self._kept.connection is self:
            self._kept.connection = None
