"""Columns of a person's CSV file: numbers, answers or labels, or which cells give none and what helps.

A point separates decimals; `--decimal ,` reads decimal commas. `--decimal` also admits groups of thousands. A message
names lines, and shows cells only to a person at a terminal.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from hush_common.errors import OptionError
from hush_simulations.scenarios.csv_table import CsvRules, Table, read_table
from hush_simulations.scenarios.population import Observed, Value

_AS_FOUND = CsvRules()


class Fault(StrEnum):
    """What is wrong with a cell, as a message says it."""

    EMPTY = "empty"
    MARKED = "marked as missing"
    SHORT = "in a row that ends before it"
    SIGN = "with a separator of thousands or decimals"
    NO_NUMBER = "not a number"
    NO_ANSWER = "with neither yes nor no"
    NO_LABEL = "with none of the labels"
    NEARLY = "that say almost what means yes"


_MISSING = (Fault.EMPTY, Fault.MARKED, Fault.SHORT)
_DROP = "write --missing drop to leave rows without a value out, or --missing replace to ask those devices too"
_REMEDIES = dict.fromkeys(_MISSING, _DROP) | {
    Fault.SIGN: "write --decimal , or --decimal . for the sign that separates decimals",
    Fault.NO_NUMBER: "write the number alone, without a unit, a date, a range or a per cent sign; name texts that mark "
    "a missing value with --na, or categories with --labels",
    Fault.NO_ANSWER: "write yes, no, true, false, 1 or 0 there, or --yes VALUE for what means yes",
    Fault.NO_LABEL: "labels must be spelled exactly: correct the cells, add the label, or write --fold-case yes if "
    "capitals do not matter",
    Fault.NEARLY: "spell it alike in all cells that mean yes, and otherwise in those that do not; or write --fold-case "
    "yes if capitals do not matter",
}


class CellError(ValueError):
    """A cell that gives no value."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


Reader = Callable[[str], Value]
"""Returns the value of a stripped cell, or raises CellError."""

