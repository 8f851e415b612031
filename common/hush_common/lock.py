"""Exclusive use of something by a lock on a file: within a process, across processes, on every platform.

It is SQLite's own lock on an empty database. The operating system lets go of it when the process ends, however it ends:
after SIGKILL there is nothing to clean up. A process that was forked has no part in it.
"""

import errno
import os
import sqlite3
import threading
import weakref
from pathlib import Path
from typing import Self

from hush_common.private_file import make_private_file

__all__ = ["FileLock"]

# Closing any descriptor of a file ends the locks that POSIX gives a process on it. SQLite minds that for its own; but
# whoever makes the file has another, and until it is closed nobody may lock.
_TURN = threading.Lock()


class FileLock:
    """A lock that is held until `release`, or until nobody refers to it any more."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._close = weakref.finalize(self, connection.close)

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """Lock the file, or say None while another holds it. It never waits.

        Args:
            path: made if need be, for its owner alone, and never deleted: whoever locks a file that another has
                replaced holds nothing. It is no symbolic link, which would make or lock a file somewhere else.

        Raises:
            OSError: it cannot be made or locked.
        """
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        try:
            with _TURN:
                make_private_file(path)
                connection = _locked(path)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_BUSY:
                return None
            if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)) from error
            raise OSError(errno.EIO, str(error), str(path)) from error
        return cls(connection)

    def release(self) -> None:
        """Let the next one in; calling it again does nothing."""
        self._close()


def _locked(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = MEMORY")  # nothing is committed, so no side file is of use
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("PRAGMA user_version = 1")  # of a file that may not be written, SQLite shares the lock
    except BaseException:
        connection.close()
        raise
    return connection
