"""The store in one SQLite file: one writer, one transaction a batch, on disk when `commit` returns."""

import json
import logging
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from datetime import UTC, date, datetime
from functools import partial
from operator import itemgetter
from pathlib import Path

import numpy as np

from hush_aggregator.estimate.tally import Tally
from hush_aggregator.store.base import (
    WHOLE_TASK,
    Accepted,
    BrokerMemory,
    CommitOutcome,
    DamagedError,
    Origin,
    Owner,
    PublishedStep,
    Round,
    StoredRecall,
    StoredRows,
    TaskState,
)
from hush_aggregator.store.counting import Counted, are_first, charge, count_batch, counted, fold_new, sort_new, split
from hush_aggregator.store.lsm import (
    SALT_BYTES,
    ReportTree,
    SeriesDeletion,
    make_keys,
    series_number,
)
from hush_aggregator.store.quotas import Charging, Limits, Quotas, quota_file
from hush_aggregator.store.reading import (
    DROPPED,
    DROPPING,
    SqliteReader,
    check,
    closed_rounds,
    delete_recall,
    end_recalls,
    has_steps,
    prepare,
    read_series,
    read_tallies,
    release_task,
    tally_values,
    task_values,
    translated,
    write_broker,
    write_published,
    write_recalls,
    write_step,
)
from hush_common.errors import StoreError, TaskError
from hush_common.files import FileLock, draft_of, find_world_writable_parent, make_private_file, sync
from hush_common.recall import Recall
from hush_common.task import Task
from hush_common.wire import Refusal

_LOG = logging.getLogger("hush.aggregator")
_PORTION = 100_000  # reports: a transaction of some tenths of a second
_SERIES_OF_TASK = "SELECT width, ordinal FROM series WHERE digest = ?"
_ADD_SERIES = "INSERT INTO series (digest, round, width) VALUES (?, ?, ?)"
_CLOSE = "INSERT OR IGNORE INTO closed VALUES (?, ?, ?)"
_SET_OWNER = """
UPDATE task SET owner = ?, term = ?, taken_from = ? WHERE id = ? AND taken_from = ifnull(?, taken_from)
"""


