"""Parse an address, `SCHEME://[user[:password]@]host[:port][/path][?query]`. No error repeats any part of it.

Where a password is not encoded, any other part may be a piece of it: an @ after the host, a port that is no number.
"""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

ENCODE = "write / as %2F, ? as %3F, # as %23, @ as %40 and a space as %20 in a user, a password or a path"
_BEGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PARTS = re.compile(r"(?:(?P<login>[^/?#]*)@)?(?P<hosts>[^/?#@]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?")
_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<name>(?:[\w.-]|%[0-9A-Fa-f]{2})*))(?::(?P<port>[^:]*))?"
)
_OTHER_FORM = re.compile(
    r"://|^\s*(?:[a-z]+:)?(?:postgres(?:ql)?(?:\+\w+)?|pgsql|psql|sqlite\d?|mysql|mariadb|jdbc|odbc|file|mqtts?|https?):"
    r"|^\s*\w[\w ]*=|^(?![a-z]:[/\\])[^./\\].*:.*@|//.*:.*@|^[\w.-]{2,}:\d+(?:/|$)",
    re.IGNORECASE,
)
_NAME = re.compile(r"[\w.-]*")
_SOCKET = re.compile(r"[/@][^,]+")
_PLAIN = re.compile(r"(?:/(?:[^:;=,&%]|%[0-9A-Fa-f]{2})*)?")
_MOST = 65_535


@dataclass(frozen=True, slots=True)
class AddressParts:
    """The parts of an address. Path and query are as written, and the others decoded."""

    scheme: str  # in small letters
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    hosts: tuple[tuple[str, int | None], ...] = ()  # name, or IPv6 address without brackets, and port
    path: str = ""
    query: str = field(default="", repr=False)

    @property
    def host(self) -> str:
        return self.hosts[0][0] if self.hosts else ""

    @property
    def port(self) -> int | None:
        return self.hosts[0][1] if self.hosts else None

    @property
    def has_plain_path(self) -> bool:
        """Whether the path has none of the signs before a password in other forms of an address."""
        return _PLAIN.fullmatch(self.path) is not None


def scheme_of(text: str) -> str:
    """Return the scheme of an address in small letters; empty if it has none."""
    found = _BEGIN.match(text)
    return found[1].lower() if found else ""


def looks_like_address(text: str) -> bool:
    """Whether it is an address in any form, `host=… password=…` or `user:password@host`, and not meant as a file."""
    return _OTHER_FORM.search(text) is not None


def parse_address(text: str, *, hosts: int = 1, sockets: bool = False) -> AddressParts:
    """Parse an address with one host, or with at most `hosts` between commas, each perhaps empty.

    With `sockets`, a host may be the encoded path of a Unix socket, as %2Frun%2Fpostgresql.

    Raises:
        ValueError: it is not an address. The message repeats nothing of it.
    """
    if not text.isprintable() or " " in text:
        raise ValueError("a space or control character cannot be part of an address")
    scheme = scheme_of(text)
    found = _PARTS.fullmatch(text, len(scheme) + len("://")) if scheme else None
    if found is None or "@" in (found["path"] or "") + (found["query"] or ""):
        raise ValueError(f"it is not SCHEME://HOST, or a character is not encoded: {ENCODE}")
    user, colon, password = (found["login"] or "").partition(":")
    places = found["hosts"].split(",") if found["hosts"] else []
    if len(places) > hosts:
        raise ValueError("it names more than one host")
    return AddressParts(
        scheme=scheme,
        user=unquote(user) if user else None,
        password=unquote(password) if colon else None,
        hosts=tuple(_host(place, sockets=sockets) for place in places),
        path=found["path"] or "",
        query=found["query"] or "",
    )


def _host(text: str, *, sockets: bool) -> tuple[str, int | None]:
    found = _HOST.fullmatch(text)
    name = (found["v6"] or unquote(found["name"])) if found else ""
    is_socket = sockets and name.isprintable() and _SOCKET.fullmatch(name)
    if found is None or not (found["v6"] or is_socket or _NAME.fullmatch(name)):
        raise ValueError("the host is neither a name nor an IPv6 address in brackets")
    port = found["port"]
    if port and not (port.isascii() and port.isdecimal() and len(port) <= len(str(_MOST)) and 0 < int(port) <= _MOST):
        raise ValueError(f"the port is not a number from 1 to {_MOST}, or a character is not encoded: {ENCODE}")
    return name, int(port) if port else None
