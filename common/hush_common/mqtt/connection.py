"""Connections to a broker over MQTT: aiomqtt's client for brokers that misbehave, and TLS contexts."""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Literal

import aiomqtt
from paho.mqtt.client import ConnectFlags, DisconnectFlags, topic_matches_sub
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from hush_common.aio import cancellable
from hush_common.broker_url import BrokerUrl
from hush_common.errors import (
    BrokerError,
    FeatureMissingError,
    LoginRefusedError,
    ProtocolRefusedError,
    SubscriptionRefusedError,
)
from hush_common.mqtt.packets import Incoming, Message, Outgoing, limit_packets, longest_packet
from hush_common.topics import Acknowledgement, Delivery


class TopicHandlers:
    """Handlers of the messages that match a filter, past the inbox."""

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[Callable[[str, bytes], object], bool]] = {}
        self._beginnings: tuple[str, ...] = ()
        self._ends: tuple[str, ...] = ()

    def set(self, wanted: str, to: Callable[[str, bytes], object], *, copy: bool) -> None:
        """Pass topic and payload of messages that match a filter to `to`; `copy`: also put them into the inbox."""
        self._listeners[wanted] = to, copy
        beginnings = {one: _beginning(one) for one in self._listeners}
        self._beginnings = tuple(filter(None, beginnings.values()))
        self._ends = tuple(_end(one) for one, beginning in beginnings.items() if not beginning)

    def takes(self, topic: str, payload: bytes) -> bool:
        """Pass a message to its listeners; return True if it does not go to the inbox.

        Most messages have no listener: a filter is tried only if the topic begins as it does or, if the filter begins
        with a wildcard, ends as it does.
        """
        if topic.startswith(self._beginnings) or topic.endswith(self._ends):
            for wanted, (to, copy) in self._listeners.items():
                if topic_matches_sub(wanted, topic):
                    to(topic, payload)
                    if not copy:
                        return True
        return False


def _beginning(wanted: str) -> str:
    """Return the start of every topic that matches a filter: `a/#` matches `a`, too."""
    before = wanted.partition("+")[0].partition("#")[0]
    return before if before == wanted else before.rstrip("/")


def _end(wanted: str) -> str:
    """Return the end of every topic that matches a filter."""
    return "" if wanted.endswith("#") else wanted.rpartition("+")[2]


_PUBACK = b"\x40\x02"


