"""Sensors that publish their values on a broker: Zigbee2MQTT, ESPHome, Tasmota, Home Assistant.

The broker of the sensors is the broker of a house; the values stay there and in the memory of this process. Which
sensors take part depends on their topics alone, never on a value, and is stored: after a restart a sensor that is
silent still answers.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from hush_common.aio import Backoff, cancellable
from hush_common.broker_url import BrokerUrl
from hush_common.domain import Domain
from hush_common.errors import BrokerError, OptionError, StateError
from hush_common.files import replace_file
from hush_common.mqtt.connection import Options, connect
from hush_common.untrusted import DocumentLimits, read_json

_LOG = logging.getLogger(__name__)

PAYLOAD_BYTES = 64 * 1024
"""The longest message of a sensor; a longer one has no value."""
_LIMITS = DocumentLimits(PAYLOAD_BYTES, 8, 2048)
_BATCH = 256
_INBOX_BYTES = 4 << 20
_PATIENCE_S = 30.0
_SILENCE_S = 150.0  # a broker without sensors says nothing but answers to pings
_LONGEST_TOPIC = 256
WORDS: Mapping[str, bool] = {"on": True, "off": False, "open": True, "closed": False, "detected": True, "clear": False}
"""Texts of a yes or no that sensors send, besides those that every task takes."""


@dataclass(frozen=True, slots=True)
class SensorField:
    """Where the value is in a message of a sensor.

    `path` names a key of a JSON object, with dots between nested keys; `""` takes the whole message. Several paths,
    with commas between them, are the coordinates of a vector. `words` are texts of a yes or no.
    """

    path: str = ""
    words: Mapping[str, bool] = field(default_factory=lambda: WORDS)

    def read(self, payload: bytes, domain: Domain) -> object:
        """Return the value in a message, or None if there is none. It never raises."""
        if len(payload) > PAYLOAD_BYTES:
            return None
        try:
            document = read_json(payload, _LIMITS) if self.path else payload.decode().strip()
        except ValueError:
            return None
        paths = self.path.split(",")
        values = [self._value(document, path.strip(), domain) for path in paths]
        return values[0] if len(values) == 1 else values

    def _value(self, document: object, path: str, domain: Domain) -> object:
        for key in filter(None, path.split(".")):
            document = document.get(key) if isinstance(document, dict) else None
        if isinstance(document, str):
            return self._of_text(document.strip(), domain)
        return document if isinstance(document, bool | int | float) else None

    def _of_text(self, text: str, domain: Domain) -> object:
        if "," in self.path:  # one coordinate
            return domain.numbers[0].parse(text) if domain.numbers else None
        if domain.sizes == (2,) and text.casefold() in self.words:
            return self.words[text.casefold()]
        return domain.parse(text)


class SensorList:
    """The topics of the sensors that take part, one a line of a text file; new ones are added, none is removed.

    Raises:
        StateError: the file cannot be read.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._path = path
        self._most = most
        self._is_full = False
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise StateError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or 'not text'})") from error
        self.topics: list[str] = list(dict.fromkeys(line for line in text.splitlines() if line))

    def add(self, topics: Iterable[str]) -> list[str]:
        """Store topics that are new, and return them; StateError if they cannot be stored."""
        known = set(self.topics)
        new = [topic for topic in dict.fromkeys(topics) if topic not in known and _is_plain(topic)]
        room = max(self._most - len(self.topics), 0)
        if len(new) > room and not self._is_full:
            self._is_full = True
            _LOG.warning("more than %d sensors match; the others take no part (--most-sensors)", self._most)
        new = new[:room]
        if new:
            try:
                replace_file(self._path, "".join(f"{topic}\n" for topic in [*self.topics, *new]).encode())
            except OSError as error:
                raise StateError(f"{self._path}: cannot be written ({error.strerror}); make room") from error
            self.topics += new
        return new


def _is_plain(topic: str) -> bool:
    return 0 < len(topic) <= _LONGEST_TOPIC and topic.isprintable()


class SensorReader:
    """Reads the messages of sensors from a broker, and stores the newest of each topic in memory.

    Args:
        url: the broker of the sensors.
        filters: MQTT topic filters, such as `zigbee2mqtt/+`.
        sensors: the topics that take part; new ones are added.
        max_age: seconds for which a message is current.
        on_new: called with each topic that was added.

    Raises:
        OptionError: a filter is not valid.
    """

    def __init__(
        self,
        url: BrokerUrl,
        filters: Sequence[str],
        sensors: SensorList,
        *,
        max_age: float,
        on_new: Callable[[str], object] = lambda _: None,
    ) -> None:
        for one in filters:
            check_filter(one)
        self._url = url
        self._filters = tuple(filters)
        self._sensors = sensors
        self._max_age = max_age
        self._on_new = on_new
        self._newest: dict[str, tuple[float, bytes]] = {}

    def newest(self, topic: str) -> bytes | None:
        """Return the newest message of a topic, or None if there is none or it is too old."""
        when, payload = self._newest.get(topic, (0.0, b""))
        is_current = payload != b"" and asyncio.get_running_loop().time() - when <= self._max_age
        return payload if is_current else None

    async def run(self) -> None:
        """Read until cancelled; connect again after each loss, and log each outage once.

        Raises:
            StateError: a new sensor cannot be stored.
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
                    self._take([(one.topic, bytes(one.payload)) for one in deliveries])
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

    def _take(self, messages: list[tuple[str, bytes]]) -> None:
        new = self._sensors.add(topic for topic, _ in messages)
        now, known = asyncio.get_running_loop().time(), set(self._sensors.topics)
        self._newest |= {topic: (now, payload) for topic, payload in messages if topic in known}
        for topic in new:
            self._on_new(topic)

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


def check_filter(text: str) -> None:
    """Raise OptionError unless a text is an MQTT topic filter of sensors."""
    levels = text.split("/")
    whole = all(one in ("+", "#") or not set(one) & set("+#") for one in levels)
    if not text or not whole or "#" in levels[:-1] or not _is_plain(text):
        raise OptionError("--topic", "is not a topic filter; for example zigbee2mqtt/+")  # perhaps an address
