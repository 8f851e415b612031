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
_MOST_UNSENT = 70_000
"""Acknowledgements: a broker has at most 65 535 messages in flight."""


class Outgoing:
    """The way out of one connection. For the thread of the event loop alone.

    Args:
        paho: a client of paho that is not connected yet.
        loop: the event loop.
        window: most publications in flight.
        patience: seconds to wait for each answer. They count only up to the newest moment for which it is known that
            everything has come which the broker had sent by then (`answered_until`): a broker that sends much else
            first is not late.
        write: has paho write what it can.
        ask: called when an answer is late, so that `answered_until` moves.
    """

    def __init__(
        self,
        paho: Any,  # noqa: ANN401 - paho's client, which the core lacks
        loop: asyncio.AbstractEventLoop,
        *,
        window: int,
        patience: float,
        write: Callable[[], None],
        ask: Callable[[], object],
    ) -> None:
        self.window = window
        self._patience = patience
        self._ask = ask
        self._expected: deque[tuple[float, asyncio.Future[Any]]] = deque()  # since when, in order
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
        self.expect(acknowledged)
        head = _PUBLISH | _AT_LEAST_ONCE | retain
        if len(self._in_flight) < self.window and not self._waiting:
            self._send(head, topic, payload, acknowledged)
        else:
            self._waiting.append((head, topic, payload, acknowledged))
        return acknowledged

    def acknowledged(self, number: int, reason: int) -> None:
        """Handle the broker's answer to a publication."""
        future = self._in_flight.pop(number, None)
        if future is not None and not future.done():
            future.set_result(reason)
        while self._waiting and len(self._in_flight) < self.window:
            head, topic, payload, future = self._waiting.popleft()
            if not future.done():  # else nobody waits for it any more
                self._send(head, topic, payload, future)

    def expect(self, answer: "asyncio.Future[Any]") -> None:
        """Let an answer of the broker fail with `TimeoutError` if it is late."""
        while self._expected and self._expected[0][1].done():
            self._expected.popleft()
        self._expected.append((self._loop.time(), answer))
        if self._timer is None:
            self._timer = self._loop.call_later(self._patience, self._check_expected)

    def answered_until(self, moment: float) -> None:
        """Note that everything has come which the broker had sent by this moment of the event loop."""
        while self._expected and (self._expected[0][1].done() or self._expected[0][0] + self._patience <= moment):
            _, answer = self._expected.popleft()
            if not answer.done():
                answer.set_exception(TimeoutError())

    def acknowledge(self, packets: bytes, count: int) -> None:
        """Send `count` acknowledgements."""
        self._owed += count
        self._join(packets)

    def end(self, error: Exception) -> None:
        """Let every answer fail that is still expected."""
        if self._timer is not None:
            self._timer.cancel()
        waiting = (future for *_, future in self._waiting)
        for future in [*self._in_flight.values(), *waiting, *(answer for _, answer in self._expected)]:
            if not future.done():
                future.set_exception(error)

    def go_on(self) -> None:
        """Hand on what was joined, if paho has written all that it had."""
        if self._joined and not self._paho._out_packet:  # noqa: SLF001
            self._flush()

    def _check_expected(self) -> None:
        """One timer for all answers: there are thousands, and hardly ever is one late."""
        self._timer, now = None, self._loop.time()
        while self._expected and self._expected[0][1].done():
            self._expected.popleft()
        if self._expected:
            due = self._expected[0][0] + self._patience
            if due <= now:
                self._ask()
            self._timer = self._loop.call_at(due if due > now else now + self._patience, self._check_expected)

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
