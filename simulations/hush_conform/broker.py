"""The broker of one device: it records everything that the device does, and fails where a check wants it to."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from hush_common.mqtt import codec
from hush_common.mqtt.codec import NEW, OF_CLIENTS, OLD, Kind, Packet, PacketError, PacketReader
from hush_common.topics import matches
from hush_conform.pace import TICK, Pace, Patience


class Reply(Enum):
    """What the broker does with a publication."""

    ACKNOWLEDGE = "acknowledge"
    WITHHOLD = "withhold"  # no answer, as a broker that hangs
    CUT = "cut"  # the connection ends without an answer
    REFUSE = "refuse"  # MQTT 5: not authorized. Under MQTT 3.1.1 the connection ends


NOT_AUTHORIZED = 0x87
_MOST_RECORDED = 4096
"""Connections, subscriptions and messages of one device; no check needs a tenth of that."""
_MOST_BYTES = 64 << 20
"""Of the messages together."""
_REFUSED = 0x80  # of a subscription
_LONGEST = 1 << 20  # most bytes of a packet that a device may send
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Publication:
    """A message of the device, as it arrived."""

    at: float  # time.monotonic()
    connection: int  # from 1
    topic: str
    payload: bytes
    qos: int
    is_retained: bool
    is_duplicate: bool
    reply: Reply


class _Wire(Protocol):
    async def read(self) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class _Socket:
    """The bytes of a TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(_PIECE)

    def write(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    def close(self) -> None:
        self._writer.close()


class _WebSocket:
    """The bytes of a WebSocket: what its messages hold, one after the other."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._incoming = asyncio.StreamReader()
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def read(self) -> bytes:
        return await self._incoming.read(_PIECE)

    def write(self, data: bytes) -> None:
        self._outgoing.put_nowait(data)

    def close(self) -> None:
        self._outgoing.put_nowait(None)

    async def receive(self) -> None:
        with suppress(ConnectionClosed):
            async for message in self._connection:
                if isinstance(message, str):
                    break  # MQTT is binary
                self._incoming.feed_data(message)
        self._incoming.feed_eof()

    async def send(self) -> None:
        with suppress(ConnectionClosed):
            while (data := await self._outgoing.get()) is not None:
                await self._connection.send(data)
        self._connection.transport.abort()
        self._incoming.feed_eof()


@dataclass(eq=False)
class _Link:
    """A connected client."""

    wire: _Wire
    number: int
    version: int = OLD
    filters: dict[str, int] = field(default_factory=dict)
    next_packet: int = 1
    unreleased: set[int] = field(default_factory=set)  # packets of QoS 2

    def deliver(self, topic: str, payload: bytes, *, retained: bool) -> bool:
        """Send a message if the client has subscribed to it; return whether it has."""
        granted = [qos for pattern, qos in self.filters.items() if matches(pattern, topic)]
        if not granted:
            return False
        number, self.next_packet = self.next_packet, self.next_packet % 0xFFFF + 1
        qos = min(max(granted), 1)
        self.wire.write(
            codec.write_publish(self.version, topic.encode(), payload, qos=qos, number=number, retained=retained)
        )
        return True


class DeviceBroker:
    """Serves retained messages to one device, and records what it publishes.

    Attributes:
        publications: every message of the device, in the order of arrival.
        faults: rules of MQTT that it broke, in words.
        replies: what happens to the next publications; after those, each is acknowledged.
        forbids: topics of which a subscription is refused.
        oldest: the lowest version of MQTT that it accepts, and `newest` the highest.
    """

    def __init__(self) -> None:
        self.publications: list[Publication] = []
        self.faults: list[str] = []
        self.replies: deque[Reply] = deque()
        self.forbids: Callable[[str], bool] = lambda _topic: False
        self.newest = NEW
        self.connections: int = 0
        self.subscribed: list[str] = []
        self.runs = 0  # how often the program was started
        self.client_ids: set[tuple[int, str]] = set()  # with the run that used it
        self.delivered: dict[str, float] = {}
        """When the latest message of a topic was first sent to the device; `time.monotonic()`."""
        self.port: int = 0
        self.pace: Pace = Pace()  # of the program that is its device
        self._retained: dict[str, bytes] = {}
        self._links: set[_Link] = set()
        self._changed = asyncio.Event()
        self._recorded = self._bytes = 0

    @asynccontextmanager
    async def running(self, *, websockets: bool = False) -> AsyncIterator["DeviceBroker"]:
        """Listen on a free loopback port while the context is open."""
        if websockets:
            async with _web_server(self._serve) as port:
                self.port = port
                yield self
                self.cut()
            return
        server = await asyncio.start_server(self._serve_socket, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def retain(self, topic: str, payload: bytes) -> None:
        """Publish a retained message; an empty one deletes it."""
        self.delivered.pop(topic, None)
        if payload:
            self._retained[topic] = payload
        else:
            self._retained.pop(topic, None)
        for link in list(self._links):
            if link.deliver(topic, payload, retained=False):
                self.delivered.setdefault(topic, time.monotonic())
        self._changed.set()

    def cut(self) -> None:
        """End every connection, without a word."""
        for link in list(self._links):
            link.wire.close()

    @property
    def is_connected(self) -> bool:
        return bool(self._links)

    async def wait(self, condition: Callable[[], bool], patience: float | Patience) -> bool:
        """Wait until a condition on the broker holds, at most for some seconds of the device; return whether it does.

        Raises:
            StarvedError: the device gets too little of the machine.
        """
        if not isinstance(patience, Patience):
            patience = Patience(self.pace, patience)
        while not condition() and patience.left > 0:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(patience.left, TICK)):
                    await self._changed.wait()
            patience.spend()
        return condition()

    def notify(self) -> None:
        """Let `wait` check its condition again: something else has changed."""
        self._changed.set()

    async def _serve_socket(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(_Socket(reader, writer))

    async def _serve(self, wire: _Wire) -> None:
        self.connections += 1
        link = _Link(wire, self.connections)
        try:
            self._record()
            await self._session(link)
        except PacketError as error:
            if (fault := str(error)) not in self.faults:
                self.faults.append(fault)
        except OSError:
            pass
        finally:
            self._links.discard(link)
            wire.close()
            self._changed.set()

    def _record(self, size: int = 0) -> None:
        """Count something that is recorded; PacketError, which ends the connection, if it is too much."""
        self._recorded += 1
        self._bytes += size
        if self._recorded > _MOST_RECORDED:
            raise PacketError(f"makes more than {_MOST_RECORDED} connections, subscriptions and messages")
        if self._bytes > _MOST_BYTES:
            raise PacketError(f"sends more than {_MOST_BYTES >> 20} MiB")

    async def _session(self, link: _Link) -> None:
        reader = PacketReader(OF_CLIENTS, _LONGEST)
        greeted = False
        while data := await link.wire.read():
            reader.feed(data)
            while (packet := reader.next_packet()) is not None:
                goes_on = self._answer(link, packet) if greeted else self._greet(link, packet)
                self._changed.set()
                if not goes_on:
                    return
                greeted = True

    def _greet(self, link: _Link, packet: Packet) -> bool:
        """Answer the first packet; return whether the connection continues."""
        if packet.kind != Kind.CONNECT:
            raise PacketError(f"sends a {packet.kind.name} before its CONNECT")
        hello = codec.read_connect(packet.body)
        if hello.version not in (OLD, NEW) or hello.version > self.newest:
            link.wire.write(codec.write_connack(OLD, 1))
            return False
        link.version = hello.version
        self.client_ids.add((self.runs, hello.client_id))
        link.wire.write(codec.write_connack(link.version, 0))
        self._links.add(link)
        return True

    def _answer(self, link: _Link, packet: Packet) -> bool:
        """Answer a packet; return whether the connection continues."""
        match packet.kind:
            case Kind.PUBLISH:
                return self._publish(link, codec.read_publish(packet, link.version))
            case Kind.SUBSCRIBE:
                self._subscribe(link, packet)
            case Kind.UNSUBSCRIBE:
                number, filters = codec.read_filters(packet, link.version)
                for pattern, _ in filters:
                    link.filters.pop(pattern, None)
                link.wire.write(codec.write_unsuback(link.version, number, len(filters)))
            case Kind.PUBREL:
                link.wire.write(codec.write_acknowledgement(Kind.PUBCOMP, codec.read_packet_id(packet.body)))
            case Kind.PINGREQ:
                link.wire.write(codec.PINGRESP)
            case Kind.DISCONNECT:
                return False
            case Kind.CONNECT:
                raise PacketError("sends a second CONNECT")
            case _:  # acknowledgements of what was delivered
                pass
        return True

    def _subscribe(self, link: _Link, packet: Packet) -> None:
        number, filters = codec.read_filters(packet, link.version)
        reasons = bytearray()
        for pattern, qos in filters:
            self._record(len(pattern))
            self.subscribed.append(pattern)
            refused = self.forbids(pattern)
            reasons.append(_REFUSED if refused else min(qos, 1))
            if not refused:
                link.filters[pattern] = min(qos, 1)
        link.wire.write(codec.write_suback(link.version, number, reasons))
        for topic, payload in self._retained.items():
            if any(matches(pattern, topic) and pattern in link.filters for pattern, _ in filters):
                link.deliver(topic, payload, retained=True)
                self.delivered.setdefault(topic, time.monotonic())

    def _publish(self, link: _Link, message: codec.Publish) -> bool:
        self._record(len(message.payload) + len(message.topic))
        reply = self.replies.popleft() if self.replies else Reply.ACKNOWLEDGE
        about = message.topic, message.payload, message.qos, message.is_retained, message.is_duplicate
        self.publications.append(Publication(time.monotonic(), link.number, *about, reply))
        self._changed.set()
        if message.qos > 1:
            link.wire.write(codec.write_acknowledgement(Kind.PUBREC, message.number))
        elif message.qos and reply is Reply.REFUSE and link.version == NEW:
            link.wire.write(codec.write_puback(link.version, message.number, NOT_AUTHORIZED))
        elif message.qos and reply is Reply.ACKNOWLEDGE:
            link.wire.write(codec.write_puback(link.version, message.number))
        ends = reply is Reply.CUT or (reply is Reply.REFUSE and link.version == OLD)
        return not ends


@asynccontextmanager
async def _web_server(serve: Callable[[_Wire], Awaitable[None]]) -> AsyncIterator[int]:
    """Listen for WebSockets on a free loopback port, and yield it."""

    async def handle(connection: ServerConnection) -> None:
        wire = _WebSocket(connection)
        sending = asyncio.create_task(wire.send(), name="conform-send")
        receiving = asyncio.create_task(wire.receive(), name="conform-receive")
        try:
            await serve(wire)
            await sending  # what was written before the end
        finally:
            sending.cancel()
            receiving.cancel()

    subprotocols = [Subprotocol("mqtt")]
    async with serve_websockets(handle, "127.0.0.1", 0, subprotocols=subprotocols, compression=None) as server:
        yield next(iter(server.sockets)).getsockname()[1]
