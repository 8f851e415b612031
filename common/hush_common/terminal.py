"""Tables, lists of facts and sentences for people, as wide as the terminal; standard library only."""

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TextIO, TypeAlias

from hush_common.errors import printable

_DEFAULT_WIDTH = 100  # columns of a table in a pipe, which has no width
_NARROWEST = 20
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32"}


@dataclass(frozen=True, slots=True)
class Screen:
    """The width and abilities of an output."""

    width: int  # columns of a line; a block is wider only because of a long word
    painted: bool = False  # whether it shows colours
    wraps: bool = True  # whether sentences are broken into lines; in a pipe they stay whole, for programs that search

    @classmethod
    def of(cls, stream: TextIO | None) -> Self:
        """Return the screen of a stream: as wide as `COLUMNS` says, else as the terminal is."""
        is_terminal = stream is not None and stream.isatty()
        painted = is_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        width = _requested_width() or (_measured_width(stream) if stream is not None and is_terminal else 0)
        return cls(max(width or _DEFAULT_WIDTH, _NARROWEST), painted, wraps=width > 0)

    def paint(self, text: str, style: str) -> str:
        """Return the text in a style, `"bold"`, `"dim"`, `"red"` or `"green"`, if the screen shows colours."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.painted and style and text else text


class Renderable(Protocol):
    """Something to print: a table, a list of facts, a sentence."""

    def lines(self, screen: Screen, /) -> list[str]:
        """Return its lines on this screen, without blanks at their ends."""
        ...


def show(blocks: Iterable[Renderable], stream: TextIO | None = None) -> None:
    """Print blocks, one below the other; on standard output if no stream is given."""
    out = stream or sys.stdout
    if out is None:  # a program without a terminal has none
        return
    screen = Screen.of(out)
    for block in blocks:
        for line in block.lines(screen):
            out.write(f"{line}\n")
    out.flush()


def note(text: str) -> None:
    """Print `hush: text` on standard error: one line, which a terminal that is narrower breaks between words."""
    line, stream = f"hush: {printable(text)}", sys.stderr
    screen = Screen.of(stream)
    if stream is not None and stream.isatty() and width_of(line) > screen.width:
        show([Sentence(line, indent=0, hanging=2)], stream)
    else:
        print(line, file=stream, flush=True)


def _requested_width() -> int:
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < len("100000") else 0


def _measured_width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # no file, or a terminal without a known size
        return 0


TIE = "\N{NO-BREAK SPACE}"
_UNITS = r"%|(?:[ckm]?m|k?g|h|min|m?s|kWh|°C|ppm|dB|[KMG]B)\b"  # the usual short ones
_TIED = re.compile(
    rf"(?<=\d) (?=\d{{3}}\b|{_UNITS})|(?<=[±≤≥<>×]) (?=[-\w])|(?<=epsilon) (?=[\d≥])"  # noqa: RUF001
)

_DIGEST = re.compile(r"([0-9a-f]{32})([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class Styled:
    text: str
    style: str


Cell: TypeAlias = str | Styled


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, broken into lines if the screen wraps; without words, an empty line."""

    text: str
    style: str = ""
    indent: int = 2  # blanks before each line
    hanging: int = 0  # more blanks, from the second line on

    def lines(self, screen: Screen) -> list[str]:
        width = screen.width - self.indent - self.hanging if screen.wraps else 1 << 30
        margins = [" " * self.indent, " " * (self.indent + self.hanging)]
        broken = enumerate(wrapped(self.text, width))
        return [(margins[number > 0] + screen.paint(line, self.style)).rstrip() for number, line in broken]


def plain(cell: Cell) -> str:
    """Return the text of a cell as it is printed: without control characters, and with ties as spaces."""
    return _safe(cell).replace(TIE, " ")


def style_of(cell: Cell) -> str:
    return cell.style if isinstance(cell, Styled) else ""


