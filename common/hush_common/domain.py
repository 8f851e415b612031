"""What a task asks for: domains, and how a value becomes an index, exactly, before any random draw.

Whatever a person's value is, the mechanism sees an integer inside the domain. Privacy never depends on how the value
was rounded, because the *index* is bounded (any two indices are at most `steps` apart).

A value never decides whether a device answers, so nothing here raises because of one. Three results are possible:

- `"used"`: the value itself, rounded to the grid;
- `"moved"`: a number beyond a bound (infinity included) goes to that bound, an unknown label to the task's `other`;
- `"replaced"`: there is no usable value (None, NaN, an unknown label, a conversion that raises). The index is then
  drawn uniformly over the domain, and goes through the mechanism like any other. The law of such a report is a mixture
  of the laws of the legal values, so every ratio of probabilities stays at most e^epsilon.

A wrong *type* (text instead of a number) is a mistake of the program: `TypeError`, from the type alone. None and NaN
are legal where a value is missing.
"""

import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import isfinite, isnan, nan
from numbers import Rational, Real
from typing import ClassVar, Literal, Self, cast

from hush_common.errors import TaskError
from hush_common.formatting import exact, typed
from hush_common.rng import Rng, SpareRng
from hush_common.suggestion import meant
from hush_common.untrusted import Fields, is_printable, text


