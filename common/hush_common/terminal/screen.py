"""The screen: how wide it is, and whether it shows colours."""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self, TextIO

__all__ = ["Block", "Screen", "show"]

_NOBODY_SAYS = 100
"""Columns of a table in a pipe, where nobody says how wide it may be."""
_NARROWEST = 20
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32"}


@dataclass(frozen=True, slots=True)
class Screen:
    """Where something is printed.

    Args:
        width: columns of a line; no block is wider where its words allow.
        painted: whether it shows colours.
        wraps: whether sentences are broken into lines; in a pipe they stay whole, so that a program finds them.
    """

    width: int
    painted: bool = False
    wraps: bool = True

    @classmethod
    def of(cls, stream: TextIO) -> Self:
        """That of a stream: as wide as `COLUMNS` says, or else as the terminal is."""
        is_terminal = stream.isatty()
        painted = is_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        width = _asked() or (_measured(stream) if is_terminal else 0)
        return cls(max(width or _NOBODY_SAYS, _NARROWEST), painted, wraps=width > 0)

    def paint(self, text: str, style: str) -> str:
        """The text in a style, `"bold"`, `"dim"`, `"red"` or `"green"`, where the screen has it."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.painted and style and text else text


class Block(Protocol):
    """Something to print: a table, a list of facts, a sentence."""

    def lines(self, screen: Screen, /) -> list[str]:
        """Its lines on such a screen, without blanks at their ends."""
        ...


def show(blocks: Iterable[Block], stream: TextIO | None = None) -> None:
    """Print blocks, one below the other; on standard output if no stream is given."""
    out = stream or sys.stdout
    screen = Screen.of(out)
    for block in blocks:
        for line in block.lines(screen):
            out.write(f"{line}\n")
    out.flush()


def _asked() -> int:
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < len("100000") else 0


def _measured(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # no file, or a terminal that does not say
        return 0
