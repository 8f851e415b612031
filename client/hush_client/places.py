"""Where the state of a person's device lies, by the convention of the XDG base directories."""

import os
from pathlib import Path

__all__ = ["state_directory"]


def state_directory(given: Path | None) -> Path:
    """`given`, or `$XDG_STATE_HOME/hush`, or `~/.local/state/hush`."""
    if given is not None:
        return given
    base = os.environ.get("XDG_STATE_HOME", "")
    home = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    return home / "hush"
