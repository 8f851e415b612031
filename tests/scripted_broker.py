"""A broker that speaks raw MQTT on a real socket, and fails at the packet that a test names."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import IntEnum

from fake_transport import HEIGHTS

from hush_common.topics import task_topic

__all__ = [
    "Action",
    "Packet",
    "ScriptedBroker",
    "after",
    "half",
    "hang_up",
    "header",
    "message",
    "nonsense",
    "reply_and_hang_up",
    "twice",
]

_FIVE = 5
_LOGINS = {0: 0, 1: 0x84, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}
"""The return codes of MQTT 3.1.1 as reason codes of MQTT 5."""


class Packet(IntEnum):
    """What a client sends, by its MQTT type; 0 is the connection itself, before any packet."""

    NOTHING = 0
    CONNECT = 1
    PUBLISH = 3
    SUBSCRIBE = 8
    PING = 12


Action = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]
"""What to do at a packet, given what would be the right reply."""


async def hang_up(writer: asyncio.StreamWriter, _reply: bytes) -> None:
    writer.close()


async def half(writer: asyncio.StreamWriter, reply: bytes) -> None:
    """Break off in the middle of a packet."""
    writer.write(reply[: max(1, len(reply) // 2)])
    writer.close()


async def reply_and_hang_up(writer: asyncio.StreamWriter, reply: bytes) -> None:
    writer.write(reply)
    writer.close()


async def nonsense(writer: asyncio.StreamWriter, _reply: bytes) -> None:
    writer.write(b"\x00\xff\xff\xff\xff")
    writer.close()


async def twice(writer: asyncio.StreamWriter, reply: bytes) -> None:
    writer.write(reply * 2)


def after(seconds: float) -> Action:
    """Reply late; in the meantime the connection stands still, as that of a slow broker does."""

    async def reply_late(writer: asyncio.StreamWriter, reply: bytes) -> None:
        await asyncio.sleep(seconds)
        writer.write(reply)

    return reply_late


class ScriptedBroker:
    """Serves one task and acknowledges everything, except where a fault is planned.

    Args:
        faults: each happens once, in order, at the next packet of its kind.
        login: the return code of its welcome, of MQTT 3.1.1 (that of MQTT 5 means the same) or of MQTT 5 alone.
        grant: the return code of a subscription.
        task: the payload of its one retained task.
        old: what it does with MQTT 5, where that is more than a broker of 3.1.1 knows; its reply is its refusal.
        limits: the properties of its welcome, under MQTT 5.
        reasons: what it says to the next publications, under MQTT 5: what follows the number of a PUBACK.
    """

    def __init__(
        self,
        *faults: tuple[Packet, Action],
        login: int = 0,
        grant: int = 1,
        task: bytes = HEIGHTS,
        old: Action | None = None,
        limits: bytes = b"",
        reasons: Sequence[bytes] = (),
    ) -> None:
        self.published: list[bytes] = []
        self.connections = 0
        self.versions: list[int] = []
        self._old = old
        self._limits = limits
        self._reasons = list(reasons)
        self.url = ""
        self.faults = list(faults)
        self._login = login
        self._grant = grant
        self._task = task

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ScriptedBroker"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if self._fault(Packet.NOTHING):
                writer.close()
            five = False
            while not writer.is_closing():
                kind, body = await _read_packet(reader)
                if kind == Packet.CONNECT:
                    five = body[6] == _FIVE
                    self.versions.append(body[6])
                    if five and self._old is not None:
                        await self._old(writer, b"\x20\x02\x00\x01")
                        continue
                await self._answer(kind, body, writer, five=five)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, kind: int, body: bytes, writer: asyncio.StreamWriter, *, five: bool) -> None:
        none = b"\x00" if five else b""
        match kind:
            case Packet.CONNECT:
                login = _LOGINS.get(self._login, self._login) if five else self._login
                limits = bytes((len(self._limits),)) + self._limits if five else b""
                reply = _packet(0x20, bytes((0, login)) + limits)
            case Packet.SUBSCRIBE:
                reply = _packet(0x90, body[:2] + none + bytes([self._grant]))
                reply += message(task_topic("heights"), self._task, properties=none)
            case Packet.PUBLISH:
                (length,) = struct.unpack_from(">H", body)
                self.published.append(body[2 + length + 2 + len(none) :])
                said = self._reasons.pop(0) if five and self._reasons else b""
                reply = _packet(0x40, body[2 + length : 4 + length] + said)
            case Packet.PING:
                reply = b"\xd0\x00"
            case _:
                return
        action = self._fault(Packet(kind))
        if action is None:
            writer.write(reply)
        else:
            await action(writer, reply)

    def _fault(self, packet: Packet) -> Action | None:
        if self.faults and self.faults[0][0] == packet:
            return self.faults.pop(0)[1]
        return None


async def _read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """One MQTT packet: its type and its body."""
    head = (await reader.readexactly(1))[0]
    length = shift = 0
    while True:
        (byte,) = await reader.readexactly(1)
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return head >> 4, await reader.readexactly(length)


def header(first: int, length: int) -> bytes:
    """The head of a packet: its first byte, and how many bytes follow."""
    encoded = bytearray((first,))
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((*encoded, length))


def _packet(first: int, body: bytes) -> bytes:
    return header(first, len(body)) + body


def message(topic: str, payload: bytes, *, properties: bytes = b"") -> bytes:
    """A retained message of QoS 0; under MQTT 5 with its properties, their length first."""
    return _packet(0x31, struct.pack(">H", len(topic)) + topic.encode() + properties + payload)
