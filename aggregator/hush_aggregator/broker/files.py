"""Files of a broker's directory: private from their first byte, and there as a whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hush_common.errors import SetupError

__all__ = ["replace_file", "told"]


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
