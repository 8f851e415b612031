"""The store: each report counted once, each batch as a whole or not at all."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hush_aggregator.store import UNKNOWN, Accepted, SqliteStore, reading
from hush_aggregator.tally import Tally
from hush_common.errors import StoreError, TaskError
from hush_common.task import Task, make_task
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
            table: reader.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall()  # noqa: S608 - our names
            for table in ("task", "report", "tally", "refusal")
        }
    reader.close()
    return tables


def test_reports_are_counted_and_folded(store: SqliteStore) -> None:
    outcome = store.commit([accepted((1, 10), (2, -20))], {(UNKNOWN, Refusal.MALFORMED): 3})
    assert (outcome.accepted, outcome.refused) == (2, {Refusal.MALFORMED: 3})
    assert outcome.changed == {"heights", UNKNOWN}
    assert totals(store, HEIGHTS, 0) == (2, -10, 500)
    assert store.refusals(UNKNOWN) == {Refusal.MALFORMED: 3}


def test_an_id_twice_in_one_batch_counts_once_and_the_first_wins(store: SqliteStore) -> None:
    outcome = store.commit([accepted((1, 10), (1, 99)), accepted((1, 77))], {})
    assert (outcome.accepted, outcome.refused) == (1, {Refusal.DUPLICATE: 2})
    assert totals(store, HEIGHTS, 0) == (1, 10, 100)


def test_rows_are_written_in_the_order_of_their_ids_and_of_equal_ids_the_first_received_counts(
    store: SqliteStore,
) -> None:
    written: list[str] = []
    store._connection.set_trace_callback(lambda text: written.append(text) if "IGNORE INTO report" in text else None)
    numbers = [7, 3, 200, 3, 7, 1, 3]
    reports = [(number, 10**k) for k, number in enumerate(numbers)]
    outcome = store.commit([accepted(*reports[:4]), accepted(*reports[4:])], {})
    store._connection.set_trace_callback(None)
    ids = [int(text.split("'")[1], 16) for text in written]
    assert ids == sorted(numbers[:4]) + sorted(numbers[4:]), "block by block"
    assert (outcome.accepted, outcome.refused) == (4, {Refusal.DUPLICATE: 3})
    kept = {int.from_bytes(report.id): report.body[0] for report in store.reports(HEIGHTS.digest, 0)}
    assert kept == {7: 1, 3: 10, 200: 100, 1: 10**5}
    assert totals(store, HEIGHTS, 0) == (4, sum(kept.values()), sum(body**2 for body in kept.values()))


def test_rows_that_are_all_new_are_written_in_one_pass_in_the_order_of_their_ids(store: SqliteStore) -> None:
    written: list[str] = []
    store._connection.set_trace_callback(lambda text: written.append(text) if "INTO report" in text else None)
    numbers = [7, 3, 200, 5, 90, 1]
    outcome = store.commit([accepted(*((number, number) for number in numbers))], {})
    store._connection.set_trace_callback(None)
    assert [int(text.split("'")[1], 16) for text in written] == sorted(numbers)
    assert outcome.accepted == len(numbers)


def test_a_batch_with_one_row_that_is_known_counts_all_others_once(store: SqliteStore) -> None:
    store.commit([accepted((50, 1))], {})
    outcome = store.commit([accepted(*((number, 2) for number in range(100)))], {})
    assert (outcome.accepted, outcome.refused) == (99, {Refusal.DUPLICATE: 1})
    assert totals(store, HEIGHTS, 0) == (100, 1 + 99 * 2, 1 + 99 * 4)
    assert sum(1 for _ in store.reports(HEIGHTS.digest, 0)) == 100


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
        assert statements["INSERT OR"] == 1000 + 900
        assert statements["WITH wanted"] == 3 + 5  # tallies; marks of rounds and of tasks
        assert sum(statements.values()) < 2030  # and a hundred refusals, and the attempt to write all in one call
    store._connection.set_trace_callback(None)
    assert not parsed
    assert {totals(store, task, 0) for task in tasks} == {(3, 6, 14)}
    assert parsed.total() == 900
    plans = [row[3] for one in queries for row in store._connection.execute(f"EXPLAIN QUERY PLAN {one}").fetchall()]
    assert not [plan for plan in plans if plan in {"SCAN tally", "SCAN closed", "SCAN report"}]


def test_what_a_command_changes_is_counted_on_and_not_what_was_read_before(store: SqliteStore, path: Path) -> None:
    store.add_task(HEIGHTS)
    store.commit([accepted((1, 10))], {})
    with sqlite3.connect(path) as other:
        other.execute("DELETE FROM report")
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


def test_an_id_of_an_earlier_batch_is_a_duplicate_even_after_reopening(path: Path) -> None:
    with SqliteStore(path) as store:
        store.commit([accepted((1, 10), (2, 20))], {})
        assert store.commit([accepted((2, 20), (3, 30))], {}).accepted == 1
    with SqliteStore(path) as store:
        outcome = store.commit([accepted((3, 30), (1, 10))], {})
        assert (outcome.accepted, outcome.refused) == (0, {Refusal.DUPLICATE: 2})
        assert totals(store, HEIGHTS, 0) == (3, 60, 1400)
        assert store.refusals("heights") == {Refusal.DUPLICATE: 3}


def test_the_same_id_in_another_round_or_task_is_another_report(store: SqliteStore) -> None:
    reports = [accepted((1, 10)), accepted((1, 20), round_=7), accepted((1, 30), task=WEIGHTS)]
    assert store.commit(reports, {}).accepted == 3
    assert totals(store, HEIGHTS, 7) == (1, 20, 400)
    assert store.latest_round(HEIGHTS.digest) == 7
    assert store.latest_round(WEIGHTS.digest) == 0
    for other in (b"\0" * 8, b"\xff" * 8):
        assert store.latest_round(other) == 0
        assert store.tally(other, 7) == Tally()


def test_sums_beyond_64_bits_stay_exact(path: Path) -> None:
    top = 2**63 - 1
    with SqliteStore(path) as store:
        store.commit([accepted(*((k, top) for k in range(5)))], {})
        store.commit([accepted(*((k, top) for k in range(5, 9)))], {})
    with SqliteStore(path) as store:
        assert totals(store, HEIGHTS, 0) == (9, 9 * top, 9 * top * top)


BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(-(2**63), 2**63 - 1)), max_size=8), max_size=6)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batches=BATCHES)
def test_n_is_the_number_of_rows_whatever_is_delivered_again(
    batches: list[list[tuple[int, int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store") / "hush.sqlite"
    first: dict[int, int] = {}
    with SqliteStore(path) as store:
        for batch in batches:
            before = len(first)
            for number, body in batch:
                first.setdefault(number, body)
            outcome = store.commit([accepted(*batch)] if batch else [], {})
            assert outcome.accepted == len(first) - before
            assert outcome.accepted + outcome.refused.get(Refusal.DUPLICATE, 0) == len(batch)
        bodies = first.values()
        assert totals(store, HEIGHTS, 0) == (len(first), sum(bodies), sum(k * k for k in bodies))
    assert len(contents(path)["report"]) == len(first)


@pytest.mark.parametrize("table", ["report", "tally", "refusal"])
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


def test_the_first_task_under_an_id_stays(path: Path) -> None:
    other = make_task({"id": "heights", "epsilon": "2", "domain": NUMBER})
    with SqliteStore(path) as store:
        assert store.add_task(HEIGHTS) == HEIGHTS.payload
        assert store.add_task(HEIGHTS) == HEIGHTS.payload
        assert store.add_task(other) == HEIGHTS.payload
    with SqliteStore(path) as store:
        assert store.tasks() == [HEIGHTS.payload]


def test_a_digest_that_is_taken_refuses_the_task_alone(store: SqliteStore, path: Path) -> None:
    store.add_task(HEIGHTS)
    store._connection.execute("UPDATE task SET digest = ?", (WEIGHTS.digest,))
    with pytest.raises(TaskError, match="another task has the digest"):
        store.add_task(WEIGHTS)
    assert [row[0] for row in contents(path)["task"]] == ["heights"]


def test_what_was_never_counted_is_empty(store: SqliteStore) -> None:
    assert store.tally(bytes(32), 5) == Tally()
    assert store.refusals("heights") == {}
    assert store.latest_round(bytes(32)) == 0
    assert store.commit([], Counter()).changed == frozenset()


def test_a_second_aggregator_on_one_store_is_refused_until_the_first_has_left(path: Path) -> None:
    with SqliteStore(path) as store:
        with pytest.raises(StoreError, match="another aggregator uses this store; stop it, or give"):
            SqliteStore(path)
        store.commit([accepted((1, 10))], {})
    SqliteStore(path).close()


def test_a_symbolic_link_to_a_store_is_no_second_door(path: Path) -> None:
    door = path.with_name("door.sqlite")
    door.symlink_to(path)
    with SqliteStore(path), pytest.raises(StoreError, match=r"door\.sqlite: another aggregator uses this store"):
        SqliteStore(door)
    with SqliteStore(door), pytest.raises(StoreError, match="another aggregator uses this store"):
        SqliteStore(path)


def test_the_store_may_be_read_by_others_meanwhile(store: SqliteStore, path: Path) -> None:
    store.commit([accepted((1, 10))], {})
    assert len(contents(path)["report"]) == 1
    assert store.commit([accepted((2, 10))], {}).accepted == 1


def test_no_time_and_no_sender_is_stored(store: SqliteStore) -> None:
    columns = [row[1] for row in store._connection.execute("PRAGMA table_info(report)")]
    assert columns == ["task", "round", "id", "body"]


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