class SqliteWriter(SqliteReader):
    """The tasks of a store can be written. Threads and processes wait for each other's transactions."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._deletions: dict[Round, SeriesDeletion] = {}  # of reports that are being dropped

    def add_task(self, task: Task, origin: Origin = Origin.FILE) -> bytes:
        """See `Store.add_task`."""
        return self.add_tasks([task], origin)[0]

    def add_tasks(self, tasks: Sequence[Task], origin: Origin = Origin.FILE) -> list[bytes]:
        """See `Store.add_tasks`."""
        with self._transaction() as run:
            return [_add(run, task, origin) for task in tasks]

    def set_state(self, task_id: str, state: TaskState) -> None:
        """Set the state of a task; raise TaskError if it is closed, perhaps by another process since then."""
        with self._transaction() as run:
            done = run.execute(
                "UPDATE task SET state = ? WHERE id = ? AND state <> ?", (state.value, task_id, TaskState.CLOSED.value)
            )
            if not done.rowcount:
                raise TaskError("task", f"{task_id!r} is permanently closed: devices no longer answer it")

    def set_owners(self, owners: Sequence[Owner]) -> None:
        """See `Store.set_owners`."""
        rows = [(one.owner, one.term, one.taken_from, one.task, one.was_taken_from) for one in owners]
        with self._transaction() as run:
            run.executemany(_SET_OWNER, rows)

    def close_task(self, task_id: str, round_: int | None = None, at: datetime | None = None) -> None:
        """See `Store.close_task`."""
        with self._transaction() as run:
            row = run.execute("SELECT digest FROM task WHERE id = ?", (task_id,)).fetchone()
            if row is None:
                raise TaskError("task", f"{task_id[:80]!r} is not in this store; see hush task list --store")
            (digest,) = row
            mark = WHOLE_TASK if round_ is None else round_
            run.execute(_CLOSE, (digest, mark, int((at or datetime.now(UTC)).timestamp())))
            if round_ is None:
                run.execute("UPDATE task SET state = ? WHERE id = ?", (TaskState.CLOSED.value, task_id))
                end_recalls(run, digest)

    def release(self, digests: Sequence[bytes], at: int) -> list[str]:
        """See `Store.release`."""
        with self._transaction() as run:
            return [task_id for digest in digests for task_id in release_task(run, digest, at)]

    def drop_reports(self, digest: bytes, round_: int) -> bool:
        """See `Store.drop_reports`."""
        with self._transaction() as run:
            where = "WHERE digest = ? AND round = ?"
            row = run.execute(f"SELECT width, ordinal, dropped FROM series {where}", (digest, round_)).fetchone()  # noqa: S608 - a constant
            state = DROPPED
            if row is not None and row[2] == 0:
                run.execute(_CLOSE, (digest, round_, int(datetime.now(UTC).timestamp())))
                state = DROPPING
            elif row is not None and row[2] == DROPPING:
                deletion = self._deletions.setdefault((digest, round_), SeriesDeletion(run, series_number(*row[:2])))
                state = DROPPING if deletion.go_on(_PORTION) else DROPPED
            if row is not None and row[2] != state:
                run.execute(f"UPDATE series SET dropped = ? {where}", (state, digest, round_))  # noqa: S608 - as above
        if state == DROPPED:
            self._deletions.pop((digest, round_), None)
        return state == DROPPING

    def recall(self, rows: Sequence[StoredRecall], memory: BrokerMemory | None = None) -> list[StoredRecall]:
        """See `Store.recall`."""
        with self._transaction() as run:
            if memory is not None:
                write_broker(run, memory)
            return write_recalls(run, rows)

    def end_recall(self, recall: Recall) -> None:
        """See `Store.end_recall`."""
        with self._transaction() as run:
            delete_recall(run, recall)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._turn, translated(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.execute("UPDATE identity SET version = version + 1")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have rolled back already
                    self._connection.execute("ROLLBACK")
                raise


class SqliteEditor(SqliteWriter):
    """A store for a command, whether an aggregator counts into it meanwhile or not: that one sees what was written.

    Raises:
        StoreError: there is no such file, it is another program's, or of another version: an aggregator that runs must
            not find its tables changed.
    """

    def forget(self, task_id: str) -> None:
        """Close a task, and delete its reports, tallies, steps, counters and recall; its id, digest and mark stay.

        In portions, so that an aggregator that runs need not wait. Interrupted, it is to be called again.

        Raises:
            TaskError: no such task.
        """
        self.close_task(task_id)
        with self._transaction() as run:
            (digest,) = run.execute("SELECT digest FROM task WHERE id = ?", (task_id,)).fetchone()
            run.execute("UPDATE task SET payload = x'' WHERE id = ?", (task_id,))
            for table in ("tally", "released", "release", *(("step",) if has_steps(run) else ())):
                run.execute(f"DELETE FROM {table} WHERE digest = ?", (digest,))  # noqa: S608 - our names
            run.execute("DELETE FROM refusal WHERE task = ?", (task_id,))
            run.execute("DELETE FROM recall WHERE task = ?", (task_id,))
        for width, ordinal in self._connection.execute(_SERIES_OF_TASK, (digest,)).fetchall():
            deletion, more = SeriesDeletion(self._connection, series_number(width, ordinal)), True
            while more:
                with self._transaction():
                    more = deletion.go_on(_PORTION)

    def _opened(self) -> sqlite3.Connection:
        if not self._path.is_file():
            raise StoreError(f"{self._path}: there is no such file; name the store of an aggregator")
        return connect(self._path, check)


def _add(run: sqlite3.Connection, task: Task, origin: Origin) -> bytes:
    run.execute(
        "INSERT OR IGNORE INTO task (id, digest, payload, origin, release_from, release_every) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (task.id, task.digest, task.payload, origin.value, task.release_from or 0, task.release_seconds),
    )
    run.execute(
        "UPDATE task SET origin = ? WHERE id = ? AND digest = ? AND origin = ?",
        (origin.value, task.id, task.digest, Origin.BROKER.value),
    )
    row = run.execute("SELECT payload FROM task WHERE id = ?", (task.id,)).fetchone()
    if row is None:
        raise TaskError("digest", f"another task has the digest of {task.id!r}; change a word of its title")
    payload: bytes = row[0]
    return payload


def _exposure(path: Path) -> str:
    """What to warn of where everybody could change the store, or replace it; empty where nobody else could."""
    if sys.platform != "win32" and path.exists() and path.stat().st_mode & stat.S_IWOTH:
        return f"{path}: every user could change what is counted; if you do not trust them, restore a backup"
    above = find_world_writable_parent(path)
    if above is not None:
        return f"{path}: every user may write to {above}, and so replace the store; run: chmod o-w {above}"
    return ""


def connect(path: Path, ready: Callable[[Path, sqlite3.Connection], None]) -> sqlite3.Connection:
    """Open the file for writing, or create it; raise StoreError if it cannot be opened or `ready` refuses it."""
    try:
        exposure = _exposure(path)
        make_private_file(path)
        if exposure:
            _LOG.warning("%s", exposure)
        connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
    except (sqlite3.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"{path}: {reason}; name a file in a writable directory") from error
    try:
        with translated(path):
            ready(path, connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")  # else free pages keep former runs: the order of arrival
    except BaseException:
        connection.close()
        raise
    return connection


_SET_TALLY = "INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?, ?)"
_ADD_REFUSAL = """
INSERT INTO refusal VALUES (?, ?, ?) ON CONFLICT (task, reason) DO UPDATE SET count = count + excluded.count
"""


_SET_RELEASED = "INSERT OR REPLACE INTO released VALUES (?, ?, ?, ?, ?)"
_DELETE_HOURS = """
DELETE FROM step WHERE until < ? AND until % 86400 <> 0 AND EXISTS (
    SELECT 1 FROM step AS later WHERE later.digest = step.digest AND later.round = step.round
    AND later.until > step.until AND later.until <= (step.until / 86400 + 1) * 86400)
