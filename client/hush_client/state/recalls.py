"""Recalls that were obeyed, and what is still to be sent under one. Functions on an open transaction.

A row is written once all entries of a recall are acknowledged, not at each of them: flash wears out. Where something
else is written before, or the client is closed, what is still to be sent goes along, with its moments.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from hush_client.state import kept, ledger
from hush_common.recall import KEPT_FOR, LONGEST_OVER, RECALL_ID_BYTES, SHORTEST_OVER, grace_of

__all__ = ["TABLES", "Found", "Obeyed", "Row", "grace", "load", "mend", "resume", "save"]

TABLES = (
    """CREATE TABLE recall (
    place TEXT, task TEXT, id BLOB, began INTEGER NOT NULL, over INTEGER NOT NULL, open INTEGER NOT NULL,
    PRIMARY KEY (place, task, id)
) WITHOUT ROWID""",
    "CREATE TABLE planned (sequence INTEGER PRIMARY KEY, id BLOB NOT NULL, due INTEGER NOT NULL)",
)

_REMEMBERED = 1000 * (int(KEPT_FOR.total_seconds()) + 2 * LONGEST_OVER)
"""Milliseconds; no recall is open for so long."""


@dataclass(frozen=True, slots=True)
class Row:
    """A recall that is obeyed, or was.

    Args:
        task: id of the task.
        id: of the recall.
        began: when, in milliseconds since 1970.
        over: seconds over which its entries are spread, clamped.
        open: whether some of them are still to be acknowledged.
    """

    task: str
    id: bytes
    began: int
    over: int
    open: bool


@dataclass(frozen=True, slots=True)
class Obeyed:
    """What is to be written about a recall.

    Args:
        row: it.
        planned: all entries that are still to be acknowledged, and when each is due, in milliseconds since 1970; None
            where they are written already.
        done: entries that were acknowledged, or are gone, since it was written.
        resent: how often entries were handed to the network since.
    """

    row: Row
    planned: Mapping[int, int] | None = None
    done: Iterable[int] = ()
    resent: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Found:
    """What earlier runs have left.

    Args:
        size: bytes of all that is kept.
        known: topics and digests of what is kept for the place.
        rows: the recalls of the place, the oldest first, with what is due under each.
        elsewhere: how many entries are kept for other places.
    """

    size: int
    known: set[tuple[str, bytes]]
    rows: list[tuple[Row, dict[int, int]]]
    elsewhere: int = 0


def grace(over: int) -> int:
    """Milliseconds after the close of a task at which what a recall has scheduled ends.

    Args:
        over: seconds, clamped.
    """
    return grace_of(over) // timedelta(milliseconds=1)


def resume(connection: sqlite3.Connection, place: str, now: int, keep: int) -> Found:
    """Drop what is damaged or has ended, and say what is left.

    Args:
        connection: inside a transaction.
        place: broker and sender.
        now: milliseconds since 1970.
        keep: milliseconds for which things are kept.
    """
    kept.mend(connection)
    mend(connection)
    connection.execute("DELETE FROM recall WHERE abs(? - began) > ?", (now, _REMEMBERED))
    scheduled = {sequence: grace(row.over) for row, due in load(connection, place) for sequence in due}
    kept.expire(connection, kept.Term(now, keep, scheduled))
    size, elsewhere = kept.size(connection), kept.elsewhere(connection, place)
    return Found(size, kept.topics(connection, place), load(connection, place), elsewhere)


def load(connection: sqlite3.Connection, place: str) -> list[tuple[Row, dict[int, int]]]:
    """The recalls of a place, and which kept entries are due when under each; the oldest first."""
    select = "SELECT task, id, began, over, open FROM recall WHERE place = ? ORDER BY began, task, id"
    due = "SELECT sequence, due FROM planned JOIN kept USING (sequence) WHERE id = ?"
    found = connection.execute(select, (place,)).fetchall()
    rows = [Row(task, name, began, over, bool(still)) for task, name, began, over, still in found]
    return [(row, dict(connection.execute(due, (row.id,)).fetchall()) if row.open else {}) for row in rows]


def save(connection: sqlite3.Connection, place: str, obeyed: Iterable[Obeyed]) -> None:
    """Write down what became of recalls."""
    for each in obeyed:
        row = each.row
        if each.planned is not None or not row.open:
            connection.execute(
                "REPLACE INTO recall VALUES (?, ?, ?, ?, ?, ?)",
                (place, row.task, row.id, row.began, row.over, int(row.open)),
            )
            connection.execute("DELETE FROM planned WHERE id = ?", (row.id,))
            connection.execute("DELETE FROM recall WHERE began < ?", (row.began - _REMEMBERED,))  # in the same write
        planned = each.planned or {}
        connection.executemany(
            "REPLACE INTO planned VALUES (?, ?, ?)", ((sequence, row.id, due) for sequence, due in planned.items())
        )
        connection.executemany("DELETE FROM planned WHERE sequence = ?", ((sequence,) for sequence in each.done))
        ledger.resent(connection, each.resent)


def mend(connection: sqlite3.Connection) -> None:
    """Drop rows that cannot have been written here, and what was planned for entries that are gone."""
    connection.execute(
        "DELETE FROM recall WHERE typeof(place) <> 'text' OR typeof(task) <> 'text' OR typeof(id) <> 'blob' "
        "OR length(id) <> ? OR typeof(began) <> 'integer' OR typeof(over) <> 'integer' OR over NOT BETWEEN ? AND ? "
        "OR open IS NULL OR open NOT IN (0, 1)",
        (RECALL_ID_BYTES, SHORTEST_OVER, LONGEST_OVER),
    )
    connection.execute(
        "DELETE FROM planned WHERE typeof(id) <> 'blob' OR typeof(due) <> 'integer' "
        "OR id NOT IN (SELECT id FROM recall WHERE open) OR sequence NOT IN (SELECT sequence FROM kept)"
    )
