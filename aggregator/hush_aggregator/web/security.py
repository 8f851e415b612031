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
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from itertools import chain
from pathlib import Path
from typing import Annotated

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hush_aggregator.web.client_address import client_of
from hush_aggregator.web.feed import EVENTS_PATH
from hush_aggregator.web.service import (
    PROBLEMS_PATH,
    ConcurrencyLimit,
    ProblemError,
    ProblemType,
    Service,
    ServiceDep,
    Token,
)

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_BEARER = {"WWW-Authenticate": 'Bearer realm="hush"'}
_LOGIN = {"WWW-Authenticate": 'Bearer realm="hush", Basic realm="hush", charset="UTF-8"'}


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """Return the headers of a request by their names in lower case."""
    found: dict[str, list[str]] = {}
    for name, value in raw:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip())
    return found


def check_origin(service: Service, headers: Mapping[str, list[str]]) -> None:
    """Refuse a request for another host, or from a page of another origin."""
    host = headers.get("host", [])
    found = _HOST.fullmatch(host[0].lower()) if len(host) == 1 else None
    if found is None or not _is_own_host(service, found["name"]):
        raise ProblemError(
            ProblemType.UNKNOWN_HOST,
            "Host does not name this service; use its address, or allow the name with --http-host (hush http: --host)",
        )
    here = {f"{scheme}://{host[0].lower()}" for scheme in ("http", "https")}
    if any(origin.lower() not in here for origin in headers.get("origin", [])):
        raise ProblemError(ProblemType.OTHER_ORIGIN, "pages of other sites may not use this service")
    if {"cross-site", "same-site"} & set(headers.get("sec-fetch-site", [])) and not _is_navigation(headers):
        raise ProblemError(ProblemType.OTHER_ORIGIN, "pages of other sites may not use this service")


def readers_of(service: Service) -> list[tuple[str, Token]]:
    """The names and tokens with which one may read."""
    return [*([] if service.token is None else [("token", service.token)]), *service.administrators]


def administrators_of(service: Service) -> list[tuple[str, Token]]:
    """The names and tokens with which one may write, and read single reports."""
    return [*service.administrators] or readers_of(service)


def check_token(tokens: Sequence[tuple[str, Token]], headers: Mapping[str, list[str]], *, login: bool = False) -> str:
    """Return the name of the token of a request; refuse one without any of these, or if there is none.

    With `login` a password may be the token. The message does not contain what was sent.
    """
    if not tokens:
        raise ProblemError(ProblemType.NO_TOKEN_SET, "disabled: the service was started without a token")
    given = headers.get("authorization", [])
    remedy = "send the header Authorization: Bearer TOKEN"
    challenge = _LOGIN if login else _BEARER
    if not given:
        raise ProblemError(
            ProblemType.TOKEN_MISSING, f"this needs the token of the service; {remedy}", headers=challenge
        )
    found = _token_in(given[0], login=login) if len(given) == 1 else None
    names = [] if found is None else [name for name, token in tokens if token.fits(found)]
    if not names:
        raise ProblemError(ProblemType.TOKEN_WRONG, f"wrong token; {remedy}", headers=challenge)
    return names[0]


def _token_in(given: str, *, login: bool) -> str | None:
    """Return the token in a header, or None."""
    scheme, _, text = given.partition(" ")
    if scheme.lower() == "bearer":
        return text.strip()
    if login and scheme.lower() == "basic":
        try:
            return base64.b64decode(text.strip(), validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError):
            return None
    return None


def _is_own_host(service: Service, name: str) -> bool:
    if name in service.hosts:
        return True
    if not service.any_address:
        return False
    try:  # anyone can point a name anywhere, but an address is itself
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _is_navigation(headers: Mapping[str, list[str]]) -> bool:
    """Whether the user followed a link: the browser shows the response, and gives it to no other page."""
    return headers.get("sec-fetch-mode") == ["navigate"] and headers.get("sec-fetch-dest") == ["document"]


_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="The token that the service was started with.")
_Described = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


async def may_export(request: Request, service: ServiceDep, _: _Described) -> AsyncIterator[None]:
    """Refuse single reports without the token of an administrator."""
    name = check_token(administrators_of(service), headers_of(request.scope["headers"]))
    async with _audited(request, service, name):
        yield


async def may_check(request: Request, service: ServiceDep) -> str:
    """Return the name of the token of an administrator; refuse others, and all if the service only reads."""
    if not service.write:
        raise ProblemError(
            ProblemType.READ_ONLY,
            "this service is read-only; its operator can enable writing with --http-write (hush http: --write)",
        )
    return check_token(administrators_of(service), headers_of(request.scope["headers"]))


