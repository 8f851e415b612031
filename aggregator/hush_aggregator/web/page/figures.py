"""What the templates show of one round: figures, rounded for people and exact for programs, and charts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TypeVar

from hush_aggregator.estimate.estimates import (
    ANYTIME,
    ANYTIME_POPULATION,
    ENROLLED,
    POPULATION,
    REPORTERS,
    Interval,
    Intervals,
)
from hush_aggregator.estimate.numerics.guard import FAILED, NOT_FINITE
from hush_aggregator.estimate.process import CRASHED, TOO_SLOW
from hush_aggregator.estimate.result import Result
from hush_aggregator.publish.presentation import (
    MONITOR,
    MOST_DECIMALS,
    NumberFormat,
    PageNumberFormat,
    ReportProblem,
    interval_name,
    report_problems,
)
from hush_aggregator.web.page.numbers import shown_exact
from hush_aggregator.web.page.view import TaskStatus, TaskView, folded
from hush_common.axis import Axis, Ticks, step_below
from hush_common.formatting import exact, whole
from hush_common.task import Task

ORDER = (ANYTIME, ANYTIME_POPULATION, REPORTERS, POPULATION, ENROLLED)
"""The order of intervals on the page."""

FAILURES = {
    NOT_FINITE: "the calculation did not give a number",
    FAILED: "an error in hush; its log says where",
    CRASHED: "its process ended: it was killed or ran out of memory",
    TOO_SLOW: "it took too long",
}
"""Why hush could not make a figure."""

_WIDTH, _HEIGHT = 1000.0, 300.0
_ROOM = 0.08
_EDGE = 0.03  # of the width: separate points keep away from both ends
_DOTTED = 16  # a line of more points has a dot only at its end
_MOST_NUMBERS = 6  # on a vertical axis
_LEAST_HEIGHT = 1e-12  # of a vertical axis, of its largest number: floats between its numbers differ
_NEAREST, _FARTHEST = 1e-250, 1e250  # its largest number: no calculation overflows
_TOP = 3
_MOST_REPORTS = 10**10
_TABLED = 12

T = TypeVar("T")

PARTS_LISTED = 256
"""The maximum number of categories or coordinates on one page."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A vertical axis from one round number to another, and the numbers at equal distances on it, from the top."""

    axis: Axis
    texts: Sequence[str]

    @classmethod
    def around(cls, intervals: Sequence[Interval], values: Sequence[float], wording: NumberFormat) -> "Scale | None":
        """Return the scale that shows all of these, in the unit of a format; None if it would have no height."""
        ends = [wording.factor * end for end in [*values, *(end for interval in intervals for end in interval)]]
        low, high = min(ends), max(ends)
        farthest = max(-low, high)
        if not (high - low > _LEAST_HEIGHT * farthest and _NEAREST < farthest < _FARTHEST):
            return None
        ticks = Ticks.around(low, high, _MOST_NUMBERS)
        numbers = [number / wording.factor for number in ticks.values]
        shown = replace(wording, decimals=min(ticks.decimals, MOST_DECIMALS))
        return cls(Axis(numbers[0], numbers[-1]), [shown.value(number) for number in reversed(numbers)])

    @property
    def places(self) -> list[float]:
        """Where the numbers are in the height of a chart."""
        return [place * _HEIGHT / (len(self.texts) - 1) for place in range(len(self.texts))]


@dataclass(frozen=True, slots=True)
class TimeMark:
    """A mark on a time axis: where it is, as a share of its length, and the lines of its label."""

    share: float
    lines: Sequence[str]

    @property
    def place(self) -> float:
        return self.share * _WIDTH


