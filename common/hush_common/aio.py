"""Helpers for asyncio: cancellation that always arrives, and delays between attempts."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from hush_common.errors import HushError
from hush_common.rng import SystemRng

_T = TypeVar("_T")


async def cancellable(call: Awaitable[_T], over: type[Exception] = HushError) -> _T:
    """Await a call so that a cancellation of the caller always gets through, even one that would be swallowed.

    Before Python 3.12 `asyncio.wait_for` swallows a cancellation that comes together with the result
    (python/cpython#86296); a `TaskGroup` prefers the errors of its tasks to one that comes together with them. A caller
    that goes on after either would never end. The body of such a group must be waiting itself when a task fails, or
    before Python 3.13 the failure is counted as a cancellation.

    Args:
        call: what to await.
        over: the errors that matter less than a cancellation.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        result = await call
    except over as error:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
    return result


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` to its end even if cancelled meanwhile: a commit must not lose its acknowledgements."""
    task = asyncio.create_task(work, name="hush-to-the-end")
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        task.result()  # a failure of the work is worth more than a cancellation
        raise


_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 30.0
_STEPS = 1000


class Backoff:
    """The first delay doubles up to the longest; each is cut short by up to half, so that not all come back at once.

    Args:
        first: seconds.
        longest: seconds.
    """

    def __init__(self, first: float = _FIRST_SECONDS, longest: float = _LONGEST_SECONDS) -> None:
        self._first, self._longest = first, longest
        self._delay = first

    @property
    def longest(self) -> bool:
        """Whether attempts have become as rare as they get."""
        return self._delay >= self._longest

    def reset(self) -> None:
        """Begin anew: the last attempt was none that failed."""
        self._delay = self._first

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        delay = self._delay * (1 + SystemRng().randbelow(_STEPS) / _STEPS) / 2
        self._delay = min(2 * self._delay, self._longest)
        return delay
