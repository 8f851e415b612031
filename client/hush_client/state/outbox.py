"""The outbox: encoded reports that the broker has not acknowledged yet. Functions on an open transaction.

A payload is written once and never changed: whatever is sent again is the same bytes.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from hush_common.recall import LAST_COUNTED

__all__ = [
    "SCHEMA",
    "Entry",
    "count",
    "count_besides",
    "count_in_time",
    "delete",
    "fetch",
    "find",
    "is_late",
    "next_sequence",
    "page",
    "put",
    "reschedule",
]

# AUTOINCREMENT: a number is never used twice, so that a late acknowledgement cannot delete another report.
SCHEMA = """
CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, payload BLOB NOT NULL,
    not_before INTEGER NOT NULL DEFAULT 0, delay INTEGER NOT NULL DEFAULT 0, closes INTEGER
);
"""

_NEAR = 4
"""So many entries read for one that is wanted cost less than one more statement."""
_LATE = LAST_COUNTED // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored payload and where it goes.

    Args:
        sequence: grows with time.
        not_before: when it may be sent, in milliseconds since 1970 by the clock of the device.
        delay: how long it was to be held back when it was stored, in milliseconds; bounds every wait.
        closes: when its task closes, in milliseconds since 1970; None where it does not, or that is not known.
    """

    sequence: int
    topic: str
    payload: bytes
    not_before: int = 0
    delay: int = 0
    closes: int | None = None


def next_sequence(connection: sqlite3.Connection) -> int:
    """The number of the payload that is put next in this transaction; those of the following ones follow."""
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
    return int(last) + 1


def put(
    connection: sqlite3.Connection,
    topic: str,
    payload: bytes,
    *,
    not_before: int = 0,
    delay: int = 0,
    closes: int | None = None,
) -> int:
    """Store a payload; return its sequence number. `Entry` says what the other arguments are."""
    cursor = connection.execute(
        "INSERT INTO outbox (topic, payload, not_before, delay, closes) VALUES (?, ?, ?, ?, ?)",
        (topic, payload, not_before, delay, closes),
    )
    if cursor.lastrowid is None:  # pragma: no cover - an INSERT that succeeds has one
        raise sqlite3.InternalError("no row id")
    return cursor.lastrowid


def page(connection: sqlite3.Connection, after: int, limit: int) -> list[Entry]:
    """The next entries with a sequence above `after`, at most `limit`, in the order in which they were stored."""
    rows = connection.execute(f"{_SELECT} WHERE sequence > ? ORDER BY sequence LIMIT ?", (after, limit))
    return [Entry(*row) for row in rows]


def fetch(connection: sqlite3.Connection, sequences: Iterable[int]) -> list[Entry]:
    """The entries with these numbers, in this order; one that is gone is left out."""
    wanted = list(sequences)
    if wanted and max(wanted) - min(wanted) < _NEAR * len(wanted):  # mostly stored one after the other
        between = connection.execute(f"{_SELECT} WHERE sequence BETWEEN ? AND ?", (min(wanted), max(wanted)))
        rows = {row[0]: row for row in between}
    else:
        found = (connection.execute(f"{_SELECT} WHERE sequence = ?", (sequence,)).fetchone() for sequence in wanted)
        rows = {row[0]: row for row in found if row is not None}
    return [Entry(*rows[sequence]) for sequence in wanted if sequence in rows]


def reschedule(connection: sqlite3.Connection, now: int) -> None:
    """Where the clock was set back, count every delay anew: no entry waits longer than its own delay from `now`."""
    connection.execute("UPDATE outbox SET not_before = ? + delay WHERE not_before > ? + delay", (now, now))


def delete(connection: sqlite3.Connection, sequences: Iterable[int]) -> None:
    """Forget payloads that the broker has acknowledged."""
    connection.executemany("DELETE FROM outbox WHERE sequence = ?", ((sequence,) for sequence in sequences))


def find(connection: sqlite3.Connection, device: str, task: str, round_: int) -> int | None:
    """The entry of the outbox that carries the report of a device for one round; None once the broker has that."""
    select = "SELECT sequence FROM charge JOIN outbox USING (sequence) WHERE device = ? AND task = ? AND round = ?"
    row = connection.execute(select, (device, task, round_)).fetchone()
    return None if row is None else int(row[0])


def is_late(entry: Entry, now: int) -> bool:
    """Whether no aggregator counts an entry any more, whoever recalls it.

    Args:
        entry: it.
        now: milliseconds since 1970.
    """
    return entry.closes is not None and entry.closes + _LATE <= now


def count_besides(connection: sqlite3.Connection, sequences: Iterable[int]) -> tuple[int, int]:
    """How many payloads wait, and how many beside these entries, of which some may be gone."""
    find = "SELECT count(*) FROM outbox WHERE sequence = ?"
    left = count(connection)
    return left, left - sum(connection.execute(find, (sequence,)).fetchone()[0] for sequence in sequences)


def count_in_time(connection: sqlite3.Connection, now: int) -> int:
    """How many payloads wait that may still be counted. It reads whatever waits: ask only where `count` is too many.

    Args:
        connection: inside a transaction.
        now: milliseconds since 1970.
    """
    select = "SELECT count(*) FROM outbox WHERE closes IS NULL OR closes > ?"
    (waiting,) = connection.execute(select, (now - _LATE,)).fetchone()
    return int(waiting)


def count(connection: sqlite3.Connection) -> int:
    """How many payloads wait."""
    (waiting,) = connection.execute("SELECT count(*) FROM outbox").fetchone()
    return int(waiting)


_SELECT = "SELECT sequence, topic, payload, not_before, delay, closes FROM outbox"
