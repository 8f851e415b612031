"""Writing a store in SQLite: what its aggregator and the commands beside it have in common."""

import logging
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hush_aggregator.store.base import BrokerMemory, Origin, Owner, RecallRow, State
from hush_aggregator.store.reading import WHOLE_TASK, SqliteReader, translated
from hush_aggregator.store.recalling import delete_recall, end_recalls, write_broker, write_recalls
from hush_aggregator.store.schema import check
from hush_common.errors import StoreError, TaskError
from hush_common.files import exposing, make_private_file
from hush_common.recall import Recall
from hush_common.task import Task

__all__ = ["SqliteEditor", "SqliteWriter", "connect"]

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

    def set_state(self, task_id: str, state: State) -> None:
        """Note what is to become of a task that is not closed.

        Raises:
            TaskError: it is closed, perhaps since it was looked at.
        """
        with self._transaction() as run:
            done = run.execute(
                "UPDATE task SET state = ? WHERE id = ? AND state <> ?", (state.value, task_id, State.CLOSED.value)
            )
            if not done.rowcount:
                raise TaskError("task", f"{task_id!r} is closed for good: nobody is asked any more")

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
                run.execute("UPDATE task SET state = ? WHERE id = ?", (State.CLOSED.value, task_id))
                end_recalls(run, digest)

    def recall(self, rows: Sequence[RecallRow], memory: BrokerMemory | None = None) -> list[RecallRow]:
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
        return f"{path}: everybody could change what is counted; if you do not trust them, restore a backup"
    above = exposing(path)
    if above is not None:
        return f"{path}: everybody may write to {above}, and so replace the store; run: chmod o-w {above}"
    return ""


def connect(path: Path, ready: Callable[[Path, sqlite3.Connection], None]) -> sqlite3.Connection:
    """Open the file for writing, and make it if it is missing.

    Args:
        path: the file.
        ready: sees to its tables.

    Raises:
        StoreError: it cannot be opened, or `ready` refuses it.
    """
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
