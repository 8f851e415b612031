"""Charts for terminals: bars and intervals as lines of text, for simulations, plans, sweeps and `hush watch`.

A chart is as wide as the screen and needs no colours; each row has its name and its figure in words, so that no reader
has to guess from a length. A terminal without block characters gets ASCII.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TextIO

from hush_common.axis import Axis
from hush_common.errors import printable
from hush_common.terminal import Screen, width_of

_MARGIN = "  "
_LEAST = 12  # columns of a bar or an interval, at least; long names are broken into lines first
_EIGHTHS = "▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class Signs:
    """The characters of an interval on an axis."""

    axis: str  # where there is nothing else
    line: str  # from end to end
    low: str
    high: str
    value: str  # the estimate
    truth: str = "◆"  # a second point
    both: str = "◉"  # two points in one column
    below: str = "◂"  # an estimate left of the axis
    above: str = "▸"  # an estimate right of the axis


ENDS = Signs(" ", "─", "├", "┤", "●")
ASCII = Signs(" ", "-", "|", "|", "o", "x", "*", "<", ">")
HEAVY = Signs("─", "━", "━", "━", "●")
"""On an axis that is drawn."""
HEAVY_DOTTED = Signs("·", "━", "━", "━", "●")
"""For earlier intervals."""


def shows_signs(stream: TextIO | None = None) -> bool:
    """Return whether a stream (standard output by default) can print more than ASCII."""
    signs = "─├┤●◆◉█" + _EIGHTHS
    try:
        signs.encode((stream or sys.stdout).encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def draw_bar(length: float, *, signs: bool = True) -> str:
    """Draw a bar of `length` columns, to an eighth of a column; in ASCII to a whole one."""
    if not signs:
        return "#" * round(length)
    whole, eighths = divmod(round(8 * length), 8)
    return "█" * whole + (_EIGHTHS[eighths - 1] if eighths else "")


def draw_interval(
    ends: tuple[float, float],
    axis: tuple[float, float],
    width: int,
    *,
    value: float | None = None,
    truth: float | None = None,
    logarithmic: bool = False,
    signs: Signs = ENDS,
) -> str:
    """Draw an interval in `width` columns, with up to two points.

    Args:
        ends: of the interval; beyond the axis they are drawn at its end.
        axis: the values of the first and the last column.
        width: columns, at least 1.
        value: the estimate; beyond the axis it is an arrow.
        truth: a second point.
        logarithmic: whether the axis is; then all numbers are positive.
        signs: characters.
    """
    line, (first, last) = Axis(*axis, logarithmic), axis

    def column(at: float) -> int:
        return round(line.place(at, width - 1)) if last > first else width // 2

    start, stop = map(column, ends)
    cells = [signs.line if start <= place <= stop else signs.axis for place in range(width)]
    cells[start], cells[stop] = signs.low, signs.high
    if truth is not None:
        cells[column(truth)] = signs.truth
    if value is not None:
        sign = signs.below if value < first else signs.above if value > last else signs.value
        both = truth is not None and column(truth) == column(value)
        cells[column(value)] = signs.both if both else sign
    return "".join(cells)


@dataclass(frozen=True, slots=True)
class Bar:
    """A length, from zero."""

    name: str
    value: float  # its length, at least 0
    text: str  # the value in words


@dataclass(frozen=True, slots=True)
class Range:
    """An interval."""

    name: str
    low: float
    high: float
    value: float | None
    truth: float | None = None
    text: str = ""  # a figure for it


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars that begin in one column; the longest is as wide as the screen allows."""

    title: str  # above them
    bars: Sequence[Bar]  # at least one
    signs: bool = True  # whether the terminal can show more than ASCII

    def lines(self, screen: Screen) -> list[str]:
        """Return the title, and a line for each bar; more if its name is long."""
        rows = _Rows.of(screen, [bar.name for bar in self.bars], [bar.text for bar in self.bars])
        largest = max((bar.value for bar in self.bars), default=0.0) or 1.0
        drawn = (draw_bar(bar.value / largest * rows.room, signs=self.signs) for bar in self.bars)
        return [_MARGIN + printable(self.title), *rows.lines(list(drawn)), ""]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Intervals on one axis, with its ends below."""

    title: str  # above them
    ranges: Sequence[Range]  # at least one
    ends: tuple[str, str]  # of the axis, in words
    logarithmic: bool = False  # whether the axis is; then all numbers are positive
    signs: bool = True  # whether the terminal can show more than ASCII
    value: str = "estimate"  # what the first point of a range is
    also: str = "truth"  # what the second point is
    shared: tuple[float, float] | None = None  # the axis, if several charts have the same one; else it fits the ranges

    def lines(self, screen: Screen) -> list[str]:
        """Return the title with a legend, a line for each interval, and the ends of the axis."""
        rows = _Rows.of(screen, [one.name for one in self.ranges], [one.text for one in self.ranges])
        axis, signs = self.shared or self.span(self.ranges), ENDS if self.signs else ASCII
        drawn = [
            draw_interval(
                (one.low, one.high),
                axis,
                rows.room,
                value=one.value,
                truth=one.truth,
                logarithmic=self.logarithmic,
                signs=signs,
            )
            for one in self.ranges
        ]
        key = f"{signs.value} {self.value}" if any(one.value is not None for one in self.ranges) else ""
        if any(one.truth is not None for one in self.ranges):
            key += f"{', ' if key else ''}{signs.truth} {self.also}, {signs.both} both"
        head = printable(f"{self.title} ({key})" if key else self.title)
        gap = max(rows.room - sum(map(width_of, self.ends)), 1)
        labels = " " * (len(_MARGIN) + rows.names + 2) + self.ends[0] + " " * gap + self.ends[1]
        return [*(_MARGIN + line for line in wrap(head, screen.width - len(_MARGIN))), *rows.lines(drawn), labels, ""]

    @staticmethod
    def span(ranges: Sequence[Range]) -> tuple[float, float]:
        """Return the smallest and the largest number of some ranges."""
        every = [end for one in ranges for end in (one.low, one.high, one.value, one.truth) if end is not None]
        return min(every), max(every)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Columns of names, drawings and figures."""

    labels: Sequence[Sequence[str]]  # lines of each name
    texts: Sequence[str]  # of each row
    names: int  # columns of the names
    room: int  # columns of the drawings

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
