"""Files that only their owner can read."""

import os
import stat
import sys
from pathlib import Path

__all__ = ["exposing", "make_private_file"]


def exposing(path: Path) -> Path | None:
    """Return the nearest directory above `path` in which everybody may replace what is there; None if there is none.

    In a directory with the sticky bit, as /tmp, nobody can replace what is another's. None on Windows.

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
    """Make the file if it is missing, for its owner alone; take an existing one away from everybody else's eyes.

    SQLite gives its side files the mode of the main one. A group that was let in by hand stays.

    Raises:
        OSError: it cannot be made.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        found = path.stat()
        if sys.platform != "win32" and found.st_mode & stat.S_IRWXO and found.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(found.st_mode) & ~stat.S_IRWXO)
