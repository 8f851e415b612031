"""The page over time: steps on a time axis, the rate of reports, and when a goal is reached."""

import dataclasses
import html
import itertools
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_results import result_of, single

from hush_aggregator import Estimate
from hush_aggregator.http.page.figures import Scale, TimeMark
from hush_aggregator.http.page.pages import render_task
from hush_aggregator.http.page.rendered import shown_of
from hush_aggregator.http.page.timeline import Rate, TimeAxis, TimeCourse, name_days
from hush_aggregator.http.page.view import TaskView
from hush_aggregator.presentation import PageNumberFormat
from hush_aggregator.store.base import Origin, Step, TaskState
from hush_aggregator.store.steps import DAY, HOUR
from hush_common.task import make_task

NOW = datetime(2026, 6, 10, 15, 40, tzinfo=UTC)
NUMBER = {"kind": "number", "lower": 0.0, "upper": 10.0, "unit": "kg"}
DRAFT: dict[str, Any] = {"id": "t", "epsilon": "1", "domain": NUMBER}
DAILY = DRAFT | {"rounds": 12, "round_every": "1d", "opens": "2026-06-02T00:00:00Z", "epsilon": "12"}
PERCENT = PageNumberFormat("%", 100, 1)
GOOD = single(1000, 3.0, intervals={"anytime": (2.0, 4.0)}, methods={"anytime": "reporters-laplace-mixture"})


def step(ago: timedelta, n: int) -> Step:
    """A step at the end of the hour so long before now."""
    until = int((NOW - ago).timestamp()) // HOUR * HOUR + HOUR
    return Step(until, n, 3.0, (3.0 - 30 / n, 3.0 + 30 / n))


def steady(hours: int, an_hour: float, last: int = 1000) -> list[Step]:
    """One step an hour."""
    return [step(timedelta(hours=k), round(last - k * an_hour)) for k in reversed(range(hours))]


def shown(
    steps: Sequence[Step],
    estimate: Estimate | None = GOOD,
    *,
    draft: dict[str, Any] = DRAFT,
    **view: Any,  # noqa: ANN401
) -> TaskView:
    task = make_task(dict(draft))
    result = None if estimate is None else dataclasses.replace(result_of(task, estimate), round=view.get("latest", 0))
    settings: dict[str, Any] = {"state": TaskState.OPEN, "origin": Origin.FILE, "ended": False, "now": NOW}
    return TaskView(task, **(settings | {"result": result, "n": 1000, "steps": steps} | view))


def labels_of(marks: Sequence[object]) -> list[str]:
    return [" ".join(mark.lines) for mark in marks if isinstance(mark, TimeMark)]


def text_of(view: TaskView) -> str:
    page = render_task(view, "/", NOW).partition("<main")[2]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_the_chart_has_a_point_at_the_time_of_each_step_and_its_labels_are_times() -> None:
    steps = [step(timedelta(hours=5), 100), step(timedelta(hours=2), 300), step(timedelta(hours=0), 1000)]
    course = TimeCourse.of(shown(steps))
    assert course is not None
    assert labels_of(course.chart.across) == ["12:00 10 Jun", "14:00", "16:00"]
    places = [x for x, _ in course.chart.points]
    assert places == pytest.approx([0, 600, 5 * 200 * (4 + 40 / 60) / 5], abs=0.01)  # the last hour is not over
    assert [row[:2] for row in course.rows] == [
        ("10 Jun 2026, 15:40", "1 000"),
        ("10 Jun 2026, 14:00", "300"),
        ("10 Jun 2026, 11:00", "100"),
    ]
    text = text_of(shown(steps))
    assert "10 Jun 2026, 11:00 to 10 Jun 2026, 15:40 UTC: by the hour" in text
    assert "From 10 Jun 2026, 11:00 to 10 Jun 2026, 15:40 UTC, from 100 to 1 000 reports." in text


def test_before_its_second_point_a_chart_says_when_it_can_come() -> None:
    first = "A chart appears here once it has two points, one for each hour with 10 or more new reports."
    assert f"Over time {first} There is none yet." in text_of(shown([]))
    in_this_hour = text_of(shown([step(timedelta(0), 1000)]))
    assert f"{first} The first is there. The second can come after 10 Jun 2026, 16:00 UTC." in in_this_hour
    assert "A chart appears" not in text_of(shown(steady(2, 50)))
    assert "A chart appears" not in text_of(shown([], state=TaskState.CLOSED))
    assert "A chart appears" not in text_of(shown([], single(0, None)))


