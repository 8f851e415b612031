"""The address of a broker."""

import pytest

from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("mqtt://localhost", BrokerUrl("localhost", 1883)),
        ("mqtt://localhost/", BrokerUrl("localhost", 1883)),
        ("MQTT://localhost:2000", BrokerUrl("localhost", 2000)),
        ("mqtts://h", BrokerUrl("h", 8883, tls=True)),
        ("mqtts://h?ca=/etc/my%20ca.pem", BrokerUrl("h", 8883, tls=True, ca="/etc/my ca.pem")),
        ("mqtt://alice@h", BrokerUrl("h", 1883, "alice")),
        ("mqtt://alice:s3:cret@h", BrokerUrl("h", 1883, "alice", "s3:cret")),
        ("mqtt://alice:p%40ss%2F@h", BrokerUrl("h", 1883, "alice", "p@ss/")),
        ("mqtt://alice:p@ss@h", BrokerUrl("h", 1883, "alice", "p@ss")),
        ("mqtt://[::1]:1884", BrokerUrl("::1", 1884)),
        ("ws://h", BrokerUrl("h", 80, path="/mqtt")),
        ("ws://h:9001/", BrokerUrl("h", 9001, path="/")),
        ("wss://alice@h/a/b%20c?ca=/x", BrokerUrl("h", 443, "alice", tls=True, ca="/x", path="/a/b%20c")),
        ("mqtts://h?cert=/c&key=/k%26", BrokerUrl("h", 8883, tls=True, cert="/c", key="/k&")),
    ],
)
def test_an_address_is_read(text: str, parsed: BrokerUrl) -> None:
    assert BrokerUrl.parse(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "mqtt://a%20b@h:1883",
        "mqtts://[::1]:8883?ca=/x%20y",
        "wss://h:443/a?ca=/a%2B&cert=/b&key=/c",
        "ws://h:80/mqtt",
        "mqtt://h:1",
    ],
)
def test_an_address_without_a_password_survives_being_written_and_read_again(text: str) -> None:
    assert str(BrokerUrl.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "localhost:1883",
        "http://localhost",
        "mqtt:localhost",
        "mqtt://",
        "mqtt://:1883",
        "mqtt://h:0",
        "mqtt://h:65536",
        "mqtt://h:x",
        "mqtt://h/path",
        "mqtt://h#f",
        "mqtt://:secret@h",
        "mqtt://h?ca=/x",
        "mqtts://h?ca=",
        "mqtts://h?verify=no",
        "mqtts://h?ca=/x&ca=/y",
        "mqtts://h?key=/k",
        "ws://h?cert=/c",
        "ws://h/path#f",
        "mqtt://[::1",
        "mqtt://h h",
        "mqtt://h\n",
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BrokerError, match="mqtt://localhost:1883") as caught:
        BrokerUrl.parse(text)
    assert "\n" not in str(caught.value).replace(text, "")


@pytest.mark.parametrize(
    "text",
    [
        "mqtt://alice:s3cret@h:x",
        "mqtt://alice:s3/cret@h",
        "x://a:s3cret@h",
        "mqtt://a:s3cret@",
        "kitchen:s3cret@host",
        "mqtt:/kitchen:s3cret@host",
        "mqtt:kitchen:s3cret@host",
        "mqtt://kitchen:s3cret",
        "mqtt://kit@chen:s3cret@host:x",
        "mqtt://kitchen:s3?cret@host",
        "mqtt://kitchen:80?cret@host",
        "mqtts://kitchen:80?cret=@host",
        "ws://kitchen:80/s3cret@host",
        "ws://kitchen:80/s3#cret@host",
        "mqtt://kitchen:s3\ncret@host",
        "mqtt://kitchen:s3cret@[host]",
        "mqtt://kitchen:s3cret@h\u2100st",  # urlsplit's own message repeats all of it
        "mqtt://[s3cret",
    ],
)
def test_a_password_is_never_shown(text: str) -> None:
    with pytest.raises(BrokerError) as caught:
        BrokerUrl.parse(text)
    assert caught.value.__cause__ is None
    assert "cret" not in str(caught.value)
    good = BrokerUrl.parse("mqtt://alice:s3cret@h")
    assert "s3cret" not in f"{good} {good!r}"


@pytest.mark.parametrize(
    "parts", [{"user": "x" * 65_536}, {"user": "a", "password": "ä" * 32_768}, {"user": "a\udcff"}]
)
def test_what_no_packet_of_mqtt_can_hold_is_refused_and_not_shown(parts: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"the (user|password) is not text of at most 65535 bytes") as caught:
        BrokerUrl("h", 1, **parts)  # type: ignore[arg-type]  # all of them are texts
    assert "xx" not in str(caught.value)


def test_what_just_fits_is_taken() -> None:
    assert BrokerUrl("h", 1, "x" * 65_535, "ä" * 32_767).user == "x" * 65_535


def test_a_file_whose_name_is_no_text_can_be_shown() -> None:
    assert str(BrokerUrl("h", 1, tls=True, ca="/\udcff")) == "mqtts://h:1?ca=/%FF"
