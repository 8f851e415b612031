"""The store in PostgreSQL: one transaction a batch, on disk when `commit` returns. Several workers may count at once.

Reports are inserted in the order of their keys, so that two workers with the same reports wait for each other and never
both. Each worker has rows of its own for tallies and refusals, which readers add up. A mark that closes a round waits
for the batches that are being counted, and those that follow see it.
"""

import json
import secrets
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import partial
from importlib.resources import files
from operator import itemgetter
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import errors
from psycopg.adapt import Dumper
from psycopg.pq import Format

from hush_aggregator.estimate.tally import Tally
from hush_aggregator.store.base import (
    WHOLE_TASK,
    Accepted,
    BrokerMemory,
    CommitOutcome,
    DamagedError,
    Dropped,
    Origin,
    Owner,
    PublishedStep,
    Release,
    Round,
    Step,
    StoredRecall,
    StoredRound,
    StoredRows,
    TaskCount,
    TaskRow,
    TaskState,
)
from hush_aggregator.store.counting import (
    Counted,
    are_first,
    charge,
    count_batch,
    counted,
    fold_new,
    sort_new,
    split,
)
from hush_aggregator.store.lsm import Keys, Section, as_keys, bytes_of, is_in, make_keys, series_number
from hush_aggregator.store.postgres_url import PostgresUrl, first_line
from hush_aggregator.store.quotas import KEPT_DAYS, Limits, days, sender_hash
from hush_aggregator.store.reading import (
    DROPPED,
    DROPPING,
    checked_tally,
    make_stored_rounds,
    make_task_row,
    reasons,
    state_of,
    tally_values,
    task_values,
    whole_task,
)
from hush_aggregator.store.steps import checked_steps, put_step, step_from, step_values
from hush_common.errors import StoreError, StoreUnavailableError, TaskError, UnknownCommitError
from hush_common.recall import Recall
from hush_common.task import Task
from hush_common.wire import Refusal, Report, report_digest_of

_Run = psycopg.Connection[tuple[Any, ...]]

