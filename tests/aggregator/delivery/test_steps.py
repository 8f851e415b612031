"""Which estimates become steps: those that were published, the last of each hour, and no others."""

import itertools
import math
import random
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from broker_world import DRAFT, HOUR, START, World, frame, living
from hypothesis import given
from hypothesis import strategies as st
from made_results import result_of, single

from hush import Task
from hush_aggregator import Estimate, PartEstimate, Result
from hush_aggregator.publish.steps import step_of
from hush_aggregator.store.base import PublishedStep
from hush_aggregator.store.steps import LEAST
from hush_common.errors import StoreError
from hush_common.task import make_task

TASK = make_task(DRAFT)
FROM = make_task(DRAFT | {"release_from": 25})
HOURLY = make_task(DRAFT | {"release_every": "1h"})
BOTH = make_task(DRAFT | {"release_from": 25, "release_every": "1h"})
CLOSING = make_task(DRAFT | {"closes": "2027-03-01T12:50:00Z"})


@pytest.fixture
def world(memory_path: Path) -> Iterator[World]:
    with living(memory_path / "hush.sqlite") as world:
        yield world


def later(world: World, seconds: float) -> None:
    """The clock goes on by so much, and the service takes its time to write."""
    world.offset += timedelta(seconds=seconds)
    world.wait(10)


def send(world: World, count: int) -> None:
    world.send(*(frame(world.task) for _ in range(count)))


def hours(world: World) -> list[tuple[float, int]]:
    """The hours after the start at whose end steps are, and their counts."""
    steps = world.store.steps(world.task.digest, 0)
    return [((one.until - START.timestamp()) / HOUR, one.n) for one in steps]


