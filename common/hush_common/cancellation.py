"""Cancellation that always gets through."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["cancellable"]

_T = TypeVar("_T")


async def cancellable(call: Awaitable[_T]) -> _T:
    """Await a call that waits by `asyncio.wait_for`, so that a cancellation of the caller always gets through.

    Before Python 3.12 `wait_for` swallows a cancellation that comes together with the result (python/cpython#86296),
    and the caller would never end.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    result = await call
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
    return result
