"""What the parts of an address are, and which are refused."""

import pytest

from hush_common.address import parse_address
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError

ENCODED = ["%2Ftmp%2Fs", "%2ftmp", "a%2Fb", "a%0D%0Ab", "%00", "a%40b", "a%3A1", "%5B::1%5D", "a%2Cb", "a%20b", "%40s"]


@pytest.mark.parametrize("host", ENCODED)
def test_a_host_is_a_name_also_where_it_is_encoded(host: str) -> None:
    with pytest.raises(ValueError, match="host is neither"):
        parse_address(f"https://{host}:80/x")


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws", "wss"])
@pytest.mark.parametrize("host", ENCODED)
def test_no_address_of_a_broker_is_the_path_of_a_socket_or_has_control_characters(scheme: str, host: str) -> None:
    with pytest.raises(BrokerError):
        BrokerUrl.parse(f"{scheme}://alice:pw@{host}")


def test_a_name_may_be_encoded() -> None:
    assert BrokerUrl.parse("mqtt://%65xample.org:9").host == "example.org"


def test_a_socket_is_a_path_of_printable_characters_where_it_is_asked_for() -> None:
    assert parse_address("x://%2Frun%2Fa:1", sockets=True).hosts == (("/run/a", 1),)
    for host in ("%2Frun%0A", "%2Frun%2Cevil.example", "%2F", "a%2Fb"):
        with pytest.raises(ValueError, match="host is neither"):
            parse_address(f"x://{host}/db", sockets=True)
