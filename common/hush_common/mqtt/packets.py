"""Packets that are too long are truncated, because paho keeps in memory whatever a broker sends.

A packet of MQTT 3.1.1 may have 256 MiB, and nothing tells a broker to keep such ones to itself. Hanging up would let
whoever may publish one switch off all who subscribe to it, for good: a retained message comes again with the next
connection, and so does one that was not acknowledged. So the message is cut as it comes, and what is left is longer
than anything legal: whoever decodes it refuses it like any other nonsense. It is what a broker of MQTT 5 does for a
client that names its limit: that message is lost to it, and the others come.

Everything else that is too long no broker has a reason to send: that ends the connection.
"""

import logging
import struct
import time
from collections.abc import Callable
from typing import Any

__all__ = ["limit_packets", "longest_packet"]

_LOG = logging.getLogger(__name__)

_PUBLISH, _KIND = 0x30, 0xF0
_EXACTLY_ONCE, _QOS = 0x04, 0x06
_BEFORE = 2 + 65_535 + 2
"""The most that stands before the payload of a message: the length of its topic, the topic, and a number. Properties of
MQTT 5 count as payload: no task comes with many."""
_PIECE = 64 * 1024
_MOST_UNSENT = 70_000
"""Packets that wait to be taken: a broker has at most 65 535 messages in flight, each with one acknowledgement."""
_TELL_EVERY_S = 60.0

# Of a WebSocket, RFC 6455, 5.2 and 5.5
_CONTROL, _LONGEST_CONTROL = 0x08, 125
_MASKED = 0x80
_EXTENDED = {0x7E: struct.Struct(">H"), 0x7F: struct.Struct(">Q")}


def longest_packet(most: int) -> int:
    """Bytes of a packet that has a payload of at most `most`, and is never cut; without its head."""
    return _BEFORE + most


def limit_packets(paho: Any, most: int, name: str) -> Callable[[], None]:  # noqa: ANN401 - paho's client, which the core lacks
    """Cut messages with payloads of more than `most` bytes to a little more than that, as they come.

    Returns a check, for those who read ahead: it raises an `OSError` if the packet that paho reads ends the connection.

    Args:
        paho: a client of paho that is not connected yet.
        most: bytes of a payload.
        name: of the broker, for the log.
    """
    limit = _Limit(paho, most, name)
    paho._sock_recv = limit  # noqa: SLF001 - by which paho reads everything
    return limit.check


class _Limit:
    """Reads for paho, in its stead."""

    def __init__(self, paho: Any, most: int, name: str) -> None:  # noqa: ANN401 - paho's client
        self._paho = paho
        self._read = paho._sock_recv  # noqa: SLF001
        self._most = most
        self._name = name
        self._tell_at = 0.0

    def __call__(self, size: int) -> bytes:
        """The next bytes, at most `size`.

        Raises:
            OSError: as the socket does, or what came ends the connection: paho takes both for the same.
        """
        self.check()
        packet = self._paho._in_packet  # noqa: SLF001
        length, kind = packet["remaining_length"], packet["command"]
        if packet["have_remaining"] and length > longest_packet(self._most):
            if kind & _KIND != _PUBLISH:
                raise self._refusal(f"a packet of {length} bytes that is not a message")
            self._tell(
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
        """Refuse what no limit of length is for.

        Raises:
            OSError: it ends the connection.
        """
        if self._paho._in_packet["command"] & (_KIND | _QOS) == _PUBLISH | _EXACTLY_ONCE:  # noqa: SLF001
            raise self._refusal("messages of QoS 2, which nobody subscribed to")  # paho collects them
        if len(self._paho._out_packet) > _MOST_UNSENT:  # noqa: SLF001
            raise self._refusal("messages without end, and takes none of their acknowledgements")

    def _forget_read(self, frames: Any) -> None:  # noqa: ANN401 - paho's WebSocket
        """Let a WebSocket forget what it has handed out of a frame: it keeps all of it, and copies it at each read."""
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
        self._tell(f"closed the connection: it sends {what}")
        return ConnectionAbortedError(what)

    def _tell(self, what: str) -> None:
        """One line a minute, however many there are."""
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + _TELL_EVERY_S
            _LOG.warning("%s: %s", self._name, what)
