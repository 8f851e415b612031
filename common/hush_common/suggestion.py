"""Which name of a closed list a person may have meant."""

from collections.abc import Iterable


def nearest(given: str, names: Iterable[str]) -> str | None:
    """Return the name that is most like the given one; None if none is alike."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for a mistake

    wanted = {name.lower(): name for name in names}
    found = get_close_matches(given.lower(), wanted, n=1)
    return wanted[found[0]] if found else None


def meant(given: str, names: Iterable[str]) -> str:
    """Return the end of a message, `"; did you mean 'bulk'?"`; empty if no name is alike."""
    name = nearest(given, names)
    return "" if name is None else f"; did you mean {name[:40]!r}?"
