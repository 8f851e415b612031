"""What a store in SQLite holds after a kill at any statement, and after a write that was torn.

A program, too, because it forks: `python test_sqlite_kills.py DIRECTORY WORK STRIDE [planted]` prints a JSON object.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))  # for the program; pytest has it already

from stored import counted_ids

from hush_aggregator import SqliteStore
from hush_aggregator.store import Accepted, SqliteEditor, lsm, sqlite
from hush_common.task import make_task

pytestmark = pytest.mark.medium

_NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
KEPT, OTHER = (make_task({"id": name, "epsilon": "1", "domain": _NUMBER}) for name in ("kept", "other"))
FRAME = 24 + 4096  # bytes of the write-ahead log: a header and a page


class Batch(NamedTuple):
    """The ids of reports of both tasks."""

    kept: list[bytes]
    other: list[bytes]

    def accepted(self) -> list[Accepted]:
        found = []
        for task, ids in ((KEPT, self.kept), (OTHER, self.other)):
            bodies = np.arange(len(ids), dtype=np.int64)[:, None]
            found.append(Accepted(task, 0, np.frombuffer(b"".join(ids), dtype="V16"), bodies))
        return found


def batches(count: int) -> list[Batch]:
    rng = np.random.default_rng(20_261_123)
    return [Batch(*([rng.bytes(16) for _ in range(size)] for size in (30, 9))) for _ in range(count)]


def all_ids(some: Sequence[Batch]) -> list[bytes]:
    return [id_ for batch in some for ids in batch for id_ in ids]


def what_is_wrong(path: Path, expected: list[list[bytes]], without_reports: int = 0) -> str:
    """Compare a store with all that it may hold; empty if nothing is wrong."""
    ids, n = counted_ids(path)
    if len(set(ids)) != len(ids):
        return "a report is there twice"
    if n != len(ids) + without_reports:
        return f"{len(ids)} reports, {n} counted"
    return "" if any(sorted(ids) == sorted(some) for some in expected) else f"{len(ids)} reports, of part of a batch"


# What is killed


def count(path: Path, some: list[Batch], done: Callable[[], object] = int) -> None:
    with SqliteStore(path) as store:
        store.add_tasks([KEPT, OTHER])
        for batch in some:
            store.commit(batch.accepted(), {})
            done()


def compact(path: Path, done: Callable[[], object]) -> None:
    sqlite.compact(path)
    done()


def forget(path: Path, done: Callable[[], object]) -> None:
    with SqliteEditor(path) as editor:
        editor.forget(OTHER.id)
    done()


def drop(path: Path, done: Callable[[], object]) -> None:
    with SqliteStore(path) as store:
        for batch in batches(2):  # a replay is refused, whatever was dropped by then
            assert not store.commit(batch.accepted(), {}).accepted
        while store.drop_reports(OTHER.digest, 0):
            pass
    done()


def back_up(path: Path, done: Callable[[], object]) -> None:
    backup = path.with_name("backup")
    backup.unlink(missing_ok=True)
    sqlite.back_up(path, backup)
    done()


WORKS = {"compact": compact, "forget": forget, "drop": drop, "back-up": back_up}
_CONNECT = sqlite3.connect


class Fuse:
    """Kills this process before its n-th statement."""

    def __init__(self, n: int) -> None:
        self._left = n

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401 - its own
        connection: sqlite3.Connection = _CONNECT(*arguments, **options)
        connection.set_trace_callback(self._burn)
        return connection

    def _burn(self, _statement: str) -> None:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run_killed(work: Callable[[Callable[[], object]], None], before: int) -> tuple[bool, int]:
    """Work in a process that is killed before this statement; return whether it was, and how often it was done."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        sqlite3.connect = Fuse(before).connect  # type: ignore[assignment]
        work(lambda: os.write(writing, b"."))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        done = len(pipe.read())
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, status
    return os.WIFSIGNALED(status), done


class TwoTransactions(lsm.ReportTree):
    """Planted: the reports of a batch are committed before its tally."""

    def __init__(self, run: sqlite3.Connection, salt: bytes) -> None:
        super().__init__(run, salt)
        self.run = run

    def insert(self, sections: Sequence[lsm.Section]) -> None:
        super().insert(sections)
        self.run.execute("COMMIT")
        self.run.execute("BEGIN IMMEDIATE")


