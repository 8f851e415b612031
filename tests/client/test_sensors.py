"""Values in the messages of sensors, how old they are, and which message has one."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hush_client.sensor_list import Admission, Participation, SensorList
from hush_client.sensor_messages import PAYLOAD_BYTES, SensorField, SensorMessage
from hush_client.sensors import SensorReader, check_filter
from hush_common.broker_url import BrokerUrl
from hush_common.domain import Domain
from hush_common.errors import OptionError
from hush_common.task import make_task
from hush_common.topics import Delivery


def domain(**kind: object) -> Domain:
    return make_task({"id": "t", "epsilon": "1", "domain": kind}).domain


NUMBER = domain(kind="number", lower=0.0, upper=40.0)
BIT = domain(kind="bit")
WAYS = domain(kind="category", labels=["bus", "on foot", "3"])
CLIMATE = domain(
    kind="vector",
    coordinates=[{"name": "t", "lower": 0.0, "upper": 40.0}, {"name": "h", "lower": 0.0, "upper": 100.0}],
)


@pytest.mark.parametrize(
    ("path", "payload", "asked", "value"),
    [
        ("temperature", b'{"temperature":21.5,"battery":100}', NUMBER, 21.5),  # Zigbee2MQTT
        ("AM2301.Temperature", b'{"Time":"x","AM2301":{"Temperature":-3}}', NUMBER, -3),  # Tasmota
        ("", b"21.50", NUMBER, 21.5),  # ESPHome, Home Assistant
        ("", b"\xef\xbb\xbf21.50\r\n\0", NUMBER, 21.5),
        ("temperature", b'{"temperature":"21.5"}', NUMBER, 21.5),
        ("temperature", b'{"temperatur\\u0065":"\\u0032"}', NUMBER, 2),
        ("contact", b'{"contact":false}', BIT, False),
        ("contact", b'{"contact":1.0}', BIT, True),
        ("state", b'{"state":"ON"}', BIT, True),
        ("", b"off", BIT, False),
        ("", b"yes", BIT, True),
        ("", b"on foot", WAYS, "on foot"),
        ("way", b'{"way":3}', WAYS, "3"),
        ("t, h", b'{"t":21.5,"h":"40"}', CLIMATE, [21.5, 40]),
        ("t,h", b'{"t":21.5}', CLIMATE, [21.5, None]),
    ],
)
def test_the_value_of_a_message_is_found(path: str, payload: bytes, asked: Domain, value: object) -> None:
    found = SensorField(path).read(payload, asked)
    assert found == value
    assert asked.read(found, strict=False).coercion in ("used", "moved", "replaced")


@pytest.mark.parametrize(
    ("path", "payload", "asked"),
    [
        ("temperature", b'{"humidity":40}', NUMBER),
        ("temperature", b"21.5", NUMBER),
        ("temperature.inside", b'{"temperature":21.5}', NUMBER),
        ("temperature", b'{"temperature":null}', NUMBER),
        ("temperature", b'{"temperature":NaN}', NUMBER),
        ("temperature", b'{"temperature":inf}', NUMBER),
        ("temperature", b'{"temperature":true}', NUMBER),
        ("temperature", b'{"temperature":021}', NUMBER),
        ("temperature", b'{"temperature":,"humidity":1}', NUMBER),
        ("temperature", b'{"temperature":{"inside":3}}', NUMBER),
        ("temperature", b'{"temperature":', NUMBER),
        ("temperature", b'{"temperature":21', NUMBER),
        ("temperature", b'{"temperature":21}}', NUMBER),
        ("temperature", b"{temperature:21}", NUMBER),
        ("temperature", b'{"temperature":1,"temperature":2}', NUMBER),
        ("a.b", b'{"a":{"b":1},"a":{"c":2}}', NUMBER),
        ("temperature", b'{"temperature":' + b"9" * 101 + b"}", NUMBER),
        ("t,h", b'{"t":21.5,"h":40}', BIT),
        ("", b"unavailable", NUMBER),
        ("", b"unavailable", BIT),
        ("", b"\xff\xfe", NUMBER),
        ("", b"1" * (PAYLOAD_BYTES + 1), NUMBER),
        ("state", b'{"state":"on the way"}', WAYS),
        ("state", b'{"state":2}', BIT),
    ],
)
def test_a_message_without_a_value_is_a_missing_one_and_no_error(path: str, payload: bytes, asked: Domain) -> None:
    found = SensorField(path).read(payload, asked)
    assert asked.read(found, strict=False).coercion == "replaced"


@pytest.mark.parametrize(
    ("yes", "no", "values"),
    [
        ("offen", "zu", {b'"Offen"': True, b'" ZU"': False, b'"on"': None, b"true": None, b"1": None}),
        ("false", "true", {b"false": True, b"true": False, b'"FALSE"': True, b"0": None}),  # a contact, inverted
        ("0", "1", {b"0": True, b"1": False, b"1.0": False, b'"0"': True, b"true": None, b"2": None}),
        ("2", "3", {b"2": True, b"3e0": False, b"1": None}),
    ],
)
def test_words_of_ones_own_govern_every_type_of_json(yes: str, no: str, values: dict[bytes, bool | None]) -> None:
    field = SensorField("c", {yes: True, no: False})
    assert {one: field.read(b'{"c":%s}' % one, BIT) for one in values} == values


NAMES = st.one_of(st.text(max_size=6), st.sampled_from(["\u200c", "\u00a0", "👩\u200d🍳", "a.b", ":", "{", "\\", '"']))
TEXTS = NAMES.map(lambda text: json.dumps(text, ensure_ascii=False))
WORDS = st.sampled_from(
    ["nan", "NaN", "-inf", "Infinity", "1e999", "007", "+1", "true", "null", "", "0x1F", "9" * 5000]
)
NODES = st.recursive(
    st.one_of(TEXTS, WORDS, st.floats().map(str)),
    lambda node: st.one_of(
        st.lists(node, max_size=3).map(lambda parts: "[" + ",".join(part or "0" for part in parts) + "]"),
        st.lists(st.tuples(TEXTS, node), max_size=3).map(
            lambda pairs: "{" + ",".join(f"{k}:{v}" for k, v in pairs) + "}"
        ),
    ),
    max_leaves=8,
)
OTHERS = st.lists(st.tuples(TEXTS.filter(lambda key: key != '"temperature"'), NODES), max_size=4)


@pytest.mark.medium
@example([('"a"', "nan"), ('"a"', "nan")], 0, 21.5, "\0\0", "\ufeff")
@example([('"a"', "[" * 200 + "]" * 200)], 1, -0.5, "", "")
@settings(max_examples=40)
@given(
    OTHERS,
    st.integers(0, 4),
    st.floats(-1e6, 1e6),
    st.sampled_from(["", "\0", "\r\n\0\0"]),
    st.sampled_from(["", "\ufeff"]),
)
def test_no_other_field_costs_a_good_value(
    others: list[tuple[str, str]], place: int, value: float, tail: str, head: str
) -> None:
    pairs = [f"{key} : {node}" for key, node in others]
    pairs.insert(place, f'"temperature":{json.dumps(value)}')
    message = head + "{" + ",".join(pairs) + "}" + tail
    assert SensorField("temperature").read(message.encode(errors="surrogatepass"), NUMBER) == value


@pytest.mark.medium
@given(st.one_of(st.binary(max_size=60), st.text(alphabet='{}[]:,"\\x0an1e.- ', max_size=60).map(str.encode)))
def test_whatever_a_message_is_it_is_read_without_an_error(payload: bytes) -> None:
    for asked in (NUMBER, BIT, WAYS, CLIMATE):
        for path in ("", "a", "a.b", "a,b"):
            value = SensorField(path, {"x": True, "0": False}).read(payload, asked)
            assert asked.read(value, strict=False).coercion in ("used", "moved", "replaced")
    SensorMessage.parse(payload).find("a")[1]


@pytest.mark.medium
@given(st.dictionaries(st.text(max_size=3), st.one_of(st.floats(allow_nan=False), st.integers(), st.text(max_size=9))))
def test_of_ordinary_json_every_key_has_its_value(document: dict[str, Any]) -> None:
    message = SensorMessage.parse(json.dumps(document).encode())
    for key, value in document.items():
        if "." in key or not key:
            continue
        present, scalar = message.find(key)
        assert present
        assert scalar is not None
        if isinstance(value, str):
            assert (scalar.text, scalar.quoted) == (value, True)
        elif abs(value) < 1e50 and len(str(value)) < 100:
            assert scalar.number == float(value)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ('"2026-01-01T12:00:00Z"', datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ('"2026-01-01T12:00:00+02:00"', datetime(2026, 1, 1, 10, tzinfo=UTC)),
        ('"2026-01-01T12:00:00"', datetime(2026, 1, 1, 12).astimezone(UTC)),
        ("1767268800", datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ("1767268800000", datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ('"1767268800"', datetime(2026, 1, 1, 12, tzinfo=UTC)),
        *((early, datetime(1970, 1, 1, tzinfo=UTC)) for early in ("-1e300", "-3600", '"0001-01-01T00:00:00Z"')),
        *((wrong, None) for wrong in ('"yesterday"', "1e300", '"0001-01-01T00:00:00"', "true")),
    ],
)
def test_a_time_is_read_as_sensors_write_it(text: str, moment: datetime | None) -> None:
    scalar = SensorMessage.parse(b'{"at":%s}' % text.encode()).find("at")[1]
    assert scalar is not None
    assert scalar.time == moment


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", ['"\\', '"\\"', ':"\\', "{", '{"a":', ", ", '"'])
def test_a_message_that_is_made_to_be_slow_is_read_in_one_pass(part: str) -> None:
    """Four messages of 64 KiB that are read again from each of their quotes take minutes."""
    payload = ('{"a":' + part * PAYLOAD_BYTES)[:PAYLOAD_BYTES].encode()
    for _ in range(4):
        SensorMessage.parse(payload).find("a.a")


NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


class House:
    """A reader without a broker, whose sensors are confirmed."""

    def __init__(self, *fields: SensorField, time_field: str = "", path: Path | None = None) -> None:
        self.now = NOW
        admission = Admission(
            confirmed=["#"], keys=[field.key for field in fields], most=10, forget_after=timedelta(days=30)
        )
        self.sensors = SensorList(path, admission, lambda: self.now)
        self.reader = SensorReader(
            BrokerUrl.parse("mqtt://localhost"),
            ["z/+"],
            fields,
            self.sensors,
            max_age=3600,
            time_field=time_field,
            clock=lambda: self.now,
        )

    def send(self, *payloads: str, retained: bool = False) -> None:
        self.reader.take([Delivery("z/a", payload.encode(), retained=retained) for payload in payloads])


FIELD = SensorField("temperature")


async def test_a_message_without_the_key_leaves_the_newest_value() -> None:
    house = House(FIELD)
    house.send('{"temperature":20}', '{"temperature":21.5}')
    for later in ('{"humidity":40}', '{"temperature":null}', '{"temperature":{}}', '{"a":{"b":1}}', "online", "", "[]"):
        house.send(later)
        assert house.reader.current("z/a", FIELD, NUMBER) == 21.5


async def test_a_newer_value_that_cannot_be_used_replaces_an_older_one() -> None:
    house = House(FIELD)
    house.send('{"temperature":20}', '{"temperature":"unavailable"}')
    assert house.reader.current("z/a", FIELD, NUMBER) is None


async def test_the_coordinates_of_a_vector_come_in_any_messages() -> None:
    field = SensorField("t, h")
    house = House(field)
    house.send('{"t":20}')
    assert not house.sensors.sensors, "it may never have the other key"
    house.send('{"h":40}', '{"t":21}')
    house.send('{"h":41}')
    assert house.reader.current("z/a", field, CLIMATE) == [21, 41]


async def test_a_retained_message_is_no_value_before_or_after_a_live_one() -> None:
    house = House(FIELD)
    house.send('{"temperature":20}', retained=True)
    house.send('{"temperature":null}')
    assert house.reader.current("z/a", FIELD, NUMBER) is None
    house.send('{"temperature":21}')
    house.send('{"temperature":20}', retained=True)
    assert house.reader.current("z/a", FIELD, NUMBER) == 21


@pytest.mark.parametrize(
    ("minutes", "retained", "value"),
    [(-30, True, 20), (-90, True, None), (-90, False, None), (0.5, True, 20), (30, True, None), (30, False, 20)],
)
async def test_a_time_field_gives_a_message_its_age(minutes: float, retained: bool, value: object) -> None:
    house = House(FIELD, time_field="last_seen")
    house.send('{"temperature":null,"last_seen":"2026-06-01T12:00:00Z"}')
    sent = (NOW + timedelta(minutes=minutes)).isoformat()
    house.send(json.dumps({"last_seen": sent, "temperature": 20}), retained=retained)
    assert house.reader.current("z/a", FIELD, NUMBER) == value


async def test_an_older_retained_message_does_not_hide_a_newer_value() -> None:
    house = House(FIELD, time_field="at")
    house.send('{"temperature":20}')
    house.send('{"temperature":3,"at":"2026-06-01T11:30:00Z"}', retained=True)
    assert house.reader.current("z/a", FIELD, NUMBER) == 20


async def test_a_time_before_1970_is_old_and_the_list_can_hold_it(tmp_path: Path) -> None:
    for year in ("0001", "1900"):
        path = tmp_path / year
        house = House(FIELD, time_field="at", path=path)
        house.send(f'{{"temperature":20,"at":"{year}-01-01T00:00:00Z"}}')
        assert house.sensors.save()
        assert House(FIELD, path=path).sensors.sensors.keys() == {("temperature", "z/a")}
        assert house.sensors.participation("temperature", "z/a") is Participation.STOPPED
        assert house.reader.current("z/a", FIELD, NUMBER) is None


async def test_a_filter_that_no_message_matches_is_known() -> None:
    house = House(FIELD)
    assert house.reader.silent == ["z/+"]
    house.send("x")
    assert house.reader.silent == []


def test_a_topic_filter_is_checked() -> None:
    for text in ("zigbee2mqtt/+", "tele/+/SENSOR", "#", "a/#", "a"):
        check_filter(text)
    for text in ("", "a/#/b", "a+", "a/b#", "a\nb"):
        with pytest.raises(OptionError, match=r"zigbee2mqtt/\+"):
            check_filter(text)
