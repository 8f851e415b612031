"""What a task asks for, and how a value becomes an index of it: exactly, before any random draw.

Whatever a person's value is, the mechanism sees an integer inside the domain; privacy never depends on how it was
rounded, because the *index* is what is bounded (any two indices are at most `steps` apart). And whatever it is,
there is an index: `hush_common.reading` says what becomes of a value that is beyond the bounds, or none.

Every domain has

- `read(value)`, total but for a `TypeError` that looks at types alone; `read(value, strict=False)` has not even that;
- `check(value)`, what would become of a value: for the developer's tests, nothing is drawn or spent;
- `complete(reading, rng)`, the index that the mechanism sees: uniform wherever there is no usable value;
- `index(value)`, that of a usable value, for the laboratory.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from hush_common.errors import TaskError
from hush_common.grid import Grid
from hush_common.reading import Index, Readable, Reading, is_real, is_table, plain
from hush_common.untrusted import is_printable

__all__ = ["GRID_STEPS", "BitDomain", "CategoryDomain", "Coordinate", "Domain", "Index", "NumberDomain", "VectorDomain"]

MOST_LABELS = 1024
LABEL_LIMIT = 100
UNIT_LIMIT = 40
_LARGEST = sys.float_info.max
GRID_STEPS = 1 << 20
"""Steps of the grid of a number: rounding to it moves a value by at most (upper - lower) / 2^21."""


@dataclass(frozen=True)
class NumberDomain(Readable):
    """A number in [lower, upper], rounded to one of `steps` + 1 grid points.

    Args:
        lower: smallest legal value, finite.
        upper: largest legal value, finite, above `lower`, with a finite difference.
        unit: what the numbers count (`"cm"`); may be empty.
        outside: `"clamp"`: a value outside the bounds is moved to the nearer one. (`"refuse"` stands in tasks of
            before alone, which no device answers any more: `hush_common.task`.) The bounds must come from public
            knowledge, never from data.
        steps: grid steps; `GRID_STEPS` in every published task, fewer in an enumeration.

    Raises:
        TaskError: bounds that are not finite, not in order, or too far apart; a unit that is no short line.
    """

    kind = "number"
    in_words = "a number"

    lower: float
    upper: float
    unit: str = ""
    outside: Literal["clamp", "refuse"] = "clamp"
    steps: int = GRID_STEPS

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
        if self.outside not in ("clamp", "refuse"):
            raise TaskError("domain.outside", f"{str(self.outside)[:40]!r} is not 'clamp'; drop it, or write that")
        if type(self.steps) is not int or not 1 <= self.steps <= GRID_STEPS:
            raise TaskError("domain.steps", f"{self.steps!r} is not an integer from 1 to {GRID_STEPS}")
        if not self.lower < self.upper:
            raise TaskError("domain.lower", f"{self.lower} is not below upper = {self.upper}; swap or widen the bounds")
        if not math.isfinite(self.upper - self.lower):
            raise TaskError("domain.upper", f"the range {self.lower} to {self.upper} overflows; use a larger unit")

    @cached_property
    def step(self) -> Fraction:
        """Width of one grid step, in the unit of the domain, exactly."""
        return (Fraction(self.upper) - Fraction(self.lower)) / self.steps

    @cached_property
    def _grid(self) -> Grid:
        return Grid(self.lower, self.upper, self.steps)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.steps + 1,)

    def read(self, value: object, *, strict: bool = True) -> Reading:
        """The grid index, in [0, steps], of an int, float, Decimal, Fraction, or any other real number."""
        if type(value) is not float:
            value = plain(value)
            if not is_real(value):
                return self._missing(value, "a number; pass an int, float, Decimal or Fraction", strict=strict)
        index, moved = self._grid.index(value)
        return Reading((index,), moved)

    def value_of(self, index: int | Fraction) -> Fraction:
        """The number at grid position `index`, exactly; not clipped, so that estimates stay unbiased."""
        return Fraction(self.lower) + index * self.step

    def number_at(self, index: int) -> float:
        """The float nearest to `value_of(index)`.

        Raises:
            OverflowError: it is beyond all floats.
        """
        return self._grid.number(index)


@dataclass(frozen=True, slots=True)
class BitDomain(Readable):
    """Yes or no: `True`, `False`, 1 or 0."""

    kind = "bit"
    in_words = "a bit"

    @property
    def sizes(self) -> tuple[int, ...]:
        return (2,)

    def read(self, value: object, *, strict: bool = True) -> Reading:
        """0 or 1; any other integer is no usable value."""
        value = plain(value)
        if not issubclass(type(value), int):
            return self._missing(value, "yes or no; pass True, False, 1 or 0", strict=strict)
        bit = int.__int__(value)  # type: ignore[arg-type]  # of an int
        return Reading((bit if bit in (0, 1) else None,))


@dataclass(frozen=True)
class CategoryDomain(Readable):
    """One of k labels, 2 ≤ k ≤ 1024.

    Args:
        labels: distinct, printable, not empty; the index of a label is its place.
        other: the one of them that stands for a text that is none; without it, such a text is no usable value.

    Raises:
        TaskError: too few or too many labels, a repeated, empty or unprintable one, or `other` is none of them.
    """

    kind = "category"
    in_words = "a category"

    labels: tuple[str, ...]
    other: str | None = None

    def __post_init__(self) -> None:
        if not _is_tuple_of(str, self.labels):
            raise TaskError("domain.labels", "are not a tuple of strings; write each label in quotes")
        if not 2 <= len(self.labels) <= MOST_LABELS:  # noqa: PLR2004 - one category is no question
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

    @cached_property
    def _places(self) -> dict[str, int]:
        return {label: place for place, label in enumerate(self.labels)}

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.labels),)

    def read(self, value: object, *, strict: bool = True) -> Reading:
        """The place of a label."""
        value = plain(value)
        if not issubclass(type(value), str):
            return self._missing(value, "a label; pass one of the task's labels as text", strict=strict)
        label = str.__str__(value)  # whatever a subclass makes of it
        if label in self._places or self.other is None:
            return Reading((self._places.get(label),))
        return Reading((self._places[self.other],), moved=True)


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


@dataclass(frozen=True)
class VectorDomain(Readable):
    """d bounded numbers, 1 ≤ d ≤ 1024, each on the grid of its own range.

    Args:
        coordinates: their bounds; names are distinct.

    Raises:
        TaskError: no or too many coordinates, a repeated name, or grids of different steps.
    """

    kind = "vector"
    in_words = "a vector"

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

    @property
    def steps(self) -> int:
        return self.coordinates[0].steps

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.steps + 1,) * len(self.coordinates)

    def read(self, value: object, *, strict: bool = True) -> Reading:
        """The grid index of each coordinate, from a sequence of d numbers or a mapping from every name to one.

        A sequence of another length has no usable number, a mapping none for the names that it lacks.
        """
        value = plain(value)
        if not is_table(value):
            wanted = f"a vector; pass a list of {len(self.coordinates)} numbers"
            return self._missing(value, wanted, strict=strict)
        numbers = self._numbers(value)
        parts = [part.read(one, strict=strict) for part, one in zip(self.coordinates, numbers, strict=True)]
        return Reading(tuple(part.parts[0] for part in parts), moved=any(part.moved for part in parts))

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


def _is_line(text: object, limit: int) -> bool:
    return isinstance(text, str) and len(text) <= limit and is_printable(text)


def _is_tuple_of(kind: type, values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)
