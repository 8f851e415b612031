"""Whose share a request counts for, behind trusted proxies and others."""

import pytest

from hush_aggregator.web.client_address import client_of, is_loopback, is_trusted, parse_network, share_of

TRUSTED = [parse_network(text) for text in ("10.0.0.0/8", "192.0.2.1", "2001:db8:1::/48")]
PROXY, READER = "192.0.2.1", "203.0.113.9"


def forwarded(*lines: str) -> dict[str, list[str]]:
    return {"forwarded": list(lines)}


def listed(*lines: str) -> dict[str, list[str]]:
    return {"x-forwarded-for": list(lines)}


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        ("198.51.100.7", {}, "198.51.100.7"),
        ("198.51.100.7", listed(READER), "198.51.100.7"),  # not a proxy that the operator named
        (PROXY, {}, PROXY),
        (PROXY, listed(f"1.1.1.1, {READER}, 10.1.2.3"), READER),
        (PROXY, listed("1.1.1.1", READER, "10.1.2.3"), READER),
        (PROXY, listed("10.0.0.2, 10.0.0.1"), "10.0.0.2"),
        (PROXY, listed(f"{READER}:4711"), READER),
        (PROXY, listed("[2001:db8:2::9]:4711"), "2001:db8:2::/64"),
        (PROXY, listed("2001:DB8:2:0:1:2:3:4"), "2001:db8:2::/64"),
        (PROXY, listed(f"::ffff:{READER}"), READER),
        (f"::ffff:{PROXY}", listed(READER), READER),
        ("2001:db8:1::7", listed(READER), READER),
        (PROXY, forwarded(f"for=1.1.1.1, FOR={READER};proto=https;by=10.0.0.1"), READER),
        (PROXY, forwarded("for=1.1.1.1", 'proto=https; For="[2001:db8:2::9]:4711"'), "2001:db8:2::/64"),
        (PROXY, forwarded('for="203.0.113.\\9"'), READER),
        (PROXY, forwarded(f'for={READER};by="a,for=1.1.1.1"'), READER),
        (PROXY, listed(READER) | forwarded(f"for={READER}"), READER),
    ],
)
def test_the_rightmost_address_that_is_no_proxy_counts(peer: str, headers: dict[str, list[str]], client: str) -> None:
    assert client_of(peer, headers, TRUSTED) == client


@pytest.mark.parametrize(
    "headers",
    [
        listed(""),
        listed("unknown"),
        listed(f"{READER}, "),
        listed(f"{READER}, 203.0.113.256"),
        listed(f"{READER}, 1.1.1.1%x"),
        listed(f"{READER} 1.1.1.1"),
        listed(f"{READER}, " + "10.0.0.1, " * 31 + "unknown"),
        forwarded("for=_hidden"),
        forwarded(f"for={READER}, proto=https"),
        forwarded(f"for={READER}, for="),
        forwarded(f'for="{READER}'),
        forwarded(READER),
        listed(READER) | forwarded("for=1.1.1.1"),
        listed(READER) | forwarded("for=_hidden"),
    ],
)
def test_headers_that_are_invalid_or_disagree_count_for_the_proxy(headers: dict[str, list[str]]) -> None:
    """Otherwise a client could have any number of shares, by the header that its proxy does not write."""
    assert client_of(PROXY, headers, TRUSTED) == PROXY


def test_no_header_takes_long_to_read() -> None:
    for text in ("10.0.0.1," * 1800, "for=" * 4000, " " * 16_000 + "=", 'for="' + "\\a" * 8000, "for=a;" * 2700):
        assert client_of(PROXY, listed(text) | forwarded(text), TRUSTED) in (PROXY, "10.0.0.1")


def test_a_network_of_64_bits_has_one_share() -> None:
    assert share_of("2001:db8::1") == share_of("2001:db8::ffff:1") == "2001:db8::/64"
    assert share_of("2001:db8:0:1::1") != share_of("2001:db8::1")
    assert share_of("fe80::1%eth0") == "fe80::/64"
    assert share_of("198.51.100.1") != share_of("198.51.100.2")
    assert share_of(None) == share_of("not an address") == ""


def test_the_loopback_and_trusted_proxies_are_recognised() -> None:
    assert all(is_loopback(one) for one in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"))
    assert not any(is_loopback(one) for one in ("198.51.100.1", "2001:db8::1", None))
    assert is_trusted("10.255.0.1", TRUSTED)
    assert not is_trusted("11.0.0.1", TRUSTED)
    assert not is_trusted(None, TRUSTED)


def test_a_proxy_is_an_address_or_a_network_and_not_everything() -> None:
    for text in ("", "proxy.example", "10.0.0.0/33", "10.0.0", "10.0.0.1:80", "http://10.0.0.1", "0.0.0.0/0", "::/0"):
        with pytest.raises(ValueError, match=r"\S"):
            parse_network(text)
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/8"):
        parse_network("10.0.0.1/8")
