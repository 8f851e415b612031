"""Intake: batches of messages from the broker, acknowledged after the commit. The one module that knows aiomqtt."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import aiomqtt
from paho.mqtt.client import MQTTMessage

from hush_aggregator.bus import BATCH_LIMIT, Bus, Delivery, Inbox, Session
from hush_common.broker_url import BrokerUrl
from hush_common.cancellation import cancellable
from hush_common.codec import BODY_LIMIT, FRAME_LIMIT, HEADER
from hush_common.errors import BrokerError
from hush_common.packets import limit_packets
from hush_common.report import REPORT_ID_BYTES
from hush_common.tls import remedy, tls_context
from hush_common.topics import ALL_TASKS

__all__ = ["Bus", "Delivery", "MqttBus", "Session"]

_INBOX_MESSAGES = 2 * BATCH_LIMIT
_INBOX_BYTES = 32 * 1024 * 1024
_LONGEST_FRAME = HEADER.size + FRAME_LIMIT * (REPORT_ID_BYTES + 8 * BODY_LIMIT)
_TIMEOUT_S = 10.0
_READ_AT_ONCE = 64
_SUBACK_FAILURE = 0x80


class MqttBus:
    """A `Bus` over MQTT 3.1.1.

    Args:
        url: the broker.
        identifier: the MQTT client id. A broker keeps the session of one id for one connection: two processes that
            share an id throw each other out.
        status: a topic that says `online` or `offline`, retained, the latter as the last will too; None for no such
            topic.
        kept: whether the broker keeps the session while nobody is connected; None keeps it where there is a status.

    Raises:
        BrokerError: a file that `url` names for TLS cannot be read.
    """

    def __init__(self, url: BrokerUrl, identifier: str, *, status: str | None = None, kept: bool | None = None) -> None:
        self._url = url
        self._identifier = identifier
        self._status = status
        self._kept = kept if kept is not None else status is not None
        self._tls = tls_context(url)

    @property
    def name(self) -> str:
        return str(self._url)

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[Session]:
        client = self._client()
        session = _MqttSession(client, self.name)
        try:
            await self._login(client)
            await session.subscribe(filters)
            if self._status is not None:
                await session.publish(self._status, b"online", retain=True)
            try:
                yield session
            finally:
                if self._status is not None:
                    with suppress(BrokerError):
                        await session.publish(self._status, b"offline", retain=True)
        finally:
            await session.close()

    def _client(self) -> "_Client":
        """A new client for every connection: nothing that paho remembers of the last one reaches this one."""
        will = None if self._status is None else aiomqtt.Will(self._status, b"offline", qos=1, retain=True)
        client = _Client(
            self._url.host,
            self._url.port,
            username=self._url.user,
            password=self._url.password,
            identifier=self._identifier,
            clean_session=not self._kept,
            will=will,
            timeout=_TIMEOUT_S,
            tls_context=self._tls,
            transport="tcp" if self._url.path is None else "websockets",
            websocket_path=self._url.path,
        )
        client.limit(_LONGEST_FRAME, self.name)
        return client

    async def _login(self, client: "_Client") -> None:
        opening = asyncio.create_task(client.__aenter__(), name="hush-connect")
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:  # a thread is opening the socket: wait, so that it can be closed
            await asyncio.wait({opening})
            if not opening.cancelled():
                opening.exception()  # looked at, or asyncio complains
            raise
        except aiomqtt.MqttCodeError as error:
            raise BrokerError(self.name, f"refuses the login ({_explain(error)}); check user and password") from error
        except (aiomqtt.MqttError, OSError, ValueError) as error:
            raise BrokerError(self.name, f"cannot connect ({_explain(error)}); {remedy(error)}") from error


class _Client(aiomqtt.Client):
    """aiomqtt's client with an inbox of our own, and acknowledgement by hand.

    The inherited one acknowledges as soon as a message is queued, and a topic that it cannot parse ends the connection
    (again after every reconnect, because the broker sends that message again).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of aiomqtt.Client
        super().__init__(*args, **kwargs)
        self.pending_calls_threshold = 10_000  # below that, aiomqtt's warning says nothing to a person
        self._client.manual_ack_set(True)
        self.inbox = Inbox(_INBOX_MESSAGES, _INBOX_BYTES)
        self.wake = asyncio.Event()
        self._bounded = False
        self._paused = False

    def limit(self, most: int, name: str) -> None:
        """Cut messages whose payload is longer than `most` bytes; `name` is the broker's, for the log."""
        limit_packets(self._client, most, name)

    @property
    def is_up(self) -> bool:
        return self._connected.done() and not self._connected.cancelled() and self._connected.exception() is None

    @property
    def lost(self) -> bool:
        return self._disconnected.done()

    def take(self) -> list[Delivery]:
        """The next batch; may be empty."""
        taken = self.inbox.take()
        if self._paused and not self.inbox.full:
            self._resume()
        return taken

    def notify_when_lost(self) -> None:
        self._disconnected.add_done_callback(lambda _: self.wake.set())

    def drop(self) -> None:
        """Close a connection that never came up, or does not answer: aiomqtt would leave its socket open."""
        self._client.on_socket_register_write = None  # from here on paho writes at once
        self._client.disconnect()
        self._client._sock_close()  # noqa: SLF001 - where the farewell could not be written, paho leaves it open
        if self._disconnected.done() and not self._disconnected.cancelled():
            self._disconnected.exception()  # looked at, or asyncio complains that nobody did

    def _on_message(self, client: Any, userdata: Any, message: MQTTMessage) -> None:  # noqa: ANN401, ARG002 - paho's
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""  # no topic of ours, so that its payload ends as a counted refusal
        payload = bytes(message.payload)
        if message.qos:
            self.inbox.put(Delivery(topic, payload, partial(self._client.ack, message.mid, message.qos)))
        else:
            self.inbox.put(Delivery(topic, payload))
        self.wake.set()
        if self._bounded and self.inbox.full and not self._paused:
            self._pause()

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:  # noqa: ANN401, ARG002 - paho's
        """As inherited, but a socket that was closed meanwhile is not watched: its number may be another's by then."""

        def watch() -> None:
            current = self._client.socket()
            if current is not None and current is sock:
                self._loop.add_writer(current.fileno(), self._write)

        self._loop.call_soon_threadsafe(watch)

    def _write(self) -> None:
        try:
            self._client.loop_write()
        except Exception as error:  # noqa: BLE001 - as `_read`
            if not self._disconnected.done():
                self._disconnected.set_exception(error)

    # Memory: a broker that limits unacknowledged messages limits the inbox as well, but some do not, and messages of
    # QoS 0 are never limited. So a full inbox stops reading the socket, and TCP makes the broker wait. Not while
    # somebody waits for an answer, though, which comes by the same socket: until the next batch is asked for.

    def bound(self, wanted: bool) -> None:
        self._bounded = wanted
        if self._paused and not wanted:
            self._resume()

    def _pause(self) -> None:
        socket = self._client.socket()
        if socket is not None:
            self._paused = self._loop.remove_reader(socket.fileno())

    def _resume(self) -> None:
        self._paused = False
        socket = self._client.socket()
        if socket is not None:
            self._loop.add_reader(socket.fileno(), self._read)
            self._loop.call_soon(self._read)  # TLS may hold bytes that the socket no longer announces

    def _on_socket_open(self, client: Any, userdata: Any, sock: Any) -> None:  # noqa: ANN401 - paho's types
        super()._on_socket_open(client, userdata, sock)
        self._loop.call_soon_threadsafe(self._loop.add_reader, sock.fileno(), self._read)  # in place of the inherited

    def _read(self) -> None:
        """Read while messages come, a bounded number: one packet per turn of the event loop costs half the speed."""
        try:
            for _ in range(_READ_AT_ONCE):
                before = len(self.inbox)
                self._client.loop_read()
                if self._paused or (len(self.inbox) == before and not self._pending()):
                    break
            else:
                if self._pending():
                    self._loop.call_soon(self._read)
        except Exception as error:  # noqa: BLE001 - as aiomqtt's own reader: whatever it is ends this connection
            if not self._disconnected.done():
                self._disconnected.set_exception(error)

    def _pending(self) -> int:
        pending = getattr(self._client.socket(), "pending", None)  # TLS has it, and paho's WebSocket
        return 0 if pending is None else int(pending())


