"""Long work in the event loop: many calls at once, but not too many, and loops that let others have their turn."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sized
from typing import TypeVar

AT_ONCE = 100
"""Publications that wait for their acknowledgement at the same time."""

_SLICE_S = 0.005

T = TypeVar("T")


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """The items; after each 5 ms the rest of the program has its turn."""
    began = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began > _SLICE_S:
            await asyncio.sleep(0)
            began = time.perf_counter()


async def run_all(calls: Iterable[Callable[[], Awaitable[object]]], at_once: int = AT_ONCE) -> None:
    """Run the calls, begun in their order and at most so many at the same time.

    Raises:
        Exception: that of the first call that fails; those that run are cancelled then, and no other begins.
    """
    queue = iter(calls)
    if isinstance(calls, Sized):
        at_once = min(at_once, len(calls))
    if not at_once:
        return

    async def work() -> None:
        async for call in in_slices(queue):
            await call()

    workers = [asyncio.create_task(work(), name="hush-run-all") for _ in range(at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
