"""Values in the messages of sensors, and which sensors take part."""

import logging
from pathlib import Path

import pytest

from hush_client.sensors import PAYLOAD_BYTES, SensorField, SensorList, check_filter
from hush_common.domain import Domain
from hush_common.errors import OptionError, StateError
from hush_common.task import make_task


def domain(**kind: object) -> Domain:
    return make_task({"id": "t", "epsilon": "1", "domain": kind}).domain


NUMBER = domain(kind="number", lower=0.0, upper=40.0)
BIT = domain(kind="bit")
WAYS = domain(kind="category", labels=["bus", "on foot"])
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
        ("temperature", b'{"temperature":"21.5"}', NUMBER, 21.5),
        ("contact", b'{"contact":false}', BIT, False),
        ("state", b'{"state":"ON"}', BIT, True),
        ("", b"off", BIT, False),
        ("", b"yes", BIT, True),
        ("", b"on foot", WAYS, "on foot"),
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
        ("temperature", b'{"temperature":{"inside":3}}', NUMBER),
        ("temperature", b'{"temperature":', NUMBER),
        ("temperature", b'{"temperature":1,"temperature":2}', NUMBER),
        ("", b"unavailable", NUMBER),
        ("", b"unavailable", BIT),
        ("", b"\xff\xfe", NUMBER),
        ("", b"1" * (PAYLOAD_BYTES + 1), NUMBER),
        ("state", b'{"state":"on the way"}', WAYS),
    ],
)
def test_a_message_without_a_value_is_a_missing_one_and_no_error(path: str, payload: bytes, asked: Domain) -> None:
    found = SensorField(path).read(payload, asked)
    assert asked.read(found, strict=False).coercion == "replaced"


def test_a_word_of_ones_own_means_yes() -> None:
    field = SensorField("", {"offen": True, "zu": False})
    assert [field.read(text, BIT) for text in (b"Offen", b"ZU", b"on")] == [True, False, None]


def test_sensors_are_stored_in_order_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "sensors.txt"
    first = SensorList(path, 10)
    assert first.add(["z/b", "z/a", "z/b"]) == ["z/b", "z/a"]
    assert first.add(["z/a"]) == []
    assert path.read_text() == "z/b\nz/a\n"
    assert SensorList(path, 10).topics == ["z/b", "z/a"]


def test_more_sensors_than_allowed_take_no_part_and_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sensors = SensorList(tmp_path / "sensors.txt", 2)
    with caplog.at_level(logging.WARNING):
        assert sensors.add(["a", "b", "c"]) == ["a", "b"]
        assert sensors.add(["d"]) == []
    assert [record.getMessage() for record in caplog.records] == [
        "more than 2 sensors match; the others take no part (--most-sensors)"
    ]


def test_a_topic_that_no_list_can_hold_takes_no_part(tmp_path: Path) -> None:
    sensors = SensorList(tmp_path / "sensors.txt", 9)
    assert sensors.add(["a\nb", "", "x" * 300, "a\u202eb", "good"]) == ["good"]


def test_a_list_that_cannot_be_written_is_an_error_and_adds_nothing(tmp_path: Path) -> None:
    sensors = SensorList(tmp_path / "missing" / "sensors.txt", 9)
    with pytest.raises(StateError, match="cannot be written"):
        sensors.add(["a"])
    assert sensors.topics == []


def test_a_list_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "sensors.txt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StateError, match="cannot be read"):
        SensorList(path, 9)


@pytest.mark.parametrize("text", ["zigbee2mqtt/+", "tele/+/SENSOR", "#", "a/#", "a"])
def test_a_topic_filter_is_one(text: str) -> None:
    check_filter(text)


@pytest.mark.parametrize("text", ["", "a/#/b", "a+", "a/b#", "a\nb"])
def test_what_is_not_a_topic_filter_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"is not a topic filter; for example zigbee2mqtt/\+"):
        check_filter(text)
