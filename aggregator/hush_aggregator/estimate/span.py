"""Span: positions on the unit interval as numbers of a domain, exactly until the last moment."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from sys import float_info

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import NumberDomain

__all__ = ["Span", "around", "to_float"]


@dataclass(frozen=True)
class Span:
    """The range [lower, upper] of a domain, whose values were rounded by at most `rounding` (a share of the range)."""

    lower: Fraction = Fraction(0)
    upper: Fraction = Fraction(1)
    rounding: Fraction = Fraction(0)

    @classmethod
    def of(cls, domain: NumberDomain) -> "Span":
        return cls(Fraction(domain.lower), Fraction(domain.upper), Fraction(1, 2 * domain.steps))

    @cached_property
    def width(self) -> Fraction:
        return self.upper - self.lower

    def value(self, position: Fraction) -> float:
        """The number at a position; not clipped."""
        return to_float(self.lower + position * self.width)

    def length(self, share: float | Fraction) -> float:
        """A share of the range as a length."""
        return to_float(Fraction(share) * self.width)

    def interval(self, low: float | Fraction, high: float | Fraction) -> tuple[float, float]:
        """The interval between two positions, wider by the rounding, clipped to the range."""
        return self._clipped(Fraction(low) - self.rounding), self._clipped(Fraction(high) + self.rounding)

    def around(self, center: Fraction, low: float | Fraction, high: float | Fraction) -> tuple[float, float]:
        """The interval between two positions about an estimate, clipped to the range and never of no width for that.

        Of an estimate outside the range, the interval is joined with itself moved so that the estimate stands at the
        nearest bound. It contains what clipping alone would leave, so that no coverage is lost; and it keeps the
        length of its inner arm, where clipping could leave a point that looks certain.

        Args:
            center: position of the estimate, which may lie outside [0, 1].
            low: lower end, at most `center`.
            high: upper end, at least `center`.
        """
        outside = min(center, Fraction(0)) + max(center - 1, Fraction(0))
        return self.interval(Fraction(low) - max(outside, Fraction(0)), Fraction(high) - min(outside, Fraction(0)))

    def _clipped(self, position: Fraction) -> float:
        if position.numerator <= 0:
            return to_float(self.lower)
        return to_float(self.upper) if position.numerator >= position.denominator else self.value(position)


def around(
    center: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`Span.around` for many positions at once, clipped to [0, 1]."""
    return np.clip(low - np.maximum(center - 1, 0), 0, 1), np.clip(high - np.minimum(center, 0), 0, 1)


def to_float(x: Fraction) -> float:
    """The nearest float; the largest one where noise on a range near 1e308 exceeds all floats."""
    try:
        return float(x)
    except OverflowError:
        return float_info.max if x > 0 else -float_info.max
