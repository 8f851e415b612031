"""The file of a store: who may read it, what becomes of a damaged one, and what a failure leaves in it."""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from stored import counted_ids

from hush import Task
from hush_aggregator import SqliteReader, SqliteStore
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.store import UNKNOWN, Accepted, Limits, SqliteEditor, quota_file
from hush_common.errors import StoreError, TaskError
from hush_common.task import make_task
from hush_common.wire import Refusal

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
HEIGHTS, WEIGHTS = (make_task({"id": name, "epsilon": "1", "domain": NUMBER}) for name in ("heights", "weights"))
OURS = "PRAGMA application_id = 0x68757368"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hush.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as store:
        yield store


def accepted(*reports: tuple[int, int], task: Task = HEIGHTS) -> Accepted:
    """Reports (number of the id, body)."""
    ids = np.frombuffer(b"".join(number.to_bytes(16, "big") for number, _ in reports), dtype="V16")
    return Accepted(task, 0, ids, np.array([[body] for _, body in reports], dtype=np.int64))


def fill(path: Path) -> None:
    with SqliteStore(path) as store:
        store.add_task(HEIGHTS)
        store.commit([accepted(*((k << 64 | k, k) for k in range(10)))], {("heights", Refusal.CLOSED): 3})


def everything(path: Path) -> tuple[list[bytes], Tally, dict[Refusal, int]]:
    with SqliteStore(path) as store:
        return store.tasks(), store.tally(HEIGHTS.digest, 0), store.refusals("heights")


def execute(path: Path, *statements: str) -> int:
    """Change the file past the store; return how many rows the last statement changed."""
    with closing(sqlite3.connect(path, timeout=30)) as other, other:
        return [other.execute(statement).rowcount for statement in statements][-1]


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as reader:
        return {
            table: reader.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()  # noqa: S608 - our names
            for table in ("task", "series", "run", "chunk", "tally", "refusal")
        }


# A batch that fails


@pytest.mark.parametrize("table", ["series", "run", "chunk", "tally", "refusal"])
def test_a_batch_that_fails_at_any_table_changes_nothing(store: SqliteStore, path: Path, table: str) -> None:
    store.commit([accepted((1, 10))], {(UNKNOWN, Refusal.MALFORMED): 1})
    before = contents(path)
    execute(path, f"CREATE TRIGGER fault AFTER INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'planted'); END")
    batch = [accepted((2, 20), (1, 10)), accepted((3, 30), task=WEIGHTS)]
    with pytest.raises(StoreError, match="planted"):
        store.commit(batch, {(UNKNOWN, Refusal.CLOSED): 1})
    assert contents(path) == before
    execute(path, "DROP TRIGGER fault")
    assert store.commit(batch, {(UNKNOWN, Refusal.CLOSED): 1}).accepted == 2
    tally = store.tally(HEIGHTS.digest, 0)
    assert (tally.n, *tally.moments[:2]) == (2, 30, 500)
    assert store.tally(WEIGHTS.digest, 0).n == 1


@pytest.mark.medium
@pytest.mark.skipif(sys.platform == "win32", reason="this system has no limit for files")
def test_a_disk_that_takes_no_more_refuses_a_batch_and_keeps_others(path: Path) -> None:
    import resource  # noqa: PLC0415 - of this system

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with SqliteStore(path) as store:
        done = refused = 0
        for _ in range(5):
            batch = accepted(*((done + k, k) for k in range(400)))
            limit = max(file.stat().st_size for file in path.parent.iterdir())
            while True:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
                try:
                    assert store.commit([batch], {}).accepted == 400
                    break
                except StoreError:
                    refused, limit = refused + 1, limit + 4096
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, before)
                assert counted_ids(path)[1] == len(counted_ids(path)[0]) == done
            done += 400
        assert refused > 10
        assert counted_ids(path)[1] == len(set(counted_ids(path)[0])) == done


