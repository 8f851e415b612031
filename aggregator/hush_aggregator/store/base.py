"""The interface of a store and its rows. Every method blocks; the aggregator calls them in one thread."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.tally import Tally
from hush_common.recall import Recall
from hush_common.task import Task
from hush_common.wire import Refusal, Report

UNKNOWN = "(unknown)"
"""Where refusals are counted whose task nobody published; no task id contains a bracket. One bucket for all of them,
so that inventing names does not grow the store."""


WHOLE_TASK = -1
"""The round of a mark that closes a whole task."""


Round = tuple[bytes, int]
"""Digest and number of a round."""


class DamagedError(Exception):
    """What was read of a store is not what was written."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not what was written")


class Origin(StrEnum):
    """Who gave a task."""

    FILE = "file"
    COMMAND = "command"
    HTTP = "http"
    BROKER = "broker"  # it appeared there; also of tasks from before this was written down


class TaskState(StrEnum):
    """Whether a task is open, withdrawn or closed."""

    OPEN = "open"
    WITHDRAWN = "withdrawn"  # devices no longer answer it; reports on their way still count
    CLOSED = "closed"  # and nothing counts any more


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task as a store keeps it."""

    id: str  # its name, taken permanently
    digest: bytes  # of its payload, 32 bytes
    payload: bytes  # as it was published; empty once it is forgotten
    origin: Origin = Origin.FILE  # who gave it
    state: TaskState = TaskState.OPEN  # open, withdrawn or closed
    owner: str = ""  # identity of the store that publishes its estimate, as far as is known; empty if it is not
    term: int = 0  # rises when another store takes it over: of two that claim it, the higher one is right
    taken_from: str = ""  # identity of the store from which this one took it over; empty if it did not


@dataclass(frozen=True, slots=True)
class Owner:
    """Which store publishes the estimate of a task, as it is to be kept: see `TaskRow`."""

    task: str  # id of the task
    owner: str  # identity of that store
    term: int  # since which take-over
    taken_from: str = ""  # identity of the store before it, if this store took it over
    # what this follows from; if a command has written another since then, it is not kept. None: it is kept in any case.
    was_taken_from: str | None = None


@dataclass(frozen=True, slots=True)
class StoredRecall:
    """A recall as a store keeps it."""

    recall: Recall  # what devices are asked
    made: int  # when it was made, in seconds since 1970
    ended: bool = False  # whether it has ended, and is only to be cleared on the broker


@dataclass(frozen=True, slots=True)
class BrokerMemory:
    """What a store knows of its broker, by which it notices that the broker has forgotten something."""

    session: bool = False  # whether a session was left there
    started: int | None = None  # when the broker started, by its own word, in seconds since 1970; None if it never said
    alive: int | None = None  # when it was last heard to be that broker, likewise
    dropped: int | None = None  # how many messages it said it had dropped since it started; None if it never said


@dataclass(frozen=True, slots=True)
class Accepted:
    """Reports of one round that admission let through. Whether their ids are new is the store's business."""

    task: Task  # the task they answer
    round: int  # the round they answer
    ids: NDArray[np.void]  # their report ids, shape (count,), 16 raw bytes each (dtype `V16`)
    bodies: NDArray[np.int64]  # their bodies, shape (count, width), in any byte order
    late: bool = False  # they came after the end of their task, and only count as duplicates, if that is what they are
    senders: Sequence[str] | None = None  # who sent each, for quotas; None where nobody is charged. Never stored.


@dataclass(frozen=True, slots=True)
class Release:
    """The last release of a task with a release policy."""

    at: int  # when, in seconds since 1970
    closed: frozenset[int] = frozenset()  # the rounds that were closed by then; `WHOLE_TASK` is all of them
    refused: Mapping[Refusal, int] = field(default_factory=dict)  # reports refused under the name of the task


@dataclass(frozen=True, slots=True)
class Step:
    """How far a round was at the end of an hour or a day: see `store/steps.py`."""

    until: int  # that end, in seconds since 1970
    n: int  # reports counted, of the last estimate that was published before it
    mean: float | None = None  # of that estimate; None for categories and vectors, and where there was none
    interval: tuple[float, float] | None = None  # the one that is valid at any time
    confidence: float = 0.95  # of the interval


