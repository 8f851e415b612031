"""Columns of somebody's CSV file: every row becomes one client.

A cell's content is part of a message only where a person reads it at a terminal; else its line and what is wrong are.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hush_common.errors import OptionError
from hush_simulations.scenarios.cells import Answers, CellError, Fault, Labels, Numbers, Reader, Yes, is_missing
from hush_simulations.scenarios.csv_encoding import read_text
from hush_simulations.scenarios.csv_rules import CsvRules
from hush_simulations.scenarios.csv_table import find_table
from hush_simulations.scenarios.population import MOST_DEVICES, Observed, Value

__all__ = ["kind_of_column", "read_answers", "read_column", "read_columns"]

_SHOWN_LINES = 3  # of each fault
_SHOWN_LETTERS = 20
_AS_FOUND = CsvRules()
_REMEDIES = {
    Fault.DECIMAL_COMMA: "write --decimal , if the comma separates decimals",
    Fault.DECIMAL_POINT: "write --decimal . if the point separates decimals",
    Fault.GROUPS: "write --decimal . or --decimal , for the sign that separates decimals",
    Fault.DATE: "write the number that is meant, as an age in years",
    Fault.SHARE: "write the number alone: whether 5 % is 5 or 0.05 is yours to say",
    Fault.UNIT: "write the number alone, in the unit of the bounds",
    Fault.RANGE: "write one number, or name the categories with --labels",
    Fault.TEXT: "correct those rows, or name the categories with --labels",
    Fault.NO_ANSWER: "write yes, no, true, false, 1 or 0 there, or --yes VALUE for what means yes",
    Fault.NO_LABEL: "labels must be spelled exactly: correct the cells, or add the label",
    Fault.NEARLY: "spell it alike in all cells that mean yes, and otherwise in those that do not",
}
_MISSING_REMEDY = (
    "write --missing drop to leave rows without a value out, or --missing replace to ask those devices too"
)
_REMEDY = "correct those rows, or remove them"


@dataclass(frozen=True, slots=True)
class _Cells:
    """Columns as they are written.

    Args:
        lines: of each client, from 1.
        rows: of each client the cells asked for, stripped; None where the row ends before.
        names: of the columns.
    """

    lines: list[int]
    rows: list[tuple[str | None, ...]]
    names: tuple[str, ...]


def read_column(
    path: Path,
    column: str | None,
    *,
    bits: bool = False,
    labels: Sequence[str] = (),
    other: str | None = None,
    rules: CsvRules = _AS_FOUND,
    reveal: bool = False,
) -> Observed:
    """The values of one column, in the order of the rows.

    Args:
        path: a CSV file.
        column: the name in the header, or the number of a column, from 1, where there is none; may be left out if
            there is only one.
        bits: whether the cells are answers (yes, no, true, false, 1, 0) instead of numbers.
        labels: if any, what the cells are instead: one of these, letter by letter.
        other: the label that every other text stands for, if one does.
        rules: what is known about the file.
        reveal: whether messages may show the content of cells.

    Raises:
        OptionError: no such file or column, two ways of reading it, cells without a value (naming their lines), no
            rows, too many.
    """
    reader: Reader = Labels(labels, other) if labels else Answers() if bits else Numbers(rules.decimal)
    return _observed(path, () if column is None else (column,), reader, rules, reveal=reveal)


def read_answers(
    path: Path, column: str | None, yes: str, *, rules: CsvRules = _AS_FOUND, reveal: bool = False
) -> Observed:
    """1 for each cell that is `yes`, letter by letter, and 0 for any other text.

    Raises:
        OptionError: as `read_column`; or no cell is `yes`.
    """
    data = _observed(path, () if column is None else (column,), Yes(yes), rules, reveal=reveal)
    if 1 not in data.values:
        raise OptionError("--yes", "no cell of that column is this text; write what means yes as the cells spell it")
    return data


def read_columns(path: Path, columns: Sequence[str], *, rules: CsvRules = _AS_FOUND, reveal: bool = False) -> Observed:
    """The numbers of several columns, a vector for each row.

    Raises:
        OptionError: as `read_column`.
    """
    return _observed(path, columns, Numbers(rules.decimal), rules, reveal=reveal, vectors=True)


def kind_of_column(path: Path, column: str | None, *, rules: CsvRules = _AS_FOUND) -> str:
    """What the cells of a column look like: "answers", "text" or "numbers".

    Raises:
        OptionError: no such file or column, or two ways of reading it.
    """
    cells = _cells(path, () if column is None else (column,), Numbers(rules.decimal), rules)
    texts = [text for (text,) in cells.rows if text and not is_missing(text)]
    if texts and all(map(_reads(Answers()), texts)):
        return "answers"
    return "numbers" if not texts or any(map(Numbers().is_cell, texts)) else "text"


def _reads(reader: Reader) -> Callable[[str], bool]:
    def reads(text: str) -> bool:
        try:
            reader.read(text)
        except CellError:
            return False
        return True

    return reads


def _observed(
    path: Path, columns: Sequence[str], reader: Reader, rules: CsvRules, *, reveal: bool, vectors: bool = False
) -> Observed:
    cells = _cells(path, columns, reader, rules)
    rows, faults = _read(cells, reader)
    wrong = [fault for fault in faults if rules.treatment is None or not fault[1].is_missing]
    if wrong:
        where = f"{path}, column {columns[0][:40]!r}" if len(columns) == 1 else str(path)
        raise OptionError("--csv", f"{where}: {_complaint(wrong, len(cells.rows) * len(cells.names), reveal=reveal)}")
    complete = [row for row in rows if None not in row]
    if not complete:
        raise OptionError("--csv", f"no row of {path} has a value there; at least one client needs one")
    missing = len(rows) - len(complete)
    kept = complete if rules.treatment == "drop" else rows
    values: tuple[Value, ...] = tuple(map(_vector, kept)) if vectors else tuple(value for (value,) in kept)
    return Observed(values, ", ".join(cells.names), missing, rules.treatment if missing else None)


def _vector(row: tuple[Value, ...]) -> tuple[float | None, ...]:
    return tuple(value if isinstance(value, float) else None for value in row)


def _cells(path: Path, columns: Sequence[str], reader: Reader, rules: CsvRules) -> _Cells:
    decoded = read_text(path, rules.encoding)
    table = find_table(path, decoded, rules, columns, reader.is_cell)
    listed = list(islice(table.rows(), MOST_DEVICES + 1))
    if len(listed) > MOST_DEVICES:
        raise OptionError("--csv", f"{path} has more than {MOST_DEVICES} rows; take a sample of them")
    if not listed:
        raise OptionError("--csv", f"{path} has a header and no rows; every row is one client, write at least one")
    if not decoded.certain and not all(text.isascii() for text in _texts(table.names, listed)):
        message = f"{path} is not UTF-8 text, and what is asked for has letters that depend on the encoding"
        raise OptionError("--encoding", f"{message}; save it as CSV in UTF-8, or write it, as in --encoding cp1252")
    rows = [tuple(None if text is None else text.strip() for text in row) for _, row in listed]
    return _Cells([line for line, _ in listed], rows, table.names)


def _texts(names: Sequence[str], rows: Sequence[tuple[int, Sequence[str | None]]]) -> Iterator[str]:
    yield from names
    for _, row in rows:
        yield from (text for text in row if text is not None)


_Fault = tuple[int, Fault, str]
"""Of a cell: its line, what is wrong, its content."""


def _read(cells: _Cells, reader: Reader) -> tuple[list[tuple[Value, ...]], list[_Fault]]:
    """The values, None for those that are not there, and what is wrong."""
    columns: list[list[Value]] = []
    faults: list[_Fault] = []
    for texts in zip(*cells.rows, strict=True):
        values: list[Value] = []
        for line, text in zip(cells.lines, texts, strict=True):
            try:
                values.append(_value(reader, text))
            except CellError as error:
                values.append(None)
                faults.append((line, error.fault, text or ""))
        doubts = reader.doubts([text or "" for text in texts])
        faults += [(cells.lines[place], Fault.GROUPS, texts[place] or "") for place in doubts]
        columns.append(values)
    return list(zip(*columns, strict=True)), sorted(faults, key=lambda fault: fault[0])


def _value(reader: Reader, text: str | None) -> Value:
    if text is None:
        raise CellError(Fault.SHORT)
    return reader.read(text)


def _complaint(faults: Sequence[_Fault], cells: int, *, reveal: bool) -> str:
    by_kind: dict[Fault, list[_Fault]] = {}
    for fault in faults:
        by_kind.setdefault(fault[1], []).append(fault)
    kinds = ", ".join(_listed(kind, found, reveal=reveal) for kind, found in by_kind.items())
    remedies = dict.fromkeys(_MISSING_REMEDY if kind.is_missing else _REMEDIES.get(kind, _REMEDY) for kind in by_kind)
    of = "1 cell" if cells == 1 else f"{cells} cells"
    return f"{len(faults)} of {of} cannot be used: {kinds}; {'; '.join(remedies)}"


def _listed(kind: Fault, faults: Sequence[_Fault], *, reveal: bool) -> str:
    first = [_place(fault, reveal=reveal) for fault in faults[:_SHOWN_LINES]]
    more = [f"{len(faults) - _SHOWN_LINES} more"] if len(faults) > _SHOWN_LINES else []
    return f"{len(faults)} {kind} ({', '.join([*first, *more])})"


def _place(fault: _Fault, *, reveal: bool) -> str:
    line, _, text = fault
    shown = text if len(text) <= _SHOWN_LETTERS else text[:_SHOWN_LETTERS] + "…"
    return f"line {line}: {shown!r}" if reveal and text else f"line {line}"
