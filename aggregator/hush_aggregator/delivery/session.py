"""The interface of a broker connection, and a guard against messages that the broker refuses."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, cast

from hush_common.topics import Delivery


class Publisher(Protocol):
    """Where something can be published."""

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish at QoS 1; return at the acknowledgement, or raise BrokerError if none comes in time."""


class BrokerSession(Publisher, Protocol):
    """One connection to a broker."""

    @property
    def waiting(self) -> int:
        """Messages that have arrived and are in no batch yet."""

    @property
    def resumed(self) -> bool:
        """Whether the broker has kept the previous session, with the messages that waited in it."""

    @property
    def repeated(self) -> int:
        """Messages on this connection with a packet id that was in flight already."""

    @property
    def current_until(self) -> float:
        """The newest moment (event loop time) for which everything sent before it has arrived.

        Behind a backlog of reports an answer may be minutes late.
        """

    async def watch(self, listen: Callable[[str, bytes], object]) -> None:
        """Pass recalls and the broker's `$SYS` topics to `listen` while connected, if this user may read them.

        These are its version, its uptime, and the numbers of messages that it holds and has dropped.

        Raises:
            BrokerError: the connection is lost.
        """

    async def look(self, topics: Sequence[str], listen: Callable[[str, bytes], object]) -> None:
        """Pass retained and later messages on topics of tasks and estimates to `listen` while connected.

        Own messages come back too, after what was retained before them. Those of tasks are also in a `batch`. Topics
        that this user may not read give nothing.

        Raises:
            BrokerError: the connection is lost.
        """

    async def hear(self, topic: str, listen: Callable[[str, bytes], object]) -> None:
        """Pass messages on another topic `…/status` to `listen` while connected, if this user may read it."""

    async def batch(self) -> list[Delivery]:
        """Wait for a message, then return all that have arrived, in order, at most `BATCH_LIMIT`.

        Cancelling it loses nothing: the messages are in the next batch.

        Raises:
            BrokerError: the connection is lost, or the broker refuses a subscription.
        """

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Acknowledge messages by their numbers, each after all that arrived before it.

        Harmless once the connection is lost. A message with the number 0 needs no acknowledgement.
        """


class Broker(Protocol):
    """Where an aggregator connects."""

    @property
    def name(self) -> str:
        """Its address without a password, for messages."""

    def connect(self, filters: Sequence[str]) -> AbstractAsyncContextManager[BrokerSession]:
        """Open the session of this aggregator, subscribed to `filters` in order, at QoS 1.

        A new session is subscribed on entering. A resumed one delivers waiting and unacknowledged messages at once:
        before the broker answers the subscription, and before the retained messages.

        Raises:
            BrokerError: the broker cannot be reached, or refuses.
        """


_LOG = logging.getLogger("hush.aggregator")
_LOSSES = 2
_AGAIN_S = 600.0


@dataclass(slots=True)
class _Kind:
    """Topics that differ only in the task: a limit for one holds for all."""

    bound: float = math.inf  # bytes of the shortest packet on which the broker hung up; infinite for none
    taken: int = 0  # bytes of the longest that it accepted since
    held: dict[str, int] = field(default_factory=dict)  # bytes of those held back, by topic
    again_at: float = 0.0  # when to retry one (event loop time)


class OversizeGuard:
    """Holds back messages on which the broker hangs up, over all connections, and retries them later.

    Args:
        unsent: called with the topic of a message that is held back.
        again: called with a topic that may be published again.
    """

    def __init__(self, unsent: Callable[[str], object], again: Callable[[str], object]) -> None:
        self._unsent = unsent
        self._again = again
        self._kinds: dict[str, _Kind] = {}
        self._under_way: dict[str, int] = {}
        self._losses: Counter[str] = Counter()
        self._suspects: set[str] = set()  # topics under way when a connection was lost, and not published since
        self._turn = asyncio.Lock()

    def guard(self, session: BrokerSession) -> BrokerSession:
        """Return a new connection whose messages pass this guard."""
        self._under_way.clear()
        return cast("BrokerSession", _GuardedSession(session, self))

    def lost(self) -> None:
        """Note that the connection is lost: perhaps because of the longest message in flight."""
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

    async def publish(self, session: BrokerSession, topic: str, payload: bytes, *, retain: bool) -> None:
        """Publish, or hold back."""
        size, kind = _packet_bytes(topic, payload), self._kind(topic)
        too_long = size >= kind.bound or (topic in kind.held and size > kind.taken)
        if too_long and asyncio.get_running_loop().time() < kind.again_at:
            self._hold(kind, topic, size)
            self._suspects.discard(topic)
            self._unsent(topic)
            return
        if not self._suspects:
            self._under_way[topic] = size
            await session.publish(topic, payload, retain=retain)  # if it fails, `lost` is called
        else:  # thousands may be in flight: one at a time shows on which of them the broker hangs up
            async with self._turn:
                if not self._under_way:  # else the connection was lost with the one before
                    self._under_way[topic] = size
                await session.publish(topic, payload, retain=retain)
        self._suspects.discard(topic)
        self._under_way.pop(topic, None)
        self._losses.pop(topic, None)
        kind.held.pop(topic, None)
        kind.taken = max(kind.taken, size)
        if size >= kind.bound:
            _LOG.info("%s: accepted again, %d bytes", topic, size)
            kind.bound = math.inf
            self._try(kind)

    def _kind(self, topic: str) -> _Kind:
        return self._kinds.setdefault(topic.rpartition("/")[0], _Kind())

    def _hold(self, kind: _Kind, topic: str, size: int) -> None:
        known = topic in kind.held
        kind.held[topic] = size
        kind.taken = min(kind.taken, size - 1)  # if it accepted longer ones, its limit has changed
        if not known:
            _LOG.error(
                "task %s: its message to %s is held back: the broker disconnects on %d bytes (%s). All else continues; "
                "raise max_packet_size above that, or allow this user to write there; retried every %g s",
                topic.rpartition("/")[2],
                topic,
                size,
                f"the longest accepted there has {kind.taken}" if kind.taken else "nothing shorter was sent there",
                _AGAIN_S,
            )

    def _try(self, kind: _Kind) -> None:
        """Retry, after a while or after one was accepted."""
        for topic in sorted(kind.held, key=kind.held.__getitem__):
            self._again(topic)


class _GuardedSession:
    """A `BrokerSession` that publishes through a guard."""

    def __init__(self, session: BrokerSession, guard: OversizeGuard) -> None:
        self._session = session
        self._guard = guard

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        await self._guard.publish(self._session, topic, payload, retain=retain)

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)


def _packet_bytes(topic: str, payload: bytes) -> int:
    """The length of a PUBLISH of QoS 1 under MQTT 3.1.1 (section 2.2.3 has that of the length itself)."""
    rest = 2 + len(topic.encode()) + 2 + len(payload)
    return 1 + max(1, math.ceil(rest.bit_length() / 7)) + rest
