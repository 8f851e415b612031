"""The guard around every request: who may ask, how much, for how long, and what no answer is without.

A request is bounded until its answer begins, which may be as long as it likes: `connection` ends it where nobody reads.
Streams of events have places of their own, so that others are answered however many stay open. HEAD is answered as GET
is, up to the end of the headers.
"""

import asyncio
import logging
import traceback
from itertools import chain
from pathlib import Path

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hush_aggregator.http.callers import check_place, check_token, headers_of
from hush_aggregator.http.client_address import client_of
from hush_aggregator.http.events import EVENTS_PATH
from hush_aggregator.http.places import Places
from hush_aggregator.http.problems import PROBLEMS_PATH, Kind, ProblemError
from hush_aggregator.http.service import Service

__all__ = ["BODY_LIMIT", "HEADER_LIMIT", "HEAD_LIMIT", "REQUESTS", "REQUEST_S", "STREAMS", "Guard"]

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
