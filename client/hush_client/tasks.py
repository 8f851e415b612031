"""The tasks that a device knows: from their retained messages, and from a file of the last run.

The file is separate from the ledger because it may be lost, and the ledger may not: a device opens its state even if
this file is damaged, and a broker with a thousand tasks does not slow down the check of the ledger at every start.
"""

import asyncio
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from hush_common.aio import WorkerThread
from hush_common.errors import TaskError
from hush_common.task import PAYLOAD_LIMIT, Task, decode_task, is_task_id
from hush_common.topics import ALL_TASKS, task_of_task_topic, task_topic

_LOG = logging.getLogger(__name__)

CACHE_NAME = "tasks.sqlite3"  # next to the database of the ledger

MOST_TASKS = 1000
MOST_BYTES = 8 * 1024 * 1024  # of payloads as received. The decoded tasks may take seven times as much memory

_BUSY_SECONDS = 1
_DISK_ERRORS = frozenset(
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
"""Errors of the disk and not of the file."""

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

_LINGER = 1.0  # seconds; tasks that come together are written together
_PAUSE = 600.0  # seconds between two writes, unless a task is answered for the first time: flash memory wears out
_WORKER = WorkerThread("hush-tasks")


@dataclass(frozen=True, slots=True)
class CachedTask:
    """A published task as received; its payload is not validated yet."""

    id: str
    payload: bytes
    withdrawn: bool
    answered: bool  # ever, by this device or one of the gateway's


class TaskCache:
    """The file of tasks in a state directory, which exists and is locked."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / CACHE_NAME
        self._saved: dict[str, CachedTask] = {}

    def load(self) -> list[CachedTask]:
        """Return the saved tasks, the oldest first, without damaged rows; write nothing."""
        if self._path.exists():
            try:
                with closing(self._connect()) as connection:
                    for task in _valid(connection.execute(_SELECT)):
                        self._saved[task.id] = task
            except sqlite3.Error as error:
                _LOG.warning("%s: %s: the saved tasks are lost; the broker sends them again", self._path, error)
        return list(self._saved.values())

    def save(self, tasks: Iterable[CachedTask]) -> None:
        """Save these tasks and delete all others; write nothing if nothing has changed."""
        wanted = {task.id: task for task in tasks}
        gone = [(task_id,) for task_id in self._saved if task_id not in wanted]
        changed = [task for task in wanted.values() if self._saved.get(task.id) != task]
        if not gone and not changed:
            return
        try:
            try:
                self._write(gone, changed)
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_FULL) & 0xFF in _DISK_ERRORS:
                    raise
                self._path.unlink(missing_ok=True)  # it is damaged, and the broker has all that is in it
                self._write([], wanted.values())
        except (sqlite3.Error, OSError) as error:
            _LOG.warning(
                "%s: %s: cannot save tasks; after a start without a network they are unknown", self._path, error
            )
            return
        self._saved = wanted

    def _write(self, gone: Iterable[tuple[str]], changed: Iterable[CachedTask]) -> None:
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


def _valid(rows: Iterable[tuple[object, object, object, object]]) -> Iterator[CachedTask]:
    """Return valid cached tasks, up to the size limit."""
    left, room = MOST_TASKS, MOST_BYTES
    for task_id, payload, withdrawn, answered in rows:
        if not (isinstance(task_id, str) and is_task_id(task_id) and isinstance(payload, bytes)):
            continue
        if not 0 < len(payload) <= min(PAYLOAD_LIMIT, room) or not left:
            continue
        left, room = left - 1, room - len(payload)
        yield CachedTask(task_id, payload, bool(withdrawn), bool(answered))


@dataclass(slots=True)
class _Known:
    """What was published under an id."""

    payload: bytes
    task: Task | TaskError | None = None  # the decoded task, or why it is invalid; None until it is read
    delivered: bool = False  # whether the broker has sent it over the present connection
    withdrawn: bool = False  # whether the broker has sent an empty message, or none
    notified: bool = False  # whether the listeners were called with this payload


class TaskRegistry:
    """Tasks by id, the callers that wait for one, and the listeners of all of them.

    With a connection, a task is what the broker has sent over it. Without one it is what was sent last, perhaps to an
    earlier run, unless it was withdrawn. Before the first attempt to connect has ended there is none.

    A broker must not fill the memory of a device: beyond 1000 tasks or 8 MiB, legal or not, some are forgotten. The
    oldest of those that were never answered go first, withdrawn ones before others, and a new one may be among them;
    then the oldest that were answered. A task that a caller waits for, or that has a source, stays: the program
    chooses those, not the broker.
    """

    def __init__(self, cached: Iterable[CachedTask] = ()) -> None:
        self._known: dict[str, _Known] = {}  # the oldest first
        self._bytes = 0
        self._offline = False
        self._answered: set[str] = set()
        self._held: Counter[str] = Counter()
        self._crowded = False
        self._listeners: list[Callable[[Task], object]] = []
        self._changed = asyncio.Event()
        self.version: int = 0  # grows with every message, and whenever a connection begins or ends
        for task in cached:
            self._put(task.id, _Known(task.payload, withdrawn=task.withdrawn))
            if task.answered:
                self._answered.add(task.id)

    def tasks(self) -> dict[str, Task]:
        """Return the tasks that may be answered now, apart from their times."""
        known = ((task_id, self._current(task_id)) for task_id in tuple(self._known))
        return {task_id: task for task_id, task in known if isinstance(task, Task)}

    def to_cache(self) -> Iterator[CachedTask]:
        """Return the tasks that the next run should know."""
        for task_id, known in self._known.items():
            if not isinstance(known.task, TaskError):
                yield CachedTask(task_id, known.payload, known.withdrawn, task_id in self._answered)

    def listen(self, listener: Callable[[Task], object]) -> None:
        """Call `listener` with every task: those known now, and each one that is new or changed from now on."""
        self._listeners.append(listener)
        for task_id, task in self.tasks().items():
            self._known[task_id].notified = True
            _call(listener, task)

    def hold(self, task_id: str) -> None:
        """Do not forget this task until it is released: it has a source."""
        self._held[task_id] += 1

    def release(self, task_id: str) -> None:
        """End one `hold`."""
        self._held[task_id] -= 1
        if not self._held[task_id]:
            del self._held[task_id]

    def note_answer(self, task_id: str) -> bool:
        """Keep this task longer than those that were never answered; return whether this is its first answer."""
        is_new = task_id not in self._answered
        self._answered.add(task_id)
        return is_new

    def may_have_forgotten(self, task_id: str) -> bool:
        """Whether its retained message must be requested again."""
        return self._crowded and task_id not in self._known

    def is_withdrawn(self, task_id: str) -> bool:
        known = self._known.get(task_id)
        return known is not None and known.withdrawn

    def last_known(self, task_id: str) -> Task | None:
        """Return the task as it was sent last, unless it was withdrawn, with or without a connection."""
        known = self._known.get(task_id)
        task = None if known is None or known.withdrawn else self._read(task_id, known)
        return task if isinstance(task, Task) else None

    def connected(self, now: bool) -> None:
        """Handle the start of a connection, or the end of one or of an attempt."""
        if now:
            for known in self._known.values():
                known.delivered = False
        self._offline = not now
        self._set_changed()
        if not now and self._listeners:
            for task_id, task in self.tasks().items():
                self._notify_once(self._known[task_id], task)

    def retained_ended(self, topic: str) -> None:
        """Handle the end of the retained messages of a topic: a task that was not among them is withdrawn."""
        for task_id, known in self._known.items():
            if not known.delivered and topic in (ALL_TASKS, task_topic(task_id)):
                known.withdrawn = True
                self._set_changed()

    def receive(self, topic: str, payload: bytes) -> None:
        """Handle a retained message: a task, or an empty payload where a task was withdrawn."""
        task_id = task_of_task_topic(topic)
        if task_id is None or not is_task_id(task_id):
            return
        before = self._forget(task_id)
        if before is not None:
            self._set_changed()
        if payload and not self._make_room(task_id, len(payload)):
            return
        if payload and before is not None and before.payload == payload:  # its mechanism is built already
            before.withdrawn, before.delivered, known = False, True, before
        elif payload:
            known = _Known(payload, delivered=True)
        elif before is not None and not isinstance(before.task, TaskError):
            before.withdrawn, before.delivered, known = True, False, before
        else:
            return
        self._put(task_id, known)
        self._set_changed()
        if known.delivered and isinstance(task := self._read(task_id, known), Task):
            self._notify_once(known, task)

    async def wait(self, task_id: str) -> Task:
        """Return the task, once it may be answered; TaskError if the published one is invalid."""
        self.hold(task_id)
        try:
            while (task := self._current(task_id)) is None:
                await self.change(self.version)
        finally:
            self.release(task_id)
        if isinstance(task, TaskError):
            raise task.with_traceback(None)
        return task

    async def change(self, since: int, timeout: float | None = None) -> None:  # noqa: ASYNC109 - its end is no error
        """Return after a change since that version, or after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.version == since:
                    self._changed.clear()
                    await self._changed.wait()

    def _current(self, task_id: str) -> Task | TaskError | None:
        """Return the current task, an error if the published one is invalid, or None."""
        known = self._known.get(task_id)
        if known is None or known.withdrawn or not (known.delivered or self._offline):
            return None
        task = self._read(task_id, known)
        if isinstance(task, TaskError) and not known.delivered:
            return None  # its cached copy is damaged, or it was always invalid: only the broker knows
        return task

    def _read(self, task_id: str, known: _Known) -> Task | TaskError:
        """Decode on demand: a thousand cached tasks would make a slow start."""
        if known.task is None:
            known.task = _decode(task_id, known.payload)
        return known.task

    def _set_changed(self) -> None:
        self.version += 1
        self._changed.set()

    def _notify_once(self, known: _Known, task: Task) -> None:
        if not known.notified:
            known.notified = True
            for listener in self._listeners:
                _call(listener, task)

    def _put(self, task_id: str, known: _Known) -> None:
        self._known[task_id] = known
        self._bytes += len(known.payload)

    def _forget(self, task_id: str) -> _Known | None:
        known = self._known.pop(task_id, None)
        if known is not None:
            self._bytes -= len(known.payload)
        return known

    def _make_room(self, task_id: str, size: int) -> bool:
        """Forget others until there is room for this task; return whether to store it."""
        if self._has_room(size):
            return True
        self._warn_crowded()
        held, answered = task_id in self._held, task_id in self._answered
        loose = [other for other in self._known if other not in self._held]
        first = [other for other in loose if other not in self._answered]
        first.sort(key=lambda other: not self._known[other].withdrawn)
        last = [other for other in loose if other in self._answered] if held or answered else []
        for other in (*first, *last):
            self._forget(other)
            if self._has_room(size):
                return True
        return held

    def _has_room(self, size: int) -> bool:
        return len(self._known) < MOST_TASKS and self._bytes + size <= MOST_BYTES

    def _warn_crowded(self) -> None:
        if not self._crowded:
            self._crowded = True
            _LOG.warning(
                "this broker has more tasks than a device remembers (%d, or %d MiB): this device forgets the oldest "
                "that it never answered",
                MOST_TASKS,
                MOST_BYTES >> 20,
            )


def _decode(task_id: str, payload: bytes) -> Task | TaskError:
    """Return the task or the error, without its traceback, which would keep the document in memory."""
    try:
        task = decode_task(payload)
    except TaskError as error:
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    if task.id == task_id:
        return task
    return TaskError("id", f"{task.id!r} is published under the id {task_id!r}; publish it under its own id")


def _call(listener: Callable[[Task], object], task: Task) -> None:
    try:
        listener(task)
    except Exception:  # noqa: BLE001 - an application's mistake must not end the connection
        _LOG.exception("%s: a callback of on_task failed; the client continues", task.id)


class TaskCacheWriter:
    """Saves known tasks: soon after the first answer to a task, otherwise at most every ten minutes."""

    def __init__(self, registry: TaskRegistry, cache: TaskCache) -> None:
        self.registry = registry
        self._cache = cache
        self._urgent = asyncio.Event()

    def note_answer(self, task_id: str) -> None:
        """Save the task now if this was its first answer."""
        if self.registry.note_answer(task_id):
            self._urgent.set()

    async def run(self) -> None:
        """Save changes until cancelled."""
        pause = _LINGER
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._urgent.wait()
            await self.save()
            pause = _PAUSE

    async def save(self) -> None:
        self._urgent.clear()
        tasks = list(self.registry.to_cache())
        await asyncio.get_running_loop().run_in_executor(_WORKER, self._cache.save, tasks)


@asynccontextmanager
async def open_tasks(directory: Path) -> AsyncIterator[TaskCacheWriter]:
    """Load the tasks in a state directory whose lock is held, and save them in the end."""
    cache = TaskCache(directory)
    registry = TaskRegistry(await asyncio.get_running_loop().run_in_executor(_WORKER, cache.load))
    writer = TaskCacheWriter(registry, cache)
    try:
        yield writer
    finally:
        await writer.save()
