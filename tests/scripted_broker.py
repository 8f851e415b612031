"""The broker of the tests, which fails as a test says: in memory, where time may be virtual, or on a real socket."""

import asyncio
import base64
import hashlib
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, cast, overload

from heights import HEIGHTS

from hush_aggregator.delivery.session import BrokerSession
from hush_client.sending.transport import Link
from hush_common.errors import BrokerError
from hush_common.mqtt import codec
from hush_common.mqtt.codec import NEW, OF_CLIENTS, Kind, Packet, PacketError, PacketReader
from hush_common.topics import ALL_TASKS, Acknowledgement, matches, task_topic
from hush_simulations.brokers.faulty import Fate, FaultyTransport
from hush_simulations.brokers.memory import MemoryBroker

__all__ = [
    "Action",
    "Fate",
    "Kind",
    "Manners",
    "ScriptedBroker",
    "after",
    "endless",
    "half",
    "hang_up",
    "header",
    "keep_silent",
    "message",
    "nonsense",
    "reply_and_hang_up",
    "replying",
    "twice",
]

_LOGINS = {0: 0, 1: 0x84, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}
"""The return codes of MQTT 3.1.1 as reason codes of MQTT 5."""

Action = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]
"""What to do at a packet, given the right reply."""


async def hang_up(writer: asyncio.StreamWriter, _reply: bytes) -> None:
    writer.close()


async def half(writer: asyncio.StreamWriter, reply: bytes) -> None:
    """Close the connection in the middle of a packet."""
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


async def keep_silent(_writer: asyncio.StreamWriter, _reply: bytes) -> None:
    """Send no reply, and keep the connection open."""


def replying(*replies: bytes, hangs_up: bool = False) -> Action:
    """Send these bytes in place of the reply."""

    async def reply_with(writer: asyncio.StreamWriter, _reply: bytes) -> None:
        writer.writelines(replies)
        if hangs_up:
            writer.close()

    return reply_with


def after(seconds: float) -> Action:
    """Reply late; in the meantime the broker reads nothing from this connection."""

    async def reply_late(writer: asyncio.StreamWriter, reply: bytes) -> None:
        await asyncio.sleep(seconds)
        writer.write(reply)

    return reply_late


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How a broker treats the client for which it has a backlog.

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


