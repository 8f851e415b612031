"""The outbox: encoded reports that the broker has not acknowledged yet, in order. Functions on an open transaction.

A payload is written once and never changed: whatever is sent again is the same bytes.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["SCHEMA", "Entry", "count", "delete", "page", "put"]

# AUTOINCREMENT: a number is never used twice, so that a late acknowledgement cannot delete another report.
SCHEMA = """
CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, payload BLOB NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored payload and where it goes; `sequence` grows with time."""

    sequence: int
    topic: str
    payload: bytes


def put(connection: sqlite3.Connection, topic: str, payload: bytes) -> int:
    """Store a payload; return its sequence number."""
    cursor = connection.execute("INSERT INTO outbox (topic, payload) VALUES (?, ?)", (topic, payload))
    if cursor.lastrowid is None:  # pragma: no cover - an INSERT that succeeds has one
        raise sqlite3.InternalError("no row id")
    return cursor.lastrowid


def page(connection: sqlite3.Connection, after: int, limit: int) -> list[Entry]:
    """The next entries with a sequence above `after`, at most `limit`, in order."""
    rows = connection.execute(
        "SELECT sequence, topic, payload FROM outbox WHERE sequence > ? ORDER BY sequence LIMIT ?", (after, limit)
    )
    return [Entry(*row) for row in rows]


def delete(connection: sqlite3.Connection, sequences: Iterable[int]) -> None:
    """Forget payloads that the broker has acknowledged."""
    connection.executemany("DELETE FROM outbox WHERE sequence = ?", ((sequence,) for sequence in sequences))


def count(connection: sqlite3.Connection) -> int:
    """How many payloads wait."""
    (waiting,) = connection.execute("SELECT count(*) FROM outbox").fetchone()
    return int(waiting)
