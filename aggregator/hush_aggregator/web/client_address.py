"""Which client address a connection or a request counts for, with trusted proxies in between.

A share belongs to an IPv4 address, or to a /64 network of IPv6 addresses, all of which one host can use.
"""

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from hush_common.errors import shown

Network: TypeAlias = IPv4Network | IPv6Network
_Address: TypeAlias = IPv4Address | IPv6Address

_HOPS = 32  # addresses of one header that are read
_PREFIX = 64
_PORT = r"(?::[0-9]{1,5})?"
_IPV4 = re.compile(rf"([0-9.]{{7,15}}){_PORT}")
_IPV6 = re.compile(rf"\[([0-9A-Fa-f:.]{{2,45}})\]{_PORT}|([0-9A-Fa-f:.]{{2,45}})")
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z:-]++"
_FORWARDED = re.compile(rf'[ \t]*+(?:({_WORD})=(?:({_WORD})|"((?:[^"\\]|\\.)*+)"))?+[ \t]*+(;|,|\Z)')


def parse_network(text: str) -> Network:
    """Parse the address or CIDR network of a proxy; ValueError if it is neither or contains every address."""
    try:
        network = ip_network(text)
    except ValueError:
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            raise ValueError(
                f"{shown(text)} is not an IP address or network; write for example 127.0.0.1 or 10.0.0.0/8"
            ) from None
        raise ValueError(f"{text[:80]!r} is an address within a network; write the network as {network}") from None
    if not network.prefixlen:
        raise ValueError(
            f"{text[:80]!r} contains every address, so that clients could claim any; write the address of your proxy"
        )
    return network


def share_of(peer: str | None) -> str:
    """Return the name of the share of an address: itself, or its /64 network."""
    address = _peer(peer)
    if address is None:
        return ""
    return str(ip_network((address, _PREFIX), strict=False) if address.version == 6 else address)  # noqa: PLR2004


def is_loopback(peer: str | None) -> bool:
    """Whether an address is a loopback address."""
    address = _peer(peer)
    return address is not None and address.is_loopback


def is_trusted(peer: str | None, trusted: Sequence[Network]) -> bool:
    """Whether an address is that of a trusted proxy."""
    address = _peer(peer) if trusted else None
    return address is not None and _is_in(address, trusted)


def client_of(peer: str | None, headers: Mapping[str, list[str]], trusted: Sequence[Network]) -> str:
    """Return the name of the share that a request counts for.

    It is that of the peer. Behind a trusted proxy it is that of the rightmost address in `X-Forwarded-For` or in
    `Forwarded` (RFC 7239) that is not a trusted proxy: what is left of it can be made up by the client. Where this
    address cannot be read, or the two headers disagree, the request counts for the proxy: one of the headers then comes
    from the client.
    """
    if not is_trusted(peer, trusted):
        return share_of(peer)
    lists = [
        _split(headers["x-forwarded-for"]) if "x-forwarded-for" in headers else None,
        _forwarded(headers["forwarded"]) if "forwarded" in headers else None,
    ]
    found = {_rightmost(named, trusted) for named in lists if named is not None}
    client = found.pop() if len(found) == 1 else None
    return share_of(peer) if client is None else share_of(str(client))


def _rightmost(named: Sequence[str], trusted: Sequence[Network]) -> _Address | None:
    """The rightmost address that is not trusted; the leftmost one if all are; None if one before it is unreadable."""
    address = None
    for text in named[: -_HOPS - 1 : -1]:
        address = _parse(text)
        if address is None or not _is_in(address, trusted):
            return address
    return address


def _split(lines: Sequence[str]) -> list[str]:
    return [text.strip() for text in ",".join(lines).split(",")]


def _forwarded(lines: Sequence[str]) -> list[str]:
    """The `for` of each element of `Forwarded`, empty where there is none; nothing if the header is malformed."""
    text, at, found, here = ",".join(lines), 0, [], ""
    while at <= len(text):
        pair = _FORWARDED.match(text, at)
        if pair is None:
            return []
        name, token, quoted, end = pair.groups()
        if name is not None and name.lower() == "for":
            here = token if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        if end != ";":
            found.append(here)
            here = ""
        at = pair.end() if end else len(text) + 1
    return found


def _peer(text: str | None) -> _Address | None:
    return _parse((text or "").partition("%")[0])  # without the zone of an address of this link


def _parse(text: str) -> _Address | None:
    """Parse an address, perhaps with a port. An IPv4-mapped IPv6 address becomes an IPv4 address."""
    found = _IPV4.fullmatch(text) or _IPV6.fullmatch(text)
    if found is None:
        return None
    try:
        address = ip_address(next(group for group in found.groups() if group))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_in(address: _Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)
