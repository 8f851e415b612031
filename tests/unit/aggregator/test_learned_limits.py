"""What anybody may publish costs no more than is said, and what one gives oneself has no such bound."""

from pathlib import Path

import pytest

from hush_aggregator.known_tasks import KnownTasks
from hush_aggregator.learned_limits import COLUMNS, COLUMNS_OF_ONE, PAYLOAD_BYTES, TASKS, columns_of
from hush_aggregator.store import Origin, SqliteStore
from hush_common.errors import TaskError
from hush_common.task import Task
from hush_common.task_file import make_task


def bit(number: int) -> Task:
    return make_task({"id": f"b{number}", "epsilon": "1", "domain": {"kind": "bit"}})


def vector(number: int, levels: int, coordinates: int = 64) -> Task:
    axes = [{"name": f"c{place}", "lower": 0.0, "upper": 1.0} for place in range(coordinates)]
    domain = {"kind": "vector", "coordinates": axes}
    return make_task({"id": f"v{number}", "mechanism": "vector", "epsilon": "1", "levels": levels, "domain": domain})


def learn(known: KnownTasks, task: Task) -> str:
    """Why a task that was published is not counted; empty if it is."""
    if why := known.full(task.id, task.payload):
        return why
    try:
        known.learn(task.id, task.payload)
    except TaskError as error:
        return str(error)
    return ""


def test_no_more_than_a_thousand_are_learned_and_those_given_do_not_count(memory_path: Path) -> None:
    with SqliteStore(memory_path / "store") as store:
        known = KnownTasks(store, [bit(-number) for number in range(1, 11)])
        known.load()
        assert not any(learn(known, bit(number)) for number in range(TASKS))
        assert learn(known, bit(TASKS)).startswith(
            f"no more than {TASKS} tasks found at the broker are counted; give it"
        )
        assert learn(known, bit(0)) == ""  # it is known
        assert len(known) == TASKS + 10
        store.add_task(bit(TASKS), Origin.FILE)
        store.close_task("b0")
        known.refresh()
        assert learn(known, bit(TASKS + 1)) == ""  # one has ended


def test_no_more_bytes_are_learned_than_a_device_remembers(tmp_path: Path) -> None:
    labels = [f"{number:04d}" + "x" * 90 for number in range(590)]
    with SqliteStore(tmp_path / "store") as store:
        known = KnownTasks(store, ())
        known.load()
        large = make_task({"id": "t0000", "epsilon": "1", "domain": {"kind": "category", "labels": labels}})
        room = PAYLOAD_BYTES // len(large.payload)
        for number in range(room + 20):
            payload = large.payload.replace(b"t0000", f"t{number:04d}".encode())
            if not (why := known.full(f"t{number:04d}", payload)):
                known.learn(f"t{number:04d}", payload)
        assert len(known) == room
        assert why.startswith(f"tasks found at the broker may have {PAYLOAD_BYTES} bytes in all")
        assert learn(known, bit(0)) == ""


def test_neither_one_nor_all_have_more_sums_than_is_said(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store") as store:
        known = KnownTasks(store, ())
        known.load()
        assert f"one task found at the broker may have {COLUMNS_OF_ONE}" in learn(known, vector(0, 1024, 1024))
        wide = [vector(number, 900) for number in range(1, 6)]
        room = COLUMNS // columns_of(wide[0])
        assert [bool(learn(known, task)) for task in wide] == [False] * room + [True] * (5 - room)
        assert learn(known, bit(0)) == ""
    with SqliteStore(tmp_path / "own") as store:
        known = KnownTasks(store, [vector(0, 1024, 1024)])
        known.load()
        assert len(known) == 1


def test_one_s_own_tasks_come_first_and_small_ones_before_large(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store") as store:
        known = KnownTasks(store, [vector(7, 16)])
        known.load()
        for task in (vector(8, 8), bit(1)):
            known.learn(task.id, task.payload)
        assert sorted(known, key=known.rank) == ["v7", "b1", "v8"]


@pytest.mark.parametrize("count", [3, 40])
def test_whoever_publishes_many_is_told_of_few(tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int) -> None:
    with SqliteStore(tmp_path / "store") as store:
        known = KnownTasks(store, ())
        for number in range(count):
            known.tell_refused(f"t{number}", "too many")
    assert len(caplog.records) == min(count, 20)
    assert ("others are not told any more" in caplog.text) is (count > 20)
