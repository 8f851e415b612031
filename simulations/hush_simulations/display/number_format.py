"""Numbers for people: as many digits as their standard error justifies, with the unit."""

import math
from dataclasses import dataclass

from hush_aggregator.result import Result
from hush_common.domain import BitDomain, CategoryDomain
from hush_common.formatting import fixed, significant

_MOST_DECIMALS = 12
_LARGEST_PLAIN, _DIGITS = 1e9, 6


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How the values of one task are written.

    Args:
        unit: what follows a number, `"cm"` or `"%"`; may be empty.
        factor: what a value is multiplied with first (100 for a share in per cent).
        decimals: digits after the point.
    """

    unit: str
    factor: int
    decimals: int

    @classmethod
    def of(cls, result: Result) -> "NumberFormat":
        """Of a result: as many decimals as show three digits of its standard error."""
        share = isinstance(result.task.domain, BitDomain | CategoryDomain)
        error = max(result.stderr.values(), default=None)
        return cls.share(error) if share else cls.measured(result.task.unit, error)

    @classmethod
    def share(cls, error: float | None, digits: int = 3) -> "NumberFormat":
        """Of a share, in per cent, with so many digits of its standard error."""
        return cls("%", 100, _decimals(1.0 if error is None else 100 * error, digits))

    @classmethod
    def measured(cls, unit: str, error: float | None, digits: int = 3) -> "NumberFormat":
        """Of a number with a unit, likewise."""
        return cls(unit, 1, _decimals(1.0 if error is None else error, digits))

    def number(self, value: float) -> str:
        """The bare number."""
        if abs(value * self.factor) >= _LARGEST_PLAIN:
            return significant(value, _DIGITS, scale=self.factor)
        return fixed(value, self.decimals, scale=self.factor)

    def off(self, value: float) -> str:
        """How far off an estimate is, with its sign."""
        if abs(value * self.factor) >= _LARGEST_PLAIN:
            return f"{'+' if value > 0 else ''}{self.number(value)}"
        return fixed(value, self.decimals, scale=self.factor, sign=True)

    def value(self, value: float) -> str:
        """The number with its unit."""
        return f"{self.number(value)} {self.unit}".rstrip()

    def distance(self, one: float, other: float) -> str:
        """How far apart two values are; shares are points apart, not per cent."""
        return f"{self.number(abs(one - other))} {'points' if self.unit == '%' else self.unit}".rstrip()

    def bare_interval(self, lower: float, upper: float) -> str:
        """Both ends, without a unit."""
        return f"{self.number(lower)} to {self.number(upper)}"

    def interval(self, lower: float, upper: float) -> str:
        """Both ends with one unit."""
        return f"{self.number(lower)} to {self.value(upper)}"


def _decimals(error: float, digits: int) -> int:
    decimals = digits - 1 - math.floor(math.log10(error)) if error > 0 else digits - 1
    return min(max(decimals, 0), _MOST_DECIMALS)
