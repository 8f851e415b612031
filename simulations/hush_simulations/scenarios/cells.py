"""What a cell of somebody's table says: a value, or what is wrong with it. Only a person at a terminal sees its text.

A number is read where there is one way to: a comma may separate decimals or thousands, and so may a point before three
digits, unless another cell of the column shows which. `--decimal` says it. Per cents, units, ranges and dates have
several readings that no option chooses from: such cells are refused by their kind.
"""

import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hush_simulations.scenarios.population import Value

_MISSING = frozenset(("na", "n/a", "#n/a", "nan", "null", "-"))
_ANSWERS = {"yes": 1, "true": 1, "1": 1, "1.0": 1, "no": 0, "false": 0, "0": 0, "0.0": 0}
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

    def doubts(self, texts: Sequence[str]) -> list[int]:
        """Return cells with a point before three digits, unless a point elsewhere cannot separate thousands."""
        if self.decimal is not None:
            return []
        pointed = [place for place, text in enumerate(texts) if "." in text]
        found = [place for place in pointed if _POINT_AND_THREE.fullmatch(_with_hyphen(texts[place]))]
        return found if len(found) == len(pointed) else []


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
    """One text that means yes; every other means no."""

    text: str

    def read(self, text: str) -> int:
        if text == self.text:
            return 1
        _check_present(text)
        if _meaning(text) == _meaning(self.text):
            raise CellError(Fault.NEARLY)
        return 0

    def is_cell(self, text: str) -> bool:  # noqa: ARG002 - whatever it is
        return True


class Labels(Reader):
    """Texts of a list, letter by letter; one that looks like a missing value is a label if it is listed.

    `other` is the label of every other text, unless that differs from a label only in capitals.
    """

    __slots__ = ("_alike", "_labels", "_other")

    def __init__(self, labels: Sequence[str], other: str | None = None) -> None:
        self._labels = frozenset(labels)
        self._alike = frozenset(label.casefold() for label in labels)
        self._other = other

    def read(self, text: str) -> str:
        if text in self._labels:
            return text
        _check_present(text)
        if self._other is None or text.casefold() in self._alike:
            raise CellError(Fault.NO_LABEL)
        return self._other

    def is_cell(self, text: str) -> bool:
        return text.casefold() in self._alike or super().is_cell(text)


def _meaning(text: str) -> str | float:
    """What a text says, however it is spelled: letters, spaces and accents as they look, numbers, yes and no."""
    seen = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    if seen in _ANSWERS:
        return _ANSWERS[seen]
    return float(seen) if _PLAIN.fullmatch(seen) else seen


def _with_hyphen(text: str) -> str:
    """With the sign of ASCII in place of a typographic minus, which some countries' spreadsheets write."""
    return text.replace(_MINUS, "-", 1) if text.startswith(_MINUS) else text


def _finite(plain: str) -> float:
    value = float(plain)
    if not math.isfinite(value):
        raise CellError(Fault.INFINITE)
    return value


def _fault(text: str) -> Fault:
    """Why a text that is not missing is no number."""
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
