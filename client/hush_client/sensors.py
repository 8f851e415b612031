"""Sensors that publish their values on a broker: Zigbee2MQTT, ESPHome, Tasmota, Home Assistant.

The broker of the sensors is the broker of a house; the values stay there and in the memory of this process. Which
sensors take part is decided in `hush_client.sensor_list`, never by a value.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NoReturn

from hush_client.sending.schedule import Clock, utc_now
from hush_client.sensor_list import SensorList, is_plain
from hush_client.sensor_messages import PAYLOAD_BYTES, Scalar, SensorField, SensorMessage
from hush_common.aio import Backoff, cancellable
from hush_common.broker_url import BrokerUrl
from hush_common.domain import Domain
from hush_common.errors import BrokerError, OptionError
from hush_common.mqtt.connection import Options, connect
from hush_common.topics import Delivery, matches

_LOG = logging.getLogger(__name__)

_BATCH = 256
_INBOX_BYTES = 4 << 20
_PATIENCE_S = 30.0
_SILENCE_S = 150.0  # a broker without sensors says nothing but answers to pings
_CLOCKS_DIFFER = timedelta(minutes=1)  # by which the clock of a sensor may be ahead


class SensorReader:
    """Reads the messages of sensors from a broker, and stores the newest value of each key in memory.

    Args:
        url: the broker of the sensors.
        filters: MQTT topic filters, such as `zigbee2mqtt/+`.
        fields: where the values are.
        sensors: the list of those that take part; it is updated.
        max_age: seconds for which a value is current.
        time_field: the key of the time in a message, if messages have one.
        on_change: called after messages were read, once the list is updated.
        clock: the current time, aware.

    Raises:
        OptionError: a filter is not valid.
    """

    def __init__(
        self,
        url: BrokerUrl,
        filters: Sequence[str],
        fields: Sequence[SensorField],
        sensors: SensorList,
        *,
        max_age: float,
        time_field: str = "",
        on_change: Callable[[], object] = lambda: None,
        clock: Clock = utc_now,
    ) -> None:
        for one in filters:
            check_filter(one)
        self._url = url
        self._fields = {field.key: field for field in fields}
        self._sensors = sensors
        self._max_age = max_age
        self._time_field = time_field
        self._on_change = on_change
        self._clock = clock
        self._newest: dict[tuple[str, str], tuple[float, Scalar]] = {}  # by topic and path
        self._partial: dict[tuple[str, str], set[str]] = {}  # paths that live messages had, by field and topic
        self.silent: list[str] = [*filters]
        """Filters that no message has matched yet."""
        self._filters = tuple(filters)

    def current(self, topic: str, field: SensorField, domain: Domain) -> object:
        """Return the newest value of a topic, or None if there is none or it is too old."""
        oldest = asyncio.get_running_loop().time() - self._max_age
        found = [self._newest.get((topic, path)) for path in field.paths]
        return field.value([one[1] if one is not None and one[0] >= oldest else None for one in found], domain)

    async def run(self) -> None:
        """Read until cancelled; connect again after each loss, and log each outage once.

        Raises:
            StateError: the list of sensors cannot be stored, or a person has made a mistake in it.
        """
        backoff, was_lost = Backoff(), False

        async def read() -> NoReturn:
            nonlocal was_lost
            async with connect(self._url, self._options()) as connection:
                for one in self._filters:
                    await connection.subscribe(one, qos=0)
                if was_lost:
                    _LOG.warning("%s: connected again to the broker of the sensors", self._url)
                was_lost = False
                backoff.reset()
                while True:
                    deliveries = await connection.deliveries(_BATCH)
                    self.take(deliveries)
                    for delivery in deliveries:
                        delivery.ack()
                    await asyncio.sleep(0)

        while True:
            try:
                await cancellable(read(), BrokerError)
            except BrokerError as error:
                if not was_lost:
                    _LOG.warning("broker of the sensors: %s", error)
                was_lost = True
            await asyncio.sleep(backoff.next())

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Read messages, in order."""
        for one in deliveries:
            self.silent = [silent for silent in self.silent if not matches(silent, one.topic)]
            if one.topic and one.payload:  # without a payload a retained message was deleted
                self._read(one.topic, SensorMessage.parse(bytes(one.payload)), retained=one.retained)
        self._on_change()

    def _read(self, topic: str, message: SensorMessage, *, retained: bool) -> None:
        sent = self._time_of(message, retained=retained)
        for key, field in self._fields.items():
            found = {path: message.find(path) for path in field.paths}
            present = {path for path, (is_there, _) in found.items() if is_there}
            if len(found) > 1 and not retained and not self._sensors.is_crowded:
                present = self._partial[key, topic] = self._partial.get((key, topic), set()) | present
            live = None if retained else sent
            self._sensors.hear(key, topic, live=live, has_key=len(present) == len(found))
            if sent is not None and (key, topic) in self._sensors.sensors:
                self._store(topic, sent, {path: scalar for path, (_, scalar) in found.items() if scalar is not None})

    def _time_of(self, message: SensorMessage, *, retained: bool) -> datetime | None:
        """Return when a message was sent; None for a stored one that does not state it."""
        now = self._clock()
        scalar = message.find(self._time_field)[1] if self._time_field else None
        stated = None if scalar is None else scalar.time
        if stated is not None and stated <= now + _CLOCKS_DIFFER:
            return min(stated, now)
        return None if retained else now

    def _store(self, topic: str, sent: datetime, scalars: dict[str, Scalar]) -> None:
        when = asyncio.get_running_loop().time() - (self._clock() - sent).total_seconds()
        for path, scalar in scalars.items():
            if (topic, path) not in self._newest or self._newest[topic, path][0] <= when:
                self._newest[topic, path] = when, scalar

    def _options(self) -> Options:
        return Options(
            identifier=f"hush-gateway-{secrets.token_hex(6)}",
            payload_limit=PAYLOAD_BYTES,
            inbox_messages=4 * _BATCH,
            inbox_bytes=_INBOX_BYTES,
            window=1,
            patience=_PATIENCE_S,
            silence=_SILENCE_S,
        )


def check_filter(text: str, option: str = "--topic") -> None:
    """Raise OptionError unless a text is an MQTT topic filter of sensors."""
    levels = text.split("/")
    whole = all(one in ("+", "#") or not set(one) & set("+#") for one in levels)
    if not text or not whole or "#" in levels[:-1] or not is_plain(text):
        raise OptionError(option, "is not a topic filter; for example zigbee2mqtt/+")  # perhaps an address