class ValueGrid:
    """The points lower + k·(upper - lower)/steps, k = 0 to `steps`.

    Both bounds are binary fractions. Over a common denominator they are integers, computed once, and a number n/u lies
    at (n·unit - low·u)·steps / (span·u) steps: one division with a remainder, which says the point and on which side.
    How long that takes grows with the digits of n and u: a number that is tiny next to its domain, such as 1e-300,
    takes longer than one of its size, and one beyond a bound saves the division.

    Args:
        lower: finite.
        upper: finite, above `lower`.
        steps: at least 1.
    """

    __slots__ = ("_low", "_span", "_steps", "_unit")

    def __init__(self, lower: float, upper: float, steps: int) -> None:
        (low, low_unit), (high, high_unit) = lower.as_integer_ratio(), upper.as_integer_ratio()
        self._unit = max(low_unit, high_unit)  # powers of two: the larger is a multiple of the other
        self._low = low * (self._unit // low_unit)
        self._span = high * (self._unit // high_unit) - self._low
        self._steps = steps

    def index(self, value: object) -> tuple[int | None, bool]:
        """The point next to a real number, ties to the even one, and whether it was moved; (None, False) for NaN.

        Exact and bounded: a Decimal is taken as the nearest binary64, so that no exponent is ever expanded, and the
        work on any other number is linear in its digits.
        """
        try:
            found = value.as_integer_ratio() if type(value) is float and isfinite(value) else _ratio(value)
        except BaseException:  # noqa: BLE001 - whatever the methods of a value raise: it must not decide
            return None, False
        if isinstance(found, float):  # NaN or infinite
            return (None, False) if isnan(found) else (self._steps if found > 0 else 0, True)
        number, unit = found
        above, whole = number * self._unit - self._low * unit, self._span * unit
        if above < 0:
            return 0, True
        if above > whole:
            return self._steps, True
        index, rest = divmod(above * self._steps, whole)
        rest += rest
        return index + (rest > whole or (rest == whole and index & 1)), False

    def number(self, index: int) -> float:
        """Return the float nearest to a point of the grid or beyond it; OverflowError beyond all floats."""
        return (self._low * self._steps + self._span * index) / (self._unit * self._steps)


def _ratio(value: object) -> tuple[int, int] | float:
    """Return an exact fraction with a positive denominator, or a float that is NaN or infinite."""
    kind = type(value)
    if issubclass(kind, int):
        return int.__int__(value), 1  # type: ignore[arg-type]  # of an int
    if issubclass(kind, Decimal):
        decimal = Decimal(value)  # type: ignore[arg-type]  # of a Decimal
        number = nan if decimal.is_nan() else float(decimal)
    elif issubclass(kind, Rational):
        numerator, denominator = int(value.numerator), int(value.denominator)  # type: ignore[attr-defined]
        if denominator == 0:
            return nan
        return (-numerator, -denominator) if denominator < 0 else (numerator, denominator)
    else:
        number = float(value)  # type: ignore[arg-type]  # a Real has one
    return number.as_integer_ratio() if isfinite(number) else number


Coercion = Literal["used", "moved", "replaced"]


@dataclass(frozen=True, slots=True)
class ParsedValue:
    """A value as a domain reads it. It holds the value's index: no text made of it shows that."""

    #: An index for each number that is asked for (one, but for vectors); None where nothing usable was given.
    parts: tuple[int | None, ...] = field(repr=False)
    moved: bool = field(default=False, repr=False)  #: whether a part had to be moved into the domain

    @property
    def coercion(self) -> Coercion:
        if None in self.parts:
            return "replaced"
        return "moved" if self.moved else "used"

    def filled(self, sizes: Sequence[int], rng: Rng) -> tuple[int, ...]:
        """The parts, with a uniform index below its size for each that is missing, drawn in their order.

        An index is drawn for a part that is present as well, so that the time does not show which are missing. It comes
        from the operating system and not from `rng`, whose draws are those of the test vectors.
        """
        return tuple([_filled(part, size, rng) for part, size in zip(self.parts, sizes, strict=True)])


def _filled(part: int | None, size: int, rng: Rng) -> int:
    source = rng if part is None else _SPARE
    drawn = source.randbelow(size)
    return drawn if part is None else part


@dataclass(frozen=True, slots=True)
class Index:
    """A value as the mechanism sees it: an integer; of a vector, one for each coordinate."""

    index: int | tuple[int, ...]

    @property
    def scalar(self) -> int:
        """The index as one integer; a vector has more than one."""
        if isinstance(self.index, tuple):
            raise TypeError("the index of a vector is not one integer")
        return self.index


@dataclass(frozen=True, slots=True)
class DomainPart:
    """One number that an estimate of a domain has: the number itself, the share of yes, of a label, or a coordinate."""

    name: str = ""  #: of the label or the coordinate; empty for a number and a bit
    lower: float = 0.0  #: the smallest value that the mean can have
    upper: float = 1.0  #: the largest
    unit: str = ""  #: of the mean; may be empty
    imputation_reach: float = 0.5  #: how far a mean moves at most if nobody has a value, in the unit

    @property
    def axis(self) -> tuple[float, float]:
        """The smallest and the largest value that the mean can have."""
        return self.lower, self.upper


class Readable(ABC):
    """What all domains have; `hush_common.domain` says what each method is for."""

    __slots__ = ()

    kind: ClassVar[str]
    """Its name in a task."""

    in_words: ClassVar[str]
    """What one value is, with its article."""

    is_share: ClassVar[bool] = False
    """Whether the parts of an estimate are shares, shown in per cent."""

    parts_field: ClassVar[str] = ""
    """The field of a result document with the parts; empty where the one part is the document itself."""

    @property
    def sensitivity(self) -> int:
        """By how much one person changes n times the parts of an estimate, added up, at most: in ranges of a part."""
        return 1

    @classmethod
    @abstractmethod
    def of_size(cls, size: int, lower: float = 0.0, upper: float = 1.0, unit: str = "") -> Self:
        """A domain of `size` parts, which are named by their places; a number and a bit have one, shares no bounds."""

    @classmethod
    @abstractmethod
    def from_fields(cls, fields: Fields) -> Self:
        """Read a domain from the fields of a task; raise TaskError if one is missing or invalid."""

    @abstractmethod
    def document(self) -> dict[str, object]:
        """The fields of a task, as `from_fields` reads them."""

    @property
    @abstractmethod
    def question(self) -> str:
        """What a task asks for, in words."""

    @property
    @abstractmethod
    def estimand(self) -> str:
        """What is estimated, in words, without bounds."""

    @property
    @abstractmethod
    def typing_hint(self) -> str:
        """What is wrong with a text that `parse` cannot use, and what to write."""

    @property
    @abstractmethod
    def extremes(self) -> tuple[tuple[str, object], tuple[str, object]]:
        """Two values as different as can be, each with its words."""

    @abstractmethod
    def parse(self, text: str) -> float | bool | str | list[float | None] | None:
        """Parse a value as a person types it: a number, yes or no, a label, or numbers separated by commas.

        It never fails: invalid text is None, which a device answers with a random value.
        """

    @property
    @abstractmethod
    def parts(self) -> tuple[DomainPart, ...]:
        """The numbers that an estimate has, in the order of the task."""

    @property
    def numbers(self) -> "tuple[NumberDomain, ...]":
        """The bounded numbers that a value consists of; empty where an estimate is of shares."""
        return ()

    @property
    def value_names(self) -> tuple[str, ...]:
        """The names of the numbers in a value; empty where a value is one thing."""
        return ()

    @property
    def step(self) -> Fraction | None:
        """Width of one grid step, in the unit of the domain, exactly; None where a value is not one number."""
        return None

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """How many indices each number that is asked for can have."""

    @abstractmethod
    def read(self, value: object, *, strict: bool = True) -> ParsedValue:
        """What the domain makes of a value.

        Args:
            value: the private value; None and NaN stand for a missing one.
            strict: whether a wrong type is a mistake; else it is a missing value.

        Raises:
            TypeError: the value is of a type that this domain never takes, and `strict`.
        """

    @property
    def nothing(self) -> ParsedValue:
        """The result for a missing value."""
        return ParsedValue((None,) * len(self.sizes))

    def check(self, value: object) -> Coercion:
        """Return `"used"`, `"moved"` or `"replaced"`, as it would be for a value; TypeError as `read`."""
        return self.read(value).coercion

    def complete(self, reading: ParsedValue, rng: Rng) -> Index:
        """Return the index of a reading: uniform over the domain where it is missing, with the same work elsewhere."""
        return self._index(reading.filled(self.sizes, rng))

    def index(self, value: object) -> Index:
        """The index of a usable value, for enumerations and audits.

        Raises:
            TypeError: it is of a type that this domain never takes.
            ValueError: the value is not usable.
        """
        reading = self.read(value)
        if None in reading.parts:
            raise ValueError("the domain has no index for this value; a device would draw one")
        return self._index(cast("tuple[int, ...]", reading.parts))

    def _index(self, parts: tuple[int, ...]) -> Index:
        (part,) = parts
        return Index(part)

    def _missing(self, value: object, wanted: str, *, strict: bool) -> ParsedValue:
        """Return a missing value; if `strict`, raise a TypeError that names only the type, unless it is None or NaN."""
        nan = is_real(value) and _UNIT.index(value)[0] is None
        if strict and value is not None and not nan:
            raise TypeError(f"the value is of type {type(value).__name__}, not {wanted}")
        return self.nothing


_SPARE = SpareRng()
_UNIT = ValueGrid(0.0, 1.0, 1)


def plain(value: object) -> object:
    """Return what numpy and pandas wrap, as a Python value; the type is found by name, so that neither is needed."""
    kind = type(value)
    try:
        package = kind.__module__.partition(".")[0]
        if package == "pandas" and kind.__name__ in ("NAType", "NaTType"):
            return None
        return value.tolist() if package == "numpy" and hasattr(kind, "tolist") else value  # type: ignore[attr-defined]
    except BaseException:  # noqa: BLE001 - as above
        return value


def is_real(value: object) -> bool:
    """Whether its type is of real numbers; bool does not count."""
    return issubclass(type(value), Real | Decimal) and type(value) is not bool


def is_table(value: object) -> bool:
    """Whether it is of a type that holds a number by its place or by its name."""
    return issubclass(type(value), Sequence | Mapping) and not issubclass(type(value), str | bytes | bytearray)


_LONGEST_NUMBER = 100
_NUMBER = re.compile(r"[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[iI][nN][fF]([iI][nN][iI][tT][yY])?)")
_BITS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_LISTED = 6


def _parse_number(text: str) -> float | None:
    """Return the nearest binary64, infinite beyond all of them, as docs/wire.md defines it for text."""
    return float(text) if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text) else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


MOST_LABELS = 1024
LABEL_LIMIT = 100
UNIT_LIMIT = 40
_LARGEST = sys.float_info.max
_OUTSIDE = "clamp"  # the only legal way with values outside the bounds
GRID_STEPS = 1 << 20
"""Steps of the grid of a number: rounding to it moves a value by at most (upper - lower) / 2^21."""


def _read_bounds(fields: Fields) -> tuple[float, float, str]:
    bounds = fields.number("lower"), fields.number("upper"), fields.text("unit", "")
    outside = fields.text("outside", _OUTSIDE)
    if outside != _OUTSIDE:
        raise TaskError(
            fields.path("outside"),
            f"{outside[:40]!r} is not '{_OUTSIDE}': a device that is silent about some values reveals which it "
            "has; drop it, and values outside are moved to the nearer bound",
        )
    return bounds


@dataclass(frozen=True)
class NumberDomain(Readable):
    """A number in [lower, upper], rounded to one of `steps` + 1 grid points.

    Raises:
        TaskError: bounds that are not finite, not in order, or too far apart; a unit that is not one short line.
    """

    kind = "number"
    in_words = "a number"

    lower: float  #: smallest legal value, finite
    #: Largest legal value, finite, above `lower`, with a finite difference. The bounds must come from public knowledge,
    #: never from data; a value outside is moved to the nearer one.
    upper: float
    unit: str = ""  #: what the numbers count (`"cm"`); may be empty
    steps: int = GRID_STEPS  #: grid steps; `GRID_STEPS` in every published task, fewer in an enumeration

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            bound = getattr(self, name)
            if isinstance(bound, bool) or not isinstance(bound, int | float):
                raise TaskError(
                    f"domain.{name}", f"{str(bound)[:40]!r} is not a number; write the bound of a legal value"
                )
            if not -_LARGEST <= bound <= _LARGEST:
                shown = bound if isinstance(bound, float) else "an integer beyond all floats"
                raise TaskError(f"domain.{name}", f"{shown} is not a finite number; write the bound of a legal value")
            object.__setattr__(self, name, float(bound))
        if not _is_line(self.unit, UNIT_LIMIT):
            raise TaskError(
                "domain.unit", f"{str(self.unit)[:40]!r} is not a single line of at most {UNIT_LIMIT} characters"
            )
        if type(self.steps) is not int or not 1 <= self.steps <= GRID_STEPS:
            raise TaskError("domain.steps", f"{self.steps!r} is not an integer from 1 to {GRID_STEPS}")
        if not self.lower < self.upper:
            raise TaskError("domain.lower", f"{self.lower} is not below upper = {self.upper}; swap or widen the bounds")
        if not math.isfinite(self.upper - self.lower):
            raise TaskError("domain.upper", f"the range {self.lower} to {self.upper} overflows; use a larger unit")

    @classmethod
    def of_size(cls, _: int, lower: float = 0.0, upper: float = 1.0, unit: str = "") -> Self:
        return cls(lower, upper, unit)

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(*_read_bounds(fields))

    def document(self) -> dict[str, object]:
        document: dict[str, object] = {"kind": self.kind, "lower": self.lower, "upper": self.upper}
        return document | {"outside": _OUTSIDE} | ({"unit": self.unit} if self.unit else {})

    @property
    def question(self) -> str:
        bounds = f"{exact(self.lower)} to {exact(self.upper)} {self.unit}".rstrip()
        return f"a number from {bounds}; outside values are moved to the nearer bound"

    @property
    def estimand(self) -> str:
        return "the mean of a number"

    @property
    def typing_hint(self) -> str:
        bounds = f"{typed(self.lower)} to {typed(self.upper)} {self.unit}".rstrip()
        return f"it is not a number; write one from {bounds}"

    @property
    def extremes(self) -> tuple[tuple[str, object], tuple[str, object]]:
        lower, upper = ((f"{exact(bound)} {self.unit}".rstrip(), bound) for bound in (self.lower, self.upper))
        return lower, upper

    def parse(self, text: str) -> float | None:
        return _parse_number(text)

    @property
    def numbers(self) -> "tuple[NumberDomain, ...]":
        return (self,)

    @cached_property
    def step(self) -> Fraction:
        return (Fraction(self.upper) - Fraction(self.lower)) / self.steps

    @cached_property
    def parts(self) -> tuple[DomainPart, ...]:
        return (self.part_named(""),)

    def part_named(self, name: str) -> DomainPart:
        """Return the one part, under this name."""
        return DomainPart(name, self.lower, self.upper, self.unit, self.upper / 2 - self.lower / 2)

    @cached_property
    def _grid(self) -> ValueGrid:
        return ValueGrid(self.lower, self.upper, self.steps)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.steps + 1,)

    def read(self, value: object, *, strict: bool = True) -> ParsedValue:
        """The grid index, in [0, steps], of an int, float, Decimal, Fraction, or any other real number."""
        if type(value) is not float:
            value = plain(value)
            if not is_real(value):
                return self._missing(value, "a number; pass an int, float, Decimal or Fraction", strict=strict)
        index, moved = self._grid.index(value)
        return ParsedValue((index,), moved)

    def value_of(self, index: int | Fraction) -> Fraction:
        """Return the number at grid position `index`, exactly; not clipped, so that estimates stay unbiased."""
        return Fraction(self.lower) + index * self.step

    def number_at(self, index: int) -> float:
        """Return the float nearest to `value_of(index)`; OverflowError beyond all floats."""
        return self._grid.number(index)


