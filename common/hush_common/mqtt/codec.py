"""MQTT 3.1.1 and 5: bytes to packets and back, for a client and for a broker. Strict and bounded, without a socket.

`PacketReader` splits a stream into packets, the `read_…` functions parse the bodies, and the `write_…` functions return
the bytes of whole packets.
"""

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

OLD, NEW = 4, 5
"""The protocol levels of MQTT 3.1.1 and 5."""


class Kind(IntEnum):
    """The types of packets."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


OF_CLIENTS = frozenset(Kind) - {Kind.CONNACK, Kind.SUBACK, Kind.UNSUBACK, Kind.PINGRESP}
"""What a client may send."""


class PacketError(Exception):
    """The other side broke a rule of MQTT; the message says which: `sends a PINGREQ with the flags 1, …`."""


class Packet(NamedTuple):
    kind: Kind
    flags: int  # of its first byte
    body: bytes


_FLAGS = {Kind.PUBREL: 2, Kind.SUBSCRIBE: 2, Kind.UNSUBSCRIBE: 2}
_SEVEN_BITS = 0x7F  # of a length, in each byte
_LENGTH_BYTES = 4  # of a length, at most
_NO_KIND = "sends a packet of type {}, which it may not send"


class PacketReader:
    """Splits a stream into packets, and stores no more of it than one packet.

    Args:
        kinds: the packets that the other side may send.
        longest: most bytes of a body.
    """

    def __init__(self, kinds: Collection[Kind], longest: int) -> None:
        self._kinds = {int(kind): kind for kind in kinds}
        self._longest = longest
        self._data = b""
        self._at = 0
        self._rest = bytearray()  # the start of a packet
        self._needed = 0  # bytes of it that are needed to go on

    def feed(self, data: bytes) -> None:
        """Add received bytes, once `next_packet` has returned None for those before."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest.clear()
        self._data, self._at = data, 0

    def next_packet(self) -> Packet | None:
        """Return the next whole packet, or None until more is fed.

        Raises:
            PacketError: the other side may not send it.
        """
        data, at, size = self._data, self._at, len(self._data)
        if at == size:
            return None
        kind = self._kind(data[at])
        length = place = 0
        for place in range(1, _LENGTH_BYTES + 1):
            if at + place >= size:
                self._wait(place + 1)
                return None
            byte = data[at + place]
            length |= (byte & _SEVEN_BITS) << 7 * (place - 1)
            if byte <= _SEVEN_BITS:
                break
        else:
            raise PacketError("sends a packet whose length has more than four bytes")
        start = at + place + 1
        if length > self._longest:
            raise PacketError(f"sends a {kind.name} of {length} bytes; it may have {self._longest}")
        if start + length > size:
            self._wait(start + length - at)
            return None
        self._at = start + length
        return Packet(kind, data[at] & 0x0F, data[start : self._at])

    def _kind(self, head: int) -> Kind:
        kind = self._kinds.get(head >> 4)
        if kind is None:
            raise PacketError(_NO_KIND.format(head >> 4))
        if kind is not Kind.PUBLISH and head & 0x0F != _FLAGS.get(kind, 0):
            raise PacketError(f"sends a {kind.name} with the flags {head & 0x0F}, which MQTT reserves")
        return kind

    def _wait(self, needed: int) -> None:
        self._rest += self._data[self._at :]
        self._data, self._at, self._needed = b"", 0, needed


_TOPIC_ALIAS = 0x23
_SIZES = {  # of the values of properties, by identifier; text and binary data state theirs
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}
_TEXTS = {0x03: 1, 0x08: 1, 0x09: 1, 0x12: 1, 0x15: 1, 0x16: 1, 0x1A: 1, 0x1C: 1, 0x1F: 1, 0x26: 2}
_VARIABLE = 0x0B


class _Body:
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

    def packet_id(self) -> int:
        number = self.number()
        if not number:
            raise PacketError("sends the packet identifier 0")
        return number

    def binary(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        try:
            return self.binary().decode("utf-8")
        except UnicodeDecodeError:
            raise PacketError("sends text that is not UTF-8") from None

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._data)

    def end(self, kind: Kind) -> None:
        if not self.is_empty:
            raise PacketError(f"sends a {kind.name} with bytes after its end")

    def variable(self) -> int:
        """Read an integer of one to four bytes."""
        found = 0
        for place in range(_LENGTH_BYTES):
            byte = self.number(1)
            found |= (byte & _SEVEN_BITS) << 7 * place
            if byte <= _SEVEN_BITS:
                return found
        raise PacketError("sends an integer of more than four bytes")

    def properties(self, version: int) -> dict[int, int]:
        """Read the properties of MQTT 5; return the numbers by identifier, and 0 for each text."""
        found: dict[int, int] = {}
        if version != NEW:
            return found
        inner = _Body(self.take(self.variable()))
        while not inner.is_empty:
            identifier = inner.variable()
            found[identifier] = 0
            if identifier == _VARIABLE:
                found[identifier] = inner.variable()
            elif identifier in _TEXTS:
                for _ in range(_TEXTS[identifier]):
                    inner.binary()
            elif identifier in _SIZES:
                found[identifier] = inner.number(_SIZES[identifier])
            else:
                raise PacketError(f"sends a property of MQTT 5 that does not exist, {identifier:#04x}")
        return found