"""
_SET_DAYS = "UPDATE step SET until = (until / 86400 + 1) * 86400 WHERE until < ? AND until % 86400 <> 0"
_ADD_DROPPED = "INSERT INTO series (digest, round, width, dropped) VALUES (?, ?, ?, ?)"
_PUT_TASK = """
INSERT OR REPLACE INTO task VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_MOST_SERIES = 1 << 16  # numbers in memory
_MOST_KNOWN = 1 << 20  # sums of tallies in memory: at most about 40 MB


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
        self._tallies = _Tallies()
        self._series: dict[Round, int] = {}  # numbers of committed series; none is ever changed
        with ExitStack() as opened:
            opened.callback(self._lock.release)
            super().__init__(path)
            opened.callback(super().close)
            self._tree = ReportTree(self._connection, self._salt())
            if limits is not None:
                self._quotas = Quotas(quota_file(path), limits)
                opened.callback(self._quotas.close)
                self.forget_senders()
            opened.pop_all()

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
        """A random name of its session on the broker, made once: 32 hexadecimal digits that nobody can guess."""
        with self._reading() as run:
            return str(run.execute("SELECT id FROM identity").fetchone()[0])

    def note_day(self, day: date) -> None:
        """Note that it is in use on that day, even if a later one was noted."""
        with self._transaction() as run:
            run.execute("UPDATE identity SET newest = ?", (day.isoformat(),))

    def set_back_releases(self, now: int) -> None:
        """Let no release be later than now, in seconds since 1970: the clock was wrong when it was made."""
        with self._transaction() as run:
            run.execute("UPDATE release SET at = ? WHERE at > ?", (now, now))

    def drop_reports(self, digest: bytes, round_: int) -> bool:
        """See `Store.drop_reports`."""
        is_to_go_on = super().drop_reports(digest, round_)
        self._tree.forget_memory()  # it does not see what its own connection deletes
        return is_to_go_on

    def put_steps(self, published: Sequence[PublishedStep]) -> int:
        """See `Store.put_steps`."""
        with self._transaction() as run:
            return sum([write_published(run, one) for one in published])

    def thin_steps(self, before: int) -> None:
        """See `Store.thin_steps`."""
        with self._reading() as run:
            if run.execute("SELECT 1 FROM step WHERE until < ? AND until % 86400 <> 0", (before,)).fetchone() is None:
                return
        with self._transaction() as run:
            run.execute(_DELETE_HOURS, (before,))
            run.execute(_SET_DAYS, (before,))

    def reacted_to_restoring(self) -> None:
        """Note that nothing is left to do because the file was put back from a backup."""
        with self._transaction() as run:
            run.execute("UPDATE identity SET restored = 0")

    def commit(self, accepted: Sequence[Accepted], refused: Mapping[tuple[str, Refusal], int]) -> CommitOutcome:
        with self._transaction() as run, self._charging(run) as charging:
            self._tree.refresh()
            return count_batch(
                accepted,
                refused,
                closed=partial(closed_rounds, run),
                count_known=partial(self._count_known, run),
                count=partial(self._count, run, charging=charging),
                add_refusals=partial(run.executemany, _ADD_REFUSAL),
            )

    def put_rows(self, rows: StoredRows) -> None:
        """See `FillableStore.put_rows`."""
        with self._transaction() as run:
            run.executemany(_PUT_TASK, [task_values(row) for row in rows.tasks])
            run.executemany(_CLOSE, [(*mark, at) for mark, at in sorted(rows.marks.items())])
            run.executemany(_SET_RELEASED, [tally_values(*one) for one in sorted(rows.released.items())])
            for digest, one in sorted(rows.releases.items()):
                values = digest, one.at, json.dumps(one.refused), json.dumps(sorted(one.closed))
                run.execute("INSERT INTO release VALUES (?, ?, ?, ?)", values)
            for round_, (width, tally) in sorted(rows.dropped.items()):
                run.execute(_ADD_DROPPED, (*round_, width, DROPPED))
                run.execute(_SET_TALLY, tally_values(round_, tally))
            for (digest, number), steps in sorted(rows.steps.items()):
                for step in steps:
                    write_step(run, digest, number, step)
            for row in rows.recalls:
                recall = row.recall
                fields = (recall.task, recall.digest, recall.id, recall.over, row.made, int(row.ended))
                run.execute("INSERT INTO recall VALUES (?, ?, ?, ?, ?, ?)", fields)
            names = (rows.session, rows.identity, rows.newest, _FURTHER)
            run.execute("UPDATE identity SET id = ?, store = ?, newest = ?, restored = 1, version = version + ?", names)

    def compact(self) -> None:
        """Merge all reports into one run, and return unused space to the disk; it takes the room of a second store.

        In portions: interrupted, nothing is lost, and it is to be called again.
        """
        self._tree.forget_memory()  # merges of fewer runs, of which some are done in part
        more = True
        while more:
            with self._transaction():
                self._tree.refresh()
                more = self._tree.compact(_PORTION)
        with self._reading() as run:
            run.execute("VACUUM")
            run.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _count_known(self, run: sqlite3.Connection, late: Sequence[Accepted]) -> list[int]:
        """Return how many of each of these are counted already: after the end of a round the others are refused."""
        series = read_series(run, [(reports.task.digest, reports.round) for reports in late])
        found = []
        for reports in late:
            number = series.get((reports.task.digest, reports.round))
            keys = None if number is None else make_keys(number, reports.ids)
            found.append(0 if keys is None else int(np.count_nonzero(self._tree.find(keys))))
        return found

    def _count(self, run: sqlite3.Connection, accepted: Sequence[Accepted], charging: Charging | None) -> list[Counted]:
        """Store what is new and within the quotas, and add it to the tallies. Of equal ids the first wins."""
        if not accepted:
            return []
        series = self._series_of(run, accepted)
        keys = [make_keys(number, reports.ids) for number, reports in zip(series, accepted, strict=True)]
        joined = np.concatenate(keys)
        known = self._tree.find(joined)
        flags = split(are_first(joined) & ~known, keys)
        over = None if charging is None else charge(accepted, keys, split(known, keys), flags, charging)
        self._tree.insert(sort_new(keys, accepted, flags))
        self._tallies.add(run, fold_new(accepted, flags))
        return counted(flags, over)

    def _series_of(self, run: sqlite3.Connection, accepted: Sequence[Accepted]) -> list[int]:
        """Return the number of the series of each; those that have none get one."""
        rounds = {(reports.task.digest, reports.round): reports.bodies.shape[1] for reports in accepted}
        if not rounds.keys() <= self._series.keys():
            if len(self._series) > _MOST_SERIES:
                self._series.clear()
            self._series |= read_series(run, sorted(rounds))
        series = self._series
        missing = sorted(rounds.keys() - series.keys())
        if missing:
            run.executemany(_ADD_SERIES, [(*key, rounds[key]) for key in missing])
            series = series | read_series(run, missing)  # not kept: the transaction may fail
        return [series[reports.task.digest, reports.round] for reports in accepted]

    def _salt(self) -> bytes:
        with self._reading() as run:
            salt: bytes = run.execute("SELECT salt FROM identity").fetchone()[0]
            if len(salt) != SALT_BYTES:
                raise DamagedError("the identity")
        return salt

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with super()._transaction() as run:
                yield run
        except BaseException:
            self._tree.forget_memory()
            raise

    def _charging(self, run: sqlite3.Connection) -> AbstractContextManager[Charging | None]:
        return nullcontext() if self._quotas is None else self._quotas.charging(run)

    def _opened(self) -> sqlite3.Connection:
        return connect(self._path, prepare)


