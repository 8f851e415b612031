"""MQTT: the way to the broker that devices use. The only module of a device that imports aiomqtt."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiomqtt
from paho.mqtt.reasoncodes import ReasonCode

from hush_client.link import Link, SubscriptionRefusedError
from hush_common.broker_url import BrokerUrl
from hush_common.cancellation import cancellable
from hush_common.errors import BrokerError
from hush_common.packets import limit_packets
from hush_common.task_file import PAYLOAD_LIMIT
from hush_common.tls import remedy, tls_context

__all__ = ["MqttTransport"]

_LOG = logging.getLogger(__name__)

_CONNECT_TIMEOUT = 10.0
_ACKNOWLEDGE_TIMEOUT = 30.0
_SUBACK_FAILURE = 0x80


class MqttTransport:
    """MQTT 3.1.1 with a clean session, over TCP, TLS or WebSockets as the address says.

    Args:
        url: address and login.
        identifier: head of the MQTT client id; a random tail follows, so that two runs never evict each other.
        window: most messages in flight.

    Raises:
        BrokerError: `url` is no address of a broker.
    """

    def __init__(self, url: BrokerUrl | str, identifier: str, *, window: int = 64) -> None:
        self._url = BrokerUrl.parse(url) if isinstance(url, str) else url
        self._identifier = identifier
        self._window = window

    @property
    def name(self) -> str:
        return str(self._url)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Link]:
        # A new client each time: paho would otherwise resend from a queue of its own on the next connection.
        client = _Client(
            self._url.host,
            self._url.port,
            username=self._url.user,
            password=self._url.password,
            identifier=f"{self._identifier}-{secrets.token_hex(6)}",
            clean_session=True,
            timeout=_CONNECT_TIMEOUT,
            max_inflight_messages=self._window,
            tls_context=await asyncio.to_thread(tls_context, self._url) if self._url.tls else None,
            transport="tcp" if self._url.path is None else "websockets",
            websocket_path=self._url.path,
        )
        client.pending_calls_threshold = 2 * self._window
        limit_packets(client._client, PAYLOAD_LIMIT, self.name)  # noqa: SLF001 - aiomqtt has no public way
        await self._open(client)
        try:
            yield _MqttLink(client, self.name)
        finally:
            await _close(client)

    async def _open(self, client: aiomqtt.Client) -> None:
        trouble = await self._attempt(client)
        if trouble is not None:  # raised here, where no chain of causes keeps a half-open socket of paho's alive
            raise BrokerError(self.name, trouble)

    async def _attempt(self, client: aiomqtt.Client) -> str | None:
        """Connect, or leave nothing behind (neither a socket nor a thread that opens one later) and say why."""
        opening = asyncio.create_task(client.__aenter__(), name="hush-open")
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            _give_up(client, "given up")
            await asyncio.wait((opening,))
            _abandon(client)
            if not opening.cancelled():
                opening.exception()  # looked at, so that asyncio does not complain
            raise
        except aiomqtt.MqttCodeError as error:
            return f"the broker refuses the login ({_refusal(error)})"
        except (aiomqtt.MqttError, OSError, ValueError) as error:
            _abandon(client)
            reason = str(error).partition("] ")[2] or str(error)
            return f"cannot connect ({reason}); {remedy(error)}"
        return None


class _Client(aiomqtt.Client):
    """aiomqtt's client, for brokers that misbehave.

    It would wait out the whole timeout for the welcome of a broker that has hung up; and a message whose topic is no
    text, or has a wildcard in it, would be read for ever, for paho keeps a packet whose handling fails.
    """

    def _on_message(self, *arguments: Any) -> None:  # noqa: ANN401 - paho's
        try:
            super()._on_message(*arguments)
        except ValueError:
            _LOG.warning("ignored a message on a topic that cannot be")

    def _on_disconnect(self, *arguments: Any) -> None:  # noqa: ANN401 - paho's
        self._loop.call_soon_threadsafe(_give_up, self, "it hung up before it said whether it lets us in")
        super()._on_disconnect(*arguments)
        _look_at(self._disconnected)


class _MqttLink:
    def __init__(self, client: aiomqtt.Client, name: str) -> None:
        self._client = client
        self._name = name
        self._messages = client.messages

    async def publish(self, topic: str, payload: bytes) -> None:
        try:
            await cancellable(self._client.publish(topic, payload, qos=1, timeout=_ACKNOWLEDGE_TIMEOUT))
        except aiomqtt.MqttError as error:
            raise self._lost() from error

    async def subscribe(self, topic: str) -> None:
        try:
            granted = await cancellable(self._client.subscribe(topic, qos=1))
        except aiomqtt.MqttError as error:
            raise self._lost() from error
        if any(_is_refused(code) for code in granted):
            raise SubscriptionRefusedError(
                self._name, f"the broker refuses the subscription to {topic}; check its access rules"
            )

    async def receive(self) -> tuple[str, bytes]:
        if len(self._messages):  # else aiomqtt takes longer for each than another one takes to come, and they pile up
            message = self._client._queue.get_nowait()  # noqa: SLF001 - aiomqtt has no public way
            return message.topic.value, message.payload
        try:
            message = await anext(self._messages)
        except aiomqtt.MqttError as error:
            raise self._lost() from error
        return message.topic.value, message.payload

    def _lost(self) -> BrokerError:
        return BrokerError(self._name, "the connection is lost; what is not acknowledged will be sent again")


def _refusal(error: aiomqtt.MqttCodeError) -> str:
    code = error.rc
    reason = str(error) if code is None or isinstance(code, int) else code.getName().lower()
    return f"{reason}; check user and password in the address"


def _is_refused(code: int | ReasonCode) -> bool:
    return (code if isinstance(code, int) else code.value) >= _SUBACK_FAILURE


async def _close(client: aiomqtt.Client) -> None:
    try:
        await cancellable(client.__aexit__(None, None, None))
    except aiomqtt.MqttError:
        _abandon(client)  # a broker that does not even take a farewell
    except asyncio.CancelledError:
        _abandon(client)
        raise
    finally:
        _look_at(client._disconnected)  # noqa: SLF001 - aiomqtt has no public way


def _look_at(lost: asyncio.Future[None]) -> None:
    """Read why a connection was lost: where nobody does, as in aiomqtt, asyncio complains to the application."""
    if lost.done() and not lost.cancelled():
        lost.exception()


def _give_up(client: aiomqtt.Client, why: str) -> None:
    """End the wait for the broker's welcome; a thread that connects goes on until it does or fails, 5 s at most."""
    welcome = client._connected  # noqa: SLF001 - cancelling aiomqtt instead would let go of that thread and its socket
    if not welcome.done():
        welcome.set_exception(aiomqtt.MqttError(why))
        welcome.exception()  # looked at, so that asyncio does not complain


def _abandon(client: aiomqtt.Client) -> None:
    """Close the socket of a connection that never came about; aiomqtt keeps it and its timer."""
    paho = client._client  # noqa: SLF001 - aiomqtt has no public way
    paho.on_socket_register_write = None  # else aiomqtt would watch a socket that is closed by then
    paho.disconnect()
    paho.loop_write()
