"""MQTT packets, read and written instead of paho: many in one system call, and truncated if they are too long.

paho keeps in memory everything that a broker sends. A packet of MQTT 3.1.1 may have 256 MiB, and a client cannot limit
it. Hanging up would let anyone who may publish such a packet disconnect all subscribers permanently: a retained message
comes again with the next connection, and so does an unacknowledged one. So the message is truncated while it is read.
It is still longer than any legal payload, so the decoder refuses it like any other invalid one. Under MQTT 5 a client
states its limit, and the broker drops only that message. Other packets of such a length end the connection.
"""

import asyncio
import logging
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion

_LOG = logging.getLogger(__name__)

_PUBLISH, _KIND = 0x30, 0xF0
_EXACTLY_ONCE, _QOS = 0x04, 0x06
_BEFORE = 2 + 65_535 + 2
"""Most bytes before the payload of a message: the length of its topic, the topic, and a number. Properties of
MQTT 5 count as payload: a task has few."""
_PIECE = 64 * 1024
_MOST_UNSENT = 70_000
"""Packets that wait to be sent: a broker has at most 65 535 messages in flight, each with one acknowledgement."""
_LOG_EVERY_S = 60.0

# Of a WebSocket, RFC 6455, 5.2 and 5.5
_CONTROL, _LONGEST_CONTROL = 0x08, 125
_MASKED = 0x80
_EXTENDED = {0x7E: struct.Struct(">H"), 0x7F: struct.Struct(">Q")}


def longest_packet(most: int) -> int:
    """Return the bytes, without the fixed header, of the longest packet that is never truncated."""
    return _BEFORE + most


def limit_packets(paho: Any, most: int, name: str) -> Callable[[], None]:  # noqa: ANN401 - paho's client, which the core lacks
    """Truncate messages with payloads of more than `most` bytes to a little more than that, while they are read.

    Return a check for code that reads ahead: it raises an `OSError` if the packet that paho reads ends the connection.
    """
    limit = _Limit(paho, most, name)
    paho._sock_recv = limit  # noqa: SLF001 - by which paho reads everything
    return limit.check


