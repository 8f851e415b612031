"""What goes out: publications, never more at once than the broker takes, and acknowledgements; many in one write.

paho makes a packet, two locks and a call of the system of each, and tells the event loop twice about every one. Here
they are joined until the loop has its next turn. Everything else (to connect, to subscribe, to take leave) paho sends,
after what was sent before it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from paho.mqtt.enums import MQTTProtocolVersion

__all__ = ["Outgoing"]

_LOG = logging.getLogger(__name__)

_PUBLISH, _AT_LEAST_ONCE = 0x30, 0x02
_ACKNOWLEDGEMENT = b"\x40\x02"
_MOST_UNSENT = 70_000
"""Acknowledgements: a broker has at most 65 535 messages in flight."""


class Outgoing:
    """The way out of one connection. For the thread of the event loop alone.

    Args:
        paho: a client of paho that is not connected yet.
        loop: the event loop.
        window: most publications in flight.
        patience: seconds to wait for each acknowledgement.
        write: has paho write what it can.
    """

    def __init__(
        self,
        paho: Any,  # noqa: ANN401 - paho's client, which the core lacks
        loop: asyncio.AbstractEventLoop,
        *,
        window: int,
        patience: float,
        write: Callable[[], None],
    ) -> None:
        self.window = window
        self._patience = patience
        self._deadlines: deque[tuple[float, asyncio.Future[int]]] = deque()  # in order, for all wait equally long
        self._timer: asyncio.TimerHandle | None = None
        self._paho, self._loop, self._write = paho, loop, write
        self._joined = bytearray()
        self._owed = 0  # acknowledgements in it
        self._planned = False
        self._in_flight: dict[int, asyncio.Future[int]] = {}
        self._waiting: deque[tuple[int, bytes, bytes, asyncio.Future[int]]] = deque()  # first byte, topic, payload
        self._queue = paho._packet_queue  # noqa: SLF001 - by which paho sends everything
        paho._packet_queue = self._after_others  # noqa: SLF001

    def check(self) -> None:
        """Before more is read: nobody owes so many acknowledgements.

        Raises:
            ConnectionAbortedError: the broker takes none of them, and sends on.
        """
        if self._owed > _MOST_UNSENT:
            what = "messages without end, and takes none of their acknowledgements"
            _LOG.warning("closed the connection: the broker sends %s", what)
            raise ConnectionAbortedError(what)

    def publish(self, topic: bytes, payload: bytes, *, retain: bool) -> asyncio.Future[int]:
        """Send at QoS 1, as soon as there is room; the reason code that the broker gives comes later.

        Or `TimeoutError`, where it gives none in time.
        """
        acknowledged: asyncio.Future[int] = self._loop.create_future()
        while self._deadlines and self._deadlines[0][1].done():
            self._deadlines.popleft()
        self._deadlines.append((self._loop.time() + self._patience, acknowledged))
        if self._timer is None:
            self._timer = self._loop.call_later(self._patience, self._look_at_deadlines)
        head = _PUBLISH | _AT_LEAST_ONCE | retain
        if len(self._in_flight) < self.window and not self._waiting:
            self._send(head, topic, payload, acknowledged)
        else:
            self._waiting.append((head, topic, payload, acknowledged))
        return acknowledged

    def acknowledged(self, number: int, reason: int) -> None:
        """Take notice of what the broker said to a publication."""
        future = self._in_flight.pop(number, None)
        if future is not None and not future.done():
            future.set_result(reason)
        while self._waiting and len(self._in_flight) < self.window:
            head, topic, payload, future = self._waiting.popleft()
            if not future.done():  # else nobody waits for it any more
                self._send(head, topic, payload, future)

    def acknowledge(self, number: int) -> None:
        """Tell the broker that a message is safe."""
        self._owed += 1
        self._join(_ACKNOWLEDGEMENT + number.to_bytes(2, "big"))

    def end(self, error: Exception) -> None:
        """Let nobody wait for what cannot come any more."""
        if self._timer is not None:
            self._timer.cancel()
        for future in [*self._in_flight.values(), *(future for *_, future in self._waiting)]:
            if not future.done():
                future.set_exception(error)

    def go_on(self) -> None:
        """Hand on what was joined, if paho has written all that it had."""
        if self._joined and not self._paho._out_packet:  # noqa: SLF001
            self._flush()

    def _look_at_deadlines(self) -> None:
        """One timer for all that is in flight: there are thousands, and hardly ever is one late."""
        self._timer, now = None, self._loop.time()
        while self._deadlines:
            deadline, acknowledged = self._deadlines[0]
            if not acknowledged.done():
                if deadline > now:
                    self._timer = self._loop.call_at(deadline, self._look_at_deadlines)
                    return
                acknowledged.set_exception(TimeoutError())
            self._deadlines.popleft()

    def _send(self, head: int, topic: bytes, payload: bytes, acknowledged: asyncio.Future[int]) -> None:
        """Number it now: while it waited, all 65 535 numbers may have gone round. One in flight is nobody else's."""
        number: int = self._paho._mid_generate()  # noqa: SLF001 - those of subscriptions are from there, too
        while number in self._in_flight:
            number = self._paho._mid_generate()  # noqa: SLF001
        self._in_flight[number] = acknowledged
        version_5 = self._paho._protocol == MQTTProtocolVersion.MQTTv5  # noqa: SLF001
        properties = b"\x00" if version_5 else b""
        body = len(topic).to_bytes(2, "big") + topic + number.to_bytes(2, "big") + properties + payload
        self._join(bytes((head,)) + _length(len(body)) + body)

    def _join(self, packet: bytes) -> None:
        self._joined += packet
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._in_turn)

    def _in_turn(self) -> None:
        self._planned = False
        if not self._paho._out_packet:  # noqa: SLF001 - else the rest of that goes first, and `go_on` is called then
            self._flush()

    def _flush(self) -> None:
        """One write for all of it."""
        self._hand_over()
        self._write()

    def _hand_over(self) -> None:
        if self._joined:
            packet = bytes(self._joined)
            self._joined.clear()
            self._owed = 0
            whole = {
                "command": _PUBLISH | _AT_LEAST_ONCE,
                "mid": 0,
                "qos": 1,
                "pos": 0,
                "to_process": len(packet),
                "packet": packet,
                "info": None,
            }
            self._paho._out_packet.append(whole)  # noqa: SLF001

    def _after_others(self, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - paho's
        """What paho queues by itself goes after what was joined before."""
        self._hand_over()
        return self._queue(*arguments, **keywords)


def _length(length: int) -> bytes:
    """Seven bits a byte, the last below 128."""
    digits = bytearray()
    while length > 0x7F:  # noqa: PLR2004
        digits.append(length & 0x7F | 0x80)
        length >>= 7
    digits.append(length)
    return bytes(digits)
