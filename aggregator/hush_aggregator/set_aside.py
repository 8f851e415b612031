"""Set aside: a publication on which the broker hangs up, so that intake and all other publications go on.

A broker that is sent a packet longer than it takes (`max_packet_size`) ends the connection, and so do some where their
rules forbid a message; none of them says why under MQTT 3.1.1. What was on its way when two connections in a row were
lost, and was the longest then, is not sent again for ten minutes, nor is anything on topics of that kind which is as
long. Then one attempt costs one connection, or succeeds, and all of them get their turn.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from hush_aggregator.bus import Session, SessionAround

__all__ = ["SetAside"]

_LOG = logging.getLogger("hush.aggregator")
_LOSSES = 2
_AGAIN_S = 600.0


@dataclass(slots=True)
class _Kind:
    """Topics that differ in the task alone: what holds for one of them holds for the others.

    Attributes:
        bound: bytes of the shortest packet on which the broker hung up; infinite for none.
        taken: bytes of the longest that it took since.
        held: bytes of those set aside, by topic.
        again_at: when one may be tried, in seconds of the event loop.
    """

    bound: float = math.inf
    taken: int = 0
    held: dict[str, int] = field(default_factory=dict)
    again_at: float = 0.0


class SetAside:
    """Watches what is published, over all connections.

    Args:
        unsent: called with the topic of a message that is not sent.
        again: called with such a topic once its message may be published again.
    """

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

    def __init__(self, session: Session, aside: SetAside) -> None:
        super().__init__(session)
        self._aside = aside

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        await self._aside.publish(self._session, topic, payload, retain=retain)


def _packet_bytes(topic: str, payload: bytes) -> int:
    """The length of a PUBLISH of QoS 1 under MQTT 3.1.1 (section 2.2.3 has that of the length itself)."""
    rest = 2 + len(topic.encode()) + 2 + len(payload)
    return 1 + max(1, math.ceil(rest.bit_length() / 7)) + rest
