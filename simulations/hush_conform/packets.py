"""MQTT 3.1.1 and 5 as a broker reads and writes it: strict, so that a mistake of the client is found here."""

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum

LONGEST = 1 << 20
"""Most bytes of a packet that a device may send."""

OLD, NEW = 4, 5
"""The protocol levels of MQTT 3.1.1 and 5."""


class Kind(IntEnum):
    """The packets of MQTT that a client sends."""

    CONNECT = 1
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    UNSUBSCRIBE = 10
    PINGREQ = 12
    DISCONNECT = 14
    AUTH = 15


class PacketError(Exception):
    """A client broke a rule of MQTT; the message says which."""


_FLAGS = {Kind.PUBREL: 2, Kind.SUBSCRIBE: 2, Kind.UNSUBSCRIBE: 2}
_SEVEN_BITS = 0x7F
_LENGTH_BYTES = 4
_TOPIC_ALIAS = 0x23
_NOT_UTF8 = "contains text that is not UTF-8"
_SIZES = {  # of the values of properties, by identifier; text and binary data state theirs
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}
_TEXTS = {0x03: 1, 0x08: 1, 0x09: 1, 0x12: 1, 0x15: 1, 0x16: 1, 0x1A: 1, 0x1C: 1, 0x1F: 1, 0x26: 2}
_VARIABLE = 0x0B


async def read_packet(read: Callable[[int], Awaitable[bytes]]) -> tuple[Kind, int, bytes]:
    """Read a packet; return its kind, its flags and its body.

    Raises:
        PacketError: it is not one that a client may send.
    """
    (head,) = await read(1)
    length = 0
    for place in range(_LENGTH_BYTES):
        (byte,) = await read(1)
        length |= (byte & _SEVEN_BITS) << 7 * place
        if byte <= _SEVEN_BITS:
            break
    else:
        raise PacketError("sends a packet whose length has more than four bytes")
    try:
        kind = Kind(head >> 4)
    except ValueError:
        raise PacketError(f"sends a packet of type {head >> 4}, which no client may send") from None
    if length > LONGEST:
        raise PacketError(f"sends a packet of {length} bytes; a report has fewer than {LONGEST}")
    flags = head & 0x0F
    if kind != Kind.PUBLISH and flags != _FLAGS.get(kind, 0):
        raise PacketError(f"sends a {kind.name} with the flags {flags}, which MQTT reserves")
    return kind, flags, await read(length)


