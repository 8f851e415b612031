"""The rows of a CSV file and the columns that are meant: delimiter and header are found where one reading fits.

What fits: the first row has the columns asked for, and no row has more cells than the first. Where two delimiters fit,
or a first line could name the column as well as be a client, nothing is guessed: the person is asked.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hush_common.errors import OptionError
from hush_simulations.scenarios.columns import choose_column
from hush_simulations.scenarios.csv_encoding import Decoded
from hush_simulations.scenarios.csv_rules import DELIMITERS, CsvRules

__all__ = ["CsvTable", "find_table"]

_NO_DELIMITER = "\x1f"  # none of those that people use: every line is one cell
_NUMBER_WITH_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_NAMES = {sign: name for name, sign in DELIMITERS.items()}
_WRITE = f"write --delimiter {', '.join(DELIMITERS)} or another"


class _Shape(NamedTuple):
    """What a delimiter makes of a text: its first row, the line of a row with more cells, and what cannot be read."""

    first: tuple[str, ...]
    longer: int | None
    error: str

    @property
    def is_table(self) -> bool:
        return self.longer is None and not self.error


@dataclass(frozen=True, slots=True)
class CsvTable:
    """The clients of a file, and where the columns asked for are.

    Args:
        names: of the columns asked for; empty texts where nothing names them.
        places: of the same in a row, from 0.
        has_header: whether the first row names the columns.
    """

    text: str
    delimiter: str
    names: tuple[str, ...]
    places: tuple[int, ...]
    has_header: bool

    def rows(self) -> Iterator[tuple[int, tuple[str | None, ...]]]:
        """For each client the number of its line and the cells asked for, not stripped; None where its row ends before.

        Empty lines at the end of the file are no clients.
        """
        rows = _rows(self.text, self.delimiter)
        if self.has_header:
            next(rows)
        for line, cells in rows:
            row = cells or [""] * (1 + max(self.places))  # an empty line
            yield line, tuple(row[place] if place < len(row) else None for place in self.places)


def find_table(
    path: Path, decoded: Decoded, rules: CsvRules, columns: Sequence[str], is_cell: Callable[[str], bool]
) -> CsvTable:
    """The table, read by what a person says about it, and by what is certain.

    Args:
        path: for messages.
        decoded: the text.
        rules: what the person says.
        columns: names, or numbers from 1 where there is no header; empty where the only column is meant.
        is_cell: whether the name of an only column could be a client's cell.

    Raises:
        OptionError: it is no table, has no such column, or can be read in two ways.
    """
    delimiter = rules.delimiter or _found(path, decoded, rules, columns)
    shape = _shape(decoded.text, delimiter)
    if shape.error:
        raise OptionError("--csv", f"{path} is not a CSV file ({shape.error}); save it as CSV in UTF-8")
    if not any(shape.first):
        raise OptionError("--csv", f"{path} is empty, or its first line is; every line after the header is a client")
    if shape.longer is not None:
        message = f"line {shape.longer} of {path} has more cells than the first line ({len(shape.first)})"
        raise OptionError("--csv", f"{message}; put quotes around cells with a delimiter in them, or {_WRITE}")
    has_header = _has_header(path, rules, columns, shape.first, is_cell)
    names, places = _columns(path, shape.first, columns, has_header=has_header)
    return CsvTable(decoded.text, delimiter, names, places, has_header)


def _columns(
    path: Path, first: Sequence[str], columns: Sequence[str], *, has_header: bool
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if has_header:
        names = tuple(choose_column(first, name, table=str(path), header="first line") for name in (columns or (None,)))
        return names, tuple(map(first.index, names))
    if not columns and len(first) > 1:
        raise OptionError("--column", f"is missing; {path} has {len(first)} columns, write its number, as --column 1")
    places = tuple(_place(path, number, len(first)) for number in columns or ("1",))
    return tuple(f"column {place + 1}" if len(first) > 1 else "" for place in places), places


def _place(path: Path, number: str, width: int) -> int:
    if not _is_number(number, width):
        message = f"{number[:40]!r} is no column of {path}, which has {width} and no header"
        raise OptionError("--column", f"{message}; write the number of one, from 1, or leave out --header no")
    return int(number) - 1


def _is_number(text: str, width: int) -> bool:
    """Whether it is the number of a column, from 1."""
    return text.isascii() and text.isdecimal() and len(text) <= len(str(width)) and 1 <= int(text) <= width


def _has_header(
    path: Path, rules: CsvRules, columns: Sequence[str], first: Sequence[str], is_cell: Callable[[str], bool]
) -> bool:
    if rules.header is not None:
        return rules.header == "yes"
    numbers = bool(columns) and all(_is_number(name, len(first)) for name in columns)
    if numbers and all(name in first for name in columns):
        doubt = f"the first line of {path} could name column {columns[0]}, or be a client"
    elif numbers:
        doubt = f"the first line of {path} has no name {columns[0]}, and could be a client"
    elif not columns and len(first) == 1 and is_cell(first[0]):
        doubt = f"the first line of {path} could be the name of its column, or a client"
    else:
        return True
    raise OptionError("--header", f"{doubt}; write --header yes or --header no")


def _found(path: Path, decoded: Decoded, rules: CsvRules, columns: Sequence[str]) -> str:
    """The only delimiter that fits; where none does, the one whose complaint helps most."""
    seen = {sign: shape for sign in DELIMITERS.values() if len((shape := _head(decoded.text, sign)).first) > 1}
    if not decoded.certain and "|" in seen:  # a byte of which may be half a letter of Chinese or Japanese
        raise OptionError("--encoding", f"{path} is not UTF-8 text; save it in UTF-8, or write its --encoding")
    fitting = [sign for sign in seen if _fits(_shape(decoded.text, sign), rules, columns)]
    if _is_one_column(decoded.text, rules, columns, splits=bool(seen)):
        fitting.append(_NO_DELIMITER)
    if len(fitting) == 1 or (not fitting and len(seen) == 1):
        return (fitting or list(seen))[0]
    if not seen:
        return _NO_DELIMITER
    several = " or ".join(_NAMES.get(sign, "nothing, as in a column of decimal commas") for sign in fitting or seen)
    raise OptionError("--delimiter", f"the columns of {path} could be separated by {several}; {_WRITE}")


def _fits(shape: _Shape, rules: CsvRules, columns: Sequence[str]) -> bool:
    if not shape.is_table:
        return False
    named = rules.header != "no" and all(name in shape.first for name in columns)
    return named or (rules.header != "yes" and all(_is_number(name, len(shape.first)) for name in columns))


def _is_one_column(text: str, rules: CsvRules, columns: Sequence[str], *, splits: bool) -> bool:
    """Whether each line may be one cell with a delimiter in it: the first is the name asked for, or all are numbers."""
    if not splits or len(columns) > 1:
        return False
    lines = [line.strip() for line in io.StringIO(text, newline=None)]
    if columns and rules.header != "no" and lines[0] == columns[0]:
        return True
    numbers = all(_NUMBER_WITH_COMMA.fullmatch(line) for line in lines if line)
    return rules.header != "yes" and list(columns) in ([], ["1"]) and numbers


def _head(text: str, delimiter: str) -> _Shape:
    try:
        first = next(_rows(text, delimiter), (1, []))[1]
    except csv.Error as error:
        return _Shape((), None, str(error))
    return _Shape(tuple(cell.strip() for cell in first), None, "")


def _shape(text: str, delimiter: str) -> _Shape:
    head = _head(text, delimiter)
    if head.error:
        return head
    width = max(1, len(head.first))
    try:
        longer = next((line for line, cells in _rows(text, delimiter) if len(cells) > width), None)
    except csv.Error as error:
        return head._replace(error=str(error))
    return head._replace(longer=longer)


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows, each with the number of the line on which it starts; without empty lines at the end."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line, empty = 1, list[int]()
    for cells in reader:
        if cells:
            yield from ((blank, []) for blank in empty)
            empty.clear()
            yield line, cells
        else:
            empty.append(line)
        line = reader.line_num + 1
