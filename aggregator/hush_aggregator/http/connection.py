"""Connections: how many there are at the same time, and for how long one may wait.

uvicorn bounds neither. When all connections are taken, in all or by one address, the oldest without a complete request
is closed, and the new one stays: whoever sends a request at once is answered, however many others send nothing.

Each connection is checked once a second, and closed if it has been in the same phase for too long. A stream of events
without news is in none of these phases.
"""

import socket
import struct
import sys
from asyncio import Transport
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from hush_aggregator.http.client_address import Network, is_loopback, is_trusted, share_of
from hush_aggregator.http.security import REQUESTS, STREAMS
from hush_aggregator.http.service import Kind, ProblemError

__all__ = ["ACCEPTED_AT_ONCE", "LONGEST", "Connection", "Connections", "Phase"]

ACCEPTED_AT_ONCE = 16
"""Connections that are accepted in one turn of the event loop.

A request that came with its connection is read two turns later, so fewer than 64 connections come in between: that is
the least that there may be.
"""

_SPARE = 64
_AT_ONCE = struct.pack("ii", 1, 0)
_MOST = STREAMS + 2 * REQUESTS + _SPARE
_LOOPBACK_SHARE = STREAMS // 2 + REQUESTS // 2 + _SPARE // 2
_FILES_FOR_OTHERS = 128
_LEFT_LIMIT = 4 * 1024 * 1024  # of a body that nobody wants any more


class Phase(Enum):
    """What a connection waits for."""

    HEAD = "the head of a request"
    LEFT = "the rest of a body that nobody wants"
    READER = "somebody who reads"
    CLOSED = "its last bytes to be taken"


LONGEST: dict[Phase, float] = {Phase.HEAD: 10.0, Phase.LEFT: 2.0, Phase.READER: 30.0, Phase.CLOSED: 10.0}
"""For how many seconds."""


class Connections:
    """The connections of a server: how many each address has, and which wait for a complete request.

    Args:
        trusted: addresses of proxies. They have no share: their requests count for the forwarded address.
    """

    def __init__(self, trusted: Sequence[Network] = ()) -> None:
        self._trusted = trusted
        self._all: dict[Connection, str] = {}
        self._of: Counter[str] = Counter()
        self._waiting: OrderedDict[Connection, None] = OrderedDict()  # the oldest first
        self._waiting_of: defaultdict[str, OrderedDict[Connection, None]] = defaultdict(OrderedDict)

    def add(self, connection: "Connection", peer: str | None) -> None:
        """Add a connection that was accepted; close the oldest without a complete request if there are too many."""
        who = share_of(peer)
        self._all[connection] = who
        self._of[who] += 1
        self.note(connection, is_waiting=True)
        most = _most()
        share = max(most // 2, min(most, _LOOPBACK_SHARE)) if is_loopback(peer) else most // 2
        if self._of[who] > share and not is_trusted(peer, self._trusted):
            next(iter(self._waiting_of[who])).cut()
        elif len(self._all) > most:
            next(iter(self._waiting)).cut()

    def note(self, connection: "Connection", *, is_waiting: bool) -> None:
        """Remember whether a connection waits for a complete request, and since when."""
        who = self._all.get(connection)
        if who is None or is_waiting == (connection in self._waiting):
            return
        if is_waiting:
            self._waiting[connection] = self._waiting_of[who][connection] = None
        else:
            del self._waiting[connection], self._waiting_of[who][connection]

    def discard(self, connection: "Connection") -> None:
        """Forget a connection that is closed."""
        self.note(connection, is_waiting=False)
        who = self._all.pop(connection, None)
        if who is not None:
            self._of[who] -= 1
            if not self._of[who]:
                del self._of[who], self._waiting_of[who]


class Connection(H11Protocol):
    """One connection, as uvicorn has it, with bounds.

    Args:
        connections: all of the same server.
        rest: what uvicorn gives.
    """

    def __init__(self, *, connections: Connections, **rest: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(**rest)
        self._others = connections

    _seen: object = None
    _since = 0.0
    _resumed = 0
    _unwanted = -1  # bytes that came after an answer to a body that was not read; -1 while there is no such answer

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
        if self._unwanted > _LEFT_LIMIT:
            self.cut()

    def resume_writing(self) -> None:
        self._resumed += 1
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            # Closed at once, the rest of the body would make the system throw the answer away before it is read.
            self._unwanted = 0
            self.transport.write_eof()
        self._note()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets a problem, too, unless an answer is under way."""
        del msg
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = ProblemError(Kind.NOT_HTTP, "this is not a request of HTTP/1.1").answer
            headers = [*answer.raw_headers, (b"connection", b"close"), (b"cache-control", b"no-store")]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=bytes(answer.body)),
            ):
                self.transport.write(self.conn.send(event))
        self.transport.close()

    def look(self, now: float) -> None:
        """Cut it off if it has waited too long.

        Args:
            now: the time of the event loop, in seconds.
        """
        phase = self._phase
        seen = phase, self.cycle, self._resumed
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif phase is not None and now - self._since > LONGEST[phase]:
            self.cut()

    def cut(self) -> None:
        """Close it at once; what the system still holds of an answer goes, too."""
        self._others.discard(self)
        found = self.transport.get_extra_info("socket")
        if found is not None:
            with suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def _note(self) -> None:
        is_waiting = self.transport.is_closing() or self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        self._others.note(self, is_waiting=is_waiting)

    @property
    def _phase(self) -> Phase | None:
        if self.transport.is_closing():
            return Phase.CLOSED
        if self._unwanted >= 0:
            return Phase.LEFT
        if self.flow.write_paused:
            return Phase.READER
        cycle = cast("RequestResponseCycle | None", self.cycle)  # there is none before the first request
        if (cycle is None or cycle.response_complete) and self.conn.their_state is h11.IDLE:
            return Phase.HEAD
        return None


def _most() -> int:
    """How many connections there may be: as many as the service has use for, if the system gives it the files."""
    if sys.platform == "win32":
        return _MOST
    import resource  # noqa: PLC0415 - not on Windows

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else max(REQUESTS, min(_MOST, files - _FILES_FOR_OTHERS))
