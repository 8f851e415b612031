"""Callers: who may ask. A page of another site in somebody's browser may not, and reads nothing.

A service on the loopback can be reached by any page that its user opens: under a name that points to 127.0.0.1 from one
moment to the next (DNS rebinding), or by a request that the browser makes for it. So `Host` must be a name of this
service, `Origin` the same place, and `Sec-Fetch-Site`, where a browser says it, must say so too, but for a link that
somebody follows.
"""

import asyncio
import base64
import binascii
import logging
import re
import traceback
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from itertools import chain
from pathlib import Path
from typing import Annotated

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hush_aggregator.http.client_address import client_of
from hush_aggregator.http.feed import EVENTS_PATH
from hush_aggregator.http.service import PROBLEMS_PATH, Kind, Places, ProblemError, Served, Service, Token

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_BEARER = {"WWW-Authenticate": 'Bearer realm="hush"'}
_LOGIN = {"WWW-Authenticate": 'Bearer realm="hush", Basic realm="hush", charset="UTF-8"'}


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """The headers of a request by their names in small letters."""
    found: dict[str, list[str]] = {}
    for name, value in raw:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip())
    return found


def check_place(service: Service, headers: Mapping[str, list[str]]) -> None:
    """Let nobody in who means another place, or comes from one.

    Raises:
        ProblemError: it is so.
    """
    host = headers.get("host", [])
    found = _HOST.fullmatch(host[0].lower()) if len(host) == 1 else None
    if found is None or not _is_here(service, found["name"]):
        raise ProblemError(
            Kind.UNKNOWN_HOST,
            "the name in Host is none of this service; ask by its address, or name it with --http-host (--host)",
        )
    here = {f"{scheme}://{host[0].lower()}" for scheme in ("http", "https")}
    if any(origin.lower() not in here for origin in headers.get("origin", [])):
        raise ProblemError(Kind.OTHER_ORIGIN, "pages of other places may not ask this service")
    if {"cross-site", "same-site"} & set(headers.get("sec-fetch-site", [])) and not _is_followed(headers):
        raise ProblemError(Kind.OTHER_ORIGIN, "pages of other places may not ask this service")


def check_token(token: Token | None, headers: Mapping[str, list[str]], *, login: bool = False) -> None:
    """Let nobody pass who does not have the token.

    Args:
        token: the token; None where there is none, and nobody passes.
        headers: of the request.
        login: whether it may also be the password of any user, for browsers.

    Raises:
        ProblemError: it is not there, or another one. What was sent is not repeated.
    """
    if token is None:
        raise ProblemError(Kind.NO_TOKEN_SET, "this service was started without a token, and gives this to nobody")
    given = headers.get("authorization", [])
    remedy = "send the header Authorization: Bearer, and the token"
    challenge = _LOGIN if login else _BEARER
    if not given:
        raise ProblemError(Kind.TOKEN_MISSING, f"this needs the token of the service; {remedy}", headers=challenge)
    found = _sent(given[0], login=login) if len(given) == 1 else None
    if found is None or not token.fits(found):
        raise ProblemError(Kind.TOKEN_WRONG, f"this is not the token of the service; {remedy}", headers=challenge)


def _sent(given: str, *, login: bool) -> str | None:
    """The token in a header."""
    scheme, _, text = given.partition(" ")
    if scheme.lower() == "bearer":
        return text.strip()
    if login and scheme.lower() == "basic":
        try:
            return base64.b64decode(text.strip(), validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError):
            return None
    return None


def _is_here(service: Service, name: str) -> bool:
    if name in service.hosts:
        return True
    if not service.any_address:
        return False
    try:  # a name can be made to point anywhere; an address means itself
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _is_followed(headers: Mapping[str, list[str]]) -> bool:
    """Whether somebody follows a link: the browser shows what comes, and hands it to no other page."""
    return headers.get("sec-fetch-mode") == ["navigate"] and headers.get("sec-fetch-dest") == ["document"]


_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="The token that the service was started with.")
_Described = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


async def may_export(request: Request, service: Served, _: _Described) -> None:
    """Let nobody have single reports who does not have the token.

    Raises:
        ProblemError: it is so.
    """
    check_token(service.token, headers_of(request.scope["headers"]))


async def may_write(request: Request, service: Served, _: _Described) -> None:
    """Let nobody write who does not have the token, and nobody at all where writing was not asked for.

    Raises:
        ProblemError: it is so.
    """
    if not service.write:
        raise ProblemError(
            Kind.READ_ONLY, "this service only reads; who runs it starts it with --http-write (hush http: --write)"
        )
    check_token(service.token, headers_of(request.scope["headers"]))


BODY_LIMIT = 128 * 1024
"""Most bytes of a request's body: twice what a published task may have."""

HEADER_LIMIT = 64
"""Most headers of a request."""

HEAD_LIMIT = 16 * 1024
"""Most bytes of its first line and headers."""

REQUEST_S = 30.0
"""Seconds until an answer begins."""

REQUESTS = 64
"""Most requests that are answered at the same time, streams of events aside. One address has half of them."""

STREAMS = 600
"""Most streams at the same time: a process can often open 1024 files. One address has half of them."""