# What a client sends


@dataclass(frozen=True, slots=True)
class Connect:
    version: int  # OLD or NEW; another one is to be refused
    is_clean: bool
    client_id: str


def read_connect(body: bytes) -> Connect:
    data = _Body(body)
    name, version = data.text(), data.number(1)
    if name != "MQTT":
        raise PacketError(f"connects with the protocol {name[:20]!r} instead of 'MQTT'")
    if version not in (OLD, NEW):
        return Connect(version, is_clean=True, client_id="")
    flags = data.number(1)
    data.number()  # keep alive
    if flags & 1:
        raise PacketError("connects with a flag that MQTT reserves")
    data.properties(version)
    client_id = data.text()
    if flags & 0x04:  # a will
        data.properties(version)
        data.text()
        data.binary()
    for flag in (0x80, 0x40):  # user, password
        if flags & flag:
            data.binary()
    data.end(Kind.CONNECT)
    return Connect(version, bool(flags & 0x02), client_id)


@dataclass(frozen=True, slots=True)
class Publish:
    topic: str
    payload: bytes
    qos: int
    is_retained: bool
    is_duplicate: bool
    number: int  # of the packet; 0 at QoS 0


def read_publish(packet: Packet, version: int) -> Publish:
    data, qos = _Body(packet.body), packet.flags >> 1 & 3
    if qos == 3:  # noqa: PLR2004 - both bits
        raise PacketError("publishes at QoS 3, which does not exist")
    topic = data.text()
    number = data.packet_id() if qos else 0
    if _TOPIC_ALIAS in data.properties(version):
        raise PacketError("uses a topic alias, which the broker did not allow")
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        raise PacketError(f"publishes to {topic[:80]!r}, which is not the name of a topic")
    return Publish(topic, data.rest(), qos, bool(packet.flags & 1), bool(packet.flags & 8), number)


def read_filters(packet: Packet, version: int) -> tuple[int, list[tuple[str, int]]]:
    """Read a SUBSCRIBE or an UNSUBSCRIBE: its packet identifier, and filters with their QoS, 0 of an UNSUBSCRIBE."""
    data = _Body(packet.body)
    number = data.packet_id()
    data.properties(version)
    found = []
    while not data.is_empty:
        topic = data.text()
        found.append((topic, data.number(1) & 3 if packet.kind is Kind.SUBSCRIBE else 0))
    if not found:
        raise PacketError("subscribes to nothing")
    return number, found


def read_packet_id(body: bytes) -> int:
    """Return the packet identifier at the start of an acknowledgement."""
    return _Body(body).number()


# What a broker sends


def write_packet(head: int, body: bytes) -> bytes:
    encoded, length = bytearray((head,)), len(body)
    while length > _SEVEN_BITS:
        encoded.append(length & _SEVEN_BITS | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + body


def write_connack(version: int, reason: int, *, resumed: bool = False, properties: bytes = b"") -> bytes:
    more = bytes((len(properties),)) + properties if version == NEW else b""
    return write_packet(0x20, bytes((resumed, reason)) + more)


def write_puback(version: int, number: int, reason: int = 0) -> bytes:
    return write_packet(0x40, struct.pack(">H", number) + (bytes((reason,)) if version == NEW and reason else b""))


def write_acknowledgement(kind: Kind, number: int) -> bytes:
    """Return a PUBREC or a PUBCOMP."""
    return write_packet(kind << 4, struct.pack(">H", number))


def write_suback(version: int, number: int, reasons: Iterable[int]) -> bytes:
    return write_packet(0x90, struct.pack(">H", number) + _no_properties(version) + bytes(reasons))


def write_unsuback(version: int, number: int, count: int) -> bytes:
    """Return the answer to an UNSUBSCRIBE of `count` filters."""
    return write_packet(0xB0, struct.pack(">H", number) + (bytes(1 + count) if version == NEW else b""))


def write_publish(version: int, topic: bytes, payload: bytes, *, qos: int, number: int, retained: bool) -> bytes:
    body = struct.pack(">H", len(topic)) + topic
    body += struct.pack(">H", number) if qos else b""
    return write_packet(0x30 | qos << 1 | retained, body + _no_properties(version) + payload)


PINGRESP = b"\xd0\x00"


def _no_properties(version: int) -> bytes:
    return b"\x00" if version == NEW else b""
