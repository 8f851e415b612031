"""The tasks that a device has learned, as they came, in a file beside the ledger's.

It is a file of its own because it may be lost, and the ledger may not: damage to it never keeps a device from opening
its state, and a broker with a thousand tasks does not swell what is checked at every start. It is opened to be read
once, and to be written when something in it changes; whoever has it holds the lock of the directory.
"""

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from hush_common.task import PAYLOAD_LIMIT, is_task_id

__all__ = ["MOST_BYTES", "MOST_TASKS", "SHELF_NAME", "KeptTask", "Shelf"]

_LOG = logging.getLogger(__name__)

SHELF_NAME = "tasks.sqlite3"
"""Beside the database of the ledger."""

MOST_TASKS = 1000
MOST_BYTES = 8 * 1024 * 1024
"""Of payloads as they came. What is made of them may take seven times as much memory."""

_BUSY_SECONDS = 1
_ANOTHER_TIME = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    )
)
"""What is wrong with the disk and not with the file."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS task (
    id TEXT PRIMARY KEY, payload BLOB NOT NULL, withdrawn INTEGER NOT NULL, answered INTEGER NOT NULL
)
"""
_SELECT = "SELECT id, payload, withdrawn, answered FROM task ORDER BY rowid"
_UPSERT = """
INSERT INTO task (id, payload, withdrawn, answered) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
payload = excluded.payload, withdrawn = excluded.withdrawn, answered = excluded.answered
"""


@dataclass(frozen=True, slots=True)
class KeptTask:
    """A task that was published.

    Args:
        id: under which it was published.
        payload: its bytes, as they came; whether they are a task says whoever reads them.
        withdrawn: whether it was withdrawn since.
        answered: whether this device, or one of the gateway's, has ever answered it.
    """

    id: str
    payload: bytes
    withdrawn: bool
    answered: bool


class Shelf:
    """The file of a state directory.

    Args:
        directory: of the state; it exists, and its lock is held.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / SHELF_NAME
        self._there: dict[str, KeptTask] = {}

    def load(self) -> list[KeptTask]:
        """What is kept, the oldest first; without whatever is damaged, or no task could be. It writes nothing."""
        if self._path.exists():
            try:
                with closing(self._connect()) as connection:
                    for task in _sound(connection.execute(_SELECT)):
                        self._there[task.id] = task
            except sqlite3.Error as error:
                _LOG.warning("%s: %s: tasks that were kept are learned anew", self._path, error)
        return list(self._there.values())

    def save(self, tasks: Iterable[KeptTask]) -> None:
        """Make these, and no others, what is kept; nothing is written where nothing has changed."""
        wanted = {task.id: task for task in tasks}
        gone = [(task_id,) for task_id in self._there if task_id not in wanted]
        changed = [task for task in wanted.values() if self._there.get(task.id) != task]
        if not gone and not changed:
            return
        try:
            self._write(gone, changed)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_FULL) & 0xFF in _ANOTHER_TIME:
                self._complain(error)
                return
            self._begin_anew(wanted.values())
        except OSError as error:
            self._complain(error)
            return
        self._there = wanted

    def _begin_anew(self, wanted: Iterable[KeptTask]) -> None:
        """Replace a file that is damaged: nothing is in it that the broker does not have."""
        try:
            self._path.unlink(missing_ok=True)
            self._write([], wanted)
        except (sqlite3.Error, OSError) as error:
            self._complain(error)

    def _write(self, gone: Iterable[tuple[str]], changed: Iterable[KeptTask]) -> None:
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(self._connect()) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_SCHEMA)
            connection.executemany("DELETE FROM task WHERE id = ?", gone)
            connection.executemany(
                _UPSERT, ((task.id, task.payload, int(task.withdrawn), int(task.answered)) for task in changed)
            )

    def _connect(self) -> sqlite3.Connection:
        address = f"{self._path.absolute().as_uri()}?mode=rw"  # never creates a file
        return sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)

    def _complain(self, error: Exception) -> None:
        _LOG.warning("%s: %s: tasks are not kept, and a start without a network will not know them", self._path, error)


def _sound(rows: Iterable[tuple[object, object, object, object]]) -> Iterator[KeptTask]:
    """Those of the rows that may be kept tasks, as far as there is room for them."""
    left, room = MOST_TASKS, MOST_BYTES
    for task_id, payload, withdrawn, answered in rows:
        if not (isinstance(task_id, str) and is_task_id(task_id) and isinstance(payload, bytes)):
            continue
        if not 0 < len(payload) <= min(PAYLOAD_LIMIT, room) or not left:
            continue
        left, room = left - 1, room - len(payload)
        yield KeptTask(task_id, payload, bool(withdrawn), bool(answered))