_MARKS = frozenset(("na", "n/a", "#n/a", "nan", "null", "-"))
_ANSWERS = {"yes": 1, "true": 1, "1": 1, "1.0": 1, "no": 0, "false": 0, "0": 0, "0.0": 0}
_PLAIN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}([.,'\u2019 \u00a0\u202f])[0-9]{3}(?:\1[0-9]{3})*(?:([.,])[0-9]+)?")
_POINT_AND_THREE = re.compile(r"[+\u2212-]?[1-9][0-9]{0,2}\.[0-9]{3}")
_MINUS = "\u2212"  # as some spreadsheets write it


def _is_missing(text: str) -> bool:
    """Return whether a cell marks a missing value."""
    return not text or text.lower() in _MARKS


def _check_present(text: str) -> None:
    if _is_missing(text):
        raise CellError(Fault.MARKED if text else Fault.EMPTY)


def _number_reader(decimal: str | None) -> Callable[[str], float]:
    """Return a reader of finite numbers. `decimal` is the sign before decimals: a point if None.

    If it is given, thousands may be in groups, with another sign between them.
    """
    is_plain, has_commas = _PLAIN.fullmatch, decimal == ","

    def read(text: str) -> float:
        plain = text
        if has_commas:
            plain = "" if "." in text else text.replace(",", ".")
        value = float(plain if is_plain(plain) else without_groups(text))
        if not isfinite(value):
            raise CellError(Fault.NO_NUMBER)
        return value

    def without_groups(text: str) -> str:
        if text.startswith(_MINUS):
            return str(read(f"-{text[1:]}"))
        grouped = _GROUPED.fullmatch(text)
        if grouped and decimal not in (None, grouped[1]) and grouped[2] in (None, decimal):
            return text.replace(grouped[1], "").replace(",", ".")
        _check_present(text)
        raise CellError(Fault.SIGN if grouped or is_plain(text.replace(",", ".", 1)) else Fault.NO_NUMBER)

    return read


def _is_number(text: str) -> bool:
    """Return whether a cell may be a number, or a missing one."""
    for read in (_number_reader("."), _number_reader(",")):
        with suppress(CellError):
            read(text)
            return True
    return _is_missing(text)


def _doubts(texts: Sequence[str | None]) -> list["_Wrong"]:
    """Return cells whose point may separate thousands, unless a point in another cell cannot."""
    if any(text and "." in text and not _POINT_AND_THREE.fullmatch(text) for text in texts):
        return []
    return [_Wrong(row, Fault.SIGN, text) for row, text in enumerate(texts) if text and "." in text]


def _read_answer(text: str) -> int:
    """Return yes as 1 and no as 0, in the ways that programs write them."""
    _check_present(text)
    if text.lower() not in _ANSWERS:
        raise CellError(Fault.NO_ANSWER)
    return _ANSWERS[text.lower()]


def _yes_reader(yes: str, *, fold: bool) -> Reader:
    """Return a reader of one text that means yes; every other means no. `fold` takes capitals for small letters."""

    def read(text: str) -> int:
        if text == yes or (fold and text.casefold() == yes.casefold()):
            return 1
        _check_present(text)
        if _meaning(text) == _meaning(yes):
            raise CellError(Fault.NEARLY)
        return 0

    return cache(read)


def _meaning(text: str) -> str | float:
    """Return what a text says, however it is spelled: letters, spaces and accents, numbers, yes and no."""
    seen = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return _ANSWERS[seen] if seen in _ANSWERS else float(seen) if _PLAIN.fullmatch(seen) else seen


def _label_reader(labels: Sequence[str], other: str | None, *, fold: bool) -> Reader:
    """Return a reader of listed texts, letter by letter; a listed one may look like a missing value.

    `other` is the label of every other text, unless that differs from a label only in capitals. `fold` takes a text
    that differs from a label only in capitals for that label.
    """
    known, alike = frozenset(labels), {label.casefold(): label for label in labels}
    if fold and len(alike) < len(known):
        raise OptionError("--fold-case", "two of the labels differ only in capitals; leave it out")

    def read(text: str) -> str:
        if text in known:
            return text
        if fold and text.casefold() in alike:
            return alike[text.casefold()]
        _check_present(text)
        if other is None or text.casefold() in alike:
            raise CellError(Fault.NO_LABEL)
        return other

    return read


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
    """Return the values of one column, in the order of the rows.

    Args:
        path: a CSV file.
        column: a name, or a number from 1 without a header; None if there is one column.
        bits: whether the cells are answers (yes, no, true, false, 1, 0) instead of numbers.
        labels: if any, the legal cells.
        other: the label of every other text, if there is one.
        rules: what is known about the file.
        reveal: whether messages may show the content of cells.
    """
    if not bits and not labels:
        return read_columns(path, _asked(column), rules=rules, reveal=reveal, vectors=False)
    read, names = (_label_reader(labels, other, fold=rules.folds), labels) if labels else (_read_answer, _ANSWERS)
    alike = {name.casefold() for name in names}
    table = read_table(path, _asked(column), rules, lambda text: text.casefold() in alike or _is_number(text))
    return _observed(path, table, read, rules, reveal=reveal)


def read_answers(
    path: Path, column: str | None, yes: str, *, rules: CsvRules = _AS_FOUND, reveal: bool = False
) -> Observed:
    """Return 1 for each cell that is `yes`, letter by letter, and 0 for any other text."""
    table = read_table(path, _asked(column), rules, lambda _: True)
    data = _observed(path, table, _yes_reader(yes, fold=rules.folds), rules, reveal=reveal)
    if 1 not in data.values:
        raise OptionError("--yes", "no cell of that column is this text; write what means yes as the cells spell it")
    return data


def read_columns(
    path: Path, columns: Sequence[str], *, rules: CsvRules = _AS_FOUND, reveal: bool = False, vectors: bool = True
) -> Observed:
    """Return the numbers of several columns, a vector for each row; with `vectors` false those of one column."""
    table = read_table(path, columns, rules, _is_number)
    doubts = [] if rules.decimal else [one for texts in table.columns for one in _doubts(texts)]
    return _observed(path, table, _number_reader(rules.decimal), rules, doubts, reveal=reveal, vectors=vectors)


def kind_of_column(path: Path, column: str | None, *, rules: CsvRules = _AS_FOUND) -> str:
    """Return what the cells of a column look like: "answers", "text" or "numbers"."""
    texts = set(filter(None, read_table(path, _asked(column), rules, _is_number).columns[0]))
    texts = {text for text in texts if not _is_missing(text)}
    if texts and all(text.lower() in _ANSWERS for text in texts):
        return "answers"
    return "numbers" if not texts or any(map(_is_number, texts)) else "text"


def _asked(column: str | None) -> tuple[str, ...]:
    return () if column is None else (column,)


class _Wrong(NamedTuple):
    """A cell that gives no value."""

    row: int
    fault: Fault
    text: str


def _observed(
    path: Path,
    table: Table,
    read: Reader,
    rules: CsvRules,
    doubts: Sequence[_Wrong] = (),
    *,
    reveal: bool,
    vectors: bool = False,
) -> Observed:
    columns, wrong, absent = list[list[Value]](), [*doubts], set[int]()
    for texts in table.columns:
        values, faults = _values(texts, read, rules.marks)
        columns.append(values)
        absent |= {one.row for one in faults}
        wrong += [one for one in faults if rules.treatment is None or one.fault not in _MISSING]
    if wrong:
        complaint = _complaint(wrong, sum(map(len, columns)), table.lines, reveal=reveal)
        raise OptionError("--csv", f"{path}: {complaint}")
    if len(absent) == len(columns[0]):
        raise OptionError("--csv", f"no row of {path} has a value there; at least one client needs one")
    rows: Sequence[Value] = list(zip(*columns, strict=True)) if vectors else columns[0]
    if absent and rules.treatment == "drop":
        rows = [row for place, row in enumerate(rows) if place not in absent]
    return Observed(tuple(rows), ", ".join(table.names), len(absent), rules.treatment if absent else None)


def _values(texts: Sequence[str | None], read: Reader, marks: frozenset[str]) -> tuple[list[Value], list[_Wrong]]:
    """Return the values of a column, None where a cell gives none, and those cells."""
    values, wrong = list[Value](), list[_Wrong]()
    for row, text in enumerate(texts):
        try:
            values.append(read("" if text is None or text in marks else text))
        except CellError as error:
            values.append(None)
            wrong.append(_Wrong(row, Fault.SHORT if text is None else error.fault, text or ""))
    return values, wrong


_SHOWN_LINES = 3  # of each fault
_SHOWN_LETTERS = 20


def _complaint(wrong: Sequence[_Wrong], count: int, lines: Sequence[int], *, reveal: bool) -> str:
    by_kind: dict[Fault, list[str]] = {}
    for row, fault, text in sorted(wrong):
        shown = text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}…"
        by_kind.setdefault(fault, []).append(f"line {lines[row]}{f': {shown!r}' if reveal and text else ''}")
    kinds = []
    for fault, found in by_kind.items():
        more = [f"{len(found) - _SHOWN_LINES} more"] if len(found) > _SHOWN_LINES else []
        kinds.append(f"{len(found)} {fault} ({', '.join([*found[:_SHOWN_LINES], *more])})")
    remedies = "; ".join(dict.fromkeys(_REMEDIES[fault] for fault in by_kind))
    return f"{len(wrong)} of {count} cell{'s' if count > 1 else ''} cannot be used: {', '.join(kinds)}; {remedies}"