_VERSION, _UNFINISHED = 1, 0
_PARTITIONS = 1000  # series with a partition of their own: planning and dropping stay quick
_PORTION = 4096  # reports read at a time
_DELETED = 100_000  # reports deleted in a transaction
_FURTHER = 1 << 32  # more transactions than the store had since its backup: its version goes on rising
_COMMANDS = ""  # the worker that stands for commands
_ANSWER_S, _PAUSE_S = 7.0, 0.25  # how long, and how often, the server is asked for the result of a commit
_LOCK_S = 1.0  # how long the lock of a worker is waited for that has just ended
_IDLE_S = 3  # less than a lease lasts, for which its holder may wait for others
_MADE = 0x68757368  # advisory lock: who makes the tables
_NEW_IDENTITY = partial(secrets.token_hex, 16)
_PLACE = """
SELECT (SELECT system_identifier FROM pg_control_system()), (SELECT timeline_id FROM pg_control_checkpoint()),
    (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class PostgresReader:
    """A `StoreReader`. Its threads wait for each other; a connection that was lost is made again at the next call.

    Raises:
        StoreError: the database cannot be reached, has no store, or one of another version.
    """

    _idle_s: ClassVar[int] = 0  # how long the server waits for this process within a transaction; 0 for ever

    def __init__(self, url: PostgresUrl) -> None:
        self._url = url
        self._turn = threading.RLock()
        self._connection: _Run | None = None
        self._is_open = True
        with self._reading():
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; calling it again does nothing."""
        with self._turn:
            self._is_open = False
            if self._connection is not None:
                self._connection.close()

    @property
    def public_identity(self) -> str:
        """A random name of this store, made once: 32 hexadecimal digits, which its estimates bear."""
        return str(self._one("SELECT store FROM meta"))

    @property
    def newest_day(self) -> date | None:
        """The newest day (UTC) on which it was in use, as far as was noted."""
        text = str(self._one("SELECT newest FROM meta"))
        return date.fromisoformat(text) if text else None

    @property
    def restored(self) -> bool:
        """Whether the database was put back from a backup, and the aggregator has not reacted yet."""
        return bool(self._one("SELECT restored FROM meta"))

    def task(self, task_id: str) -> bytes | None:
        with self._reading() as run:
            query = "SELECT payload, digest FROM task WHERE id = %s AND payload <> ''"
            row = run.execute(query, (task_id,)).fetchone()
            return None if row is None else whole_task(*row)

    def tasks(self) -> list[bytes]:
        with self._reading() as run:
            rows = run.execute("SELECT payload, digest FROM task WHERE payload <> '' ORDER BY id").fetchall()
            return [whole_task(*row) for row in rows]

    def task_rows(self) -> list[TaskRow]:
        with self._reading() as run:
            return [make_task_row(row) for row in run.execute(f"{_TASKS} ORDER BY id").fetchall()]

    def task_row(self, task_id: str) -> TaskRow | None:
        with self._reading() as run:
            row = run.execute(f"{_TASKS} WHERE id = %s", (task_id,)).fetchone()
            return None if row is None else make_task_row(row)

    def changes(self) -> int:
        return int(self._one("SELECT coalesce(sum(changes), 0) FROM worker WHERE name <> %s", (self._writer,)))

    def version(self) -> int:
        return int(self._one("SELECT sum(version) FROM worker"))

    def counts(self) -> list[TaskCount]:
        refused: dict[str, dict[str, int]] = defaultdict(dict)
        with self._reading(snapshot=True) as run:
            query = "SELECT task, reason, sum(count) FROM seen_refusal GROUP BY task, reason"
            for task_id, reason, count in run.execute(query).fetchall():
                refused[task_id][reason] = int(count)
            found = []
            for task_id, digest, state, latest, n, total, closed, at in run.execute(_COUNTS).fetchall():
                numbers = int(latest or 0), int(n or 0), int(total or 0)
                refusals = reasons(refused.get(task_id, {}))
                found.append(TaskCount(task_id, digest, *numbers, refusals, closed, state_of(state), int(at or 0)))
        return found

    def refused(self) -> dict[Refusal, int]:
        return self._refusals("SELECT reason, sum(count) FROM seen_refusal GROUP BY reason", ())

    def refusals(self, task_id: str) -> dict[Refusal, int]:
        query = "SELECT reason, sum(count) FROM seen_refusal WHERE task = %s GROUP BY reason ORDER BY reason"
        return self._refusals(query, (task_id,))

    def tally(self, digest: bytes, round_: int) -> Tally:
        with self._reading() as run:
            if not _has_policy(run, digest):
                return _read_tallies(run, [(digest, round_)]).get((digest, round_), Tally())
            query = "SELECT n, moments, seal FROM released WHERE digest = %s AND round = %s"
            row = run.execute(query, (digest, round_)).fetchone()
            return Tally() if row is None else checked_tally(digest, round_, *row)

    def latest_round(self, digest: bytes) -> int:
        with self._reading() as run:
            table = "released" if _has_policy(run, digest) else "tally"
        return int(self._one(f"SELECT coalesce(max(round), 0) FROM {table} WHERE digest = %s", (digest,)))  # noqa: S608 - ours

    def reports(self, digest: bytes, round_: int) -> Iterator[Report]:
        carried = report_digest_of(digest)
        for ids, bodies in self.arrays(digest, round_):
            for report_id, body in zip(ids.tolist(), bodies.tolist(), strict=True):
                yield Report(carried, round_, report_id, tuple(body))

    def arrays(self, digest: bytes, round_: int) -> Iterator[tuple[NDArray[np.void], NDArray[np.int64]]]:
        with self._reading() as run:
            found = run.execute(
                "SELECT part, series, width FROM series WHERE digest = %s AND round = %s AND dropped = 0",
                (digest, round_),
            ).fetchone()
        if found is None:
            return
        *place, width = found
        after, operator = bytes(16), ">="
        while True:
            with self._reading() as run:
                query = (
                    f"SELECT uuid_send(id), body FROM report WHERE part = %s AND series = %s "  # noqa: S608 - constants
                    f"AND id {operator} %s::uuid ORDER BY id LIMIT {_PORTION}"
                )
                rows = run.execute(query, (*place, after.hex()), binary=True).fetchall()
            if not rows:
                return
            with self._translated():
                bodies = _decode_bodies([body for _, body in rows], width)
            yield np.frombuffer(b"".join(row[0] for row in rows), dtype="V16"), bodies
            after, operator = rows[-1][0], ">"

    def is_closed(self, digest: bytes, round_: int | None = None) -> bool:
        rounds = [WHOLE_TASK] if round_ is None else [WHOLE_TASK, round_]
        query = "SELECT EXISTS (SELECT 1 FROM closed WHERE digest = %s AND round = ANY(%s))"
        return bool(self._one(query, (digest, rounds)))

    def marks(self) -> frozenset[tuple[bytes, int]]:
        with self._reading() as run:
            return frozenset((row[0], row[1]) for row in run.execute("SELECT digest, round FROM closed").fetchall())

    def counted_since(self, digest: bytes, round_: int) -> int:
        query = "SELECT coalesce(sum(n), 0) FROM seen_tally WHERE digest = %s AND round >= %s"
        return int(self._one(query, (digest, round_)))

    def recalls(self) -> list[StoredRecall]:
        with self._reading() as run:
            rows = run.execute("SELECT task, digest, id, over, made, ended FROM recall ORDER BY task").fetchall()
            try:
                return [StoredRecall(Recall(*row[:4]), row[4], ended=row[5]) for row in rows]
            except ValueError:
                raise DamagedError("a recall") from None

    def broker(self) -> BrokerMemory:
        with self._reading() as run:
            row = run.execute(_BROKER, (self._writer,)).fetchone()
        return BrokerMemory() if row is None else BrokerMemory(*row)

    def workers(self) -> dict[str, bool]:
        """The workers that ever counted into this store, in the order of their names, and whether each runs now."""
        with self._reading() as run:
            rows = run.execute(_WORKERS, (f"hush {self._url.schema} ",)).fetchall()
        return {str(name): bool(runs) for name, runs in rows}

    def stored_rows(self) -> StoredRows:
        """See `OpenedStore.stored_rows`; the session is that of the worker `1`, of a store without a group."""
        newest = str(self._one("SELECT newest FROM meta"))
        session = str(self._one("SELECT coalesce((SELECT session FROM worker WHERE name = '1'), '')"))
        with self._reading() as run:
            marks = {(row[0], row[1]): row[2] for row in run.execute("SELECT digest, round, at FROM closed").fetchall()}
            rows = run.execute("SELECT digest, round, n, moments, seal FROM released").fetchall()
            released = {(row[0], row[1]): checked_tally(*row) for row in rows}
            series = run.execute("SELECT digest, round, width FROM series WHERE dropped > 0").fetchall()
            tallies = _read_tallies(run, [(digest, round_) for digest, round_, _ in series])
            dropped = {
                (digest, round_): Dropped(width, tallies.get((digest, round_), Tally()))
                for digest, round_, width in series
            }
            of = run.execute("SELECT DISTINCT digest, round FROM step").fetchall() if _has_steps(run) else []
            steps: dict[Round, list[Step]] = {(row[0], row[1]): _read_steps(run, row[0], row[1]) for row in of}
            releases = _read_releases(run)
        names = self.public_identity, session or _NEW_IDENTITY(), newest
        return StoredRows(*names, self.task_rows(), marks, self.recalls(), releases, released, dropped, steps)

    def counted_tally(self, digest: bytes, round_: int) -> Tally:
        with self._reading() as run:
            return _read_tallies(run, [(digest, round_)]).get((digest, round_), Tally())

    def counted_refusals(self) -> dict[tuple[str, Refusal], int]:
        with self._reading() as run:
            rows = run.execute("SELECT task, reason, sum(count) FROM refusal GROUP BY task, reason").fetchall()
        return {(task_id, reason): int(k) for task_id, name, k in rows for reason in reasons({name: int(k)})}

    def release_of(self, digest: bytes) -> Release | None:
        with self._reading() as run:
            return _read_releases(run, digest).get(digest)

    def stored_rounds(self, digest: bytes | None = None) -> list[StoredRound]:
        with self._reading() as run:
            rows = run.execute(_STORED, (digest, digest)).fetchall()
        return make_stored_rounds(rows)

    def steps(self, digest: bytes, round_: int) -> list[Step]:
        with self._reading() as run:
            return _read_steps(run, digest, round_)

    def lease(self) -> tuple[str, int]:
        """The worker that publishes, or '' if there is none now, and the number of the last lease."""
        with self._reading() as run:
            query = "SELECT CASE WHEN expires > clock_timestamp() THEN holder ELSE '' END, number FROM lease"
            row = run.execute(query).fetchone()
            assert row is not None  # noqa: S101 - for the type checker: the table has one row
            return str(row[0]), int(row[1])

    # The connection

    @property
    def _writer(self) -> str:
        """The name under which it writes."""
        return _COMMANDS

    def _refusals(self, query: str, values: tuple[object, ...]) -> dict[Refusal, int]:
        with self._reading() as run:
            return reasons({reason: int(count) for reason, count in run.execute(query, values).fetchall()})

    def _one(self, query: str, values: tuple[object, ...] = ()) -> Any:  # noqa: ANN401 - of any column
        with self._reading() as run:
            row = run.execute(query, values).fetchone()
            assert row is not None  # noqa: S101 - for the type checker: the queries have one row
            return row[0]

    @contextmanager
    def _reading(self, *, snapshot: bool = False) -> Iterator[_Run]:
        with self._turn, self._translated():
            run = self._connected()
            if not snapshot:
                yield run
                return
            with run.transaction():
                run.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                run.execute("SET LOCAL idle_in_transaction_session_timeout TO 0")  # what it gives may be read slowly
                yield run

    def _connected(self) -> _Run:
        if not self._is_open:
            raise StoreError(f"{self._url}: this store was closed")
        if self._connection is None or self._connection.closed:
            connection = self._url.connect()
            try:
                for dumper in _DUMPERS:
                    connection.adapters.register_dumper(*dumper)
                self._prepare(connection)
                if self._idle_s:
                    connection.execute(f"SET idle_in_transaction_session_timeout TO '{self._idle_s}s'")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, run: _Run) -> None:
        """Check the tables."""
        _check(self._url, run)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn what psycopg complains about into a `StoreError` with a remedy."""
        try:
            yield
        except DamagedError as error:
            raise StoreError(f"{self._url}: {error}; the database is damaged; restore it from a backup") from error
        except psycopg.Error as error:
            kind = StoreUnavailableError if _may_pass(error) else StoreError
            raise kind(f"{self._url}: {first_line(error)}; {_remedy(error)}") from error


class PostgresEditor(PostgresReader):
    """A store for a command, whether aggregators count into it meanwhile or not: they see what was written.

    The server ends the connection of a process that stops within a transaction, since others wait for its locks.
    """

    _idle_s = _IDLE_S

    def add_task(self, task: Task, origin: Origin = Origin.FILE) -> bytes:
        """See `Store.add_task`."""
        return self.add_tasks([task], origin)[0]

    def add_tasks(self, tasks: Sequence[Task], origin: Origin = Origin.FILE) -> list[bytes]:
        """See `Store.add_tasks`."""
        with self._changing() as run:
            kept = {task.id: _add(run, task, origin) for task in sorted(tasks, key=lambda task: task.id)}
        return [kept[task.id] for task in tasks]

    def set_state(self, task_id: str, state: TaskState) -> None:
        """Set the state of a task; raise TaskError if it is closed, perhaps by another process since then."""
        with self._changing() as run:
            query = "UPDATE task SET state = %s WHERE id = %s AND state <> %s"
            if not run.execute(query, (state.value, task_id, TaskState.CLOSED.value)).rowcount:
                raise TaskError("task", f"{task_id!r} is permanently closed: devices no longer answer it")

    def set_owners(self, owners: Sequence[Owner]) -> None:
        """See `Store.set_owners`."""
        rows = [(one.owner, one.term, one.taken_from, one.task, one.was_taken_from) for one in owners]
        with self._changing() as run, run.cursor() as cursor:
            cursor.executemany(_SET_OWNER, sorted(rows, key=itemgetter(3)))

    def close_task(self, task_id: str, round_: int | None = None, at: datetime | None = None) -> None:
        """See `Store.close_task`."""
        with self._changing() as run:
            row = run.execute("SELECT digest FROM task WHERE id = %s", (task_id,)).fetchone()
            if row is None:
                raise TaskError("task", f"{task_id[:80]!r} is not in this store; see hush task list --store")
            (digest,) = row
            mark = WHOLE_TASK if round_ is None else round_
            run.execute(_CLOSE, (digest, mark, int((at or datetime.now(UTC)).timestamp())))
            if round_ is None:
                run.execute("UPDATE task SET state = %s WHERE id = %s", (TaskState.CLOSED.value, task_id))
                run.execute("UPDATE recall SET ended = true WHERE digest = %s", (digest,))

    def release(self, digests: Sequence[bytes], at: int) -> list[str]:
        """See `Store.release`."""
        with self._changing() as run:
            tasks = run.execute(_POLICIES, ([*digests],)).fetchall()  # locked: two workers that release wait
            return [task[0] for task in tasks if _release(run, (task[0], task[1], task[2], task[3]), at)]

    def set_back_releases(self, now: int) -> None:
        """Let no release be later than now, in seconds since 1970: the clock was wrong when it was made."""
        with self._changing() as run:
            run.execute("UPDATE release SET at = %s WHERE at > %s", (now, now))

    def drop_reports(self, digest: bytes, round_: int) -> bool:
        """See `Store.drop_reports`."""
        where = "WHERE digest = %s AND round = %s"
        with self._changing() as run:
            query = f"SELECT part, series, dropped FROM series {where} FOR UPDATE"  # noqa: S608 - a constant
            row = run.execute(query, (digest, round_)).fetchone()
            if row is None or row[2] == DROPPED:
                return False
            state = DROPPING
            if row[2] == DROPPING:
                part, number, _ = row
                if part:
                    run.execute(f"TRUNCATE report_{part}")
                if part or not run.execute(_DELETE_SOME, (number, number, _DELETED)).rowcount:
                    state = DROPPED
            else:
                run.execute(_CLOSE, (digest, round_, int(datetime.now(UTC).timestamp())))
            run.execute(f"UPDATE series SET dropped = %s {where}", (state, digest, round_))  # noqa: S608 - a constant
        return state == DROPPING

    def recall(self, rows: Sequence[StoredRecall], memory: BrokerMemory | None = None) -> list[StoredRecall]:
        """See `Store.recall`."""
        with self._changing() as run:
            if memory is not None:
                values = (memory.session, memory.started, memory.alive, memory.dropped, self._writer)
                run.execute(_SET_BROKER, values)
            return [row for row in rows if _write_recall(run, row)]

    def end_recall(self, recall: Recall) -> None:
        """See `Store.end_recall`."""
        with self._changing() as run:
            run.execute("DELETE FROM recall WHERE task = %s AND id = %s", (recall.task, recall.id))

    def put_steps(self, published: Sequence[PublishedStep]) -> int:
        """See `Store.put_steps`."""
        with self._transaction() as run:
            run.execute("LOCK TABLE step IN SHARE ROW EXCLUSIVE MODE")  # a worker that has lost its lease waits
            return sum([_write_published(run, one) for one in published])

    def thin_steps(self, before: int) -> None:
        """See `Store.thin_steps`."""
        hours = "SELECT EXISTS (SELECT 1 FROM step WHERE until < %s AND until %% 86400 <> 0)"
        if self._one(hours, (before,)):
            with self._transaction() as run:
                run.execute("LOCK TABLE step IN SHARE ROW EXCLUSIVE MODE")
                run.execute(_DELETE_HOURS, (before,))
                run.execute(_SET_DAYS, (before,))

    def note_day(self, day: date) -> None:
        """Note that it is in use on that day, even if a later one was noted."""
        with self._changing() as run:
            run.execute("UPDATE meta SET newest = %s", (day.isoformat(),))

    def reacted_to_restoring(self) -> None:
        """Note that nothing is left to do because the database was put back from a backup."""
        with self._changing() as run:
            run.execute("UPDATE meta SET restored = false")

    def forget(self, task_id: str) -> None:
        """Close a task, and delete its reports, tallies, steps, counters and recall; its id, digest and mark stay.

        In portions, so that aggregators need not wait. Interrupted, it is to be called again.

        Raises:
            TaskError: no such task.
        """
        self.close_task(task_id)
        with self._changing() as run:
            row = run.execute("UPDATE task SET payload = '' WHERE id = %s RETURNING digest", (task_id,)).fetchone()
            assert row is not None  # noqa: S101 - for the type checker: it was closed above
            (digest,) = row
            for table in ("tally", "released", "release", "recall", *(("step",) if _has_steps(run) else ())):
                run.execute(f"DELETE FROM {table} WHERE digest = %s", (digest,))  # noqa: S608 - ours
            run.execute("DELETE FROM refusal WHERE task = %s", (task_id,))
            series = run.execute("SELECT part, series FROM series WHERE digest = %s", (digest,)).fetchall()
        for part, number in series:
            self._drop(part, number)

    def _drop(self, part: int, number: int) -> None:
        """Delete the reports of a series."""
        if part:
            with self._changing() as run:
                run.execute(f"TRUNCATE report_{part}")
            return
        deleted = 1
        while deleted:
            with self._changing() as run:
                deleted = run.execute(_DELETE_SOME, (number, number, _DELETED)).rowcount

    @contextmanager
    def _changing(self) -> Iterator[_Run]:
        """A transaction that writes something other than reports."""
        with self._transaction() as run:
            yield run
            run.execute("UPDATE worker SET changes = changes + 1 WHERE name = %s", (self._writer,))

    @contextmanager
    def _transaction(self) -> Iterator[_Run]:
        with self._reading() as run:
            version = None
            try:
                with run.transaction():
                    yield run
                    version = run.execute(_NEW_VERSION, (self._writer,)).fetchone()
            except psycopg.OperationalError:
                if version is None or not self._was_committed(*version):
                    raise

    def _was_committed(self, version: int) -> bool:  # noqa: ARG002 - others write under the name of commands, too
        """Whether the transaction with this version took place, though its connection was lost before the answer."""
        if self._connection is not None and self._connection.closed:
            why = "the connection was lost, and the change may have taken place"
            raise UnknownCommitError(f"{self._url}: {why}; repeat it")
        return False


class PostgresStore(PostgresEditor):
    """A `Store` in a schema of a database, made if it is missing.

    Threads wait for each other's transactions. A lock of the database, which ends with the connection, keeps a second
    process with the same worker's name out.

    Args:
        url: of the database.
        limits: how many reports of a round one sender may have counted; None for any number.
        worker: the name of this aggregator among those that count into this store; any text but ''.

    Raises:
        StoreError: the database cannot be reached, has tables of another program or version, or the worker runs.
    """

    _schema_version = _VERSION

    def __init__(self, url: PostgresUrl, limits: Limits | None = None, worker: str = "1") -> None:
        self._worker = worker
        self._limits = limits
        self._series: dict[Round, tuple[int, int, int]] = {}  # width, number and partition; none is ever changed
        super().__init__(url)
        try:
            self.forget_senders()
        except BaseException:
            self.close()
            raise

    @property
    def identity(self) -> str:
        """A random name of this worker's session on the broker, made once: 32 hexadecimal digits."""
        return str(self._one("SELECT session FROM worker WHERE name = %s", (self._worker,)))

    def commit(self, accepted: Sequence[Accepted], refused: Mapping[tuple[str, Refusal], int]) -> CommitOutcome:
        series = self._series_of(accepted)
        with self._transaction() as run:
            run.execute("LOCK TABLE closed IN SHARE MODE")  # who closes a round waits, and others that count do not
            charging = None if self._limits is None else _Charging(run, self._url.schema, self._limits)
            outcome = count_batch(
                accepted,
                refused,
                closed=partial(_closed_rounds, run),
                count_known=partial(self._count_known, run, series),
                count=partial(self._count, run, series, charging),
                add_refusals=partial(self._add_refusals, run),
            )
            if charging is not None:
                charging.write()
        return outcome

    @classmethod
    def unfinished(cls, url: PostgresUrl) -> "PostgresStore":
        """Make tables that nobody else opens before `put_rows`; raise StoreError if there are some."""
        with url.connect() as run:
            if run.execute("SELECT to_regclass(%s)", (f"{url.schema}.meta",)).fetchone() != (None,):
                remedy = f"name another schema, or drop {url.schema} and {url.schema}_quota"
                raise StoreError(f"{url}: there is a store, or a copy that was interrupted; {remedy}")
            _make(url, run, _UNFINISHED)
        return _UnfinishedStore(url)

    def put_rows(self, rows: StoredRows) -> None:
        """See `FillableStore.put_rows`."""
        with self._changing() as run:
            run.execute("DELETE FROM task")
            for row in rows.tasks:
                run.execute(_PUT_TASK, task_values(row))
            for mark, at in sorted(rows.marks.items()):
                run.execute(_CLOSE, (*mark, at))
            for round_, tally in sorted(rows.released.items()):
                run.execute(_SET_RELEASED, tally_values(round_, tally))
            for digest, release in sorted(rows.releases.items()):
                values_of_release = digest, release.at, json.dumps(release.refused), sorted(release.closed)
                run.execute("INSERT INTO release VALUES (%s, %s, %s, %s)", values_of_release)
            for round_, (width, tally) in sorted(rows.dropped.items()):
                run.execute(_ADD_DROPPED, (*round_, width, DROPPED))
                self._set_tallies(run, [tally_values(round_, tally)])
            for key, steps in sorted(rows.steps.items()):
                for step in steps:
                    run.execute(_ADD_STEP, (*key, *step_values(step)))
            for recall in rows.recalls:
                one = recall.recall
                values = (one.task, one.digest, one.id, one.over, recall.made, recall.ended)
                run.execute("INSERT INTO recall VALUES (%s, %s, %s, %s, %s, %s)", values)
            run.execute("UPDATE worker SET session = %s WHERE name = %s", (rows.session, self._worker))
            run.execute("UPDATE worker SET version = version + %s WHERE name = %s", (_FURTHER, _COMMANDS))
            values_of_store = (rows.identity, rows.newest, _VERSION)
            run.execute(
                "UPDATE meta SET store = %s, newest = %s, restored = true, schema_version = %s", values_of_store
            )

    def take_lease(self, seconds: float) -> int | None:
        """Take or renew the lease of the worker that publishes; return its number, None if another one has it.

        The number rises each time that the lease is taken by another worker, or after it had ended. It is the time, in
        seconds since 1970, or one more than the last if that is larger.
        """
        with self._reading() as run:
            values = {"worker": self._worker, "seconds": seconds}
            row = run.execute(_TAKE_LEASE, values).fetchone()
            return None if row is None else int(row[0])

    def release_lease(self) -> None:
        """End the lease, if this worker has it."""
        with self._reading() as run:
            run.execute("UPDATE lease SET expires = '-infinity' WHERE holder = %s", (self._worker,))

    def forget_senders(self) -> None:
        """Delete what the quotas know of rounds that are closed, or open for too long."""
        with self._reading() as run, run.transaction():
            quota = f"{self._url.schema}_quota"
            closed = "SELECT 1 FROM closed WHERE closed.digest = q.digest AND closed.round IN (q.round, -1)"
            query = f"DELETE FROM {quota}.round AS q WHERE %s - day >= %s OR EXISTS ({closed})"  # noqa: S608 - checked
            run.execute(query, (days(datetime.now(UTC)), KEPT_DAYS))

    @property
    def _writer(self) -> str:
        return self._worker

    def _was_committed(self, version: int) -> bool:
        # Nobody else writes this row, and the lock is free once the server has ended the former connection. The number
        # of the transaction would not do: a server that crashed uses it again.
        until = time.monotonic() + _ANSWER_S
        while True:
            try:
                query = "SELECT version >= %s FROM worker WHERE name = %s"
                row = self._connected().execute(query, (version, self._worker)).fetchone()
            except (StoreUnavailableError, psycopg.OperationalError) as error:
                if time.monotonic() >= until:
                    why = f"no answer whether the last transaction was committed ({first_line(error)})"
                    raise UnknownCommitError(f"{self._url}: {why}; {_REMEDY}") from error
                time.sleep(_PAUSE_S)
            else:
                return row == (True,)

    def _prepare(self, run: _Run) -> None:
        _make(self._url, run)
        _check(self._url, run, self._schema_version)
        _add_steps(run)
        until = time.monotonic() + _LOCK_S
        while not self._is_alone(run):
            if time.monotonic() >= until:
                raise StoreUnavailableError(
                    f"{self._url}: another aggregator uses this store as worker {self._worker!r}; stop it, or give "
                    "this one another --worker"
                )
            time.sleep(_PAUSE_S)
        values = (self._worker, _NEW_IDENTITY())
        run.execute("INSERT INTO worker (name, session) VALUES (%s, %s) ON CONFLICT DO NOTHING", values)

    def _is_alone(self, run: _Run) -> bool:
        """Take the lock of this worker if it is free; the server frees it when it notices the end of a connection."""
        lock = f"hush {self._url.schema} {self._worker}"
        row = run.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (lock,)).fetchone()
        return row == (True,)

    def _count_known(self, run: _Run, series: Mapping[Round, "_Series"], late: Sequence[Accepted]) -> list[int]:
        """Return how many of each of these are counted already: after the end of a round the others are refused."""
        dropped = _dropped_rounds(run, [(reports.task.digest, reports.round) for reports in late])
        found = []
        for reports in late:
            round_ = reports.task.digest, reports.round
            one = series[round_]
            known = () if round_ in dropped else _find(run, [one], make_keys(one.key, reports.ids))
            found.append(int(np.count_nonzero(known)))
        return found

    def _count(
        self,
        run: _Run,
        series: Mapping[Round, "_Series"],
        charging: "_Charging | None",
        accepted: Sequence[Accepted],
    ) -> list[Counted]:
        if not accepted:
            return []
        found = [series[reports.task.digest, reports.round] for reports in accepted]
        keys = [make_keys(one.key, reports.ids) for one, reports in zip(found, accepted, strict=True)]
        joined = np.concatenate(keys)
        flags, over = split(are_first(joined), keys), None
        if charging is not None:
            charging.lock(accepted)
            over = charge(accepted, keys, split(_find(run, found, joined), keys), flags, charging)
        parts = {one.number: one.part for one in found}
        for section in sort_new(keys, accepted, flags):
            inserted = _insert(run, parts, section)
            if inserted is not None:
                width = section.bodies.shape[1]
                for one, reports, some, new in zip(found, accepted, keys, flags, strict=True):
                    if one.width == width:
                        gone = new & ~is_in(inserted, some)
                        new[gone] = False
                        if charging is not None:
                            charging.refund(reports, gone)
        self._add_to_tallies(run, fold_new(accepted, flags))
        return counted(flags, over)

    def _series_of(self, accepted: Sequence[Accepted]) -> dict[Round, "_Series"]:
        """Return the series of these rounds; those that have none get one, in a transaction of its own."""
        rounds = {(reports.task.digest, reports.round): reports.bodies.shape[1] for reports in accepted}
        missing = sorted(rounds.keys() - self._series.keys())
        if missing:
            with self._reading() as run:
                found = _read_series(run, missing)
                for round_ in missing:
                    if round_ not in found:
                        _add_series(run, round_, rounds[round_])
                self._series |= _read_series(run, missing)
        return {round_: _Series(*self._series[round_]) for round_ in rounds}

    def _add_to_tallies(self, run: _Run, folded: Mapping[Round, Tally]) -> None:
        rounds = sorted(folded)
        before = _read_tallies(run, rounds, self._worker)
        self._set_tallies(
            run, [tally_values(round_, before.get(round_, Tally()).merge(folded[round_])) for round_ in rounds]
        )

    def _set_tallies(self, run: _Run, rows: Sequence[tuple[bytes, int, int, str, bytes]]) -> None:
        if rows:
            run.execute(_SET_TALLIES, (self._worker, *map(list, zip(*rows, strict=True))))

    def _add_refusals(self, run: _Run, rows: Iterable[tuple[str, str, int]]) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        if columns:
            run.execute(_ADD_REFUSALS, (self._worker, *columns))


