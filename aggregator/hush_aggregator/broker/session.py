"""The interface of a broker connection, and a guard against messages that the broker does not take."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from hush_common.topics import Delivery

BATCH_LIMIT = 4096
"""Most messages in one batch."""


class Publisher(Protocol):
    """Where something can be published."""

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish at QoS 1; return once the broker has acknowledged.

        Raises:
            BrokerError: the connection is lost, or no acknowledgement came in time.
        """


class Session(Publisher, Protocol):
    """One connection to a broker."""

    @property
    def waiting(self) -> int:
        """Messages that have come, and are in no batch yet."""

    @property
    def resumed(self) -> bool:
        """Whether the broker had kept the session of before, with all that waited in it as far as it remembers."""

    @property
    def repeated(self) -> int:
        """How many messages came on this connection with a packet id that was in flight already."""

    @property
    def current_until(self) -> float:
        """The newest moment (time of the event loop) for which it is known that all has come that was sent before it.

        Behind a backlog of reports an answer may be minutes late, and nothing follows from that.
        """

    async def watch(self, listen: Callable[[str, bytes], object]) -> None:
        """Give what the broker says about itself, and recalls, to `listen`, by topic, at once, while it is connected.

        Its version and uptime, the messages that it holds and has dropped, if it tells; and if this user may read it.

        Raises:
            BrokerError: the connection is lost.
        """

    async def look(self, topics: Sequence[str], listen: Callable[[str, bytes], object]) -> None:
        """Give what is retained and published on topics of tasks and estimates to `listen`, at once, until the end.

        One's own messages come back too, after what was retained before them. Those of tasks are in a `batch` as well.
        What this user may not read does not come.

        Raises:
            BrokerError: the connection is lost.
        """

    async def hear(self, topic: str, listen: Callable[[str, bytes], object]) -> None:
        """Give what is published on one more topic, of two levels the second of which is `status`, to `listen`.

        At once, while it is connected, and if this user may read it.

        Raises:
            BrokerError: the connection is lost.
        """

    async def batch(self) -> list[Delivery]:
        """Wait for a message, then hand over all that have come, in order (a bounded number).

        Cancelling it loses nothing: what it would have handed over comes with the next batch.

        Raises:
            BrokerError: the connection is lost, or the broker refuses a subscription.
        """

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Acknowledge messages by their numbers. Each is told to the broker after all that came before it.

        Harmless once the connection is lost; 0 is the number of a message that needs none.
        """


class SessionAround:
    """A `Session` that does as the one inside; who makes a difference overrides where it is."""

    def __init__(self, inner: Session) -> None:
        self._session = inner

    @property
    def waiting(self) -> int:
        return self._session.waiting

    @property
    def resumed(self) -> bool:
        return self._session.resumed

    @property
    def repeated(self) -> int:
        return self._session.repeated

    @property
    def current_until(self) -> float:
        return self._session.current_until

    def acknowledge(self, numbers: Iterable[int]) -> None:
        self._session.acknowledge(numbers)

    async def watch(self, listen: Callable[[str, bytes], object]) -> None:
        await self._session.watch(listen)

    async def look(self, topics: Sequence[str], listen: Callable[[str, bytes], object]) -> None:
        await self._session.look(topics, listen)

    async def hear(self, topic: str, listen: Callable[[str, bytes], object]) -> None:
        await self._session.hear(topic, listen)

    async def batch(self) -> list[Delivery]:
        return await self._session.batch()

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        await self._session.publish(topic, payload, retain=retain)


class Bus(Protocol):
    """A broker, seen by an aggregator."""

    @property
    def name(self) -> str:
        """What to call it in a message: its address, without a password."""

    def connect(self, filters: Sequence[str]) -> AbstractAsyncContextManager[Session]:
        """Open the session of this aggregator; it subscribes to `filters` in order, at QoS 1.

        A new session is subscribed on entering. To one that is resumed, messages that came while nobody was connected,
        and those never acknowledged, are delivered (again) at once: before the broker answers the subscription, and
        before the retained messages.

        Raises:
            BrokerError: the broker is not there, or refuses.
        """


_LOG = logging.getLogger("hush.aggregator")
_LOSSES = 2
_AGAIN_S = 600.0


@dataclass(slots=True)
class _Kind:
    """Topics that differ in the task alone: what holds for one of them holds for the others."""

    bound: float = math.inf  # bytes of the shortest packet on which the broker hung up; infinite for none
    taken: int = 0  # bytes of the longest that it took since
    held: dict[str, int] = field(default_factory=dict)  # bytes of those set aside, by topic
    again_at: float = 0.0  # when one may be tried, in seconds of the event loop


class OversizeGuard:
    """Watches what is published, over all connections."""

    def __init__(self, unsent: Callable[[str], object], again: Callable[[str], object]) -> None:
        self._unsent = unsent
        self._again = again
        self._kinds: dict[str, _Kind] = {}
        self._under_way: dict[str, int] = {}
        self._losses: Counter[str] = Counter()
        self._suspects: set[str] = set()  # topics under way when a connection was lost, and not published since
        self._turn = asyncio.Lock()

    def guard(self, session: Session) -> Session:
        """A new connection, seen through this."""
        self._under_way.clear()
        return _Guarded(session, self)

    def lost(self) -> None:
        """The connection is lost: perhaps because of the longest message that was under way."""
        if not self._under_way:
            return
        topic, size = max(self._under_way.items(), key=lambda one: one[1])
        self._suspects |= self._under_way.keys()
        self._under_way.clear()
        self._losses[topic] += 1
        kind = self._kind(topic)
        if self._losses[topic] >= _LOSSES or size >= kind.bound:
            kind.bound = min(kind.bound, size)
            kind.again_at = asyncio.get_running_loop().time() + _AGAIN_S
            asyncio.get_running_loop().call_later(_AGAIN_S, self._try, kind)
            self._hold(kind, topic, size)

    async def publish(self, session: Session, topic: str, payload: bytes, *, retain: bool) -> None:
        """Publish, or set aside."""
        size, kind = _packet_bytes(topic, payload), self._kind(topic)
        too_long = size >= kind.bound or (topic in kind.held and size > kind.taken)
        if too_long and asyncio.get_running_loop().time() < kind.again_at:
            self._hold(kind, topic, size)
            self._suspects.discard(topic)
            self._unsent(topic)
            return
        if not self._suspects:
            self._under_way[topic] = size
            await session.publish(topic, payload, retain=retain)  # if it fails, `lost` is told of it
        else:  # thousands may be under way at a time: one after the other shows on which of them the broker hangs up
            async with self._turn:
                if not self._under_way:  # else the connection is lost already, with the one before
                    self._under_way[topic] = size
                await session.publish(topic, payload, retain=retain)
        self._suspects.discard(topic)
        self._under_way.pop(topic, None)
        self._losses.pop(topic, None)
        kind.held.pop(topic, None)
        kind.taken = max(kind.taken, size)
        if size >= kind.bound:
            _LOG.info("%s: taken again, %d bytes", topic, size)
            kind.bound = math.inf
            self._try(kind)

    def _kind(self, topic: str) -> _Kind:
        return self._kinds.setdefault(topic.rpartition("/")[0], _Kind())

    def _hold(self, kind: _Kind, topic: str, size: int) -> None:
        known = topic in kind.held
        kind.held[topic] = size
        kind.taken = min(kind.taken, size - 1)  # if it took longer ones, its limit is another now
        if not known:
            _LOG.error(
                "task %s: its message to %s is set aside, and all else goes on: the broker hangs up on %d bytes (%s); "
                "raise its max_packet_size above that, or allow this user to write there; tried again every %g s",
                topic.rpartition("/")[2],
                topic,
                size,
                f"the longest there that it took has {kind.taken}" if kind.taken else "nothing shorter was sent there",
                _AGAIN_S,
            )

    def _try(self, kind: _Kind) -> None:
        """It is time, or one of them has passed."""
        for topic in sorted(kind.held, key=kind.held.__getitem__):
            self._again(topic)


class _Guarded(SessionAround):
    """A `Session` that sets aside."""

    def __init__(self, session: Session, aside: OversizeGuard) -> None:
        super().__init__(session)
        self._aside = aside

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        await self._aside.publish(self._session, topic, payload, retain=retain)


def _packet_bytes(topic: str, payload: bytes) -> int:
    """The length of a PUBLISH of QoS 1 under MQTT 3.1.1 (section 2.2.3 has that of the length itself)."""
    rest = 2 + len(topic.encode()) + 2 + len(payload)
    return 1 + max(1, math.ceil(rest.bit_length() / 7)) + rest
