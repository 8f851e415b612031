"""Limits of what anybody may publish: a task that appears at the broker costs memory, and time at every estimate.

Tasks that are given by file or by command have none of these limits: whoever runs the aggregator chose them.
"""

from collections.abc import Iterable

from hush_aggregator.estimate.tallies import columns
from hush_aggregator.store.base import Origin, State, TaskRow
from hush_common.errors import TaskError
from hush_common.task import Task

__all__ = ["COLUMNS", "COLUMNS_OF_ONE", "PAYLOAD_BYTES", "TASKS", "LearnedLimits", "NoRoomError", "columns_of"]

TASKS = 1000
"""Tasks learned from a broker that are counted at a time: as many as a device remembers."""

PAYLOAD_BYTES = 8 * 1024 * 1024
"""Their bytes as published; in memory they take about four times as many."""

COLUMNS_OF_ONE = 65_536
"""Sums in the tally of one of them: 64 coordinates of 1024 levels, or 1024 of 64."""

COLUMNS = 262_144
"""Sums in the tallies of all of them."""

_REMEDY = "give it by --task or hush task publish --store, or end others: hush task close, hush task forget"


class NoRoomError(TaskError):
    """A task found at the broker that is more than anybody may publish there."""


def columns_of(task: Task) -> int:
    """Sums in the tally of a round."""
    return columns(task.randomizer)


class LearnedLimits:
    """What the tasks that were learned from a broker take.

    Args:
        rows: those of a store.
        tasks: the same, read.
    """

    def __init__(self, rows: Iterable[TaskRow], tasks: Iterable[Task]) -> None:
        learned = {row.id: row for row in rows if row.origin is Origin.BROKER and row.state is not State.CLOSED}
        self._tasks = sum(bool(row.payload) for row in learned.values())
        self._bytes = sum(len(row.payload) for row in learned.values())
        self._columns = sum(columns_of(task) for task in tasks if task.id in learned)

    def full(self, payload: bytes) -> str:
        """Why there is no room for one more, told before any time is spent on reading it; empty where there is."""
        if self._tasks >= TASKS:
            return f"no more than {TASKS} tasks found at the broker are counted; {_REMEDY}"
        if self._bytes + len(payload) > PAYLOAD_BYTES:
            return f"tasks found at the broker may have {PAYLOAD_BYTES} bytes in all; {_REMEDY}"
        return ""

    def check(self, task: Task) -> None:
        """See that its tallies are not too large.

        Raises:
            NoRoomError: they are.
        """
        wanted = columns_of(task)
        if wanted > COLUMNS_OF_ONE or self._columns + wanted > COLUMNS:
            raise NoRoomError(
                "task",
                f"its tally has {wanted} sums; one task found at the broker may have {COLUMNS_OF_ONE}, all of them "
                f"together {COLUMNS}; {_REMEDY}",
            )

    def add(self, task: Task) -> None:
        """Count one more."""
        self._tasks += 1
        self._bytes += len(task.payload)
        self._columns += columns_of(task)
