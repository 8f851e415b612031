"""HTTP in a process of its own, so that readers cost the intake nothing.

The intake starts it, hands it the socket that listens, and tells it every second how it is, over a private channel. The
other direction is not used: HTTP reads the store by itself. If HTTP ends, it is started again; if the intake ends, the
channel ends, and HTTP with it.

The process is a new one and not a fork: a fork would share locks of threads, the connection to the broker and the
store, and copy the memory of the intake as soon as either writes. It loads what `hush http` loads, and no client of a
broker.
"""

import asyncio
import ctypes
import logging
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NoReturn

from hush_aggregator.count.intake import IntakeStatus
from hush_aggregator.estimate.process import ProcessEstimator
from hush_aggregator.logs import LogFormat, fields, logging_to
from hush_aggregator.ops.metrics import MetricValues
from hush_aggregator.ops.service_metrics import ProcessFigures
from hush_aggregator.web.app import create_app, serve_http
from hush_aggregator.web.service import Live, Service
from hush_aggregator.web.shared_estimates import KnownEstimator, SharedEstimate, SharingEstimator
from hush_common.aio import Backoff
from hush_common.child_python import python_command

_LOG = logging.getLogger("hush.aggregator")
_PROGRAM = "from hush_aggregator.web.process import main; main()"
_EVERY_S = 1.0
_LEAST_S = 0.2  # between two words, however many estimates there are to share
_LENGTH = struct.Struct(">Q")
_STEADY_S = 60.0
_FAREWELL_S = 2.0


@dataclass(frozen=True, slots=True)
class _Start:
    """What a process of HTTP is told first."""

    service: Service
    log_format: LogFormat


@dataclass(frozen=True, slots=True)
class _Word:
    """How the intake is."""

    values: MetricValues
    task_limit: str
    estimates: Sequence[SharedEstimate] = ()  # since the last word


class HttpProcess:
    """Keeps a process of HTTP running.

    Args:
        listener: that listens; it stays open here, so that clients wait while HTTP is started again.
        service: what is served, without `live` and `estimator`.
        live: the intake.
        log_format: of its log, on standard error.
        made: the estimates that the intake makes, if HTTP is to have them.
    """

    def __init__(
        self,
        listener: socket.socket,
        service: Service,
        live: Live,
        log_format: LogFormat,
        made: SharingEstimator | None = None,
    ) -> None:
        self._listener = listener
        self._start = _Start(replace(service, live=None, estimator=None), log_format)
        self._live = live
        self._made = made

    async def run(self) -> NoReturn:
        """Run until cancelled; then the process ends within two seconds, by force if it hangs."""
        backoff = Backoff()
        while True:
            began = time.monotonic()
            code = await self._once()
            if time.monotonic() - began > _STEADY_S:
                backoff.reset()
            wait = backoff.next()
            _LOG.error(
                "HTTP has ended (exit code %d), and reports are counted all the same; it starts again in %.0f s",
                code,
                wait,
                extra=fields("http_ended"),
            )
            await asyncio.sleep(wait)

    async def _once(self) -> int:
        here, there = socket.socketpair()
        with here:
            here.setblocking(False)
            with there:
                numbers = self._listener.fileno(), there.fileno()
                process = await asyncio.create_subprocess_exec(
                    *python_command(_PROGRAM, *map(str, numbers)),
                    pass_fds=numbers,
                    stdin=subprocess.DEVNULL,
                )
            telling = asyncio.create_task(self._tell(here), name="hush-http-channel")
            try:
                return await process.wait()
            finally:
                telling.cancel()
                await asyncio.wait({telling})
                here.close()
                await _ended(process)

    async def _tell(self, channel: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # it has ended
            await loop.sock_sendall(channel, _packed(self._start))
            while True:
                made = () if self._made is None else self._made.take()
                await loop.sock_sendall(channel, _packed(_word_of(self._live, made)))
                await asyncio.sleep(_LEAST_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY_S - _LEAST_S):
                        await (asyncio.Event() if self._made is None else self._made.changed).wait()


async def _ended(process: asyncio.subprocess.Process) -> None:
    for end in (process.terminate, process.kill):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            end()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                await process.wait()


def _word_of(live: Live, made: Sequence[SharedEstimate] = ()) -> _Word:
    values = live.figures()
    if values.intake is not None:
        values = replace(values, intake=replace(values.intake, tasks=()))  # their names are in `accepted`
    return _Word(values, live.task_limit, made)


def _packed(what: object) -> bytes:
    data = pickle.dumps(what)
    return _LENGTH.pack(len(data)) + data


class RemoteLive:
    """The intake, as it was heard of last."""

    def __init__(self, word: _Word, clock: Callable[[], float] = time.monotonic) -> None:
        self._word = word
        self._clock = clock
        self._heard = clock()

    def hear(self, word: _Word) -> None:
        self._word, self._heard = word, self._clock()

    def figures(self) -> MetricValues:
        return replace(self._word.values, http=ProcessFigures.read(), silent_s=self.silent_s)

    @property
    def intake(self) -> IntakeStatus:
        assert self._word.values.intake is not None  # noqa: S101 - for the type checker: an intake sends them
        return self._word.values.intake

    @property
    def task_limit(self) -> str:
        return self._word.task_limit

    @property
    def silent_s(self) -> float:
        """Seconds since the last word, beyond those between two."""
        return max(0.0, self._clock() - self._heard - _EVERY_S)


async def _read(reader: asyncio.StreamReader) -> object:
    """The next message of the parent process, which alone can write here."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))  # noqa: S301 - a channel of our own


async def _listen(reader: asyncio.StreamReader, live: RemoteLive, known: KnownEstimator) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            word = await _read(reader)
            assert isinstance(word, _Word)  # noqa: S101 - for the type checker
            live.hear(word)
            known.learn(word.estimates)


async def _serve(listener: socket.socket, channel: socket.socket) -> None:
    """Serve until the parent process has ended, or says so by SIGTERM."""
    reader, _ = await asyncio.open_connection(sock=channel, limit=1 << 30)
    start, word = await _read(reader), await _read(reader)
    assert isinstance(start, _Start)  # noqa: S101 - for the type checker
    assert isinstance(word, _Word)  # noqa: S101 - as above
    live = RemoteLive(word)
    with logging_to(sys.stderr, start.log_format) as log, ProcessEstimator() as estimator:
        known = KnownEstimator(estimator)
        known.learn(word.estimates)
        service = replace(start.service, live=live, estimator=known)
        serving = asyncio.create_task(serve_http(create_app(service), listener))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        others = [asyncio.create_task(work) for work in (_listen(reader, live, known), log.run())]
        await asyncio.wait({serving, others[0]}, return_when=asyncio.FIRST_COMPLETED)
        for task in (serving, *others):
            task.cancel()
        await asyncio.wait({serving, *others})
        if not serving.cancelled() and (error := serving.exception()) is not None:
            _LOG.error("HTTP has failed (%s)", type(error).__name__, extra=fields("http_failed"))
            raise SystemExit(1)


_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def _end_with_parent() -> None:
    """Let Linux end this process with its parent, even if it hangs. Elsewhere only the end of the channel does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Serve on the sockets whose numbers are the arguments."""
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the intake, which then ends this
    listener, channel = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        asyncio.run(_serve(listener, channel))
    sys.stderr.flush()
    os._exit(0)  # a thread that reads the store for a client would hold it up
