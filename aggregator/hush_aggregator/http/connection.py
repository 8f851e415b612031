"""Connections: so many at once, and none that only waits: for a head that never ends, or a reader that never reads.

uvicorn bounds neither. Each connection is looked at once a second, and cut off where it has been in the same phase for
too long. A stream of events that nobody has anything to tell is in none of these phases.
"""

import socket
import struct
import sys
from asyncio import Transport
from contextlib import suppress
from enum import Enum
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from hush_aggregator.http.events import MOST_STREAMS
from hush_aggregator.http.guard import REQUESTS
from hush_aggregator.http.problems import ProblemError

__all__ = ["LONGEST", "Connection", "Phase"]

_SPARE = 64
_AT_ONCE = struct.pack("ii", 1, 0)
_MOST = MOST_STREAMS + 2 * REQUESTS + _SPARE
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


class Connection(H11Protocol):
    """One connection, as uvicorn has it, with bounds."""

    _seen: object = None
    _since = 0.0
    _resumed = 0
    _unwanted = -1  # bytes that came after an answer to a body that was not read; -1 while there is no such answer

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > _most():
            self._cut()

    def data_received(self, data: bytes) -> None:
        if self._unwanted < 0:
            super().data_received(data)
            return
        self._unwanted += len(data)
        if self._unwanted > _LEFT_LIMIT:
            self._cut()

    def resume_writing(self) -> None:
        self._resumed += 1
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            # Closed at once, the rest of the body would make the system throw the answer away before it is read.
            self._unwanted = 0
            self.transport.write_eof()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets a problem, too, unless an answer is under way."""
        del msg
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = ProblemError(400, "this is not a request of HTTP/1.1").answer
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
            self._cut()

    def _cut(self) -> None:
        """End it at once; what the system still holds of an answer goes, too."""
        found = self.transport.get_extra_info("socket")
        if found is not None:
            with suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

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
