"""A person's CSV file as a table of texts; every row is one client.

A byte order mark names the encoding; without one it is UTF-8. The delimiter is the only one in the first line. Where
two readings fit, hush asks for the option that decides. No message lists names of columns: in a table without a header
those are cells of a client.
"""

import codecs
import csv
import gzip
import io
import re
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from hush_common.errors import OptionError
from hush_common.suggestion import meant
from hush_simulations.scenarios.population import MOST_DEVICES, Treatment, check_treatment

MOST_BYTES = 1 << 28
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
"""Signs that are recognized as delimiters, by the name that may be written for them."""

_WRITE = f"write --delimiter {', '.join(DELIMITERS)} or another"
_NONE = "\x1f"  # a delimiter that is in no file: every line is one cell


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRules:
    """What a person says about a file; None if unknown.

    `delimiter` is one character or a name in `DELIMITERS`, `header` "yes" or "no", `decimal` "." or ",", and `missing`
    says what happens to rows without a value, `na` which texts mark one, besides the usual ones, with commas between.
    `fold_case` "yes" takes capitals for small letters, in labels and in what means yes.
    """

    delimiter: str | None = None
    encoding: str | None = None
    header: str | None = None
    decimal: str | None = None
    missing: str | None = None
    na: str | None = None
    fold_case: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _delimiter(self.delimiter))
        for option, legal in (("header", ("yes", "no")), ("decimal", (".", ",")), ("fold_case", ("yes", "no"))):
            if (text := getattr(self, option)) not in (None, *legal):
                name = f"--{option.replace('_', '-')}"
                raise OptionError(name, f"{text[:40]!r} is not one of its values; write {name} {' or '.join(legal)}")
        check_treatment("--missing", self.missing)
        try:
            b"ab".decode(self.encoding or "utf-8", "ignore")  # refuses also what is known, but no encoding of text
        except (LookupError, ValueError):
            message = f"{(self.encoding or '')[:40]!r} is not a known encoding"
            raise OptionError("--encoding", f"{message}; write for example utf-8, utf-16 or cp1252") from None

    @property
    def folds(self) -> bool:
        """Whether capitals do not matter."""
        return self.fold_case == "yes"

    @property
    def marks(self) -> frozenset[str]:
        """The texts that mark a missing value, besides the usual ones."""
        return frozenset(text.strip() for text in (self.na or "").split(",") if text.strip())

    @property
    def treatment(self) -> Treatment | None:
        """What happens to rows without a value."""
        return check_treatment("--missing", self.missing)


def _delimiter(text: str) -> str:
    found = DELIMITERS.get(text.lower(), "\t" if text == "\\t" else text)  # \t as a person types it in a shell
    if len(found) != 1 or found.isalnum() or found in '".+-\r\n\0\ufeff':
        message = f"{text[:40]!r} separates no columns; write {', '.join(DELIMITERS)} or one character"
        raise OptionError("--delimiter", message)
    return found


_OTHERS = {
    b"PAR1": "is a Parquet file; give it a name that ends in .parquet",
    b"PK\x03\x04": "is an Excel workbook or a ZIP archive; save the sheet as CSV in UTF-8, or unpack it",
    b"\xd0\xcf\x11\xe0": "is an old Excel workbook; save the sheet as CSV in UTF-8",
} | dict.fromkeys((b"BZh", b"\xfd7zXZ", b"(\xb5/\xfd"), "is compressed by bzip2, xz or zstd; unpack it, or use gzip")
"""Files that are no text, by how they begin."""

STANDARD_INPUT = Path("-")
"""Stands for what another program writes."""


def _text(path: Path, encoding: str | None) -> str:
    """Return the text of a file, without a byte order mark; `encoding` None is that of its mark, or UTF-8."""
    content = _content(path)
    found = encoding or ("utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8")
    try:
        text = content.decode(found).removeprefix("\ufeff")
    except UnicodeError:
        message = f"{path} is not {found[:40].upper()} text; save it as CSV in UTF-8, or write its --encoding"
        raise OptionError("--encoding", f"{message}, as in --encoding cp1252 or --encoding utf-16") from None
    if "\0" in text and encoding is None:
        raise OptionError("--encoding", f"{path} has null characters; if it is UTF-16, write --encoding utf-16-le")
    return text