@dataclass(frozen=True, slots=True)
class Chart:
    """Points with intervals, as places; title and description are for people who cannot see it.

    Points of one growing sample are a line with a band around it. Separate samples have an error bar for each point.
    """

    title: str
    description: str
    points: Sequence[tuple[float, float]]
    intervals: Sequence[tuple[float, float, float]]  # from left to right: x, and y of the upper and of the lower end
    scale: Scale
    across: Sequence[str] | Sequence[TimeMark]  # words at both ends; of a line the marks of its time axis
    is_line: bool

    @classmethod
    def of(
        cls,
        scale: Scale,
        points: Sequence[tuple[float, float, Interval | None]],
        words: tuple[str, str],
        across: Sequence[str] | Sequence[TimeMark],
        *,
        span: tuple[float, float] | None = None,
    ) -> "Chart":
        """Draw points: the place from left to right, the value, and an interval if there is one.

        With a span, it is a line over that span. Without one, it is separate points.
        """
        room = _EDGE * (points[-1][0] - points[0][0])
        start, end = span or (points[0][0] - room, points[-1][0] + room)

        def place(x: float) -> float:
            return (x - start) / (end - start) * _WIDTH

        def down(value: float) -> float:
            return _HEIGHT - scale.axis.place(value, _HEIGHT)

        drawn = [(place(x), down(value)) for x, value, _ in points]
        intervals = [(place(x), down(ends[1]), down(ends[0])) for x, _, ends in points if ends is not None]
        return cls(*words, drawn, intervals, scale, across, is_line=span is not None)

    @property
    def band(self) -> Sequence[tuple[float, float]]:
        """The corners of the band."""
        return [(x, high) for x, high, _ in self.intervals] + [(x, low) for x, _, low in reversed(self.intervals)]

    @property
    def dots(self) -> Sequence[tuple[float, float]]:
        return self.points[-1:] if self.is_line and len(self.points) > _DOTTED else self.points


@dataclass(frozen=True, slots=True)
class PartFigures:
    """A category, or a coordinate of a vector. `place` is where the document has it, `interval` is simultaneous."""

    name: str
    place: str
    figure: str
    value: float | None
    wording: NumberFormat
    axis: Axis
    individual: Intervals
    methods: Mapping[str, str]
    target: str | None
    interval: Interval | None
    n: int | None = None

    @property
    def is_share(self) -> bool:
        """Whether it is a category; all of those have the same number of reports."""
        return self.n is None

    @property
    def is_below(self) -> bool:
        """Whether it is a share below zero, which only noise can make."""
        return self.is_share and self.value is not None and self.value < 0

    @property
    def ends(self) -> tuple[str, str]:
        return shown_exact(self.axis.low), shown_exact(self.axis.high)


@dataclass(frozen=True, slots=True)
class PartsPage:
    """A page of a long table: parts whose names contain `text`, from the number `start` (from 0) of those on.

    Categories are in the order of their shares, the largest first, or `in_order` of the task.
    """

    text: str
    in_order: bool
    start: int
    total: int  # parts on all pages
    rows: Sequence[PartFigures]

    @classmethod
    def of(cls, parts: Sequence[PartFigures], text: str = "", start: int = 0, *, in_order: bool = False) -> "PartsPage":
        """Return the page with the number `start`, or the last one. Case and width of letters do not matter."""
        wanted = folded(text)
        found = [row for row in parts if wanted in folded(row.name)] if wanted else list(parts)
        if found and found[0].is_share and not in_order:
            found.sort(key=lambda row: -math.inf if row.value is None else row.value, reverse=True)
        last = max(0, len(found) - 1)
        start = min(start, last) // PARTS_LISTED * PARTS_LISTED
        return cls(text, in_order, start, len(found), found[start : start + PARTS_LISTED])

    @property
    def previous(self) -> int | None:
        return self.start - PARTS_LISTED if self.start else None

    @property
    def next(self) -> int | None:
        end = self.start + PARTS_LISTED
        return end if end < self.total else None