@dataclass(frozen=True, slots=True)
class BitDomain(Readable):
    """Yes or no: `True`, `False`, 1 or 0."""

    kind = "bit"
    in_words = "a bit"
    is_share = True

    @classmethod
    def of_size(cls, *_: object) -> Self:
        return cls()

    @classmethod
    def from_fields(cls, _: Fields) -> Self:
        return cls()

    def document(self) -> dict[str, object]:
        return {"kind": self.kind}

    @property
    def question(self) -> str:
        return "yes or no"

    @property
    def estimand(self) -> str:
        return "the share of yes"

    @property
    def typing_hint(self) -> str:
        return "it is neither yes nor no; write yes, no, true, false, 1 or 0"

    @property
    def extremes(self) -> tuple[tuple[str, object], tuple[str, object]]:
        return ("no", 0), ("yes", 1)

    def parse(self, text: str) -> bool | None:
        return _BITS.get(text.lower())

    @property
    def parts(self) -> tuple[DomainPart, ...]:
        return (DomainPart(),)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (2,)

    def read(self, value: object, *, strict: bool = True) -> ParsedValue:
        """0 or 1; any other integer is not usable."""
        value = plain(value)
        if not issubclass(type(value), int):
            return self._missing(value, "yes or no; pass True, False, 1 or 0", strict=strict)
        bit = int.__int__(value)  # type: ignore[arg-type]  # of an int
        return ParsedValue((bit if bit in (0, 1) else None,))