@dataclass(frozen=True, slots=True)
class PublishedStep:
    """An estimate that was published, as a step of its round."""

    digest: bytes  # of its task, 32 bytes
    round: int
    step: Step
    is_final: bool = False  # whether it is the last word of the round


@dataclass(frozen=True, slots=True)
class StoredRound:
    """What the operator has of a round with reports, whether it is released or not."""

    digest: bytes  # of its task, 32 bytes
    round: int
    n: int  # reports counted
    dropped: bool = False  # whether their ids and bodies were dropped by policy, or are being dropped
    dropping: bool = False  # whether that is not finished
    closed_at: int | None = None  # when it was marked as closed, in seconds since 1970; None if it is not


@dataclass(frozen=True, slots=True)
class TaskCount:
    """What is released of a task, and whatever else its document follows from but for the clock."""

    id: str  # its name
    digest: bytes  # of its payload, 32 bytes
    round: int = 0  # its highest round with a counted report; 0 if there is none
    latest: int = 0  # reports counted in that round
    counted: int = 0  # reports counted in all rounds
    refused: Mapping[Refusal, int] = field(default_factory=dict)  # reports refused under its name, by reason
    closed: int = 0  # how many of its rounds are closed; the whole task is one more
    state: TaskState = TaskState.OPEN  # open, withdrawn or closed
    released_at: int = 0  # when its figures were released, in seconds since 1970; 0 without a release policy


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """What one transaction did."""

    accepted: int  # reports that are new and now counted
    refused: Mapping[Refusal, int]  # reports refused, duplicates among them, by reason
    changed: frozenset[str]  # ids of the tasks whose tally or refusal counters moved
    # reports refused by (task id or `UNKNOWN`, reason)
    details: Mapping[tuple[str, Refusal], int] = field(default_factory=dict)
    # who sent those, where known, by the same; None for several. Never stored.
    senders: Mapping[tuple[str, Refusal], str | None] = field(default_factory=dict)
    # reports that are new and now counted, by the id of their task
    counted: Mapping[str, int] = field(default_factory=dict)
    # reports of tasks that are published, and are not for this store; of the pipeline, as what follows
    foreign: int = 0
    commit_s: float = 0.0  # how long the transaction took, in seconds
    acknowledged_s: float = 0.0  # seconds from when the batch was taken until all of it was acknowledged
    # whether it was a batch; else what was counted before of tasks with a release policy, and is released now
    is_batch: bool = True


class Dropped(NamedTuple):
    """What is left of a round whose reports were dropped."""

    width: int  # how many integers each of their bodies had
    tally: Tally


@dataclass(frozen=True, slots=True)
class StoredRows:
    """What a store has beside reports, tallies and refusals."""

    identity: str  # that its estimates bear
    session: str  # id of its session on the broker
    newest: str  # the newest day on which it was in use, as written; empty if unknown
    tasks: Sequence[TaskRow]
    marks: Mapping[Round, int]  # what is closed, and when it was marked, in seconds since 1970
    recalls: Sequence[StoredRecall]
    releases: Mapping[bytes, Release]  # by the digest of a task
    released: Mapping[Round, Tally]  # of tasks with a release policy: at their last release
    dropped: Mapping[Round, Dropped]  # by policy, or being dropped
    steps: Mapping[Round, Sequence[Step]]  # of rounds that have some


K = TypeVar("K")
T = TypeVar("T")


