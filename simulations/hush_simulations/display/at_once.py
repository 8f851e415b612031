"""Files of a run: all of them or none, whatever becomes of the disk, and whoever presses Ctrl-C."""

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["Writer", "write_all"]

Writer = Callable[[BinaryIO], object]
"""Writes the content of a file."""


def write_all(directory: Path, files: Mapping[str, Writer]) -> list[Path]:
    """Write files in place of what was there under their names, once the content of the last one is on the disk.

    Raises:
        OSError: they cannot be written; what was there is as it was.
    """
    with ExitStack() as drafts:
        written = [(_draft(directory, name, write, drafts), directory / name) for name, write in files.items()]
        for draft, path in written:
            draft.replace(path)
    return [path for _, path in written]


def _draft(directory: Path, name: str, write: Writer, drafts: ExitStack) -> Path:
    draft = directory / f".{name}.{secrets.token_hex(4)}"
    drafts.callback(_remove, draft)
    with draft.open("xb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    return draft


def _remove(draft: Path) -> None:
    with suppress(OSError):
        draft.unlink(missing_ok=True)