@pytest.mark.parametrize(
    ("reports", "numbers"),
    [
        (2391, ["2 500", "2 000", "1 500", "1 000", "500", "0"]),
        (55, ["60", "40", "20", "0"]),
        (20, ["20", "15", "10", "5", "0"]),
    ],
)
def test_the_axis_of_reports_has_round_numbers(reports: int, numbers: list[str]) -> None:
    course = TimeCourse.of(shown([Step(HOUR, 0, None, None), Step(2 * HOUR, reports, None, None)]))
    assert course is not None
    assert course.chart.scale.texts == numbers


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.sampled_from([PageNumberFormat("cm", 1, 1), PERCENT]))
def test_a_vertical_axis_has_round_numbers_in_its_unit_and_everything_inside(
    low: float, height: float, wording: PageNumberFormat
) -> None:
    scale = Scale.around([(low, low + height)], [low + height / 2], wording)
    assert scale is not None
    slack = (scale.axis.high - scale.axis.low) * 1e-6
    assert scale.axis.low - slack <= low < low + height <= scale.axis.high + slack
    assert 3 <= len(scale.texts) <= 6
    numbers = [text.removesuffix(f" {wording.unit}").replace("\N{MINUS SIGN}", "-") for text in scale.texts]
    values = [Decimal(number.replace(" ", "")) for number in numbers]
    (step,) = {upper - lower for upper, lower in itertools.pairwise(values)}
    assert step.normalize().as_tuple().digits in {(1,), (2,), (5,)}
    assert len({value.as_tuple().exponent for value in values}) == 1  # as many decimals each
    assert all(value % step == 0 for value in values)


def test_a_vertical_axis_of_one_number_or_of_numbers_that_overflow_is_none() -> None:
    assert Scale.around([], [3.0], PERCENT) is None
    assert Scale.around([(-1.7e308, 1.7e308)], [0.0], PERCENT) is None


@given(st.integers(0, 4 * 10**9), st.integers(1, 40 * 365 * 24))
def test_a_time_axis_ends_with_the_hours_of_its_points_and_has_a_few_marks(first: int, hours: int) -> None:
    first = first // HOUR * HOUR
    axis = TimeAxis.around(first + 600, first + hours * HOUR - 600)
    assert (axis.start, axis.end) == (first, first + hours * HOUR)
    assert 2 <= len(axis.marks) <= 5
    shares = [mark.share for mark in axis.marks]
    assert 0 <= shares[0] < shares[-1] <= 1
    assert all(later - earlier >= 0.22 for earlier, later in itertools.pairwise(shares))  # room for labels
    for share in shares:
        time = datetime.fromtimestamp(round(axis.start + share * (axis.end - axis.start)), UTC)
        assert (time.minute, time.second) == (0, 0)
        assert time.hour == 0 or hours <= 48
        assert time.day == 1 or hours <= 84 * 24


@pytest.mark.parametrize(
    ("hours", "labels"),
    [
        (2, ["13:00 10 Jun", "14:00", "15:00", "16:00"]),
        (5, ["10:00 10 Jun", "12:00", "14:00", "16:00"]),
        (30, ["12:00 9 Jun", "10 Jun", "12:00"]),
        (3 * 24, ["8 Jun", "9 Jun", "10 Jun"]),
        (12 * 24, ["30 May", "3 Jun", "7 Jun"]),
        (300 * 24, ["Sep 2025", "Dec", "Mar 2026", "Jun"]),
        (3 * 365 * 24, ["Jul 2023", "Jul 2024", "Jul 2025"]),
    ],
)
def test_days_are_named_where_hours_would_not_tell_and_years_where_they_begin(hours: int, labels: list[str]) -> None:
    assert labels_of(TimeAxis.around(NOW.timestamp() - hours * HOUR, NOW.timestamp()).marks) == labels


def test_without_an_estimate_the_chart_has_the_number_of_reports() -> None:
    counts = [dataclasses.replace(one, mean=None, interval=None) for one in steady(6, 50)]
    domain = {"kind": "category", "labels": ["a", "b", "c"]}
    view = shown(counts, Estimate(1000), draft=DRAFT | {"domain": domain})
    course = TimeCourse.of(view)
    assert course is not None
    assert (course.chart.band, course.chart.scale.texts) == ([], ["1 000", "800", "600", "400", "200", "0"])
    assert "Reports over time" in text_of(view)
    assert "The band is correct" not in text_of(view)


@pytest.mark.parametrize("steps", [[], steady(1, 10)])
def test_one_step_is_no_course_and_no_rate(steps: list[Step]) -> None:
    text = text_of(shown(steps))
    assert "The same as a table" not in text
    assert " a day" not in text
    assert "How quickly reports come is not known yet." in text


@pytest.mark.parametrize("an_hour", [10.0, 12.5, 90.0])
@pytest.mark.parametrize("hours", [5, 30, 170])
def test_a_steady_rate_is_found(hours: int, an_hour: float) -> None:
    rate = Rate.of(shown(steady(hours, an_hour, last=20_000)))
    assert rate is not None
    assert rate.a_day == pytest.approx(24 * an_hour, rel=0.12)