class _MqttSession:
    """A `Session` on one client."""

    def __init__(self, client: _Client, name: str) -> None:
        self._client = client
        self._name = name

    async def subscribe(self, filters: Sequence[str]) -> None:
        self._client.notify_when_lost()
        if ALL_TASKS in filters:
            # Retained tasks once at QoS 0: at QoS 1 they would queue behind redelivered reports, and the broker sends
            # no more of either while those reports wait for the very task that explains them.
            await self._subscribe(ALL_TASKS, qos=0)
        for topic in filters:
            await self._subscribe(topic, qos=1)

    async def batch(self) -> list[Delivery]:
        self._client.bound(wanted=True)
        while True:
            if self._client.lost:
                # What is left in the inbox was not acknowledged: it comes again on the next connection.
                raise BrokerError(self._name, "the connection was lost, or another client took the same name")
            if taken := self._client.take():
                return taken
            self._client.wake.clear()
            await self._client.wake.wait()

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self._client.bound(wanted=False)
        try:
            await cancellable(self._client.publish(topic, payload, qos=1, retain=retain))
        except (aiomqtt.MqttError, ValueError) as error:
            raise BrokerError(self._name, f"could not publish to {topic}: {_explain(error)}") from error

    async def close(self) -> None:
        try:
            if self._client.is_up:
                with suppress(aiomqtt.MqttError):  # a broker that does not even take a farewell
                    await cancellable(self._client.__aexit__(None, None, None))
        finally:
            self._client.drop()

    async def _subscribe(self, topic: str, qos: int) -> None:
        try:
            granted = await cancellable(self._client.subscribe(topic, qos=qos))
        except aiomqtt.MqttError as error:
            raise BrokerError(self._name, f"could not subscribe to {topic}: {_explain(error)}") from error
        if any((code if isinstance(code, int) else code.value) >= _SUBACK_FAILURE for code in granted):
            raise BrokerError(self._name, f"refuses the subscription to {topic}; allow it in the broker's access list")


def _explain(error: Exception) -> str:
    """The reason in words, without aiomqtt's codes."""
    text = str(error)
    return text.partition("] ")[2] or text
