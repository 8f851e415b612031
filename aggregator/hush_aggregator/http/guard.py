"""The guard around every request: who may ask, how much, for how long, and what no answer is without.

A request is bounded until its answer begins, which may be as long as it likes: `connection` ends it where nobody reads.
Streams of events take no place among requests, so that however many stay open, others are answered.
"""

import asyncio
import logging
import traceback
from itertools import chain
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hush_aggregator.http.callers import check_place, check_token, headers_of
from hush_aggregator.http.places import Places
from hush_aggregator.http.problems import ProblemError
from hush_aggregator.http.service import Service

__all__ = ["BODY_LIMIT", "HEADER_LIMIT", "HEAD_LIMIT", "REQUESTS", "REQUEST_S", "Guard"]

BODY_LIMIT = 128 * 1024
"""Most bytes of a request's body: twice what a published task may have."""

HEADER_LIMIT = 64
"""Most headers of a request."""

HEAD_LIMIT = 16 * 1024
"""Most bytes of its first line and headers."""

REQUEST_S = 30.0
"""Seconds until an answer begins."""

REQUESTS = 64
"""Most requests that are answered at the same time, streams of events aside."""

_LOG = logging.getLogger("hush.aggregator")
_EVENTS = b"text/event-stream"
_ALIVE = frozenset({"/healthz"})
_OPEN = frozenset({"/healthz", "/readyz"})  # these say nothing about anybody
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
        self._requests = Places(REQUESTS, "too many requests at once; ask again")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            self._check(scope)
            if scope["path"] not in _ALIVE:
                answer.take(self._requests)
            async with asyncio.timeout(REQUEST_S) as answer.clock:
                await self._app(scope, _Body(receive).receive, answer.send)
        except ProblemError as problem:
            await answer.instead(problem, scope)
        except TimeoutError:
            await answer.instead(ProblemError(503, "this took too long; ask again, or for less"), scope)
        except Exception as error:  # noqa: BLE001 - whoever asks learns nothing of it
            await answer.instead(_unforeseen(error), scope)
        finally:
            answer.leave()

    def _check(self, scope: Scope) -> None:
        if len(scope["headers"]) > HEADER_LIMIT:
            raise ProblemError(431, f"more than {HEADER_LIMIT} headers; send fewer")
        size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(map(len, chain(*scope["headers"])))
        if size > HEAD_LIMIT:  # what comes at once is parsed before its size is looked at
            raise ProblemError(431, f"a head of more than {HEAD_LIMIT} bytes; send less")
        headers = headers_of(scope["headers"])
        check_place(self._service, headers)
        if self._service.guarded and scope["path"] not in _OPEN:
            check_token(self._service.token, headers, login=scope["method"] in ("GET", "HEAD"))
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
        self._place: Places | None = None
        self._has_begun = False
        self.clock: asyncio.Timeout | None = None

    def take(self, places: Places) -> None:
        """Take a place among these."""
        places.take()
        self._place = places

    def leave(self) -> None:
        """Give the place back."""
        if self._place is not None:
            self._place.leave()
            self._place = None

    async def send(self, message: Message) -> None:
        """Send a part of it; from its beginning on it may take any time."""
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", []))
            there = {name.lower(): value for name, value in headers}
            if there.get(b"content-type", b"").startswith(_EVENTS):
                self.leave()  # it may stay open for ever, and `events` bounds how many do
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


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _too_long() -> ProblemError:
    return ProblemError(413, f"a body of more than {BODY_LIMIT} bytes; a task has less")


def _unforeseen(error: Exception) -> ProblemError:
    """Tell the log of which kind it is, and where; its message may hold what was sent."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    _LOG.error("HTTP: %s in %s, line %d", type(error).__name__, Path(last.filename).name, last.lineno or 0)
    return ProblemError(500, "an error of hush; its log says where")
