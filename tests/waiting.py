"""Waiting for what nothing tells of. The patience only ends a test that fails: a machine with other work takes long."""

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 60


async def until(condition: Callable[..., object]) -> None:
    """Wait for it in a task, while others go on."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)


def wait_until(condition: Callable[..., object], seconds: float = PATIENCE_S) -> None:
    """Wait for it in a thread."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.02)
