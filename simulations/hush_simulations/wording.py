"""Numbers for people: as many digits as their error bar deserves, with the unit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Wording"]

_MOST_DECIMALS = 12
_LARGEST_PLAIN = 1e9


@dataclass(frozen=True, slots=True)
class Wording:
    """How the values of one task are written.

    Args:
        unit: what follows a number, `"cm"` or `"%"`; may be empty.
        factor: what a value is multiplied with first (100 for a share in per cent).
        decimals: digits after the point.
    """

    unit: str
    factor: float
    decimals: int

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> "Wording":
        """The wording of a result document: as many decimals as show three digits of its standard error."""
        share = result["mechanism"] == "randomized_response"
        factor = 100.0 if share else 1.0
        error = factor * max(result.get("stderr", {}).values(), default=1.0 / factor)
        decimals = 2 - math.floor(math.log10(error)) if error > 0 else 2
        return cls("%" if share else result.get("unit", ""), factor, min(max(decimals, 0), _MOST_DECIMALS))

    def number(self, value: float) -> str:
        """The bare number."""
        scaled = value * self.factor
        if abs(scaled) >= _LARGEST_PLAIN:
            return f"{scaled:.6g}"
        return f"{scaled:.{self.decimals}f}"

    def value(self, value: float) -> str:
        """The number with its unit."""
        return f"{self.number(value)} {self.unit}".rstrip()

    def distance(self, one: float, other: float) -> str:
        """How far apart two values are; shares are points apart, not per cent."""
        return f"{self.number(abs(one - other))} {'points' if self.unit == '%' else self.unit}".rstrip()

    def interval(self, lower: float, upper: float) -> str:
        """Both ends with one unit."""
        return f"{self.number(lower)} to {self.value(upper)}"
