"""The address that HTTP is served on, and a socket there before anything else starts."""

import os
import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Self

from hush_aggregator.store.location import StoreAddress
from hush_aggregator.web.audit import AuditLog
from hush_aggregator.web.client_address import Network, parse_network
from hush_aggregator.web.options import HttpOptions
from hush_aggregator.web.service import LOOPBACK, TOKEN_VARIABLE, Service, find_administrators, find_token
from hush_common.errors import OptionError, shown

BACKLOG = 128
"""Connections that wait to be taken."""
_PORTS = 65_536
_LONGEST = len(str(_PORTS))


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host without brackets, and a port, 0 for any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, option: str, text: str) -> "Address":
        """Parse `HOST:PORT`, with an IPv6 address in brackets; raise an OptionError if it is invalid."""
        host, _, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        bare = host[1:-1] if bracketed else host
        number = int(port) if port.isascii() and port.isdecimal() and len(port) <= _LONGEST else _PORTS
        if not bare or "@" in bare or number >= _PORTS or bracketed != (":" in bare):
            raise OptionError(
                option, f"{shown(text)} is not a valid address; write HOST:PORT, for example 127.0.0.1:8080"
            )
        return cls(bare, number)

    @property
    def name(self) -> str:
        """The host as requests name it."""
        return f"[{self.host}]" if ":" in self.host else self.host.lower()

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


def bind(option: str, address: Address) -> socket.socket:
    """Return a socket that listens; raise an OptionError if the address is not of this machine or the port is taken."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "invalid name"
        raise OptionError(option, f"{address} is not an address of this machine ({reason}); use one that is") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)  # now: two programs may bind the same port, but only one may listen
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OptionError(
            option,
            f"cannot listen on {address} ({error.strerror}); use another port, or stop the program that listens there",
        ) from error
    return listener


_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?|\[[0-9a-f:.]+\]")


_ORIGIN = re.compile(r"https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?")


def _origin(option: str, text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise OptionError(
            option,
            f"{text[:80]!r} is no origin of pages; write scheme and host, as https://example.org, without a path",
        )
    return text.lower()


_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")


def _prefix(option: str, path: str) -> str:
    if not _PREFIX.fullmatch(path.removesuffix("/")):
        raise OptionError(option, f"{shown(path)} is no path below which a proxy serves; write for example /hush")
    return path.removesuffix("/")


@dataclass(frozen=True, slots=True)
class HttpListener:
    """A socket that listens, and the service with the rules for requests on it."""

    listener: socket.socket
    service: Service

    @classmethod
    def open(
        cls,
        at: str,
        options: HttpOptions,
        store: StoreAddress,
        confidence: float = 0.95,
        *,
        option: str = "--bind",
        prefix: str = "--",
    ) -> Self:
        """Listen at `HOST:PORT`, to serve a store.

        Args:
            at: the address.
            options: who may do what.
            store: what is served.
            confidence: of the intervals.
            option: that gives the address.
            prefix: of the other options.

        Raises:
            OptionError: an option cannot be used, or strangers could read the store.
        """
        address = Address.parse(option, at)
        _prefix(f"{prefix}root-path", options.root_path)
        token_option = f"{prefix}token-file"
        token = find_token(token_option, options.token_file, os.environ)
        administrators = find_administrators(f"{prefix}admin-token-file", options.admin_token_file)
        if token is not None and any(token.is_same(one) for _, one in administrators):
            raise OptionError(
                f"{prefix}admin-token-file", "has the token of the readers, too; make another one for each"
            )
        audit = None if options.audit_log is None else AuditLog(options.audit_log)
        if audit is not None:
            audit.check(f"{prefix}audit-log")
        if options.write and token is None and not administrators:
            raise OptionError(
                f"{prefix}write", f"needs a token; name its file with {token_option}, or set {TOKEN_VARIABLE}"
            )
        named = frozenset(_name(f"{prefix}host", name) for name in options.host)
        trusted = tuple(_network(f"{prefix}trusted-proxy", text) for text in options.trusted_proxy)
        frames = tuple(_origin(f"{prefix}frame-ancestors", text) for text in options.frame_ancestors)
        listener = bind(option, address)
        bound = ip_address(str(listener.getsockname()[0]).partition("%")[0])
        if not bound.is_loopback and token is None and not administrators and not options.open:
            listener.close()
            raise OptionError(
                option,
                f"other machines can reach {address}; set a token with {token_option}, or let everybody read with "
                f"{prefix}open",
            )
        hosts = {_shown(bound), address.name} | named
        if bound.is_loopback or bound.is_unspecified:
            hosts |= LOOPBACK
        guarded = not bound.is_loopback and not options.open
        service = Service(
            store,
            hosts=frozenset(hosts),
            any_address=bound.is_unspecified,
            token=token,
            administrators=administrators,
            audit=audit,
            write=options.write,
            guarded=guarded,
            confidence=confidence,
            trusted_proxies=trusted,
            frame_ancestors=frames,
            root_path=_prefix(f"{prefix}root-path", options.root_path),
        )
        return cls(listener, service)

    @property
    def url(self) -> str:
        """Its address as a number."""
        host, port = self.listener.getsockname()[:2]
        return f"http://{_shown(ip_address(str(host).partition('%')[0]))}:{port}/"

    @property
    def meaning(self) -> str:
        """Who may do what, for the log."""
        reading = "reading needs the token" if self.service.guarded else "anyone who can reach it may read"
        writing = "writing needs the token" if self.service.write else "nobody may write"
        return f"{reading}, {writing}"


def _network(option: str, text: str) -> Network:
    try:
        return parse_network(text)
    except ValueError as error:
        raise OptionError(option, str(error)) from None


def _name(option: str, text: str) -> str:
    if not _NAME.fullmatch(text.lower()):
        raise OptionError(option, f"{shown(text)} is not a valid host name; omit scheme and port")
    return text.lower()


def _shown(address: IPv4Address | IPv6Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - IPv6
