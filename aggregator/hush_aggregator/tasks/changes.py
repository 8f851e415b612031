"""Changes of tasks in a store, by commands and over HTTP; the aggregator reacts to them."""

from typing import NamedTuple

from hush_aggregator.store.base import Origin, State, StoreReader, TaskRow
from hush_aggregator.store.sqlite import SqliteEditor
from hush_aggregator.tasks.known import stored_task
from hush_common.errors import TaskError
from hush_common.task import Task, match_published

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
    """What was done with a task that was given, and the task as it stands there."""

    done: str
    task: Task


def row_of(store: StoreReader, task_id: str, *, forgotten: bool = False) -> TaskRow:
    """A task of a store.

    Raises:
        UnknownError: it is not there.
    """
    row = store.task_row(task_id)
    if row is None or not (row.payload or forgotten):
        raise UnknownError("task", f"{task_id[:80]!r} is not in this store; see hush task list --store")
    return row


def check_round(task: Task, round_: int) -> None:
    """See that a task has a round.

    Raises:
        NoRoundError: it does not.
    """
    if not 0 <= round_ < task.rounds:
        raise NoRoundError("round", f"{round_} is not one of the {task.rounds} rounds of {task.id!r}")


def give(store: SqliteEditor, task: Task, field: str, origin: Origin) -> Given:
    """Put a task into a store, whose aggregator publishes it.

    Raises:
        TakenError: another task has its id there.
        ClosedError: it is closed there.
    """
    row = store.task_row(task.id)
    if row is None:
        there = store.add_task(task, origin)
        if there == task.payload:
            return Given(GIVEN, task)
        row = row_of(store, task.id)  # somebody else was faster
    kept = match_published(task, row.payload) if row.payload else None
    asked, rule = f"the task {task.id!r}, digest {task.digest.hex()},", "and tasks never change; choose another id"
    if kept is None:
        what = f"digest {row.digest.hex()}" + ("" if row.payload else ", which is forgotten")
        message = f"{asked} is not the one of this store under this id, {what}, {rule}"
        raise TakenError(field, message, task.digest, row.digest)
    if row.state is State.CLOSED:
        raise ClosedError(field, f"{asked} is closed for good, {rule}")
    store.add_task(kept, origin)
    if row.state is State.OPEN:
        return Given("already in the store", kept)
    store.set_state(row.id, State.OPEN)
    return Given("opened again", kept)


def withdraw(store: SqliteEditor, task_id: str) -> TaskRow:
    """Ask nobody any more; what is under way counts.

    Raises:
        UnknownError: there is no such task.
        ClosedError: it is closed.
    """
    row = row_of(store, task_id)
    if row.state is State.CLOSED:
        raise ClosedError("task", f"{row.id!r} is closed: nobody is asked any more")
    store.set_state(row.id, State.WITHDRAWN)
    return row


def close(store: SqliteEditor, task_id: str, round_: int | None = None) -> TaskRow:
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
    """Who gave it, what is to become of it, and who publishes it; `n` is of its latest round. Blocks.

    Raises:
        StoreError: the store cannot be read.
    """
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
