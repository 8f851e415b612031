"""Units: positions on the unit interval as numbers of a domain, exactly until the last moment."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import lcm
from sys import float_info

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import Domain, NumberDomain


@dataclass(frozen=True)
class Units:
    """The range [lower, upper] of a domain, whose values were rounded by at most `rounding` (a share of the range)."""

    lower: Fraction = Fraction(0)
    upper: Fraction = Fraction(1)
    rounding: Fraction = Fraction(0)

    @classmethod
    def of_domain(cls, domain: Domain) -> "Units":
        """Of a number, or of a share."""
        return next(map(cls.of, domain.numbers), cls())

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, domain: NumberDomain) -> "Units":
        return cls(Fraction(domain.lower), Fraction(domain.upper), Fraction(1, 2 * domain.steps))

    @cached_property
    def width(self) -> Fraction:
        return self.upper - self.lower

    @cached_property
    def _whole(self) -> tuple[int, int, int, int, int]:
        """Lower bound and width as integers over one unit, the unit, and the rounding as a ratio.

        With integers a number of the domain is one division, which Python rounds correctly; no fraction is reduced.
        """
        unit = lcm(self.lower.denominator, self.upper.denominator)
        return int(self.lower * unit), int(self.width * unit), unit, *self.rounding.as_integer_ratio()

    def value(self, position: Fraction, parts: int = 1) -> float:
        """The number at a position, counted in `parts` of the range; not clipped."""
        return self.value_of(position.numerator, position.denominator * parts)

    def value_of(self, over: int, under: int) -> float:
        """The number at the position over/under."""
        lower, width, unit, _, _ = self._whole
        return _quotient(lower * under + over * width, unit * under)

    def length(self, share: float | Fraction, parts: int = 1) -> float:
        """A share of the range, counted in `parts` of it, as a length."""
        over, under = share.as_integer_ratio()
        _, width, unit, _, _ = self._whole
        return _quotient(over * width, unit * under * parts)

    def interval(self, low: float | Fraction, high: float | Fraction) -> tuple[float, float]:
        """The interval between two positions, wider by the rounding, clipped to the range."""
        return self._clipped(low.as_integer_ratio(), -1), self._clipped(high.as_integer_ratio(), 1)

    def around(self, center: Fraction, low: float | Fraction, high: float | Fraction) -> tuple[float, float]:
        """The interval between two positions about an estimate, clipped to the range and never of no width for that.

        Of an estimate outside the range, the interval is joined with itself moved so that the estimate is at the
        nearest bound. It contains what clipping alone would leave, so that no coverage is lost; and it keeps the
        length of its inner arm, where clipping could leave a point that looks certain.

        Args:
            center: position of the estimate, which may lie outside [0, 1].
            low: lower end, at most `center`.
            high: upper end, at least `center`.
        """
        if center.numerator < 0:
            high = Fraction(high) - center
        elif center.numerator > center.denominator:
            low = Fraction(low) - (center - 1)
        return self.interval(low, high)

    def arms(self, under: int, below: float, above: float, parts: int = 1) -> Callable[[int], tuple[float, float]]:
        """What makes `around` from center - below to center + above of many centers, exactly.

        Lengths are counted in `parts` of the range, and a center as a multiple of 1/`under` of that.
        """
        low, high = self._end(under, below, parts, -1), self._end(under, above, parts, 1)
        last = under * parts

        def interval(center: int) -> tuple[float, float]:  # of one outside the range, the nearer bound for one end
            return low(min(last, center)), high(max(0, center))

        return interval

    def _end(self, under: int, length: float, parts: int, side: int) -> Callable[[int], float]:
        """What makes `_clipped` of center + side·length."""
        lower, width, unit, rounded, of = self._whole
        more, of_more = length.as_integer_ratio()
        last = under * parts * of_more * of
        times, moved = of_more * of, side * (more * under * of + rounded * under * parts * of_more)
        least, most = to_float(self.lower), to_float(self.upper)
        scale, shift, whole = times * width, moved * width + lower * last, unit * last
        first, beyond = -moved, last - moved

        def end(center: int) -> float:
            at = center * times
            if at <= first:
                return least
            return most if at >= beyond else _quotient(center * scale + shift, whole)

        return end

    def _clipped(self, position: tuple[int, int], side: int) -> float:
        """The number at a position, a ratio, moved by the rounding to one side."""
        over, under = position
        rounded, of = self._whole[3:]
        over, under = over * of + side * rounded * under, under * of
        if over <= 0:
            return to_float(self.lower)
        return to_float(self.upper) if over >= under else self.value_of(over, under)


def around(
    center: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`Units.around` for many positions at once, clipped to [0, 1]."""
    return np.clip(low - np.maximum(center - 1, 0), 0, 1), np.clip(high - np.minimum(center, 0), 0, 1)


def to_float(x: Fraction) -> float:
    """The nearest float; the largest one where noise on a range near 1e308 exceeds all floats."""
    return _quotient(x.numerator, x.denominator)


def _quotient(over: int, under: int) -> float:
    """The same of a ratio with `under` > 0, reduced or not."""
    try:
        return over / under
    except OverflowError:
        return float_info.max if over > 0 else -float_info.max