class Worker(Protocol):
    """The thread of a store."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """What the function returns."""


class StoreReader(Protocol):
    """What can be read of a durable memory, by several threads at once.

    Of a task with a release policy, counts and tallies are those of the last release: what was counted since then is in
    none of them, so that nobody can publish it by mistake. Only `stored_rounds` and `reports` are about all of it.
    """

    @property
    def public_identity(self) -> str:
        """A random name of this store, made once: 32 hexadecimal digits, which its estimates bear."""

    def task(self, task_id: str) -> bytes | None:
        """The payload of the task kept under an id; None if there is none."""

    def tasks(self) -> list[bytes]:
        """Payloads of all tasks kept."""

    def task_rows(self) -> list[TaskRow]:
        """All that is kept of each task, forgotten ones among them, in the order of their ids."""

    def task_row(self, task_id: str) -> TaskRow | None:
        """What is kept of one task, forgotten or not; None if its id was never taken."""

    def changes(self) -> int:
        """A number that is another one once another process has written: a command, while the aggregator runs."""

    def version(self) -> int:
        """How often it was written: rises with each transaction, and by far when it is put back from a backup."""

    def counts(self) -> list[TaskCount]:
        """What is counted of each task that is kept, in the order of their ids. No report is looked at."""

    def refused(self) -> dict[Refusal, int]:
        """Reports refused, by reason, under any name."""

    def tally(self, digest: bytes, round_: int) -> Tally:
        """The tally of a round; the empty tally if nothing was counted."""

    def latest_round(self, digest: bytes) -> int:
        """The highest round with a counted report; 0 if there is none."""

    def refusals(self, task_id: str) -> dict[Refusal, int]:
        """Reports refused under the name of a task, by reason, without zeros."""

    @property
    def restored(self) -> bool:
        """Whether it was put back from a backup, and the aggregator has not reacted yet."""

    def is_closed(self, digest: bytes, round_: int | None = None) -> bool:
        """Whether nothing counts any more in a round, or in a whole task."""

    def marks(self) -> frozenset[tuple[bytes, int]]:
        """What is closed: digests and rounds; round -1 is the whole task."""

    def counted_since(self, digest: bytes, round_: int) -> int:
        """How many reports are counted in this round and all later ones."""

    def release_of(self, digest: bytes) -> Release | None:
        """The last release of a task; None if there was none, or if it has no release policy."""

    def stored_rounds(self, digest: bytes | None = None) -> list[StoredRound]:
        """The rounds with a counted report, of a task or of all, released or not: for the operator alone."""

    def steps(self, digest: bytes, round_: int) -> list[Step]:
        """The steps of a round, in the order of time; only of estimates that were published."""

    def recalls(self) -> list[StoredRecall]:
        """The last recall of each task."""

    def broker(self) -> BrokerMemory:
        """What is known of the broker."""

    def arrays(self, digest: bytes, round_: int) -> Iterator[tuple[NDArray[np.void], NDArray[np.int64]]]:
        """As `reports`, some thousand at a time: ids, shape (count,), dtype `V16`, and bodies, shape (count, width)."""

    def reports(self, digest: bytes, round_: int) -> Iterator[Report]:
        """The counted reports of a round, released or not, in the order of their random ids.

        That order says nothing about the devices.
        What is committed while they are read may be among them, or not.
        """


class Store(StoreReader, Protocol):
    """Durable memory. Each method is one transaction: it happens as a whole or, with a `StoreError`, not at all."""

    def add_task(self, task: Task, origin: Origin = Origin.FILE) -> bytes:
        """Keep `task` unless its id is taken; return the payload that is stored under the id now.

        One that had only appeared on the broker, and is given now, has the new origin from then on.

        Raises:
            TaskError: a task of another id has its digest.
        """

    def add_tasks(self, tasks: Sequence[Task], origin: Origin = Origin.FILE) -> list[bytes]:
        """The same of many tasks, in one transaction: all of them are kept, or with an error none."""

    def set_owners(self, owners: Sequence[Owner]) -> None:
        """Keep which store publishes the estimates of these tasks."""

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

    def release(self, digests: Sequence[bytes], at: int) -> list[str]:
        """Release what is counted of tasks with a release policy, in one transaction; return their ids.

        A round is released once it has `release_from` reports. With `release_every` a task is released at most once for
        a time, and never for an earlier one; without it, only if a round that can be released has changed, or if a
        round was closed.

        Args:
            digests: of the tasks; others are left out.
            at: in seconds since 1970; with `release_every` a multiple of that.
        """

    def drop_reports(self, digest: bytes, round_: int) -> bool:
        """Close a round, then drop the ids and bodies of its reports; return whether to call again.

        The first call sets the marks, `closed` and `dropped`, in one transaction. Each further call deletes a portion.
        Tallies stay. From the first call on, every report of the round is refused as `closed`.
        """

    def close_task(self, task_id: str, round_: int | None = None, at: datetime | None = None) -> None:
        """Mark a round, or the whole task and end its recall. From then on nothing counts there.

        `at` is the time of the mark, by default now; the first one stays.

        Raises:
            TaskError: there is no such task.
        """

    def put_steps(self, published: Sequence[PublishedStep]) -> int:
        """Put estimates that were published among the steps of their rounds; return how many steps changed.

        They are in the order of time. One with no more reports than a step of its round changes nothing.
        """

    def thin_steps(self, before: int) -> None:
        """Keep the last step of each day before a midnight (UTC, in seconds since 1970), as one of the whole day."""

    def recall(self, rows: Sequence[StoredRecall], memory: BrokerMemory | None = None) -> list[StoredRecall]:
        """Keep recalls, each in place of an earlier one of its task, and what is known of the broker from then on.

        Returns those that are kept: of a task that is closed none is, and one that has ended replaces no later one.
        """

    def end_recall(self, recall: Recall) -> None:
        """Forget a recall that is cleared on the broker, unless a later one of its task is there."""

    def reacted_to_restoring(self) -> None:
        """Note that nothing is left to do because it was put back from a backup."""


class OpenedStore(StoreReader, Protocol):
    """A reader that is to be closed."""

    def close(self) -> None:
        """Let go of the file or the connection; calling it again does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    @property
    def newest_day(self) -> date | None:
        """The newest day (UTC) on which it was in use, as far as was noted."""

    def counted_tally(self, digest: bytes, round_: int) -> Tally:
        """The tally of a round, released or not: for the operator alone."""

    def counted_refusals(self) -> dict[tuple[str, Refusal], int]:
        """Reports refused, by task and reason, released or not: for the operator alone."""

    def stored_rows(self) -> StoredRows:
        """What it has beside reports, tallies and refusals."""