class Inbox:
    """Received messages that were not taken yet, in order; full at a number of messages or bytes of payload."""

    def __init__(self, messages: int, payload_bytes: int) -> None:
        self._limits = messages, payload_bytes
        self._deliveries: deque[Delivery] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._deliveries)

    @property
    def is_full(self) -> bool:
        """Whether no more should be read before something is taken."""
        messages, payload_bytes = self._limits
        return len(self._deliveries) >= messages or self._bytes >= payload_bytes

    def put(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self._bytes += len(delivery.payload)

    def take(self, most: int, most_bytes: int) -> list[Delivery]:
        """Remove and return the next messages, at most `most`, and at most one beyond `most_bytes` of payload."""
        taken: list[Delivery] = []
        room = most_bytes
        while self._deliveries and len(taken) < most and room > 0:
            delivery = self._deliveries.popleft()
            taken.append(delivery)
            room -= len(delivery.payload)
        self._bytes -= most_bytes - room
        return taken


class AckQueue:
    """Messages of QoS 1 that were received and not acknowledged, in the order of receipt.

    Acknowledgements are sent in that order, whatever the order of the calls: a message that is done waits for those
    before it. MQTT requires it (3.1.1, section 4.6), and mosquitto up to 2.0.12 depends on it: it may have more than
    65 535 messages in flight, so that packet ids repeat, and a PUBACK deletes the oldest message with its id.
    """

    def __init__(self, send: Callable[[bytes, int], None]) -> None:
        self._send = send
        self._first = 1  # number of the oldest message in `_ids`
        self._ids: deque[bytes] = deque()  # packet ids as they came, two bytes each
        self._in_flight: set[bytes] = set()
        self._done: set[int] = set()
        self.repeated: int = 0  # messages with the packet id of another one that was not acknowledged yet

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, packet_id: bytes) -> int:
        """Note a message; return its number."""
        if packet_id in self._in_flight:
            self.repeated += 1
        else:
            self._in_flight.add(packet_id)
        self._ids.append(packet_id)
        return self._first + len(self._ids) - 1

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Note that these messages are done, and acknowledge the oldest ones as far as all of them are."""
        first, end, done = self._first, self._first + len(self._ids), self._done
        done.update(number for number in numbers if first <= number < end)
        ready: list[bytes] = []
        while first in done:
            done.remove(first)
            ready.append(self._ids.popleft())
            first += 1
        if not ready:
            return
        self._first = first
        self._in_flight.difference_update(ready)
        if self.repeated:  # an id of one of these may still be in flight for a later message
            self._in_flight.update(self._ids)
        self._send(_PUBACK + _PUBACK.join(ready), len(ready))


_PIECES_AT_ONCE = 4
_TICK_SECONDS = 1.0
TOO_LARGE = 0x95  # the reason code of MQTT 5 for a packet that is longer than the broker takes


class NoConnackError(aiomqtt.MqttError):
    """The broker hung up, or did not answer, instead of accepting or refusing the connection."""


class MqttClient(aiomqtt.Client):
    """aiomqtt's client with our inbox, manual acknowledgement, and the broker's answer to each publication.

    The inherited one acknowledges a message as soon as it is queued; a topic that it cannot parse ends the connection
    (again after every reconnect, because the broker sends that message again), or is read forever. It waits the whole
    timeout for the CONNACK of a broker that has hung up, and leaves sockets open.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - those of aiomqtt.Client
        inbox: Inbox,
        window: int,
        patience: float,
        ping_every: float,
        silence: float,
        **kwargs: Any,  # noqa: ANN401 - as above
    ) -> None:
        super().__init__(*args, max_inflight_messages=window, **kwargs)
        self._window = window
        self._client.manual_ack_set(True)
        self.inbox: Inbox = inbox
        self._arrived = asyncio.Event()
        self._aside = TopicHandlers()
        self.resumed: bool = False
        self._outgoing = Outgoing(
            self._client, self._loop, window=window, patience=patience, write=self._write, ask=self.ping
        )
        self.received: AckQueue = AckQueue(self._outgoing.acknowledge)
        self._incoming: Incoming | None = None
        self._paused = False
        self._ping_every, self._silence = ping_every, silence
        self._silent = 0.0  # seconds in which this process could read, and nothing came
        self._pings: deque[float] = deque()  # when the unanswered ones were sent
        self._pinged = 0.0  # when the last one was sent
        self.is_silent: bool = False  # whether the connection was closed because nothing came
        self.current_until: float = self._loop.time()
        paho: Any = self._client
        paho._handle_pingresp = self._pong  # noqa: SLF001 - by which paho handles it
        _close_failed_sockets(paho)
        self.largest_packet: int | None = None  # most bytes that the broker accepts, if it told
        self.missing: list[str] = []  # what it lacks of what hush needs, if it told
        self.disconnect_reason: ReasonCode | None = None  # the broker's, if it gave one: MQTT 5 only

    def limit(self, most: int, name: str) -> None:
        """Cut messages whose payload is longer than `most` bytes; `name` is the broker's, for the log."""
        check = limit_packets(self._client, most, name)
        self._incoming = Incoming(
            self._client, longest_packet(most), check, messages=self._deliver, acknowledged=self._outgoing.acknowledged
        )

    def set_aside(self, wanted: str, to: Callable[[str, bytes], object], *, copy: bool) -> None:
        """Pass topic and payload of messages that match a filter to `to` immediately; `copy`: also to the inbox."""
        self._aside.set(wanted, to, copy=copy)

    @property
    def lost(self) -> bool:
        """Whether the connection was lost."""
        return self._disconnected.done()

    async def open(self) -> None:
        """Connect, or leave nothing behind: neither a socket nor a thread that opens one later.

        Raises:
            aiomqtt.MqttError: the broker refuses the connection, or does not answer.
            OSError: it is unreachable.
            ValueError: its address is invalid.
        """
        opening = asyncio.create_task(self.__aenter__(), name="hush-open")
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._give_up("given up")
            await asyncio.wait((opening,))
            if not opening.cancelled():
                opening.exception()  # retrieved, so that asyncio does not log it
            self._drop()
            raise
        except BaseException as error:
            self._drop()
            if isinstance(error.__context__, TimeoutError):
                raise NoConnackError(str(error)) from None
            raise
        if self._client.socket() is None:  # lost since, which aiomqtt misses if both came together
            self._drop()
            raise aiomqtt.MqttError("it accepted the connection and closed it at once")
        self._disconnected.add_done_callback(self._end)

    async def close(self) -> None:
        """Disconnect if connected, and close the socket."""
        try:
            if self._connected.done() and not self._connected.cancelled() and self._connected.exception() is None:
                with suppress(aiomqtt.MqttError):  # a broker that does not even accept a DISCONNECT
                    await cancellable(self.__aexit__(None, None, None), aiomqtt.MqttError)
        finally:
            self._drop()

    async def deliver(self, topic: str, payload: bytes, *, retain: bool) -> int:
        """Publish at QoS 1; return the broker's reason code, 0 for MQTT 3.1.1, which has none.

        A message that is too long for the broker is not sent, because the broker would hang up: it is `TOO_LARGE`.

        Raises:
            aiomqtt.MqttError: it could not be sent, or the connection is lost.
            TimeoutError: the broker does not acknowledge it in time.
            ValueError: nothing may be published to this topic.
        """
        if self.largest_packet is not None and _packet_bytes(topic, payload) > self.largest_packet:
            return TOO_LARGE
        name = topic.encode()
        self._client._raise_for_invalid_topic(name)  # noqa: SLF001
        if self._client.socket() is None:
            raise aiomqtt.MqttCodeError(MQTTErrorCode.MQTT_ERR_NO_CONN)
        return await self._outgoing.publish(name, payload, retain=retain)

    async def request(self, topics: Iterable[str], qos: int) -> list[int]:
        """Subscribe; return the broker's reason codes.

        Raises:
            aiomqtt.MqttError: it could not be sent, or the connection is lost.
            TimeoutError: the broker does not answer it.
            ValueError: one of these is not a filter.
        """
        result, number = self._client.subscribe([(topic, qos) for topic in topics])
        if result != MQTTErrorCode.MQTT_ERR_SUCCESS or number is None:
            raise aiomqtt.MqttCodeError(result, "Could not subscribe to topic")
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._pending_subscribes[number] = answer
        self._outgoing.expect(answer)
        try:
            granted = await answer
        finally:
            self._pending_subscribes.pop(number, None)
        return [code if isinstance(code, int) else code.value for code in granted]

    def leave(self, topic: str) -> None:
        """End a subscription, as soon as the broker reads this; nothing if the connection is lost."""
        if not self.lost:
            self._client.unsubscribe(topic)

    async def take(self, most: int, most_bytes: int) -> list[Delivery]:
        """Wait for a message; return the received ones, at most `most`, or none once the connection is lost.

        The list ends with the message that exceeds `most_bytes` of payload.
        """
        while not self.lost:
            if taken := self.inbox.take(most, most_bytes):
                if self._paused and not self.inbox.is_full:
                    self._resume()
                return taken
            self._arrived.clear()
            await self._arrived.wait()
        return []

    def _give_up(self, why: str) -> None:
        """End the wait for the CONNACK; the connecting thread ends by itself, after 5 s at most."""
        if not self._connected.done():  # cancelling aiomqtt instead would lose that thread and its socket
            self._connected.set_exception(NoConnackError(why))
            self._connected.exception()  # retrieved, so that asyncio does not log it

    def _drop(self) -> None:
        """Close the socket of a connection that never came up, or does not answer: aiomqtt would leave it open."""
        self._client.on_socket_register_write = None  # from here on paho writes immediately
        self._client.disconnect()
        self._client._sock_close()  # noqa: SLF001 - if the DISCONNECT could not be written, paho leaves it open
        self._retrieve_loss()

    def _retrieve_loss(self) -> None:
        """Retrieve the exception of a lost connection: aiomqtt does not, and asyncio would log it."""
        if self._disconnected.done() and not self._disconnected.cancelled():
            self._disconnected.exception()

    def _end(self, _: object) -> None:
        """Wake every waiting caller."""
        self._arrived.set()
        self._outgoing.end(aiomqtt.MqttError("the connection is lost"))

    def _on_connect(
        self,
        client: Any,  # noqa: ANN401 - paho's
        userdata: Any,  # noqa: ANN401 - as above
        flags: ConnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        """As inherited, and record whether the broker resumes a session, and its limits, which paho exceeds."""
        if not self._connected.done():
            self.resumed = flags.session_present
            self.largest_packet = getattr(properties, "MaximumPacketSize", None)
            missing = {
                "retained messages": getattr(properties, "RetainAvailable", 1) == 0,
                "QoS 1": getattr(properties, "MaximumQoS", 2) == 0,
            }
            self.missing = [feature for feature, is_missing in missing.items() if is_missing]
            self._outgoing.window = min(self._window, getattr(properties, "ReceiveMaximum", self._window))
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_disconnect(
        self,
        client: Any,  # noqa: ANN401 - paho's
        userdata: Any,  # noqa: ANN401 - as above
        flags: DisconnectFlags,
        reason_code: ReasonCode,
        properties: Any = None,  # noqa: ANN401 - as above
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self.disconnect_reason = reason_code
        self._loop.call_soon_threadsafe(
            self._give_up, "it closed the connection before accepting or refusing the login"
        )
        super()._on_disconnect(client, userdata, flags, reason_code, properties)
        self._retrieve_loss()

    def _on_subscribe(self, client: Any, userdata: Any, mid: int, reason_codes: Any, properties: Any = None) -> None:  # noqa: ANN401 - paho's
        if mid in self._pending_subscribes:  # otherwise its caller has given up, and aiomqtt would print a traceback
            super()._on_subscribe(client, userdata, mid, reason_codes, properties)

    def _deliver(self, messages: list[Message]) -> None:
        inbox, received, takes = self.inbox, self.received, self._aside.takes
        for name, packet_id, payload, retain in messages:
            number = received.add(packet_id) if packet_id else 0
            topic = _topic(name)
            if topic and takes(topic, payload):
                if number:
                    received.acknowledge((number,))
            else:
                inbox.put(Delivery(topic, payload, number, received if number else None, retain == 1))
        self._arrived.set()
        if inbox.is_full and not self._paused:
            self._pause()

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:  # noqa: ANN401, ARG002 - paho's
        """As inherited, but do not watch a socket that was closed meanwhile: its number may be reused."""

        def watch() -> None:
            current = self._client.socket()
            if current is not None and current is sock:
                self._loop.add_writer(current.fileno(), self._write)

        self._loop.call_soon_threadsafe(watch)

    def _write(self) -> None:
        try:
            self._client.loop_write()
            self._outgoing.go_on()
        except Exception as error:  # noqa: BLE001 - as `_read`
            self.fail(error)

    # Is the broker alive? It may have much to send before it answers, so a clock alone is not enough. It answers a ping
    # after everything that it had to send before.

    def ping(self) -> None:
        """Send a ping: `current_until` moves with the answer."""
        if self._client.socket() is not None:
            self._pinged = self._loop.time()
            self._pings.append(self._pinged)
            self._client._send_pingreq()  # noqa: SLF001

    def _pong(self) -> MQTTErrorCode:
        if self._pings:
            self.current_until = self._pings.popleft()
            self._outgoing.answered_until(self.current_until)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    async def _misc_loop(self) -> None:
        """Replace the inherited one: paho ends a connection whose broker is busy with sending."""
        while not self.lost:
            await asyncio.sleep(_TICK_SECONDS)
            if self._connected.done():
                self._tick()

    def _tick(self) -> None:
        incoming = self._incoming
        if self._paused or incoming is None or incoming.has_read:
            self._silent = 0.0
        else:
            self._silent += _TICK_SECONDS
        if incoming is not None:
            incoming.has_read = False
        if self._pings and self._silent >= self._silence:
            self.is_silent = True
            self.fail(aiomqtt.MqttError("the broker is silent"))
        elif self._loop.time() - self._pinged >= self._ping_every:
            self.ping()

    def fail(self, error: Exception) -> None:
        """End the connection, for this reason, if it is not lost yet."""
        if not self._disconnected.done():
            self._disconnected.set_exception(error)

    # Memory: a full inbox stops reading the socket, and TCP makes the broker wait. A broker that limits unacknowledged
    # messages limits the inbox as well, but some do not, and messages of QoS 0 are never limited.

    def _pause(self) -> None:
        current = self._client.socket()
        if current is not None:
            self._paused = self._loop.remove_reader(current.fileno())

    def _resume(self) -> None:
        self._paused = False
        current = self._client.socket()
        if current is not None:
            self._loop.add_reader(current.fileno(), self._read)
            self._loop.call_soon(self._read)  # TLS may hold bytes that the socket no longer announces

    def _on_socket_open(self, client: Any, userdata: Any, sock: Any) -> None:  # noqa: ANN401 - paho's types
        super()._on_socket_open(client, userdata, sock)
        self._loop.call_soon_threadsafe(self._loop.add_reader, sock.fileno(), self._read)  # in place of the inherited

    def _read(self) -> None:
        """Read a bounded number of pieces, so that other work has its turn."""
        incoming = self._incoming
        try:
            self._outgoing.check()
            for _ in range(_PIECES_AT_ONCE):
                if self._paused or incoming is None or not incoming.advance():
                    return
        except Exception as error:  # noqa: BLE001 - as in aiomqtt's own reader: any error ends this connection
            self.fail(error)
        else:
            self._loop.call_soon(self._read)


def _close_failed_sockets(paho: Any) -> None:  # noqa: ANN401 - it has no types for what is private
    """Close the socket of a connection or handshake that fails: paho leaves that to the garbage collector."""
    create, connect = paho._create_socket, paho._create_socket_connection  # noqa: SLF001 - by which paho connects
    opened = ExitStack()

    def create_socket() -> Any:  # noqa: ANN401 - a socket, or paho's WebSocket around one
        with opened:
            created = create()
            opened.pop_all()
            return created

    def connect_unix() -> socket.socket:
        plain = opened.enter_context(socket.socket(socket.AF_UNIX))
        plain.connect(paho._host)  # noqa: SLF001
        return plain

    def wrap(plain: socket.socket) -> ssl.SSLSocket:
        context: ssl.SSLContext = paho._ssl_context  # noqa: SLF001 - it checks the name of the broker itself
        name = paho._host  # noqa: SLF001
        secured = opened.enter_context(context.wrap_socket(plain, server_hostname=name, do_handshake_on_connect=False))
        secured.settimeout(paho.connect_timeout)
        secured.do_handshake()
        return secured

    paho._create_socket = create_socket  # noqa: SLF001
    paho._create_socket_connection = lambda: opened.enter_context(connect())  # noqa: SLF001
    paho._create_unix_socket_connection = connect_unix  # noqa: SLF001
    paho._ssl_wrap_socket = wrap  # noqa: SLF001


def _packet_bytes(topic: str, payload: bytes) -> int:
    """Return an upper bound of the length of a PUBLISH of QoS 1 without properties, under MQTT 5."""
    return 1 + 4 + 2 + len(topic.encode()) + 2 + 1 + len(payload)


def _topic(name: bytes) -> str:
    """Return the topic, or nothing if it is invalid."""
    try:
        topic = name.decode()
    except UnicodeDecodeError:
        return ""
    return "" if "+" in topic or "#" in topic else topic


_CONNECT_SECONDS = 10.0
_BATCH_BYTES = 3 * 1024 * 1024
_REFUSED = 0x80  # a reason from here on means no, in a subscription's acknowledgement as in any other
_WRONG_VERSION = 0x84
_LOGIN = (0x86, 0x87, 0x8A, 0x8C)  # bad user name or password, not authorized, banned, bad method

_UNACKNOWLEDGED = "the broker may not have what it did not acknowledge"

_VERSIONS = {"3.1.1": aiomqtt.ProtocolVersion.V311, "5": aiomqtt.ProtocolVersion.V5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to connect.

    A broker that is busy with sending is not late: the seconds of `patience` count only up to the last answered ping.
    """

    identifier: str  # the MQTT client id; of two connections that share one, a broker ends the older
    version: Literal["3.1.1", "5"] = "3.1.1"  # 5 has acknowledgements with reason codes
    tls: ssl.SSLContext | None = None  # None reads the files in the address
    persistent: bool = False  # whether the broker keeps the session while disconnected; only with 3.1.1
    will: tuple[str, bytes] | None = None  # topic and payload to publish, retained, if the connection is lost
    payload_limit: int  # bytes; a longer payload comes truncated, and still longer than this
    inbox_messages: int  # messages not taken yet at which no more are read
    inbox_bytes: int  # their bytes at which no more are read
    window: int  # most publications in flight
    patience: float  # seconds to wait for an answer to a publication or a subscription
    ping_every: float = 60.0  # seconds between two pings
    silence: float = 60.0  # seconds without any packet, after which the connection is lost


@asynccontextmanager
async def connect(url: BrokerUrl, options: Options) -> AsyncIterator["MqttConnection"]:
    """Return a connection over TCP, TLS, WebSockets or a Unix socket as the address says, open during the `async with`.

    Raises:
        BrokerError: (on entering) the broker is unreachable, refuses the login, or a file for TLS cannot be read.
        ProtocolRefusedError: (on entering) it does not support this version, or did not answer.
        FeatureMissingError: (on entering) it has no retained messages or no QoS 1, as MQTT 5 tells, or no last will.
    """
    client, error = await _opened(url, options)
    if isinstance(error, ProtocolRefusedError) and options.will is not None:
        client, error = await _opened_again(url, options, options.will[0], (client, error))
    if error is not None:  # raised here, so that no chain of causes keeps a half-open socket of paho's alive
        raise error
    try:
        if client.missing:
            raise _missing(url, client.missing)
        yield MqttConnection(client, str(url), options)
    finally:
        await client.close()


async def find_missing_feature(url: BrokerUrl) -> FeatureMissingError | None:
    """Return what the broker lacks, as MQTT 5 tells; None if it lacks nothing, cannot be reached or has no MQTT 5."""
    try:
        async with connect(url, _probe("5")):
            return None
    except FeatureMissingError as error:
        return error
    except BrokerError:
        return None


async def _opened_again(url: BrokerUrl, options: "Options", will: str, refused: "_Opened") -> "_Opened":
    """Find out whether it is because of the last will that the broker ended a connection; if not, connect again."""
    if (missing := await find_missing_feature(url)) is not None:
        return refused[0], missing
    if not await accepts_connection(url):
        return refused
    client, error = await _opened(url, options)
    if isinstance(error, ProtocolRefusedError):  # again, and without a will it does not
        why = f"the broker refuses the last will on {will}; let this user write there, retained and at QoS 1"
        error = FeatureMissingError(str(url), why)
    return client, error


async def accepts_connection(url: BrokerUrl) -> bool:
    """Whether the broker accepts a connection with the login in this address, or without one."""
    try:
        async with connect(url, _probe("3.1.1")):
            return True
    except BrokerError:
        return False


def _probe(version: Literal["3.1.1", "5"]) -> "Options":
    """Return the options of a connection that only asks; an id that is taken would end the connection of another."""
    identifier = f"hush-probe-{token_hex(8)}"
    return Options(
        identifier=identifier,
        version=version,
        payload_limit=0,
        inbox_messages=1,
        inbox_bytes=1,
        window=1,
        patience=1.0,
    )


_SETTINGS = {"retained messages": "retain_available true", "QoS 1": "max_qos 1"}  # of mosquitto


def _missing(url: BrokerUrl, features: Sequence[str]) -> FeatureMissingError:
    settings = ", ".join(_SETTINGS[feature] for feature in features)
    return FeatureMissingError(
        str(url),
        f"the broker does not support {' and '.join(features)}, which hush needs; enable it there (mosquitto: "
        f"{settings}), or use another broker",
    )


class MqttConnection:
    """One connection. Every method raises `BrokerError` once it is lost."""

    def __init__(self, client: MqttClient, name: str, options: Options) -> None:
        self._client = client
        self._name = name
        self._options = options
        self._error: BrokerError | None = None

    def end(self, error: BrokerError) -> None:
        """Treat the connection as lost, for this reason."""
        if not self._client.lost:
            self._error = error
            self._client.fail(error)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> Acknowledgement:
        """Send at QoS 1, and return when the broker has acknowledged. Calls in order send in order."""
        try:
            reason = await self._client.deliver(topic, payload, retain=retain)
        except TimeoutError:
            why = f"no acknowledgement within {self._options.patience:g} s of a message to {topic}"
            raise BrokerError(self._name, why) from None
        except (aiomqtt.MqttError, ValueError) as error:
            if self._client.lost:
                raise self._lost() from error
            raise BrokerError(self._name, f"could not publish to {topic}: {_explain(error)}") from error
        return Acknowledgement(reason, can_refuse=self._options.version == "5")

    async def subscribe(self, *topics: str, qos: int = 1) -> None:
        """Subscribe; retained messages follow in `deliveries`. SubscriptionRefusedError leaves the connection open."""
        try:
            codes = await self._client.request(topics, qos)
        except TimeoutError:
            why = f"no answer within {self._options.patience:g} s to the subscription to {topics[0]}"
            raise BrokerError(self._name, why) from None
        except (aiomqtt.MqttError, ValueError) as error:
            if self._client.lost:
                raise self._lost() from error
            raise BrokerError(self._name, f"could not subscribe to {topics[0]}: {_explain(error)}") from error
        for topic, code in zip(topics, codes, strict=False):  # a broker may count as it likes
            if code >= _REFUSED:
                raise SubscriptionRefusedError(
                    self._name, f"the broker refuses the subscription to {topic}; check its access rules"
                )

    def unsubscribe(self, topic: str) -> None:
        """End a subscription; what the broker has queued for it still comes, and then the answer of a ping."""
        self._client.leave(topic)
        self._client.ping()

    @property
    def resumed(self) -> bool:
        """Whether the broker had kept a session for this client id, and resumes it."""
        return self._client.resumed

    @property
    def largest_packet(self) -> int | None:
        """The most bytes of a packet that the broker accepts; None if it has not told, as under MQTT 3.1.1."""
        return self._client.largest_packet

    @property
    def waiting(self) -> int:
        """How many received messages `deliveries` has not returned yet."""
        return len(self._client.inbox)

    @property
    def repeated(self) -> int:
        """How many messages came with a packet id that was in flight already."""
        return self._client.received.repeated

    @property
    def current_until(self) -> float:
        """The newest time of the event loop up to which everything that the broker had sent has come.

        The answers to pings show it; until the first one it is the time before the connection was opened.
        """
        return self._client.current_until

    def set_aside(self, wanted: str, to: Callable[[str, bytes], object], *, copy: bool = False) -> None:
        """Pass topic and payload of messages that match a filter to `to` immediately; it must not block or raise.

        With `copy` they are also deliveries.
        """
        self._client.set_aside(wanted, to, copy=copy)

    async def deliveries(self, most: int) -> list[Delivery]:
        """Wait for a message, then return all received ones in order, at most `most`; cancelling it loses nothing."""
        taken = await self._client.take(most, _BATCH_BYTES)
        if not taken:
            raise self._lost()
        return taken

    def ping(self) -> None:
        """Send a ping; `current_until` moves with its answer."""
        self._client.ping()

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Acknowledge messages by their numbers, each after those that came before it; nothing if it is lost."""
        self._client.received.acknowledge(numbers)

    def _lost(self) -> BrokerError:
        reason = self._client.disconnect_reason
        if self._error is not None:
            return self._error
        if self._client.is_silent:
            why = f"nothing came for {self._options.silence:g} s, not even the answer to a ping; check the network"
            return BrokerError(self._name, why)
        if self._options.persistent:
            why = "the connection was lost, or another client connected with the same client id"
            return BrokerError(self._name, why)
        if reason is None:
            return BrokerError(self._name, f"the connection is lost; {_UNACKNOWLEDGED}")
        why = f"the broker ended the connection ({reason.getName().lower()})"
        return BrokerError(self._name, f"{why}; {_UNACKNOWLEDGED}", reason=reason.value)


_Opened = tuple[MqttClient, BrokerError | None]


async def _opened(url: BrokerUrl, options: Options) -> _Opened:
    client = await _client(url, options)
    return client, await _connection_error(client, url)


async def _client(url: BrokerUrl, options: Options) -> MqttClient:
    """Return a new client for each connection, without any state of the last one in paho."""
    client = MqttClient(
        url.host,
        url.port,
        username=url.user,
        password=url.password,
        identifier=options.identifier,
        protocol=_VERSIONS[options.version],
        clean_session=None if options.version == "5" else not options.persistent,  # with 5 the first start is clean
        will=None if options.will is None else aiomqtt.Will(*options.will, qos=1, retain=True),
        timeout=_CONNECT_SECONDS,
        window=options.window,
        patience=options.patience,
        ping_every=options.ping_every,
        silence=options.silence,
        tls_context=options.tls or (await asyncio.to_thread(tls_context, url) if url.tls else None),
        transport="unix" if url.is_socket else "tcp" if url.path is None else "websockets",
        websocket_path=url.path,
        inbox=Inbox(options.inbox_messages, options.inbox_bytes),
    )
    client.limit(options.payload_limit, str(url))
    return client


async def _connection_error(client: MqttClient, url: BrokerUrl) -> BrokerError | None:
    """Connect; on failure release everything and return the error."""
    name = str(url)
    try:
        await client.open()
    except aiomqtt.MqttCodeError as error:
        code = error.rc
        if code is None or isinstance(code, int):
            return LoginRefusedError(name, f"the broker refuses the login ({error}); check user and password")
        return _refusal(name, code.getName().lower(), code.value)
    except NoConnackError as error:
        todo = await asyncio.to_thread(remedy, error, url)
        return ProtocolRefusedError(name, f"cannot connect ({_explain(error)}); {todo}", said=False)
    except (aiomqtt.MqttError, OSError, ValueError) as error:
        todo = await asyncio.to_thread(remedy, error, url)
        return BrokerError(name, f"cannot connect ({_explain(error)}); {todo}")
    return None


def _refusal(name: str, why: str, code: int) -> BrokerError:
    if code == _WRONG_VERSION:
        return ProtocolRefusedError(name, f"the broker refuses this version of MQTT ({why})", said=True)
    if code in _LOGIN:
        return LoginRefusedError(name, f"the broker refuses the login ({why}); check user and password", reason=code)
    return BrokerError(name, f"the broker refuses the connection ({why})", reason=code)


def _explain(error: Exception) -> str:
    """The reason in words, without aiomqtt's codes."""
    text = str(error)
    return text.partition("] ")[2] or text


# What OpenSSL misses in certificates that break RFC 5280, by the number of its error (X509_V_ERR_... in x509_vfy.h).
# Python requires all of it since 3.13 (VERIFY_X509_STRICT), and always that an authority may sign.
_MISSED = {
    79: "basicConstraints = critical, CA:TRUE and keyUsage = critical, keyCertSign, cRLSign in the authority's",
    85: "authorityKeyIdentifier = keyid in the broker's, or subjectKeyIdentifier = hash in the authority's",
    86: "subjectKeyIdentifier = hash in the authority's",
    89: "basicConstraints = critical, CA:TRUE in the authority's",
    92: "keyUsage = critical, keyCertSign, cRLSign in the authority's",
}
_RULES = range(79, 94)
_EXPIRED, _NOT_YET_VALID = 10, 9
_UNKNOWN_AUTHORITY, _NAME = (2, 18, 19, 20, 21), (62, 64)
_START = "start the broker, or correct the address"
_GUIDE = 'as docs/device.md shows with openssl under "Certificates of your own"'


def tls_context(url: BrokerUrl) -> ssl.SSLContext | None:
    """Return the TLS context, or None without TLS; BrokerError if a certificate or key cannot be used."""
    if not url.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=url.ca)
    except OSError as error:
        reason = error.strerror or "it is not a certificate"
        raise BrokerError(str(url), f"cannot read ca={url.ca} ({reason}); name a PEM file") from error
    if url.cert is not None:
        _show(context, url, url.cert)
    return context


def remedy(error: BaseException, url: BrokerUrl) -> str:
    """Return the remedy for a connection that failed; read the file of the authority for it."""
    cause: BaseException | None = error  # aiomqtt leaves the error of the socket in its context
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return _START if cause is None else _remedy_for(cause.verify_code, url)


def _remedy_for(code: int, url: BrokerUrl) -> str:
    if code in _RULES:
        missed = _MISSED.get(code, "what RFC 5280 requires")
        return f"the certificates lack {missed}, which Python 3.13 and later require; make them {_GUIDE}"
    if code == _EXPIRED:
        return _remedy_for_expired(url.ca)
    if code == _NOT_YET_VALID:
        return f"set the clock of this machine, which shows {datetime.now(UTC):%Y-%m-%d}"
    if code in _UNKNOWN_AUTHORITY:
        named = f"{url.ca} is another authority; name the one" if url.ca else "name the file of the authority (ca=FILE)"
        return f"{named} that signed the broker's certificate"
    return f"use an address that the broker's certificate has, or sign one for {url.host}" if code in _NAME else _START


def _remedy_for_expired(ca: str | None) -> str:
    """Return the remedy for the authority or the broker: OpenSSL does not say whose certificate has expired."""
    for one in () if ca is None else _certificates(ca):
        ended = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(one["notAfter"])), UTC)
        if ended < datetime.now(UTC):
            return f"the authority in {ca} has expired on {ended:%Y-%m-%d}: renew it {_GUIDE}, and replace that file"
    wrong = f"or the clock of this machine is wrong ({datetime.now(UTC):%Y-%m-%d})"
    return f"the broker's certificate has expired, {wrong}; sign a new one {_GUIDE}"


def _certificates(ca: str) -> Sequence[Mapping[str, object]]:
    """Return the certificates in a file; none if it cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=ca)
    except OSError:
        return []
    return context.get_ca_certs()


def _show(context: ssl.SSLContext, url: BrokerUrl, cert: str) -> None:
    shown = f"cert={cert}" if url.key is None else f"cert={cert} with key={url.key}"
    try:
        context.load_cert_chain(cert, url.key, password=_no_password)
    except ssl.SSLError as error:
        wrong = f"cannot use {shown} (they are not PEM files, do not belong together, or the key is encrypted)"
        raise BrokerError(str(url), f"{wrong}; name a certificate and its unencrypted key") from error
    except OSError as error:
        raise BrokerError(str(url), f"cannot read {shown} ({error.strerror}); name PEM files") from error


def _no_password() -> bytes:
    """Without this, OpenSSL would ask for a password at the terminal."""
    return b""
