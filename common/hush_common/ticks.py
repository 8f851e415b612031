"""Round numbers for axes: multiples of a step, which is 1, 2 or 5 times a power of ten."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, log10

ROUND = (1, 2, 5)
_SAME = Fraction(1, 10**9)  # of a step: a number that is so near to a tick is on it


def step_above(size: Fraction | float) -> Fraction:
    """Return the smallest step that is not below a positive number."""
    return next(step for step in _steps_near(size) if step >= Fraction(size) * (1 - _SAME))


def step_below(size: Fraction | float) -> Fraction:
    """Return the largest step that is not above a positive number."""
    return [step for step in _steps_near(size) if step <= Fraction(size) * (1 + _SAME)][-1]


def _steps_near(size: Fraction | float) -> list[Fraction]:
    power = floor(log10(size))
    return [digit * Fraction(10) ** p for p in (power - 1, power, power + 1) for digit in ROUND]


@dataclass(frozen=True, slots=True)
class Ticks:
    """The multiples of a step from `first` to `last`."""

    step: Fraction
    first: int
    last: int

    @classmethod
    def around(cls, low: float, high: float, most: int) -> "Ticks":
        """Return at most `most` ticks, at least 3, the first and the last of which enclose two different numbers."""
        start, end = Fraction(low), Fraction(high)
        step = step_above((end - start) / (most - 1))
        while True:
            first, last = floor(start / step + _SAME), ceil(end / step - _SAME)
            if last - first < most:
                return cls(step, first, last)
            step = step_above(step * Fraction(3, 2))  # the next one

    @property
    def values(self) -> list[float]:
        return [float(place * self.step) for place in range(self.first, self.last + 1)]

    @property
    def decimals(self) -> int:
        """How many digits after the point show all of them exactly."""
        decimals = 0
        while (self.step * 10**decimals).denominator > 1:
            decimals += 1
        return decimals
