"""Who sent what was refused: the name of the sender for the log; None for several senders."""

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["note", "only"]

K = TypeVar("K")


def only(names: Sequence[str]) -> str | None:
    """The one name among these; None for several, or none."""
    return names[0] if names and names.count(names[0]) == len(names) else None


def note(names: dict[K, str | None], key: K, name: str | None) -> None:
    """Keep under `key` the one name that is noted there; None for several."""
    if names.setdefault(key, name) != name:
        names[key] = None
