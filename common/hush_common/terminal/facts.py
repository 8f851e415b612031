"""A list of facts: a label, what is true of it, and a remark; the remark below where there is no room beside."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hush_common.terminal.screen import Screen
from hush_common.terminal.words import Cell, longest_word, plain, style_of, width_of, wrapped

__all__ = ["Fact", "Facts"]

_GAP, _SLIM_GAP = 3, 2
_STEP = 4
_ROOM = 24
"""Columns that a value should have beside its label; with fewer it stands below."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a list.

    Args:
        label: of what; empty where it is that of the fact above.
        value: what is true of it.
        remark: what to think of it.
    """

    label: str
    value: Cell
    remark: Cell = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts, one below the other.

    Args:
        facts: in their order.
        indent: blanks before each line.
        least: columns that the labels take at least, so that several lists stand in line.
    """

    facts: Sequence[Fact]
    indent: int = 2
    least: int = 0

    def lines(self, screen: Screen) -> list[str]:
        """Three columns; or two, the remarks below; or one. Of no known width: always three."""
        label = max((width_of(plain(fact.label)) for fact in self.facts), default=0)
        value = max((width_of(plain(fact.value)) for fact in self.facts), default=0)
        remark = max((width_of(plain(fact.remark)) for fact in self.facts), default=0)
        label = max(label, self.least)
        room = screen.width - self.indent if screen.wraps else 1 << 30
        for gap in (_GAP, _SLIM_GAP):
            if remark and label + gap + value + gap + remark <= room:
                return [line for fact in self.facts for line in self._beside(screen, fact, label, value, gap)]
        gap = _GAP if label + _GAP + value <= room else _SLIM_GAP
        needed = max((longest_word(cell) for fact in self.facts for cell in (fact.value, fact.remark)), default=0)
        if label + gap + max(needed, min(_ROOM, value)) <= room:
            return [line for fact in self.facts for line in self._below(screen, fact, label + gap, room)]
        return [line for fact in self.facts for line in self._stacked(screen, fact)]

    def _beside(self, screen: Screen, fact: Fact, label: int, value: int, gap: int) -> Iterator[str]:
        texts = (_padded(screen, fact.label, label), _padded(screen, fact.value, value), _painted(screen, fact.remark))
        yield (" " * self.indent + (" " * gap).join(texts)).rstrip()

    def _below(self, screen: Screen, fact: Fact, left: int, room: int) -> Iterator[str]:
        start = " " * self.indent + _padded(screen, fact.label, left)
        for cell in (fact.value, fact.remark):
            if not plain(cell):
                continue
            for line in wrapped(cell, room - left):
                yield start + screen.paint(line, style_of(cell))
                start = " " * (self.indent + left)

    def _stacked(self, screen: Screen, fact: Fact) -> Iterator[str]:
        """The label alone, and below it the rest; or both in a line, where that is all and they fit."""
        margin = " " * self.indent
        line = f"{plain(fact.label)}{' ' * _SLIM_GAP}{plain(fact.value)}"
        if not plain(fact.remark) and self.indent + width_of(line) <= screen.width:
            yield (margin + line).rstrip()
            return
        if fact.label:
            yield from (margin + line for line in wrapped(fact.label, screen.width - self.indent))
        for cell in (fact.value, fact.remark):
            if plain(cell):
                inner = wrapped(cell, screen.width - self.indent - _STEP)
                yield from (margin + " " * _STEP + screen.paint(line, style_of(cell)) for line in inner)


def _painted(screen: Screen, cell: Cell) -> str:
    return screen.paint(plain(cell), style_of(cell))


def _padded(screen: Screen, cell: Cell, width: int) -> str:
    return _painted(screen, cell) + " " * (width - width_of(plain(cell)))
