"""The store in one SQLite file: one writer, one transaction a batch, on the disk when `commit` returns."""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from hush_aggregator.fold import fold
from hush_aggregator.store.base import Accepted, CommitOutcome
from hush_aggregator.store.schema import damaged, prepare, seal
from hush_aggregator.tally import Tally
from hush_common.errors import StoreError, TaskError
from hush_common.lock import FileLock
from hush_common.private_file import make_private_file
from hush_common.refusal import Refusal
from hush_common.task import Task, digest_of

__all__ = ["SqliteStore"]

_REASONS = frozenset(reason.value for reason in Refusal)
_INSERT = "INSERT OR IGNORE INTO report VALUES (?, ?, ?, ?)"
_SET_TALLY = "INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?, ?)"
_ADD_REFUSAL = """
INSERT INTO refusal VALUES (?, ?, ?) ON CONFLICT (task, reason) DO UPDATE SET count = count + excluded.count
"""


class SqliteStore:
    """A `Store` in the file `path`, created if it is missing. Other programs may read the file meanwhile.

    Threads wait for each other's transactions. A side file `path` + `.lock` keeps a second aggregator out; the
    operating system drops that lock with the process, however the process ends.

    Raises:
        StoreError: the file cannot be opened or created, is another program's, of a later version, or in use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._lock = self._take_lock()
        try:
            self._connection = self._open()
        except BaseException:
            self._lock.release()
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
        self._lock.release()

    @property
    def identity(self) -> str:
        """A random name of this store, made once: 32 hexadecimal digits that nobody can guess."""
        with self._reading() as run:
            return str(run.execute("SELECT id FROM identity").fetchone()[0])

    @property
    def has_former_session(self) -> bool:
        """Whether a broker may keep reports under the name that its aggregator had before the store had an identity."""
        with self._reading() as run:
            return bool(run.execute("SELECT former FROM identity").fetchone()[0])

    def former_session_ended(self) -> None:
        """Note that nothing waits there any more."""
        with self._transaction() as run:
            run.execute("UPDATE identity SET former = 0")

    @property
    def newest_day(self) -> date | None:
        """The newest day (UTC) on which it was in use, as far as was noted."""
        with self._reading() as run:
            (text,) = run.execute("SELECT newest FROM identity").fetchone()
            try:
                return date.fromisoformat(text) if text else None
            except ValueError:
                raise damaged("a day") from None

    def note_day(self, day: date) -> None:
        """Note that it is in use on that day, even if a later one was noted."""
        with self._transaction() as run:
            run.execute("UPDATE identity SET newest = ?", (day.isoformat(),))

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
            rows = run.execute("SELECT payload, digest FROM task ORDER BY id").fetchall()
            if any(digest_of(payload) != digest for payload, digest in rows):
                raise damaged("a task")
            return [payload for payload, _ in rows]

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
        return CommitOutcome(counted, by_reason, frozenset(changed), refusals)

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
            found = dict(rows.fetchall())
            if not found.keys() <= _REASONS:
                raise damaged("a reason of refusals")
            return {Refusal(reason): count for reason, count in found.items()}

    def _take_lock(self) -> FileLock:
        side = self._path.resolve()  # else a symbolic link to the store would be a second door
        side = side.with_name(f"{side.name}.lock")
        try:
            lock = FileLock.take(side)
        except OSError as error:
            raise StoreError(
                f"{side}: cannot be locked ({error.strerror}); name a store in a directory that may be written, "
                "or remove the file if no hush made it"
            ) from error
        if lock is None:
            raise StoreError(
                f"{self._path}: another aggregator uses this store; stop it, or give this one a store of its own"
            )
        return lock

    def _connect(self) -> sqlite3.Connection:
        try:
            make_private_file(self._path)
            return sqlite3.connect(self._path, timeout=10, isolation_level=None, check_same_thread=False)
        except (sqlite3.Error, OSError) as error:
            reason = getattr(error, "strerror", None) or error
            raise StoreError(f"{self._path}: {reason}; name a file in a directory that may be written") from error

    def _open(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            with _translated(self._path):
                prepare(self._path, connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._turn, _translated(self._path):
            yield self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._turn, _translated(self._path):
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
    folded = _tally(run, digest, round_).merge(fold(reports.task.randomizer, reports.bodies[new]))
    row = (digest, round_, folded.n, json.dumps(folded.moments))
    run.execute(_SET_TALLY, (*row, seal(*row)))
    return int(new.sum())


def _tally(run: sqlite3.Connection, digest: bytes, round_: int) -> Tally:
    row = run.execute("SELECT n, moments, seal FROM tally WHERE digest = ? AND round = ?", (digest, round_)).fetchone()
    if row is None:
        return Tally()
    n, moments_, sealed = row
    if sealed != seal(digest, round_, n, moments_):
        raise damaged("a tally")
    return Tally(n, tuple(json.loads(moments_)))


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Turn what SQLite complains about into a `StoreError` with a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        remedy = _REMEDIES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "see that it may be read and written")
        raise StoreError(f"{path}: {error}; {remedy}") from error
    except UnicodeDecodeError as error:  # SQLite believes that a text is one
        raise StoreError(f"{path}: a text in it is none; {_REMEDIES[sqlite3.SQLITE_CORRUPT]}") from error


_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some space and start again: the broker keeps what is not counted yet",
    sqlite3.SQLITE_NOTADB: "name another file",
    sqlite3.SQLITE_BUSY: "another program writes to it; stop that program",
    sqlite3.SQLITE_READONLY: "make it writable",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup",
}
