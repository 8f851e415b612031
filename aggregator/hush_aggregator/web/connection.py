"""Limits of connections, which uvicorn does not have: their number, and how long one may wait.

Each connection is checked once a second, and closed if it is in one phase for too long. An idle stream of events is in
none of these phases.
"""

import socket
import struct
from asyncio import Transport
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from hush_aggregator.web.client_address import Network, is_loopback, is_trusted
from hush_aggregator.web.connection_limit import ConnectionLimit, open_file_limit
from hush_aggregator.web.security import BODY_LIMIT, REQUESTS, STREAMS
from hush_aggregator.web.service import ProblemError, ProblemType

ACCEPTED_AT_ONCE = 16
"""Connections that are accepted in one turn of the event loop.

A request that arrives with its connection is read two turns later, so fewer than 64 connections arrive in between: the
limit of connections is never less.
"""

_SPARE = 64
_LINGER_NONE = struct.pack("ii", 1, 0)
_MOST = STREAMS + 2 * REQUESTS + _SPARE
_LOOPBACK_SHARE = STREAMS // 2 + REQUESTS // 2 + _SPARE // 2
_FILES_FOR_OTHERS = 128
_REFUSED_LIMIT = 4 * 1024 * 1024  # bytes of a refused body


class Phase(Enum):
    """What a connection waits for."""

    HEAD = "the head of a request"
    LEFT = "the rest of a refused body"
    READER = "the client to read"
    CLOSED = "its last bytes to be read"


TIMEOUTS_S: dict[Phase, float] = {Phase.HEAD: 10.0, Phase.LEFT: 2.0, Phase.READER: 30.0, Phase.CLOSED: 10.0}
"""The maximum seconds in each phase."""


class Connections(ConnectionLimit["Connection"]):
    """The connections of a server. Trusted proxies have no share: their requests count for the forwarded address."""

    def __init__(self, trusted: Sequence[Network] = ()) -> None:
        def share(peer: str | None, most: int) -> int:
            if is_trusted(peer, trusted):
                return most
            return max(most // 2, min(most, _LOOPBACK_SHARE)) if is_loopback(peer) else most // 2

        super().__init__(lambda: _most(), share)  # noqa: PLW0108 - tests replace it


class Connection(H11Protocol):
    """A connection of uvicorn with limits."""

    def __init__(self, *, connections: Connections, **rest: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(**rest)
        self._others = connections

    _seen: object = None
    _since = 0.0
    _resumed = 0
    _unwanted = -1  # bytes of a body after the response that refused it; -1 without such a response

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._others.add(self, self.client[0] if self.client else None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._unwanted < 0:
            super().data_received(data)
            self._note()
            return
        self._unwanted += len(data)
        if self._unwanted > _REFUSED_LIMIT:
            self.abort()

    def resume_writing(self) -> None:
        self._resumed += 1
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing() and not self._is_short:
            # If it were closed now, the rest of the body would make the system discard the response before it is read.
            self._unwanted = 0
            self.transport.write_eof()
        self._note()

    @property
    def _is_short(self) -> bool:
        """Whether uvicorn may skip the rest of the body: a proxy uses the connection again, and would meet its end."""
        headers = dict(self.scope["headers"])
        is_said = {b"expect", b"transfer-encoding"}.isdisjoint(headers)  # beside these the length may not be the truth
        return is_said and int(headers.get(b"content-length", b"0")[:20]) <= BODY_LIMIT  # digits: h11 has read it

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with a problem, unless a response has begun."""
        del msg
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = ProblemError(ProblemType.NOT_HTTP, "this is not an HTTP/1.1 request").answer
            headers = [*answer.raw_headers, (b"connection", b"close"), (b"cache-control", b"no-store")]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=bytes(answer.body)),
            ):
                self.transport.write(self.conn.send(event))
        self.transport.close()

    def check(self, now: float) -> None:
        """Abort the connection if it has waited too long. `now` is the time of the event loop."""
        phase = self._phase
        seen = phase, self.cycle, self._resumed
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif phase is not None and now - self._since > TIMEOUTS_S[phase]:
            self.abort()

    def abort(self) -> None:
        """Close it at once, without sending what is still buffered."""
        self._others.discard(self)
        found = self.transport.get_extra_info("socket")
        if found is not None:
            with suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        self.transport.abort()

    def _note(self) -> None:
        is_waiting = self.transport.is_closing() or self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        self._others.note(self, is_waiting=is_waiting)

    @property
    def _phase(self) -> Phase | None:
        if self.transport.is_closing():
            return Phase.CLOSED
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        is_skipping = cycle is not None and cycle.response_complete and self.conn.their_state is h11.SEND_BODY
        if self._unwanted >= 0 or is_skipping:
            return Phase.LEFT
        if self.flow.write_paused:
            return Phase.READER
        if (cycle is None or cycle.response_complete) and self.conn.their_state is h11.IDLE:
            return Phase.HEAD
        return None


def _most() -> int:
    """Return the limit of connections, which the limit of open files may lower."""
    files = open_file_limit()
    return _MOST if files is None else max(REQUESTS, min(_MOST, files - _FILES_FOR_OTHERS))