def width_of(text: str) -> int:
    """Return the columns of a text: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text
    )


def wrapped(cell: Cell, width: int) -> list[str]:
    """Return the lines of a text, each no wider than `width` unless a word is; at least one."""
    lines = [""]
    for gap, word in _words(cell):
        joined = f"{lines[-1]}{gap}{word}" if lines[-1] else word
        if not lines[-1] or width_of(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(word)
    return [line.replace(TIE, " ") for line in lines]


def longest_word(cell: Cell) -> int:
    """Return the width below which a text cannot be broken."""
    return max((width_of(word) for _, word in _words(cell)), default=0)


def _words(cell: Cell) -> Iterator[tuple[str, str]]:
    """Yield unbreakable parts, each after its separator: a space, or nothing inside a digest."""
    for word in _TIED.sub(TIE, _safe(cell)).split(" "):
        halves = _DIGEST.fullmatch(word)
        if halves:
            yield " ", halves[1]
            yield "", halves[2]
        elif word:
            yield " ", word


def _safe(cell: Cell) -> str:
    text = cell.text if isinstance(cell, Styled) else cell
    return TIE.join(map(printable, text.split(TIE)))


_GAP = 3
_SLIM_GAP = 2
_STEP = 4
_REMARK, _REMARK_LINES = 18, 2  # least columns of a remark next to a value, and the most lines it has there
_ROOM = 24  # columns that a value should have next to its label; with fewer it is below


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a list."""

    label: str  # empty if it is that of the fact above
    value: Cell
    remark: Cell = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts, one below the other."""

    facts: Sequence[Fact]
    indent: int = 2
    least: int = 0  # least width of the labels, so that several lists align

    def lines(self, screen: Screen) -> list[str]:
        """Return three columns; or two, with the remarks below; or one. A screen of unknown width has three."""
        label = max((width_of(plain(fact.label)) for fact in self.facts), default=0)
        value = max((width_of(plain(fact.value)) for fact in self.facts), default=0)
        remark = max((width_of(plain(fact.remark)) for fact in self.facts), default=0)
        label = max(label, self.least)
        room = screen.width - self.indent if screen.wraps else 1 << 30
        for gap in (_GAP, _SLIM_GAP):
            if remark and label + gap + value + gap + remark <= room:
                return [line for fact in self.facts for line in self._in_columns(screen, fact, label, value, gap)]
        if remark and self._fits_broken(room - label - value - 2 * _SLIM_GAP):
            return [line for fact in self.facts for line in self._in_columns(screen, fact, label, value, _SLIM_GAP)]
        gap = _GAP if label + _GAP + value <= room else _SLIM_GAP
        needed = max((longest_word(cell) for fact in self.facts for cell in (fact.value, fact.remark)), default=0)
        if label + gap + max(needed, min(_ROOM, value)) <= room:
            return [line for fact in self.facts for line in self._below(screen, fact, label + gap, room)]
        return [line for fact in self.facts for line in self._stacked(screen, fact)]

    def _fits_broken(self, width: int) -> bool:
        """Whether the remarks fit in a column of this width, each in a few lines."""
        remarks = [fact.remark for fact in self.facts]
        least = max(_REMARK, *map(longest_word, remarks))
        return width >= least and all(len(wrapped(one, width)) <= _REMARK_LINES for one in remarks)

    def _in_columns(self, screen: Screen, fact: Fact, label: int, value: int, gap: int) -> Iterator[str]:
        texts = (_padded(screen, fact.label, label), _padded(screen, fact.value, value))
        start = " " * self.indent + (" " * gap).join(texts) + " " * gap
        left = self.indent + label + value + 2 * gap
        for line in wrapped(fact.remark, screen.width - left if screen.wraps else 1 << 30):
            yield (start + screen.paint(line, style_of(fact.remark))).rstrip()
            start = " " * left

    def _below(self, screen: Screen, fact: Fact, left: int, room: int) -> Iterator[str]:
        start = " " * self.indent + _padded(screen, fact.label, left)
        for cell in (fact.value, fact.remark):
            if not plain(cell):
                continue
            for line in wrapped(cell, room - left):
                yield start + screen.paint(line, style_of(cell))
                start = " " * (self.indent + left)

    def _stacked(self, screen: Screen, fact: Fact) -> Iterator[str]:
        """Yield the label, and below it the value and the remark; one line if there is no remark and both fit."""
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


_FEWEST = 12  # least columns of a text, so that it stays readable


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    right: bool = False  # numbers are aligned right and never broken, texts left
    point: bool = False  # numbers are aligned at their decimal points
    named: bool = False  # of the first column: if its cells have separate lines, its title precedes a number


@dataclass(frozen=True, slots=True)
class Row:
    """A cell for each column; without cells, an empty line."""

    cells: Sequence[Cell] = ()
    style: str = ""  # of the cells without a style


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows; the first `grouped` columns belong to a group of rows and are empty after its first row."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    grouped: int = 0
    indent: int = 2

    def lines(self, screen: Screen) -> list[str]:
        """Return the first layout that fits, or the last one."""
        return self._aligned()._in_columns(screen) or [*self._stacked(screen)]  # noqa: SLF001 - of this class

    def _in_columns(self, screen: Screen) -> list[str]:
        """Return the first layout in columns that fits, or nothing."""
        for gap in (_GAP, _SLIM_GAP):
            if widths := self._widths(screen.width, gap, titles_whole=True):
                return [*self._across(screen, widths, gap)]
        if widths := self._widths(screen.width, _SLIM_GAP, titles_whole=False):
            return [*self._across(screen, widths, _SLIM_GAP)]
        return self._by_group(screen) if self.grouped else []

    def _aligned(self) -> "Table":
        """Return the table with its numbers padded so that their decimal points align."""
        rows = [list(row.cells) for row in self.rows]
        for place in (place for place, column in enumerate(self.columns) if column.point):
            numbers = [cells for cells in rows if cells and _is_figure(plain(cells[place]))]
            most = max((_fraction_width(plain(cells[place])) for cells in numbers), default=0)
            for cells in numbers:
                blanks = TIE * (most - _fraction_width(plain(cells[place])))
                cell = cells[place]
                cells[place] = replace(cell, text=cell.text + blanks) if isinstance(cell, Styled) else cell + blanks
        return replace(self, rows=[replace(row, cells=cells) for row, cells in zip(self.rows, rows, strict=True)])

    def _widths(self, width: int, gap: int, *, titles_whole: bool) -> list[int]:
        """Return the width of each column; none if they do not fit, or only with broken titles or texts."""
        wanted = [self._wanted(place) for place in range(len(self.columns))]
        room = width - self.indent - gap * (len(wanted) - 1)
        least = wanted if titles_whole else [self._least(place) for place in range(len(wanted))]
        spare = room - sum(least)
        if spare < 0:
            return []
        found = list(least)
        for place in sorted(range(len(wanted)), key=lambda place: self.columns[place].right):  # texts first
            more = min(spare, wanted[place] - found[place])
            found[place] += more
            spare -= more
        return found

    def _wanted(self, place: int) -> int:
        return max(width_of(plain(cell)) for cell in (self.columns[place].title, *self._cells(place)))

    def _least(self, place: int) -> int:
        """Return the least width of a column: its title may be broken, and its cells if they are texts.

        A text may extend over the empty cells to its right, as far as those columns are wide in any layout.
        """
        column, cells = self.columns[place], self._cells(place)
        if column.right:
            return max(longest_word(column.title), *(width_of(plain(cell)) for cell in cells), 0)
        rooms = [(row.cells[place], self._room_after(row, place)) for row in self.rows if row.cells]
        fewest = max([width_of(column.title), *(width_of(plain(cell)) - room for cell, room in rooms)])
        words = (longest_word(cell) - room for cell, room in rooms)
        return max(min(fewest, _FEWEST), longest_word(column.title), *words)

    def _room_after(self, row: Row, place: int) -> int:
        """Return the least width of the empty cells after a cell, in columns of numbers, which are never broken."""
        room = 0
        for column, cell in zip(self.columns[place + 1 :], row.cells[place + 1 :], strict=True):
            if plain(cell) or not column.right:
                break
            room += _SLIM_GAP + longest_word(column.title)
        return room

    def _cells(self, place: int) -> list[Cell]:
        return [row.cells[place] for row in self.rows if row.cells]

    def _across(self, screen: Screen, widths: Sequence[int], gap: int) -> Iterator[str]:
        margin = " " * self.indent
        titles = Row([column.title for column in self.columns], "bold")
        yield from self._row(screen, titles, widths, gap)
        yield margin + "─" * (sum(widths) + gap * (len(widths) - 1))
        for row in self.rows:
            yield from self._row(screen, row, widths, gap)

    def _row(self, screen: Screen, row: Row, widths: Sequence[int], gap: int) -> Iterator[str]:
        """Yield the lines of a row, as many as its longest cell has."""
        cells = self._spanned(row, widths, gap)
        broken = [wrapped(cell, wide) for cell, _, wide in cells]
        tall = max(map(len, broken), default=1)
        for number in range(tall):
            parts = []
            for (cell, column, wide), lines in zip(cells, broken, strict=True):
                text = lines[number] if number < len(lines) else ""
                blanks = " " * (wide - width_of(text))
                shown = screen.paint(text, style_of(cell) or row.style)
                parts.append(blanks + shown if column.right else shown + blanks)
            yield (" " * self.indent + (" " * gap).join(parts)).rstrip()

    def _spanned(self, row: Row, widths: Sequence[int], gap: int) -> list[tuple[Cell, Column, int]]:
        """Return the cells with their columns and widths; a text has the width of the empty cells after it, too."""
        found: list[tuple[Cell, Column, int]] = []
        for cell, column, wide in zip(row.cells, self.columns, widths, strict=False):
            if found and column.right and not plain(cell) and not found[-1][1].right:
                found[-1] = (*found[-1][:2], found[-1][2] + gap + wide)
            else:
                found.append((cell, column, wide))
        return found

    def _by_group(self, screen: Screen) -> list[str]:
        """Return the layout with the cells of each group on a line above its rows."""
        rows = [replace(row, cells=row.cells[self.grouped :]) for row in self.rows]
        inner = Table(self.columns[self.grouped :], rows, indent=self.indent + _STEP)
        widths = inner._widths(screen.width, _SLIM_GAP, titles_whole=False)
        if not widths:
            return []
        lines = [" " * self.indent + screen.paint(plain(self.columns[0].title), "bold")]
        lines += replace(inner, rows=())._across(screen, widths, _SLIM_GAP)  # noqa: SLF001
        for row, rest in zip(self.rows, rows, strict=True):
            if row.cells and any(plain(cell) for cell in row.cells[: self.grouped]):
                lines += self._name(screen, row)
            lines += inner._row(screen, rest, widths, _SLIM_GAP)
        return lines

    def _name(self, screen: Screen, row: Row) -> list[str]:
        """Return the cells of a row that name its group, in a sentence."""
        named = list(zip(self.columns, row.cells, strict=True))[: max(self.grouped, 1)]
        (column, name), *others = [(column, plain(cell).rstrip()) for column, cell in named]
        said = [f"{column.title} {name}" if column.named and _is_figure(name) else name]
        said += [f"{column.title} {text}" for column, text in others if text]
        margin = " " * self.indent
        style = style_of(row.cells[0]) or row.style or "bold"
        broken = wrapped(", ".join(said), screen.width - self.indent)
        return [margin + screen.paint(line, style) for line in broken]

    def _stacked(self, screen: Screen) -> Iterator[str]:
        first = max(self.grouped, 1)
        title = max((width_of(column.title) for column in self.columns[first:]), default=0) + _SLIM_GAP
        for row in self.rows:
            if not row.cells:
                yield ""
            elif any(plain(cell) for cell in row.cells[:first]):
                yield from self._name(screen, row)
            for column, cell in list(zip(self.columns, row.cells, strict=False))[first:]:
                if plain(cell):
                    yield from self._titled(screen, column.title, title, cell, style_of(cell) or row.style)

    def _titled(self, screen: Screen, title: str, left: int, cell: Cell, style: str) -> Iterator[str]:
        """Yield a cell next to the title of its column, or below it if there is no room."""
        start = " " * (self.indent + _STEP) + title
        room = screen.width - self.indent - _STEP
        if left + longest_word(cell) <= room:
            start += " " * (left - width_of(title))
        else:
            yield start
            left = _STEP
            start = " " * (self.indent + 2 * _STEP)
        for line in wrapped(cell, room - left):
            yield start + screen.paint(line, style)
            start = " " * (self.indent + _STEP + left)


def _fraction_width(number: str) -> int:
    """Return the width of a number from its decimal point on."""
    return len(number) - len(number.partition(".")[0])


def _is_figure(text: str) -> bool:
    """Whether it is a number from 0 up, formatted for people."""
    return text.replace(" ", "").replace(".", "", 1).isdecimal()
