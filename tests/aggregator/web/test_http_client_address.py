"""Whose share a request counts for, behind proxies that are trusted and others."""

import pytest

from hush_aggregator.http.client_address import client_of, is_loopback, is_trusted, parse_network, share_of

TRUSTED = [parse_network(text) for text in ("10.0.0.0/8", "192.0.2.1", "2001:db8:1::/48")]


def forwarded(*lines: str) -> dict[str, list[str]]:
    return {"forwarded": list(lines)}


def listed(*lines: str) -> dict[str, list[str]]:
    return {"x-forwarded-for": list(lines)}


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        ("198.51.100.7", {}, "198.51.100.7"),
        ("198.51.100.7", listed("203.0.113.9"), "198.51.100.7"),
        ("192.0.2.1", {}, "192.0.2.1"),
        ("192.0.2.1", listed("203.0.113.9"), "203.0.113.9"),
        ("192.0.2.1", listed("1.1.1.1, 203.0.113.9"), "203.0.113.9"),
        ("192.0.2.1", listed("1.1.1.1, 203.0.113.9, 10.1.2.3"), "203.0.113.9"),
        ("192.0.2.1", listed("1.1.1.1", "203.0.113.9", "10.1.2.3"), "203.0.113.9"),
        ("192.0.2.1", listed("10.0.0.2, 10.0.0.1"), "10.0.0.2"),
        ("192.0.2.1", listed("203.0.113.9:4711"), "203.0.113.9"),
        ("192.0.2.1", listed("[2001:db8:2::9]:4711"), "2001:db8:2::/64"),
        ("192.0.2.1", listed("2001:DB8:2:0:1:2:3:4"), "2001:db8:2::/64"),
        ("192.0.2.1", listed("::ffff:203.0.113.9"), "203.0.113.9"),
        ("::ffff:192.0.2.1", listed("203.0.113.9"), "203.0.113.9"),
        ("2001:db8:1::7", listed("203.0.113.9"), "203.0.113.9"),
        ("192.0.2.1", forwarded("for=203.0.113.9"), "203.0.113.9"),
        ("192.0.2.1", forwarded("for=1.1.1.1, FOR=203.0.113.9;proto=https;by=10.0.0.1"), "203.0.113.9"),
        ("192.0.2.1", forwarded("for=1.1.1.1", 'proto=https; For="[2001:db8:2::9]:4711"'), "2001:db8:2::/64"),
        ("192.0.2.1", forwarded('for="203.0.113.\\9"'), "203.0.113.9"),
        ("192.0.2.1", forwarded('for=203.0.113.9;by="a,for=1.1.1.1"'), "203.0.113.9"),
        ("192.0.2.1", listed("203.0.113.9") | forwarded("for=203.0.113.9"), "203.0.113.9"),
    ],
)
def test_the_rightmost_address_that_is_no_proxy_counts(peer: str, headers: dict[str, list[str]], client: str) -> None:
    assert client_of(peer, headers, TRUSTED) == client


@pytest.mark.parametrize(
    "headers",
    [
        listed(""),
        listed("unknown"),
        listed("203.0.113.9, "),
        listed("203.0.113.9, 203.0.113.256"),
        listed("203.0.113.9, 1.1.1.1%x"),
        listed("203.0.113.9 1.1.1.1"),
        listed("203.0.113.9, " + "10.0.0.1, " * 31 + "unknown"),
        forwarded("for=_hidden"),
        forwarded("for=203.0.113.9, proto=https"),
        forwarded("for=203.0.113.9, for="),
        forwarded('for="203.0.113.9'),
        forwarded("203.0.113.9"),
        listed("203.0.113.9") | forwarded("for=1.1.1.1"),
        listed("203.0.113.9") | forwarded("for=_hidden"),
    ],
)
def test_what_cannot_be_read_or_disagrees_counts_for_the_proxy(headers: dict[str, list[str]]) -> None:
    """Else a client could have any number of shares, by the header that its proxy does not write."""
    assert client_of("192.0.2.1", headers, TRUSTED) == "192.0.2.1"


def test_a_long_header_is_read_in_no_time() -> None:
    for text in ("10.0.0.1," * 1800, "for=" * 4000, " " * 16_000 + "=", 'for="' + "\\a" * 8000, "for=a;" * 2700):
        assert client_of("192.0.2.1", {"x-forwarded-for": [text], "forwarded": [text]}, TRUSTED) in (
            "192.0.2.1",
            "10.0.0.1",
        )


def test_one_network_of_64_bits_has_one_share() -> None:
    assert share_of("2001:db8::1") == share_of("2001:db8::ffff:1") == "2001:db8::/64"
    assert share_of("2001:db8:0:1::1") != share_of("2001:db8::1")
    assert share_of("fe80::1%eth0") == "fe80::/64"
    assert share_of("198.51.100.1") != share_of("198.51.100.2")
    assert share_of(None) == share_of("not an address") == ""


def test_the_loopback_and_proxies_are_known() -> None:
    assert all(is_loopback(one) for one in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"))
    assert not any(is_loopback(one) for one in ("198.51.100.1", "2001:db8::1", None))
    assert is_trusted("10.255.0.1", TRUSTED)
    assert not is_trusted("11.0.0.1", TRUSTED)
    assert not is_trusted(None, TRUSTED)


@pytest.mark.parametrize("text", ["", "proxy.example", "10.0.0.0/33", "10.0.0", "10.0.0.1:80", "http://10.0.0.1"])
def test_what_is_no_address_is_no_proxy(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an IP address or network; write for example 127\.0\.0\.1"):
        parse_network(text)


def test_a_network_is_written_as_one_and_is_not_everything() -> None:
    with pytest.raises(ValueError, match=r"write the network as 10\.0\.0\.0/8"):
        parse_network("10.0.0.1/8")
    for text in ("0.0.0.0/0", "::/0"):
        with pytest.raises(ValueError, match="clients could claim any"):
            parse_network(text)
