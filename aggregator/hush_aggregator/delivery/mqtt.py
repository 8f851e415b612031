"""The MQTT connection of an aggregator, and the check whether the broker lets anyone in."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

from hush_aggregator.delivery.session import BrokerSession
from hush_aggregator.logs import fields
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, SubscriptionRefusedError
from hush_common.mqtt.connection import (
    MqttConnection,
    Options,
    accepts_connection,
    connect,
    find_missing_feature,
    tls_context,
)
from hush_common.rng import REPORT_ID_BYTES
from hush_common.topics import (
    ALL_ESTIMATES,
    ALL_RECALLS,
    ALL_TASKS,
    BATCH_LIMIT,
    BROKER_DROPPED,
    BROKER_RETAINED,
    BROKER_STORED,
    BROKER_UPTIME,
    BROKER_VERSION,
    Delivery,
)
from hush_common.wire import BODY_LIMIT, FRAME_LIMIT, HEADER

_INBOX_MESSAGES = 2 * BATCH_LIMIT
_INBOX_BYTES = 32 * 1024 * 1024
_LONGEST_FRAME = HEADER.size + FRAME_LIMIT * (REPORT_ID_BYTES + 8 * BODY_LIMIT)
_WINDOW = 20
_PATIENCE_SECONDS = 120.0
_PING_SECONDS, _SILENCE_SECONDS = 1.0, 30.0
_FAREWELL_SECONDS = 1.0
_WATCHED = (BROKER_VERSION, BROKER_UPTIME, BROKER_DROPPED, BROKER_STORED, BROKER_RETAINED, ALL_RECALLS)
_STATUS_OF_OTHERS = "+/status"
_TOPICS_AT_ONCE = 100
_HANG_UPS = 2  # in a row, after which a broker is not asked about itself any more


def _ignore(_: str, __: bytes) -> None:
    """What becomes of a message that nobody wants yet."""


class MqttBroker:
    """A `Bus` over MQTT 3.1.1.

    Args:
        url: the broker.
        identifier: the MQTT client id. A broker keeps the session of one id for one connection: two processes that
            share an id throw each other out.
        status: a topic that says `online` or `offline`, retained, the latter as the last will too; None for no such
            topic.
        kept: whether the broker keeps the session while nobody is connected; None keeps it where there is a status.
        qos: of subscriptions. What is subscribed to at QoS 0 does not wait in a session that is kept.
        patience: seconds after which an answer is late, even that of a broker that is known to have sent all before it.

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
        qos: int = 1,
        patience: float | None = None,
    ) -> None:
        tls_context(url)  # report a mistake now; each connection reads the files again
        self._url = url
        self._status = status
        self._hang_ups = 0
        self.qos = qos
        self._options = Options(
            identifier=identifier,
            persistent=kept if kept is not None else status is not None,
            will=None if status is None else (status, b"offline"),
            payload_limit=_LONGEST_FRAME,
            inbox_messages=_INBOX_MESSAGES,
            inbox_bytes=_INBOX_BYTES,
            window=_WINDOW,
            patience=_PATIENCE_SECONDS if patience is None else patience,
            ping_every=_PING_SECONDS,
            silence=_SILENCE_SECONDS,
        )

    @property
    def name(self) -> str:
        return str(self._url)

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[BrokerSession]:
        session = None
        try:
            async with self._connected(filters) as session:
                yield session
        except BrokerError as error:
            # Not for a session that is kept: where a user has one connection, the question would end another one.
            if session is not None and session.is_unsent and not self._options.persistent:
                raise await find_missing_feature(self._url) or error from None
            raise

    @asynccontextmanager
    async def _connected(self, filters: Sequence[str]) -> AsyncIterator["_MqttSession"]:
        async with connect(self._url, self._options) as connection:
            session = _MqttSession(connection, self)
            opening = asyncio.create_task(self._open(session, filters), name="hush-subscribe")
            try:
                if connection.resumed:  # the broker knows the filters, and its answer may wait behind a backlog
                    opening.add_done_callback(partial(_end, connection))
                else:
                    await opening
                yield session
            finally:
                opening.cancel()
                await asyncio.wait({opening})
                if self._status is not None:
                    with suppress(BrokerError, TimeoutError):
                        async with asyncio.timeout(_FAREWELL_SECONDS):
                            await session.publish(self._status, b"offline", retain=True)

    async def _open(self, session: "_MqttSession", filters: Sequence[str]) -> None:
        await session.subscribe(filters)
        if self._status is not None:
            await session.publish(self._status, b"online", retain=True)

    async def ask(self, connection: MqttConnection, topics: Sequence[str]) -> None:
        """Subscribe to what may be forbidden; some brokers hang up on a client that may not read a topic."""
        if self._hang_ups == _HANG_UPS:
            return
        self._hang_ups += 1
        for start in range(0, len(topics), _TOPICS_AT_ONCE):
            with suppress(SubscriptionRefusedError):  # of one of them; at QoS 1 they would wait in the session
                await connection.subscribe(*topics[start : start + _TOPICS_AT_ONCE], qos=0)
        self._hang_ups = 0


