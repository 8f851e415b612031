"""What a store in SQLite has counted, task by task: from the tallies, never from the reports."""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping

from hush_aggregator.store.rows import State, TaskCount
from hush_aggregator.store.schema import damaged
from hush_common.wire import Refusal

__all__ = ["read_counts", "reasons"]

_REASONS = frozenset(reason.value for reason in Refusal)
# Beside one `max`, SQLite takes a column that is not aggregated from the row of the maximum. `length` of a payload
# leaves the payload unread.
_COUNTS = """
SELECT task.id, task.digest, task.state, counted.latest, counted.n, counted.total,
    (SELECT count(*) FROM closed WHERE closed.digest = task.digest)
FROM task LEFT JOIN (SELECT digest, max(round) AS latest, n, sum(n) AS total FROM tally GROUP BY digest) AS counted
    ON counted.digest = task.digest
WHERE length(task.payload) > 0 ORDER BY task.id
"""


def read_counts(run: sqlite3.Connection) -> list[TaskCount]:
    """What is counted of each task that is not forgotten."""
    refused: dict[str, dict[str, int]] = defaultdict(dict)
    for task_id, reason, count in run.execute("SELECT task, reason, count FROM refusal"):
        refused[task_id][reason] = count
    found = []
    for task_id, digest, state, latest, n, total, closed in run.execute(_COUNTS).fetchall():
        counted = int(latest or 0), int(n or 0), int(total or 0)
        found.append(TaskCount(task_id, digest, *counted, reasons(refused.get(task_id, {})), closed, _state(state)))
    return found


def _state(text: str) -> State:
    try:
        return State(text)
    except ValueError:
        raise damaged("a task") from None


def reasons(counts: Mapping[str, int]) -> dict[Refusal, int]:
    """Counts by reason, as a store writes them."""
    if not counts.keys() <= _REASONS:
        raise damaged("a refusal reason")
    return {Refusal(reason): count for reason, count in counts.items()}
