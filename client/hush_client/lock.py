"""The right to send from a state directory: one gateway at a time, in this process or any other.

Two senders of one outbox would send every report twice and delete each other's. The operating system holds the lock
and lets go of it when the process ends, however it ends: after SIGKILL there is nothing to clean up.
"""

import asyncio
import os
import sys
import weakref
from pathlib import Path

from hush_client.places import make_private, unusable
from hush_common.errors import StateError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["LOCK_NAME", "Lock"]

LOCK_NAME = "hush.lock"
"""Beside the database, and never deleted: whoever locks a file that another has replaced holds nothing."""

_PATIENCE_SECONDS = 5.0  # two commands of cron at the same minute take turns
_PAUSE_SECONDS = 0.05
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # a link would make or lock a file somewhere else


class Lock:
    """The lock of a state directory, held until `release`, or until nobody refers to it any more."""

    def __init__(self, descriptor: int) -> None:
        self._close = weakref.finalize(self, os.close, descriptor)
        _HELD.add(self)

    @classmethod
    async def acquire(cls, directory: Path) -> "Lock":
        """Lock `directory`, made if need be, waiting a few seconds for whoever holds it now.

        Raises:
            StateError: it is still held then, or the directory cannot be written.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_SECONDS
        while (descriptor := _try(directory)) is None:
            if loop.time() >= deadline:
                raise StateError(
                    f"{directory}: another client is sending from this state; stop it, "
                    "or give each client a state directory of its own"
                )
            await asyncio.sleep(_PAUSE_SECONDS)
        return cls(descriptor)

    def release(self) -> None:
        """Let the next one in."""
        self._close()


_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


def _let_go() -> None:
    """In a process that was forked: its copies of our descriptors would keep the locks after we are gone."""
    for lock in list(_HELD):
        lock.release()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_let_go)


def _try(directory: Path) -> int | None:
    """An open descriptor that holds the lock, or None while another does. It never waits."""
    make_private(directory)
    try:
        # Python opens it so that no program that is started inherits it: that one would keep the lock after us.
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o600)
    except OSError as error:
        raise unusable(directory, error) from error
    try:
        _lock(descriptor)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError | PermissionError):  # what Unix and Windows say where another holds it
            return None
        raise unusable(directory, error) from error
    return descriptor


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
