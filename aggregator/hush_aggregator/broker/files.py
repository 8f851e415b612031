"""Files of a broker's directory: private from their first byte, and there as a whole or not at all."""

import os
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hush_common.errors import SetupError

__all__ = ["closed_above", "replace_file", "told"]


def replace_file(path: Path, content: bytes) -> None:
    """Write a file, mode 0600, in place of what was there under its name; the owner of the directory owns it.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            _give(draft, path.parent)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def closed_above(path: Path, user: int, groups: Collection[int]) -> Path | None:
    """Return the topmost directory above `path` that a user cannot enter, by its mode; None if there is none.

    Args:
        path: absolute.
        user: number of the user.
        groups: numbers of all groups of the user.
    """
    for directory in reversed(path.parents):
        found = directory.stat()
        enters = stat.S_IXUSR if found.st_uid == user else stat.S_IXGRP if found.st_gid in groups else stat.S_IXOTH
        if user != 0 and not found.st_mode & enters:
            return directory
    return None


def _give(path: Path, like: Path) -> None:
    """Give a file to whom another belongs: what root writes, mosquitto reads as a user of its own."""
    owner = like.stat()
    if hasattr(os, "chown") and path.stat().st_uid != owner.st_uid:
        os.chown(path, owner.st_uid, owner.st_gid)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn what the system complains about into one line with a remedy."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise SetupError(
            f"{where}: {error.strerror or error}; nothing was changed; make room, or name another directory"
        ) from error