_LOG = logging.getLogger("hush.aggregator")
_ALIVE = frozenset({"/healthz"})
_OPEN = frozenset({"/healthz", "/readyz", PROBLEMS_PATH})  # these say nothing about anybody
_POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "font", "connect", "manifest")),
        *(f"{kind} 'none'" for kind in ("base-uri", "form-action", "frame-ancestors")),
    ]
)
_HEADERS = {
    b"cache-control": b"no-store",
    b"content-security-policy": _POLICY.encode(),
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}
"""Of every answer that does not have its own."""


class Guard:
    """Around an application.

    Args:
        app: what answers.
        service: who may ask.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        busy = "too many requests at once; ask again"
        self._requests = Places(REQUESTS, Kind.TOO_MANY_REQUESTS, busy, share=REQUESTS // 2, what="requests")
        full = f"{STREAMS} streams are open, and no more are served; come back later"
        self._streams = Places(STREAMS, Kind.TOO_MANY_STREAMS, full, share=STREAMS // 2, what="streams")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer, receiving = _Answer(send), _Body(receive).receive
        if scope["method"] == "HEAD":
            answer = alone = _HeadersAlone(send)
            receiving = alone.receive
            # By this version of ASGI a stream ends once `receive` tells it that its client is gone.
            scope = {**scope, "method": "GET", "asgi": {**scope["asgi"], "spec_version": "2.3"}}
        try:
            headers = headers_of(scope["headers"])
            self._check(scope, headers)
            if scope["path"] not in _ALIVE:
                peer = scope["client"][0] if scope.get("client") else None
                places = self._streams if _is_stream(scope) else self._requests
                answer.take(places, client_of(peer, headers, self._service.trusted_proxies))
            async with asyncio.timeout(REQUEST_S) as answer.clock:
                await self._app(scope, receiving, answer.send)
        except ClientDisconnect:
            pass  # nobody is left to answer
        except ProblemError as problem:
            await answer.instead(problem, scope)
        except TimeoutError:
            await answer.instead(ProblemError(Kind.TOO_SLOW, "this took too long; ask again, or for less"), scope)
        except Exception as error:  # noqa: BLE001 - whoever asks learns nothing of it
            await answer.instead(_unforeseen(error), scope)
        finally:
            answer.leave()

    def _check(self, scope: Scope, headers: dict[str, list[str]]) -> None:
        if len(scope["headers"]) > HEADER_LIMIT:
            raise ProblemError(Kind.HEAD_TOO_LARGE, f"more than {HEADER_LIMIT} headers; send fewer")
        size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(map(len, chain(*scope["headers"])))
        if size > HEAD_LIMIT:  # what comes at once is parsed before its size is looked at
            raise ProblemError(Kind.HEAD_TOO_LARGE, f"a head of more than {HEAD_LIMIT} bytes; send less")
        check_place(self._service, headers)
        if self._service.guarded and scope["path"] not in _OPEN:
            check_token(self._service.token, headers, login=scope["method"] == "GET")
        length = headers.get("content-length", ["0"])[0]
        if length.isdecimal() and int(length[:20]) > BODY_LIMIT:
            raise _too_long()


class _Body:
    """The body of a request, up to its limit."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = BODY_LIMIT

    async def receive(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _too_long()
        return message


class _Answer:
    """The answer to a request: with all headers, in its place, and begun once."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._place: tuple[Places, str] | None = None
        self._has_begun = False
        self.clock: asyncio.Timeout | None = None

    def take(self, places: Places, who: str) -> None:
        """Take a place among these, of the share of `who`."""
        places.take(who)
        self._place = places, who

    def leave(self) -> None:
        """Give the place back."""
        if self._place is not None:
            places, who = self._place
            places.leave(who)
            self._place = None

    async def send(self, message: Message) -> None:
        """Send a part of it; from its beginning on it may take any time."""
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", []))
            there = {name.lower() for name, _ in headers}
            message = {**message, "headers": [*headers, *((n, v) for n, v in _HEADERS.items() if n not in there)]}
            self._has_begun = True
            if self.clock is not None:
                self.clock.reschedule(None)
        await self._send(message)

    async def instead(self, problem: ProblemError, scope: Scope) -> None:
        """Answer with a problem, if no answer has begun; else uvicorn closes the connection, for it is not complete."""
        self.clock = None
        if not self._has_begun:
            await problem.answer(scope, _nothing, self.send)


class _HeadersAlone(_Answer):
    """The answer to HEAD: the headers of an answer to GET, and then its end, for the application too."""

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        self._has_read = False
        self._has_ended = asyncio.Event()

    async def receive(self) -> Message:
        """Give the application a request without a body, and the end of the connection once the headers are sent."""
        if not self._has_read:
            self._has_read = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._has_ended.wait()
        return await _nothing()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await super().send(message)
            await super().send({"type": "http.response.body", "body": b"", "more_body": False})
            self._has_ended.set()


def _is_stream(scope: Scope) -> bool:
    return (scope["method"], scope["path"]) == ("GET", EVENTS_PATH)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _too_long() -> ProblemError:
    return ProblemError(Kind.BODY_TOO_LONG, f"a body of more than {BODY_LIMIT} bytes; a task has less")


def _unforeseen(error: Exception) -> ProblemError:
    """Tell the log of which kind it is, and where; its message may hold what was sent."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    _LOG.error("HTTP: %s in %s, line %d", type(error).__name__, Path(last.filename).name, last.lineno or 0)
    return ProblemError(Kind.INTERNAL, "an error of hush; its log says where")
