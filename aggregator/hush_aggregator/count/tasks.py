"""The tasks that an aggregator counts: those known, their changes, and what they mean for privacy."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hush_aggregator.estimate.mechanisms import columns
from hush_aggregator.logs import fields
from hush_aggregator.store.base import Origin, Store, StoreEditor, StoreReader, TaskRow, TaskState
from hush_common.errors import StoreError, TaskError
from hush_common.task import Task, decode_task, digest_of, match_published

TASKS = 1000
"""Tasks learned from a broker that are counted at a time: the same number as on a device."""

PAYLOAD_BYTES = 8 * 1024 * 1024
"""Their bytes as published; in memory they take about four times as many."""

COLUMNS_OF_ONE = 65_536
"""Sums in the tally of one of them: 64 coordinates of 1024 levels, or 1024 of 64."""

COLUMNS = 262_144
"""Sums in the tallies of all of them."""

_REMEDY = "give it by --task or hush task publish --store, or end others: hush task close, hush task forget"


class NoRoomError(TaskError):
    """A task found on the broker that is more than anybody may publish there."""


def columns_of(task: Task) -> int:
    """Sums in the tally of a round."""
    return columns(task.randomizer)


class LearnedLimits:
    """What the tasks that were learned from a broker take."""

    def __init__(self, rows: Iterable[TaskRow], tasks: Iterable[Task]) -> None:
        learned = {row.id: row for row in rows if row.origin is Origin.BROKER and row.state is not TaskState.CLOSED}
        self._tasks = sum(bool(row.payload) for row in learned.values())
        self._bytes = sum(len(row.payload) for row in learned.values())
        self._columns = sum(columns_of(task) for task in tasks if task.id in learned)

    def full(self, payload: bytes) -> str:
        """Return why there is no room for one more, before it is parsed; empty if there is room."""
        if self._tasks >= TASKS:
            return f"no more than {TASKS} tasks found on the broker are counted; {_REMEDY}"
        if self._bytes + len(payload) > PAYLOAD_BYTES:
            return f"tasks found on the broker may have {PAYLOAD_BYTES} bytes in all; {_REMEDY}"
        return ""

    def check(self, task: Task) -> None:
        """Raise NoRoomError if its tally is too large."""
        wanted = columns_of(task)
        if wanted > COLUMNS_OF_ONE or self._columns + wanted > COLUMNS:
            raise NoRoomError(
                "task",
                f"its tally has {wanted} sums; one task found on the broker may have {COLUMNS_OF_ONE}, all of them "
                f"together {COLUMNS}; {_REMEDY}",
            )

    def add(self, task: Task) -> None:
        """Count one more."""
        self._tasks += 1
        self._bytes += len(task.payload)
        self._columns += columns_of(task)


_MOST_NAMES = 10_000
_LOG = logging.getLogger("hush.aggregator")


def stored_task(payload: bytes) -> Task:
    """Decode a stored task; raise StoreError if this version cannot read it."""
    try:
        return decode_task(payload)
    except TaskError as error:
        raise StoreError(f"a stored task cannot be read ({error}); was it written by a later hush?") from error


def check_files(store: Store, files: Mapping[Path, Task]) -> None:
    """Check the tasks of files before they are counted, so that the error names the file.

    Raises:
        StoreError: a stored task cannot be read.
        TaskError: naming the first file whose task contradicts a stored one, or that of a file before it.
    """
    there = {task.id: task.payload for task in map(stored_task, store.tasks())}
    forgotten = {row.id for row in store.task_rows() if not row.payload}
    for path, task in files.items():
        if task.id in forgotten:
            raise _forgotten(str(path), task)
        if match_published(task, there.setdefault(task.id, task.payload)) is None:
            raise _contradiction(str(path), task, there[task.id])


def _contradiction(field: str, task: Task, there: bytes) -> TaskError:
    return TaskError(
        field,
        f"the task {task.id!r}, digest {task.digest.hex()}, is not the one that is counted here under this id, digest "
        f"{digest_of(there).hex()}, and tasks never change; choose another id",
    )


def _forgotten(field: str, task: Task) -> TaskError:
    return TaskError(
        field,
        f"the task {task.id!r} is forgotten in this store, and its id stays taken: leave it out, or use a new id",
    )


class TaskNames:
    """Names under which something is published that is not counted: a bounded number, for anybody may publish."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self.overflowed: bool = False

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._names

    def __len__(self) -> int:
        return len(self._names)

    def add(self, task_id: str) -> bool:
        """Remember a name, if there is room; whether it is one that was not remembered before."""
        if task_id in self._names:
            return False
        if len(self._names) < _MOST_NAMES:
            self._names.add(task_id)
        else:
            self.overflowed = True
        return True

    def discard(self, task_id: str) -> None:
        self._names.discard(task_id)


