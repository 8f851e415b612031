"""The store in one SQLite file: one writer, one transaction a batch, on disk when `commit` returns."""

import logging
import sqlite3
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from datetime import date
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.store.base import (
    Accepted,
    BrokerMemory,
    CommitOutcome,
    Origin,
    Owner,
    StoredRecall,
    TaskState,
    note_sender,
    only_sender,
)
from hush_aggregator.store.quotas import Charging, Limits, Quotas, quota_file
from hush_aggregator.store.reading import (
    WHOLE_TASK,
    SqliteReader,
    check,
    closed_rounds,
    damaged,
    delete_recall,
    end_recalls,
    prepare,
    read_tallies,
    seal,
    translated,
    write_broker,
    write_recalls,
)
from hush_aggregator.tally import Tally
from hush_common.errors import StoreError, TaskError
from hush_common.files import FileLock, draft_of, find_world_writable_parent, make_private_file, sync
from hush_common.recall import Recall
from hush_common.task import Task
from hush_common.wire import Refusal

_LOG = logging.getLogger("hush.aggregator")
_PORTION = 10_000
_SET_OWNER = """
UPDATE task SET owner = ?, term = ?, taken_from = ? WHERE id = ? AND taken_from = ifnull(?, taken_from)
"""
_DELETE_SOME = """
DELETE FROM report WHERE (task, round, id) IN (
    SELECT task, round, id FROM report WHERE task = (SELECT number FROM numbered WHERE digest = ?) LIMIT ?
)
"""


class SqliteWriter(SqliteReader):
    """The tasks of a store can be written. Threads and processes wait for each other's transactions."""

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

    def close_task(self, task_id: str, round_: int | None = None) -> None:
        """See `Store.close_task`."""
        with self._transaction() as run:
            row = run.execute("SELECT digest FROM task WHERE id = ?", (task_id,)).fetchone()
            if row is None:
                raise TaskError("task", f"{task_id[:80]!r} is not in this store; see hush task list --store")
            (digest,) = row
            mark = WHOLE_TASK if round_ is None else round_
            run.execute("INSERT OR IGNORE INTO closed VALUES (?, ?)", (digest, mark))
            if round_ is None:
                run.execute("UPDATE task SET state = ? WHERE id = ?", (TaskState.CLOSED.value, task_id))
                end_recalls(run, digest)

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
        """Close a task, and delete its reports, tallies, counters and recall; its id, digest and mark stay.

        In portions, so that an aggregator that runs need not wait. Interrupted, it is to be called again.

        Raises:
            TaskError: no such task.
        """
        self.close_task(task_id)
        self._connection.execute("PRAGMA secure_delete = ON")
        with self._transaction() as run:
            (digest,) = run.execute("SELECT digest FROM task WHERE id = ?", (task_id,)).fetchone()
            run.execute("UPDATE task SET payload = x'' WHERE id = ?", (task_id,))
            run.execute("DELETE FROM tally WHERE digest = ?", (digest,))
            run.execute("DELETE FROM refusal WHERE task = ?", (task_id,))
            run.execute("DELETE FROM recall WHERE task = ?", (task_id,))
        deleted = 1
        while deleted:
            with self._transaction() as run:
                deleted = run.execute(_DELETE_SOME, (digest, _PORTION)).rowcount

    def _opened(self) -> sqlite3.Connection:
        if not self._path.is_file():
            raise StoreError(f"{self._path}: there is no such file; name the store of an aggregator")
        return connect(self._path, check)