def last_of_hours(published: Sequence[Result]) -> list[tuple[float, int]]:
    """What `hours` is, by the definition of a step."""
    found: list[tuple[float, int]] = []
    by_hour = itertools.groupby(published, lambda one: (one.updated_at - START) // timedelta(hours=1) + 1)
    for hour, results in by_hour:
        n = list(results)[-1].n
        if n >= (found[-1][1] if found else 0) + LEAST:
            found.append((hour, n))
    return found


@pytest.mark.medium
def test_a_step_is_the_last_estimate_that_was_published_in_an_hour(world: World) -> None:
    world.serve()
    draw = random.Random(7)  # noqa: S311 - repeatable on purpose
    for _ in range(60):
        send(world, draw.randrange(6))
        later(world, draw.uniform(60, 1500))
    assert hours(world) == last_of_hours(world.published)
    assert len(hours(world)) > 5
    assert [one.n for one in world.store.steps(TASK.digest, 0)] == sorted({n for _, n in hours(world)})
    of_n = {one.n: step_of(one).step for one in world.published}
    assert world.store.steps(TASK.digest, 0) == [of_n[one.n] for one in world.store.steps(TASK.digest, 0)]


def test_a_stopped_service_goes_on_where_it_was(world: World) -> None:
    world.serve()
    send(world, 12)
    world.stop()
    assert hours(world) == [(1, 12)]
    world.serve()
    send(world, 3)
    world.stop()
    world.offset += timedelta(hours=1)
    world.serve()
    world.wait(60)
    assert hours(world) == [(1, 15)]
    send(world, 7)
    later(world, HOUR)
    assert hours(world) == [(1, 15)]
    send(world, 3)
    world.stop()
    assert hours(world) == [(1, 15), (3, 25)]


def test_a_kill_loses_no_step_and_makes_none_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.serve()
    send(world, 12)
    world.wait(10)
    assert hours(world) == [(1, 12)]
    with monkeypatch.context() as killed:  # a process that is killed writes no more
        killed.setattr(world.store, "put_steps", lambda _: 0)
        send(world, 20)
        world.stop()
    world.offset += timedelta(hours=1)
    world.serve()
    world.wait(10)
    assert hours(world) == [(1, 12), (2, 32)]  # what was published in the last seconds is in the next step


def test_a_store_that_fails_for_a_while_gets_every_step_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.serve()
    put, failures = world.store.put_steps, []

    def fail(published: Sequence[PublishedStep]) -> int:
        failures.append(published)
        raise StoreError("planted")

    monkeypatch.setattr(world.store, "put_steps", fail)
    for _ in range(3):
        send(world, 15)
        later(world, HOUR)
    assert len(failures) > 3
    assert hours(world) == []
    monkeypatch.setattr(world.store, "put_steps", put)
    world.wait(10)
    assert hours(world) == [(1, 15), (2, 30), (3, 45)]


@pytest.mark.parametrize("task", [FROM, HOURLY, pytest.param(BOTH, marks=pytest.mark.medium)])
def test_before_a_release_no_step_tells_of_a_report(world: World, task: Task) -> None:
    world.task = task
    world.serve()
    for _ in range(5):
        send(world, 11)
        world.wait(10)
        assert {n for _, n in hours(world)} <= {one.n for one in world.published}
        world.wait(HOUR / 2)
    world.wait(HOUR)
    assert hours(world) == last_of_hours([one for one in world.published if one.n])
    assert [n for _, n in hours(world)] == {FROM: [44, 55], HOURLY: [22, 44, 55], BOTH: [44, 55]}[task]
    if task.release_every is not None:  # with the hour of its release
        assert all((one.updated_at - START) % timedelta(hours=1) == timedelta(0) for one in world.published if one.n)


@pytest.mark.medium
def test_the_final_figure_is_the_last_step(world: World) -> None:
    world.task = CLOSING
    world.serve()
    send(world, 30)
    world.wait(HOUR / 2)
    send(world, 4)
    world.wait(HOUR / 2)
    assert world.estimate["final"]
    assert hours(world) == [(1, 34)]


def test_a_clock_that_was_ahead_for_a_while_leaves_no_step(world: World) -> None:
    world.serve()
    send(world, 12)
    world.wait(10)
    world.offset = timedelta(days=300)
    send(world, 12)
    world.wait(200)
    assert hours(world) == [(1, 12), (7201, 24)]
    world.offset = timedelta(hours=1)
    world.wait(10)
    send(world, 12)
    world.wait(10)
    assert hours(world) == [(1, 12), (2, 36)]


@pytest.mark.medium
def test_after_a_week_whole_days_stay_also_of_a_silent_task(world: World) -> None:
    world.serve()
    for _ in range(30):
        send(world, 10)
        later(world, HOUR - 11)
    assert len(hours(world)) == 30
    world.offset += timedelta(days=6)
    world.wait(2 * HOUR + 20)
    assert len(hours(world)) == 30
    world.offset += timedelta(days=2)
    world.wait(2 * HOUR + 20)
    assert hours(world) == [(12, 120), (36, 300)]  # midnights: it started at noon


def test_a_store_has_no_other_time_of_a_report(world: World) -> None:
    """Nothing that reports change has a time but steps, and those change with ten reports only."""
    world.serve()
    send(world, 25)
    world.wait(10)
    before = numbers(world.path)
    later(world, 1800)
    send(world, 9)
    later(world, HOUR)
    changed = {table: rows - before[table] for table, rows in numbers(world.path).items() if rows - before[table]}
    since, until = (START + timedelta(minutes=20)).timestamp(), (START + timedelta(hours=2)).timestamp()
    times = {(table, one) for table, rows in changed.items() for one in rows if since <= one <= until}
    assert times == set()
    assert {"tally", "step"} <= changed.keys()  # the step of the first hour has 34 reports now


def numbers(path: Path) -> dict[str, set[float]]:
    """The numbers in a store, by table; without what the broker says of itself."""
    with sqlite3.connect(path) as raw:
        tables = [
            name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'broker'")
        ]
        rows = {table: raw.execute(f"SELECT * FROM {table}").fetchall() for table in tables}  # noqa: S608 - our names
    raw.close()
    return {
        table: {one for row in found for one in row if isinstance(one, int | float)} for table, found in rows.items()
    }


def published(estimate: Estimate, at: datetime = START) -> PublishedStep:
    result = result_of(TASK, estimate)
    return step_of(Result(TASK, 0, result.estimate, {}, 0.95, at))


def test_the_time_of_a_step_is_the_end_of_its_hour() -> None:
    for minute, second in ((0, 0), (0, 1), (59, 59)):
        at = datetime(2027, 3, 1, 12, minute, second, 999_999 if second else 0, tzinfo=UTC)
        assert published(single(20, 0.5), at).step.until == datetime(2027, 3, 1, 13, tzinfo=UTC).timestamp()


def test_categories_vectors_and_failures_have_their_counts_alone() -> None:
    parts = tuple(PartEstimate(name=name, n=20, mean=0.5, intervals={"anytime": (0.0, 1.0)}) for name in "ab")
    for estimate in (Estimate(20, parts), Estimate(20, failures={"estimate": "failed"}), single(20, 0.5)):
        step = published(estimate).step
        assert (step.n, step.mean, step.interval) == (20, None, None)


floats = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.medium
@given(floats, floats, floats)
def test_figures_are_rounded_to_a_thousandth_of_the_interval(a: float, b: float, mean: float) -> None:
    low, high = min(a, b), max(a, b)
    step = published(single(20, mean, intervals={"anytime": (low, high)})).step
    if step.interval is None:
        assert step.mean is None
        return
    assert step.mean is not None
    assert step.interval[0] <= low <= high <= step.interval[1]
    width = high - low
    for rounded, exact in zip((step.mean, *step.interval), (mean, low, high), strict=True):
        assert abs(rounded - exact) <= width / 1024
        unit = math.ldexp(1.0, math.frexp(width)[1] - 11)
        assert width / 2048 < unit
        assert (Fraction(rounded) / Fraction(unit)).denominator == 1  # so few are possible


def test_ordinary_figures_are_kept() -> None:
    step = published(single(20, 171.3, intervals={"anytime": (160.0, 182.0)})).step
    assert step.mean == pytest.approx(171.3, abs=0.01)
    assert step.interval == (160.0, 182.0)
