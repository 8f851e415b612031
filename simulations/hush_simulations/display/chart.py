"""Charts in text: bars and intervals, one below the other, for a terminal, a log, and whoever has no screen.

They are lines as any other block's: as wide as the screen, without colours, with the name and the figure of each row in
words, so that nothing is to be guessed from a length. Where the terminal cannot show blocks and dots, signs of ASCII
stand for them.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from textwrap import wrap
from typing import TextIO

from hush_common.errors import printable
from hush_common.terminal import Screen, width_of

__all__ = ["Bar", "Bars", "Range", "Ranges", "shows_signs"]

_MARGIN = "  "
_LEAST = 12
"""Columns that a bar or an interval has at least; names are broken into lines before."""
_EIGHTHS = "▏▎▍▌▋▊▉"
_SIGNS = {"line": "─", "low": "├", "high": "┤", "value": "●", "truth": "◆", "both": "◉", "full": "█"}
_PLAIN = {"line": "-", "low": "|", "high": "|", "value": "o", "truth": "x", "both": "*", "full": "#"}


def shows_signs(stream: TextIO | None = None) -> bool:
    """Whether a stream, standard output if none is given, can be given more than ASCII."""
    try:
        ("".join(_SIGNS.values()) + _EIGHTHS).encode((stream or sys.stdout).encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Bar:
    """A length, from zero.

    Args:
        name: of what.
        value: how long it is, at least 0.
        text: the value in words.
    """

    name: str
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Range:
    """An interval.

    Args:
        name: of what.
        low: its lower end.
        high: its upper end.
        value: a point in or beside it; None where there is none.
        truth: another one.
        text: what is said of it.
    """

    name: str
    low: float
    high: float
    value: float | None
    truth: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars that begin in one column; the longest takes all the room.

    Args:
        title: what they show.
        bars: one at least.
        signs: whether the terminal shows more than ASCII.
    """

    title: str
    bars: Sequence[Bar]
    signs: bool = True

    def lines(self, screen: Screen) -> list[str]:
        """The title, and a line for each bar, more where its name is long."""
        rows = _Rows.of(screen, [bar.name for bar in self.bars], [bar.text for bar in self.bars])
        largest = max((bar.value for bar in self.bars), default=0.0) or 1.0
        drawn = (self._drawn(bar.value / largest * rows.room) for bar in self.bars)
        return [_MARGIN + printable(self.title), *rows.lines(list(drawn)), ""]

    def _drawn(self, length: float) -> str:
        if not self.signs:
            return _PLAIN["full"] * round(length)
        whole, eighths = divmod(round(8 * length), 8)
        return _SIGNS["full"] * whole + (_EIGHTHS[eighths - 1] if eighths else "")


@dataclass(frozen=True, slots=True)
class Ranges:
    """Intervals on one axis, whose ends stand below.

    Args:
        title: what they show.
        ranges: one at least.
        ends: of the axis, in words.
        logarithmic: whether the axis is; then all that is drawn is positive.
        signs: whether the terminal shows more than ASCII.
        value: what the first point of a range is.
        also: what the second point of a range is.
        shared: the ends of the axis as numbers, where several charts have one; else those of what is drawn.
    """

    title: str
    ranges: Sequence[Range]
    ends: tuple[str, str]
    logarithmic: bool = False
    signs: bool = True
    value: str = "estimate"
    also: str = "truth"
    shared: tuple[float, float] | None = None

    def lines(self, screen: Screen) -> list[str]:
        """The title with what the signs mean, a line for each interval, and the ends of the axis."""
        rows = _Rows.of(screen, [one.name for one in self.ranges], [one.text for one in self.ranges])
        low, high = self.shared or self.span(self.ranges)
        drawn = [self._drawn(one, low, high, rows.room) for one in self.ranges]
        signs = _SIGNS if self.signs else _PLAIN
        key = f"{signs['value']} {self.value}" if any(one.value is not None for one in self.ranges) else ""
        if any(one.truth is not None for one in self.ranges):
            key += f"{', ' if key else ''}{signs['truth']} {self.also}, {signs['both']} both"
        head = printable(f"{self.title} ({key})" if key else self.title)
        gap = max(rows.room - sum(map(width_of, self.ends)), 1)
        axis = " " * (len(_MARGIN) + rows.names + 2) + self.ends[0] + " " * gap + self.ends[1]
        return [*(_MARGIN + line for line in wrap(head, screen.width - len(_MARGIN))), *rows.lines(drawn), axis, ""]

    @staticmethod
    def span(ranges: Sequence[Range]) -> tuple[float, float]:
        """The smallest and the largest of all that is drawn."""
        every = [end for one in ranges for end in (one.low, one.high, one.value, one.truth) if end is not None]
        return min(every), max(every)

    def _drawn(self, one: Range, low: float, high: float, room: int) -> str:
        scale = log if self.logarithmic else float
        wide = scale(high) - scale(low)

        def column(at: float) -> int:
            return round((scale(at) - scale(low)) / wide * (room - 1)) if wide else room // 2

        signs = _SIGNS if self.signs else _PLAIN
        start, stop = column(one.low), column(one.high)
        cells = [signs["line"] if start <= place <= stop else " " for place in range(room)]
        cells[start], cells[stop] = signs["low"], signs["high"]
        if one.truth is not None:
            cells[column(one.truth)] = signs["truth"]
        if one.value is not None:
            both = one.truth is not None and column(one.truth) == column(one.value)
            cells[column(one.value)] = signs["both" if both else "value"]
        return "".join(cells)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Columns of names, drawings and figures.

    Args:
        labels: lines of each name.
        texts: of each row.
        names: columns of the names.
        room: columns of the drawings.
    """

    labels: Sequence[Sequence[str]]
    texts: Sequence[str]
    names: int
    room: int

    @classmethod
    def of(cls, screen: Screen, names: Sequence[str], texts: Sequence[str]) -> "_Rows":
        beside = max(map(width_of, texts), default=0)
        free = screen.width - len(_MARGIN) - 2 - (beside + 2 if beside else 0)
        most = max(min(free - _LEAST, 2 * screen.width // 5), _LEAST)
        labels = [wrap(printable(name), most) or [""] for name in names]
        widest = max((width_of(line) for lines in labels for line in lines), default=0)
        return cls(labels, texts, widest, max(free - widest, _LEAST))

    def lines(self, drawn: Sequence[str]) -> Iterator[str]:
        widest = max(map(width_of, self.texts), default=0)
        for label, bar, text in zip(self.labels, drawn, self.texts, strict=True):
            first = label[0] + " " * (self.names - width_of(label[0]))
            beside = f"{bar}{' ' * (self.room - len(bar))}  {text:>{widest}}" if text else bar
            yield f"{_MARGIN}{first}  {beside}".rstrip()
            yield from (_MARGIN + line for line in label[1:])
