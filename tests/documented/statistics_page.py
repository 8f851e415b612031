"""docs/statistics.md, and the errors in docs/tour.md, with all that is known of their digits."""

from functools import cache
from pathlib import Path

from documented import again, channels, noise, privacy, tables, teaching
from documented.figures import Section, claims_of, sections
from documented.quotes import QUOTES, pinned

__all__ = ["CLAIMED", "NAMES", "PAGE", "section"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "statistics.md"
CLAIMED = (again, channels, noise, privacy, tables, teaching)
"""The modules that claim figures, by the sections that they name."""

TOUR = PAGE.with_name("tour.md")
ERRORS = "Errors"
"""The section of docs/tour.md whose figures are recomputed; what stands before it are references to cells."""

_TEXTS = sections(PAGE.read_text(encoding="utf-8")) | {ERRORS: sections(TOUR.read_text(encoding="utf-8"))[ERRORS]}
NAMES = tuple(_TEXTS)


@cache
def section(name: str) -> Section:
    """A section by its number, with its claims computed."""
    return Section(name, _TEXTS[name], claims_of(name), QUOTES, pinned().get(name, {}))