class Body:
    """Reads the body of a packet from left to right; PacketError where it ends early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise PacketError("sends a packet that ends early")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int = 2) -> int:
        return int.from_bytes(self.take(size), "big")

    def binary(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        try:
            return self.binary().decode("utf-8")
        except UnicodeDecodeError:
            raise PacketError(_NOT_UTF8) from None

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._data)

    def variable(self) -> int:
        """Read an integer of one to four bytes."""
        found = 0
        for place in range(_LENGTH_BYTES):
            byte = self.number(1)
            found |= (byte & _SEVEN_BITS) << 7 * place
            if byte <= _SEVEN_BITS:
                return found
        raise PacketError("sends an integer of more than four bytes")

    def properties(self) -> set[int]:
        """Read the properties of MQTT 5; return their identifiers."""
        inner, found = Body(self.take(self.variable())), set[int]()
        while not inner.is_empty:
            identifier = inner.variable()
            found.add(identifier)
            if identifier == _VARIABLE:
                inner.variable()
            elif identifier in _TEXTS:
                for _ in range(_TEXTS[identifier]):
                    inner.binary()
            elif identifier in _SIZES:
                inner.take(_SIZES[identifier])
            else:
                raise PacketError(f"sends a property of MQTT 5 that does not exist, {identifier:#04x}")
        return found


@dataclass(frozen=True, slots=True)
class Connect:
    version: int  # OLD or NEW; another one is to be refused
    is_clean: bool
    client_id: str


def read_connect(body: Body) -> Connect:
    name, version = body.text(), body.number(1)
    if name != "MQTT":
        raise PacketError(f"connects with the protocol {name[:20]!r} instead of 'MQTT'")
    if version not in (OLD, NEW):
        return Connect(version, is_clean=True, client_id="")
    flags = body.number(1)
    body.number()  # keep alive
    if flags & 1:
        raise PacketError("connects with a flag that MQTT reserves")
    if version == NEW:
        body.properties()
    client_id = body.text()
    if flags & 0x04:  # a will
        if version == NEW:
            body.properties()
        body.text()
        body.binary()
    for flag in (0x80, 0x40):  # user, password
        if flags & flag:
            body.binary()
    if not body.is_empty:
        raise PacketError("sends a CONNECT with bytes after its end")
    return Connect(version, bool(flags & 0x02), client_id)


@dataclass(frozen=True, slots=True)
class Publish:
    topic: str
    payload: bytes
    qos: int
    is_retained: bool
    is_duplicate: bool
    number: int  # of the packet; 0 at QoS 0


def read_publish(flags: int, body: Body, version: int) -> Publish:
    qos = flags >> 1 & 3
    if qos == 3:  # noqa: PLR2004 - both bits
        raise PacketError("publishes at QoS 3, which does not exist")
    topic = body.text()
    number = body.number() if qos else 0
    if qos and not number:
        raise PacketError("publishes with the packet identifier 0")
    if version == NEW and _TOPIC_ALIAS in body.properties():
        raise PacketError("uses a topic alias, which the broker did not allow")
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        raise PacketError(f"publishes to {topic[:80]!r}, which is not the name of a topic")
    return Publish(topic, body.rest(), qos, bool(flags & 1), bool(flags & 8), number)


def read_filters(body: Body, version: int, *, options: bool) -> tuple[int, list[tuple[str, int]]]:
    """Read a SUBSCRIBE, or an UNSUBSCRIBE (without options): its packet identifier, and filters with their QoS."""
    number = body.number()
    if not number:
        raise PacketError("subscribes with the packet identifier 0")
    if version == NEW:
        body.properties()
    found = []
    while not body.is_empty:
        topic = body.text()
        found.append((topic, body.number(1) & 3 if options else 0))
    if not found:
        raise PacketError("subscribes to nothing")
    return number, found


def write_packet(head: int, body: bytes) -> bytes:
    encoded, length = bytearray((head,)), len(body)
    while length > _SEVEN_BITS:
        encoded.append(length & _SEVEN_BITS | 0x80)
        length >>= 7
    return bytes((*encoded, length)) + body


def write_connack(version: int, reason: int) -> bytes:
    return write_packet(0x20, bytes((0, reason)) + (b"\x00" if version == NEW else b""))


def write_puback(version: int, number: int, reason: int = 0) -> bytes:
    return write_packet(0x40, struct.pack(">H", number) + (bytes((reason,)) if version == NEW and reason else b""))


def write_acknowledgement(head: int, number: int) -> bytes:
    """Return a PUBREC, PUBREL or PUBCOMP."""
    return write_packet(head, struct.pack(">H", number))


def write_suback(head: int, version: int, number: int, reasons: bytes) -> bytes:
    """Return a SUBACK, or an UNSUBACK, which has no reasons under MQTT 3.1.1."""
    return write_packet(head, struct.pack(">H", number) + (b"\x00" if version == NEW else b"") + reasons)


def write_publish(version: int, topic: str, payload: bytes, *, qos: int, number: int, retained: bool) -> bytes:
    name = topic.encode()
    body = struct.pack(">H", len(name)) + name
    body += struct.pack(">H", number) if qos else b""
    body += b"\x00" if version == NEW else b""
    return write_packet(0x30 | qos << 1 | retained, body + payload)


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic is one of those that a filter subscribes to."""
    levels, names = pattern.split("/"), topic.split("/")
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place >= len(names) or level not in ("+", names[place]):
            return False
    return len(levels) == len(names)
