"""What an aggregator asks of its store. Every method blocks; the pipeline calls them in one worker thread."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from hush_aggregator.store.rows import (
    UNKNOWN,
    Accepted,
    BrokerMemory,
    CommitOutcome,
    Origin,
    Owner,
    RecallRow,
    State,
    TaskCount,
    TaskRow,
)
from hush_aggregator.tally import Tally
from hush_common.recall import Recall
from hush_common.task import Task
from hush_common.wire import Refusal, Report

__all__ = [
    "UNKNOWN",
    "Accepted",
    "BrokerMemory",
    "CommitOutcome",
    "Origin",
    "Owner",
    "RecallRow",
    "State",
    "Store",
    "StoreReader",
    "TaskCount",
    "TaskRow",
    "Worker",
]

T = TypeVar("T")


class Worker(Protocol):
    """The thread of a store."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """What the function returns."""
        ...


class StoreReader(Protocol):
    """What can be read of a durable memory, by several threads at once."""

    @property
    def public_identity(self) -> str:
        """A random name of this store, made once: 32 hexadecimal digits, which its estimates bear."""
        ...

    def task(self, task_id: str) -> bytes | None:
        """The payload of the task kept under an id; None if there is none."""
        ...

    def tasks(self) -> list[bytes]:
        """Payloads of all tasks kept."""
        ...

    def task_rows(self) -> list[TaskRow]:
        """All that is kept of each task, forgotten ones among them, in the order of their ids."""
        ...

    def task_row(self, task_id: str) -> TaskRow | None:
        """What is kept of one task, forgotten or not; None if its id was never taken."""
        ...

    def changes(self) -> int:
        """A number that is another one once another process has written: a command, while the aggregator runs."""
        ...

    def version(self) -> int:
        """How often it was written: rises with each transaction, and by far when it is put back from a backup."""
        ...

    def counts(self) -> list[TaskCount]:
        """What is counted of each task that is kept, in the order of their ids. No report is looked at."""
        ...

    def refused(self) -> dict[Refusal, int]:
        """Reports refused, by reason, under any name."""
        ...

    def tally(self, digest: bytes, round_: int) -> Tally:
        """The tally of a round; the empty tally if nothing was counted."""
        ...

    def latest_round(self, digest: bytes) -> int:
        """The highest round with a counted report; 0 if there is none."""
        ...

    def refusals(self, task_id: str) -> dict[Refusal, int]:
        """Reports refused under the name of a task, by reason, without zeros."""
        ...

    @property
    def restored(self) -> bool:
        """Whether it was put back from a backup, and the aggregator has not reacted yet."""
        ...

    def is_closed(self, digest: bytes, round_: int | None = None) -> bool:
        """Whether nothing counts any more in a round, or in a whole task."""
        ...

    def marks(self) -> frozenset[tuple[bytes, int]]:
        """What is closed: digests and rounds; round -1 is the whole task."""
        ...

    def counted_since(self, digest: bytes, round_: int) -> int:
        """How many reports are counted in this round and all later ones."""
        ...

    def recalls(self) -> list[RecallRow]:
        """The last recall of each task."""
        ...

    def broker(self) -> BrokerMemory:
        """What is known of the broker."""
        ...

    def reports(self, digest: bytes, round_: int) -> Iterator[Report]:
        """The counted reports of a round, in the order of their random ids, which says nothing about the devices.

        What is committed while they are read may be among them, or not.
        """
        ...


class Store(StoreReader, Protocol):
    """Durable memory. Each method is one transaction: it happens as a whole or, with a `StoreError`, not at all."""

    def add_task(self, task: Task, origin: Origin = Origin.FILE) -> bytes:
        """Keep `task` unless its id is taken; return the payload that is stored under the id now.

        One that had only appeared at the broker, and is given now, has the new origin from then on.

        Raises:
            TaskError: a task of another id has its digest.
        """
        ...

    def add_tasks(self, tasks: Sequence[Task], origin: Origin = Origin.FILE) -> list[bytes]:
        """The same of many tasks, in one transaction: all of them are kept, or with an error none."""
        ...

    def set_owners(self, owners: Sequence[Owner]) -> None:
        """Keep which store publishes the estimates of these tasks."""
        ...

    def commit(self, accepted: Sequence[Accepted], refused: Mapping[tuple[str, Refusal], int]) -> CommitOutcome:
        """Count a batch.

        Reports whose key (digest, round, id) is new are inserted, and exactly those are folded into the tallies; the
        others are counted as duplicates. Within a batch the first of equal keys is the new one. Of a closed round, and
        of those that are late, nothing is inserted: what is not a duplicate is counted as `closed`. Where there are
        quotas, what is neither a duplicate nor within that of its sender is counted as `quota`.

        Args:
            accepted: what admission let through.
            refused: what it did not, by (task id or `UNKNOWN`, reason).
        """
        ...

    def close_task(self, task_id: str, round_: int | None = None) -> None:
        """Mark a round, or the whole task and end its recall. From then on nothing counts there, for good.

        Raises:
            TaskError: there is no such task.
        """
        ...

    def recall(self, rows: Sequence[RecallRow], memory: BrokerMemory | None = None) -> list[RecallRow]:
        """Keep recalls, each in place of an earlier one of its task, and what is known of the broker from then on.

        Returns those that are kept: of a task that is closed none is, and one that has ended replaces no later one.
        """
        ...

    def end_recall(self, recall: Recall) -> None:
        """Forget a recall that is cleared at the broker, unless a later one of its task is there."""
        ...

    def reacted_to_restoring(self) -> None:
        """Note that nothing is left to do because it was put back from a backup."""
        ...
