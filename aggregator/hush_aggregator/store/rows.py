"""What a store keeps and counts: values, and no way to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from hush_common.recall import Recall
from hush_common.task import Task
from hush_common.wire import Refusal

UNKNOWN = "(unknown)"
"""Where refusals are counted whose task nobody published; no task id contains a bracket. One bucket for all of them,
so that inventing names does not grow the store."""


class Origin(StrEnum):
    """Who gave a task."""

    FILE = "file"
    COMMAND = "command"
    HTTP = "http"
    BROKER = "broker"  # it appeared there; also of tasks from before this was written down


class State(StrEnum):
    """What is to become of a task."""

    OPEN = "open"
    WITHDRAWN = "withdrawn"  # nobody is asked any more; reports that are under way count
    CLOSED = "closed"  # and nothing counts any more


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task as a store keeps it.

    Args:
        id: its name, taken for good.
        digest: of its payload, 32 bytes.
        payload: as it was published; empty once it is forgotten.
        origin: who gave it.
        state: what is to become of it.
        owner: identity of the store that publishes its estimate, as far as is known; empty if it is not.
        term: rises when another store takes it over: of two that claim it, the higher one is right.
        taken_from: identity of the store from which this one took it over; empty if it did not.
    """

    id: str
    digest: bytes
    payload: bytes
    origin: Origin = Origin.FILE
    state: State = State.OPEN
    owner: str = ""
    term: int = 0
    taken_from: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Which store publishes the estimate of a task, as it is to be kept: see `TaskRow`.

    Args:
        task: id of the task.
        owner: identity of that store.
        term: since which take-over.
        taken_from: identity of the store before it, if this store took it over.
        was_taken_from: what this follows from; if a command has written another since then, it is not kept. None: it
            is kept in any case.
    """

    task: str
    owner: str
    term: int
    taken_from: str = ""
    was_taken_from: str | None = None


@dataclass(frozen=True, slots=True)
class RecallRow:
    """A recall as a store keeps it.

    Args:
        recall: what devices are asked.
        made: when it was made, in seconds since 1970.
        ended: whether it has ended, and is only to be cleared at the broker.
    """

    recall: Recall
    made: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class BrokerMemory:
    """What a store knows of its broker, by which it notices that the broker has forgotten something.

    Args:
        session: whether a session was left there.
        started: when the broker started, by its own word, in seconds since 1970; None if it never said.
        alive: when it was last heard to be that broker, likewise.
        dropped: how many messages it said it had dropped since it started; None if it never said.
    """

    session: bool = False
    started: int | None = None
    alive: int | None = None
    dropped: int | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """Reports of one round that admission let through. Whether their ids are new is the store's business.

    Args:
        task: the task they answer.
        round: the round they answer.
        ids: their report ids, shape (count,), 16 raw bytes each (dtype `V16`).
        bodies: their bodies, shape (count, width), in any byte order.
        late: they came after the end of their task, and only count as duplicates, if that is what they are.
        senders: who sent each, for quotas; None where nobody is charged. Never stored.
    """

    task: Task
    round: int
    ids: NDArray[np.void]
    bodies: NDArray[np.int64]
    late: bool = False
    senders: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class TaskCount:
    """What is counted of a task, and whatever else its document follows from but for the clock.

    Args:
        id: its name.
        digest: of its payload, 32 bytes.
        round: its highest round with a counted report; 0 if there is none.
        latest: reports counted in that round.
        counted: reports counted in all rounds.
        refused: reports refused under its name, by reason.
        closed: how many of its rounds are closed; the whole task is one more.
        state: what is to become of it.
    """

    id: str
    digest: bytes
    round: int = 0
    latest: int = 0
    counted: int = 0
    refused: Mapping[Refusal, int] = field(default_factory=dict)
    closed: int = 0
    state: State = State.OPEN


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """What one transaction did.

    Args:
        accepted: reports that are new and now counted.
        refused: reports refused, duplicates among them, by reason.
        changed: ids of the tasks whose tally or refusal counters moved.
        details: reports refused by (task id or `UNKNOWN`, reason).
        senders: who sent those, where known, by the same; None for several. Never stored.
        counted: reports that are new and now counted, by the id of their task.
        foreign: reports of tasks that are published, and are not for this store; of the pipeline, as what follows.
        commit_s: how long the transaction took, in seconds.
        acknowledged_s: seconds from when the batch was taken until all of it was acknowledged.
    """

    accepted: int
    refused: Mapping[Refusal, int]
    changed: frozenset[str]
    details: Mapping[tuple[str, Refusal], int] = field(default_factory=dict)
    senders: Mapping[tuple[str, Refusal], str | None] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    foreign: int = 0
    commit_s: float = 0.0
    acknowledged_s: float = 0.0