def _content(path: Path) -> bytes:
    try:
        content = _standard_input() if path == STANDARD_INPUT else _first_bytes(path.open("rb"))
        if content.startswith(b"\x1f\x8b"):
            content = _first_bytes(gzip.GzipFile(fileobj=io.BytesIO(content)))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise OptionError("--csv", f"{path} is compressed by gzip, and damaged ({error}); compress it again") from None
    except OSError as error:
        raise OptionError("--csv", f"{path} cannot be read ({error.strerror}); name a CSV file") from error
    if len(content) > MOST_BYTES:
        raise OptionError("--csv", f"{path} has more than {MOST_BYTES >> 20} MiB; keep the column that is asked for")
    for begin, words in _OTHERS.items():
        if content.startswith(begin):
            raise OptionError("--csv", f"{path} {words}")
    return content


def _first_bytes(file: BinaryIO | gzip.GzipFile) -> bytes:
    with file:
        return file.read(MOST_BYTES + 1)


@cache
def _standard_input() -> bytes:
    """Return what another program writes. It can be read once, and hush may look at it twice."""
    return sys.stdin.buffer.read(MOST_BYTES + 1)


def choose_column(
    names: Sequence[str], column: str | None, *, table: str, header: str, option: str = "--column"
) -> str:
    """Return the column that is meant; None is legal if there is one. `table` and `header` are for messages."""
    if column is None and len(names) == 1:
        return names[0]
    if column is None:
        raise OptionError(option, f"is missing; the {header} of {table} names {len(names)}, write one of them")
    if column not in names:
        hint = meant(column, names) or f"; write one of the names in its {header}"
        raise OptionError(option, f"{column[:40]!r} is not a column of {table}{hint}")
    if names.count(column) > 1:
        raise OptionError(option, f"{column[:40]!r} appears {names.count(column)} times in {table}; rename one")
    return column


class Table(NamedTuple):
    """The columns asked for: names, stripped cells (None where a row ends before), and the line of each row."""

    names: tuple[str, ...]
    columns: list[list[str | None]]
    lines: Sequence[int]


def read_table(path: Path, columns: Sequence[str], rules: CsvRules, is_cell: Callable[[str], bool]) -> Table:
    """Read the columns of a file, by their names, or by their numbers from 1 in a table without a header.

    `is_cell` returns whether the name of a single column could be a client's cell.
    """
    text = _text(path, rules.encoding)
    sep = re.match(r"sep=([^\w\r\n])\r?\n", text, re.IGNORECASE)  # Excel's own first line
    text = text[sep.end() :] if sep else text
    sign = rules.delimiter or (sep[1] if sep else _delimiter_of(path, text, rules, columns))
    rows = _rows(path, text, sign, 2 if sep else 1)
    top = next(rows, (1, []))
    first = [cell.strip() for cell in top[1]]
    if not any(first):
        raise OptionError("--csv", f"{path} is empty, or its first line is; every line after the header is a client")
    if _has_header(path, rules, columns, first, is_cell):
        names = tuple(choose_column(first, name, table=str(path), header="first line") for name in columns or (None,))
        places = tuple(map(first.index, names))
    else:
        places = _places(path, columns, len(first))
        names = tuple(f"column {place + 1}" if len(first) > 1 else "" for place in places)
        rows = chain([top], rows)
    return Table(names, *_cells(path, rows, places, len(first)))