class _UnfinishedStore(PostgresStore):
    """A store that is being copied."""

    _schema_version = _UNFINISHED
    _idle_s = 0  # nobody else uses it yet


class _Series:
    """The reports of a round.

    Attributes:
        key: its number as in keys, where equal widths are neighbours.
    """

    def __init__(self, width: int, number: int, part: int) -> None:
        self.width, self.number, self.part = width, number, part
        self.key = series_number(width, number)


class _Charging:
    """Charges the senders of one batch; their rows are locked in one order before anything is looked up."""

    def __init__(self, run: _Run, schema: str, limits: Limits) -> None:
        self._run = run
        self._limits = limits
        self._quota = f"{schema}_quota"
        self._today = days(datetime.now(UTC))
        self._rows: dict[tuple[bytes, int, str], tuple[int, bytes]] = {}
        self._left: Counter[tuple[bytes, int, str]] = Counter()
        self._charged: Counter[tuple[bytes, int, str]] = Counter()

    def lock(self, accepted: Sequence[Accepted]) -> None:
        """Lock what is known of these senders in their rounds, and read it."""
        senders: dict[Round, set[str]] = defaultdict(set)
        for reports in accepted:
            senders[reports.task.digest, reports.round] |= set(reports.senders or ())
        named: dict[tuple[int, bytes], tuple[bytes, int, str]] = {}
        for (digest, round_), names in sorted(senders.items()):
            if names:
                number, key = self._round(digest, round_)
                named |= {(number, sender_hash(key, name)): (digest, round_, name) for name in names}
        if not named:
            return
        rows = sorted(named)
        columns = [[row[0] for row in rows], [row[1] for row in rows]]
        self._run.execute(
            f"INSERT INTO {self._quota}.charge SELECT *, 0 FROM unnest(%s::bigint[], %s::bytea[]) "  # noqa: S608 - checked
            "ON CONFLICT (round, sender) DO UPDATE SET n = charge.n",  # which locks the row
            columns,
        )
        used = self._run.execute(
            f"SELECT round, sender, n FROM {self._quota}.charge "  # noqa: S608 - as above
            "JOIN unnest(%s::bigint[], %s::bytea[]) AS wanted (round, sender) USING (round, sender)",
            columns,
        ).fetchall()
        for number, hash_, n in used:
            place = named[number, hash_]
            self._rows[place] = number, hash_
            self._left[place] = self._limits.of(place[2]) - n

    def has_left(self, digest: bytes, round_: int, sender: str) -> bool:
        """Whether one more report of this sender may count."""
        return self._left[digest, round_, sender] > 0

    def charge(self, digest: bytes, round_: int, sender: str) -> None:
        """Charge a sender that has some left for a report that is new."""
        self._left[digest, round_, sender] -= 1
        self._charged[digest, round_, sender] += 1

    def refund(self, reports: Accepted, gone: NDArray[np.bool_]) -> None:
        """Charge nobody for these after all: another worker has counted them meanwhile."""
        for k in np.flatnonzero(gone).tolist():
            if reports.senders is not None:
                self._charged[reports.task.digest, reports.round, reports.senders[k]] -= 1

    def write(self) -> None:
        """Keep the charges, in the transaction that counts the batch."""
        rows = [(*self._rows[place], n) for place, n in (+self._charged).items()]
        if rows:
            self._run.execute(
                f"UPDATE {self._quota}.charge AS c SET n = c.n + new.n "  # noqa: S608 - as above
                "FROM unnest(%s::bigint[], %s::bytea[], %s::bigint[]) AS new (round, sender, n) "
                "WHERE c.round = new.round AND c.sender = new.sender",
                [list(column) for column in zip(*sorted(rows), strict=True)],
            )

    def _round(self, digest: bytes, round_: int) -> tuple[int, bytes]:
        """Number and key of a round; of one that is new, or too old, drawn now."""
        table = f"{self._quota}.round"
        self._run.execute(
            f"DELETE FROM {table} WHERE digest = %s AND round = %s AND %s - day >= %s",  # noqa: S608 - as above
            (digest, round_, self._today, KEPT_DAYS),
        )
        row = self._run.execute(
            f"INSERT INTO {table} AS r (digest, round, key, day) VALUES (%s, %s, %s, %s) "  # noqa: S608 - as above
            "ON CONFLICT (digest, round) DO UPDATE SET day = r.day RETURNING number, key",
            (digest, round_, secrets.token_bytes(32), self._today),
        ).fetchone()
        assert row is not None  # noqa: S101 - for the type checker: it returns one
        return int(row[0]), bytes(row[1])


