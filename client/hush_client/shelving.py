"""What the catalogue knows goes onto the shelf: as soon as something in it was answered first, and else rarely.

A broker that publishes another task every second must not wear out the flash memory of a device.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from hush_client.catalogue import Catalogue
from hush_client.state.shelf import Shelf

__all__ = ["Shelving", "open_shelf"]

_LINGER = 1.0  # seconds; tasks that come together are written together
_PAUSE = 600.0  # seconds from one write to the next, but for the first answer to a task
_WORKER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hush-shelf")


class Shelving:
    """Keeps the tasks of a catalogue for the next run.

    Args:
        catalogue: what is known.
        shelf: where it is kept.
    """

    def __init__(self, catalogue: Catalogue, shelf: Shelf) -> None:
        self.catalogue = catalogue
        self._shelf = shelf
        self._urgent = asyncio.Event()

    def answered(self, task_id: str) -> None:
        """A task was answered: it is kept at once if that was the first time."""
        if self.catalogue.note_answer(task_id):
            self._urgent.set()

    async def run(self) -> None:
        """Keep what changes until cancelled."""
        pause = _LINGER
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._urgent.wait()
            await self.save()
            pause = _PAUSE

    async def save(self) -> None:
        """Write what has changed, if anything has."""
        self._urgent.clear()
        tasks = list(self.catalogue.kept())
        await asyncio.get_running_loop().run_in_executor(_WORKER, self._shelf.save, tasks)


@asynccontextmanager
async def open_shelf(directory: Path) -> AsyncIterator[Shelving]:
    """What is kept in a directory whose lock is held; in the end, what is known then is kept."""
    shelf = Shelf(directory)
    shelving = Shelving(Catalogue(await asyncio.get_running_loop().run_in_executor(_WORKER, shelf.load)), shelf)
    try:
        yield shelving
    finally:
        await shelving.save()
