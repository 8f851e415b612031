"""The MQTT client of intake: its inbox is bounded, and whoever takes a message out of it acknowledges it."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import aiomqtt
from paho.mqtt.client import MQTTMessage

from hush_aggregator.bus import BATCH_LIMIT, Delivery, Inbox
from hush_common.packets import limit_packets
from hush_common.topics import is_estimate_topic

__all__ = ["ManualClient"]

_INBOX_MESSAGES = 2 * BATCH_LIMIT
_INBOX_BYTES = 32 * 1024 * 1024
_READ_AT_ONCE = 64


def _ignore(_: bytes) -> object:
    """What becomes of an estimate unless somebody wants it."""


class ManualClient(aiomqtt.Client):
    """aiomqtt's client with an inbox of our own, and acknowledgement by hand.

    The inherited one acknowledges as soon as a message is queued, and a topic that it cannot parse ends the connection
    (again after every reconnect, because the broker sends that message again).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of aiomqtt.Client
        super().__init__(*args, **kwargs)
        self.pending_calls_threshold = 10_000  # below that, aiomqtt's warning says nothing to a person
        self._client.manual_ack_set(True)
        self.inbox: Inbox = Inbox(_INBOX_MESSAGES, _INBOX_BYTES)
        self.wake: asyncio.Event = asyncio.Event()
        self._on_estimate: Callable[[bytes], object] = _ignore
        self._bounded = False
        self._paused = False

    def limit(self, most: int, name: str) -> None:
        """Cut messages whose payload is longer than `most` bytes; `name` is the broker's, for the log."""
        limit_packets(self._client, most, name)

    def divert(self, on_estimate: Callable[[bytes], object]) -> None:
        """Give estimates, which never reach the inbox, to `on_estimate`."""
        self._on_estimate = on_estimate

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
        if is_estimate_topic(topic):  # nothing to be counted, and at QoS 0 nothing to be acknowledged
            self._on_estimate(payload)
            return
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
