"""How a round came about over time: a chart of its steps, the rate of reports, and when a goal is reached."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from hush_aggregator.publish.presentation import NumberFormat, PageNumberFormat
from hush_aggregator.store.base import Step
from hush_aggregator.store.steps import DAY, HOUR, LEAST
from hush_aggregator.web.page.figures import Chart, Scale, TimeMark, name_time, spread
from hush_aggregator.web.page.view import TaskStatus, TaskView
from hush_common.formatting import significant, whole

_COUNTS = PageNumberFormat("", 1, 0)
_LEAST_SPAN = 3 * HOUR  # of a rate
_ENOUGH = 50  # reports of a rate: fewer than ten of them are not in a step yet
_WEEK = 7 * DAY
_YEAR = 365
_MONTH = 30
_HUNDRED = 100


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """An axis of whole hours (UTC), with marks at full hours, at midnights, or at the beginnings of months."""

    start: int  # in seconds since 1970
    end: int
    marks: Sequence[TimeMark]

    @classmethod
    def around(cls, first: float, last: float) -> "TimeAxis":
        """Return the axis with few marks that shows these times."""
        start = int(first // HOUR * HOUR)
        end = max(int(-(-last // HOUR) * HOUR), start + HOUR)
        times = next(found for found in _marks(start, end) if found)
        labels = _labels(times)
        return cls(
            start,
            end,
            [
                TimeMark((time.timestamp() - start) / (end - start), label)
                for time, label in zip(times, labels, strict=True)
            ],
        )


_HOURS = (1, 2, 3, 6, 12)
_DAYS = (1, 2, 3, 4, 7, 14, 21)
_MONTHS = (1, 2, 3, 6)
_MOST_PARTS = 4  # between marks: as many labels as fit on a phone


def _marks(start: int, end: int) -> Iterator[list[datetime]]:
    """Yield the marks of each distance at which they are not too many, the smallest first."""
    for hours in (*_HOURS, *(24 * days for days in _DAYS)):
        if end - start <= _MOST_PARTS * hours * HOUR:
            whole_hours = min(hours, 24) * HOUR
            yield [_utc(time) for time in range(-(-start // whole_hours) * whole_hours, end + 1, hours * HOUR)]
    began = _utc(start)
    month = began.year * 12 + began.month - 1
    month += start > _month(month).timestamp()
    for months in itertools.chain(_MONTHS, itertools.count(12, 12)):
        if end - start <= _MOST_PARTS * months * _MONTH * DAY:
            yield [time for k in range(_MOST_PARTS + 1) if (time := _month(month + k * months)).timestamp() <= end]


def _utc(time: float) -> datetime:
    return datetime.fromtimestamp(time, UTC)


def _month(number: int) -> datetime:
    """Return the beginning of a month, counted from the year 0."""
    return datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC)


def _labels(times: Sequence[datetime]) -> list[list[str]]:
    """Return the lines of each label. The first one names its day or year, others only a new one."""
    if all(time.day == 1 and not time.hour for time in times) and len(times) > 1:
        named = ["", *(f"{time:%Y}" for time in times)]
        return [
            [f"{time:%b}", *([year] if year != before else [])]
            for time, (before, year) in zip(times, itertools.pairwise(named), strict=True)
        ]
    labels = [[f"{time:%H:%M}" if time.hour else _day(time)] for time in times]
    if times[0].hour:
        labels[0].append(_day(times[0]))
    return labels


def _day(time: datetime) -> str:
    return f"{time.day} {time:%b}"


@dataclass(frozen=True, slots=True)
class TimeCourse:
    """The steps of a round: a chart of the estimate, or of the reports where there is none, and the same as a table."""

    chart: Chart
    has_estimate: bool
    span: str
    rows: Sequence[tuple[str, str, str, str]]  # time, reports, estimate, interval; empty without one

    @classmethod
    def of(cls, view: TaskView) -> "TimeCourse | None":
        """Return the course; None if fewer than two steps are known."""
        steps = view.steps
        if len(steps) <= 1 or view.result is None:
            return None
        known = [(step, step.mean) for step in steps if step.mean is not None and step.interval is not None]
        has_estimate = len(known) > 1
        values = known if has_estimate else [(step, float(step.n)) for step in steps]
        wording = PageNumberFormat.of(view.result) if has_estimate else _COUNTS
        intervals = [step.interval for step, _ in values if step.interval is not None] if has_estimate else [(0.0, 0.0)]
        scale = Scale.around(intervals, [value for _, value in values], wording)
        if scale is None:
            return None
        now = view.now.timestamp()
        times = TimeAxis.around(_time_of(values[0][0], now), _time_of(values[-1][0], now))
        first, last = steps[0], steps[-1]
        span = f"{_named(first, now)} to {_named(last, now)} UTC"
        said = f"From {span}, from {whole(first.n)} to {whole(last.n)} reports."
        chart = Chart.of(
            scale,
            [(_time_of(step, now), value, step.interval if has_estimate else None) for step, value in values],
            ("The estimate over time" if has_estimate else "Reports over time", said),
            times.marks,
            span=(times.start, times.end),
        )
        rows = [_row(step, wording, now) for step in spread(steps)]
        return cls(chart, has_estimate, span, rows[::-1])


def course_to_come(view: TaskView) -> str:
    """Return when the chart of a round that has none yet begins; empty if it has one, or if there will be none."""
    if len(view.steps) > 1 or not view.has_estimate or view.status is not TaskStatus.LIVE or view.round != view.latest:
        return ""
    known = "There is none yet."
    if view.steps:
        after = datetime.fromtimestamp(view.steps[0].until, UTC)
        known = f"The first is there. The second can come after {name_time(after)} UTC."
    return f"A chart appears here once it has two points, one for each hour with {LEAST} or more new reports. {known}"


def _row(step: Step, wording: NumberFormat, now: float) -> tuple[str, str, str, str]:
    mean = "" if step.mean is None else wording.value(step.mean)
    interval = "" if step.interval is None else wording.interval(*step.interval)
    return _named(step, now), whole(step.n), mean, interval


def _time_of(step: Step, now: float) -> float:
    """The end of its hour; of the current one, now."""
    return min(step.until, now)


def _named(step: Step, now: float) -> str:
    return name_time(datetime.fromtimestamp(_time_of(step, now), UTC))


@dataclass(frozen=True, slots=True)
class Rate:
    """How quickly reports come, from stored steps."""

    a_day: float

    @classmethod
    def of(cls, view: TaskView) -> "Rate | None":
        """Return the rate of the round that is open now, over a day or more if it is so old; None if it is unknown."""
        steps, now = view.steps, view.now.timestamp()
        if view.status is not TaskStatus.LIVE or view.round != view.latest or len(steps) <= 1:
            return None
        last = steps[-1]
        if now - last.until >= _WEEK:
            return cls(0.0)
        earlier = [step for step in steps[:-1] if step.until <= now - DAY and step.n <= last.n - _ENOUGH]
        first = earlier[-1] if earlier else steps[0]
        seconds = now - first.until
        return None if seconds < _LEAST_SPAN else cls((last.n - first.n) * DAY / seconds)

    @property
    def words(self) -> str:
        """`about 120 a day`."""
        if not self.a_day:
            return "hardly any in the last week"
        for factor, unit in ((1.0, "day"), (_WEEK / DAY, "week"), (float(_MONTH), "month")):
            if self.a_day * factor >= 1:
                return f"about {_about(self.a_day * factor)} a {unit}"
        return "less than one a month"


def _about(number: float) -> str:
    """Return a positive number with two digits, as a whole one."""
    return whole(round(float(f"{number:.2g}")))


def name_days(days: float) -> str:
    """Return a duration for a person, rounded up: `5 hours`, `3 days`, `150 days`, `2.5 years`."""
    if days > 2 * _YEAR:
        return f"{significant(days / _YEAR, 2)} years"
    number, unit = (days * 24, "hour") if days < 1 else (days, "day")
    counted = max(1, ceil(number))
    if counted >= _HUNDRED:
        counted = -10 * (-counted // 10)
    return f"{whole(counted)} {unit}{'s' if counted > 1 else ''}"


def forecast(view: TaskView, reports: int) -> str:
    """Return when so many reports are there, as the rest of a sentence about them; empty if devices do not answer."""
    task = view.task
    if task.enrolled is not None and reports > task.enrolled:
        return f", more than the {whole(task.enrolled)} devices that were asked."
    if view.status is not TaskStatus.LIVE or view.round != view.latest or view.result is None:
        return "."
    rate = Rate.of(view)
    if rate is None:
        return ". How quickly reports come is not known yet."
    if not rate.a_day:
        return ", but in the last week fewer than ten came."
    days = (reports - view.result.n) / rate.a_day
    end = _end_of(view)
    left = None if end is None else (end - view.now) / timedelta(days=1)
    if left is not None and days > left:
        what = "the round ends" if task.rounds > 1 else "the task closes"
        return f": at today's rate in about {name_days(days)}, but {what} in {name_days(left)}."
    return f": at today's rate in about {name_days(days)}."


def _end_of(view: TaskView) -> datetime | None:
    """When the round of a view ends, or its task."""
    task = view.task
    ends = [task.closes]
    if task.round_every is not None and view.round + 1 < task.rounds:
        ends.append(task.round_opens(view.round + 1))
    return min((end for end in ends if end is not None), default=None)