@dataclass(frozen=True)
class CategoryDomain(Readable):
    """One of k labels, 2 ≤ k ≤ 1024.

    Raises:
        TaskError: too few or too many labels, a repeated, empty or unprintable one, or `other` is not one of them.
    """

    kind = "category"
    in_words = "a category"
    is_share = True
    parts_field = "categories"

    labels: tuple[str, ...]  #: distinct, printable, not empty; the index of a label is its place
    other: str | None = None  #: the label that represents every other text; without it, such a text is not usable

    def __post_init__(self) -> None:
        if not _is_tuple_of(str, self.labels):
            raise TaskError("domain.labels", "are not a tuple of strings; write each label in quotes")
        if not 2 <= len(self.labels) <= MOST_LABELS:  # noqa: PLR2004 - one category is not a question
            raise TaskError("domain.labels", f"{len(self.labels)} labels; a category has 2 to {MOST_LABELS}")
        for place, label in enumerate(self.labels):
            if not _is_line(label, LABEL_LIMIT) or not label.strip():
                raise TaskError(
                    "domain.labels",
                    f"label {place + 1}, {label[:40]!r}, is not a single line of 1 to {LABEL_LIMIT} characters",
                )
        if len(self._places) < len(self.labels):
            twice = next(label for place, label in enumerate(self.labels) if self._places[label] != place)
            raise TaskError("domain.labels", f"{twice!r} appears twice; a label is one category")
        if self.other is not None and self.other not in self.labels:
            raise TaskError("domain.other", f"{str(self.other)[:40]!r} is not one of the labels; add it to them")

    @classmethod
    def of_size(cls, size: int, *_: object) -> Self:
        return cls(tuple(map(str, range(size))))

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        labels = enumerate(fields.items("labels"))
        return cls(
            tuple(text(f"domain.labels.{place}", label) for place, label in labels), fields.text_or_none("other")
        )

    def document(self) -> dict[str, object]:
        document: dict[str, object] = {"kind": self.kind, "labels": list(self.labels)}
        return document if self.other is None else document | {"other": self.other}

    @property
    def question(self) -> str:
        rest = "" if self.other is None else f"; anything else counts as {self.other}"
        return f"one of {len(self.labels)}: {', '.join(self.labels)}{rest}"

    @property
    def estimand(self) -> str:
        return f"the share of each of {len(self.labels)} categories"

    @property
    def typing_hint(self) -> str:
        return f"it is not a label of this task; write one of {_listed(self.labels)}"

    @property
    def extremes(self) -> tuple[tuple[str, object], tuple[str, object]]:
        first, last = self.labels[0], self.labels[-1]
        return (repr(first), first), (repr(last), last)

    def parse(self, text: str) -> str:
        return text

    @cached_property
    def parts(self) -> tuple[DomainPart, ...]:
        return tuple(DomainPart(label, imputation_reach=1 - 1 / len(self.labels)) for label in self.labels)

    @property
    def sensitivity(self) -> int:
        return 2

    @cached_property
    def _places(self) -> dict[str, int]:
        return {label: place for place, label in enumerate(self.labels)}

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.labels),)

    def read(self, value: object, *, strict: bool = True) -> ParsedValue:
        """The place of a label."""
        value = plain(value)
        if not issubclass(type(value), str):
            return self._missing(value, "a label; pass one of the task's labels as text", strict=strict)
        label = str.__str__(value)  # whatever a subclass makes of it
        if label in self._places or self.other is None:
            return ParsedValue((self._places.get(label),))
        return ParsedValue((self._places[self.other],), moved=True)


