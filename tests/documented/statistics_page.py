"""docs/statistics.md with all that is known of its digits."""

from functools import cache
from pathlib import Path

from documented import again, channels, noise, privacy, tables, teaching
from documented.figures import Section, claims_of, sections
from documented.quotes import QUOTES, pinned

__all__ = ["CLAIMED", "NAMES", "PAGE", "section"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "statistics.md"
CLAIMED = (again, channels, noise, privacy, tables, teaching)
"""The modules that claim figures, by the sections that they name."""

_TEXTS = sections(PAGE.read_text(encoding="utf-8"))
NAMES = tuple(_TEXTS)


@cache
def section(name: str) -> Section:
    """A section by its number, with its claims computed."""
    return Section(name, _TEXTS[name], claims_of(name), QUOTES, pinned().get(name, {}))
