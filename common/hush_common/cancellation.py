"""Cancellation that always gets through, and waits where it has to."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from hush_common.errors import HushError

__all__ = ["cancellable", "to_the_end"]

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
