"""The MQTT connection of a device."""

import asyncio
import logging
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import NoneType
from typing import Literal

from hush_client.limits import check_type
from hush_client.sending.transport import Link
from hush_common.broker_url import BrokerUrl
from hush_common.errors import OptionError, ProtocolRefusedError
from hush_common.mqtt.connection import MqttConnection, Options, connect
from hush_common.task import PAYLOAD_LIMIT
from hush_common.topics import Acknowledgement

_LOG = logging.getLogger(__name__)

_WINDOW = 64
_PATIENCE_SECONDS = 30.0
_INBOX_MESSAGES, _INBOX_BYTES = 1000, 1024 * 1024
_LONGEST_ID = 128  # characters of a client id


class MqttTransport:
    """MQTT 5, or 3.1.1 if the broker does not support version 5, over TCP, TLS or WebSockets as the address says.

    A session begins empty and ends with the connection: the memory is the state of the device.

    After a broker has refused version 5, every connection uses 3.1.1. If it closes the connection or does not answer,
    the cause may be the network: this connection uses 3.1.1, and the next one tries version 5 again.

    Args:
        url: address and login.
        identifier: start of the MQTT client id; a random end follows, so that two runs never evict each other.
        tls: used for TLS instead of the files in `url`, which must be `mqtts://` or `wss://`. It must check the
            broker's certificate and its name.
        client_id: the whole MQTT client id, for brokers whose rules need one that is known. Of two connections with
            one client id, the broker ends the older.

    Raises:
        BrokerError: `url` is not an address of a broker.
        TypeError: an argument has the wrong type.
        OptionError: `tls` is given for an address without TLS or does not check the broker, or `client_id` is not a
            client id.
    """

    def __init__(
        self, url: BrokerUrl | str, identifier: str, *, tls: ssl.SSLContext | None = None, client_id: str = ""
    ) -> None:
        self._url = BrokerUrl.parse(url) if isinstance(url, str) else url
        check_type("tls", tls, (ssl.SSLContext, NoneType), "an ssl.SSLContext")
        check_type("client_id", client_id, str, "text")
        if tls is not None and not self._url.tls:
            raise OptionError("tls", f"is given, but {self._url} is an address without TLS; write mqtts:// or wss://")
        if tls is not None and (tls.verify_mode is not ssl.CERT_REQUIRED or not tls.check_hostname):
            checks = "verify_mode = ssl.CERT_REQUIRED and check_hostname = True"
            raise OptionError("tls", f"does not check the broker's certificate and name; set {checks}")
        if len(client_id) > _LONGEST_ID or not client_id.isprintable():
            raise OptionError("client_id", f"is not a text of at most {_LONGEST_ID} printable characters")
        self._tls = tls
        self._client_id = client_id
        self._identifier = identifier
        self._old = False

    @property
    def name(self) -> str:
        return str(self._url)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Link]:
        async with AsyncExitStack() as stack:
            yield _MqttLink(await self._connection(stack))

    async def _connection(self, stack: AsyncExitStack) -> MqttConnection:
        if not self._old:
            try:
                return await stack.enter_async_context(connect(self._url, self._options("5")))
            except ProtocolRefusedError as error:
                self._old = error.said
        return await stack.enter_async_context(connect(self._url, self._options("3.1.1")))

    def _options(self, version: Literal["3.1.1", "5"]) -> Options:
        return Options(
            identifier=self._client_id or f"{self._identifier}-{secrets.token_hex(6)}",
            version=version,
            tls=self._tls,
            payload_limit=PAYLOAD_LIMIT,
            inbox_messages=_INBOX_MESSAGES,
            inbox_bytes=_INBOX_BYTES,
            window=_WINDOW,
            patience=_PATIENCE_SECONDS,
        )


class _MqttLink:
    def __init__(self, connection: MqttConnection) -> None:
        self._connection = connection

    async def publish(self, topic: str, payload: bytes) -> Acknowledgement:
        return await self._connection.publish(topic, payload)

    async def subscribe(self, topic: str) -> None:
        await self._connection.subscribe(topic)

    async def receive(self) -> tuple[str, bytes]:
        while True:
            await asyncio.sleep(0)  # many may have come: other tasks run between two of them
            (delivery,) = await self._connection.deliveries(1)
            delivery.ack()
            if delivery.topic:
                return delivery.topic, delivery.payload
            _LOG.warning("ignored a message on an impossible topic")
