"""What anybody may publish costs no more than is said, and what one gives oneself has no such bound."""

from io import StringIO
from pathlib import Path

import pytest

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.count.tasks import COLUMNS, COLUMNS_OF_ONE, PAYLOAD_BYTES, KnownTasks, TaskNames, columns_of
from hush_aggregator.logs import LogFormat, logging_to
from hush_aggregator.store import Origin
from hush_common.errors import TaskError
from hush_common.task import make_task


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


def test_a_bounded_number_is_learned_and_those_given_do_not_count(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 20
    monkeypatch.setattr("hush_aggregator.count.tasks.TASKS", most)
    with SqliteStore(memory_path / "store") as store:
        known = KnownTasks(store, [bit(-number) for number in range(1, 11)])
        known.load()
        assert not any(learn(known, bit(number)) for number in range(most))
        assert {str(most), "--task"} <= set(learn(known, bit(most)).split())
        assert learn(known, bit(0)) == ""  # it is known
        assert len(known) == most + 10
        store.add_task(bit(most), Origin.FILE)
        store.close_task("b0")
        known.refresh()
        assert learn(known, bit(most + 1)) == ""  # one has ended


def test_no_more_bytes_are_learned_than_a_device_remembers(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PAYLOAD_BYTES == 8 * 1024 * 1024
    most = 5 * len(bit(10).payload)
    monkeypatch.setattr("hush_aggregator.count.tasks.PAYLOAD_BYTES", most)
    with SqliteStore(memory_path / "store") as store:
        known = KnownTasks(store, ())
        known.load()
        refused = [learn(known, bit(number)) for number in range(10, 20)]
        assert [bool(why) for why in refused] == [False] * 5 + [True] * 5
        assert f"{most} bytes" in refused[-1]


@pytest.mark.medium
def test_neither_one_nor_all_have_more_sums_than_is_said(memory_path: Path) -> None:
    with SqliteStore(memory_path / "store") as store:
        known = KnownTasks(store, ())
        known.load()
        assert str(COLUMNS_OF_ONE) in learn(known, vector(0, 1024, 1024))
        wide = [vector(number, 900) for number in range(1, 6)]
        room = COLUMNS // columns_of(wide[0])
        assert [bool(learn(known, task)) for task in wide] == [False] * room + [True] * (5 - room)
        assert learn(known, bit(0)) == ""
    with SqliteStore(memory_path / "own") as store:
        known = KnownTasks(store, [vector(0, 1024, 1024)])
        known.load()
        assert len(known) == 1


def test_one_s_own_tasks_come_first_and_small_ones_before_large(memory_path: Path) -> None:
    with SqliteStore(memory_path / "store") as store:
        known = KnownTasks(store, [vector(7, 16)])
        known.load()
        for task in (vector(8, 8), bit(1)):
            known.learn(task.id, task.payload)
        assert sorted(known, key=known.rank) == ["v7", "b1", "v8"]


@pytest.mark.medium
def test_no_warning_ends_those_that_come_later(memory_path: Path) -> None:
    """20 bad messages silenced every later warning, for the life of the process."""
    shown = StringIO()
    with SqliteStore(memory_path / "store") as store, logging_to(shown, LogFormat.TEXT) as log:
        known = KnownTasks(store, ())
        for minute in ("first", "second"):
            for number in range(1000):
                known.tell_refused(f"t{number}", f"too many in the {minute}")
                known.pass_by(f"{minute}-{number}", b"{")
            known.pass_over("honest", b"{}", "no room")
            known.pass_over("honest", b"", "no room")
            log.turn()
    lines = shown.getvalue().splitlines()
    assert sum("too many in the second" in line for line in lines) == 50
    assert sum("'second-" in line for line in lines) == 50
    assert sum("no room" in line and "'honest'" in line for line in lines) == 2, "a kind of its own"
    assert sum("950 more" in line for line in lines) == 4


def test_names_that_are_not_counted_take_a_bounded_memory() -> None:
    names = TaskNames()
    assert [names.add(name) for name in "abab"] == [True, True, False, False]
    for number in range(1_000_000):
        names.add(str(number))
        if names.overflowed:
            break
    most = len(names)
    assert most <= 100_000
    assert "beyond" not in names
    assert names.add("beyond")
    assert (len(names), "beyond" in names) == (most, False)
    names.discard("a")
    names.add("beyond")
    assert "beyond" in names


def test_where_too_many_have_no_room_any_unknown_task_may_be_one(
    memory_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("ERROR", "hush.aggregator")
    with SqliteStore(memory_path / "store") as store:
        known = KnownTasks(store, ())
        assert known.limit_reached == ""
        for name in ("a", "b"):
            known.pass_over(name, b"{}", "full")
        assert [known.is_without_room(name) for name in ("a", "c", None)] == [True, False, False]
        assert known.limit_reached.startswith("2 ")
        for number in range(20_000):
            known.pass_over(str(number), b"{}", "full")
        assert known.is_without_room("never seen")
        assert "more than" in known.limit_reached


@pytest.mark.medium
def test_a_task_with_too_many_sums_has_no_room(memory_path: Path) -> None:
    with SqliteStore(memory_path / "store") as store:
        known = KnownTasks(store, ())
        known.load()
        assert learn(known, vector(0, 1024, 1024))
        assert (known.without_room, known.limit_reached[:2]) == (1, "1 ")
        with pytest.raises(TaskError):
            known.learn("v0", b"")
        assert known.limit_reached == ""