def _end(connection: MqttConnection, opening: "asyncio.Task[None]") -> None:
    """A connection whose subscriptions are refused is of no use."""
    if not opening.cancelled() and isinstance(error := opening.exception(), BrokerError):
        connection.end(error)


class _MqttSession:
    """A `Session` on one connection."""

    def __init__(self, connection: MqttConnection, bus: MqttBroker) -> None:
        self._connection = connection
        self._bus = bus
        self.is_unsent = False  # whether a publication failed: the broker may have hung up on it
        # What is left of an earlier connection's subscriptions comes before anybody listens.
        for topic in (ALL_ESTIMATES, _STATUS_OF_OTHERS, *_WATCHED):
            connection.set_aside(topic, _ignore)

    @property
    def waiting(self) -> int:
        return self._connection.waiting

    @property
    def resumed(self) -> bool:
        return self._connection.resumed

    @property
    def repeated(self) -> int:
        return self._connection.repeated

    @property
    def current_until(self) -> float:
        return self._connection.current_until

    def acknowledge(self, numbers: Iterable[int]) -> None:
        self._connection.acknowledge(numbers)

    async def watch(self, listen: Callable[[str, bytes], object]) -> None:
        for topic in _WATCHED:
            self._connection.set_aside(topic, listen)
        await self._bus.ask(self._connection, _WATCHED)

    async def look(self, topics: Sequence[str], listen: Callable[[str, bytes], object]) -> None:
        self._connection.set_aside(ALL_ESTIMATES, listen)
        self._connection.set_aside(ALL_TASKS, listen, copy=True)
        await self._bus.ask(self._connection, topics)
        await self._bus.ask(self._connection, topics[-1:])  # answered after what is retained under the first

    async def hear(self, topic: str, listen: Callable[[str, bytes], object]) -> None:
        self._connection.set_aside(_STATUS_OF_OTHERS, listen)
        await self._bus.ask(self._connection, [topic])

    async def subscribe(self, filters: Sequence[str]) -> None:
        if ALL_TASKS in filters:
            # Retained tasks once at QoS 0: at QoS 1 they would queue behind redelivered reports, and the broker sends
            # no more of either while those reports wait for the very task that explains them.
            await self._connection.subscribe(ALL_TASKS, qos=0)
        for topic in filters:
            if topic != ALL_TASKS or self._bus.qos:
                await self._connection.subscribe(topic, qos=self._bus.qos)
        self._connection.ping()  # answered after what is retained under these topics

    async def batch(self) -> list[Delivery]:
        return await self._connection.deliveries(BATCH_LIMIT)

    def leave(self, topic_filter: str) -> None:
        """End a subscription; what the broker has queued for it still comes."""
        self._connection.unsubscribe(topic_filter)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        try:
            await self._connection.publish(topic, payload, retain=retain)
        except BrokerError:
            self.is_unsent = True
            raise


_LOG = logging.getLogger("hush.aggregator")
_POLL_S = 0.2


async def warn_if_open(url: BrokerUrl, is_connected: Callable[[], bool]) -> None:
    """Log one warning if the broker accepts a connection without a login. Tries once, and never raises.

    Args:
        url: the broker, with the login of the aggregator. Where that has none, the broker is open once it is connected.
        is_connected: whether the aggregator is connected. Until it is, a failed try would say nothing about logins.
    """
    while not is_connected():  # noqa: ASYNC110 - a connection has no event, and this is in no hurry
        await asyncio.sleep(_POLL_S)
    has_login = (url.user, url.cert) != (None, None)
    if not has_login or await accepts_connection(replace(url, user=None, password=None, cert=None, key=None)):
        _LOG.warning(
            "%s accepts clients without a login: unless its rules forbid them to write, anyone who reaches it can take "
            "over an estimate with one message; for a broker with logins and rules, run hush broker config",
            url,
            extra=fields("open_broker"),
        )
