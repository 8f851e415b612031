"""The page over time: steps on a time axis, the rate of reports, and when a goal is reached."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_results import single
from page_views import DRAFT, NOW, NUMBER, read, view_of

from hush_aggregator.store import TaskState
from hush_aggregator.store.base import Step
from hush_aggregator.store.steps import DAY, HOUR
from hush_aggregator.web.page.figures import TimeMark
from hush_aggregator.web.page.timeline import Rate, TimeAxis, TimeCourse

GOOD = single(1000, 3.0, intervals={"anytime": (2.0, 4.0)}, methods={"anytime": "reporters-laplace-mixture"})
DAILY = {**DRAFT, "rounds": 12, "round_every": "1d", "opens": "2026-06-02T00:00:00Z", "epsilon": "12"}


def step(ago: timedelta, n: int) -> Step:
    """A step at the end of the hour so long before now."""
    until = int((NOW - ago).timestamp()) // HOUR * HOUR + HOUR
    return Step(until, n, 3.0, (3.0 - 30 / n, 3.0 + 30 / n))


def steady(hours: int, an_hour: float, last: int = 1000) -> list[Step]:
    """One step an hour."""
    return [step(timedelta(hours=k), round(last - k * an_hour)) for k in reversed(range(hours))]


def labels_of(marks: Sequence[object]) -> list[str]:
    return [" ".join(mark.lines) for mark in marks if isinstance(mark, TimeMark)]


def test_the_chart_has_a_point_at_the_time_of_each_step() -> None:
    view = view_of(GOOD, steps=[step(timedelta(hours=5), 100), step(timedelta(hours=2), 300), step(timedelta(0), 1000)])
    course = TimeCourse.of(view)
    assert course is not None
    assert labels_of(course.chart.across) == ["12:00 10 Jun", "14:00", "16:00"]
    places = [x for x, _ in course.chart.points]
    assert places == pytest.approx([0, 600, 5 * 200 * (4 + 40 / 60) / 5], abs=0.01)  # the last hour is not over
    rows = [("10 Jun 2026, 15:40", "1 000"), ("10 Jun 2026, 14:00", "300"), ("10 Jun 2026, 11:00", "100")]
    assert [row[:2] for row in course.rows] == rows
    assert "10 Jun 2026, 11:00 to 10 Jun 2026, 15:40 UTC" in read(view)


def test_before_two_points_the_page_says_when_a_chart_comes() -> None:
    for steps, time in (([], "10 or more"), ([step(timedelta(0), 1000)], "10 Jun 2026, 16:00 UTC")):
        assert time in read(view_of(GOOD, steps=steps)).partition("Over time")[2]
        assert TimeCourse.of(view_of(GOOD, steps=steps)) is None
        assert Rate.of(view_of(GOOD, steps=steps)) is None
    assert "10 or more" not in read(view_of(GOOD, steps=[], state=TaskState.CLOSED))
    assert "10 or more" not in read(view_of(single(0, None), steps=[]))


@pytest.mark.medium
@given(st.integers(0, 4 * 10**9), st.integers(1, 40 * 365 * 24))
def test_a_time_axis_has_whole_hours_and_a_few_marks(first: int, hours: int) -> None:
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


@pytest.mark.parametrize("an_hour", [10.0, 90.0])
@pytest.mark.parametrize("hours", [5, 30, 170])
def test_a_steady_rate_is_found(hours: int, an_hour: float) -> None:
    rate = Rate.of(view_of(GOOD, steps=steady(hours, an_hour, last=20_000)))
    assert rate is not None
    assert rate.a_day == pytest.approx(24 * an_hour, rel=0.12)


def test_a_rate_is_that_of_today_and_falls_in_silence() -> None:
    busy_before = [*steady(24 * 6, 100, last=17_360)[:-28], *steady(28, 10, last=15_200)]
    recent = Rate.of(view_of(GOOD, steps=busy_before))
    assert recent is not None
    assert recent.a_day == pytest.approx(240, rel=0.05)
    rates = []
    for silent in range(1, 9):
        steps = [dataclasses.replace(one, until=one.until - silent * DAY) for one in steady(48, 20, last=5000)]
        rate = Rate.of(view_of(GOOD, steps=steps))
        assert rate is not None
        rates.append(rate.a_day)
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[:-1]))
    assert rates[-1] == 0.0


SOON = {**DRAFT, "closes": "2026-06-13T15:40:00Z"}
SILENT = [dataclasses.replace(one, until=one.until - 8 * DAY) for one in steady(30, 20)]


@pytest.mark.parametrize(
    ("steps", "settings", "words"),
    [
        (steady(24, 40), {}, ["about 4 days"]),
        (steady(5, 200), {}, ["about 14 hours"]),
        (steady(30, 10), {"draft": SOON}, ["about 13 days", "closes in 3 days"]),
        (steady(24, 40), {"draft": {**SOON, "closes": "2026-07-13T00:00:00Z"}}, ["about 4 days."]),
        (steady(8, 40), {"draft": DAILY, "latest": 8}, ["about 3 days", "ends in 9 hours"]),
        (SILENT, {}, ["last week"]),
        (steady(24, 40), {"draft": {**DRAFT, "enrolled": 2000}}, ["more than the 2 000"]),
        (steady(2, 100), {}, []),
        (steady(24, 40), {"state": TaskState.WITHDRAWN}, []),
        (steady(24, 40), {"draft": {**DRAFT, "closes": "2026-06-10T15:00:00Z"}}, []),
    ],
)
def test_when_a_goal_is_reached_is_said_as_far_as_it_is_known(
    steps: list[Step], settings: Mapping[str, Any], words: list[str]
) -> None:
    text = read(view_of(GOOD, steps=steps, **settings))
    (goal,) = [part.partition(" Every interval")[0] for part in text.split("needs about ")[1:]]
    assert goal.startswith("4 000 reports")
    assert [word for word in words if word not in goal] == []
    assert words or "rate in" not in goal


def test_a_closed_task_or_an_earlier_round_has_no_rate() -> None:
    assert Rate.of(view_of(GOOD, steps=steady(24, 40), state=TaskState.CLOSED)) is None
    latest = view_of(GOOD, steps=steady(24, 40), draft=DAILY, latest=8)
    assert Rate.of(latest) is not None
    assert Rate.of(dataclasses.replace(latest, latest=9)) is None


def test_rounds_are_named_by_their_days() -> None:
    for draft, day in ((DAILY, "4 Jun 2026"), ({**DAILY, "round_every": "90m"}, "2 Jun 2026, 03:00")):
        rounds = [view_of(GOOD, draft=draft, latest=k).result for k in range(3)]
        text = read(view_of(GOOD, draft=draft, latest=2, rounds=rounds))
        assert f"round 2 of 12 ({day})" in text
        assert f"{day} round 2 1 000" in text
    assert NUMBER["unit"] in text
