"""The store in one SQLite file: one writer, one transaction a batch, on the disk when `commit` returns."""

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.fold import fold
from hush_aggregator.store.base import Accepted, CommitOutcome
from hush_aggregator.store.quotas import Charging, Limits, Quotas, quota_file
from hush_aggregator.store.reading import is_closed, read_tally
from hush_aggregator.store.schema import damaged, prepare, seal
from hush_aggregator.store.writing import SqliteWriter, connect
from hush_common.errors import StoreError
from hush_common.lock import FileLock
from hush_common.refusal import Refusal

__all__ = ["SqliteStore", "take_lock"]

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

    Args:
        path: of the file.
        limits: how many reports of a round one sender may have counted; None for any number.

    Raises:
        StoreError: the file cannot be opened or created, is another program's, of a later version, or in use.
    """

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self._lock = take_lock(path)
        self._quotas: Quotas | None = None
        try:
            super().__init__(path)
            if limits is not None:
                self._quotas = Quotas(quota_file(path), limits)
                self.forget_senders()
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Close the file and let go of the lock; calling it again does nothing."""
        if self._quotas is not None:
            self._quotas.close()
        super().close()
        self._lock.release()

    def forget_senders(self) -> None:
        """Delete what the quotas know of rounds that are closed, or open for too long."""
        if self._quotas is not None:
            with self._transaction() as run:
                self._quotas.forget(run)

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
        counted: Counter[str] = Counter()
        refusals = Counter(refused)
        senders: dict[tuple[str, Refusal], str | None] = {}
        with self._transaction() as run, self._charging(run) as charging:
            for reports in accepted:
                task_id = reports.task.id
                # The mark is read here, where nobody can set it between: a clock that goes back opens nothing again.
                if reports.late or is_closed(run, reports.task.digest, reports.round):
                    again = _known(run, reports)
                    refusals[task_id, Refusal.CLOSED] += len(reports.ids) - again
                else:
                    done = _count(run, reports, charging)
                    counted[task_id] += done.new
                    again = done.again
                    if done.over:
                        refusals[task_id, Refusal.QUOTA] += done.over
                        senders[task_id, Refusal.QUOTA] = done.sender
                refusals[task_id, Refusal.DUPLICATE] += again
            refusals = +refusals
            run.executemany(_ADD_REFUSAL, [(task, reason.value, count) for (task, reason), count in refusals.items()])
        by_reason: Counter[Refusal] = Counter()
        for (_, reason), count in refusals.items():
            by_reason[reason] += count
        changed = {reports.task.id for reports in accepted} | {task for task, _ in refusals}
        counted = +counted
        return CommitOutcome(counted.total(), by_reason, frozenset(changed), refusals, senders, counted)

    def _charging(self, run: sqlite3.Connection) -> AbstractContextManager[Charging | None]:
        return nullcontext() if self._quotas is None else self._quotas.charging(run)

    def _opened(self) -> sqlite3.Connection:
        return connect(self._path, prepare)


def take_lock(path: Path) -> FileLock:
    """Keep other aggregators out, until it is released or the process ends.

    Raises:
        StoreError: one is there, or the side file cannot be locked.
    """
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


_Row = tuple[bytes, int, bytes, bytes]
"""Digest, round, id and body of a report."""


class _Done(NamedTuple):
    """What became of reports: new and counted, known already, or over a quota; who sent those, None for several."""

    new: int
    again: int
    over: int = 0
    sender: str | None = None


def _count(run: sqlite3.Connection, reports: Accepted, charging: Charging | None) -> _Done:
    """Insert what is new and within the quotas, and fold exactly that into the tally. Earlier ids win."""
    digest, round_ = reports.task.digest, reports.round
    raw = reports.bodies.astype(">i8", copy=False).tobytes()
    size = 8 * reports.bodies.shape[1]
    rows = [
        (digest, round_, report_id, raw[k * size : (k + 1) * size]) for k, report_id in enumerate(reports.ids.tolist())
    ]
    if charging is None or reports.senders is None:
        inserted = (run.execute(_INSERT, row).rowcount == 1 for row in rows)
        new, over = np.fromiter(inserted, np.bool_, len(rows)), Counter[str]()
    else:
        new, over = _charge(run, rows, reports.senders.tolist(), charging)
    _fold(run, reports, new)
    names = +over
    again = len(rows) - int(new.sum()) - names.total()
    return _Done(int(new.sum()), again, names.total(), next(iter(names)) if len(names) == 1 else None)


def _charge(
    run: sqlite3.Connection, rows: Sequence[_Row], senders: Sequence[str], charging: Charging
) -> tuple[NDArray[np.bool_], Counter[str]]:
    """Insert what is new and within the quotas; which are, and how many of each sender were beyond.

    One after the other: of two with one id the second counts where the sender of the first has no quota left.
    """
    new = np.zeros(len(rows), dtype=np.bool_)
    over = Counter[str]()
    for k, (row, sender) in enumerate(zip(rows, senders, strict=True)):
        digest, round_, report_id, _ = row
        if not charging.has_left(digest, round_, sender):  # nothing of these is written, however many they are
            over[sender] += run.execute(_FIND, (digest, round_, report_id)).fetchone() is None
        elif run.execute(_INSERT, row).rowcount == 1:
            new[k] = True
            charging.charge(digest, round_, sender)
    return new, over


def _fold(run: sqlite3.Connection, reports: Accepted, new: NDArray[np.bool_]) -> None:
    if not new.any():
        return
    digest, round_ = reports.task.digest, reports.round
    counted = fold(reports.task.randomizer, reports.bodies[new].astype(np.int64, copy=False))
    folded = read_tally(run, digest, round_).merge(counted)
    row = (digest, round_, folded.n, json.dumps(folded.moments))
    run.execute(_SET_TALLY, (*row, seal(*row)))
