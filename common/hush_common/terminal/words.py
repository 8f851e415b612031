"""Words on a screen: how wide a text is, and where it may be broken into lines.

A line ends between two words and nowhere else, and never inside a number, between a number and its per cent sign, or
after a sign that belongs to what follows. A word that is wider than the screen stays whole: the terminal breaks it, and
a copy of it is the word. A no-break space ties two words; it is printed as a space.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import TypeAlias

from hush_common.errors import printable
from hush_common.terminal.screen import Screen

__all__ = ["TIE", "Cell", "Sentence", "Styled", "longest_word", "plain", "style_of", "width_of", "wrapped"]

TIE = "\N{NO-BREAK SPACE}"
_TIED = re.compile(r"(?<=\d) (?=\d{3}\b)|(?<=\d) (?=%)|(?<=[±≤≥<>×]) (?=[-\w])|(?<=epsilon) (?=[\d≥])")  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class Styled:
    """A text in a style of the screen."""

    text: str
    style: str


Cell: TypeAlias = str | Styled


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, indented; where it is broken, the next line too.

    Args:
        text: the words; none make an empty line.
        style: of all of them.
        indent: blanks before each line.
        hanging: further ones, from the second line on.
    """

    text: str
    style: str = ""
    indent: int = 2
    hanging: int = 0

    def lines(self, screen: Screen) -> list[str]:
        """Whole where the screen does not say how wide it is."""
        width = screen.width - self.indent - self.hanging if screen.wraps else 1 << 30
        margins = [" " * self.indent, " " * (self.indent + self.hanging)]
        broken = enumerate(wrapped(self.text, width))
        return [(margins[number > 0] + screen.paint(line, self.style)).rstrip() for number, line in broken]


def plain(cell: Cell) -> str:
    """The text of a cell as it is printed: it cannot write to the terminal, and has no ties left."""
    return _safe(cell).replace(TIE, " ")


def style_of(cell: Cell) -> str:
    return cell.style if isinstance(cell, Styled) else ""


def width_of(text: str) -> int:
    """How many columns a text takes: wide characters two, those that join the one before them none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text
    )


def wrapped(cell: Cell, width: int) -> list[str]:
    """The lines of a text, each no wider than `width` unless a word is; at least one."""
    lines = [""]
    for word in _words(cell):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if not lines[-1] or width_of(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(word)
    return [line.replace(TIE, " ") for line in lines]


def longest_word(cell: Cell) -> int:
    """The width below which a text cannot be broken."""
    return max(map(width_of, _words(cell)), default=0)


def _words(cell: Cell) -> list[str]:
    return [word for word in _TIED.sub(TIE, _safe(cell)).split(" ") if word]


def _safe(cell: Cell) -> str:
    text = cell.text if isinstance(cell, Styled) else cell
    return TIE.join(map(printable, text.split(TIE)))
