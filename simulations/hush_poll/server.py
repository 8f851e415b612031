"""A small HTTP server for a poll: pages, scripts, and the broker over WebSockets, all on one port.

The code is the first part of every path, also of the WebSocket. A person who has it is a participant. Behind the
WebSocket are the bytes of the embedded broker, whose rules allow a participant what a device may do.

Connections are limited, all of them and those of one address. A connection that has not shown the code, or waits for a
complete request or a first packet, gives way to a new one.
"""

import asyncio
import gzip
import logging
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from hmac import compare_digest
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import InvalidOrigin
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from hush_aggregator.web.client_address import share_of
from hush_aggregator.web.connection_limit import ConnectionLimit, open_file_limit
from hush_common.errors import OptionError
from hush_poll.relay import LONGEST_PACKET, PHONES_OF_ADDRESS, RateLimit, Streams, relay

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # nothing that looks like another one
_CODE = 8
_MOST_CONNECTIONS, _LEAST_CONNECTIONS = 1000, 32
_MOST_ADDRESSES = 10_000
_FILES_FOR_OTHERS = 128
_FILES_EACH = 3  # the WebSocket, and both ends of the socket to the broker
_ACCEPTED_AT_ONCE, _BACKLOG = 16, 128
_CLOSE_S, _FAREWELL_S = 10.0, 1.0
_GUESS_S = 0.5
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:\d{1,5})?")
HTML = "text/html; charset=utf-8"

_LOG = logging.getLogger("hush.poll.server")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False  # it would log a traceback for each phone that leaves


def new_code() -> str:
    """Return 39 random bits that are easy to type."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_CODE))


@dataclass(frozen=True)
class Page:
    """The answer to a request."""

    body: bytes
    media_type: str = HTML
    status: HTTPStatus = HTTPStatus.OK

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, mtime=0)


Route = Callable[[], Awaitable[Page]]
LoginRoute = Callable[[str], Awaitable[Page]]
"""Answers the request of a browser, by its name, for its login."""

_BROWSER = "X-Hush-Browser"  # a header of its own: a page of another site may not send it without being asked first


@dataclass(frozen=True, slots=True)
class Site:
    """What a server has: pages by their path below the code, and the page for a request without the code."""

    code: str  # empty if nobody needs one
    routes: Mapping[str, Route]
    refusal: Callable[[bool], Page]  # called with whether a wrong code was given
    public: Mapping[str, Page]  # what that page loads, by its path
    broker: Callable[[], Awaitable[Streams]] | None  # connects to the embedded broker, behind the path `mqtt`
    login: LoginRoute | None = None  # behind the path `login`; None if a page needs none from here
    elsewhere: str = ""  # the origin of a broker that phones reach by themselves, for the content security policy

    @property
    def base(self) -> str:
        """The path of the participant's page."""
        return f"/{self.code}/" if self.code else "/"


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address, of all interfaces if it is empty; port 0 takes a free one.

    Raises:
        OptionError: that is not possible.
    """
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise OptionError(
            "--port", f"{port} on {host or 'all addresses'} cannot be used ({reason}); choose another --port or --bind"
        ) from error


@asynccontextmanager
async def serving(site: Site, listener: socket.socket) -> AsyncIterator[None]:
    """Serve while the context is open. At its end every connection is closed, whatever its phone does."""
    limit = ConnectionLimit["_Connection"](partial(_most_connections, open_file_limit()), _share)
    handler = _Handler(site)
    server = await serve(
        handler.relay,
        sock=listener,
        backlog=_ACCEPTED_AT_ONCE,
        process_request=handler.process,
        subprotocols=[Subprotocol("mqtt")],
        compression=None,
        max_size=LONGEST_PACKET,
        max_queue=2,
        logger=_LOG,
        server_header=None,
        close_timeout=_CLOSE_S,
        create_connection=cast("type[_Connection]", partial(_Connection, limit=limit)),
    )
    listener.listen(_BACKLOG)  # connections that wait to be accepted
    try:
        yield
    finally:
        server.close()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await server.wait_closed()
        finally:
            limit.abort_all()
        await server.wait_closed()


def _most_connections(files: int | None) -> int:
    """Return the limit of connections, which the limit of open files may lower."""
    room = _MOST_CONNECTIONS if files is None else (files - _FILES_FOR_OTHERS) // _FILES_EACH
    return max(_LEAST_CONNECTIONS, min(_MOST_CONNECTIONS, room))


def _share(_: str | None, most: int) -> int:
    """Return the limit of each address."""
    return most // 2


class _Connection(ServerConnection):
    """A connection that counts in a limit."""

    def __init__(self, *arguments: Any, limit: "ConnectionLimit[_Connection]", **more: Any) -> None:  # noqa: ANN401 - those of websockets
        super().__init__(*arguments, **more)
        self._limit = limit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._limit.add(self, self.peer)

    @property
    def peer(self) -> str | None:
        """The address of the phone."""
        found = self.remote_address
        return str(found[0]) if found else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.discard(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close it at once, without sending what is still buffered."""
        self._limit.discard(self)
        self.transport.abort()

    def note(self, *, is_waiting: bool) -> None:
        self._limit.note(self, is_waiting=is_waiting)


