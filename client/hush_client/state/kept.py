"""Kept: payloads that the broker has acknowledged, for as long as a recall may ask for them again.

A broker may forget what it has acknowledged. So a payload moves from the outbox to here, in the write that would have
deleted it, and goes out once more when the aggregator asks (`hush_common.recall`): the same bytes, which count once.
Functions on an open transaction. Nothing here concerns what was spent: a damaged row is dropped, and blocks no ledger.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from hush_client.state import outbox
from hush_client.state.outbox import Entry
from hush_common.rng import SystemRng
from hush_common.task import CLOCK_SKEW
from hush_common.wire import DIGEST

__all__ = [
    "TABLES",
    "Term",
    "dropped",
    "elsewhere",
    "expire",
    "fetch",
    "keep",
    "kept",
    "make_room",
    "mend",
    "plan",
    "size",
    "topics",
]

TABLES = (
    """CREATE TABLE kept (
    sequence INTEGER PRIMARY KEY, topic TEXT NOT NULL, payload BLOB NOT NULL, place TEXT NOT NULL,
    acknowledged INTEGER NOT NULL, closes INTEGER
)""",
    "CREATE TABLE dropped (device TEXT PRIMARY KEY, reports INTEGER NOT NULL) WITHOUT ROWID",
)

_SKEW = CLOCK_SKEW // timedelta(milliseconds=1)
_SIZE = "length(payload) + length(topic) + length(place)"
_DIGEST = f"substr(payload, {DIGEST.start + 1}, {DIGEST.stop - DIGEST.start})"
"""The bytes of the digest that a frame carries."""


@dataclass(frozen=True, slots=True)
class Term:
    """Until when things are kept.

    Args:
        now: milliseconds since 1970, by the clock of the device.
        keep: milliseconds from an acknowledgement on, at most; 0 keeps nothing.
        scheduled: the entries that a recall has asked for, which stay until they are sent; with the milliseconds after
            the close of their task at which they end all the same.
    """

    now: int
    keep: int
    scheduled: Mapping[int, int] = field(default_factory=dict)


def keep(connection: sqlite3.Connection, sequences: Iterable[int], place: str, now: int) -> int:
    """Move what the broker has acknowledged out of the outbox; how many bytes it is.

    Args:
        connection: inside a transaction.
        sequences: of the outbox; one that is gone is left out.
        place: broker and sender by which it went, and by which alone it may go again.
        now: milliseconds since 1970.
    """
    entries = outbox.fetch(connection, sequences)
    connection.executemany(
        "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?)",
        ((one.sequence, one.topic, one.payload, place, now, one.closes) for one in entries),
    )
    outbox.delete(connection, (one.sequence for one in entries))
    return sum(len(one.payload) + len(one.topic) + len(place) for one in entries)


def size(connection: sqlite3.Connection) -> int:
    """Bytes of all that is kept: payloads, topics and places."""
    (total,) = connection.execute(f"SELECT coalesce(sum({_SIZE}), 0) FROM kept").fetchone()  # noqa: S608 - likewise
    return int(total)


def topics(connection: sqlite3.Connection, place: str) -> set[tuple[str, bytes]]:
    """Topics and digests of what is kept for a place."""
    select = f"SELECT DISTINCT topic, {_DIGEST} FROM kept WHERE place = ?"  # noqa: S608 - likewise
    return set(connection.execute(select, (place,)))


def elsewhere(connection: sqlite3.Connection, place: str) -> int:
    """How many entries are kept for other places than this one."""
    (entries,) = connection.execute("SELECT count(*) FROM kept WHERE place <> ?", (place,)).fetchone()
    return int(entries)


def fetch(connection: sqlite3.Connection, sequences: Iterable[int]) -> list[Entry]:
    """The entries with these numbers, in this order; one that is gone is left out."""
    select = "SELECT sequence, topic, payload, 0, 0, closes FROM kept WHERE sequence = ?"
    rows = (connection.execute(select, (sequence,)).fetchone() for sequence in sequences)
    return [Entry(*row) for row in rows if row is not None]


def plan(
    connection: sqlite3.Connection, topic: str, place: str, digest: bytes, *, term: Term, spread: int
) -> list[tuple[int, int]]:
    """Which entries a recall asks for, and after how many milliseconds each is to go: uniform over `spread` seconds.

    A recall asks for the frames that have the first 16 bytes of its digest.
    From the operating system's entropy, one draw for each: together they tell neither an order nor a start.
    """
    rows = connection.execute(
        f"SELECT sequence, acknowledged, closes FROM kept WHERE topic = ? AND place = ? AND {_DIGEST} = ?",  # noqa: S608 - likewise
        (topic, place, digest),
    )
    rng = SystemRng()
    return [
        (sequence, rng.randbelow(1000 * spread + 1))
        for sequence, acknowledged, closes in rows
        if not _has_ended(sequence, acknowledged, closes, term)
    ]


def expire(connection: sqlite3.Connection, term: Term) -> int:
    """Drop what has ended; how many bytes it was.

    Where the clock was set back, time counts anew from now: nothing is kept for longer than `keep` from then on.
    """
    connection.execute("UPDATE kept SET acknowledged = ? WHERE acknowledged > ?", (term.now, term.now))
    rows = connection.execute(
        f"SELECT sequence, acknowledged, closes, {_SIZE} FROM kept WHERE acknowledged <= ? OR closes <= ?",  # noqa: S608 - likewise
        (term.now - term.keep, term.now - _SKEW),
    )
    ended = [
        (sequence, length)
        for sequence, acknowledged, closes, length in rows.fetchall()
        if _has_ended(sequence, acknowledged, closes, term)
    ]
    return _drop(connection, ended)


def make_room(connection: sqlite3.Connection, excess: int) -> int:
    """Drop the oldest entries, so many bytes of them at least, and count whose reports they hold; how many it were."""
    oldest, gone = list[tuple[int, int]](), 0
    for sequence, length in connection.execute(f"SELECT sequence, {_SIZE} FROM kept ORDER BY sequence"):  # noqa: S608 - likewise
        if gone >= excess:
            break
        oldest.append((sequence, length))
        gone += length
    connection.executemany(
        "INSERT INTO dropped SELECT device, count(*) FROM charge WHERE sequence = ? GROUP BY device "
        "ON CONFLICT (device) DO UPDATE SET reports = reports + excluded.reports",
        ((sequence,) for sequence, _ in oldest),
    )
    return _drop(connection, oldest)


def kept(connection: sqlite3.Connection, device: str) -> int:
    """How many reports of a device are kept."""
    select = "SELECT count(*) FROM charge WHERE device = ? AND sequence IN (SELECT sequence FROM kept)"
    (reports,) = connection.execute(select, (device,)).fetchone()
    return int(reports)


def dropped(connection: sqlite3.Connection, device: str) -> int:
    """How many reports of a device were dropped for want of room, before they had ended."""
    select = "SELECT reports FROM dropped WHERE device = ? AND typeof(reports) = 'integer'"
    row = connection.execute(select, (device,)).fetchone()
    return 0 if row is None else int(row[0])


def mend(connection: sqlite3.Connection) -> None:
    """Drop rows that cannot have been written here."""
    connection.execute(
        "DELETE FROM kept WHERE typeof(topic) <> 'text' OR typeof(payload) <> 'blob' OR typeof(place) <> 'text' "
        "OR typeof(acknowledged) <> 'integer' OR typeof(closes) NOT IN ('integer', 'null')"
    )
    connection.execute("DELETE FROM dropped WHERE typeof(device) <> 'text' OR typeof(reports) <> 'integer'")


def _has_ended(sequence: int, acknowledged: int, closes: int | None, term: Term) -> bool:
    if not term.keep:
        return True
    if sequence in term.scheduled:
        return closes is not None and closes + term.scheduled[sequence] <= term.now
    return acknowledged + term.keep <= term.now or (closes is not None and closes + _SKEW <= term.now)


def _drop(connection: sqlite3.Connection, entries: Iterable[tuple[int, int]]) -> int:
    gone = 0
    for sequence, length in entries:
        connection.execute("DELETE FROM kept WHERE sequence = ?", (sequence,))
        gone += length
    return gone
