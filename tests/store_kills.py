"""A store whose process is killed before any of its statements: what is counted then, and after a redelivery.

A program, because it forks: `python tests/store_kills.py DIRECTORY WORK STRIDE [planted]` prints what it found as JSON.
"""

import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from stored import counted_ids

from hush_aggregator import SqliteStore
from hush_aggregator.store import Accepted, SqliteEditor, lsm, sqlite
from hush_common.task import make_task

_NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
KEPT, OTHER = (make_task({"id": name, "epsilon": "1", "domain": _NUMBER}) for name in ("kept", "other"))
_CONNECT = sqlite3.connect


class Batch(NamedTuple):
    """Reports of both tasks."""

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


def count(path: Path, some: list[Batch], done: Callable[[], object] = lambda: None) -> None:
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


def back_up(path: Path, done: Callable[[], object]) -> None:
    backup = path.with_name("backup")
    backup.unlink(missing_ok=True)
    sqlite.back_up(path, backup)
    done()


class _Fuse:
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


def killed(work: Callable[[Callable[[], object]], None], before: int) -> tuple[bool, int]:
    """Do the work in a process that is killed before this statement; whether it was, and how often it was done."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        sqlite3.connect = _Fuse(before).connect  # type: ignore[assignment]
        work(lambda: os.write(writing, b"."))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        done = len(pipe.read())
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, status
    return os.WIFSIGNALED(status), done


def is_whole(path: Path, expected: list[list[bytes]]) -> str:
    """What is wrong with a store that may hold any of these; empty if nothing is."""
    ids, n = counted_ids(path)
    if len(set(ids)) != len(ids):
        return "a report is there twice"
    if n != len(ids):
        return f"{len(ids)} reports, {n} counted"
    return "" if any(sorted(ids) == sorted(some) for some in expected) else f"{len(ids)} reports, of part of a batch"


def all_ids(some: list[Batch]) -> list[bytes]:
    return [id_ for batch in some for ids in batch for id_ in ids]


def _plant() -> None:
    """Commit the run of a batch before its tally."""
    insert = lsm.ReportTree.insert

    def wrong(self: lsm.ReportTree, sections: Sequence[lsm.Section]) -> None:
        insert(self, sections)
        self._run.execute("COMMIT")
        self._run.execute("BEGIN IMMEDIATE")

    lsm.ReportTree.insert = wrong  # type: ignore[method-assign]


def main() -> None:
    folder, name, stride = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if sys.argv[4:]:
        _plant()
    lsm.CHUNK, lsm.HEAD, lsm.FAN_IN, lsm._RECENT = 16, 16, 3, 64
    full, everything = folder / "full", batches(14)
    count(full, everything)
    expected = all_ids(everything)
    kept = [id_ for batch in everything for id_ in batch.kept]
    wrong, kills, before, path = [], 0, 0, folder / "store"
    while True:
        for file in folder.glob("store*"):
            file.unlink()
        if name != "count":
            shutil.copy(full, path)
        works = {"compact": compact, "forget": forget, "back-up": back_up}
        work = partial(works[name], path) if name in works else partial(count, path, everything)
        was_killed, done = killed(work, before)
        if not was_killed:
            break
        kills, where = kills + 1, f"before statement {before}: "
        if name == "count" and path.exists() and done:
            verdict = is_whole(path, [all_ids(everything[: done + more]) for more in (0, 1)])
            wrong += [where + verdict] if verdict else []
        elif name in ("compact", "back-up"):
            verdict = is_whole(path, [expected])
            wrong += [where + verdict] if verdict else []
            if (backup := path.with_name("backup")).exists():  # whole, or not there
                wrong += [f"{where}backup: {verdict}"] if (verdict := is_whole(backup, [expected])) else []
        work(lambda: None)  # again, as after a start: everything is sent again
        verdict = is_whole(path, [kept if name == "forget" else expected])
        wrong += [f"{where}afterwards {verdict}"] if verdict else []
        before += stride
    sys.stdout.write(json.dumps({"kills": kills, "wrong": wrong}))


if __name__ == "__main__":
    main()
