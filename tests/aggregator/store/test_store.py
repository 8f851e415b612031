"""The store: each report counted once, each batch as a whole or not at all."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.store import UNKNOWN, Accepted, reading
from hush_common.errors import StoreError, TaskError
from hush_common.task import make_task
from hush_common.wire import Refusal

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": NUMBER})
WEIGHTS = make_task({"id": "weights", "epsilon": "1", "domain": NUMBER})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hush.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as store:
        yield store


def accepted(*reports: tuple[int, int], task: Task = HEIGHTS, round_: int = 0) -> Accepted:
    """Reports (number of the id, body)."""
    ids = np.frombuffer(b"".join(number.to_bytes(16, "big") for number, _ in reports), dtype="V16")
    return Accepted(task, round_, ids, np.array([[body] for _, body in reports], dtype=np.int64))


def totals(store: SqliteStore, task: Task, round_: int) -> tuple[int, ...]:
    """Count, sum and sum of squares."""
    tally = store.tally(task.digest, round_)
    return (tally.n, *(tally.moments[:2] or (0, 0)))


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with sqlite3.connect(path) as reader:
        tables = {
            table: reader.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()  # noqa: S608 - our names
            for table in ("task", "series", "run", "chunk", "tally", "refusal")
        }
    reader.close()
    return tables


def test_a_batch_of_many_tasks_reads_and_writes_each_tally_once_and_the_next_parses_none(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: Counter[str] = Counter()

    def loads(text: str) -> object:
        parsed[text] += 1
        return json.loads(text)

    monkeypatch.setattr(reading, "json", SimpleNamespace(loads=loads))
    tasks = [make_task({"id": f"t{k}", "epsilon": "1", "domain": NUMBER}) for k in range(900)]
    statements: Counter[str] = Counter()
    queries: set[str] = set()

    def trace(text: str) -> None:
        statements[" ".join(text.split()[:2])] += 1
        queries.update([text] if text.startswith(("SELECT", "WITH")) else [])

    store._connection.set_trace_callback(trace)
    for body in (1, 2, 3):
        statements.clear()
        batch = [accepted((body, body), task=task) for task in tasks]
        assert store.commit([*batch, *batch[:100]], {}).accepted == 900
        assert statements["INSERT OR"] == 900
        assert statements["WITH wanted"] <= 3 + 5 + 6  # tallies; marks of rounds and of tasks; at first series, twice
        assert sum(statements.values()) < 2000  # at first the rows of series, and a hundred refusals
    store._connection.set_trace_callback(None)
    assert not parsed
    assert {totals(store, task, 0) for task in tasks} == {(3, 6, 14)}
    assert parsed.total() == 900
    plans = [row[3] for one in queries for row in store._connection.execute(f"EXPLAIN QUERY PLAN {one}").fetchall()]
    assert not [plan for plan in plans if plan in {"SCAN tally", "SCAN closed", "SCAN series"}]


def test_what_a_command_changes_is_counted_on_and_not_what_was_read_before(store: SqliteStore, path: Path) -> None:
    store.add_task(HEIGHTS)
    store.commit([accepted((1, 10))], {})
    with sqlite3.connect(path) as other:
        other.execute("DELETE FROM tally")
    other.close()
    assert store.commit([accepted((2, 5))], {}).accepted == 1
    assert totals(store, HEIGHTS, 0) == (1, 5, 25)


def test_a_batch_that_fails_leaves_nothing_behind_in_memory_either(store: SqliteStore) -> None:
    store.commit([accepted((1, 10))], {})
    store._connection.executescript(
        "CREATE TEMP TRIGGER fault AFTER INSERT ON main.refusal BEGIN SELECT RAISE(ABORT, 'planted'); END"
    )
    with pytest.raises(StoreError, match="planted"):
        store.commit([accepted((2, 20))], {(UNKNOWN, Refusal.CLOSED): 1})
    store._connection.execute("DROP TRIGGER fault")
    assert store.commit([accepted((3, 30))], {}).accepted == 1
    assert totals(store, HEIGHTS, 0) == (2, 40, 1000)


def test_only_so_many_sums_stay_in_memory(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_aggregator.store.sqlite._MOST_KNOWN", 120)
    tasks = [make_task({"id": f"t{k}", "epsilon": "1", "domain": NUMBER}) for k in range(7)]
    for body in range(1, 4):
        for task in tasks:
            store.commit([accepted((body, body), task=task)], {})
            assert sum(len(tally.moments) for _, tally in store._tallies._known.values()) == store._tallies._size <= 120
    assert {totals(store, task, 0) for task in tasks} == {(3, 6, 14)}


@pytest.mark.parametrize("table", ["series", "run", "chunk", "tally", "refusal"])
def test_a_failure_between_statements_changes_nothing(store: SqliteStore, path: Path, table: str) -> None:
    store.commit([accepted((1, 10))], {(UNKNOWN, Refusal.MALFORMED): 1})
    before = contents(path)
    store._connection.executescript(
        f"CREATE TEMP TRIGGER fault AFTER INSERT ON main.{table} BEGIN SELECT RAISE(ABORT, 'planted'); END"
    )
    batch = [accepted((2, 20), (1, 10)), accepted((3, 30), task=WEIGHTS)]
    with pytest.raises(StoreError, match="planted"):
        store.commit(batch, {(UNKNOWN, Refusal.CLOSED): 1})
    assert contents(path) == before
    store._connection.execute("DROP TRIGGER fault")
    assert store.commit(batch, {(UNKNOWN, Refusal.CLOSED): 1}).accepted == 2


def test_a_full_disk_is_a_store_error_with_a_remedy_and_changes_nothing(store: SqliteStore, path: Path) -> None:
    store.commit([accepted((1, 10))], {})
    before = contents(path)
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    big = accepted(*((k, k) for k in range(2, 3000)))
    with pytest.raises(StoreError, match=r"hush\.sqlite: .*full; free some space"):
        store.commit([big], {})
    assert contents(path) == before
    store._connection.execute("PRAGMA max_page_count = 100000")
    assert store.commit([big], {}).accepted == 2998


def test_a_digest_that_is_taken_refuses_the_task_alone(store: SqliteStore, path: Path) -> None:
    store.add_task(HEIGHTS)
    store._connection.execute("UPDATE task SET digest = ?", (WEIGHTS.digest,))
    with pytest.raises(TaskError, match="another task has the digest"):
        store.add_task(WEIGHTS)
    assert [row[0] for row in contents(path)["task"]] == ["heights"]


def test_a_symbolic_link_to_a_store_is_no_second_door(path: Path) -> None:
    door = path.with_name("door.sqlite")
    door.symlink_to(path)
    with SqliteStore(path), pytest.raises(StoreError, match=r"door\.sqlite: another aggregator uses this store"):
        SqliteStore(door)
    with SqliteStore(door), pytest.raises(StoreError, match="another aggregator uses this store"):
        SqliteStore(path)


def test_no_time_and_no_sender_is_stored(store: SqliteStore) -> None:
    columns = {
        table: [row[1] for row in store._connection.execute(f"PRAGMA table_info({table})")]
        for table in ("series", "run", "chunk")
    }
    assert columns == {
        "series": ["ordinal", "digest", "round", "width", "dropped"],
        "run": ["id", "level", "n", "firsts", "filter"],
        "chunk": ["number", "series", "ids", "ids_check", "bodies", "bodies_check"],
    }


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but more than sixteen bytes " * 50, encoding="utf-8")
    with pytest.raises(StoreError, match="name another file"):
        SqliteStore(text)
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as other:
        other.execute("CREATE TABLE contacts (name TEXT)")
    other.close()
    before = foreign.read_bytes()
    with pytest.raises(StoreError, match="a database of another program"):
        SqliteStore(foreign)
    assert foreign.read_bytes() == before


def test_a_store_of_a_later_version_is_refused(path: Path) -> None:
    with SqliteStore(path) as store:
        store._connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="later hush"):
        SqliteStore(path)


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="missing"):
        SqliteStore(tmp_path / "missing" / "hush.sqlite")


def test_every_commit_is_on_the_disk(store: SqliteStore) -> None:
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
