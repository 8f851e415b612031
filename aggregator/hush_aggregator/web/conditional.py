"""Complete answers with a strong ETag: 304 for a client that has one already, and gzip for a client that takes it.

Compression lets the length of an answer depend on its text. Someone who sees the length, and makes a browser request
addresses of their choice, could learn the text of a page that contains the address (BREACH). So an answer to a link
from another site is not compressed. A browser reports such a link (`Sec-Fetch-Site`) for HTTPS and for the same
machine; with HTTP alone, anyone who sees the length also sees the text.

Streams pass unchanged: events, and exports of single reports.
"""

import asyncio
import gzip
import re
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SHORTEST = 1000  # bytes; fewer often fit one packet already
_LEVEL = 6
_IN_THREAD = 32 * 1024  # bytes that take longer to compress than a turn of the event loop may take
_CACHE_LIMIT = 8 * 1024 * 1024
_COMPRESSIBLE = ("text/", "application/json", "image/svg+xml")
_TAG = re.compile(r'"[\x21\x23-\x7e]*"')
_QUALITY = re.compile(r"q=(0(\.[0-9]{0,3})?|1(\.0{0,3})?)", re.IGNORECASE)
_OTHER_SITES = frozenset({"cross-site", "same-site"})
_VARY = "Accept-Encoding, Authorization, Sec-Fetch-Site"


class Conditional:
    """Middleware that adds the ETag, and answers with 304 or compressed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressed = CompressedBodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        request = Headers(scope=scope)
        held: Message | None = None

        async def conditional(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_complete(message):
                held = message
                return
            if held is not None:
                start, held = held, None
                if not message.get("more_body", False):
                    start, message = await self._answer(request, start, message)
                await send(start)
            await send(message)

        await self._app(scope, receive, conditional)

    async def _answer(self, request: Headers, start: Message, message: Message) -> tuple[Message, Message]:
        """Return the two messages of the answer to a request, given those of the whole answer."""
        body = bytes(message.get("body", b""))
        start = {**start, "headers": list(start["headers"])}
        headers = MutableHeaders(raw=start["headers"])
        tag = sha256(body).hexdigest()[:32]
        is_short = len(body) < _SHORTEST or not headers.get("content-type", "").startswith(_COMPRESSIBLE)
        if not is_short and takes_gzip(request):
            body = await self._compressed.get(tag, body)
            tag += "-gzip"
            headers["content-encoding"] = "gzip"
            headers["content-length"] = str(len(body))
        headers["etag"] = f'"{tag}"'
        headers["vary"] = _VARY
        if "authorization" not in request:  # what needs a token is stored nowhere
            headers.setdefault("cache-control", "private, no-cache")
        if not _has(request, headers["etag"]):
            return start, {**message, "body": body}
        for name in ("content-type", "content-length", "content-encoding"):
            del headers[name]
        return {**start, "status": int(HTTPStatus.NOT_MODIFIED)}, {**message, "body": b""}


class CompressedBodies:
    """Bodies compressed once, the last used, up to 8 MiB."""

    def __init__(self, limit: int = _CACHE_LIMIT) -> None:
        self._limit = limit
        self._bodies: OrderedDict[str, bytes] = OrderedDict()
        self._making: dict[str, asyncio.Future[bytes]] = {}
        self._size = 0

    async def get(self, tag: str, body: bytes) -> bytes:
        """Return the compressed body; `tag` is a hash of it."""
        if tag in self._bodies:
            self._bodies.move_to_end(tag)
            return self._bodies[tag]
        making = self._making.get(tag)
        if making is None:
            making = self._making[tag] = asyncio.ensure_future(_compressed(body))
            making.add_done_callback(lambda _: self._making.pop(tag, None))
        made = await asyncio.shield(making)  # a client that leaves does not end it for the others
        if tag not in self._bodies and len(made) <= self._limit:
            self._bodies[tag] = made
            self._size += len(made)
        while self._size > self._limit:
            self._size -= len(self._bodies.popitem(last=False)[1])
        return made


def takes_gzip(request: Mapping[str, str]) -> bool:
    """Whether to compress the answer to a request with these headers, by their names in lower case."""
    if request.get("sec-fetch-site", "").strip() in _OTHER_SITES:
        return False
    qualities: dict[str, float] = {}
    for text in request.get("accept-encoding", "").lower().split(","):
        name, _, parameter = (part.strip() for part in text.partition(";"))
        found = _QUALITY.fullmatch(parameter)
        qualities[name] = 1.0 if not parameter else float(found[1]) if found else 0.0
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


async def _compressed(body: bytes) -> bytes:
    return _compress(body) if len(body) < _IN_THREAD else await asyncio.to_thread(_compress, body)


def _compress(body: bytes) -> bytes:
    return gzip.compress(body, _LEVEL, mtime=0)  # the same bytes each time, as a strong tag promises


def _is_complete(start: Message) -> bool:
    """Whether an answer has a whole body, which can have a tag. A stream has no length."""
    headers = Headers(raw=start["headers"])
    return start["status"] == HTTPStatus.OK and "content-length" in headers and "content-encoding" not in headers


def _has(request: Headers, tag: str) -> bool:
    """Whether the client has the answer with this tag."""
    known = ",".join(request.getlist("if-none-match")).strip()
    return known == "*" or tag in _TAG.findall(known)