def take_lock(path: Path) -> FileLock:
    """Lock the store against other aggregators; raise StoreError if one runs or the lock file is unusable."""
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
        raise StoreError(f"{path}: another aggregator uses this store; stop it, or give this one another store")
    return lock


class _Tallies:
    """Reads and writes tallies. Those changed last stay in memory: as long as a seal is the same, so are the sums."""

    def __init__(self) -> None:
        self._known: dict[Round, tuple[bytes, Tally]] = {}  # with its seal
        self._size = 0

    def add(self, run: sqlite3.Connection, folded: Mapping[Round, Tally]) -> None:
        """Add to tallies; each is read and written once."""
        before = read_tallies(run, sorted(folded), self._known)
        rows = []
        for (digest, round_), tally in sorted(folded.items(), key=itemgetter(0)):
            after = before.get((digest, round_), Tally()).merge(tally)
            rows.append(tally_values((digest, round_), after))
            self._keep((digest, round_), rows[-1][-1], after)
        run.executemany(_SET_TALLY, rows)

    def _keep(self, round_: Round, sealed: bytes, tally: Tally) -> None:
        """Even if the transaction fails: then the store has another seal."""
        _, before = self._known.pop(round_, (b"", Tally()))
        self._known[round_] = sealed, tally
        self._size += len(tally.moments) - len(before.moments)
        while self._size > _MOST_KNOWN:
            _, oldest = self._known.pop(next(iter(self._known)))
            self._size -= len(oldest.moments)


