"""The lock of a state directory: one gateway at a time sends from it, in this process or any other.

Two senders of one outbox would send every report twice and delete each other's.
"""

import asyncio
from pathlib import Path
from typing import Self

from hush_client.state.location import make_private, unusable
from hush_common.errors import StateError
from hush_common.files import FileLock

__all__ = ["LOCK_NAME", "Lock"]

LOCK_NAME = "hush.lock"
"""Beside the database."""

_PATIENCE_SECONDS = 5.0  # two commands of cron at the same minute take turns
_PAUSE_SECONDS = 0.05


class Lock(FileLock):
    """The lock of a state directory."""

    @classmethod
    async def acquire(cls, directory: Path) -> Self:
        """Lock `directory`, made if need be, waiting a few seconds for whoever holds it now.

        Raises:
            StateError: it is still held then, or the directory cannot be written.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_SECONDS
        while (lock := cls._try(directory)) is None:
            if loop.time() >= deadline:
                raise StateError(
                    f"{directory}: another client is sending from this state; stop it, "
                    "or give each client a state directory of its own"
                )
            await asyncio.sleep(_PAUSE_SECONDS)
        return lock

    @classmethod
    def _try(cls, directory: Path) -> Self | None:
        make_private(directory)
        try:
            return cls.take(directory / LOCK_NAME)
        except OSError as error:
            raise unusable(directory, error) from error