class ScriptedBroker(MemoryBroker):
    """A broker of devices and aggregators. In memory it is itself their transport; on a socket it has an address.

    Args:
        script: what goes wrong on the socket, in order: each at the next packet of its kind; None is a new connection.
        retained: payloads by topic; a task about heights if left out.
        forbidden: topics that may not be subscribed to.
        window: most unacknowledged messages of an aggregator in memory.
        retained_after: seconds after an aggregator connects in memory at which the retained tasks come.
        refusals: errors of the next attempts to connect in memory.
        on_publish: called before each publication of a device.
        login: the return code for each CONNECT, of MQTT 3.1.1 (that of MQTT 5 means the same) or of MQTT 5 alone.
        old: what it does with MQTT 5, where it knows only 3.1.1; the reply is its refusal.
        limits: the properties of its CONNACK under MQTT 5.
        backlog: topics and payloads for a client with a session, on the socket. All are in flight at once, as mosquitto
            up to 2.0.12 does: packet ids repeat, and a PUBACK deletes the oldest message with its id.
        ids: how many packet ids the backlog has.
        manners: how it treats a client of the backlog.

    Attributes:
        faults: what happens to the next publications of devices in memory, one each.
        answers: what the next publications of devices are answered, one each.
        attempts: topic and payload of every publication of a device, whether it arrived or not.
        arrived: those that did.
        published: everything that was published to be retained, in order.
        connections: how many there were; `up` is set with the first.
        versions: the protocol levels with which clients connected on the socket.
        released: the packet ids that clients acknowledged on the socket.
        mistakes: rules of MQTT that a client broke on the socket; the end of `running` raises AssertionError for one.
    """

    def __init__(
        self,
        *script: tuple[Kind | None, Action],
        retained: dict[str, bytes] | None = None,
        forbidden: Iterable[str] = (),
        window: int | None = None,
        retained_after: float = 0.0,
        refusals: Iterable[str] = (),
        on_publish: Callable[[], object] = lambda: None,
        login: int = 0,
        old: Action | None = None,
        limits: bytes = b"",
        backlog: Sequence[tuple[str, bytes]] = (),
        ids: int = 65_535,
        manners: Manners | None = None,
    ) -> None:
        super().__init__("fake://broker", window=window)
        self.retained = {task_topic("heights"): HEIGHTS} if retained is None else retained
        self.forbidden |= {*forbidden}
        self.script = list(script)
        self.faults = deque[Fate]()
        self.answers = deque[Acknowledgement]()
        self.refusals = deque(refusals)
        self.attempts = list[tuple[str, bytes]]()
        self.arrived = list[tuple[str, bytes]]()
        self.published = list[tuple[str, bytes]]()
        self.connections = 0
        self.up = asyncio.Event()
        self.versions = list[int]()
        self.released = list[int]()
        self.mistakes = list[str]()
        self.url = ""
        self.on_publish = on_publish
        self.login, self.old, self.limits = login, old, limits
        self.backlog = deque((1 + place % ids, *one) for place, one in enumerate(backlog))
        self.manners = manners or Manners()
        self._retained_after = retained_after
        self._way = FaultyTransport(self.transport(), self._fate)
        self._devices = list[_ScriptedLink]()
        self._connected = set[_Connection]()

    # What tests see and do

    @property
    def payloads(self) -> list[bytes]:
        """What arrived, without the topics."""
        return [payload for _, payload in self.arrived]

    @property
    def acknowledged(self) -> int:
        """How many messages the aggregator in memory has acknowledged."""
        return self.session().acknowledged

    @property
    def unacknowledged(self) -> int:
        """How many messages the aggregator in memory has not acknowledged."""
        return len(self.session().waiting) + len(self.session().unacknowledged)

    async def emptied(self) -> None:
        """Wait until the aggregator in memory has acknowledged everything."""
        while self.unacknowledged:  # noqa: ASYNC110 - a queue has no event
            await asyncio.sleep(0.001)

    def send(self, topic: str, *payloads: bytes) -> None:
        """Messages for the aggregator in memory, whatever their topic; they wait while it is away."""
        for payload in payloads:
            self.session().put(topic, payload)

    def retain(self, topic: str, payload: bytes) -> None:
        """Publish a retained message, as somebody who is neither device nor aggregator; an empty one deletes it."""
        super().deliver(topic, payload, retain=True)

    def drop(self) -> None:
        super().drop()
        self._way.drop()

    def is_subscribed(self, topic: str) -> bool:
        """Whether a device that is connected in memory has subscribed to `topic`."""
        return any(topic in link.filters for link in self._devices)

    # In memory

    @overload
    def connect(self) -> AbstractAsyncContextManager[Link]: ...
    @overload
    def connect(self, filters: Sequence[str]) -> AbstractAsyncContextManager[BrokerSession]: ...
    def connect(self, filters: Sequence[str] | None = None) -> Any:
        """Connect a device or, with filters, the aggregator."""
        return self._connect_device() if filters is None else self._connect_aggregator(filters)

    def admit(self) -> None:
        super().admit()
        if self.refusals:
            raise BrokerError(self.name, self.refusals.popleft())
        self.connections += 1
        self.up.set()

    @asynccontextmanager
    async def _connect_device(self) -> AsyncIterator[Link]:
        async with self._way.connect() as inner:
            self._devices.append(link := _ScriptedLink(inner, self.answers))
            try:
                yield link
            finally:
                self._devices.remove(link)

    @asynccontextmanager
    async def _connect_aggregator(self, filters: Sequence[str]) -> AsyncIterator[BrokerSession]:
        if self._retained_after:
            for topic, payload in self.retained_under(ALL_TASKS):
                del self.retained[topic]
                asyncio.get_running_loop().call_later(self._retained_after, partial(self.retain, topic, payload))
        async with self.bus().connect(filters) as session:
            yield session

    def _fate(self, topic: str, payload: bytes) -> Fate:
        self.attempts.append((topic, payload))
        self.on_publish()
        return self.faults.popleft() if self.faults else Fate.GOOD

    def deliver(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        (self.published if retain else self.arrived).append((topic, payload))
        super().deliver(topic, payload, retain=retain)

    # On a socket

    @asynccontextmanager
    async def running(self, *, frame: Callable[[bytes], bytes] | None = None) -> AsyncIterator[Self]:
        """Listen on a free port of the loopback; with `frame`, over WebSockets, with what it makes of each write."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving.add(cast("asyncio.Task[None]", asyncio.current_task()))
            with suppress(asyncio.CancelledError):
                if frame is None:
                    await self._serve(partial(reader.read, 1 << 16), writer)
                else:
                    await _open_websocket(reader, writer)
                    await self._serve(_Frames(reader).read, cast("asyncio.StreamWriter", _FramingWriter(writer, frame)))

        serving = set[asyncio.Task[None]]()
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.url = f"mqtt://127.0.0.1:{port}" if frame is None else f"ws://127.0.0.1:{port}/mqtt"
        try:
            yield self
        finally:
            server.close()
            for connection in list(self._connected):
                connection.lose()
            for task in serving:
                task.cancel()
            if serving:
                await asyncio.wait(serving)
        assert not self.mistakes

    async def _serve(self, read: Callable[[], Awaitable[bytes]], writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.up.set()
        connection = _Connection(self, writer)
        self._connected.add(connection)
        try:
            if (action := self.fault(None)) is not None:
                await action(writer, b"")
            packets = PacketReader(OF_CLIENTS, _LONGEST)
            while not writer.is_closing() and (data := await read()):
                packets.feed(data)
                while not writer.is_closing() and (packet := packets.next_packet()) is not None:
                    await connection.answer(packet)
        except PacketError as error:
            self.mistakes.append(str(error))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._connected.remove(connection)
            connection.end()

    def fault(self, kind: Kind | None) -> Action | None:
        """What goes wrong at this packet, if anything does."""
        if self.script and self.script[0][0] == kind:
            return self.script.pop(0)[1]
        return None

    def release(self, packet_id: int) -> bool:
        """Delete the oldest message of the backlog with this id; return whether the connection goes on."""
        self.released.append(packet_id)
        for place, (number, _, _) in enumerate(self.backlog):
            if number == packet_id:
                del self.backlog[place]
                break
        return self.connections > 1 or len(self.released) != self.manners.hang_up_after


class _ScriptedLink:
    """A link of a device in memory: it knows its filters, and gives the answers of the script."""

    def __init__(self, inner: Link, answers: deque[Acknowledgement]) -> None:
        self.filters = set[str]()
        self._inner = inner
        self._answers = answers
        self.receive = inner.receive

    async def subscribe(self, topic: str) -> None:
        await self._inner.subscribe(topic)
        self.filters.add(topic)

    async def publish(self, topic: str, payload: bytes) -> Acknowledgement:
        answer = await self._inner.publish(topic, payload)
        return self._answers.popleft() if self._answers else answer


_LONGEST = 1 << 20  # most bytes of a packet of a client
_PIECE = 200
"""Messages of a backlog that are written at once."""


class _Connection:
    """A client on the socket. The broker in memory delivers to it as to one of its links."""

    def __init__(self, broker: ScriptedBroker, writer: asyncio.StreamWriter) -> None:
        self.filters = list[str]()
        self._broker, self._writer = broker, writer
        self._version = 0
        self._tasks = set[asyncio.Task[None]]()
        self._is_open = asyncio.Event()  # not set: it is silent
        self._is_open.set()

    def put(self, topic: str, payload: bytes) -> None:
        self._send(codec.write_publish(self._version, topic.encode(), payload, qos=0, number=0, retained=False))

    def lose(self) -> None:
        self._writer.transport.abort()

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._version:
            self._broker.detach(cast("Any", self))

    async def answer(self, packet: Packet) -> None:
        match packet.kind:
            case Kind.CONNECT:
                await self._welcome(codec.read_connect(packet.body))
            case Kind.PUBLISH:
                await self._publish(codec.read_publish(packet, self._version))
            case Kind.SUBSCRIBE:
                await self._subscribe(*codec.read_filters(packet, self._version))
            case Kind.UNSUBSCRIBE:
                number, gone = codec.read_filters(packet, self._version)
                self.filters = [one for one in self.filters if one not in dict(gone)]
                self._broker.forget_routes()
                await self._reply(Kind.UNSUBSCRIBE, codec.write_unsuback(self._version, number, len(gone)))
            case Kind.PUBACK:
                if not self._broker.release(codec.read_packet_id(packet.body)):
                    self.lose()
            case Kind.PINGREQ:
                await self._reply(Kind.PINGREQ, codec.PINGRESP)
            case Kind.DISCONNECT:
                self._writer.close()
            case _:
                pass

    async def _welcome(self, client: codec.Connect) -> None:
        broker = self._broker
        broker.versions.append(client.version)
        if client.version == NEW and broker.old is not None:
            await broker.old(self._writer, b"\x20\x02\x00\x01")
            return
        self._version = client.version
        broker.attach(cast("Any", self))
        has_backlog = not client.is_clean and bool(broker.backlog)
        code = broker.login if client.version != NEW else _LOGINS.get(broker.login, broker.login)
        welcome = codec.write_connack(client.version, code, resumed=has_backlog, properties=broker.limits)
        await self._reply(Kind.CONNECT, welcome)
        if has_backlog:
            self._start(self._send_backlog())

    async def _publish(self, came: codec.Publish) -> None:
        broker, known = self._broker, self._broker.answers if self._version == NEW else None
        broker.attempts.append((came.topic, came.payload))
        broker.on_publish()
        reason = known.popleft().reason if known and came.qos else 0
        broker.deliver(came.topic, came.payload, retain=came.is_retained)
        if came.qos:
            await self._reply(Kind.PUBLISH, codec.write_puback(self._version, came.number, reason))

    async def _subscribe(self, number: int, wanted: list[tuple[str, int]]) -> None:
        broker = self._broker
        allowed = [topic for topic, _ in wanted if topic not in broker.forbidden]
        codes = (min(qos, 1) if topic in allowed else 0x80 for topic, qos in wanted)
        self.filters += allowed
        broker.forget_routes()
        reply = codec.write_suback(self._version, number, codes)
        for topic, payload in broker.retained.items():
            if any(matches(one, topic) for one in allowed):
                reply += codec.write_publish(self._version, topic.encode(), payload, qos=0, number=0, retained=True)
        if broker.manners.suback_after or broker.manners.retained_for:
            self._start(self._reply_late(reply))
        else:
            await self._reply(Kind.SUBSCRIBE, reply)

    async def _reply(self, kind: Kind, reply: bytes) -> None:
        action = self._broker.fault(kind)
        if action is None:
            self._send(reply)
        else:
            await action(self._writer, reply)

    def _send(self, data: bytes) -> None:
        if self._is_open.is_set():
            self._writer.write(data)
        else:
            self._start(self._send_later(data))

    async def _send_later(self, data: bytes) -> None:
        await self._is_open.wait()
        self._writer.write(data)

    async def _reply_late(self, reply: bytes) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + self._broker.manners.retained_for
        while clock() < end:
            self._send(message(task_topic("another"), b"{}"))
            await asyncio.sleep(0.05)
        await asyncio.sleep(self._broker.manners.suback_after)
        self._send(reply)

    async def _send_backlog(self) -> None:
        waiting = list(self._broker.backlog)
        for start in range(0, len(waiting), _PIECE):
            if self._broker.manners.silent_for and start <= len(waiting) // 2 < start + _PIECE:
                self._is_open.clear()
                await asyncio.sleep(self._broker.manners.silent_for)
                self._is_open.set()
            for number, topic, payload in waiting[start : start + _PIECE]:
                self._writer.write(
                    codec.write_publish(self._version, topic.encode(), payload, qos=1, number=number, retained=False)
                )
            await self._writer.drain()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        async def until_lost() -> None:
            with suppress(ConnectionError):
                await work

        task = asyncio.create_task(until_lost())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


# Bytes that no good broker sends, and WebSockets


def header(first: int, length: int) -> bytes:
    """The head of a packet: its first byte, and how many bytes follow."""
    encoded = bytearray((first,))
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((*encoded, length))


def message(topic: str, payload: bytes, *, properties: bytes = b"") -> bytes:
    """A retained message of QoS 0; under MQTT 5 with its properties, their length first."""
    return codec.write_packet(0x31, struct.pack(">H", len(topic)) + topic.encode() + properties + payload)


def endless() -> Callable[[bytes], bytes]:
    """Let all that a broker sends be one frame of a WebSocket without an end."""
    start = [struct.pack(">BBQ", 0x82, 127, 1 << 40)]
    return lambda data: (start.pop() if start else b"") + data


_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3


async def _open_websocket(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    request = await reader.readuntil(b"\r\n\r\n")
    (key,) = (line.split(b": ")[1] for line in request.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key"))
    accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
    writer.write(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")


class _FramingWriter:
    """A writer of WebSocket frames."""

    def __init__(self, writer: asyncio.StreamWriter, frame: Callable[[bytes], bytes]) -> None:
        self._writer, self._frame = writer, frame
        self.drain, self.close, self.is_closing = writer.drain, writer.close, writer.is_closing
        self.transport = writer.transport

    def write(self, data: bytes) -> None:
        self._writer.write(self._frame(data))

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))


class _Frames:
    """The bytes in the short frames of a client."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def read(self) -> bytes:
        while not (data := await self._frame()):
            pass
        return data

    async def _frame(self) -> bytes:
        first, second = await self._reader.readexactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", await self._reader.readexactly(2))
        mask = await self._reader.readexactly(4) if second & 0x80 else bytes(4)  # paho does not mask its pongs
        data = await self._reader.readexactly(length)
        is_control = first & 0x08
        return b"" if is_control else bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
