"""What a store remembers of its broker, and the recalls that follow from it. Functions on an open transaction."""

import sqlite3
from collections.abc import Iterable

from hush_aggregator.store.base import BrokerMemory, RecallRow
from hush_aggregator.store.schema import damaged
from hush_common.recall import Recall

__all__ = ["delete_recall", "end_recalls", "read_broker", "read_recalls", "write_broker", "write_recalls"]


def read_recalls(run: sqlite3.Connection) -> list[RecallRow]:
    """The last recall of each task, in the order of their ids."""
    rows = run.execute("SELECT task, digest, id, over, made, ended FROM recall ORDER BY task").fetchall()
    try:
        return [RecallRow(Recall(*row[:4]), row[4], ended=bool(row[5])) for row in rows]
    except ValueError:
        raise damaged("a recall") from None


_KEEP = """
INSERT OR REPLACE INTO recall SELECT ?, ?, ?, ?, ?, 0
WHERE NOT EXISTS (SELECT 1 FROM closed WHERE digest = ? AND round = -1)
"""
_END = "UPDATE recall SET ended = 1 WHERE task = ? AND id = ?"


def write_recalls(run: sqlite3.Connection, rows: Iterable[RecallRow]) -> list[RecallRow]:
    """Keep these, each in place of an earlier one of its task; return those that were kept.

    Whoever drew one up looked at the store before: of a task that was closed since then nothing is kept, and one that
    has ended ends no later one.
    """
    return [row for row in rows if _written(run, row)]


def _written(run: sqlite3.Connection, row: RecallRow) -> bool:
    recall = row.recall
    if row.ended:
        return run.execute(_END, (recall.task, recall.id)).rowcount > 0
    values = (recall.task, recall.digest, recall.id, recall.over, row.made, recall.digest)
    return run.execute(_KEEP, values).rowcount > 0


def end_recalls(run: sqlite3.Connection, digest: bytes) -> None:
    """The recall of a task has ended; it is still to be cleared at the broker."""
    run.execute("UPDATE recall SET ended = 1 WHERE digest = ?", (digest,))


def delete_recall(run: sqlite3.Connection, recall: Recall) -> None:
    """This recall is cleared; a later one of its task stays."""
    run.execute("DELETE FROM recall WHERE task = ? AND id = ?", (recall.task, recall.id))


def read_broker(run: sqlite3.Connection) -> BrokerMemory:
    session, started, alive, dropped = run.execute("SELECT session, started, alive, dropped FROM broker").fetchone()
    return BrokerMemory(session=bool(session), started=started, alive=alive, dropped=dropped)


def write_broker(run: sqlite3.Connection, memory: BrokerMemory) -> None:
    run.execute(
        "UPDATE broker SET session = ?, started = ?, alive = ?, dropped = ?",
        (int(memory.session), memory.started, memory.alive, memory.dropped),
    )
