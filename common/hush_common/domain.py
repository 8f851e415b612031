"""Which values are legal, and how a value becomes an index: exactly, before any random draw.

Whatever a person's value is, the mechanism sees an integer inside the domain; privacy never depends on how it was
rounded, because the *index* is what is bounded (MATHS: any two indices are at most `steps` apart).
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Rational, Real
from typing import Literal

from hush_common.errors import DomainError, TaskError

__all__ = ["GRID_STEPS", "BitDomain", "CategoryDomain", "Coordinate", "Domain", "Index", "NumberDomain", "VectorDomain"]

MOST_LABELS = 1024
LABEL_LIMIT = 100
UNIT_LIMIT = 40
_LARGEST = sys.float_info.max
GRID_STEPS = 1 << 20
"""Steps of the grid of a number: rounding to it moves a value by at most (upper - lower) / 2^21."""


@dataclass(frozen=True, slots=True)
class Index:
    """A value as the mechanism sees it.

    Args:
        index: an integer of the domain; of a vector, one for each coordinate.
        clamped: whether the value had to be moved into the domain.
    """

    index: int | tuple[int, ...]
    clamped: bool = False

    @property
    def scalar(self) -> int:
        """The index of a domain that has one, which a vector has not."""
        if isinstance(self.index, tuple):
            raise TypeError("the index of a vector is not one integer")
        return self.index


@dataclass(frozen=True)
class NumberDomain:
    """A number in [lower, upper], rounded to one of `steps` + 1 grid points.

    Args:
        lower: smallest legal value, finite.
        upper: largest legal value, finite, above `lower`, with a finite difference.
        unit: what the numbers count (`"cm"`); may be empty.
        outside: what happens to a value outside the bounds: `"clamp"` moves it to the nearer bound (the person is
            told), `"refuse"` raises. Either way the bounds must come from public knowledge, never from data.
        steps: grid steps; `GRID_STEPS` in every published task, fewer in an enumeration.

    Raises:
        TaskError: bounds that are not finite, not in order, or too far apart; a unit that is no short line.
    """

    lower: float
    upper: float
    unit: str = ""
    outside: Literal["clamp", "refuse"] = "clamp"
    steps: int = GRID_STEPS

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            bound = getattr(self, name)
            if isinstance(bound, bool) or not isinstance(bound, int | float):
                raise TaskError(f"domain.{name}", f"{str(bound)[:40]!r} is no number; write the bound of a legal value")
            if not -_LARGEST <= bound <= _LARGEST:
                shown = bound if isinstance(bound, float) else "an integer beyond all floats"
                raise TaskError(f"domain.{name}", f"{shown} is not a finite number; write the bound of a legal value")
            object.__setattr__(self, name, float(bound))
        if not _is_line(self.unit, UNIT_LIMIT):
            raise TaskError("domain.unit", f"{str(self.unit)[:40]!r} is no line of at most {UNIT_LIMIT} letters")
        if self.outside not in ("clamp", "refuse"):
            raise TaskError("domain.outside", f"{str(self.outside)[:40]!r} is neither 'clamp' nor 'refuse'; choose one")
        if type(self.steps) is not int or not 1 <= self.steps <= GRID_STEPS:
            raise TaskError("domain.steps", f"{self.steps!r} is no integer from 1 to {GRID_STEPS}")
        if not self.lower < self.upper:
            raise TaskError("domain.lower", f"{self.lower} is not below upper = {self.upper}; swap or widen the bounds")
        if not math.isfinite(self.upper - self.lower):
            raise TaskError("domain.upper", f"the range {self.lower} to {self.upper} overflows; use a larger unit")

    @cached_property
    def step(self) -> Fraction:
        """Width of one grid step, in the unit of the domain, exactly."""
        return (Fraction(self.upper) - Fraction(self.lower)) / self.steps

    def index(self, value: object) -> Index:
        """The grid index of `value`, in [0, steps]; ties go to the even index.

        Args:
            value: an int, float, Decimal, Fraction, or any other real number (numpy scalars among them).

        Raises:
            DomainError: not a number, NaN, infinite, or outside the bounds where the task refuses that.
        """
        exact = _exact(value)
        inside = min(max(exact, Fraction(self.lower)), Fraction(self.upper))
        if inside != exact and self.outside == "refuse":
            raise DomainError(f"the value is outside [{self.lower:g}, {self.upper:g}] {self.unit}".rstrip())
        return Index(round((inside - Fraction(self.lower)) / self.step), clamped=inside != exact)

    def value_of(self, index: int | Fraction) -> Fraction:
        """The number at grid position `index`, exactly; not clipped, so that estimates stay unbiased."""
        return Fraction(self.lower) + index * self.step


@dataclass(frozen=True, slots=True)
class BitDomain:
    """Yes or no: `True`, `False`, 1 or 0."""

    def index(self, value: object) -> Index:
        """0 or 1.

        Raises:
            DomainError: anything but a bool or the integers 0 and 1.
        """
        if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
            return Index(int(value))
        raise DomainError(f"the value is {_kind(value)}, not yes or no; pass True, False, 1 or 0")


@dataclass(frozen=True)
class CategoryDomain:
    """One of k labels, 2 ≤ k ≤ 1024.

    Args:
        labels: distinct, printable, not empty; the index of a label is its place.

    Raises:
        TaskError: too few or too many labels, a repeated, empty or unprintable one.
    """

    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if not _is_tuple_of(str, self.labels):
            raise TaskError("domain.labels", "are no tuple of texts; write each label in quotes")
        if not 2 <= len(self.labels) <= MOST_LABELS:  # noqa: PLR2004 - one category is no question
            raise TaskError("domain.labels", f"{len(self.labels)} labels; a category has 2 to {MOST_LABELS}")
        for place, label in enumerate(self.labels):
            if not _is_line(label, LABEL_LIMIT) or not label.strip():
                raise TaskError(
                    "domain.labels", f"label {place + 1}, {label[:40]!r}, is no line of 1 to {LABEL_LIMIT} letters"
                )
        if len(self._places) < len(self.labels):
            twice = next(label for place, label in enumerate(self.labels) if self._places[label] != place)
            raise TaskError("domain.labels", f"{twice!r} stands twice; a label is one category")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {label: place for place, label in enumerate(self.labels)}

    def index(self, value: object) -> Index:
        """The place of a label.

        Raises:
            DomainError: anything but one of the labels.
        """
        if not isinstance(value, str):
            raise DomainError(f"the value is {_kind(value)}, not a label; pass one of the task's labels as text")
        if value not in self._places:
            raise DomainError("the value is none of the task's labels; spell it exactly as the task does")
        return Index(self._places[value])


@dataclass(frozen=True)
class Coordinate(NumberDomain):
    """One bounded number of a vector, with a name: a line of 1 to 100 letters."""

    name: str = ""

    def __post_init__(self) -> None:
        NumberDomain.__post_init__(self)
        if not _is_line(self.name, LABEL_LIMIT) or not self.name.strip():
            raise TaskError(
                "domain.coordinates", f"the name {str(self.name)[:40]!r} is no line of 1 to {LABEL_LIMIT} letters"
            )


@dataclass(frozen=True)
class VectorDomain:
    """d bounded numbers, 1 ≤ d ≤ 1024, each on the grid of its own range.

    Args:
        coordinates: their bounds; names are distinct.

    Raises:
        TaskError: no or too many coordinates, a repeated name, or grids of different steps.
    """

    coordinates: tuple[Coordinate, ...]

    def __post_init__(self) -> None:
        if not _is_tuple_of(Coordinate, self.coordinates):
            raise TaskError("domain.coordinates", "are no tuple of `Coordinate`")
        if not 1 <= len(self.coordinates) <= MOST_LABELS:
            raise TaskError(
                "domain.coordinates", f"{len(self.coordinates)} coordinates; a vector has 1 to {MOST_LABELS}"
            )
        if any(part.steps != self.steps for part in self.coordinates):
            raise TaskError("domain.coordinates", "have grids of different steps; the mechanism knows one")
        names = [coordinate.name for coordinate in self.coordinates]
        for name in names:
            if names.count(name) > 1:
                raise TaskError("domain.coordinates", f"{name!r} stands twice; give each coordinate its own name")

    @property
    def steps(self) -> int:
        return self.coordinates[0].steps

    def index(self, value: object) -> Index:
        """The grid index of each coordinate, in the order of the task.

        Args:
            value: a sequence of d real numbers, or a mapping from every name to one.

        Raises:
            DomainError: another length, another name, or a coordinate that its range does not admit.
        """
        if isinstance(value, Mapping):
            if value.keys() != {coordinate.name for coordinate in self.coordinates}:
                raise DomainError("the names of the value are not those of the task's coordinates")
            value = [value[coordinate.name] for coordinate in self.coordinates]
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise DomainError(
                f"the value is {_kind(value)}, not a vector; pass a list of {len(self.coordinates)} numbers"
            )
        if len(value) != len(self.coordinates):
            raise DomainError(f"the vector has {len(value)} numbers; this task asks for {len(self.coordinates)}")
        parts = [coordinate.index(number) for coordinate, number in zip(self.coordinates, value, strict=True)]
        return Index(tuple(part.scalar for part in parts), clamped=any(part.clamped for part in parts))


Domain = NumberDomain | BitDomain | CategoryDomain | VectorDomain


def _is_line(text: object, limit: int) -> bool:
    return isinstance(text, str) and len(text) <= limit and text.isprintable()


def _is_tuple_of(kind: type, values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _exact(value: object) -> Fraction:
    """`value` as a fraction; never through a string, never a bool."""
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        raise DomainError(f"the value is {_kind(value)}, not a number; pass an int, float, Decimal or Fraction")
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    number = float(value)
    if not math.isfinite(number):
        raise DomainError("the value is not finite (NaN or infinite); leave the report out instead")
    return Fraction(number)
