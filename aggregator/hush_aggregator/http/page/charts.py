"""The geometry of the drawings: templates/charts.html writes them as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hush_aggregator.estimate.estimates import Interval

_WIDTH, _HEIGHT = 1000.0, 300.0
_THIN = 4.0  # the least width of a band: a narrower one could not be seen
_ROOM = 0.08
_DOTTED = 16  # a line of more points has a dot only at its end


@dataclass(frozen=True, slots=True)
class Axis:
    """A line of numbers, from `low` to `high`."""

    low: float
    high: float

    @staticmethod
    def around(
        intervals: Sequence[Interval], values: Sequence[float] = (), limits: Interval = (-math.inf, math.inf)
    ) -> "Axis | None":
        """Return the axis that shows all of these, with some room within limits; None if it would have no width."""
        ends = [end for interval in intervals for end in interval] + list(values)
        if not ends:
            return None
        low, high = min(ends), max(ends)
        room = (high - low) * _ROOM
        if not (0 < room < math.inf and math.isfinite(low - room) and math.isfinite(high + room)):
            return None
        return Axis(max(low - room, min(low, limits[0])), min(high + room, max(high, limits[1])))

    def place(self, value: float, length: float = _WIDTH) -> float:
        """Return where a number is on the axis; a number beyond an end is at that end."""
        half = self.high / 2 - self.low / 2  # halves: a range may be as large as floats go
        share = (value / 2 - self.low / 2) / half
        return min(max(share, 0.0), 1.0) * length

    def span(self, interval: Interval) -> tuple[float, float]:
        """Return the left end and the width of a band."""
        left, right = self.place(interval[0]), self.place(interval[1])
        width = max(right - left, _THIN)
        return min(left, _WIDTH - width), width


@dataclass(frozen=True, slots=True)
class Chart:
    """A line with a band around it.

    Args:
        title: for people who cannot see it.
        description: the same.
        band: the corners of the band.
        line: the corners of the line.
        up: the numbers of the vertical axis, from the top.
        across: the words at the left and at the right end.
    """

    title: str
    description: str
    band: Sequence[tuple[float, float]]
    line: Sequence[tuple[float, float]]
    up: Sequence[str]
    across: tuple[str, str]

    @classmethod
    def of(
        cls,
        axis: Axis,
        points: Sequence[tuple[float, float, Interval | None]],
        words: tuple[str, str],
        up: Sequence[str],
        across: tuple[str, str],
    ) -> "Chart":
        """Draw points: the place from left to right, the value, and an interval if there is one."""

        def at(x: float, value: float) -> tuple[float, float]:
            return (x - points[0][0]) / (points[-1][0] - points[0][0]) * _WIDTH, _HEIGHT - axis.place(value, _HEIGHT)

        banded = [(x, interval) for x, _, interval in points if interval is not None]
        edge = [at(x, high) for x, (_, high) in banded] + [at(x, low) for x, (low, _) in reversed(banded)]
        return cls(*words, edge, [at(x, value) for x, value, _ in points], up, across)

    @property
    def dots(self) -> Sequence[tuple[float, float]]:
        return self.line if len(self.line) <= _DOTTED else self.line[-1:]