SIDES = ("-wal", "-shm", "-journal")
"""What SQLite may leave next to a file."""
_FURTHER = 1 << 32  # more transactions than the store had since its backup: its version goes on rising


def back_up(store: Path, file: Path) -> int:
    """Copy a store into a file that is not there yet; return how many reports are counted in it.

    Raises:
        StoreError: there is no such store, it is damaged, or the file is there already or cannot be written.
    """
    if file.exists():
        raise StoreError(f"{file}: already exists; name a new file, or remove it")
    return _copy(store, file, restored=False)


def compact(store: Path) -> tuple[int, int]:
    """Make the file of a store small; return its size in bytes before and after.

    Raises:
        StoreError: there is no such store, an aggregator uses it, it is damaged, or there is no room.
    """
    if not store.is_file():
        raise StoreError(f"{store}: there is no such file; name the store of an aggregator")
    files = [store, *(store.with_name(f"{store.name}{side}") for side in SIDES)]
    before = sum(file.stat().st_size for file in files if file.exists())
    with SqliteStore(store) as opened:
        opened.compact()
    return before, store.stat().st_size


def put_back(file: Path, store: Path, *, replace: bool) -> int:
    """Copy a backup to where a store is to be, marked as put back; return how many reports are counted in it.

    Raises:
        StoreError: an aggregator uses the store, it is there and is not to be replaced, or the backup is none.
    """
    lock = take_lock(store)
    try:
        if store.exists() and not replace:
            raise StoreError(f"{store}: already exists; move it away, or give --replace to overwrite it")
        return _copy(file, store, restored=True)
    finally:
        lock.release()


def _copy(source: Path, target: Path, *, restored: bool) -> int:
    if not source.is_file():
        raise StoreError(f"{source}: there is no such file; name the store of an aggregator, or its backup")
    try:
        with draft_of(target) as draft:
            reports = _write_copy(source, draft, restored=restored)
            _gather(target)
            for side in SIDES:  # of the replaced store: SQLite would take them for those of the new one
                target.with_name(f"{target.name}{side}").unlink(missing_ok=True)
            draft.replace(target)
    except OSError as error:
        raise StoreError(
            f"{target}: cannot be written ({error.strerror}); name a writable directory with room"
        ) from error
    return reports


def _write_copy(source: Path, draft: Path, *, restored: bool) -> int:
    with translated(source), closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as there:
        check(source, there)
        with closing(sqlite3.connect(draft, isolation_level=None)) as here:
            there.backup(here)  # in one step: what is written meanwhile is not in it, and waits for nothing
            here.execute("PRAGMA journal_mode = DELETE")  # one file, without sides
            if restored:
                here.execute("UPDATE identity SET restored = 1, version = version + ?", (_FURTHER,))
            reports = _checked(draft, here)
    sync(draft)
    return reports


def _gather(store: Path) -> None:
    """Bring what a store that is there has in its sides into its file: until it is replaced it stays whole."""
    if store.is_file():
        with suppress(sqlite3.Error), closing(sqlite3.connect(store)) as there:  # a damaged one stays as it is
            there.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _checked(path: Path, copy: sqlite3.Connection) -> int:
    """See that all of it can be read, reports included; return how many there are."""
    (verdict,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(f"{path}: the copy is damaged ({verdict}); so is the store, or the disk")
    check(path, copy)
    (reports,) = copy.execute("SELECT coalesce(sum(n), 0) FROM tally").fetchone()
    return int(reports)