class _Limit:
    def __init__(self, paho: Any, most: int, name: str) -> None:  # noqa: ANN401 - paho's client
        self._paho = paho
        self._read = paho._sock_recv  # noqa: SLF001
        self._most = most
        self._name = name
        self._log_at = 0.0

    def __call__(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; an OSError ends the connection."""
        self.check()
        packet = self._paho._in_packet  # noqa: SLF001
        length, kind = packet["remaining_length"], packet["command"]
        if packet["have_remaining"] and length > longest_packet(self._most):
            if kind & _KIND != _PUBLISH:
                raise self._refusal(f"a packet of {length} bytes that is not a message")
            self._log(
                f"truncated a message of {length} bytes: payload and MQTT 5 properties together may have {self._most}"
            )
            del packet["packet"][longest_packet(self._most) :]
            size = min(size, _PIECE)
        try:
            data: bytes = self._read(size)
        finally:
            if getattr(self._paho._sock, "_payload_head", 0):  # noqa: SLF001
                self._forget_read(self._paho._sock)  # noqa: SLF001
        return data

    def check(self) -> None:
        """Refuse packets that no length limit covers; an OSError ends the connection."""
        if self._paho._in_packet["command"] & (_KIND | _QOS) == _PUBLISH | _EXACTLY_ONCE:  # noqa: SLF001
            raise self._refusal("messages of QoS 2, which nobody subscribed to")  # paho collects them
        if len(self._paho._out_packet) > _MOST_UNSENT:  # noqa: SLF001
            raise self._refusal("messages without end, and reads none of their acknowledgements")

    def _forget_read(self, frames: Any) -> None:  # noqa: ANN401 - paho's WebSocket
        """Delete the bytes of a WebSocket frame that are read: paho keeps and copies the frame at each read."""
        kept, read = frames._readbuffer, frames._payload_head  # noqa: SLF001
        extended = _EXTENDED.get(kept[1] & 0x7F)
        start = 2 if extended is None else 2 + extended.size
        left = (kept[1] & 0x7F if extended is None else extended.unpack_from(kept, 2)[0]) - read
        mask = b""
        if kept[1] & _MASKED:
            mask = kept[start : start + 4]
            mask = mask[read % 4 :] + mask[: read % 4]
        if kept[0] & _CONTROL:
            if read + left > _LONGEST_CONTROL:
                raise self._refusal("a control frame of a WebSocket that is too long")
            return
        header = bytes((kept[0], kept[1] & _MASKED | 0x7F)) + _EXTENDED[0x7F].pack(left) + mask
        frames._readbuffer = bytearray(header)  # noqa: SLF001 - it held the header and what was read, no more
        frames._payload_head = 0  # noqa: SLF001

    def _refusal(self, what: str) -> OSError:
        self._log(f"closed the connection: it sends {what}")
        return ConnectionAbortedError(what)

    def _log(self, what: str) -> None:
        """Log at most one line a minute."""
        if time.monotonic() >= self._log_at:
            self._log_at = time.monotonic() + _LOG_EVERY_S
            _LOG.warning("%s: %s", self._name, what)


_PUBACK, _QOS_1, _QOS_2, _RETAIN = 0x40, 0x02, 0x04, 0x01
_SEVEN_BITS = 0x7F  # of a length, in each byte
_LENGTH_BYTES = 4  # of a length, at most
_NUMBER_BYTES = 2


class Message(NamedTuple):
    """A received message, unchecked; `packet_id` has two bytes, or none at QoS 0."""

    topic: bytes
    packet_id: bytes
    payload: bytes
    retain: int  # 1 if the broker had stored it before the subscription, else 0


class Incoming:
    """Reads runs of whole packets for one connection, instead of paho; packets of other kinds are left to paho.

    paho makes three system calls and a dozen Python calls for each packet. Here one system call reads everything that
    has arrived, and one loop splits it into messages. Over a WebSocket, which buffers itself, nothing is read ahead.

    paho also ends the connection at an acknowledgement with a reason code that the standard has for other packets
    (mosquitto answers 0x95 if a message is too large), and at unusual properties of a message. The broker sends the
    same again on the next connection, so anyone who may retain one message could lock out all its subscribers. hush
    needs no property of MQTT 5: it reads their length and skips them.

    `paho` is a client that is not connected yet, after `limit_packets`, which returned `check` and may truncate packets
    longer than `whole` bytes. `messages` is called with messages of QoS 0 and 1, in order; `acknowledged` with the
    packet id of each PUBACK, and its reason code.
    """

    def __init__(
        self,
        paho: Any,  # noqa: ANN401 - paho's client, which the core lacks
        whole: int,
        check: Callable[[], None],
        *,
        messages: Callable[[list[Message]], object],
        acknowledged: Callable[[int, int], object],
    ) -> None:
        self._paho = paho
        self._whole = whole
        self._check = check
        self._messages = messages
        self._acknowledged = acknowledged
        self._receive = paho._sock_recv  # noqa: SLF001 - by which paho reads everything
        self._piece = 0 if paho._transport == "websockets" else _PIECE  # noqa: SLF001
        self._kept = b""
        self._at = 0
        self._handed = 0  # grows whenever anything is read, or handed to paho
        self.has_read: bool = False  # whether anything was read since this was last set to False
        paho._sock_recv = self._for_paho  # noqa: SLF001
        paho._handle_pubackcomp = self._paho_acknowledgement  # noqa: SLF001 - by which paho handles them
        paho._handle_publish = self._paho_message  # noqa: SLF001

    def advance(self) -> bool:
        """Read one piece, and pass on the packets in it; return whether there may be more."""
        if not self._piece:
            return self._one_packet()
        handed = self._handed
        if not self._paho._in_packet["command"]:  # noqa: SLF001 - else paho has begun to read a packet
            try:
                piece = self._receive(self._piece)
            except BlockingIOError:
                return False
            except OSError:  # paho runs into it too, and ends the connection
                piece = b""
            if not piece:
                self._paho.loop_read()
                return False
            self.has_read = True
            self._handed += 1
            self._kept = self._kept[self._at :] + piece if self._at < len(self._kept) else piece
            self._at = 0
        self._split()
        return self._handed != handed and self._paho.socket() is not None

    def _one_packet(self) -> bool:
        handed = self._handed
        self._paho.loop_read()
        return self._handed != handed and self._paho.socket() is not None

    def _split(self) -> None:
        """Pass on the packets in what was read; keep the start of an incomplete one, unless paho must read it."""
        while self._paho.socket() is not None:
            if not self._paho._in_packet["command"]:  # noqa: SLF001
                if messages := self._run_of_messages():
                    self._messages(messages)
                if self._run_of_acknowledgements():
                    continue
                if self._is_incomplete():
                    return
            handed = self._handed
            self._paho.loop_read()
            if self._handed == handed:
                return

    def _run_of_messages(self) -> list[Message]:
        """Return the complete messages at the front."""
        kept, at, size, whole = self._kept, self._at, len(self._kept), self._whole
        has_properties = self._has_properties
        messages: list[Message] = []
        add, make = messages.append, tuple.__new__
        while at + 2 <= size:
            head, length = kept[at], kept[at + 1]
            if head & _KIND != _PUBLISH or head & _QOS_2:
                break
            start = at + 2
            if length > _SEVEN_BITS:
                if start >= size or kept[start] > _SEVEN_BITS:
                    break  # longer than 16 KiB, or not there yet
                length = length & _SEVEN_BITS | kept[start] << 7
                start += 1
            end = start + length
            if end > size or length < _NUMBER_BYTES or length > whole:
                break
            after_topic = start + 2 + (kept[start] << 8 | kept[start + 1])
            payload = after_topic + _NUMBER_BYTES if head & _QOS_1 else after_topic
            if payload > end or after_topic == start + 2:
                break  # invalid: paho's way ends the connection
            if has_properties:
                after = _after_properties(kept, payload, end)
                if after is None:
                    break
            else:
                after = payload
            parts = kept[start + 2 : after_topic], kept[after_topic:payload], kept[after:end], head & _RETAIN
            add(make(Message, parts))
            at = end
        self._at = at
        return messages

    def _run_of_acknowledgements(self) -> int:
        """Pass on the complete acknowledgements at the front; return their number."""
        kept, at, size = self._kept, self._at, len(self._kept)
        count = 0
        while at + 2 + _NUMBER_BYTES <= size and kept[at] == _PUBACK:
            length = kept[at + 1]
            end = at + 2 + length
            if end > size or length > _SEVEN_BITS or length < _NUMBER_BYTES:
                break
            if length > _NUMBER_BYTES and not self._has_properties:
                break  # invalid: paho's way ends the connection
            reason = kept[at + 2 + _NUMBER_BYTES] if length > _NUMBER_BYTES else 0
            self._at = at = end
            self._acknowledged(kept[end - length] << 8 | kept[end - length + 1], reason)
            count += 1
        return count

    def _is_incomplete(self) -> bool:
        """Whether the rest is empty, or the start of a packet that fits into a piece."""
        kept, at = self._kept, self._at
        length = 0
        for place in range(_LENGTH_BYTES):
            if at + 1 + place >= len(kept):
                return True
            byte = kept[at + 1 + place]
            length |= (byte & _SEVEN_BITS) << 7 * place
            if byte <= _SEVEN_BITS:
                return length <= self._piece and at + 2 + place + length > len(kept)
        return False

    # What paho reads

    def _for_paho(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end of the connection. OSError as from the socket."""
        self._check()
        if self._at == len(self._kept):
            self._kept, self._at = b"", 0
            received = bytes(self._receive(max(size, self._piece)))
            if received:
                self.has_read = True
                self._handed += 1
            if len(received) <= size:
                return received
            self._kept = received
        data = self._kept[self._at : self._at + size]
        self._at += len(data)
        self._handed += len(data)
        return data

    @property
    def _has_properties(self) -> bool:
        return bool(self._paho._protocol == MQTTProtocolVersion.MQTTv5)  # noqa: SLF001

    def _paho_acknowledgement(self, _kind: str) -> MQTTErrorCode:
        """Handle a PUBACK: a number, and under MQTT 5 perhaps a reason and properties."""
        packet = self._paho._in_packet["packet"]  # noqa: SLF001
        if len(packet) < _NUMBER_BYTES or (len(packet) > _NUMBER_BYTES and not self._has_properties):
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        reason = packet[_NUMBER_BYTES] if len(packet) > _NUMBER_BYTES else 0
        self._acknowledged(int.from_bytes(packet[:_NUMBER_BYTES], "big"), reason)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _paho_message(self) -> MQTTErrorCode:
        """Handle a PUBLISH: topic, number at QoS 1, under MQTT 5 properties, payload."""
        came = self._paho._in_packet  # noqa: SLF001
        head, packet = came["command"], bytes(came["packet"])
        qos, length = (head & 0x06) >> 1, int.from_bytes(packet[:2], "big")
        payload = 2 + length + (_NUMBER_BYTES if qos else 0)
        if qos > 1 or not length or len(packet) < payload:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        packet_id = packet[2 + length : payload]
        if self._has_properties:
            after = _after_properties(packet, payload, len(packet))
            if after is None and came["remaining_length"] <= self._whole:
                return MQTTErrorCode.MQTT_ERR_PROTOCOL
            payload = after or payload  # of a packet that was cut within them, all that is left: an invalid payload
        self._messages([Message(packet[2 : 2 + length], packet_id, packet[payload:], head & _RETAIN)])
        return MQTTErrorCode.MQTT_ERR_SUCCESS


def _after_properties(packet: bytes, start: int, end: int) -> int | None:
    """Return where the payload begins; None if the properties exceed this packet."""
    length = 0
    for place in range(min(_LENGTH_BYTES, end - start)):
        byte = packet[start + place]
        length |= (byte & _SEVEN_BITS) << 7 * place
        if byte <= _SEVEN_BITS:
            after = start + place + 1 + length
            return after if after <= end else None
    return None


_AT_LEAST_ONCE = 0x02


class Outgoing:
    """Sends publications, at most `window` in flight, and acknowledgements; many in one write.

    paho needs a packet, two locks and a system call for each, and wakes the event loop twice. Here they are joined
    until the next turn of the loop. paho sends everything else (connect, subscribe, disconnect), in order. Only for the
    thread of the event loop.

    The seconds of `patience` for each answer count only up to the time until which everything has come that the broker
    had sent (`answered_until`): a broker that sends much else first is not late. `ask` is called when an answer is
    late, so that `answered_until` moves.
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
        """Raise ConnectionAbortedError if the broker keeps sending and reads no acknowledgement."""
        if self._owed > _MOST_UNSENT:
            what = "messages without end, and reads none of their acknowledgements"
            _LOG.warning("closed the connection: the broker sends %s", what)
            raise ConnectionAbortedError(what)

    def publish(self, topic: bytes, payload: bytes, *, retain: bool) -> asyncio.Future[int]:
        """Send at QoS 1 once there is room; return a future of the broker's reason code, or of `TimeoutError`."""
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
            if not future.done():  # otherwise its caller has given up
                self._send(head, topic, payload, future)

    def expect(self, answer: "asyncio.Future[Any]") -> None:
        """Let an answer of the broker fail with `TimeoutError` if it is late."""
        while self._expected and self._expected[0][1].done():
            self._expected.popleft()
        self._expected.append((self._loop.time(), answer))
        if self._timer is None:
            self._timer = self._loop.call_later(self._patience, self._check_expected)

    def answered_until(self, moment: float) -> None:
        """Note that everything has come that the broker had sent by this time of the event loop."""
        while self._expected and (self._expected[0][1].done() or self._expected[0][0] + self._patience <= moment):
            _, answer = self._expected.popleft()
            if not answer.done():
                answer.set_exception(TimeoutError())

    def acknowledge(self, packets: bytes, count: int) -> None:
        """Send `count` acknowledgements."""
        self._owed += count
        self._join(packets)

    def end(self, error: Exception) -> None:
        """Let every expected answer fail."""
        if self._timer is not None:
            self._timer.cancel()
        waiting = (future for *_, future in self._waiting)
        for future in [*self._in_flight.values(), *waiting, *(answer for _, answer in self._expected)]:
            if not future.done():
                future.set_exception(error)

    def go_on(self) -> None:
        """Pass on the joined packets, if paho has written everything before."""
        if self._joined and not self._paho._out_packet:  # noqa: SLF001
            self._flush()

    def _check_expected(self) -> None:
        """Check with one timer for all answers: there are thousands, and hardly ever is one late."""
        self._timer, now = None, self._loop.time()
        while self._expected and self._expected[0][1].done():
            self._expected.popleft()
        if self._expected:
            due = self._expected[0][0] + self._patience
            if due <= now:
                self._ask()
            self._timer = self._loop.call_at(due if due > now else now + self._patience, self._check_expected)

    def _send(self, head: int, topic: bytes, payload: bytes, acknowledged: asyncio.Future[int]) -> None:
        """Number it now, with a number that is not in flight: while it waited, all 65 535 may have been used."""
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
        if not self._paho._out_packet:  # noqa: SLF001 - otherwise the rest of that goes first, and `go_on` is called then
            self._flush()

    def _flush(self) -> None:
        self._hand_over()
        self._write()

    def _hand_over(self) -> None:
        if self._joined:
            packet = bytes(self._joined)
            self._joined.clear()
            self._owed = 0
            parts = {"command": _PUBLISH | _AT_LEAST_ONCE, "mid": 0, "qos": 1, "pos": 0, "info": None}
            whole = {**parts, "to_process": len(packet), "packet": packet}
            self._paho._out_packet.append(whole)  # noqa: SLF001

    def _after_others(self, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - paho's
        """Queue a packet of paho after the joined ones."""
        self._hand_over()
        return self._queue(*arguments, **keywords)


def _length(length: int) -> bytes:
    """Return the encoded length: seven bits a byte, the last byte below 128."""
    digits = bytearray()
    while length > 0x7F:  # noqa: PLR2004
        digits.append(length & 0x7F | 0x80)
        length >>= 7
    digits.append(length)
    return bytes(digits)
