"""Files: private ones, files that are complete or absent, and locks between processes."""

import errno
import os
import secrets
import sqlite3
import stat
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from hush_common.forks import before_a_fork

Writer = Callable[[BinaryIO], object]  # writes the content of a file


def find_world_writable_parent(path: Path) -> Path | None:
    """Return the nearest directory above `path` in which any user may replace files; None if there is none.

    A sticky bit, as of /tmp, protects the files of others. None on Windows.

    Raises:
        OSError: a directory above it cannot be looked up.
    """
    if sys.platform == "win32":
        return None
    for parent in (*path.absolute().parents, *path.resolve().parents):
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return parent
    return None


def make_private_file(path: Path) -> None:
    """Make the file if it is missing, readable only for its owner; remove the rights of others from an existing one.

    SQLite gives its side files the mode of the main one. The rights of the group stay: an operator may have set them.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        found = path.stat()
        if sys.platform != "win32" and found.st_mode & stat.S_IRWXO and found.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(found.st_mode) & ~stat.S_IRWXO)


@contextmanager
def draft_of(path: Path, *, private: bool = True) -> Iterator[Path]:
    """Make a file next to `path` for its new content; delete it at the end, unless it was moved."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if private else 0o666))
    try:
        yield draft
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until the content of a file is on the disk."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file, mode 0600, owned by the owner of the directory; after an OSError it is unchanged."""
    with draft_of(path) as draft:
        draft.write_bytes(content)
        owner = path.parent.stat()
        if hasattr(os, "chown") and draft.stat().st_uid != owner.st_uid:
            os.chown(draft, owner.st_uid, owner.st_gid)  # root writes it, and a service reads it as its own user
        sync(draft)
        draft.replace(path)


def replace_files(directory: Path, files: Mapping[str, Writer]) -> list[Path]:
    """Replace files, once the content of the last one is on the disk; after an OSError all are unchanged."""
    written = [directory / name for name in files]
    with ExitStack() as stack:
        drafts = [stack.enter_context(draft_of(path, private=False)) for path in written]
        for draft, write in zip(drafts, files.values(), strict=True):
            with draft.open("wb") as file:
                write(file)
            sync(draft)
        for draft, path in zip(drafts, written, strict=True):
            draft.replace(path)
    return written


class FileLock:
    """A lock between processes, held until `release` or until this object is deleted.

    It is SQLite's lock on an empty database. The operating system releases it when the process ends, also by SIGKILL. A
    forked process does not hold it.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._close = weakref.finalize(self, before_a_fork, connection.close)

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """Lock the file; return None, without waiting, if another process holds it.

        The file is created if missing, only for its owner, and never deleted: a lock on a replaced file is void. It may
        not be a symbolic link, which would lock a file somewhere else. OSError if it cannot be made or locked.
        """
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        try:
            connection = before_a_fork(_locked, path)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_BUSY:
                return None
            if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)) from error
            raise OSError(errno.EIO, str(error), str(path)) from error
        return cls(connection)

    def release(self) -> None:
        self._close()


def _locked(path: Path) -> sqlite3.Connection:
    """Return a connection that holds the lock. One call at a time.

    Closing any descriptor of a file ends the POSIX locks of the process on it. SQLite handles that for its own ones;
    but making the file needs another one, and no lock may be taken until it is closed.
    """
    make_private_file(path)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = MEMORY")  # nothing is committed, so no side file is of use
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("PRAGMA user_version = 1")  # of a file that may not be written, SQLite shares the lock
    except BaseException:
        connection.close()
        raise
    return connection
