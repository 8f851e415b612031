"""The contract of a store for steps, of each kind: the last published estimate of an hour, ten reports apart."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import StorePlace

from hush import Task
from hush_aggregator.ops.copy import check_reports
from hush_aggregator.store import Accepted
from hush_aggregator.store.base import PublishedStep, ServedStore, Step
from hush_aggregator.store.sqlite import back_up, put_back
from hush_aggregator.store.steps import DAY, HOUR, LEAST, hours_until
from hush_common.errors import StoreError
from hush_common.task import make_task

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": NUMBER})
DAILY = make_task(
    {"id": "daily", "epsilon": "3", "domain": NUMBER, "rounds": 3, "round_every": "1d"}
    | {"opens": "2026-01-01T00:00:00Z"}
)
START = 20_000 * DAY
FREE = itertools.count(1000)


@pytest.fixture
def store(place: StorePlace) -> Iterator[ServedStore]:
    with place.open() as store:
        store.add_tasks([HEIGHTS, DAILY])
        yield store


def step(hour: int, n: int) -> Step:
    """The estimate after n reports, in an hour after the start."""
    return Step(START + hour * HOUR, n, 0.1 * n, (0.1 * n - 1 / 3, 0.1 * n + 1 / 3), 0.9)


def put(
    store: ServedStore, *steps: tuple[int, int], task: Task = HEIGHTS, round_: int = 0, is_final: bool = False
) -> int:
    return store.put_steps([PublishedStep(task.digest, round_, step(*one), is_final=is_final) for one in steps])


def there(store: ServedStore, task: Task = HEIGHTS, round_: int = 0) -> list[tuple[int, int]]:
    """Hours and counts; all else is as it was put."""
    found = [((one.until - START) // HOUR, one.n) for one in store.steps(task.digest, round_)]
    assert store.steps(task.digest, round_) == [step(*one) for one in found]
    return found


def test_the_first_step_has_ten_reports_and_each_further_one_ten_more(store: ServedStore) -> None:
    assert put(store, (1, LEAST - 1)) == 0
    assert there(store) == []
    assert put(store, (2, 10), (3, 19), (4, 20)) == 2
    assert there(store) == [(2, 10), (4, 20)]
    put(store, (9, 500), (10, 509))
    assert there(store) == [(2, 10), (4, 20), (9, 500)]


def test_within_an_hour_the_last_estimate_stays(store: ServedStore) -> None:
    put(store, (1, 10), (1, 11), (1, 50), (2, 59), (2, 60), (2, 61))
    assert there(store) == [(1, 50), (2, 61)]


def test_rounds_and_tasks_have_their_own_steps(store: ServedStore) -> None:
    store.put_steps([PublishedStep(HEIGHTS.digest, 1, Step(START, 12))])
    assert store.steps(HEIGHTS.digest, 1) == [Step(START, 12)]  # a step without an estimate has its count
    put(store, (1, 10))
    put(store, (1, 30), task=DAILY)
    put(store, (25, 20), task=DAILY, round_=1)
    assert [there(store), there(store, DAILY), there(store, DAILY, 1)] == [[(1, 10)], [(1, 30)], [(25, 20)]]
    assert there(store, DAILY, 2) == []


def test_what_was_published_before_changes_nothing(store: ServedStore) -> None:
    put(store, (1, 10), (2, 40))
    assert put(store, (1, 30), (2, 40), (5, 40), (7, 12)) == 0
    assert there(store) == [(1, 10), (2, 40)]


def test_the_final_step_is_kept_however_few_reports_it_adds(store: ServedStore) -> None:
    put(store, (1, 10), (2, 40))
    assert put(store, (5, 43), is_final=True) == 1
    assert there(store) == [(1, 10), (5, 43)]
    assert put(store, (6, 43), is_final=True) == 0
    assert put(store, (1, 9), task=DAILY, is_final=True) == 0  # of fewer than ten reports there is none


def test_steps_of_a_clock_that_was_ahead_are_taken_back(store: ServedStore) -> None:
    put(store, (1, 10), (4000, 20), (8000, 30))
    put(store, (2, 31))
    assert there(store) == [(1, 10), (2, 31)]
    put(store, (3, 41))
    assert there(store) == [(1, 10), (2, 31), (3, 41)]


def test_a_week_later_whole_days_stay(store: ServedStore) -> None:
    hours = [*range(5, 30), 47, 48, 60]
    put(store, *((hour, 100 + 10 * hour) for hour in hours))
    put(store, (3, 10), task=DAILY)
    before = there(store)
    store.thin_steps(hours_until(START + 6 * DAY))
    assert there(store) == before
    store.thin_steps(hours_until(START + 9 * DAY + 7200))
    for _ in range(2):
        found = store.steps(HEIGHTS.digest, 0)
        assert [((one.until - START) / DAY, one.n) for one in found] == [(1, 340), (2, 580), (2.5, 700)]
        assert [one.until for one in store.steps(DAILY.digest, 0)] == [START + DAY]
        store.thin_steps(START + 2 * DAY)
    assert [one.mean for one in found] == pytest.approx([34.0, 58.0, 70.0])
    put(store, (200, 710))
    store.thin_steps(START + 20 * DAY)
    assert [(one.until - START) / DAY for one in store.steps(HEIGHTS.digest, 0)] == [1, 2, 3, 9]


@pytest.mark.medium
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(data=st.data())
def test_steps_are_always_whole_hours_and_ten_reports_apart(store: ServedStore, data: st.DataObject) -> None:
    task, with_round = HEIGHTS, next(FREE)  # a store does not mind a round that no task has
    moves = st.tuples(st.integers(-3, 30), st.integers(0, 25), st.booleans(), st.booleans())
    hour, n, published = 100, 0, set[tuple[int, int]]()
    for ahead, more, is_final, thin in data.draw(st.lists(moves, max_size=25)):
        hour, n = hour + ahead, n + more
        published.add((hour, n))
        put(store, (hour, n), task=task, round_=with_round, is_final=is_final)
        if thin:
            store.thin_steps(hours_until(START + hour * HOUR))
        found = store.steps(task.digest, with_round)
        assert all(one.until % HOUR == 0 for one in found)
        assert all(b.until > a.until and b.n >= a.n + LEAST for a, b in itertools.pairwise(found))
        assert {one.n for one in found} <= {count for _, count in published}
        assert all(one.until % DAY == 0 for one in found if one.until < hours_until(START + hour * HOUR)) or not thin
        if found:
            assert found[-1].n == n or n < found[-1].n + LEAST


def test_steps_outlive_the_process_and_go_with_their_task(place: StorePlace) -> None:
    with place.open() as store:
        store.add_tasks([HEIGHTS, DAILY])
        put(store, (1, 10), (2, 40))
        put(store, (1, 10), task=DAILY)
    with place.read() as reader:
        assert [one.n for one in reader.steps(HEIGHTS.digest, 0)] == [10, 40]
    with place.edit() as editor:
        editor.forget("heights")
    with place.open() as store:
        assert there(store) == []
        assert put(store, (9, 900)) == 0  # its estimate was under way
        assert there(store) == []
        assert there(store, DAILY) == [(1, 10)]


def test_dropped_reports_and_closed_rounds_leave_the_steps(store: ServedStore) -> None:
    ids = np.frombuffer(bytes(range(16)) * 1 + bytes(range(16, 256)), dtype="V16")
    store.commit([Accepted(HEIGHTS, 0, ids, np.ones((16, 1), dtype=np.int64))], {})
    put(store, (1, 16))
    while store.drop_reports(HEIGHTS.digest, 0):
        pass
    store.close_task("heights")
    assert there(store) == [(1, 16)]


def test_a_store_of_before_has_no_steps_until_it_is_served(place: StorePlace) -> None:
    with place.open() as store:
        store.add_task(HEIGHTS)
    place.execute("DROP TABLE step")
    with place.read() as reader:
        assert reader.steps(HEIGHTS.digest, 0) == []
        assert reader.stored_rows().steps == {}
    with place.edit() as editor:
        editor.add_task(DAILY)
        editor.forget("daily")
    assert check_reports(place.address) == (0, [])
    with place.open() as store:
        put(store, (1, 10))
        assert there(store) == [(1, 10)]


@pytest.mark.parametrize("change", ["until = until + 60", "n = n - 1 WHERE n = 20", "low = 9, high = 1"])
def test_a_damaged_step_is_an_error_and_no_figure(place: StorePlace, change: str) -> None:
    with place.open() as store:
        store.add_task(HEIGHTS)
        put(store, (1, 10), (2, 20))
    place.execute(f"UPDATE step SET {change}")  # noqa: S608 - ours
    with place.read() as reader, pytest.raises(StoreError, match=r"step .*backup"):
        reader.steps(HEIGHTS.digest, 0)


def test_the_check_finds_a_step_with_more_reports_than_were_counted(place: StorePlace) -> None:
    ids = np.frombuffer(bytes(range(256)), dtype="V16")
    with place.open() as store:
        store.add_task(HEIGHTS)
        store.commit([Accepted(HEIGHTS, 0, ids, np.ones((16, 1), dtype=np.int64))], {})
        put(store, (1, 16))
        assert check_reports(place.address) == (16, [])
        put(store, (2, 26))
    ((found,)) = check_reports(place.address)[1]
    assert (found.task, found.round, found.counted) == ("heights", 0, 16)
    assert "26" in found.what


def test_two_that_write_at_once_make_no_step_twice(place: StorePlace) -> None:
    with place.open() as first, ExitStack() as opened:
        first.add_task(HEIGHTS)
        second = first if isinstance(place.address, Path) else opened.enter_context(place.open(worker="2"))
        with ThreadPoolExecutor(2) as pool:
            for hour in range(20):
                new = (hour, 10 + 10 * hour), (hour, 15 + 10 * hour)
                for done in [pool.submit(put, one, *new) for one in (first, second)]:
                    done.result()
        assert there(first) == [(hour, 15 + 10 * hour) for hour in range(20)]


def test_a_backup_has_the_steps_and_they_go_on(tmp_path: Path) -> None:
    place = StorePlace(tmp_path / "store")
    with place.open() as store:
        store.add_task(HEIGHTS)
        put(store, (1, 10), (2, 20))
        back_up(tmp_path / "store", tmp_path / "backup")
        put(store, (3, 30))
    put_back(tmp_path / "backup", tmp_path / "store", replace=True)
    with place.open() as store:
        assert there(store) == [(1, 10), (2, 20)]
        put(store, (5, 30))
        assert there(store) == [(1, 10), (2, 20), (5, 30)]