class KnownTasks(Mapping[str, Task]):
    """The tasks of an aggregator, by id: its own, those stored before, and those published.

    Its methods block while the store is at work.

    Attributes:
        rows: what the store keeps of each task, by id; of those that are forgotten too, which are no longer counted.
        others: names of tasks that are published on the broker and are not for this store, where it does not count all.
    """

    def __init__(self, store: Store, own: Sequence[Task]) -> None:
        self._store = store
        self.own: tuple[Task, ...] = tuple(own)
        self.rows: Mapping[str, TaskRow] = {}
        self._tasks: dict[str, Task] = {}
        self._learned = LearnedLimits((), ())
        self._changed: set[str] = set()
        self.others: TaskNames = TaskNames()
        self._beyond = TaskNames()
        self._why_beyond = ""

    def __getitem__(self, task_id: str) -> Task:
        return self._tasks[task_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def load(self) -> None:
        """Read the stored ones, then settle one's own: each as it was first stored.

        Raises:
            StoreError: a stored task cannot be read.
            TaskError: a task of one's own contradicts one that is stored under its id.
        """
        self.refresh()
        there = self._store.add_tasks(self.own)
        self.own = tuple(map(_settled, self.own, there))
        self.refresh()

    def refresh(self) -> None:
        """Read the stored tasks again, in the store's thread; raise StoreError if one cannot be read."""
        rows = {row.id: row for row in self._store.task_rows()}
        self._changed |= {task_id for task_id, row in rows.items() if _matter(self.rows.get(task_id)) != _matter(row)}
        tasks = {}
        for task_id, row in rows.items():
            if row.payload:
                tasks[task_id] = self._tasks.get(task_id) or stored_task(row.payload)
        self.rows, self._tasks = rows, tasks  # at once: the event loop reads them meanwhile
        self._learned = LearnedLimits(rows.values(), tasks.values())

    def refreshed(self) -> set[str]:
        """Read the stored ones again; return the ids of those that changed since the last call, by anybody."""
        self.refresh()
        changed, self._changed = self._changed, set()
        return changed

    def has(self, task_id: str, payload: bytes) -> bool:
        """Whether exactly this task is known."""
        known = self._tasks.get(task_id)
        return known is not None and known.payload == payload

    def pass_by(self, task_id: str, payload: bytes) -> None:
        """Note that what is published under an id is not for this store, and log it once."""
        if not payload:
            self.others.discard(task_id)
        elif task_id not in self.rows and self.others.add(task_id):
            _LOG.warning(
                "a task is published as %.80r, and not counted here: name it with --task, or run hush task publish "
                "with --store, or start with --any-task to count all",
                task_id,
            )

    def learn(self, task_id: str, payload: bytes) -> Task:
        """Store a published task; TaskError if it is invalid, contradicts the one stored, or is too large."""
        self._beyond.discard(task_id)
        if not payload:
            raise TaskError("task", "its message was deleted; a task learned before remains")
        task = decode_task(payload)
        if task.id != task_id:
            raise TaskError("id", f"{task.id!r} is not the name in the topic")
        if task_id not in self.rows:
            self._check_room(task)
        if self._store.add_task(task, Origin.BROKER) != payload:
            raise TaskError("id", "another task was published under it before, and tasks never change; use a new id")
        if task_id in self.rows:
            self.refresh()
        else:  # reading all of them for each that comes would take the square of the time
            self.rows = {**self.rows, task_id: TaskRow(task_id, task.digest, payload, Origin.BROKER)}
            self._tasks = {**self._tasks, task_id: task}
            self._learned.add(task)
        return task

    def tell_refused(self, task_id: str, why: str) -> None:
        """Log that a task is not counted. The log bounds the lines of a minute."""
        said = fields("task_refused", task=task_id[:80])
        _LOG.warning("refused the task published as %.80r: %s", task_id, why, extra=said)

    def pass_over(self, task_id: str, payload: bytes, why: str) -> None:
        """Note that there is no room for what is published under an id, and log it once, as a separate kind of line."""
        if not payload:
            self._beyond.discard(task_id)
            return
        self._why_beyond = why
        if self._beyond.add(task_id):
            said = fields("task_limit", task=task_id[:80])
            _LOG.warning("there is no room for the task published as %.80r: %s", task_id, why, extra=said)

    @property
    def without_room(self) -> int:
        """How many names are published for which there was no room, as far as they are remembered."""
        return len(self._beyond)

    @property
    def limit_reached(self) -> str:
        """Why published tasks are not counted for lack of room; empty if none is."""
        count = f"more than {_MOST_NAMES}" if self._beyond.overflowed else f"{len(self._beyond)}"
        return f"{count} published tasks are not counted: {self._why_beyond}" if len(self._beyond) else ""

    def is_without_room(self, task_id: str | None) -> bool:
        """Whether there was no room for a task that is published. Where too many are to be remembered, any may be."""
        return task_id is not None and (task_id in self._beyond or self._beyond.overflowed)

    def _check_room(self, task: Task) -> None:
        try:
            self._learned.check(task)
        except NoRoomError as error:
            self.pass_over(task.id, task.payload, str(error))
            raise

    def full(self, task_id: str, payload: bytes) -> str:
        """Why a task that is not known has no room any more; empty if it has. It takes no time, in any thread."""
        return "" if task_id in self.rows else self._learned.full(payload)

    def rank(self, task_id: str) -> tuple[bool, int]:
        """Whose estimates come first: one's own tasks before those found at a broker, and small ones before large."""
        task, row = self._tasks.get(task_id), self.rows.get(task_id)
        return row is not None and row.origin is Origin.BROKER, 0 if task is None else columns_of(task)


def _settled(task: Task, there: bytes) -> Task:
    """A task of one's own as it was first stored."""
    if not there:
        raise _forgotten("id", task)
    kept = match_published(task, there)
    if kept is None:
        raise _contradiction("id", task, there)
    if kept is not task:
        _LOG.info("task %s stays as it was stored: %s, digest %s", task.id, kept.mechanism, kept.digest.hex())
    return kept


def _matter(row: TaskRow | None) -> object:
    """What of a task others have to react to; who owns it is noted by those who know."""
    return None if row is None else (row.payload, row.origin, row.state, row.taken_from)


GIVEN = "given to the store"
"""What was done with a task that is new there."""


class UnknownError(TaskError):
    """There is no such task in this store."""


class NoRoundError(TaskError):
    """The task has no such round."""


class ClosedError(TaskError):
    """The task is permanently closed."""


class TakenError(TaskError):
    """Another task has its id."""

    def __init__(self, field: str, message: str, digest: bytes, there: bytes) -> None:
        super().__init__(field, message)
        self.digest = digest
        self.there = there


class Given(NamedTuple):
    """What was done with a task that was given, and the stored task."""

    done: str
    task: Task


def row_of(store: StoreReader, task_id: str, *, forgotten: bool = False) -> TaskRow:
    """Return the row of a task; raise UnknownError if the store does not have it."""
    row = store.task_row(task_id)
    if row is None or not (row.payload or forgotten):
        raise UnknownError("task", f"{task_id[:80]!r} is not in this store; see hush task list --store")
    return row


def check_round(task: Task, round_: int) -> None:
    """Raise NoRoundError unless the task has this round."""
    if not 0 <= round_ < task.rounds:
        raise NoRoundError("round", f"{round_} is not one of the {task.rounds} rounds of {task.id!r}")


def stored_as(store: StoreReader, task: Task, field: str) -> TaskRow | None:
    """Return the row of the stored task that a draft asks for again; None if its id is free.

    Raises:
        TakenError: another task has its id there.
        ClosedError: it is closed there.
    """
    row = store.task_row(task.id)
    if row is None:
        return None
    asked, rule = f"the task {task.id!r}, digest {task.digest.hex()},", "and tasks never change; choose another id"
    if not row.payload or match_published(task, row.payload) is None:
        what = f"digest {row.digest.hex()}" + ("" if row.payload else ", which is forgotten")
        message = f"{asked} is not the one of this store under this id, {what}, {rule}"
        raise TakenError(field, message, task.digest, row.digest)
    if row.state is TaskState.CLOSED:
        raise ClosedError(field, f"{asked} is permanently closed, {rule}")
    return row


def give(store: StoreEditor, task: Task, field: str, origin: Origin) -> Given:
    """Put a task into a store, whose aggregator publishes it.

    Raises:
        TakenError: another task has its id there.
        ClosedError: it is closed there.
    """
    row = stored_as(store, task, field)
    if row is None:
        if store.add_task(task, origin) == task.payload:
            return Given(GIVEN, task)
        row = stored_as(store, task, field) or row_of(store, task.id)  # somebody else was faster
    kept = match_published(task, row.payload) or task
    store.add_task(kept, origin)
    if row.state is TaskState.OPEN:
        return Given("already in the store", kept)
    store.set_state(row.id, TaskState.OPEN)
    return Given("opened again", kept)


def withdraw(store: StoreEditor, task_id: str) -> TaskRow:
    """Withdraw a task: devices no longer answer it, reports on their way still count.

    Raises:
        UnknownError: there is no such task.
        ClosedError: it is closed.
    """
    row = row_of(store, task_id)
    if row.state is TaskState.CLOSED:
        raise ClosedError("task", f"{row.id!r} is closed: devices no longer answer it")
    store.set_state(row.id, TaskState.WITHDRAWN)
    return row


def close(store: StoreEditor, task_id: str, round_: int | None = None) -> TaskRow:
    """Count nothing more of a task, or of one of its rounds, permanently.

    Raises:
        UnknownError: there is no such task.
        NoRoundError: it has no such round.
    """
    row = row_of(store, task_id)
    if round_ is not None:
        check_round(stored_task(row.payload), round_)
    store.close_task(row.id, round_)
    return row


def facts_of(store: StoreReader, row: TaskRow) -> dict[str, str | int]:
    """Return origin, state, owner and latest count of a task. Blocks; may raise StoreError."""
    owner = {"": "nobody yet", store.public_identity: "this store"}.get(row.owner, row.owner)
    latest = store.latest_round(row.digest)
    return {
        "task": row.id,
        "digest": row.digest.hex(),
        "origin": row.origin.value,
        "state": row.state.value if row.payload else "forgotten",
        "owner": owner,
        "round": latest,
        "n": store.tally(row.digest, latest).n,
    }