_TASKS = "SELECT id, digest, payload, origin, state, owner, term, taken_from FROM task"
_COUNTS = """
SELECT task.id, task.digest, task.state, counted.latest, counted.n, counted.total,
    (SELECT count(*) FROM closed WHERE closed.digest = task.digest), release.at
FROM task LEFT JOIN (
    SELECT digest, max(round) AS latest, sum(n) AS total, (array_agg(n ORDER BY round DESC))[1] AS n
    FROM seen_tally GROUP BY digest
) AS counted ON counted.digest = task.digest
LEFT JOIN release ON release.digest = task.digest
WHERE task.payload <> '' ORDER BY task.id
"""
_NEW_VERSION = "UPDATE worker SET version = version + 1 WHERE name = %s RETURNING version"
_CLOSE = "INSERT INTO closed VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_ADD_DROPPED = "INSERT INTO series (digest, round, width, part, dropped) VALUES (%s, %s, %s, 0, %s)"
_STEP_COLUMNS = "until, n, mean, low, high, confidence"
_ADD_STEP = "INSERT INTO step VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
_DELETE_HOURS = """
DELETE FROM step WHERE until < %s AND until %% 86400 <> 0 AND EXISTS (
    SELECT 1 FROM step AS later WHERE later.digest = step.digest AND later.round = step.round
    AND later.until > step.until AND later.until <= (step.until / 86400 + 1) * 86400)
"""
_SET_DAYS = "UPDATE step SET until = (until / 86400 + 1) * 86400 WHERE until < %s AND until %% 86400 <> 0"
_ADD_TASK = """
INSERT INTO task (id, digest, payload, origin, release_from, release_every) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (id) DO NOTHING
"""
_STORED = """
SELECT counted.digest, counted.round, counted.n, coalesce(series.dropped, 0),
    (SELECT min(at) FROM closed WHERE closed.digest = counted.digest AND closed.round IN (counted.round, -1))
FROM (
    SELECT digest, round, sum(n) AS n FROM tally WHERE %s::bytea IS NULL OR digest = %s GROUP BY digest, round
) AS counted LEFT JOIN series USING (digest, round) ORDER BY digest, round
"""
_POLICIES = """
SELECT id, digest, release_from, release_every FROM task
WHERE digest = ANY(%s) AND payload <> '' AND release_from + release_every > 0 ORDER BY id FOR UPDATE
"""
_CHANGED = """
SELECT counted.round FROM (SELECT round, sum(n) AS n FROM tally WHERE digest = %s GROUP BY round) AS counted
LEFT JOIN released ON released.digest = %s AND released.round = counted.round
WHERE counted.n >= %s AND released.n IS DISTINCT FROM counted.n
"""
_SET_RELEASED = """
INSERT INTO released VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (digest, round) DO UPDATE SET n = excluded.n, moments = excluded.moments, seal = excluded.seal
"""
_SET_RELEASE = """
INSERT INTO release SELECT %(digest)s, %(at)s, coalesce((
    SELECT json_object_agg(reason, count) FROM (
        SELECT reason, sum(count) AS count FROM refusal
        WHERE task = %(task)s AND EXISTS (SELECT 1 FROM released WHERE digest = %(digest)s) GROUP BY reason) AS counts
    ), '{}'), %(closed)s
ON CONFLICT (digest) DO UPDATE SET at = excluded.at, refused = excluded.refused, closed = excluded.closed
"""
_SET_OWNER = """
UPDATE task SET owner = %s, term = %s, taken_from = %s WHERE id = %s AND taken_from = coalesce(%s, taken_from)
"""
_PUT_TASK = """
INSERT INTO task VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
# its own session, and what the worker knows that heard the broker last; a clock that was ahead heard nothing
_BROKER = """
SELECT (SELECT coalesce(bool_or(session_left), false) FROM worker WHERE name = %s),
    broker_started, broker_alive, broker_dropped FROM worker
