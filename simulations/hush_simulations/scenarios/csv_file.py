"""Columns of somebody's CSV file: every row becomes one client. A cell's content is never part of a message."""

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypeVar

from hush_common.errors import OptionError
from hush_simulations.scenarios.columns import choose_column
from hush_simulations.scenarios.population import MOST_CLIENTS, Observed, Value

__all__ = ["read_column", "read_columns"]

T = TypeVar("T")

_YES_NO = {"yes": 1, "true": 1, "1": 1, "no": 0, "false": 0, "0": 0}
_LONGEST_HEADER = 1 << 20
_REMEDY = "correct that row, or remove it"


def read_column(path: Path, column: str | None, *, bits: bool = False, labels: Sequence[str] = ()) -> Observed:
    """The values of one column, in the order of the rows.

    Args:
        path: a CSV file in UTF-8 with a header line; commas or semicolons between the fields.
        column: the name in the header; may be left out if there is only one column.
        bits: whether the cells are answers (yes, no, true, false, 1, 0) instead of numbers.
        labels: if any, what the cells are instead: one of these, letter by letter.

    Raises:
        OptionError: no such file or column, a cell that is empty or no number (naming its line), no rows, too many.
    """
    read: Callable[[str], Value] = _label(labels) if labels else _answer if bits else _finite
    with _opened(path) as (file, header, delimiter):
        name = _column(path, header, column, read)
        reader = csv.reader(file, delimiter=delimiter)
        values = _counted(path, _cells(path, reader, (header.index(name),), read))
    return Observed(tuple(value for (value,) in values), name)


def read_columns(path: Path, columns: Sequence[str]) -> Observed:
    """The numbers of several columns, a vector for each row.

    Raises:
        OptionError: as `read_column`.
    """
    with _opened(path) as (file, header, delimiter):
        places = [header.index(_column(path, header, column, _finite)) for column in columns]
        values = _counted(path, _cells(path, csv.reader(file, delimiter=delimiter), places, _finite))
    return Observed(tuple(values), ", ".join(columns))


def _counted(path: Path, rows: Iterator[tuple[T, ...]]) -> list[tuple[T, ...]]:
    values: list[tuple[T, ...]] = []
    for value in rows:
        values.append(value)
        if len(values) > MOST_CLIENTS:
            raise OptionError("--csv", f"{path} has more than {MOST_CLIENTS} rows; take a sample of them")
    if not values:
        raise OptionError("--csv", f"{path} has a header and no rows; every row is one client, write at least one")
    return values


@contextmanager
def _opened(path: Path) -> Iterator[tuple[TextIO, list[str], str]]:
    """The file after its header, the names in the header, and the delimiter; a mistake of reading it is one line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline(_LONGEST_HEADER)
            delimiter = ";" if ";" in first and "," not in first else ","
            header = next(csv.reader([first], delimiter=delimiter), [])
            yield file, [name.strip() for name in header], delimiter
    except OSError as error:
        raise OptionError("--csv", f"{path} cannot be read ({error.strerror}); name a CSV file") from error
    except UnicodeDecodeError as error:
        raise OptionError("--csv", f"{path} is not UTF-8 text; save it as CSV in UTF-8") from error
    except csv.Error as error:
        raise OptionError("--csv", f"{path} is not a CSV file ({error}); save it as CSV in UTF-8") from error


def _column(path: Path, header: list[str], column: str | None, read: Callable[[str], Value]) -> str:
    if not any(header):
        raise OptionError("--csv", f"{path} is empty; the first line names the columns, each further one is a client")
    if column is None and len(header) == 1 and _is_cell(header[0], read):
        raise OptionError("--csv", f"{path} has a value where its first line names the column; write a name there")
    return choose_column(header, column, table=str(path), header="first line")


def _is_cell(name: str, read: Callable[[str], Value]) -> bool:
    """Whether a name can be read as a value: then there is no header, and a title would show a client's cell."""
    for way in (read, _finite):
        try:
            way(name)
        except ValueError:
            continue
        return True
    return False


def _cells(
    path: Path, rows: Iterator[list[str]], positions: Sequence[int], read: Callable[[str], T]
) -> Iterator[tuple[T, ...]]:
    blank: int | None = None
    for number, row in enumerate(rows, start=2):
        if not row:
            blank = blank or number  # at the end of a file it means nothing, in a file of one column an empty cell
            continue
        texts = [row[place].strip() if place < len(row) and blank is None else "" for place in positions]
        if not all(texts):
            raise OptionError("--csv", f"row {blank or number} of {path} has nothing in that column; {_REMEDY}")
        try:
            yield tuple(map(read, texts))
        except ValueError as error:
            raise OptionError("--csv", f"row {number} of {path}: the cell is {error}; {_REMEDY}") from None


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("not a number") from None
    if not math.isfinite(value):
        raise ValueError("not finite (NaN or infinite)")
    return value


def _answer(text: str) -> int:
    if text.lower() not in _YES_NO:
        raise ValueError("neither yes nor no (yes, no, true, false, 1 or 0)")
    return _YES_NO[text.lower()]


def _label(labels: Sequence[str]) -> Callable[[str], str]:
    known = frozenset(labels)

    def read(text: str) -> str:
        if text not in known:
            raise ValueError("not one of the labels, which must be spelled exactly")
        return text

    return read
