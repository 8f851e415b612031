"""The store in one SQLite file: one writer, one transaction a batch, on the disk when `commit` returns."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from hush_aggregator.moments import moments
from hush_aggregator.store.base import Accepted, CommitOutcome
from hush_aggregator.tally import Tally
from hush_common.errors import StoreError, TaskError
from hush_common.refusal import Refusal
from hush_common.task import Task

__all__ = ["SqliteStore"]

_VERSION = 1
_APPLICATION = 0x68757368  # "hush" in ASCII: tells our file from another program's
# No time and no sender: who reported when is nobody's business, so it is never written down.
_SCHEMA = """
CREATE TABLE task (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, payload BLOB NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE report (  -- body: the integers, 8 bytes each, big-endian
    digest BLOB NOT NULL, round INTEGER NOT NULL, id BLOB NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (digest, round, id)
) WITHOUT ROWID, STRICT;
CREATE TABLE tally (  -- moments: a JSON list of integers, which outgrow 64 bits
    digest BLOB NOT NULL, round INTEGER NOT NULL, n INTEGER NOT NULL, moments TEXT NOT NULL,
    PRIMARY KEY (digest, round)
) WITHOUT ROWID, STRICT;
CREATE TABLE refusal (
    task TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (task, reason)
) WITHOUT ROWID, STRICT;
"""
_INSERT = "INSERT OR IGNORE INTO report VALUES (?, ?, ?, ?)"
_SET_TALLY = "INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?)"
_ADD_REFUSAL = """
INSERT INTO refusal VALUES (?, ?, ?) ON CONFLICT (task, reason) DO UPDATE SET count = count + excluded.count
"""


class SqliteStore:
    """A `Store` in the file `path`, created if it is missing. Other programs may read the file meanwhile.

    Use it from one thread at a time. A side file `path` + `.lock` keeps a second aggregator out; the operating system
    drops that lock with the process, however the process ends.

    Raises:
        StoreError: the file cannot be opened or created, is another program's, of a later version, or in use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = self._take_lock()
        try:
            self._connection = self._open()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and let go of the lock; calling it again does nothing."""
        self._connection.close()
        self._lock.close()

    def add_task(self, task: Task) -> bytes:
        with self._transaction() as run:
            run.execute("INSERT OR IGNORE INTO task VALUES (?, ?, ?)", (task.id, task.digest, task.payload))
            row = run.execute("SELECT payload FROM task WHERE id = ?", (task.id,)).fetchone()
        if row is None:
            raise TaskError("digest", f"another task has the digest of {task.id!r}; change a word of its title")
        payload: bytes = row[0]
        return payload

    def tasks(self) -> list[bytes]:
        with self._reading() as run:
            return [payload for (payload,) in run.execute("SELECT payload FROM task ORDER BY id")]

    def commit(self, accepted: Sequence[Accepted], refused: Mapping[tuple[str, Refusal], int]) -> CommitOutcome:
        counted = 0
        refusals = Counter(refused)
        with self._transaction() as run:
            for reports in accepted:
                new = _insert(run, reports)
                counted += new
                refusals[reports.task.id, Refusal.DUPLICATE] += len(reports.ids) - new
            refusals = +refusals
            run.executemany(_ADD_REFUSAL, [(task, reason.value, count) for (task, reason), count in refusals.items()])
        by_reason: Counter[Refusal] = Counter()
        for (_, reason), count in refusals.items():
            by_reason[reason] += count
        changed = {reports.task.id for reports in accepted} | {task for task, _ in refusals}
        return CommitOutcome(counted, by_reason, frozenset(changed))

    def tally(self, digest: bytes, round_: int) -> Tally:
        with self._reading() as run:
            return _tally(run, digest, round_)

    def latest_round(self, digest: bytes) -> int:
        with self._reading() as run:
            (latest,) = run.execute("SELECT max(round) FROM tally WHERE digest = ?", (digest,)).fetchone()
        return int(latest or 0)

    def refusals(self, task_id: str) -> dict[Refusal, int]:
        with self._reading() as run:
            rows = run.execute("SELECT reason, count FROM refusal WHERE task = ? ORDER BY reason", (task_id,))
            return {Refusal(reason): count for reason, count in rows}

    def _take_lock(self) -> sqlite3.Connection:
        """Hold an exclusive lock on a side file until closed. SQLite's own lock: it works on every platform."""
        side = self._path.with_name(f"{self._path.name}.lock")
        lock = self._connect(side, timeout=0)
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            lock.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise StoreError(
                    f"{self._path}: another aggregator uses this store; stop it, or give this one a store of its own"
                ) from error
            raise StoreError(f"{side}: {error}; remove the file if it is not needed, or move the store") from error
        return lock

    def _connect(self, path: Path, timeout: float) -> sqlite3.Connection:
        try:
            return sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}; name a file in a directory that may be written") from error

    def _open(self) -> sqlite3.Connection:
        connection = self._connect(self._path, timeout=10)
        try:
            with _translated(self._path):
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application != _APPLICATION and (objects or application or version):
            raise StoreError(f"{self._path}: is a database of another program; name another file")
        if version > _VERSION:
            raise StoreError(f"{self._path}: was written by a later hush (schema {version}); update hush")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -32768")  # KiB: memory stays the same however large the file grows
        if version == 0:
            connection.executescript(
                f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION}; COMMIT;"
            )

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with _translated(self._path):
            yield self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _translated(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have rolled back already
                    self._connection.execute("ROLLBACK")
                raise


def _insert(run: sqlite3.Connection, reports: Accepted) -> int:
    """Insert what is new and fold exactly that into the tally; return how many. Earlier ids win, within a batch too."""
    digest, round_ = reports.task.digest, reports.round
    raw = reports.bodies.astype(">i8").tobytes()
    size = 8 * reports.bodies.shape[1]
    new = np.fromiter(
        (
            run.execute(_INSERT, (digest, round_, report_id, raw[k * size : (k + 1) * size])).rowcount == 1
            for k, report_id in enumerate(reports.ids.tolist())
        ),
        dtype=np.bool_,
        count=len(reports.ids),
    )
    if not new.any():
        return 0
    folded = _tally(run, digest, round_).merge(moments(reports.task.randomizer, reports.bodies[new]))
    run.execute(_SET_TALLY, (digest, round_, folded.n, json.dumps(folded.moments)))
    return int(new.sum())


def _tally(run: sqlite3.Connection, digest: bytes, round_: int) -> Tally:
    row = run.execute("SELECT n, moments FROM tally WHERE digest = ? AND round = ?", (digest, round_)).fetchone()
    return Tally() if row is None else Tally(row[0], tuple(json.loads(row[1])))


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Turn what SQLite complains about into a `StoreError` with a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        remedy = _REMEDIES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "see that it may be read and written")
        raise StoreError(f"{path}: {error}; {remedy}") from error


_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some space and start again: the broker keeps what is not counted yet",
    sqlite3.SQLITE_NOTADB: "name another file",
    sqlite3.SQLITE_BUSY: "another program writes to it; stop that program",
    sqlite3.SQLITE_READONLY: "make it writable",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup",
}