ORDER BY broker_alive > extract(epoch FROM clock_timestamp()) + 60, broker_alive DESC NULLS LAST LIMIT 1
"""
_SET_BROKER = """
UPDATE worker SET session_left = %s, broker_started = %s, broker_alive = %s, broker_dropped = %s WHERE name = %s
"""
_KEEP_RECALL = """
INSERT INTO recall SELECT %(task)s, %(digest)s, %(id)s, %(over)s, %(made)s, false
WHERE NOT EXISTS (SELECT 1 FROM closed WHERE digest = %(digest)s AND round = -1)
ON CONFLICT (task) DO UPDATE SET digest = excluded.digest, id = excluded.id, over = excluded.over,
    made = excluded.made, ended = excluded.ended
"""
_DELETE_SOME = """
DELETE FROM report WHERE part = 0 AND series = %s AND id IN (
    SELECT id FROM report WHERE part = 0 AND series = %s LIMIT %s)
"""
_WORKERS = """
SELECT name, EXISTS (
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND classid::bigint = (key >> 32) & 4294967295 AND objid::bigint = key & 4294967295)
FROM (SELECT name, hashtextextended(%s || name, 0) AS key FROM worker WHERE name <> '') AS known ORDER BY name
"""
# a new number is at least the time, and so rises also where the database was put back from a backup
_TAKE_LEASE = """
UPDATE lease SET holder = %(worker)s, expires = clock_timestamp() + make_interval(secs => %(seconds)s),
    number = CASE WHEN holder = %(worker)s AND expires > clock_timestamp() THEN number
        ELSE greatest(number + 1, extract(epoch FROM clock_timestamp())::bigint) END
