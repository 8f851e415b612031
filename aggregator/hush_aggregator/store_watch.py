"""Watching the store: a command may write it while the aggregator runs, which reacts within two seconds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

__all__ = ["StoreWatch"]

_LOOK_EVERY_S = 1.0


class StoreWatch:
    """Tells that another process has written to the store. What the aggregator writes itself tells nothing.

    Args:
        changes: a number that is another one then (`StoreReader.changes`).
    """

    def __init__(self, changes: Callable[[], Awaitable[int]]) -> None:
        self._changes = changes
        self._listeners: list[Callable[[], Awaitable[None]]] = []
        self._last: int | None = None

    def tell(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Await `listener` after each change, in the order in which they were named."""
        self._listeners.append(listener)

    async def begin(self) -> None:
        """Remember the store of now: to be awaited before it is read for the first time, so that nothing slips by.

        Raises:
            StoreError: it cannot be read.
        """
        self._last = await self._changes()

    async def run(self) -> NoReturn:
        """Look once a second, until cancelled.

        Raises:
            StoreError: the store cannot be read.
        """
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now = await self._changes()
            if now != self._last:
                self._last = now
                for listener in self._listeners:
                    await listener()
