"""Columns of a person's CSV file: its encoding, delimiter, header and columns; every row becomes one client.

What is certain is detected: the encoding by a byte order mark or as UTF-8 or ASCII, a delimiter or a header if one
reading fits. Else hush asks. No message lists names of columns: in a table without a header they are cells of a client.
A message shows a cell's content only to a person at a terminal.

A number is read if there is one way to: a comma may separate decimals or thousands, and so may a point before three
digits, unless another cell of the column shows which; `--decimal` says it. Percentages, units, ranges and dates have
several readings that no option chooses from: such cells are refused by their kind.
"""

import codecs
import csv
import gzip
import io
import math
import re
import sys
import unicodedata
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from hush_common.errors import OptionError
from hush_common.suggestion import meant
from hush_simulations.scenarios.population import MOST_DEVICES, Observed, Treatment, Value, check_treatment

_MISSING = frozenset(("na", "n/a", "#n/a", "nan", "null", "-"))
_ANSWERS = {"yes": 1, "true": 1, "1": 1, "1.0": 1, "no": 0, "false": 0, "0": 0, "0.0": 0}
_SIMPLE = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?", re.ASCII)
"""Numbers that nearly all files have; they are finite."""
_PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
_POINT_AND_THREE = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}")
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}([.,'\u2019 \u00a0\u202f])[0-9]{3}(?:\1[0-9]{3})*(?:([.,])[0-9]+)?")
_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")
_DATE = re.compile(
    r"[0-9]{1,4}([-/.])[0-9]{1,2}\1[0-9]{1,4}([T ].*)?|[0-9]{1,2}:[0-9]{2}(:[0-9]{2}.*)?|[0-9]{1,4}/[0-9]{1,4}"
)
_SHARE = re.compile(r"[+-]?[0-9][0-9.,]*\s*[%\u2030]")
_UNIT = re.compile(
    r"[+-]?[0-9][0-9.,]*\s*[^\W\d_]+[\u00b2\u00b3]?|[+-]?[0-9][0-9.,]*\s*[$\u00a3\u20ac\u00b0]|[$\u00a3\u20ac]\s*[0-9][0-9.,]*"
)
_RANGE = re.compile(r"[0-9][0-9.,]*\s*[-\u2013]\s*[0-9][0-9.,]*|[<>~\u2264\u2265\u2248]\s*[0-9][0-9.,]*|[0-9]+\+")
_MINUS = "\u2212"
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


class Fault(StrEnum):
    """What is wrong with a cell, as a message says it."""

    EMPTY = "empty"
    MARKED = "marked as missing"
    SHORT = "in a row that ends before it"
    DECIMAL_COMMA = "with a decimal comma"
    DECIMAL_POINT = "with a decimal point"
    GROUPS = "with a separator of thousands or decimals"
    DATE = "with a date, a time or a fraction"
    SHARE = "with a per cent sign"
    UNIT = "with a unit"
    RANGE = "with a range or a limit"
    INFINITE = "infinite"
    TEXT = "with text"
    NO_ANSWER = "with neither yes nor no"
    NO_LABEL = "with none of the labels"
    NEARLY = "that say almost what means yes"

    @property
    def is_missing(self) -> bool:
        """Return whether there is no value, rather than one that cannot be read."""
        return self in (Fault.EMPTY, Fault.MARKED, Fault.SHORT)


_OF_TEXT = (Fault.TEXT, Fault.UNIT, Fault.RANGE)
"""Of cells that name categories as well as numbers: 18-25, 500 ml."""


class CellError(ValueError):
    """A cell that gives no value."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class Reader(ABC):
    """How the cells of a column are read."""

    __slots__ = ()

    @abstractmethod
    def read(self, text: str) -> Value:
        """Return the value of a stripped cell, or raise CellError."""

    def is_cell(self, text: str) -> bool:
        """Return whether a text at the top of a column could be a client's cell instead of a name."""
        return Numbers().is_cell(text)

    def doubts(self, texts: Sequence[str]) -> list[int]:  # noqa: ARG002 - most cells are read in one way
        """Return the positions of cells that can be read, but in a column that can be read in two ways."""
        return []

    def column(self, texts: Sequence[str | None]) -> tuple[list[Value], list[tuple[int, Fault]]]:
        """Return the values of a column, None where a cell gives none, and those places with what is wrong there.

        A text has one meaning wherever it is in a column, and is read once.
        """
        values, faults, known = list[Value](), list[tuple[int, Fault]](), dict[str | None, Value | Fault]()
        for place, text in enumerate(texts):
            found = known.get(text)
            if found is None:
                found = known[text] = self._once(text)
            if isinstance(found, Fault):
                faults.append((place, found))
                found = None
            values.append(found)
        return values, faults

    def _once(self, text: str | None) -> Value | Fault:
        if text is None:
            return Fault.SHORT
        try:
            return self.read(text)
        except CellError as error:
            return error.fault


def is_missing(text: str) -> bool:
    """Return whether a cell marks a missing value."""
    return not text or text.lower() in _MISSING


def _check_present(text: str) -> None:
    if is_missing(text):
        raise CellError(Fault.MARKED if text else Fault.EMPTY)


@dataclass(frozen=True, slots=True)
class Numbers(Reader):
    """Finite numbers; `decimal` is the sign before the decimals, "." or ",", or None if nobody said it."""

    decimal: str | None = None

    def read(self, text: str) -> float:
        _check_present(text)
        text = _with_hyphen(text)
        plain = text.replace(",", ".") if self.decimal == "," and "." not in text else text
        if _PLAIN.fullmatch(plain) and not (self.decimal == "," and "." in text):
            return _finite(plain)
        grouped = _GROUPED.fullmatch(text)
        if (
            self.decimal is None
            or grouped is None
            or grouped[1] == self.decimal
            or grouped[2] not in (None, self.decimal)
        ):
            raise CellError(_fault(text))
        return _finite(text.replace(grouped[1], "").replace(self.decimal, "."))

    def is_cell(self, text: str) -> bool:
        return is_missing(text) or _fault(_with_hyphen(text)) not in _OF_TEXT

    def column(self, texts: Sequence[str | None]) -> tuple[list[Value], list[tuple[int, Fault]]]:
        """As of every reader; numbers that nearly all files have take the short way."""
        values, faults = list[Value](), list[tuple[int, Fault]]()
        is_simple, comma = _SIMPLE.fullmatch, self.decimal == ","
        for place, text in enumerate(texts):
            plain = text
            if comma and text is not None:
                plain = None if "." in text else text.replace(",", ".")
            if plain is not None and is_simple(plain):
                values.append(float(plain))
                continue
            found = self._in_groups(text) or self._once(text)
            if isinstance(found, Fault):
                faults.append((place, found))
                found = None
            values.append(found)
        return values, faults

    def _in_groups(self, text: str | None) -> float | None:
        """Return a number in groups of thousands whose decimal sign is known; None for anything else."""
        grouped = None if self.decimal is None or text is None else _GROUPED.fullmatch(text)
        if text is None or grouped is None or grouped[1] == self.decimal or grouped[2] not in {None, self.decimal}:
            return None
        value = float(text.replace(grouped[1], "").replace(self.decimal or ".", "."))
        return value if math.isfinite(value) else None

    def doubts(self, texts: Sequence[str]) -> list[int]:
        """Return cells with a point before three digits, unless a point elsewhere cannot separate thousands."""
        found: list[int] = []
        for place, text in enumerate(texts if self.decimal is None else ()):
            if "." not in text:
                continue
            if not _POINT_AND_THREE.fullmatch(_with_hyphen(text)):
                return []
            found.append(place)
        return found


class YesNo(Reader):
    """Yes and no, in the ways that programs write them."""

    def read(self, text: str) -> int:
        _check_present(text)
        if text.lower() not in _ANSWERS:
            raise CellError(Fault.NO_ANSWER)
        return _ANSWERS[text.lower()]

    def is_cell(self, text: str) -> bool:
        return text.lower() in _ANSWERS or super().is_cell(text)


@dataclass(frozen=True, slots=True)
class Yes(Reader):
    """One text that means yes; every other means no. `fold` takes capitals for small letters."""

    text: str
    fold: bool = False

    def read(self, text: str) -> int:
        if text == self.text or (self.fold and text.casefold() == self.text.casefold()):
            return 1
        _check_present(text)
        if _meaning(text) == _meaning(self.text):
            raise CellError(Fault.NEARLY)
        return 0

    def is_cell(self, text: str) -> bool:  # noqa: ARG002 - whatever it is
        return True


class Labels(Reader):
    """Texts of a list, letter by letter; one that looks like a missing value is a label if it is listed.

    `other` is the label of every other text, unless that differs from a label only in capitals. `fold` takes a text
    that differs from a label only in capitals for that label.
    """

    __slots__ = ("_alike", "_fold", "_labels", "_other")

    def __init__(self, labels: Sequence[str], other: str | None = None, *, fold: bool = False) -> None:
        self._labels = frozenset(labels)
        self._alike = {label.casefold(): label for label in labels}
        self._other = other
        self._fold = fold
        if fold and len(self._alike) < len(self._labels):
            raise OptionError("--fold-case", "two of the labels differ only in capitals; leave it out")

    def read(self, text: str) -> str:
        if text in self._labels:
            return text
        if self._fold and (label := self._alike.get(text.casefold())) is not None:
            return label
        _check_present(text)
        if self._other is None or text.casefold() in self._alike:
            raise CellError(Fault.NO_LABEL)
        return self._other

    def is_cell(self, text: str) -> bool:
        return text.casefold() in self._alike or super().is_cell(text)


def _meaning(text: str) -> str | float:
    """Return what a text says, however it is spelled: letters, spaces and accents, numbers, yes and no."""
    seen = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    if seen in _ANSWERS:
        return _ANSWERS[seen]
    return float(seen) if _PLAIN.fullmatch(seen) else seen


def _with_hyphen(text: str) -> str:
    """Replace a typographic minus, which some countries' spreadsheets write, by an ASCII hyphen."""
    return text.replace(_MINUS, "-", 1) if text.startswith(_MINUS) else text


def _finite(plain: str) -> float:
    value = float(plain)
    if not math.isfinite(value):
        raise CellError(Fault.INFINITE)
    return value


def _fault(text: str) -> Fault:
    if _PLAIN.fullmatch(text):
        return Fault.DECIMAL_POINT
    for pattern, fault in (
        (_GROUPED, Fault.GROUPS),
        (_COMMA, Fault.DECIMAL_COMMA),
        (_DATE, Fault.DATE),
        (_INFINITE, Fault.INFINITE),
        (_SHARE, Fault.SHARE),
        (_UNIT, Fault.UNIT),
        (_RANGE, Fault.RANGE),
    ):
        if pattern.fullmatch(text):
            return fault
    return Fault.TEXT


MOST_BYTES = 1 << 28
_MARKS = (  # the longer first: the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_SAVED = "save it as CSV in UTF-8, or write its --encoding, as in --encoding cp1252"


class DecodedText(NamedTuple):
    """The text of a file; if `certain` is false, only its ASCII characters are as written."""

    text: str
    certain: bool


def read_text(path: Path, encoding: str | None) -> DecodedText:
    """Return the text of a file, without a byte order mark; `encoding` None detects it."""
    content = _content(path)
    if encoding is None:
        return _decoded(path, content)
    try:
        return DecodedText(content.decode(encoding).removeprefix("\ufeff"), certain=True)
    except UnicodeError:
        raise OptionError("--encoding", f"{path} is not text in {encoding[:40]}; {_SAVED}") from None


STANDARD_INPUT = Path("-")
"""Stands for what another program writes."""

_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"PAR1": "is a Parquet file; give it a name that ends in .parquet",
    b"PK\x03\x04": "is an Excel workbook or a ZIP archive; save the sheet as CSV in UTF-8, or unpack it",
    b"\xd0\xcf\x11\xe0": "is an old Excel workbook; save the sheet as CSV in UTF-8",
    b"BZh": "is compressed by bzip2; unpack it, or compress it by gzip",
    b"\xfd7zXZ": "is compressed by xz; unpack it, or compress it by gzip",
    b"(\xb5/\xfd": "is compressed by zstd; unpack it, or compress it by gzip",
}
"""Files that are no text, by how they begin."""


def _content(path: Path) -> bytes:
    try:
        content = _standard_input() if path == STANDARD_INPUT else _first_bytes(path.open("rb"))
        if content.startswith(_GZIP):
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


def _decoded(path: Path, content: bytes) -> DecodedText:
    marked = next((name for mark, name in _MARKS if content.startswith(mark)), None)
    try:
        text = content.decode(marked or "utf-8")
    except UnicodeError:
        if marked is not None or b"\0" in content:
            raise OptionError("--encoding", f"{path} is not UTF-8 text; {_SAVED}") from None
        return DecodedText(content.decode("latin-1"), certain=False)  # each byte a character; ASCII bytes are their own
    if "\0" in text:
        raise OptionError("--encoding", f"{path} has null characters; if it is UTF-16, write --encoding utf-16-le")
    return DecodedText(text, certain=True)


DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
"""Those that are looked for, by the name that may be written for them."""

_ESCAPED_TAB = "\\t"  # as a person types it in a shell


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
        _check("--header", self.header, ("yes", "no"))
        _check("--decimal", self.decimal, (".", ","))
        _check("--fold-case", self.fold_case, ("yes", "no"))
        check_treatment("--missing", self.missing)
        if self.encoding is not None:
            _check_encoding(self.encoding)

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
    found = DELIMITERS.get(text.lower(), "\t" if text == _ESCAPED_TAB else text)
    if len(found) != 1 or found.isalnum() or found in '".+-\r\n\0\ufeff':
        raise OptionError(
            "--delimiter", f"{text[:40]!r} separates no columns; write {', '.join(DELIMITERS)} or one character"
        )
    return found


def _check(option: str, text: str | None, legal: tuple[str, str]) -> None:
    if text is not None and text not in legal:
        raise OptionError(option, f"{text[:40]!r} is not one of its values; write {option} {' or '.join(legal)}")


def _check_encoding(name: str) -> None:
    try:
        codecs.lookup(name)
        b"ab".decode(name, "ignore")  # which refuses what is known, but no encoding of text
    except (LookupError, ValueError):
        raise OptionError(
            "--encoding", f"{name[:40]!r} is not a known encoding; write for example utf-8, utf-16 or cp1252"
        ) from None


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


_NO_DELIMITER = "\x1f"  # in no file: every line is one cell
_NUMBER_WITH_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_NAMES = {sign: name for name, sign in DELIMITERS.items()}
_SEP = re.compile(r"sep=([^\w\r\n])\r?\n", re.IGNORECASE)
_WRITE = f"write --delimiter {', '.join(DELIMITERS)} or another"


class _Shape(NamedTuple):
    """What a delimiter makes of a text: its first row, the line of the first longer row, and a parse error."""

    first: tuple[str, ...]
    longer: int | None
    error: str

    @property
    def is_table(self) -> bool:
        return self.longer is None and not self.error


@dataclass(frozen=True, slots=True)
class CsvTable:
    """The clients of a file, and where the columns asked for are. Without a header, names are empty."""

    text: str
    delimiter: str
    names: tuple[str, ...]
    places: tuple[int, ...]
    has_header: bool
    skipped: int = 0  # lines before the text

    def columns(self) -> list[list[str | None]]:
        """Return the stripped cells asked for, a list for each column; None where a row ends before.

        Empty lines at the end of the file are not clients.
        """
        if len(self.places) == 1:
            (place,) = self.places
            return [_without_blanks([_cell(row, place) for row in islice(self._rows(), self.has_header, None)])]
        rows = list(islice(self._rows(), self.has_header, None))
        return [_without_blanks([_cell(row, place) for row in rows]) for place in self.places]

    def _rows(self) -> Iterator[list[str]]:
        return csv.reader(io.StringIO(self.text, newline=""), delimiter=self.delimiter, strict=True)

    def lines(self) -> list[int]:
        """Return the line in the file at which each client begins; messages need it."""
        found = [line + self.skipped for line, _ in _rows(self.text, self.delimiter)]
        return found[1:] if self.has_header else found


_BLANK = "\r\nan empty line"
"""Stands for the cell of an empty line."""


def _cell(row: Sequence[str], place: int) -> str | None:
    """Return the stripped cell of a row."""
    if place < len(row):
        return row[place].strip()
    return None if row else _BLANK


def _without_blanks(texts: list[str | None]) -> list[str | None]:
    """Empty lines at the end are no clients; others are empty cells."""
    while texts and texts[-1] is _BLANK:
        texts.pop()
    return ["" if text is _BLANK else text for text in texts] if _BLANK in texts else texts


def find_table(
    path: Path, decoded: DecodedText, rules: CsvRules, columns: Sequence[str], is_cell: Callable[[str], bool]
) -> CsvTable:
    """Find the table by what a person says about it, and by what is certain.

    Columns are names, or numbers from 1 without a header. `is_cell` tells whether the name of a single column could be
    a client's cell.
    """
    sep = _SEP.match(decoded.text)  # Excel's own first line
    if sep is not None:
        decoded = decoded._replace(text=decoded.text[sep.end() :])
    delimiter = rules.delimiter or (sep[1] if sep is not None else _delimiter_of(path, decoded, rules, columns))
    shape = _shape(decoded.text, delimiter)
    if shape.error:
        raise OptionError("--csv", f"{path} is not a CSV file ({shape.error}); save it as CSV in UTF-8")
    if not any(shape.first):
        raise OptionError("--csv", f"{path} is empty, or its first line is; every line after the header is a client")
    if shape.longer is not None:
        line = shape.longer + (sep is not None)
        message = f"line {line} of {path} has more cells than the first line ({len(shape.first)})"
        raise OptionError("--csv", f"{message}; put quotes around cells with a delimiter in them, or {_WRITE}")
    has_header = _has_header(path, rules, columns, shape.first, is_cell)
    names, places = _columns(path, shape.first, columns, has_header=has_header)
    return CsvTable(decoded.text, delimiter, names, places, has_header, skipped=int(sep is not None))


def _columns(
    path: Path, first: Sequence[str], columns: Sequence[str], *, has_header: bool
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if has_header:
        names = tuple(choose_column(first, name, table=str(path), header="first line") for name in (columns or (None,)))
        return names, tuple(map(first.index, names))
    if not columns and len(first) > 1:
        raise OptionError("--column", f"is missing; {path} has {len(first)} columns, write its number, as --column 1")
    places = tuple(_place_of(path, number, len(first)) for number in columns or ("1",))
    return tuple(f"column {place + 1}" if len(first) > 1 else "" for place in places), places


def _place_of(path: Path, number: str, width: int) -> int:
    if not _is_number(number, width):
        message = f"{number[:40]!r} is not a column of {path}, which has {width} and no header"
        raise OptionError("--column", f"{message}; write the number of one, from 1, or leave out --header no")
    return int(number) - 1


def _is_number(text: str, width: int) -> bool:
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


def _delimiter_of(path: Path, decoded: DecodedText, rules: CsvRules, columns: Sequence[str]) -> str:
    """Return the only delimiter that fits; if none does, the one whose complaint helps most."""
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
    """Whether each line may be one cell with a delimiter in it: the first is the name, or all are numbers."""
    if not splits or len(columns) > 1:
        return False
    lines = (line.strip() for line in io.StringIO(text, newline=None))
    first = next(lines)
    if columns and rules.header != "no" and first == columns[0]:
        return True
    numbers = all(_NUMBER_WITH_COMMA.fullmatch(line) for line in chain((first,), lines) if line)
    return rules.header != "yes" and list(columns) in ([], ["1"]) and numbers


def _head(text: str, delimiter: str) -> _Shape:
    try:
        first = next(_rows(text, delimiter), (1, []))[1]
    except csv.Error as error:
        return _Shape((), None, str(error))
    return _Shape(tuple(cell.strip() for cell in first), None, "")


@lru_cache(maxsize=8)
def _shape(text: str, delimiter: str) -> _Shape:
    head = _head(text, delimiter)
    if head.error:
        return head
    width = max(1, len(head.first))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        if max(map(len, reader), default=0) <= width:
            return head
        longer = next((line for line, cells in _rows(text, delimiter) if len(cells) > width), None)
    except csv.Error as error:
        return head._replace(error=str(error))
    return head._replace(longer=longer)


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows, each with the number of its first line; without empty lines at the end."""
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
    Fault.NO_LABEL: "labels must be spelled exactly: correct the cells, add the label, or write --fold-case yes if "
    "capitals do not matter",
    Fault.NEARLY: "spell it alike in all cells that mean yes, and otherwise in those that do not; or write --fold-case "
    "yes if capitals do not matter",
}
_MISSING_REMEDY = (
    "write --missing drop to leave rows without a value out, or --missing replace to ask those devices too"
)
_REMEDY = "correct those rows, or remove them"


@dataclass(frozen=True, slots=True)
class _Cells:
    """Columns as they are written: stripped cells, None where a row ends before."""

    table: CsvTable
    columns: list[list[str | None]]

    @property
    def names(self) -> tuple[str, ...]:
        return self.table.names


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
    numbers: Reader = YesNo() if bits else Numbers(rules.decimal)
    reader = Labels(labels, other, fold=rules.folds) if labels else numbers
    return _observed(path, () if column is None else (column,), reader, rules, reveal=reveal)


def read_answers(
    path: Path, column: str | None, yes: str, *, rules: CsvRules = _AS_FOUND, reveal: bool = False
) -> Observed:
    """Return 1 for each cell that is `yes`, letter by letter, and 0 for any other text."""
    reader = Yes(yes, rules.folds)
    data = _observed(path, () if column is None else (column,), reader, rules, reveal=reveal)
    if 1 not in data.values:
        raise OptionError("--yes", "no cell of that column is this text; write what means yes as the cells spell it")
    return data


def read_columns(path: Path, columns: Sequence[str], *, rules: CsvRules = _AS_FOUND, reveal: bool = False) -> Observed:
    """Return the numbers of several columns, a vector for each row."""
    return _observed(path, columns, Numbers(rules.decimal), rules, reveal=reveal, vectors=True)


def kind_of_column(path: Path, column: str | None, *, rules: CsvRules = _AS_FOUND) -> str:
    """Return what the cells of a column look like: "answers", "text" or "numbers"."""
    cells = _cells(path, () if column is None else (column,), Numbers(rules.decimal), rules)
    texts = [text for text in dict.fromkeys(cells.columns[0]) if text and not is_missing(text)]
    if texts and all(map(_reads(YesNo()), texts)):
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
    found = [reader.column(texts) for texts in cells.columns]
    wrong = [
        (place, fault, number)
        for number, (_, faults) in enumerate(found)
        for place, fault in faults
        if rules.treatment is None or not fault.is_missing
    ]
    for number, texts in enumerate(cells.columns):
        wrong += [(place, Fault.GROUPS, number) for place in reader.doubts([text or "" for text in texts])]
    if wrong:
        where = f"{path}, column {columns[0][:40]!r}" if len(columns) == 1 else str(path)
        count = sum(map(len, cells.columns))
        raise OptionError("--csv", f"{where}: {_complaint(_located(cells, wrong), count, reveal=reveal)}")
    absent = {place for _, faults in found for place, _ in faults}
    count = len(cells.columns[0])
    if len(absent) == count:
        raise OptionError("--csv", f"no row of {path} has a value there; at least one client needs one")
    rows: Sequence[Value] = list(zip(*(values for values, _ in found), strict=True)) if vectors else found[0][0]
    if absent and rules.treatment == "drop":
        rows = [row for place, row in enumerate(rows) if place not in absent]
    return Observed(tuple(rows), ", ".join(cells.names), len(absent), rules.treatment if absent else None)


def _cells(path: Path, columns: Sequence[str], reader: Reader, rules: CsvRules) -> _Cells:
    decoded = read_text(path, rules.encoding)
    try:
        table = find_table(path, decoded, rules, columns, reader.is_cell)
    finally:
        _shape.cache_clear()  # it keeps the text
    found = table.columns()
    if len(found[0]) > MOST_DEVICES:
        raise OptionError("--csv", f"{path} has more than {MOST_DEVICES} rows; take a sample of them")
    if not found[0]:
        raise OptionError("--csv", f"{path} has a header and no rows; every row is one client, write at least one")
    if not decoded.certain and not all(text.isascii() for text in _texts(table.names, found)):
        message = f"{path} is not UTF-8 text, and what is asked for has letters that depend on the encoding"
        raise OptionError("--encoding", f"{message}; save it as CSV in UTF-8, or write it, as in --encoding cp1252")
    if marks := rules.marks:
        found = [["" if text in marks else text for text in texts] for texts in found]
    return _Cells(table, found)


def _texts(names: Sequence[str], columns: Sequence[Sequence[str | None]]) -> Iterator[str]:
    yield from names
    for texts in columns:
        yield from (text for text in texts if text is not None)


_Fault = tuple[int, Fault, str]
"""Of a cell: its line, what is wrong, its content."""


def _located(cells: _Cells, wrong: Sequence[tuple[int, Fault, int]]) -> list[_Fault]:
    """Return the lines and the contents of cells that are known by row and column."""
    lines = cells.table.lines()
    return sorted(
        ((lines[place], fault, cells.columns[number][place] or "") for place, fault, number in wrong),
        key=lambda one: one[0],
    )


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