def _cells(
    path: Path, rows: Iterator[tuple[int, list[str]]], places: Sequence[int], width: int
) -> tuple[list[list[str | None]], Sequence[int]]:
    """Return the stripped cells of each column, and the lines. Empty lines at the end are not clients."""
    lines, columns, blank = array("Q"), [list[str | None]() for _ in places], 0
    targets = [(column.append, place) for column, place in zip(columns, places, strict=True)]
    for line, row in islice(rows, MOST_DEVICES + 1):
        lines.append(line)
        size = len(row)
        if size > width and any(map(str.strip, row[width:])):
            message = f"line {line} of {path} has more cells than the first line ({width})"
            raise OptionError("--csv", f"{message}; put quotes around cells with a delimiter in them, or {_WRITE}")
        for add, place in targets:
            add(row[place].strip() if place < size else None if row else "")
        blank = 0 if row else blank + 1
    if len(lines) > MOST_DEVICES:
        raise OptionError("--csv", f"{path} has more than {MOST_DEVICES} rows; take a sample of them")
    if blank == len(lines):
        raise OptionError("--csv", f"{path} has a header and no rows; every row is one client, write at least one")
    return [column[: len(lines) - blank] for column in columns], lines


def _rows(path: Path, text: str, delimiter: str, line: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows, each with the number of its first line; `line` is that of the first row."""
    reader, before = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), line
    try:
        for row in reader:
            yield line, row
            line = before + reader.line_num
    except csv.Error as error:
        message = f"line {line} of {path} is not CSV ({error})"
        raise OptionError("--csv", f"{message}; write a quote inside quotes twice, or save it as CSV again") from None


def _places(path: Path, columns: Sequence[str], width: int) -> tuple[int, ...]:
    if not columns and width > 1:
        raise OptionError("--column", f"is missing; {path} has {width} columns, write its number, as --column 1")
    for text in columns:
        if not _is_place(text, width):
            message = f"{text[:40]!r} is not a column of {path}, which has {width} and no header"
            raise OptionError("--column", f"{message}; write the number of one, from 1, or leave out --header no")
    return tuple(int(text) - 1 for text in columns or ("1",))


def _is_place(text: str, width: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(width)) and 1 <= int(text) <= width


def _has_header(
    path: Path, rules: CsvRules, columns: Sequence[str], first: Sequence[str], is_cell: Callable[[str], bool]
) -> bool:
    if rules.header is not None:
        return rules.header == "yes"
    if columns and all(_is_place(name, len(first)) for name in columns):
        has_names = all(name in first for name in columns)
        doubt = "could name that column" if has_names else "does not name that column"
    elif not columns and len(first) == 1 and is_cell(first[0]):
        doubt = "could be the name of its column"
    else:
        return True
    message = f"the first line of {path} {doubt}, and could be a client"
    raise OptionError("--header", f"{message}; write --header yes or --header no")


_HEAD = 1 << 20  # characters of a file that have its first line


def _delimiter_of(path: Path, text: str, rules: CsvRules, columns: Sequence[str]) -> str:
    """Return the only delimiter with which the first line has the columns asked for, or the only one in it."""
    heads = {sign: _head(text[:_HEAD], sign) for sign in (*DELIMITERS.values(), _NONE)}
    if columns and rules.header != "no":
        named = {tuple(head): sign for sign, head in heads.items() if all(name in head for name in columns)}
        if len(named) == 1:
            return next(iter(named.values()))
    several = {name: sign for name, sign in DELIMITERS.items() if len(heads[sign]) > 1}
    if len(several) > 1:
        message = f"the columns of {path} could be separated by {' or '.join(several)}"
        raise OptionError("--delimiter", f"{message}; {_WRITE}")
    if list(several) == ["comma"] and rules.header != "yes" and tuple(columns) in ((), ("1",)) and _has_commas(text):
        message = f"a comma could separate the columns of {path}, or the decimals of one column"
        raise OptionError("--delimiter", f"{message}; write --delimiter comma, or --delimiter semicolon for decimals")
    return next(iter(several.values()), _NONE)


def _head(text: str, delimiter: str) -> list[str]:
    try:
        first = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
    return [cell.strip() for cell in first]


def _has_commas(text: str) -> bool:
    """Return whether every line is a number with a comma in it."""
    return all(re.fullmatch(r"[+-]?[0-9]+,[0-9]+", line.strip()) for line in text.splitlines() if line.strip())