def test_a_rate_is_that_of_today_and_falls_in_silence() -> None:
    busy_before = [*steady(24 * 6, 100, last=17_360)[:-28], *steady(28, 10, last=15_200)]
    recent = Rate.of(shown(busy_before))
    assert recent is not None
    assert recent.a_day == pytest.approx(240, rel=0.05)
    rates = []
    for silent in range(1, 9):
        steps = [dataclasses.replace(one, until=one.until - silent * DAY) for one in steady(48, 20, last=5000)]
        rate = Rate.of(shown(steps))
        assert rate is not None
        rates.append(rate.a_day)
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[:-1]))
    assert rates[-1] == 0.0


@pytest.mark.parametrize(
    ("a_day", "words"),
    [
        (1234.0, "about 1 200 a day"),
        (1.4, "about 1 a day"),
        (0.5, "about 4 a week"),
        (0.1, "about 3 a month"),
        (0.01, "less than one a month"),
        (0.0, "hardly any in the last week"),
    ],
)
def test_a_rate_is_in_the_unit_in_which_it_is_a_whole_number(a_day: float, words: str) -> None:
    assert Rate(a_day).words == words


@pytest.mark.parametrize(
    ("days", "words"),
    [(0.01, "1 hour"), (0.2, "5 hours"), (1.0, "1 day"), (4.2, "5 days"), (141.0, "150 days"), (900.0, "2.5 years")],
)
def test_a_duration_is_rounded_up(days: float, words: str) -> None:
    assert name_days(days) == words


SOON = DRAFT | {"closes": "2026-06-13T15:40:00Z"}
SILENT = [dataclasses.replace(one, until=one.until - 8 * DAY) for one in steady(30, 20)]


@pytest.mark.parametrize(
    ("steps", "settings", "words"),
    [
        (steady(24, 40), {}, "needs about 4 000 reports in all: at today's rate in about 4 days."),
        (steady(5, 200), {}, "needs about 4 000 reports in all: at today's rate in about 14 hours."),
        (steady(30, 10), {"draft": SOON}, "at today's rate in about 13 days, but the task closes in 3 days."),
        (steady(24, 40), {"draft": SOON | {"closes": "2026-07-13T00:00:00Z"}}, "at today's rate in about 4 days."),
        (steady(8, 40), {"draft": DAILY, "latest": 8}, "in about 3 days, but the round ends in 9 hours."),
        (SILENT, {}, "needs about 4 000 reports in all, but in the last week fewer than ten came."),
        (steady(2, 100), {}, "needs about 4 000 reports in all. How quickly reports come is not known yet."),
        (
            steady(24, 40),
            {"draft": DRAFT | {"enrolled": 2000}},
            "needs about 4 000 reports in all, more than the 2 000 devices that were asked.",
        ),
        (steady(24, 40), {"state": TaskState.WITHDRAWN}, "needs about 4 000 reports in all."),
        (steady(24, 40), {"draft": DRAFT | {"closes": "2026-06-10T15:00:00Z"}}, "needs about 4 000 reports in all."),
    ],
)
def test_when_a_goal_is_reached_is_said_as_far_as_it_is_known(
    steps: list[Step], settings: dict[str, Any], words: str
) -> None:
    text = text_of(shown(steps, **settings))
    assert f"{words} " in text
    if "rate" not in words and "ends" not in words:
        assert "today's rate" not in text


def test_a_task_that_no_device_answers_and_an_earlier_round_have_no_rate() -> None:
    assert Rate.of(shown(steady(24, 40), state=TaskState.CLOSED)) is None
    earlier = dataclasses.replace(shown(steady(24, 40), draft=DAILY, latest=8))
    assert Rate.of(earlier) is not None
    assert Rate.of(dataclasses.replace(earlier, latest=9)) is None


def test_rounds_are_named_by_their_days_where_these_are_known() -> None:
    results = [dataclasses.replace(shown([], draft=DAILY).result, round=k) for k in range(3)]  # type: ignore[type-var]
    view = shown([], draft=DAILY, latest=2, rounds=results)
    text = text_of(view)
    assert "round 2 of 12 (4 Jun 2026), " in text
    assert "4 Jun 2026 round 2 1 000" in text
    assert "2 Jun 2026 4 Jun 2026" in text  # the ends of the chart
    hourly = DAILY | {"round_every": "90m"}
    assert "2 Jun 2026, 03:00 round 2 1 000" in text_of(shown([], draft=hourly, latest=2, rounds=results_of(hourly)))


def results_of(draft: dict[str, Any]) -> list[Any]:
    return [dataclasses.replace(shown([], draft=draft).result, round=k) for k in range(3)]  # type: ignore[type-var]


def test_a_page_is_rendered_again_when_its_steps_change() -> None:
    steps = steady(5, 40)
    view = shown(steps)
    same = dataclasses.replace(view, steps=list(steps))
    assert list(shown_of(view)) == list(shown_of(same))
    later = dataclasses.replace(view, steps=[*steps, Step(steps[-1].until + HOUR, 2000)])
    assert list(shown_of(view)) != list(shown_of(later))