def test_a_tally_that_another_process_changed_is_read_again(store: SqliteStore, path: Path) -> None:
    store.add_task(HEIGHTS)
    store.commit([accepted((1, 10))], {})
    execute(path, "DELETE FROM tally")
    store.commit([accepted((2, 5))], {})
    tally = store.tally(HEIGHTS.digest, 0)
    assert (tally.n, *tally.moments[:2]) == (1, 5, 25)


def test_a_digest_that_is_taken_refuses_the_task_alone(store: SqliteStore, path: Path) -> None:
    store.add_task(HEIGHTS)
    execute(path, f"UPDATE task SET digest = x'{WEIGHTS.digest.hex()}'")  # noqa: S608 - hexadecimal
    with pytest.raises(TaskError, match="weights"):
        store.add_task(WEIGHTS)
    assert [row[0] for row in contents(path)["task"]] == ["heights"]


# Whose file it is


def test_nobody_else_can_read_a_store_or_lock_it(path: Path) -> None:
    before = os.umask(0)
    try:
        with SqliteStore(path) as store:
            store.add_task(HEIGHTS)
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(modes, 0o600)
    assert len(modes) >= 3


@pytest.mark.parametrize(("found", "left"), [(0o644, 0o640), (0o666, 0o660), (0o640, 0o640), (0o600, 0o600)])
def test_a_store_that_everybody_could_read_is_closed_to_them(path: Path, found: int, left: int) -> None:
    fill(path)
    path.chmod(found)
    SqliteStore(path).close()
    assert path.stat().st_mode & 0o777 == left


def test_a_symbolic_link_opens_no_store_a_second_time(path: Path) -> None:
    door = path.with_name("door.sqlite")
    door.symlink_to(path)
    for first, second in ((path, door), (door, path)):
        with SqliteStore(first), pytest.raises(StoreError, match=f"{second.name}.*another aggregator"):
            SqliteStore(second)


def test_every_store_has_other_names(tmp_path: Path) -> None:
    names = set[str]()
    for name in ("a", "b"):
        with SqliteStore(tmp_path / name) as store:
            names |= {store.identity, store.public_identity}
    assert len(names) == 4


def test_neither_sender_nor_time_of_a_report_is_stored(store: SqliteStore, path: Path) -> None:
    store.commit([accepted((1, 10))], {})
    with closing(sqlite3.connect(path)) as reader:
        columns = {
            table: [row[1] for row in reader.execute(f"PRAGMA table_info({table})")]
            for table in ("series", "run", "chunk")
        }
    assert columns == {
        "series": ["ordinal", "digest", "round", "width", "dropped"],
        "run": ["id", "level", "n", "firsts", "filter"],
        "chunk": ["number", "series", "ids", "ids_check", "bodies", "bodies_check"],
    }


def test_what_was_deleted_is_overwritten_in_the_file(path: Path) -> None:
    """Else free pages keep former runs, and with them the order in which reports arrived."""
    fill(path)
    ids = (5 << 64 | 5).to_bytes(16, "big")
    assert ids in path.read_bytes()
    with SqliteEditor(path) as editor:
        editor.forget("heights")
    assert ids not in path.read_bytes()


# A file that is not a store


@pytest.mark.parametrize("opened", [SqliteStore, SqliteReader, SqliteEditor])
@pytest.mark.parametrize(
    ("prepared", "words"),
    [
        (["CREATE TABLE contacts (name TEXT)"], ["another program"]),
        ([OURS, "PRAGMA user_version = 1"], ["schema 1", "10"]),
        ([OURS, "PRAGMA user_version = 7"], ["schema 7", "10"]),
        ([OURS, "PRAGMA user_version = 99"], ["schema 99", "update"]),
        (None, ["another"]),
    ],
)
def test_a_file_that_is_not_a_store_of_this_version_is_left_alone(
    path: Path, prepared: list[str] | None, words: list[str], opened: Callable[[Path], SqliteReader]
) -> None:
    if prepared is None:
        path.write_text("not a database, but more than sixteen bytes " * 50, encoding="utf-8")
    else:
        execute(path, *prepared)
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        opened(path)
    assert all(word in str(caught.value) for word in (path.name, *words))
    assert path.read_bytes() == before


