"""A broker that has a whole backlog in flight, as mosquitto up to 2.0.12 has: packet ids repeat, and a PUBACK deletes
the oldest message with its id. It can also be slow, silent, or hang up in the middle."""

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from paho.mqtt.client import topic_matches_sub
from scripted_broker import header

__all__ = ["FloodingBroker", "Manners"]

_PIECE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How it treats a client.

    Args:
        suback_after: seconds until it answers a subscription; it goes on sending meanwhile.
        retained_for: seconds for which it sends retained messages before it answers a subscription.
        silent_for: seconds for which it sends nothing at all, after half of the backlog.
        hang_up_after: acknowledgements after which it hangs up, on the first connection.
    """

    suback_after: float = 0.0
    retained_for: float = 0.0
    silent_for: float = 0.0
    hang_up_after: int | None = None


@dataclass
class FloodingBroker:
    """Holds messages for one client, and sends all of them at once, whatever was acknowledged.

    Args:
        messages: topics and payloads that wait, in order.
        manners: how it treats the client.
        ids: how many packet ids it has.

    Attributes:
        connections: how many there were.
        published: what the client published, by topic.
    """

    messages: Sequence[tuple[str, bytes]]
    manners: Manners = field(default_factory=Manners)
    ids: int = 65_535
    connections: int = 0
    published: dict[str, bytes] = field(default_factory=dict)
    url: str = ""

    def __post_init__(self) -> None:
        self._waiting = deque((1 + place % self.ids, *one) for place, one in enumerate(self.messages))
        self._acknowledged = 0

    @property
    def left(self) -> int:
        """How many messages are not acknowledged."""
        return len(self._waiting)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FloodingBroker"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = _Connection(self, reader, writer)
        sending: asyncio.Task[None] | None = None
        try:
            async for kind, body in connection.packets():
                if kind == 1:
                    writer.write(b"\x20\x02\x01\x00")  # a session was there
                    sending = asyncio.create_task(connection.send(list(self._waiting)))
                elif kind == 4:
                    self._acknowledge(int.from_bytes(body, "big"))
                    if self.connections == 1 and self._acknowledged == self.manners.hang_up_after:
                        return
                else:
                    connection.answer(kind, body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            if sending is not None:
                sending.cancel()
                with suppress(asyncio.CancelledError, ConnectionError):
                    await sending
            for task in connection.later:
                task.cancel()
            writer.transport.abort()

    def _acknowledge(self, number: int) -> None:
        """Delete the oldest message with this packet id."""
        self._acknowledged += 1
        if self._waiting and self._waiting[0][0] == number:
            self._waiting.popleft()
            return
        for place, (packet_id, _, _) in enumerate(self._waiting):
            if packet_id == number:
                del self._waiting[place]
                return


class _Connection:
    def __init__(self, broker: FloodingBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._broker, self._reader, self._writer = broker, reader, writer
        self.later: list[asyncio.Task[None]] = []
        self._filters: set[str] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def packets(self) -> AsyncIterator[tuple[int, bytes]]:
        kept, at = b"", 0
        while True:
            while len(kept) - at >= 2 and (packet := _packet(kept, at)) is not None:
                kind, body, at = packet
                yield kind, body
            data = await self._reader.read(65_536)
            if not data:
                return
            kept, at = kept[at:] + data, 0

    async def send(self, waiting: list[tuple[int, str, bytes]]) -> None:
        again = 0x08 if self._broker.connections > 1 else 0
        half = len(waiting) // 2
        for start in range(0, len(waiting), _PIECE):
            if self._broker.manners.silent_for and start <= half < start + _PIECE:
                self._quiet.clear()
                await asyncio.sleep(self._broker.manners.silent_for)
                self._quiet.set()
            self._writer.write(
                b"".join(
                    _message(topic, payload, packet_id, 0x32 | again)
                    for packet_id, topic, payload in waiting[start : start + _PIECE]
                )
            )
            await self._writer.drain()

    def answer(self, kind: int, body: bytes) -> None:
        if kind == 3:
            (length,) = struct.unpack_from(">H", body)
            topic, payload = body[2 : 2 + length].decode(), body[4 + length :]
            self._broker.published[topic] = payload
            reply = b"\x40\x02" + body[2 + length : 4 + length]
            if any(topic_matches_sub(wanted, topic) for wanted in self._filters):
                reply += _message(topic, payload, 0, 0x30)
            self._later(0.0, reply)
        elif kind == 8:
            asked = [wanted.decode() for wanted in _filters(body[2:])]
            self._filters.update(asked)
            count = len(asked)
            self._later(self._broker.manners.suback_after, b"\x90" + bytes((2 + count,)) + body[:2] + b"\x01" * count)
        elif kind == 12:
            self._later(0.0, b"\xd0\x00")

    def _later(self, seconds: float, reply: bytes) -> None:
        async def reply_later() -> None:
            if reply[0] == 0x90 and self._broker.manners.retained_for:
                end = asyncio.get_running_loop().time() + self._broker.manners.retained_for
                while asyncio.get_running_loop().time() < end:
                    self._writer.write(_message("hush/v1/tasks/another", b"{}", 0, 0x31))
                    await asyncio.sleep(0.05)
            await asyncio.sleep(seconds)
            await self._quiet.wait()
            self._writer.write(reply)

        self.later.append(asyncio.create_task(reply_later()))


def _packet(kept: bytes, at: int) -> tuple[int, bytes, int] | None:
    """Kind and body of the packet that begins there, and where the next one does; None if it has not come whole."""
    length, place = 0, at + 1
    for shift in (0, 7, 14, 21):
        if place >= len(kept):
            return None
        length |= (kept[place] & 0x7F) << shift
        place += 1
        if kept[place - 1] < 0x80:
            break
    end = place + length
    return (kept[at] >> 4, kept[place:end], end) if end <= len(kept) else None


def _filters(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        (length,) = struct.unpack_from(">H", body, at)
        yield body[at + 2 : at + 2 + length]
        at += 3 + length


def _message(topic: str, payload: bytes, packet_id: int, first: int) -> bytes:
    name = topic.encode()
    number = struct.pack(">H", packet_id) if first & 0x06 else b""
    body = struct.pack(">H", len(name)) + name + number + payload
    return header(first, len(body)) + body
