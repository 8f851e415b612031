"""Which values are legal, and how a value becomes an index: exactly, before any random draw.

Whatever a person's value is, the mechanism sees an integer inside the domain; privacy never depends on how it was
rounded, because the *index* is what is bounded (MATHS: any two indices are at most `steps` apart).
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Rational, Real
from typing import Literal

from hush_common.errors import DomainError, TaskError

__all__ = ["GRID_STEPS", "BitDomain", "Domain", "Index", "NumberDomain"]

GRID_STEPS = 1 << 20
"""Steps of the grid of a number: rounding to it moves a value by at most (upper - lower) / 2^21."""


@dataclass(frozen=True, slots=True)
class Index:
    """A value as the mechanism sees it: an integer of the domain, and whether the value had to be clamped into it."""

    index: int
    clamped: bool = False


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
        TaskError: bounds that are not finite, not in order, or too far apart.
    """

    lower: float
    upper: float
    unit: str = ""
    outside: Literal["clamp", "refuse"] = "clamp"
    steps: int = GRID_STEPS

    def __post_init__(self) -> None:
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if not math.isfinite(bound):
                raise TaskError(f"domain.{name}", f"{bound} is not a finite number; write the bound of a legal value")
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


Domain = NumberDomain | BitDomain


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
