"""A table as wide as the screen: nothing is cut, whatever the width.

Where it fits, each row is a line. Where it does not, titles and texts (never numbers) are broken between words; then a
group of rows gets its name on a line of its own; and at last every row is stacked: its name, and below it a line for
each of its other cells, with the title of the column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hush_common.terminal.screen import Screen
from hush_common.terminal.words import Cell, longest_word, plain, style_of, width_of, wrapped

__all__ = ["Column", "Row", "Table"]

_GAP = 3
_SLIM_GAP = 2
_FEWEST = 12
"""Columns that a text is not made narrower than, so that it reads as one."""
_STEP = 4
"""By how much more what belongs to a name is indented than the name."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Args:
        title: in the head of the table.
        right: numbers stand right, and are never broken; texts stand left.
        named: of the first column: where its cells stand on lines of their own, its title stands before a number.
    """

    title: str
    right: bool = False
    named: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row: a cell for each column, empty ones included.

    Args:
        cells: as many as there are columns; no cells make an empty line.
        style: of the cells that have none of their own.
    """

    cells: Sequence[Cell] = ()
    style: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows.

    Args:
        columns: one at least.
        rows: in their order.
        grouped: the first so many columns belong to a group of rows, and are empty in all but its first row.
        indent: blanks before each line.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    grouped: int = 0
    indent: int = 2

    def lines(self, screen: Screen) -> list[str]:
        """The first layout that fits, or the last one."""
        for gap in (_GAP, _SLIM_GAP):
            if widths := self._widths(screen.width, gap, titles_whole=True):
                return [*self._across(screen, widths, gap)]
        if widths := self._widths(screen.width, _SLIM_GAP, titles_whole=False):
            return [*self._across(screen, widths, _SLIM_GAP)]
        if self.grouped and (lines := self._by_group(screen)):
            return lines
        return [*self._stacked(screen)]

    def _widths(self, width: int, gap: int, *, titles_whole: bool) -> list[int]:
        """The width of each column; none if they do not fit, or only with titles or texts that are broken."""
        wanted = [self._wanted(place) for place in range(len(self.columns))]
        room = width - self.indent - gap * (len(wanted) - 1)
        least = wanted if titles_whole else [self._least(place, wide) for place, wide in enumerate(wanted)]
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

    def _least(self, place: int, wanted: int) -> int:
        """The narrowest that a column gets: its title may be broken, and its cells if they are texts."""
        column, cells = self.columns[place], self._cells(place)
        if column.right:
            return max(longest_word(column.title), *(width_of(plain(cell)) for cell in cells), 0)
        return max(min(wanted, _FEWEST), *map(longest_word, (column.title, *cells)))

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
        """A row in as many lines as its longest cell; titles of several lines stand at the bottom."""
        broken = [wrapped(cell, wide) for cell, wide in zip(row.cells, widths, strict=True)] if row.cells else []
        tall = max(map(len, broken), default=1)
        for number in range(tall):
            parts = []
            for cell, lines, column, wide in zip(row.cells, broken, self.columns, widths, strict=False):
                text = lines[number] if number < len(lines) else ""
                blanks = " " * (wide - width_of(text))
                shown = screen.paint(text, style_of(cell) or row.style)
                parts.append(blanks + shown if column.right else shown + blanks)
            yield (" " * self.indent + (" " * gap).join(parts)).rstrip()

    def _by_group(self, screen: Screen) -> list[str]:
        """Without the columns of the groups; their cells stand on a line above the rows of each."""
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
        """The first cell of a row, and those others that belong to its group, in a sentence."""
        first, *others = list(zip(self.columns, row.cells, strict=True))[: max(self.grouped, 1)]
        column, cell = first
        said = [f"{column.title} {plain(cell)}" if column.named and _is_figure(plain(cell)) else plain(cell)]
        said += [f"{column.title} {plain(cell)}" for column, cell in others if plain(cell)]
        margin = " " * self.indent
        style = style_of(cell) or row.style or "bold"
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
        """A cell beside the title of its column, or below it where there is no room."""
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


def _is_figure(text: str) -> bool:
    """Whether it is a number from 0 up, as people write it."""
    return text.replace(" ", "").replace(".", "", 1).isdecimal()
