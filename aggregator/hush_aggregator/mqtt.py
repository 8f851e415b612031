"""Intake: batches of messages from the broker, acknowledged after the commit."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import aiomqtt

from hush_aggregator.bus import Bus, Delivery, Session
from hush_aggregator.manual_client import ManualClient
from hush_common.broker_url import BrokerUrl
from hush_common.cancellation import cancellable
from hush_common.codec import BODY_LIMIT, FRAME_LIMIT, HEADER
from hush_common.errors import BrokerError
from hush_common.report import REPORT_ID_BYTES
from hush_common.tls import remedy, tls_context
from hush_common.topics import ALL_ESTIMATES, ALL_TASKS

__all__ = ["Bus", "Delivery", "MqttBus", "Session"]

_LONGEST_FRAME = HEADER.size + FRAME_LIMIT * (REPORT_ID_BYTES + 8 * BODY_LIMIT)
_TIMEOUT_S = 10.0
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
        on_estimate: called, in the event loop, with each estimate that is retained when the first connection is made.

    Raises:
        BrokerError: a file that `url` names for TLS cannot be read.
    """

    def __init__(
        self,
        url: BrokerUrl,
        identifier: str,
        *,
        status: str | None = None,
        kept: bool | None = None,
        on_estimate: Callable[[bytes], object] | None = None,
    ) -> None:
        self._url = url
        self._identifier = identifier
        self._status = status
        self._kept = kept if kept is not None else status is not None
        self._on_estimate = on_estimate
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
            if self._on_estimate is not None:
                client.divert(self._on_estimate)
                self._on_estimate = None  # asked for once: some brokers hang up on whoever may not read them
                await session.glance(ALL_ESTIMATES)
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

    def _client(self) -> ManualClient:
        """A new client for every connection: nothing that paho remembers of the last one reaches this one."""
        will = None if self._status is None else aiomqtt.Will(self._status, b"offline", qos=1, retain=True)
        client = ManualClient(
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

    async def _login(self, client: ManualClient) -> None:
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


class _MqttSession:
    """A `Session` on one client."""

    def __init__(self, client: ManualClient, name: str) -> None:
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

    async def glance(self, topic: str) -> None:
        """Ask for what is retained, and for nothing that comes later."""
        with suppress(BrokerError, aiomqtt.MqttError):
            await self._subscribe(topic, qos=0)
            await cancellable(self._client.unsubscribe(topic))

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