async def may_write(request: Request, service: ServiceDep, _: _Described) -> AsyncIterator[None]:
    """Refuse writing without the token of an administrator, or to a service that only reads."""
    async with _audited(request, service, await may_check(request, service)):
        yield


@asynccontextmanager
async def _audited(request: Request, service: Service, name: str) -> AsyncIterator[None]:
    """Write what the block does into the audit log; without a log that can be written it is not done."""
    log = service.audit
    if log is None:
        yield
        return
    action, given = _ACTIONS.get(request.url.path.rpartition("/")[2], "publish"), None
    if "number" in request.path_params:
        action, given = "close round", request.path_params["number"]
    elif action == "export":
        given = request.query_params.get("round")
    number = int(given) if given is not None and _ROUND.fullmatch(given) else None

    async def note(status: str) -> None:
        task = request.path_params.get("task_id", getattr(request.state, "task", None))
        try:
            await asyncio.to_thread(log.write, name, action, task, status, number)
        except OSError as error:
            _LOG.error("%s: the audit log cannot be written (%s)", log.path, error.strerror)
            raise ProblemError(
                ProblemType.NO_AUDIT, "the audit log cannot be written; the log of the service says why"
            ) from None

    await note("asked")
    try:
        yield
    except ProblemError as problem:
        await note(problem.kind.slug if isinstance(problem.kind, ProblemType) else str(int(problem.kind)))
        raise
    except Exception as error:
        await note(type(error).__name__)
        raise
    await note("ok")


_ROUND = re.compile(r"[0-9]{1,7}")


def only_digits(given: object) -> object:
    """Return the number of a round as it was given; ValueError for what a log could read in another way, as ` 5`."""
    if isinstance(given, str) and not _ROUND.fullmatch(given):
        raise ValueError("is not a number of a round; write only digits")
    return given


_ACTIONS = {"withdraw": "withdraw", "close": "close", "reports.csv": "export", "reports.parquet": "export"}

BODY_LIMIT = 128 * 1024
"""The maximum bytes of a body: twice those of a published task."""

HEADER_LIMIT = 64
"""The maximum number of headers."""

HEAD_LIMIT = 16 * 1024
"""The maximum bytes of the first line and the headers."""

REQUEST_S = 30.0
"""Seconds until an answer begins."""

REQUESTS = 64
"""The maximum number of concurrent requests without streams. One address may have half of them."""

STREAMS = 600
"""The maximum number of streams: a process can often open 1024 files. One address may have half of them."""

_LOG = logging.getLogger("hush.aggregator")
_NEVER_LIMITED = frozenset({"/healthz"})
_NEVER_GUARDED = frozenset({"/healthz", "/readyz", PROBLEMS_PATH})  # contain nothing about tasks
_POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "font", "connect", "manifest")),
        "form-action 'self'",  # the search of a long table
        "base-uri 'none'",
    ]
)
_HEADERS = {
    b"cache-control": b"no-store",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
}

UNFRAMED: Mapping[str, str] = {
    "content-security-policy": f"{_POLICY}; frame-ancestors 'none'",
    "x-frame-options": "DENY",
}
"""Headers of a page with a field for a token: no other page may have it in a frame."""


def _headers(frame_ancestors: tuple[str, ...]) -> dict[bytes, bytes]:
    """Return the headers of each response that does not set its own; pages of these origins may have it in a frame."""
    allowed = " ".join(frame_ancestors) or "'none'"
    found = _HEADERS | {b"content-security-policy": f"{_POLICY}; frame-ancestors {allowed}".encode()}
    return found if frame_ancestors else found | {b"x-frame-options": b"DENY"}  # which cannot name an origin


