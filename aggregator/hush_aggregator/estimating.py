"""Estimating: an estimate that fails is a value, and only finite numbers leave it.

Whoever makes estimates is an `Estimator`: a thread of this process, which is enough for a program of one's own, or a
process beside it (`processes`), which can be ended and which never holds up the intake.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from hush_aggregator.estimate import Estimate, estimate
from hush_aggregator.estimate.finite_only import finite_only
from hush_aggregator.estimate.numerics.guard import FAILED, NOT_FINITE
from hush_aggregator.tally import Tally
from hush_common.task import Task

__all__ = ["BATCH_S", "CRASHED", "TOO_SLOW", "Asked", "Estimator", "Failure", "InThread", "attempted", "one_by_one"]

CRASHED = "crashed"
"""The process that made the estimate ended: it was killed, or found no memory."""

TOO_SLOW = "too_slow"
"""The estimate was given up because it took too long."""

BATCH_S = 0.1
"""Seconds after which no further estimate of a batch begins."""

Asked = tuple[Task, Tally]
"""What an estimate is to be made of."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no estimate.

    Args:
        reason: one word, for the document.
        cause: what happened and where, for the log. Never the message of an exception: it may hold numbers of reports.
    """

    reason: str
    cause: str


class Estimator(Protocol):
    """Makes one estimate after the other, or several at once, away from the event loop."""

    async def prepare(self) -> None:
        """Return when an estimate could begin at once: what follows is the time of the estimate alone."""
        ...

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        """The estimate, or why there is none; never raises. Cancelling it gives the estimate up."""
        ...

    async def many(self, asked: Sequence[Asked], confidence: float, made: list[Estimate | Failure]) -> None:
        """Make the estimates one after the other, in order, and append each to `made` as soon as it is made.

        At least one is made; after `BATCH_S` no further one begins. Cancelling it gives up the one at hand.
        """
        ...


class InThread:
    """Estimates in a thread. One that is given up runs on to its end all the same: a thread cannot be ended."""

    async def prepare(self) -> None:
        """A thread needs no preparation."""

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        return await asyncio.to_thread(attempted, task, tally, confidence)

    async def many(self, asked: Sequence[Asked], confidence: float, made: list[Estimate | Failure]) -> None:
        await one_by_one(self, asked, confidence, made)


async def one_by_one(
    make: Callable[[Task, Tally, float], Awaitable[Estimate | Failure]],
    asked: Sequence[Asked],
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


def attempted(task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
    """The estimate of one round, or why there is none. Blocks as long as it takes, and never raises.

    Args:
        task: what was asked.
        tally: the reports of that round.
        confidence: coverage of the intervals, inside (0, 1).
    """
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