@dataclass(frozen=True, slots=True)
class Goal:
    """A precision that somebody wants: a half-width in the unit of the result, and what it needs."""

    width: float
    reached: bool
    reports: int | None  # about so many in all; None for more than there are people
    shown: str


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """All that the page shows of the estimate of a round."""

    view: TaskView
    result: Result
    problems: Sequence[ReportProblem] = field(init=False)
    parts: Sequence[PartFigures] = field(init=False)

    def __post_init__(self) -> None:
        result = self.result
        object.__setattr__(self, "problems", report_problems(result.estimate.monitor, result.flags) if result.n else [])
        object.__setattr__(self, "parts", list(_rows(self.view.task, result)))

    @classmethod
    def of(cls, view: TaskView) -> "RoundFigures | None":
        return None if view.result is None else cls(view, view.result)

    @property
    def quantity(self) -> str:
        domain = self.view.task.domain
        if not domain.is_share:
            return "Average"
        return "Share" if domain.parts_field else "Share of yes"

    @property
    def wording(self) -> NumberFormat:
        task = self.view.task
        return PageNumberFormat.of_part(self.result.shared, is_share=task.domain.is_share, unit=task.unit)

    @property
    def target(self) -> str | None:
        """The target of the interval to show first."""
        if self.parts:
            return next((row.target for row in self.parts if row.target), None)
        return primary(self.result.intervals, self.result.estimate.methods, final=self.result.final)

    @property
    def interval(self) -> Interval | None:
        return self.result.intervals.get(self.target or "")

    @property
    def whom(self) -> str:
        """Whom the first interval is about, within a sentence."""
        if self.target is None:
            return ""
        about_ = self.about(self.target)
        return about_[0].lower() + about_[1:]

    @property
    def guess(self) -> str:
        """What to say before the interval: it may rule nothing out, and the reports may be wrong."""
        if self.problems:
            return "if all these reports were correct,"
        low, high = limits_of(self.view.task)
        is_idle = self.interval is not None and self.interval[0] <= low and high <= self.interval[1]
        return "so far anything from" if is_idle else "probably"

    @property
    def half_width(self) -> float | None:
        """How far the first interval reaches from the estimate, to its farther end; None if it rules nothing out."""
        mean, interval = self.result.mean, self.interval
        if mean is None or interval is None or self.problems:
            return None
        low, high = limits_of(self.view.task)
        if interval[0] <= low or high <= interval[1]:
            return None  # cut off at a bound: it says less than its width
        return max(mean - interval[0], interval[1] - mean)

    def goal(self, wanted: float | None) -> Goal | None:
        """Return what a precision needs, given in the unit that the page shows; half of today's if nobody wants one.

        An interval narrows as the root of the number of reports, and one that holds at any time a little slower.
        """
        half = self.half_width
        if half is None or self.result.final:
            return None
        factor = self.wording.factor
        width = float(step_below(half / 2)) if wanted is None else wanted / factor
        needed = self.result.n * (half / width) ** 2
        reports = None if needed > _MOST_REPORTS else max(ceil(float(f"{needed:.1e}")), self.result.n)
        return Goal(width, width >= half, reports, exact(float(f"{width * factor:.6g}")))

    @property
    def axis(self) -> Axis:
        return Axis(*limits_of(self.view.task))

    @property
    def ends(self) -> list[str]:
        return [shown_exact(end, scale=self.wording.factor) for end in limits_of(self.view.task)]

    @property
    def bands(self) -> list[tuple[str, Interval]]:
        """The intervals to draw, widest first: a class of the style sheet, and the ends."""
        return [(band_of(target), self.result.intervals[target]) for target in self._drawn]

    @property
    def title(self) -> str:
        return f"{self.quantity}: {self.wording.value(self.result.mean or 0.0)}"

    @property
    def description(self) -> str:
        said = []
        for target in self._drawn:
            ends = self.result.intervals[target]
            said.append(f"{self.about(target)}: {self.wording.interval(*ends)}")
        return "; ".join(said) or "No interval."

    @property
    def beyond(self) -> str:
        """What to say of an estimate outside its domain; empty for others."""
        low, high = limits_of(self.view.task)
        if self.result.mean is None or low <= self.result.mean <= high:
            return ""
        if self.problems:
            return "The estimate is outside the possible range. More reports like these do not help."
        more = "" if self.view.status is TaskStatus.FINAL else " More reports bring it nearer."
        return f"The estimate is outside the possible range, because of the noise. Moving it back would bias it.{more}"

    @property
    def intervals(self) -> list[str]:
        """The targets of all intervals, the one to show first before the others."""
        if self.result.mean is None:
            return []
        return sorted(self.result.intervals, key=lambda target: (target != self.target, ORDER.index(target)))

    @property
    def intervals_axis(self) -> Axis | None:
        ends = [end for interval in self.result.intervals.values() for end in interval]
        return Axis.around(ends if self.result.mean is None else [*ends, self.result.mean], _ROOM)

    @property
    def confidence(self) -> str:
        return exact(self.result.confidence, scale=100)

    @property
    def top(self) -> list[PartFigures]:
        """The rows on a card: the most frequent categories, on an axis of their own, or the first coordinates."""
        if not self.view.task.domain.is_share:
            return list(self.parts[:_TOP])
        rows = sorted(self.parts, key=lambda row: -(row.value or 0.0))[:_TOP]
        axis = Axis(0.0, max([0.01, *(row.value or 0.0 for row in rows)]))
        return [replace(row, axis=axis) for row in rows]

    @property
    def individual(self) -> list[tuple[str, str]]:
        """The targets of the parts' individual intervals, and what each is about."""
        return [(one, self.about(one)) for one in ORDER if any(one in row.individual for row in self.parts)]

    @property
    def monitor(self) -> str | None:
        return self.result.estimate.monitor

    @property
    def verdict(self) -> ReportProblem:
        return MONITOR.get(self.monitor, ReportProblem(str(self.monitor), ""))

    @property
    def verdict_class(self) -> str:
        return {"ok": "good", None: "early"}.get(self.monitor, "bad")

    @property
    def flags(self) -> list[ReportProblem]:
        return report_problems(None, self.result.flags)

    @property
    def weights(self) -> str:
        pooled = self.result.estimate.pooled
        weights = {} if pooled is None else pooled.weights
        return ", ".join(f"{name}: {exact(round(weight, 4))}" for name, weight in weights.items())

    def failed(self, name: str) -> str:
        """Return what hush could not make, by its name in the document."""
        target = name.removeprefix("joint_")
        return "The estimate" if target == "estimate" else f"The interval for “{about(target).lower()}”"

    @property
    def _drawn(self) -> list[str]:
        """The interval to watch, and within it the one for the population; of final figures the latter alone."""
        methods = self.result.estimate.methods
        wanted = [primary(self.result.intervals, methods, final=final) for final in (self.result.final, True)]
        return list(dict.fromkeys(target for target in wanted if target is not None))

    def about(self, target: str) -> str:
        """Return whom an interval is about."""
        return about(target, next((part.methods[target] for part in self.result.parts if target in part.methods), ""))


