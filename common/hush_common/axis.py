"""Axes of all charts, in terminals, on the page and in pictures: where a number is, and round numbers for ticks.

Round numbers are multiples of a step, which is 1, 2 or 5 times a power of ten.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, inf, isfinite, log, log10

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


@dataclass(frozen=True, slots=True)
class Axis:
    """A line of numbers, from `low` to `high`."""

    low: float
    high: float
    logarithmic: bool = False  #: then all numbers are positive

    @classmethod
    def around(cls, numbers: Iterable[float], room: float) -> "Axis | None":
        """Return the axis of all numbers, with a share of its length as room; None if it would have no width."""
        every = list(numbers)
        if not every:
            return None
        low, high = min(every), max(every)
        more = (high - low) * room
        if not (0 < more < inf and isfinite(low - more) and isfinite(high + more)):
            return None
        return cls(low - more, high + more)

    def place(self, value: float, length: float) -> float:
        """Return where a number is on an axis of this length; a number beyond an end is at that end."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = log(low), log(high), log(value)
        half = high / 2 - low / 2  # halves: a range may be as large as floats go
        return min(max((value / 2 - low / 2) / half, 0.0), 1.0) * length

    def span(self, interval: tuple[float, float], length: float, least: float) -> tuple[float, float]:
        """Return the left end and the width of a band, which is at least `least` wide."""
        left, right = (self.place(end, length) for end in interval)
        width = max(right - left, least)
        return min(left, length - width), width