@dataclass(frozen=True)
class Coordinate(NumberDomain):
    """One bounded number of a vector, with a name: a line of 1 to 100 letters."""

    name: str = ""

    def __post_init__(self) -> None:
        NumberDomain.__post_init__(self)
        if not _is_line(self.name, LABEL_LIMIT) or not self.name.strip():
            raise TaskError(
                "domain.coordinates",
                f"the name {str(self.name)[:40]!r} is not a single line of 1 to {LABEL_LIMIT} characters",
            )

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        name = fields.text("name")
        coordinate = cls(*_read_bounds(fields), name=name)
        fields.end()
        return coordinate

    def document(self) -> dict[str, object]:
        document = super().document() | {"name": self.name}
        del document["kind"]
        return document


@dataclass(frozen=True)
class VectorDomain(Readable):
    """d bounded numbers, 1 ≤ d ≤ 1024, each with its range and grid.

    Raises:
        TaskError: no or too many coordinates, a repeated name, or grids of different steps.
    """

    kind = "vector"
    in_words = "a vector"
    parts_field = "coordinates"

    coordinates: tuple[Coordinate, ...]

    def __post_init__(self) -> None:
        if not _is_tuple_of(Coordinate, self.coordinates):
            raise TaskError("domain.coordinates", "are not a tuple of `Coordinate`")
        if not 1 <= len(self.coordinates) <= MOST_LABELS:
            raise TaskError(
                "domain.coordinates", f"{len(self.coordinates)} coordinates; a vector has 1 to {MOST_LABELS}"
            )
        if any(part.steps != self.steps for part in self.coordinates):
            raise TaskError("domain.coordinates", "have grids with different numbers of steps; give all the same")
        names = [coordinate.name for coordinate in self.coordinates]
        for name in names:
            if names.count(name) > 1:
                raise TaskError("domain.coordinates", f"{name!r} appears twice; give each coordinate its own name")

    @classmethod
    def of_size(cls, size: int, lower: float = 0.0, upper: float = 1.0, unit: str = "") -> Self:
        return cls(tuple(Coordinate(lower, upper, unit, name=str(place)) for place in range(size)))

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        parts = enumerate(fields.items("coordinates"))
        return cls(tuple(Coordinate.from_fields(Fields(part, f"domain.coordinates.{n}")) for n, part in parts))

    def document(self) -> dict[str, object]:
        return {"kind": self.kind, "coordinates": [coordinate.document() for coordinate in self.coordinates]}

    @property
    def question(self) -> str:
        return f"{len(self.coordinates)} numbers: {', '.join(self.value_names)}"

    @property
    def estimand(self) -> str:
        return f"the mean of each of {len(self.coordinates)} numbers"

    @property
    def typing_hint(self) -> str:
        return f"it is not {len(self.coordinates)} numbers; write {_listed(self.value_names)}"

    @property
    def extremes(self) -> tuple[tuple[str, object], tuple[str, object]]:
        lower, upper = ([coordinate.axis[end] for coordinate in self.parts] for end in (0, 1))
        return ("all at lower", lower), ("all at upper", upper)

    def parse(self, text: str) -> list[float | None]:
        return [_parse_number(part.strip(" \t")) for part in text.split(",")]

    @property
    def sensitivity(self) -> int:
        return len(self.coordinates)

    @property
    def numbers(self) -> tuple[NumberDomain, ...]:
        return self.coordinates

    @property
    def value_names(self) -> tuple[str, ...]:
        return tuple(coordinate.name for coordinate in self.coordinates)

    @cached_property
    def parts(self) -> tuple[DomainPart, ...]:
        return tuple(coordinate.part_named(coordinate.name) for coordinate in self.coordinates)

    @property
    def steps(self) -> int:
        return self.coordinates[0].steps

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.steps + 1,) * len(self.coordinates)

    def read(self, value: object, *, strict: bool = True) -> ParsedValue:
        """The grid index of each coordinate, from a sequence of d numbers or a mapping from every name to one.

        A sequence of another length has no usable number, and a mapping lacks those of missing names.
        """
        value = plain(value)
        if not is_table(value):
            wanted = f"a vector; pass a list of {len(self.coordinates)} numbers"
            return self._missing(value, wanted, strict=strict)
        numbers = self._numbers(value)
        parts = [part.read(one, strict=strict) for part, one in zip(self.coordinates, numbers, strict=True)]
        return ParsedValue(tuple(part.parts[0] for part in parts), moved=any(part.moved for part in parts))

    def _index(self, parts: tuple[int, ...]) -> Index:
        return Index(parts)

    def _numbers(self, value: object) -> Sequence[object]:
        nothing = [None] * len(self.coordinates)
        try:
            if issubclass(type(value), Mapping):
                found = dict(value)  # type: ignore[call-overload]  # a mapping is
                return [found.get(coordinate.name) for coordinate in self.coordinates]
            numbers = list(value)  # type: ignore[call-overload]  # so is a sequence
        except BaseException:  # noqa: BLE001 - whatever its methods raise: a value must not decide
            return nothing
        return numbers if len(numbers) == len(nothing) else nothing


Domain = NumberDomain | BitDomain | CategoryDomain | VectorDomain
KINDS: dict[str, type[Domain]] = {kind.kind: kind for kind in (NumberDomain, BitDomain, CategoryDomain, VectorDomain)}
"""Every domain, by its kind."""


def read_domain(document: object) -> Domain:
    """Read the domain of a task; raise TaskError with the field and the remedy."""
    fields = Fields(document, "domain")
    kind = fields.anything("kind", None)
    if kind is None:
        raise TaskError("domain", 'has no kind; write kind = "number", "bit", "category" or "vector"')
    if not isinstance(kind, str) or kind not in KINDS:
        shown = str(kind)[:40]
        raise TaskError(
            "domain", f"{shown!r} is not a kind; write number, bit, category or vector{meant(shown, KINDS)}"
        )
    domain = KINDS[kind].from_fields(fields)
    fields.end()
    return domain


def _is_line(text: object, limit: int) -> bool:
    return isinstance(text, str) and len(text) <= limit and is_printable(text)


def _is_tuple_of(kind: type, values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)
