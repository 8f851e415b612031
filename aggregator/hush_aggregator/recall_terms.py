"""The terms of a recall: whether a task can be recalled, over how long its reports come again, and when it ends."""

import secrets
from datetime import UTC, datetime

from hush_aggregator.store.base import RecallRow, State, StoreReader, TaskRow
from hush_common.recall import KEPT_FOR, LONGEST_OVER, RECALL_ID_BYTES, Recall
from hush_common.task import CLOCK_SKEW, Task

__all__ = ["SHORTEST_S", "drawn_up", "has_ended", "is_kept", "is_recallable"]

SHORTEST_S = 60
"""Seconds over which a recall is spread at least."""
_PER_SECOND = 500
"""Reports that a recall brings each second, about: an aggregator on a small machine keeps up with that, and a broker's
queue too."""


def is_recallable(task: Task, row: TaskRow, now: datetime) -> bool:
    """Whether devices may still keep reports of a task that count."""
    return (
        row.state is not State.CLOSED
        and not (task.opens is not None and task.opens - now > CLOCK_SKEW)
        and not (task.closes is not None and now - task.closes > CLOCK_SKEW)
    )


def drawn_up(store: StoreReader, task: Task, now: datetime, expected: int = 0) -> RecallRow:
    """A new recall of a task. Reads the store.

    Args:
        store: says how many reports are counted in the rounds that devices can still keep.
        task: which is recalled.
        now: aware.
        expected: how many reports are known of from elsewhere.
    """
    first, last = _round_at(task, now - KEPT_FOR), _round_at(task, now)
    kept = max(expected, store.counted_since(task.digest, first), (task.enrolled or 0) * (last - first + 1))
    over = min(max(SHORTEST_S, -(-kept // _PER_SECOND)), LONGEST_OVER)
    identifier = secrets.token_bytes(RECALL_ID_BYTES)
    return RecallRow(Recall(task.id, task.digest, identifier, over), int(now.timestamp()))


def has_ended(row: RecallRow, task: Task | None, now: datetime) -> bool:
    """Whether no device can have anything to send any more. One that is open when its task closes ends with it."""
    if task is None or task.digest != row.recall.digest:
        return True
    until = row.made + KEPT_FOR.total_seconds() + row.recall.spread
    if task.closes is not None and task.closes.timestamp() <= until:
        return False
    return now.timestamp() >= until


def is_kept(row: RecallRow, task: Task) -> bool:
    """Whether a task counts for longer because of a recall: until `closes` + `Recall.grace`."""
    return not row.ended and task.closes is not None and row.recall.digest == task.digest


def _round_at(task: Task, moment: datetime) -> int:
    if task.opens is None or task.round_every is None or task.rounds == 1:
        return 0
    return min(max((moment.astimezone(UTC) - task.opens) // task.round_every, 0), task.rounds - 1)