def _add(run: sqlite3.Connection, task: Task, origin: Origin) -> bytes:
    run.execute(
        "INSERT OR IGNORE INTO task (id, digest, payload, origin) VALUES (?, ?, ?, ?)",
        (task.id, task.digest, task.payload, origin.value),
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
    except BaseException:
        connection.close()
        raise
    return connection


_INSERT = "INSERT INTO report VALUES (?, ?, ?, ?)"
_INSERT_IF_NEW = "INSERT OR IGNORE INTO report VALUES (?, ?, ?, ?)"
_FIND = "SELECT 1 FROM report WHERE task = ? AND round = ? AND id = ?"
_NUMBERS = "SELECT digest, number FROM numbered"
_SET_TALLY = "INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?, ?)"
_ADD_REFUSAL = """
INSERT INTO refusal VALUES (?, ?, ?) ON CONFLICT (task, reason) DO UPDATE SET count = count + excluded.count
"""


_AT_ONCE = 500  # values of a statement
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
        self._numbered: dict[bytes, int] = {}  # committed numbers of digests; none is ever changed
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
        """A random name of its session on the broker, made once: 32 hexadecimal digits that nobody can guess."""
        with self._reading() as run:
            return str(run.execute("SELECT id FROM identity").fetchone()[0])

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
            numbers = self._numbers(run, {reports.task.digest for reports in accepted})
            # Marks are read here, where nobody can set one between: a clock that goes back opens nothing again.
            closed = closed_rounds(run, [(reports.task.digest, reports.round) for reports in accepted])
            late: list[Accepted] = []
            open_: list[Accepted] = []
            for reports in accepted:
                over = reports.late or (reports.task.digest, reports.round) in closed
                (late if over else open_).append(reports)
            for reports in late:
                again = _known(run, numbers, reports)
                refusals[reports.task.id, Refusal.CLOSED] += len(reports.ids) - again
                refusals[reports.task.id, Refusal.DUPLICATE] += again
            for reports, done in zip(open_, _count(run, numbers, open_, charging, self._tallies), strict=True):
                task_id = reports.task.id
                counted[task_id] += done.new
                refusals[task_id, Refusal.DUPLICATE] += done.again
                if done.over:
                    refusals[task_id, Refusal.QUOTA] += done.over
                    note_sender(senders, (task_id, Refusal.QUOTA), done.sender)
            refusals = +refusals
            run.executemany(_ADD_REFUSAL, [(task, reason.value, count) for (task, reason), count in refusals.items()])
        by_reason: Counter[Refusal] = Counter()
        for (_, reason), count in refusals.items():
            by_reason[reason] += count
        changed = {reports.task.id for reports in accepted} | {task for task, _ in refusals}
        counted = +counted
        return CommitOutcome(counted.total(), by_reason, frozenset(changed), refusals, senders, counted)

    def _numbers(self, run: sqlite3.Connection, digests: set[bytes]) -> Mapping[bytes, int]:
        """Return the number of each digest; in a transaction, which gives one to those that have none."""
        if not digests <= self._numbered.keys():
            self._numbered = dict(run.execute(_NUMBERS).fetchall())
        missing = sorted(digests - self._numbered.keys())
        if not missing:
            return self._numbered
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            run.execute(f"INSERT INTO numbered (digest) VALUES {', '.join(['(?)'] * len(some))}", some)  # noqa: S608 - place holders
        return dict(run.execute(_NUMBERS).fetchall())  # not kept: the transaction may fail

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


def _known(run: sqlite3.Connection, numbers: Mapping[bytes, int], reports: Accepted) -> int:
    """How many of these are counted already; after the end of a round only those can be told from others."""
    key = numbers[reports.task.digest], reports.round
    return sum(run.execute(_FIND, (*key, report_id)).fetchone() is not None for report_id in reports.ids.tolist())


_Round = tuple[bytes, int]
"""Digest and round."""

_NOBODY = Counter[str]()
_ALONE = np.zeros(1, dtype=np.intp)

_Row = tuple[int, int, bytes, bytes]
"""Number of the digest, round, id and body of a report."""


class _Done(NamedTuple):
    """Reports counted, duplicate, and over a quota; the sender of the last, None for several."""

    new: int
    again: int
    over: int = 0
    sender: str | None = None


def _count(
    run: sqlite3.Connection,
    numbers: Mapping[bytes, int],
    accepted: Sequence[Accepted],
    charging: Charging | None,
    tallies: "_Tallies",
) -> list[_Done]:
    """Insert what is new and within the quotas, and fold exactly that into the tallies. Of equal ids the first wins."""
    if charging is None:
        new, over = _insert(run, numbers, accepted), [_NOBODY] * len(accepted)
    else:
        charged = [_charge(run, numbers, reports, charging) for reports in accepted]
        new, over = [flags for flags, _ in charged], [+names for _, names in charged]
    tallies.add(run, [(reports, flags) for reports, flags in zip(accepted, new, strict=True) if True in flags])
    found = []
    for flags, names in zip(new, over, strict=True):
        counted, refused = flags.count(True), names.total()
        found.append(_Done(counted, len(flags) - counted - refused, refused, only_sender([*names])))
    return found


def _rows(number: int, reports: Accepted, order: NDArray[np.intp] | None = None) -> list[_Row]:
    """Return the rows of reports, in the order of receipt or in another."""
    bodies, ids = reports.bodies, reports.ids
    if order is not None:
        bodies, ids = bodies[order], ids[order]
    raw, round_, size = bodies.astype(">i8", copy=False).tobytes(), reports.round, 8 * bodies.shape[1]
    return [(number, round_, report_id, raw[k * size : (k + 1) * size]) for k, report_id in enumerate(ids.tolist())]


def _insert(run: sqlite3.Connection, numbers: Mapping[bytes, int], accepted: Sequence[Accepted]) -> list[list[bool]]:
    """Insert reports; tell of each whether it is new.

    In the order of the table's key, so that neighbours go to one page. Sorting is stable: of two rows with one key the
    one received first is the new one. Most batches have nothing that is known already: they go in one call, and if one
    row fails, all of them are taken back and inserted singly.
    """
    keys = [(numbers[reports.task.digest], reports.round) for reports in accepted]
    places = sorted(range(len(accepted)), key=keys.__getitem__)
    orders = [_order(accepted[place].ids) for place in places]
    blocks = [_rows(keys[place][0], accepted[place], order) for place, order in zip(places, orders, strict=True)]
    new = [[True] * len(reports.ids) for reports in accepted]
    run.execute("SAVEPOINT rows")
    try:
        run.executemany(_INSERT, chain.from_iterable(blocks))
    except sqlite3.IntegrityError:
        run.execute("ROLLBACK TO rows")
        for place, order, rows in zip(places, orders, blocks, strict=True):
            for k, row in zip(order.tolist(), rows, strict=True):
                new[place][k] = run.execute(_INSERT_IF_NEW, row).rowcount == 1
    run.execute("RELEASE rows")
    return new


def _order(ids: NDArray[np.void]) -> NDArray[np.intp]:
    """Return the order of ids of 16 bytes as SQLite has it, stable."""
    if len(ids) == 1:
        return _ALONE
    halves = np.ascontiguousarray(ids).view(">u8").astype(np.uint64).reshape(-1, 2)
    return np.lexsort((halves[:, 1], halves[:, 0]))


def _charge(
    run: sqlite3.Connection, numbers: Mapping[bytes, int], reports: Accepted, charging: Charging
) -> tuple[list[bool], Counter[str]]:
    """Insert what is new and within the quotas; which are, and how many of each sender were beyond.

    One after the other, in the order of receipt: of two with one id the second counts where the sender of the first has
    no quota left. What has no sender is not charged.
    """
    over, digest, round_ = Counter[str](), reports.task.digest, reports.round
    if reports.senders is None:
        return _insert(run, numbers, [reports])[0], over
    rows = _rows(numbers[digest], reports)
    new = [False] * len(rows)
    for k, (row, sender) in enumerate(zip(rows, reports.senders, strict=True)):
        if not charging.has_left(digest, round_, sender):  # nothing of these is written, however many they are
            over[sender] += run.execute(_FIND, row[:3]).fetchone() is None
        elif run.execute(_INSERT_IF_NEW, row).rowcount == 1:
            new[k] = True
            charging.charge(digest, round_, sender)
    return new, over


class _Tallies:
    """Reads and writes tallies. Those changed last stay in memory: as long as a seal is the same, so are the sums."""

    def __init__(self) -> None:
        self._known: dict[_Round, tuple[bytes, Tally]] = {}  # with its seal
        self._size = 0

    def add(self, run: sqlite3.Connection, counted: Sequence[tuple[Accepted, list[bool]]]) -> None:
        """Add to each tally the reports that are new; each tally is read and written once."""
        folded: dict[_Round, Tally] = {}
        for reports, new in counted:
            bodies = reports.bodies[new] if False in new else reports.bodies
            tally = fold(reports.task.randomizer, bodies.astype(np.int64, copy=False))
            key = reports.task.digest, reports.round
            folded[key] = folded[key].merge(tally) if key in folded else tally
        before = read_tallies(run, sorted(folded), self._known)
        rows = []
        for (digest, round_), tally in sorted(folded.items(), key=itemgetter(0)):
            after = before.get((digest, round_), Tally()).merge(tally)
            moments = str(list(after.moments))  # the same text as of `json.dumps`, in half of the time
            sealed = seal(digest, round_, after.n, moments)
            rows.append((digest, round_, after.n, moments, sealed))
            self._keep((digest, round_), sealed, after)
        run.executemany(_SET_TALLY, rows)

    def _keep(self, round_: _Round, sealed: bytes, tally: Tally) -> None:
        """Even if the transaction fails: then the store has another seal."""
        _, before = self._known.pop(round_, (b"", Tally()))
        self._known[round_] = sealed, tally
        self._size += len(tally.moments) - len(before.moments)
        while self._size > _MOST_KNOWN:
            _, oldest = self._known.pop(next(iter(self._known)))
            self._size -= len(oldest.moments)


_SIDES = ("-wal", "-shm", "-journal")
_FURTHER = 1 << 32  # more transactions than the store had since its backup: its version goes on rising


def back_up(store: Path, file: Path) -> int:
    """Copy a store into a file that is not there yet; return how many reports are counted in it.

    Raises:
        StoreError: there is no such store, it is damaged, or the file is there already or cannot be written.
    """
    if file.exists():
        raise StoreError(f"{file}: already exists; name a new file, or remove it")
    return _copy(store, file, restored=False)


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
            for side in _SIDES:  # of the replaced store: SQLite would take them for those of the new one
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