def name_time(time: datetime) -> str:
    """Return a time (UTC) to a minute, for a person."""
    return f"{time.day} {time:%b %Y, %H:%M}"


def name_round(task: Task, number: int) -> str:
    """Return the day on which a round opens, with the hour if rounds are shorter; empty if it is unknown."""
    opens = task.round_opens(number)
    if opens is None or task.round_every is None:
        return ""
    opens = opens.astimezone(UTC)
    return f"{opens.day} {opens:%b %Y}" if task.round_every >= timedelta(days=1) else name_time(opens)


@dataclass(frozen=True, slots=True)
class RoundRow:
    """The estimate of one round, with the interval to show first."""

    result: Result
    target: str | None
    interval: Interval | None
    wording: NumberFormat

    @property
    def day(self) -> str:
        """When the round opens; empty if it is unknown."""
        return name_round(self.result.task, self.result.round)


@dataclass(frozen=True, slots=True)
class Rounds:
    """The last rounds, each estimated from its own reports: a chart if there are two estimates, and a table."""

    caption: str
    rows: Sequence[RoundRow]
    chart: Chart | None

    @property
    def has_days(self) -> bool:
        return any(row.day for row in self.rows)

    @classmethod
    def of(cls, view: TaskView) -> "Rounds":
        rows = []
        for one in view.rounds:
            target = primary(one.intervals, one.estimate.methods, final=one.final)
            interval = one.intervals.get(target or "")
            rows.append(RoundRow(one, target, interval, PageNumberFormat.of(one)))
        of = f"of {whole(view.task.rounds)} rounds"
        is_cut = view.latest >= len(rows)
        caption = f"The last {len(rows)} {of}." if is_cut else f"{len(rows)} {of} so far."
        return cls(caption, rows[::-1], _chart_of(view, rows))


