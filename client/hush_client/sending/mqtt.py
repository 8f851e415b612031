"""The MQTT connection of a device."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hush_client.sending.transport import Link
from hush_common.broker_url import BrokerUrl
from hush_common.mqtt import Connection, Options, connect
from hush_common.task_file import PAYLOAD_LIMIT

__all__ = ["MqttTransport"]

_LOG = logging.getLogger(__name__)

_WINDOW = 64
_PATIENCE_SECONDS = 30.0
_INBOX_MESSAGES, _INBOX_BYTES = 1000, 1024 * 1024


class MqttTransport:
    """MQTT 3.1.1 with a clean session, over TCP, TLS or WebSockets as the address says.

    Args:
        url: address and login.
        identifier: head of the MQTT client id; a random tail follows, so that two runs never evict each other.

    Raises:
        BrokerError: `url` is no address of a broker.
    """

    def __init__(self, url: BrokerUrl | str, identifier: str) -> None:
        self._url = BrokerUrl.parse(url) if isinstance(url, str) else url
        self._identifier = identifier

    @property
    def name(self) -> str:
        return str(self._url)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Link]:
        options = Options(
            identifier=f"{self._identifier}-{secrets.token_hex(6)}",
            payload_limit=PAYLOAD_LIMIT,
            inbox_messages=_INBOX_MESSAGES,
            inbox_bytes=_INBOX_BYTES,
            window=_WINDOW,
            patience=_PATIENCE_SECONDS,
        )
        async with connect(self._url, options) as connection:
            yield _MqttLink(connection)


class _MqttLink:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def publish(self, topic: str, payload: bytes) -> None:
        await self._connection.publish(topic, payload)

    async def subscribe(self, topic: str) -> None:
        await self._connection.subscribe(topic)

    async def receive(self) -> tuple[str, bytes]:
        while True:
            await asyncio.sleep(0)  # many may have come: others want their turn between two of them
            (delivery,) = await self._connection.deliveries(1)
            delivery.ack()
            if delivery.topic:
                return delivery.topic, delivery.payload
            _LOG.warning("ignored a message on an impossible topic")
