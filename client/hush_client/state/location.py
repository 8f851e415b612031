"""Where the state of a person's device is kept (XDG base directories), and whether only its owner can write there."""

import os
import stat
import sys
from pathlib import Path

from hush_common.errors import StateError
from hush_common.files import exposing

__all__ = ["make_private", "state_directory", "unusable"]


def state_directory(given: Path | None) -> Path:
    """`given`, or `$XDG_STATE_HOME/hush`, or `~/.local/state/hush`."""
    if given is not None:
        return given
    base = os.environ.get("XDG_STATE_HOME", "")
    home = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    return home / "hush"


def make_private(directory: Path) -> None:
    """Make `directory`, and what is missing above it, for the owner alone; one that is there must be nobody else's.

    Whoever may write to it, or to a directory above it, can replace the ledger by one that has spent nothing.

    Raises:
        StateError: it cannot be made, is no directory, or others may write to it, or everybody to one above it.
    """
    try:
        for missing in reversed([place for place in (directory, *directory.parents) if not place.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        found = directory.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(0, "it is not a directory")
        above = exposing(directory)
    except OSError as error:
        raise unusable(directory, error) from error
    if sys.platform != "win32" and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StateError(
            f"{directory}: others may write to it, and so replace the ledger; name a directory of your own, or "
            "remove their permissions (chmod 700)"
        )
    if above is not None:
        raise StateError(
            f"{directory}: everybody may write to {above}, and so replace the ledger; name a directory elsewhere, or "
            f"remove their permission (chmod o-w {above})"
        )


def unusable(directory: Path, error: OSError) -> StateError:
    """What to tell a person whose state directory cannot be made, read or written."""
    return StateError(
        f"{directory}: cannot hold the state of a device ({error.strerror}); name a directory that is writable"
    )