class Guard:
    """Middleware that checks and limits requests, and adds headers to responses.

    A request is limited until its response begins; `connection` ends a response that nobody reads. Streams have a limit
    of their own, so that other requests are answered however many streams are open. HEAD is answered as GET, up to the
    end of the headers.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._headers = _headers(service.frame_ancestors)
        busy = "too many concurrent requests; try again"
        self._requests = ConcurrencyLimit(
            REQUESTS, ProblemType.TOO_MANY_REQUESTS, busy, share=REQUESTS // 2, what="requests"
        )
        full = f"{STREAMS} streams are open, the maximum; try again later"
        self._streams = ConcurrencyLimit(
            STREAMS, ProblemType.TOO_MANY_STREAMS, full, share=STREAMS // 2, what="streams"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer, receiving = _Answer(send, self._headers), _Body(receive).receive
        if scope["method"] == "HEAD":
            answer = alone = _HeadAnswer(send, self._headers)
            receiving = alone.receive
            # In this version of ASGI a stream ends when `receive` reports that the client is gone.
            scope = {**scope, "method": "GET", "asgi": {**scope["asgi"], "spec_version": "2.3"}}
        try:
            headers = headers_of(scope["headers"])
            self._check(scope, headers)
            if scope["path"] not in _NEVER_LIMITED:
                peer = scope["client"][0] if scope.get("client") else None
                limit = self._streams if _is_stream(scope) else self._requests
                answer.acquire(limit, client_of(peer, headers, self._service.trusted_proxies))
            async with asyncio.timeout(REQUEST_S) as answer.clock:
                await self._app(scope, receiving, answer.send)
        except ClientDisconnect:
            pass  # the client is gone
        except ProblemError as problem:
            await answer.instead(problem, scope)
        except TimeoutError:
            await answer.instead(
                ProblemError(ProblemType.TOO_SLOW, "this took too long; try again, or request less"), scope
            )
        except Exception as error:  # noqa: BLE001 - the client must not see it
            await answer.instead(_log_unexpected(error), scope)
        finally:
            answer.release()

    def _check(self, scope: Scope, headers: dict[str, list[str]]) -> None:
        if len(scope["headers"]) > HEADER_LIMIT:
            raise ProblemError(
                ProblemType.HEAD_TOO_LARGE, f"the request has more than {HEADER_LIMIT} headers; send fewer"
            )
        size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(map(len, chain(*scope["headers"])))
        if size > HEAD_LIMIT:  # the parser checks the size only between reads
            raise ProblemError(
                ProblemType.HEAD_TOO_LARGE, f"the head of the request is longer than {HEAD_LIMIT} bytes; shorten it"
            )
        check_origin(self._service, headers)
        if self._service.guarded and scope["path"] not in _NEVER_GUARDED:
            check_token(readers_of(self._service), headers, login=scope["method"] == "GET")
        length = headers.get("content-length", ["0"])[0]
        if length.isdecimal() and int(length[:20]) > BODY_LIMIT:
            raise _body_too_long()


class _Body:
    """The body of a request, up to the limit."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = BODY_LIMIT

    async def receive(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _body_too_long()
        return message


class _Answer:
    """The response to a request, with all headers; it begins at most once."""

    def __init__(self, send: Send, headers: Mapping[bytes, bytes]) -> None:
        self._send = send
        self._headers = headers
        self._limit: tuple[ConcurrencyLimit, str] | None = None
        self._has_begun = False
        self.clock: asyncio.Timeout | None = None

    def acquire(self, limit: ConcurrencyLimit, address: str) -> None:
        """Count the request in a limit, for an address."""
        limit.acquire(address)
        self._limit = limit, address

    def release(self) -> None:
        """Count it no more."""
        if self._limit is not None:
            limit, address = self._limit
            limit.release(address)
            self._limit = None

    async def send(self, message: Message) -> None:
        """Send a part of it. Once it has begun, there is no time limit."""
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", []))
            there = {name.lower() for name, _ in headers}
            message = {**message, "headers": [*headers, *((n, v) for n, v in self._headers.items() if n not in there)]}
            self._has_begun = True
            if self.clock is not None:
                self.clock.reschedule(None)
        await self._send(message)

    async def instead(self, problem: ProblemError, scope: Scope) -> None:
        """Send a problem, unless a response has begun: then uvicorn closes the incomplete connection."""
        self.clock = None
        if not self._has_begun:
            await problem.answer(scope, _nothing, self.send)


class _HeadAnswer(_Answer):
    """The response to HEAD: the headers of a response to GET, then the end, also for the application."""

    def __init__(self, send: Send, headers: Mapping[bytes, bytes]) -> None:
        super().__init__(send, headers)
        self._has_read = False
        self._has_ended = asyncio.Event()

    async def receive(self) -> Message:
        """Give the application an empty body, and the end of the connection after the headers are sent."""
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


def _body_too_long() -> ProblemError:
    return ProblemError(
        ProblemType.BODY_TOO_LONG, f"the body is longer than {BODY_LIMIT} bytes, the maximum; a task is shorter"
    )


def _log_unexpected(error: Exception) -> ProblemError:
    """Log its type and place, without its message, which may contain what was sent."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    _LOG.error("HTTP: %s in %s, line %d", type(error).__name__, Path(last.filename).name, last.lineno or 0)
    return ProblemError(ProblemType.INTERNAL, "an error in hush; its log says where")