def main() -> None:
    folder, name, stride = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if sys.argv[4:]:
        sqlite.ReportTree = TwoTransactions  # type: ignore[attr-defined]
    lsm.CHUNK, lsm.HEAD, lsm.FAN_IN = 16, 16, 3
    full, everything = folder / "full", batches(14)
    count(full, everything)
    expected, kept = all_ids(everything), [id_ for batch in everything for id_ in batch.kept]
    gone = len(expected) - len(kept) if name == "drop" else 0
    wrong, kills, before, path = list[str](), 0, 0, folder / "store"
    while True:
        for file in folder.glob("store*"):
            file.unlink()
        if name != "count":
            shutil.copy(full, path)
        work = partial(WORKS[name], path) if name in WORKS else partial(count, path, everything)
        was_killed, done = run_killed(work, before)
        if not was_killed:
            break
        kills, found = kills + 1, list[str]()
        if name == "count" and path.exists() and done:
            found.append(what_is_wrong(path, [all_ids(everything[: done + more]) for more in (0, 1)]))
        elif name in ("compact", "back-up"):
            found.append(what_is_wrong(path, [expected]))
            if (backup := path.with_name("backup")).exists():  # whole, or not there
                found.append(what_is_wrong(backup, [expected]))
        work(int)  # again, as after a start: everything is sent again
        found.append(what_is_wrong(path, [kept if name in ("forget", "drop") else expected], gone))
        wrong += [f"before statement {before}: {problem}" for problem in found if problem]
        before += stride
        if wrong and sys.argv[4:]:
            break
    sys.stdout.write(json.dumps({"kills": kills, "wrong": wrong}))


# The tests


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: what a killed process has written is there for the next in any case."""
    if not Path("/dev/shm").is_dir():  # noqa: S108 - a directory of its own below it
        yield tmp_path
        return
    with TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def killed(folder: Path, work: str, stride: int, *planted: str) -> tuple[int, list[str]]:
    """How often the work was killed, before every `stride`-th statement, and what was wrong then."""
    command = [sys.executable, __file__, str(folder), work, str(stride), *planted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["kills"], found["wrong"]


@pytest.mark.parametrize(
    ("work", "stride", "least"),
    [("count", 61, 7), ("compact", 13, 7), ("forget", 13, 6), ("drop", 13, 6), ("back-up", 7, 3)],
)
def test_killed_before_some_statements_each_report_counts_once(
    folder: Path, work: str, stride: int, least: int
) -> None:
    kills, wrong = killed(folder, work, stride)
    assert wrong == []
    assert kills >= least


@pytest.mark.large
@pytest.mark.parametrize("work", WORKS)
def test_killed_before_any_statement_of_a_command_each_counts_once(folder: Path, work: str) -> None:
    kills, wrong = killed(folder, work, 1)
    assert wrong == []
    assert kills >= 20


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_killed_before_every_statement_each_report_counts_once(folder: Path) -> None:
    assert killed(folder, "count", 1)[1] == []


def test_planted_a_batch_in_two_transactions_is_wrong_after_a_kill(folder: Path) -> None:
    assert killed(folder, "count", 9, "planted")[1]


def torn(folder: Path, stride: int) -> int:
    """Cut the log within its last transaction, as where the power fails while it is written; return how often."""
    store, cuts = folder / "store", 0
    *first, last = batches(6)
    count(store, first)
    whole = SqliteStore(store)
    for batch in first[-1:]:  # the log of an open store is not yet in the file
        whole.commit(batch.accepted(), {})
    log = store.with_name("store-wal")
    before = log.stat().st_size
    whole.commit(last.accepted(), {})
    after = log.stat().st_size
    kept = folder / "kept"
    kept.mkdir()
    for file in (store, log):
        shutil.copy(file, kept)
    whole.close()
    assert after > before + FRAME
    written = (kept / "store-wal").read_bytes()
    for end in [*range(before, after - FRAME, 16 * stride), *range(after - FRAME, after, stride)]:
        for rest in (b"", bytes(after - end)):
            for file in folder.glob("store*"):
                file.unlink()
            shutil.copy(kept / "store", store)
            log.write_bytes(written[:end] + rest)
            count(store, [])
            assert what_is_wrong(store, [all_ids(first)]) == "", (end, len(rest))
            count(store, [last])
            assert what_is_wrong(store, [all_ids([*first, last])]) == "", (end, len(rest))
            cuts += 1
    return cuts


def test_a_torn_write_never_happened(folder: Path) -> None:
    assert torn(folder, 811) > 10


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_write_that_was_torn_at_any_byte_never_happened(folder: Path) -> None:
    assert torn(folder, 1) > 2 * FRAME


if __name__ == "__main__":
    main()
