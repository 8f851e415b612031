"""Demonstration: the result of an attack against a naive system and against hush."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Demonstration:
    """The result of an attack.

    Args:
        name: for `hush attack NAME`.
        title: what the attacker wants.
        columns: titles of the table.
        rows: its cells; the first of each is a text.
        meaning: the conclusion, in a few sentences.
        figures: the numbers behind the table, by name.
        draw: draws the picture; takes `palette`.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    meaning: str
    figures: Mapping[str, float]
    draw: "Callable[..., Figure]"

    def to_document(self) -> dict[str, Any]:
        """As the JSON object that `--json` prints."""
        return {
            "attack": self.name,
            "title": self.title,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "figures": dict(self.figures),
            "meaning": self.meaning,
        }