WHERE holder = %(worker)s OR expires <= clock_timestamp() RETURNING number
"""
_ADD_SERIES = """
INSERT INTO series (digest, round, width, part) VALUES (%s, %s, %s, 0) ON CONFLICT DO NOTHING RETURNING series
"""
_INSERT = """
WITH new AS (
    INSERT INTO report SELECT * FROM unnest(%s::int4[], %s::int4[], %s::uuid[], %s::bytea[])
    ON CONFLICT DO NOTHING RETURNING series, id)
SELECT CASE WHEN count(*) < %s THEN coalesce(string_agg(int4send(series) || uuid_send(id), ''::bytea), '') END FROM new
"""
_FIND = """
SELECT string_agg(int4send(wanted.series) || uuid_send(wanted.id), ''::bytea)
FROM unnest(%s::int4[], %s::int4[], %s::uuid[]) AS wanted (part, series, id) JOIN report USING (part, series, id)
"""
_SET_TALLIES = """
INSERT INTO tally SELECT digest, round, %s, n, moments, seal
FROM unnest(%s::bytea[], %s::bigint[], %s::bigint[], %s::text[], %s::bytea[]) AS new (digest, round, n, moments, seal)
ON CONFLICT (digest, round, worker) DO UPDATE SET n = excluded.n, moments = excluded.moments, seal = excluded.seal
"""
_ADD_REFUSALS = """
INSERT INTO refusal AS old SELECT task, reason, %s, count
FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS new (task, reason, count)
ON CONFLICT (task, reason, worker) DO UPDATE SET count = old.count + excluded.count
"""


class _Array:
    """An array in the binary format of the server, made at once from the bytes of numpy."""

    oid, element = 0, 0

    def __init__(self, values: NDArray[Any]) -> None:
        size = values.dtype.itemsize
        rows = np.empty(len(values), dtype=[("size", ">i4"), ("value", f"V{size}")])
        rows["size"] = size
        rows["value"] = np.ascontiguousarray(values).view(f"V{size}")
        self.data = struct.pack(">iiIii", 1, 0, self.element, len(values), 1) + rows.tobytes()


class _Integers(_Array):
    oid, element = 1007, 23


class _Identifiers(_Array):
    oid, element = 2951, 2950


class _Bytes(_Array):
    oid, element = 1001, 17


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: _Array) -> bytes:
        return obj.data


_DUMPERS = [
    (kind, type(kind.__name__, (_ArrayDumper,), {"oid": kind.oid})) for kind in (_Integers, _Identifiers, _Bytes)
]


def _insert(run: _Run, parts: Mapping[int, int], section: Section) -> Keys | None:
    """Insert reports of one width that are not there; return the keys of those, or None if all of them were new."""
    low, high = int(section.bodies.min()), int(section.bodies.max())
    item = next(size for size in (1, 2, 4, 8) if -(1 << 8 * size - 1) <= low and high < 1 << 8 * size - 1)
    width = section.bodies.shape[1]
    bodies = np.ascontiguousarray(section.bodies.astype(f">i{item}")).view(f"V{item * width}").reshape(-1)
    row = run.execute(
        _INSERT, (*_places(parts, section.keys), _Bytes(bodies), len(section.keys)), binary=True
    ).fetchone()
    return None if row is None or row[0] is None else _returned_keys(row[0], width)


def _find(run: _Run, series: Sequence[_Series], keys: Keys) -> NDArray[np.bool_]:
    """Return which of these keys, of these series, are stored."""
    found = np.zeros(len(keys), dtype=np.bool_)
    row = run.execute(_FIND, _places({one.number: one.part for one in series}, keys), binary=True).fetchone()
    if row is not None and row[0] is not None:
        for width in {one.width for one in series}:
            found |= is_in(_returned_keys(row[0], width), keys)
    return found


def _places(parts: Mapping[int, int], keys: Keys) -> tuple[_Array, _Array, _Array]:
    raw = bytes_of(keys)
    numbers = np.ascontiguousarray(raw[:, 4:8]).view(">i4").reshape(-1)
    of_number = np.zeros(max(parts) + 1, dtype=">i4")
    for number, part in parts.items():
        of_number[number] = part
    return (
        _Integers(of_number[numbers]),
        _Integers(numbers),
        _Identifiers(np.ascontiguousarray(raw[:, 8:]).view("V16").reshape(-1)),
    )


def _returned_keys(data: bytes, width: int) -> Keys:
    """Return the keys, sorted, of what the server names by series and id."""
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, 20)
    raw = np.zeros((len(rows), 24), dtype=np.uint8)
    raw[:, :2] = np.frombuffer(width.to_bytes(2, "big"), dtype=np.uint8)
    raw[:, 4:] = rows
    return np.sort(as_keys(raw.reshape(-1)))


def _decode_bodies(bodies: Sequence[bytes], width: int) -> NDArray[np.int64]:
    """Return bodies, shape (count, width)."""
    found = np.empty((len(bodies), width), dtype=np.int64)
    sizes = np.array([len(body) for body in bodies])
    for size in np.unique(sizes).tolist():
        item, rest = divmod(size, width)
        if rest or item not in (1, 2, 4, 8):
            raise DamagedError("a report")
        some = np.flatnonzero(sizes == size)
        joined = b"".join(bodies[k] for k in some.tolist())
        found[some] = np.frombuffer(joined, dtype=f">i{item}").reshape(-1, width)
    return found


def _read_series(run: _Run, rounds: Sequence[Round]) -> dict[Round, tuple[int, int, int]]:
    rows = run.execute(
        "SELECT digest, round, width, series, part FROM series "
        "JOIN unnest(%s::bytea[], %s::bigint[]) AS wanted (digest, round) USING (digest, round)",
        ([digest for digest, _ in rounds], [round_ for _, round_ in rounds]),
    )
    return {(digest, round_): (width, number, part) for digest, round_, width, number, part in rows.fetchall()}


def _add_series(run: _Run, round_: Round, width: int) -> None:
    """Make a series, with a partition while there are few. Two workers may do so at once: one of them waits."""
    with run.transaction():
        row = run.execute(_ADD_SERIES, (*round_, width)).fetchone()
        if row is not None and row[0] < _PARTITIONS:
            # made and then attached, which does not wait for those that count
            run.execute(f"CREATE TABLE report_{row[0]} (LIKE report INCLUDING ALL)")
            run.execute(f"ALTER TABLE report ATTACH PARTITION report_{row[0]} FOR VALUES IN ({row[0]})")
            run.execute("UPDATE series SET part = series WHERE series = %s", row)


def _read_tallies(run: _Run, rounds: Sequence[Round], worker: str | None = None) -> dict[Round, Tally]:
    """The tallies of these rounds, of one worker or of all; none of a round without a report."""
    found: dict[Round, Tally] = {}
    if not rounds:
        return found
    rows = run.execute(
        "SELECT digest, round, n, moments, seal FROM tally "
        "JOIN unnest(%s::bytea[], %s::bigint[]) AS wanted (digest, round) USING (digest, round) "
        "WHERE %s::text IS NULL OR worker = %s",
        ([digest for digest, _ in rounds], [round_ for _, round_ in rounds], worker, worker),
    )
    for digest, round_, n, moments, sealed in rows.fetchall():
        tally = checked_tally(digest, round_, n, moments, sealed)
        found[digest, round_] = found.get((digest, round_), Tally()).merge(tally)
    return found


def _read_releases(run: _Run, digest: bytes | None = None) -> dict[bytes, Release]:
    """The last release of each task, or of one."""
    query = "SELECT digest, at, closed, refused FROM release WHERE %s::bytea IS NULL OR digest = %s"
    rows = run.execute(query, (digest, digest)).fetchall()
    return {of: Release(at, frozenset(closed), reasons(refused)) for of, at, closed, refused in rows}


def _has_steps(run: _Run) -> bool:
    """Whether there is a table of steps: a store of an earlier hush has none before its aggregator starts."""
    return run.execute("SELECT to_regclass('step')").fetchone() != (None,)


def _read_steps(run: _Run, digest: bytes, round_: int) -> list[Step]:
    if not _has_steps(run):
        return []
    query = f"SELECT {_STEP_COLUMNS} FROM step WHERE digest = %s AND round = %s ORDER BY until"  # noqa: S608 - ours
    return checked_steps([step_from(row) for row in run.execute(query, (digest, round_)).fetchall()])


def _write_published(run: _Run, new: PublishedStep) -> bool:
    """See `put_step`; none of a task that is forgotten meanwhile."""
    key = new.digest, new.round
    if run.execute("SELECT 1 FROM task WHERE digest = %s AND payload <> ''", key[:1]).fetchone() is None:
        return False

    def last() -> Step | None:
        query = f"SELECT {_STEP_COLUMNS} FROM step WHERE digest = %s AND round = %s ORDER BY until DESC LIMIT 1"  # noqa: S608 - ours
        row = run.execute(query, key).fetchone()
        return None if row is None else step_from(row)

    delete = "DELETE FROM step WHERE digest = %s AND round = %s AND until >= %s"
    return put_step(
        new,
        last=last,
        delete_from=lambda at: run.execute(delete, (*key, at)),
        insert=lambda step: run.execute(_ADD_STEP, (*key, *step_values(step))),
    )


def _has_policy(run: _Run, digest: bytes) -> bool:
    """Whether a task has a release policy."""
    query = "SELECT 1 FROM task WHERE digest = %s AND release_from + release_every > 0"
    return run.execute(query, (digest,)).fetchone() is not None


def _release(run: _Run, task: tuple[str, bytes, int, int], at: int) -> bool:
    """Release a task, a row of `_POLICIES`; return whether it was released."""
    task_id, digest, least, every = task
    before = run.execute("SELECT at, closed FROM release WHERE digest = %s", (digest,)).fetchone()
    if every and before is not None and at <= before[0]:
        return False
    # marks first: a mark waits for the batches that are being counted, so the sums read after it are all there are
    marks = run.execute("SELECT round FROM closed WHERE digest = %s ORDER BY round", (digest,)).fetchall()
    closed = [round_ for (round_,) in marks]
    changed = [(digest, round_) for (round_,) in run.execute(_CHANGED, (digest, digest, max(least, 1))).fetchall()]
    if not changed and not every and closed == ([] if before is None else before[1]):
        return False
    for round_, tally in _read_tallies(run, changed).items():
        run.execute(_SET_RELEASED, tally_values(round_, tally))
    run.execute(_SET_RELEASE, {"digest": digest, "at": at, "task": task_id, "closed": closed})
    return True


def _dropped_rounds(run: _Run, rounds: Sequence[Round]) -> set[Round]:
    """Which of these rounds have no reports any more, by policy."""
    if not rounds:
        return set()
    rows = run.execute(
        "SELECT digest, round FROM series JOIN unnest(%s::bytea[], %s::bigint[]) AS wanted (digest, round) "
        "USING (digest, round) WHERE dropped > 0",
        ([digest for digest, _ in rounds], [round_ for _, round_ in rounds]),
    )
    return {(row[0], row[1]) for row in rows.fetchall()}


def _closed_rounds(run: _Run, rounds: Sequence[Round]) -> set[Round]:
    """Which of these rounds a mark closes, by itself or with the whole task."""
    if not rounds:
        return set()
    rows = run.execute(
        "SELECT DISTINCT wanted.digest, wanted.round FROM unnest(%s::bytea[], %s::bigint[]) AS wanted (digest, round) "
        "JOIN closed ON closed.digest = wanted.digest AND closed.round IN (wanted.round, -1)",
        ([digest for digest, _ in rounds], [round_ for _, round_ in rounds]),
    )
    return {(row[0], row[1]) for row in rows.fetchall()}


def _add(run: _Run, task: Task, origin: Origin) -> bytes:
    try:
        with run.transaction():
            run.execute(
                _ADD_TASK,
                (task.id, task.digest, task.payload, origin.value, task.release_from or 0, task.release_seconds),
            )
    except errors.UniqueViolation:
        raise TaskError("digest", f"another task has the digest of {task.id!r}; change a word of its title") from None
    run.execute(
        "UPDATE task SET origin = %s WHERE id = %s AND digest = %s AND origin = %s",
        (origin.value, task.id, task.digest, Origin.BROKER.value),
    )
    row = run.execute("SELECT payload FROM task WHERE id = %s", (task.id,)).fetchone()
    assert row is not None  # noqa: S101 - for the type checker: it is there
    return bytes(row[0])


def _write_recall(run: _Run, row: StoredRecall) -> bool:
    recall = row.recall
    if row.ended:
        query = "UPDATE recall SET ended = true WHERE task = %s AND id = %s"
        return run.execute(query, (recall.task, recall.id)).rowcount > 0
    values = {"task": recall.task, "digest": recall.digest, "id": recall.id, "over": recall.over, "made": row.made}
    return run.execute(_KEEP_RECALL, values).rowcount > 0


def _schema_text(name: str) -> str:
    return files("hush_aggregator.store").joinpath("schema", name).read_text("utf-8")


def _make(url: PostgresUrl, run: _Run, version: int = _VERSION) -> None:
    """Make the tables where there are none; two that do so at once wait for each other."""
    with run.transaction():
        run.execute("SELECT pg_advisory_xact_lock(%s)", (_MADE,))
        if run.execute("SELECT to_regclass(%s)", (f"{url.schema}.meta",)).fetchone() != (None,):
            return
        run.execute(f"CREATE SCHEMA IF NOT EXISTS {url.schema}")
        others = run.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace LIMIT 1", (url.schema,)
        ).fetchone()
        if others is not None:
            raise StoreError(
                f"{url}: the schema {url.schema} has tables of another program; name another: ?schema=NAME"
            )
        run.execute(_schema_text("0001.sql"))
        run.execute(_schema_text("0001-steps.sql"))
        values = (version, _NEW_IDENTITY(), _place(run))
        run.execute("INSERT INTO meta (schema_version, store, place) VALUES (%s, %s, %s)", values)
        run.execute("INSERT INTO worker (name, session) VALUES (%s, %s)", (_COMMANDS, _NEW_IDENTITY()))
        run.execute(f"CREATE SCHEMA {url.schema}_quota; SET LOCAL search_path TO {url.schema}_quota")
        run.execute(_schema_text("0001-quota.sql"))


def _add_steps(run: _Run) -> None:
    """Make the table of steps in a store of an earlier hush."""
    if not _has_steps(run):
        with run.transaction():
            run.execute("SELECT pg_advisory_xact_lock(%s)", (_MADE,))
            if not _has_steps(run):
                run.execute(_schema_text("0001-steps.sql"))


def _check(url: PostgresUrl, run: _Run, wanted: int = _VERSION) -> None:
    """See that the tables are there as this version makes them, and note where they were put back from a backup."""
    try:
        row = run.execute("SELECT schema_version, place FROM meta").fetchone()
    except errors.UndefinedTable:
        row = None
    if row is None:
        raise StoreError(
            f"{url}: has no store of hush in the schema {url.schema}; see the address, or start hush serve"
        )
    version, place = row
    if version == _UNFINISHED != wanted:
        raise StoreError(
            f"{url}: is being copied, or the copy was interrupted; wait, or drop {url.schema} and {url.schema}_quota"
        )
    if version != wanted:
        raise StoreError(
            f"{url}: was written by another hush (schema {version}), and this one reads {_VERSION}; use that hush, or "
            "name another database"
        )
    if place != (here := _place(run)):
        with run.transaction():
            run.execute("UPDATE meta SET restored = true, place = %s WHERE place = %s", (here, place))
            run.execute("UPDATE worker SET version = version + %s WHERE name = %s", (_FURTHER, _COMMANDS))


def _place(run: _Run) -> str:
    """Where a database is: others after it was put back from a backup, or after a fail-over to a copy of the server."""
    row = run.execute(_PLACE).fetchone()
    assert row is not None  # noqa: S101 - for the type checker: it selects one
    return "/".join(map(str, row))


_REMEDY = "see that the server runs and can be reached; what was not counted is delivered again"
_REMEDIES = {
    errors.DiskFull: "free some space and start again: the broker keeps what is not counted yet",
    errors.InsufficientPrivilege: "give this user the rights to the schema, or name another user",
    errors.ReadOnlySqlTransaction: "this server is a copy that only reads; name the one that writes",
    errors.IndexCorrupted: "the database is damaged; restore it from a backup",
    errors.DataCorrupted: "the database is damaged; restore it from a backup",
}


def _remedy(error: psycopg.Error) -> str:
    for kind, remedy in _REMEDIES.items():
        if isinstance(error, kind):
            return remedy
    return _REMEDY


# What ends a connection or a transaction, and not the next one: a server that stops, starts or is full, a connection
# that idled for too long, and two transactions of which one had to give way.
_PASSING = ("57P01", "57P02", "57P03", "57P05", "25P03", "53300", "40001", "40P01")


def _may_pass(error: psycopg.Error) -> bool:
    """Whether the same call may succeed soon."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)  # of libpq: the connection is lost
    return error.sqlstate.startswith("08") or error.sqlstate in _PASSING
