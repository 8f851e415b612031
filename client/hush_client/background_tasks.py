"""Work that goes on beside the application, from the opening of a gateway to its close."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

__all__ = ["Background"]

_LOG = logging.getLogger(__name__)


class Background:
    """Tasks that end together. One that a mistake of ours ends is logged at once, and its error raised by `check`."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` until it ends by itself or `stop` is called."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_complain)
        self._tasks.append(task)

    async def stop(self) -> None:
        """Cancel everything, and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def check(self) -> None:
        """Raise the first mistake that ended a task."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        # Its name alone: a message of Python's might quote what it could not handle.
        _LOG.error("%s ended with an error (%s); close the client to see it", task.get_name(), type(error).__name__)
