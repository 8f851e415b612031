"""Compute estimates in a thread or in processes. A failed estimate is a value; only finite numbers leave."""

# A thread is enough for a program of one's own. A service uses processes: Python runs one thread at a time, a long
# calculation in C (numpy, large integers) blocks all others, and a thread cannot be ended when the service stops.
import asyncio
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, cast

import numpy as np

from hush_aggregator.estimate import Estimate, estimate
from hush_aggregator.estimate.estimates import finite_only
from hush_aggregator.estimate.numerics.guard import FAILED, NOT_FINITE
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.logs import fields
from hush_common.child_python import ChildPython, Parent
from hush_common.task import Task, decode_task

CRASHED = "crashed"
"""The process that made the estimate ended: it was killed, or found no memory."""

TOO_SLOW = "too_slow"
"""The estimate was given up because it took too long."""

BATCH_S = 0.1
"""Seconds after which no further estimate of a batch begins."""

EstimateInput = tuple[Task, Tally]
"""What an estimate is to be made of."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no estimate."""

    reason: str  # one word, for the document
    # what happened and where, for the log. Never the message of an exception: it may hold numbers of reports.
    cause: str


class Estimator(Protocol):
    """Makes one estimate after the other, or several at once, away from the event loop."""

    async def prepare(self) -> None:
        """Return when an estimate could begin at once: what follows is the time of the estimate alone."""
        ...

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        """The estimate, or why there is none; never raises. Cancelling it gives the estimate up."""
        ...

    async def many(self, asked: Sequence[EstimateInput], confidence: float, made: list[Estimate | Failure]) -> None:
        """Make the estimates one after the other, in order, and append each to `made` as soon as it is made.

        At least one is made; after `BATCH_S` no further one begins. Cancelling it gives up the one at hand.
        """
        ...


class ThreadEstimator:
    """Estimates in a thread. One that is given up runs on to its end all the same: a thread cannot be ended."""

    async def prepare(self) -> None:
        """A thread needs no preparation."""

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        return await asyncio.to_thread(try_estimate, task, tally, confidence)

    async def many(self, asked: Sequence[EstimateInput], confidence: float, made: list[Estimate | Failure]) -> None:
        await estimate_each(self, asked, confidence, made)


async def estimate_each(
    make: Callable[[Task, Tally, float], Awaitable[Estimate | Failure]],
    asked: Sequence[EstimateInput],
    confidence: float,
    made: list[Estimate | Failure],
) -> None:
    """`Estimator.many` by an estimator of single estimates."""
    loop = asyncio.get_running_loop()
    until = loop.time() + BATCH_S
    for task, tally in asked:
        made.append(await make(task, tally, confidence))
        if loop.time() >= until:
            return


def try_estimate(task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
    """The estimate of one round, or why there is none. Blocks as long as it takes, and never raises."""
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):  # `estimate` itself may be stricter
            sound = finite_only(estimate(task, tally, confidence))
    except Exception as error:  # noqa: BLE001 - an estimate must never take the service with it
        reason = NOT_FINITE if isinstance(error, ArithmeticError) else FAILED
        return Failure(reason, f"{type(error).__name__} {_place(error)}")
    return Failure(NOT_FINITE, "the estimate itself is not a number") if sound is None else sound


def _place(error: Exception) -> str:
    """Where an error was raised; its message is left out."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"in {Path(last.filename).name}, line {last.lineno}"


_PROGRAM = "from hush_aggregator.estimate.process import work; work()"
_LOG = logging.getLogger("hush.aggregator")
_START_S = 60.0
_DONE = "done"  # after the last answer to a request
_NICER = 5  # steps of politeness: reports are counted first


class ProcessEstimator:
    """Estimates in processes, one for each that runs at the same time. One process waits for the next estimate.

    Use as a context manager: at its end all of them are ended, whatever they are doing.
    """

    def __init__(self) -> None:
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        self._told = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in list(self._all):
            self._end(process)

    async def prepare(self) -> None:
        """Start a process if none waits, and wait until it has loaded what it needs."""
        if self._idle and self._idle[-1].alive:
            return
        for process in list(self._idle):
            self._end(process)
        try:
            self._idle.append(await self._started())
        except (OSError, TimeoutError) as error:
            if not self._told:
                self._told = True
                said = fields("no_process", held=True)
                _LOG.warning(
                    "no process for estimates could be started (%s): a slow one will delay others", error, extra=said
                )

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        made: list[Estimate | Failure] = []
        await self.many([(task, tally)], confidence, made)
        return made[0]

    async def many(self, asked: Sequence[EstimateInput], confidence: float, made: list[Estimate | Failure]) -> None:
        await self.prepare()
        if not self._idle:
            await estimate_each(ThreadEstimator(), asked, confidence, made)
            return
        process = self._idle.pop()
        try:
            await asyncio.to_thread(process.ask, asked, confidence, made)
        except BaseException:
            self._end(process)
            raise
        if process.alive and not self._idle:
            self._idle.append(process)
        else:
            self._end(process)

    async def _started(self) -> "_Process":
        process = _Process()
        self._all.add(process)
        try:
            async with asyncio.timeout(_START_S):
                greeted = await asyncio.to_thread(process.greeted)
        except BaseException:
            self._end(process)
            raise
        if not greeted:
            self._end(process)
            raise OSError("it ended at once")
        return process

    def _end(self, process: "_Process") -> None:
        process.end()
        self._all.discard(process)
        if process in self._idle:
            self._idle.remove(process)


class _Process(ChildPython):
    """One process. `greeted` and `ask` block until it is heard or ended."""

    def __init__(self) -> None:
        super().__init__(_PROGRAM)

    def greeted(self) -> bool:
        """Wait until it says that it is there; False if it ended before."""
        return self.hear() is True

    def ask(self, asked: Sequence[EstimateInput], confidence: float, made: list[Estimate | Failure]) -> None:
        """See `Estimator.many`. If the process ends, so does the estimate at hand."""
        self.send(([(task.payload, tally) for task, tally in asked], confidence))
        while (heard := self.hear()) != _DONE:
            if not isinstance(heard, Estimate | Failure):
                made.append(Failure(CRASHED, "its process ended"))
                return
            made.append(heard)


def work() -> None:
    """Make estimates in this process, for the one that started it, until that one ends."""
    parent = Parent()
    if hasattr(os, "nice"):
        os.nice(_NICER)
    parent.answer(True)
    for request in parent.requests():
        items, confidence = cast("tuple[list[tuple[bytes, Tally]], float]", request)
        until = time.monotonic() + BATCH_S
        for payload, tally in items:
            parent.answer(try_estimate(decode_task(payload), tally, confidence))
            if time.monotonic() >= until:
                break
        parent.answer(_DONE)