@pytest.mark.parametrize("opened", [SqliteReader, SqliteEditor])
def test_only_an_aggregator_makes_a_store(path: Path, opened: Callable[[Path], SqliteReader]) -> None:
    with pytest.raises(StoreError, match="no such file"):
        opened(path)
    assert not path.exists()
    path.touch()
    with pytest.raises(StoreError, match="empty"):
        opened(path)
    assert not path.stat().st_size


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="missing"):
        SqliteStore(tmp_path / "missing" / "hush.sqlite")


# Damage


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE tally SET moments = replace(moments, '45', '46')",
        "UPDATE tally SET moments = '[45'",
        "UPDATE tally SET n = n + 1",
        "UPDATE tally SET round = 0, seal = x'00'",
        "UPDATE task SET payload = CAST(replace(payload, '\"1\"', '\"2\"') AS BLOB)",
        "UPDATE refusal SET reason = 'clozed'",
    ],
)
def test_a_damaged_row_is_an_error_and_never_an_estimate(path: Path, damage: str) -> None:
    fill(path)
    assert execute(path, damage) == 1
    with pytest.raises(StoreError, match=r"hush\.sqlite.*backup"):
        everything(path)


@pytest.mark.parametrize("change", ["x''", "zeroblob(length({}))"])
@pytest.mark.parametrize("column", ["series", "ids", "bodies"])
def test_a_damaged_report_is_an_error(store: SqliteStore, path: Path, column: str, change: str) -> None:
    store.commit([accepted((1, 1), (2, 77))], {})
    execute(path, f"UPDATE chunk SET {column} = {change.format(column)}")  # noqa: S608 - our names
    with pytest.raises(StoreError, match="damaged"):
        list(store.reports(HEIGHTS.digest, 0))


@pytest.mark.medium
def test_no_flipped_bit_changes_an_estimate_in_silence(path: Path) -> None:
    fill(path)
    sound, right = path.read_bytes(), everything(path)
    rng = np.random.default_rng(7)
    used = [at for at in range(len(sound)) if sound[at]]
    errors = harmless = 0
    for at in rng.choice(used, 60, replace=False).tolist():
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << int(rng.integers(8))]) + sound[at + 1 :])
        for side in ("-wal", "-shm"):
            path.with_name(path.name + side).unlink(missing_ok=True)
        try:
            found = everything(path)
        except StoreError:
            errors += 1
        else:
            harmless += 1
            assert found[:2] == right[:2], at
    assert min(errors, harmless) > 4


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list the files of a process")
@pytest.mark.parametrize("damaged", ["salt", "quotas"])
def test_a_store_that_cannot_be_opened_leaves_no_file_open(path: Path, damaged: str) -> None:
    fill(path)
    if damaged == "salt":
        execute(path, "UPDATE identity SET salt = x'00'")
    else:
        quota_file(path).mkdir()
    with pytest.raises(StoreError) as caught:
        SqliteStore(path, Limits(1))
    opened = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert not [name for name in opened if name.startswith(str(path.parent))], caught.value


# A reader


def test_a_reader_sees_what_is_counted_and_leaves_the_writer_its_lock(store: SqliteStore, path: Path) -> None:
    with SqliteReader(path) as reader:
        store.commit([accepted((1, 7))], {})
        assert reader.tally(HEIGHTS.digest, 0) == store.tally(HEIGHTS.digest, 0)
        assert [report.body for report in reader.reports(HEIGHTS.digest, 0)] == [(7,)]
    with pytest.raises(StoreError, match="another aggregator"):
        SqliteStore(path)
