"""A small HTTP server for a poll: pages, scripts, and the broker over WebSockets, all on one port.

Whoever has the code is a participant: the code is the first part of every path, also of the WebSocket. Behind the
WebSocket are the bytes of the embedded broker, whose rules allow a participant no more than a device may do.
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
from functools import cached_property
from hmac import compare_digest
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidOrigin
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from hush_common.errors import OptionError

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # nothing that looks like another one
_CODE = 8
_PACKET = 65_536  # a report has some hundred bytes
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
    broker: tuple[str, int] | None  # where the embedded broker listens, behind the path `mqtt`
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
    """Serve while the context is open."""
    handler = _Handler(site)
    async with serve(
        handler.relay,
        sock=listener,
        process_request=handler.process,
        subprotocols=[Subprotocol("mqtt")],
        compression=None,
        max_size=_PACKET,
        logger=_LOG,
        server_header=None,
        close_timeout=1,
    ):
        yield


class _Handler:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def process(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a request; None for a WebSocket that may be opened."""
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
        """Pass the bytes of a WebSocket on to the broker, and back, until one of them ends."""
        if self._site.broker is None:
            return
        reader, writer = await asyncio.open_connection(*self._site.broker)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_to_broker(connection, writer), name="hush-poll-to-broker")
                group.create_task(_to_phone(reader, connection), name="hush-poll-to-phone")
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _to_broker(connection: ServerConnection, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionClosed, ConnectionError):
        async for message in connection:
            if isinstance(message, str):
                break  # MQTT is binary
            writer.write(message)
            await writer.drain()
    writer.close()


async def _to_phone(reader: asyncio.StreamReader, connection: ServerConnection) -> None:
    with suppress(ConnectionClosed, ConnectionError):
        while data := await reader.read(_PACKET):
            await connection.send(data)
    await connection.close()


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