class _Handler:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._limits = lru_cache(_MOST_ADDRESSES)(lambda _: RateLimit(PHONES_OF_ADDRESS))  # of an address

    async def process(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a request; None for a WebSocket that may be opened."""
        limited = cast("_Connection", connection)
        try:
            return await self._process(limited, request)
        finally:
            limited.note(is_waiting=True)  # for the phone to read the response, or for a first packet

    async def _process(self, connection: "_Connection", request: Request) -> Response | None:
        parts = urlsplit(request.path)
        host = request.headers.get("Host", "")
        known = host if _HOST.fullmatch(host) else ""
        base = self._site.base
        if not self._site.code and not _is_address(known):
            page = Page(b"Open the address with numbers, as the screen shows it.", "text/plain", HTTPStatus.FORBIDDEN)
            return self._response(page, None, "")
        if parts.path == base.rstrip("/") and parts.path:
            return _redirect(base)
        if not _is_below(parts.path, base):
            return await self._refuse(parts.path, parts.query)
        connection.note(is_waiting=False)
        name = parts.path[len(base) :]
        if name == "mqtt" and self._site.broker is not None:
            return self._admit(connection, request, known)
        return self._response(await self._page(name, request), request, known)

    async def _page(self, name: str, request: Request) -> Page:
        if name == "login" and self._site.login is not None and _BROWSER in request.headers:
            return await self._site.login(request.headers[_BROWSER])
        route = self._site.routes.get(name)
        return Page(b"There is no such page.", "text/plain", HTTPStatus.NOT_FOUND) if route is None else await route()

    async def _refuse(self, path: str, query: str) -> Response:
        if path in self._site.public:
            return self._response(self._site.public[path], None, "")
        given = parse_qs(query).get("code", [""])[0].strip().lower() if path == "/" else ""
        if given and compare_digest(given.encode(), self._site.code.encode()):
            return _redirect(self._site.base)
        is_guess = bool(given) or path.strip("/").partition("/")[0] not in ("", "favicon.ico")
        if is_guess:
            await asyncio.sleep(_GUESS_S)
        return self._response(self._site.refusal(is_guess), None, "")

    def _admit(self, connection: ServerConnection, request: Request, host: str) -> Response | None:
        """Open a WebSocket for pages of this server and for programs, and not for pages of others."""
        origins = request.headers.get_all("Origin")
        if origins and (not host or urlsplit(origins[0]).netloc != host):
            connection.protocol.handshake_exc = InvalidOrigin(origins[0])
            return self._response(Page(b"Another site asks.", "text/plain", HTTPStatus.FORBIDDEN), None, "")
        return None

    def _response(self, page: Page, request: Request | None, host: str) -> Response:
        zips = request is not None and "gzip" in request.headers.get("Accept-Encoding", "")
        body = page.compressed if zips else page.body
        sockets = " ".join(filter(None, ("'self'", f"ws://{host}" if host else "", self._site.elsewhere)))
        headers = Headers(
            {
                "Content-Type": page.media_type,
                "Content-Length": str(len(body)),
                "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                f"connect-src {sockets}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cache-Control": "no-store",
                "Connection": "close",
            }
        )
        if zips:
            headers["Content-Encoding"] = "gzip"
        return Response(page.status, page.status.phrase, headers, body)

    async def relay(self, connection: ServerConnection) -> None:
        """Connect a phone with the broker until one of them ends."""
        phone = cast("_Connection", connection)
        if self._site.broker is not None:
            await relay(
                phone, self._site.broker, self._limits(share_of(phone.peer)), partial(phone.note, is_waiting=False)
            )


def _is_address(host: str) -> bool:
    """Whether a host is no name that another site could have: its pages could ask in somebody's browser."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return bool(ip_address(name))
    except ValueError:
        return name == "localhost"


def _is_below(path: str, base: str) -> bool:
    return compare_digest(path[: len(base)].encode(), base.encode())


def _redirect(where: str) -> Response:
    headers = Headers({"Location": where, "Content-Length": "0", "Cache-Control": "no-store", "Connection": "close"})
    return Response(HTTPStatus.SEE_OTHER, HTTPStatus.SEE_OTHER.phrase, headers, b"")
