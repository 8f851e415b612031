"""The store in one SQLite file: one writer, one transaction a batch, on the disk when `commit` returns."""

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np

from hush_aggregator.fold import fold
from hush_aggregator.store.base import Accepted, CommitOutcome
from hush_aggregator.store.reading import is_closed, read_tally
from hush_aggregator.store.schema import damaged, prepare, seal
from hush_aggregator.store.writing import SqliteWriter, connect
from hush_common.errors import StoreError
from hush_common.lock import FileLock
from hush_common.refusal import Refusal

__all__ = ["SqliteStore"]

_INSERT = "INSERT OR IGNORE INTO report VALUES (?, ?, ?, ?)"
_FIND = "SELECT 1 FROM report WHERE digest = ? AND round = ? AND id = ?"
_SET_TALLY = "INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?, ?)"
_ADD_REFUSAL = """
INSERT INTO refusal VALUES (?, ?, ?) ON CONFLICT (task, reason) DO UPDATE SET count = count + excluded.count
"""


class SqliteStore(SqliteWriter):
    """A `Store` in the file `path`, created if it is missing. Other programs may read the file meanwhile.

    Threads wait for each other's transactions. A side file `path` + `.lock` keeps a second aggregator out; the
    operating system drops that lock with the process, however the process ends.

    Raises:
        StoreError: the file cannot be opened or created, is another program's, of a later version, or in use.
    """

    def __init__(self, path: Path) -> None:
        self._lock = _take_lock(path)
        try:
            super().__init__(path)
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Close the file and let go of the lock; calling it again does nothing."""
        super().close()
        self._lock.release()

    @property
    def identity(self) -> str:
        """A random name of its session at the broker, made once: 32 hexadecimal digits that nobody can guess."""
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

    def reacted_to_restoring(self) -> None:
        """Note that nothing is left to do because the file was put back from a backup."""
        with self._transaction() as run:
            run.execute("UPDATE identity SET restored = 0")

    def commit(self, accepted: Sequence[Accepted], refused: Mapping[tuple[str, Refusal], int]) -> CommitOutcome:
        counted = 0
        refusals = Counter(refused)
        with self._transaction() as run:
            for reports in accepted:
                # The mark is read here, where nobody can set it between: a clock that goes back opens nothing again.
                if reports.late or is_closed(run, reports.task.digest, reports.round):
                    again = _known(run, reports)
                    refusals[reports.task.id, Refusal.CLOSED] += len(reports.ids) - again
                else:
                    new = _insert(run, reports)
                    counted += new
                    again = len(reports.ids) - new
                refusals[reports.task.id, Refusal.DUPLICATE] += again
            refusals = +refusals
            run.executemany(_ADD_REFUSAL, [(task, reason.value, count) for (task, reason), count in refusals.items()])
        by_reason: Counter[Refusal] = Counter()
        for (_, reason), count in refusals.items():
            by_reason[reason] += count
        changed = {reports.task.id for reports in accepted} | {task for task, _ in refusals}
        return CommitOutcome(counted, by_reason, frozenset(changed), refusals)

    def _opened(self) -> sqlite3.Connection:
        return connect(self._path, prepare)


def _take_lock(path: Path) -> FileLock:
    side = path.resolve()  # else a symbolic link to the store would be a second door
    side = side.with_name(f"{side.name}.lock")
    try:
        lock = FileLock.take(side)
    except OSError as error:
        raise StoreError(
            f"{side}: cannot be locked ({error.strerror}); name a store in a writable directory, "
            "or remove the file if no hush made it"
        ) from error
    if lock is None:
        raise StoreError(f"{path}: another aggregator uses this store; stop it, or give this one a store of its own")
    return lock


def _known(run: sqlite3.Connection, reports: Accepted) -> int:
    """How many of these are counted already; after the end of a round only those can be told from others."""
    key = reports.task.digest, reports.round
    return sum(run.execute(_FIND, (*key, report_id)).fetchone() is not None for report_id in reports.ids.tolist())


def _insert(run: sqlite3.Connection, reports: Accepted) -> int:
    """Insert what is new and fold exactly that into the tally; return how many. Earlier ids win, within a batch too."""
    digest, round_ = reports.task.digest, reports.round
    raw = reports.bodies.astype(">i8", copy=False).tobytes()
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
    counted = fold(reports.task.randomizer, reports.bodies[new].astype(np.int64, copy=False))
    folded = read_tally(run, digest, round_).merge(counted)
    row = (digest, round_, folded.n, json.dumps(folded.moments))
    run.execute(_SET_TALLY, (*row, seal(*row)))
    return int(new.sum())
