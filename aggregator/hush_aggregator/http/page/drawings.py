"""Drawings: SVG by hand, each beside a table or a sentence that has the same numbers.

A drawing is as wide as its place: its coordinates are stretched, strokes are not (`vector-effect`), and a dot is a
stroke of no length with a round end. Words stand beside it in HTML, where they keep their size. Colours are the style
sheet's, by class.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hush_aggregator.estimate.estimates import Interval
from hush_aggregator.http.page.markup import Html, element, void

__all__ = ["Axis", "band", "bar", "chart", "meter", "row"]

_WIDTH, _HEIGHT = 1000.0, 300.0
_THIN = 4.0  # a band is drawn so wide at least: one that cannot be seen would look like none
_ROOM = 0.08
_DOTTED = 16  # a line of more points has a dot at its end alone


@dataclass(frozen=True, slots=True)
class Axis:
    """A line of numbers, from `low` to `high`."""

    low: float
    high: float

    @staticmethod
    def around(
        intervals: Sequence[Interval], values: Sequence[float] = (), limits: Interval = (-math.inf, math.inf)
    ) -> "Axis | None":
        """The axis that shows all of these, with some room within limits; None where there is nothing, or no width."""
        ends = [end for interval in intervals for end in interval] + list(values)
        if not ends:
            return None
        low, high = min(ends), max(ends)
        room = (high - low) * _ROOM
        if not (0 < room < math.inf and math.isfinite(low - room) and math.isfinite(high + room)):
            return None
        return Axis(max(low - room, min(low, limits[0])), min(high + room, max(high, limits[1])))

    def place(self, value: float, length: float = _WIDTH) -> float:
        """Where a number stands; what is beyond an end, at that end."""
        half = self.high / 2 - self.low / 2  # halves: a range may be as large as floats go
        share = (value / 2 - self.low / 2) / half
        return min(max(share, 0.0), 1.0) * length

    def span(self, interval: Interval) -> tuple[float, float]:
        """Left end and width of a band."""
        left, right = self.place(interval[0]), self.place(interval[1])
        width = max(right - left, _THIN)
        return min(left, _WIDTH - width), width


def band(axis: Axis, bands: Sequence[tuple[str, Interval]], value: float | None, described: tuple[str, str]) -> Html:
    """An estimate on its axis, with bands around it, the widest first.

    Args:
        axis: from end to end.
        bands: a class of the style sheet, and an interval.
        value: the estimate.
        described: title and description for whoever does not see it.
    """
    height = 44.0
    parts = [_line(0, height / 2, _WIDTH, height / 2, "axis")]
    for number, (name, interval) in enumerate(bands):
        left, width = axis.span(interval)
        inset = 4.0 + 8.0 * number
        parts.append(void("rect", x=left, y=inset, width=width, height=height - 2 * inset, rx=3, class_=name))
    if value is not None:
        parts.append(_dot(axis.place(value), height / 2))
    return _drawing("band", height, parts, described)


def row(axis: Axis, interval: Interval, value: float | None, name: str) -> Html:
    """One interval in a row of a table, whose cells have its numbers: hidden from whoever is read to."""
    height = 20.0
    left, width = axis.span(interval)
    parts = [
        _line(0, height / 2, _WIDTH, height / 2, "axis"),
        void("rect", x=left, y=5, width=width, height=10, rx=3, class_=name),
    ]
    if value is not None:
        parts.append(_dot(axis.place(value), height / 2, "dot small"))
    return _drawing("row", height, parts)


def bar(axis: Axis, value: float | None, interval: Interval | None) -> Html:
    """A bar from zero, or from the left end, with its interval across its end: for a row of a table."""
    height = 20.0
    zero = axis.place(min(max(0.0, axis.low), axis.high))
    parts = []
    if value is not None:
        ends = sorted((zero, axis.place(value)))
        parts.append(void("rect", x=ends[0], y=4, width=max(ends[1] - ends[0], 1), height=12, rx=2, class_="bar"))
    if interval is not None:
        left, right = axis.place(interval[0]), axis.place(interval[1])
        parts.append(_line(left, height / 2, right, height / 2, "whisker"))
        parts += [_line(x, 5, x, 15, "whisker") for x in (left, right)]
    return _drawing("row", height, parts)


def chart(
    places: Sequence[float],
    values: Sequence[float],
    bands: Sequence[Interval | None],
    axis: Axis,
    words: tuple[str, str],
) -> Html:
    """A line with a band around it.

    Args:
        places: from left to right, from 0 to 1.
        values: at each place.
        bands: at each place; None for none.
        axis: of the values, upwards.
        words: title and description for whoever does not see it.
    """
    across = [place * _WIDTH for place in places]

    def up(value: float) -> float:
        return _HEIGHT - axis.place(value, _HEIGHT)

    parts = [_line(0, y, _WIDTH, y, "grid") for y in (0.0, _HEIGHT / 2, _HEIGHT)]
    there = [(x, interval) for x, interval in zip(across, bands, strict=True) if interval is not None]
    edge = [(x, up(high)) for x, (_, high) in there] + [(x, up(low)) for x, (low, _) in reversed(there)]
    parts.append(void("polygon", points=_points(edge), class_="anytime"))
    line = [(x, up(value)) for x, value in zip(across, values, strict=True)]
    parts.append(void("polyline", points=_points(line), class_="line"))
    parts += [_dot(x, y, "dot small") for x, y in (line if len(line) <= _DOTTED else line[-1:])]
    return _drawing("chart", _HEIGHT, parts, words)


def meter(share: float, described: tuple[str, str]) -> Html:
    """From a fair guess, at the left, to certainty: how far an observer can come at most. `share` is from 0.5 to 1."""
    height = 20.0
    reach = (share - 0.5) * 2 * _WIDTH
    return _drawing(
        "meter",
        height,
        [
            void("rect", x=0, y=4, width=_WIDTH, height=12, class_="rail"),
            void("rect", x=0, y=4, width=reach, height=12, class_="reach"),
            *(_line(x, 4, x, 16, "tick") for x in (250.0, 500.0, 750.0)),
            _line(reach, 0, reach, height, "mark"),
        ],
        described,
    )


def _drawing(name: str, height: float, parts: Sequence[Html], described: tuple[str, str] | None = None) -> Html:
    seen = [element("title", described[0]), element("desc", described[1]), *parts] if described else parts
    return element(
        "svg",
        *seen,
        class_=f"drawing {name}",
        viewBox=f"0 0 {_WIDTH:.0f} {height:.0f}",
        preserveAspectRatio="none",
        role="img" if described else None,
        aria_hidden=None if described else "true",
        focusable="false",
    )


def _line(x1: float, y1: float, x2: float, y2: float, name: str) -> Html:
    return void("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=name)


def _dot(x: float, y: float, name: str = "dot") -> Html:
    return element("g", _line(x, y, x, y, f"{name} ring"), _line(x, y, x, y, name))


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