class FillableStore(Protocol):
    """A new store into which another one is copied."""

    def add_tasks(self, tasks: Sequence[Task], origin: Origin = Origin.FILE) -> list[bytes]:
        """See `Store.add_tasks`."""

    def commit(self, accepted: Sequence[Accepted], refused: Mapping[tuple[str, Refusal], int]) -> CommitOutcome:
        """See `Store.commit`."""

    def counted_tally(self, digest: bytes, round_: int) -> Tally:
        """See `OpenedStore.counted_tally`."""

    def put_rows(self, rows: StoredRows) -> None:
        """Take over all else, last of all: the store is whole then, and marked as put back from a backup."""


class StoreEditor(OpenedStore, Protocol):
    """What commands write, whether an aggregator counts meanwhile or not: that one sees what was written."""

    def add_task(self, task: Task, origin: Origin = Origin.FILE) -> bytes:
        """See `Store.add_task`."""

    def set_state(self, task_id: str, state: TaskState) -> None:
        """Set the state of a task; raise TaskError if it is closed, perhaps by another process since then."""

    def set_owners(self, owners: Sequence[Owner]) -> None:
        """See `Store.set_owners`."""

    def close_task(self, task_id: str, round_: int | None = None, at: datetime | None = None) -> None:
        """See `Store.close_task`."""

    def recall(self, rows: Sequence[StoredRecall], memory: BrokerMemory | None = None) -> list[StoredRecall]:
        """See `Store.recall`."""

    def forget(self, task_id: str) -> None:
        """Close a task, and delete its reports, tallies, counters and recall; its id, digest and mark stay.

        In portions, so that an aggregator that runs need not wait. Interrupted, it is to be called again.

        Raises:
            TaskError: no such task.
        """


class ServedStore(OpenedStore, Store, Protocol):
    """The store of an aggregator that runs."""

    @property
    def identity(self) -> str:
        """A random name of its session on the broker, made once: 32 hexadecimal digits that nobody can guess."""

    def note_day(self, day: date) -> None:
        """Note that it is in use on that day, even if a later one was noted."""

    def set_back_releases(self, now: int) -> None:
        """Let no release be later than now, in seconds since 1970: the clock was wrong when it was made."""

    def forget_senders(self) -> None:
        """Delete what the quotas know of rounds that are closed, or open for too long."""


def only_sender(names: Sequence[str]) -> str | None:
    """The one name among these; None for several, or none."""
    return names[0] if names and names.count(names[0]) == len(names) else None


def note_sender(names: dict[K, str | None], key: K, name: str | None) -> None:
    """Keep under `key` the one name that is noted there; None for several."""
    if names.setdefault(key, name) != name:
        names[key] = None
