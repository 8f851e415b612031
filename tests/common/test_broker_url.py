"""The address of a broker."""

import pytest

from hush_common.address import parse_address
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


def test_an_address_is_written_as_it_was_read() -> None:
    for text in (
        *("mqtt://a%20b@h:1883", "mqtts://[::1]:8883?ca=/x%20y", "wss://h:443/a?ca=/a%2B&cert=/b&key=/c"),
        *("ws://h:80/mqtt", "mqtt://h:1"),
    ):
        assert str(BrokerUrl.parse(text)) == text
    assert str(BrokerUrl("h", 1, tls=True, ca="/\udcff")) == "mqtts://h:1?ca=/%FF"


ENCODED = ["%2Ftmp%2Fs", "%2ftmp", "a%2Fb", "a%0D%0Ab", "%00", "a%40b", "a%3A1", "%5B::1%5D", "a%2Cb", "a%20b", "%40s"]
"""Hosts that are paths of sockets or other addresses, or have control characters."""


@pytest.mark.parametrize(
    "text",
    [
        *("", "localhost", "localhost:1883", "http://localhost", "mqtt:localhost", "mqtt://", "mqtt://:1883"),
        *("mqtt://h:0", "mqtt://h:65536", "mqtt://h:x", "mqtt://h/path", "mqtt://h#f", "mqtt://:secret@h"),
        *("mqtt://h?ca=/x", "mqtts://h?ca=", "mqtts://h?verify=no", "mqtts://h?ca=/x&ca=/y", "mqtts://h?key=/k"),
        *("ws://h?cert=/c", "ws://h/path#f", "mqtt://[::1", "mqtt://h h", "mqtt://h\n"),
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BrokerError, match="mqtt://localhost:1883") as caught:
        BrokerUrl.parse(text)
    assert "\n" not in str(caught.value).replace(text, "")


@pytest.mark.parametrize("host", ENCODED)
def test_a_host_is_a_name_also_where_it_is_encoded(host: str) -> None:
    assert BrokerUrl.parse("mqtt://%65xample.org:9").host == "example.org"
    for scheme in ("mqtt", "mqtts", "ws", "wss"):
        with pytest.raises(BrokerError):
            BrokerUrl.parse(f"{scheme}://alice:pw@{host}")
    with pytest.raises(ValueError, match="host"):
        parse_address(f"https://{host}:80/x")


def test_a_socket_is_a_printable_path_where_sockets_are_allowed() -> None:
    assert parse_address("x://%2Frun%2Fa:1", sockets=True).hosts == (("/run/a", 1),)
    for host in ("%2Frun%0A", "%2Frun%2Cevil.example", "%2F", "a%2Fb"):
        with pytest.raises(ValueError, match="host"):
            parse_address(f"x://{host}/db", sockets=True)


@pytest.mark.parametrize(
    "text",
    [
        *("mqtt://alice:s3cret@h:x", "mqtt://alice:s3/cret@h", "x://a:s3cret@h", "mqtt://a:s3cret@"),
        *("kitchen:s3cret@host", "mqtt:/kitchen:s3cret@host", "mqtt:kitchen:s3cret@host", "mqtt://kitchen:s3cret"),
        *("mqtt://kit@chen:s3cret@host:x", "mqtt://kitchen:s3?cret@host", "mqtt://kitchen:80?cret@host"),
        *("mqtts://kitchen:80?cret=@host", "ws://kitchen:80/s3cret@host", "ws://kitchen:80/s3#cret@host"),
        *("mqtt://kitchen:s3\ncret@host", "mqtt://kitchen:s3cret@[host]", "mqtt://[s3cret"),
        "mqtt://kitchen:s3cret@h\u2100st",  # urlsplit's own message repeats all of it
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
def test_a_login_that_no_packet_can_hold_is_refused(parts: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="65535") as caught:
        BrokerUrl("h", 1, **parts)  # type: ignore[arg-type]  # all of them are texts
    assert "xx" not in str(caught.value)
    assert BrokerUrl("h", 1, "x" * 65_535, "ä" * 32_767).user == "x" * 65_535