def _chart_of(view: TaskView, rows: Sequence[RoundRow]) -> Chart | None:
    known = [(row, row.result.mean) for row in rows if row.result.n and row.result.mean is not None]
    intervals = [row.interval for row, _ in known if row.interval is not None]
    if len(known) <= 1:
        return None
    scale = Scale.around(intervals, [mean for _, mean in known], known[-1][0].wording)
    if scale is None:
        return None
    first, last = known[0][0].result.round, known[-1][0].result.round
    said = f"From round {first} to round {last}, each estimated from its own reports."
    return Chart.of(
        scale,
        [(row.result.round, mean, row.interval) for row, mean in known],
        ("The rounds one after the other", said),
        (name_round(view.task, first) or f"round {first}", name_round(view.task, last) or f"round {last}"),
    )


def about(target: str, method: str = "") -> str:
    """Return whom an interval is about."""
    name = interval_name(target, method)
    return name[0].upper() + name[1:]


def meaning(target: str) -> str:
    """Return what an interval takes into account."""
    return {
        REPORTERS: "The devices that reported. Includes their noise.",
        POPULATION: "Everyone they represent. Includes who happened to answer. Correct if they are a random sample.",
        ENROLLED: "All who were asked. Includes who happened to answer. Correct if they are a random part of them.",
        ANYTIME: "Wider, so that it stays correct however often you look.",
        ANYTIME_POPULATION: "Wider, so that it stays correct however often you look. Needs a random sample.",
    }.get(target, "")


def band_of(target: str) -> str:
    """Return the class of the style sheet for an interval: pale for an anytime interval, else darker."""
    return "anytime" if target in (ANYTIME, ANYTIME_POPULATION) else "population"


def primary(intervals: Intervals, methods: Mapping[str, str], *, final: bool) -> str | None:
    """Return the target of the interval to show first: the anytime interval until the round is closed."""
    whom = POPULATION if methods.get(ANYTIME, "").startswith(POPULATION) else REPORTERS
    wanted = (whom, POPULATION, REPORTERS, ENROLLED, ANYTIME) if final else (ANYTIME, whom, *ORDER)
    return next((target for target in wanted if target in intervals), None)


def limits_of(task: Task) -> Interval:
    """Return the least and the largest value of a number or a bit."""
    return task.domain.parts[0].axis


def _rows(task: Task, result: Result) -> Iterator[PartFigures]:
    """The categories or coordinates; none of a number or a bit."""
    domain, shared = task.domain, None
    if not domain.parts_field:
        return
    if domain.is_share:  # shares have one axis, up to the largest end
        reached = [end for one in result.parts for ends in one.joint_intervals.values() for end in ends]
        reached += [one.mean or 0.0 for one in result.parts]
        shared = Axis(0.0, min(1.0, max(0.01, *reached)) if reached else 1.0)
    for number, (one, of) in enumerate(zip(result.parts, domain.parts, strict=False)):
        target = primary(one.joint_intervals, one.methods, final=result.final)
        yield PartFigures(
            name=one.name,
            place=f"{domain.parts_field}.{number}",
            figure=f"{domain.parts_field}.{number}.{'frequency' if domain.is_share else 'mean'}",
            value=one.mean,
            wording=PageNumberFormat.of_part(one, is_share=domain.is_share),
            axis=shared or Axis(*of.axis),
            individual=one.intervals,
            methods=one.methods,
            target=target,
            interval=one.joint_intervals.get(target or ""),
            n=None if domain.is_share else one.n,
        )


def spread(points: Sequence[T]) -> list[T]:
    """Return at most a dozen of these, with the first and the last."""
    if len(points) <= _TABLED:
        return list(points)
    step = (len(points) - 1) / (_TABLED - 1)
    return [points[round(place * step)] for place in range(_TABLED)]
