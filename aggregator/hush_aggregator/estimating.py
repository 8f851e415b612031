"""Estimating: an estimate that fails is a value, and nothing that is no number leaves it.

Whoever makes estimates is an `Estimator`: a thread of this process, which is enough for a program of one's own, or a
process beside it (`processes`), which can be ended and which never holds up the intake.
"""

import asyncio
import math
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hush_aggregator.estimate import Estimate, estimate
from hush_aggregator.estimate.numerics.guard import FAILED, NOT_FINITE
from hush_aggregator.tally import Tally
from hush_common.task import Task

__all__ = ["CRASHED", "TOO_SLOW", "Estimator", "Failure", "InThread", "attempted"]

CRASHED = "crashed"
"""The process that made the estimate ended: it was killed, or found no memory."""

TOO_SLOW = "too_slow"
"""The estimate was given up because it took too long."""

_INTERVALS = ("intervals", "joint_intervals")
_PARTS = ("categories", "coordinates")
_PRIMARY = ("mean", "frequency")  # without these there is no estimate


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


class InThread:
    """Estimates in a thread. One that is given up runs on to its end all the same: a thread cannot be ended."""

    async def prepare(self) -> None:
        """A thread needs no preparation."""

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        return await asyncio.to_thread(attempted, task, tally, confidence)


def attempted(task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
    """The estimate of one round, or why there is none. Blocks as long as it takes, and never raises.

    Args:
        task: what was asked.
        tally: the reports of that round.
        confidence: coverage of the intervals, inside (0, 1).
    """
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):  # `estimate` itself may be stricter
            return _sound(estimate(task, tally, confidence))
    except Exception as error:  # noqa: BLE001 - an estimate must never take the service with it
        reason = NOT_FINITE if isinstance(error, ArithmeticError) else FAILED
        return Failure(reason, f"{type(error).__name__} {_place(error)}")


def _place(error: Exception) -> str:
    """Where an error was raised; its message is left out."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"in {Path(last.filename).name}, line {last.lineno}"


def _sound(made: Estimate) -> Estimate | Failure:
    """What is left without the numbers that are none; each is named in `failures`.

    A mean that is no number leaves nothing to trust. An interval or a second view that is none leaves the rest.
    """
    known = {field.name: getattr(made, field.name) for field in fields(made)}
    whole = {name: value for name, value in known.items() if name not in _PARTS}
    if not all(map(_primary, (whole, *made.categories, *made.coordinates))):
        return Failure(NOT_FINITE, "the estimate itself is no number")
    if all(map(math.isfinite, _numbers(known))):
        return made
    parts = {name: [_without(fact) for fact in known[name]] for name in _PARTS}
    return Estimate(**(_without(whole) | parts))


def _primary(fact: Mapping[str, Any]) -> bool:
    return all(math.isfinite(fact[name]) for name in _PRIMARY if fact.get(name) is not None)


def _without(fact: Mapping[str, Any]) -> dict[str, Any]:
    """An estimate, or a part of one, without what is not finite."""
    failures = dict(fact.get("failures") or {})
    sound: dict[str, Any] = {}
    for name, value in fact.items():
        if name in _INTERVALS:
            bad = [target for target, ends in value.items() if not all(map(math.isfinite, ends))]
            failures |= dict.fromkeys(bad, NOT_FINITE)
            sound[name] = {target: ends for target, ends in value.items() if target not in bad}
        elif all(map(math.isfinite, _numbers(value))):
            sound[name] = value
        else:
            failures[name] = NOT_FINITE
    if "methods" in sound:
        kept = sound.get("intervals", {})
        sound["methods"] = {target: method for target, method in sound["methods"].items() if target in kept}
    return sound | ({"failures": failures} if failures else {})


def _numbers(value: object) -> Iterator[float]:
    """All numbers in a value that JSON could hold."""
    match value:
        case str() | None:
            return
        case bool() | int() | float():
            yield value
        case Mapping():
            for part in value.values():
                yield from _numbers(part)
        case list() | tuple():
            for part in value:
                yield from _numbers(part)
        case _:
            raise TypeError("an estimate holds numbers, text, and lists and mappings of them")
