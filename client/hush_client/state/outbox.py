"""The outbox: reports that the broker has not acknowledged; those retained after it; recalls. On an open transaction.

A payload is written once and never changed: a resend has the same bytes, which count once. A broker may lose a message
after its acknowledgement. So a payload moves from `outbox` to `kept` in the write that would delete it, and is sent
again when the aggregator recalls it (`hush_common.recall`). The progress of a recall is written once all its entries
are acknowledged, not at each of them, because flash wears out; or earlier, with another write or when the client is
closed. No spending depends on the last four tables: a damaged row there is deleted, and blocks no ledger.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from hush_client.state import ledger
from hush_common.recall import KEPT_FOR, LAST_COUNTED, LONGEST_OVER, RECALL_ID_BYTES, SHORTEST_OVER, grace_of
from hush_common.rng import SystemRng
from hush_common.task import CLOCK_SKEW
from hush_common.wire import DIGEST

# AUTOINCREMENT: a number is never used twice, so that a late acknowledgement cannot delete another report.
SCHEMA = """
CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, payload BLOB NOT NULL,
    not_before INTEGER NOT NULL DEFAULT 0, delay INTEGER NOT NULL DEFAULT 0, closes INTEGER
);
CREATE TABLE kept (
    sequence INTEGER PRIMARY KEY, topic TEXT NOT NULL, payload BLOB NOT NULL, place TEXT NOT NULL,
    acknowledged INTEGER NOT NULL, closes INTEGER
);
CREATE TABLE dropped (device TEXT PRIMARY KEY, reports INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE recall (
    place TEXT, task TEXT, id BLOB, began INTEGER NOT NULL, over INTEGER NOT NULL, open INTEGER NOT NULL,
    PRIMARY KEY (place, task, id)
) WITHOUT ROWID;
CREATE TABLE planned (sequence INTEGER PRIMARY KEY, id BLOB NOT NULL, due INTEGER NOT NULL);
"""

_NEAR = 4  # reading this many entries for one wanted entry costs less than another statement
_LATE = LAST_COUNTED // timedelta(milliseconds=1)
_SELECT = "SELECT sequence, topic, payload, not_before, delay, closes FROM outbox"
_SKEW = CLOCK_SKEW // timedelta(milliseconds=1)
_SIZE = "length(payload) + length(topic) + length(place)"
_DIGEST = f"substr(payload, {DIGEST.start + 1}, {DIGEST.stop - DIGEST.start})"  # the bytes of the digest in a frame
_REMEMBERED = 1000 * (int(KEPT_FOR.total_seconds()) + 2 * LONGEST_OVER)  # milliseconds; no recall is open for this long


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored payload and its topic. All times are in milliseconds since 1970, by the clock of the device."""

    sequence: int  # grows with time
    topic: str
    payload: bytes
    not_before: int = 0  # when it may be sent
    delay: int = 0  # in milliseconds, from when it was stored; limits every wait
    closes: int | None = None  # when its task closes, if it does


def next_sequence(connection: sqlite3.Connection) -> int:
    """Return the sequence number of the next payload in this transaction; the ones after it are consecutive."""
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
    """Store a payload; return its sequence number. `Entry` describes the other arguments."""
    cursor = connection.execute(
        "INSERT INTO outbox (topic, payload, not_before, delay, closes) VALUES (?, ?, ?, ?, ?)",
        (topic, payload, not_before, delay, closes),
    )
    if cursor.lastrowid is None:  # pragma: no cover - an INSERT that succeeds has one
        raise sqlite3.InternalError("no row id")
    return cursor.lastrowid


def page(connection: sqlite3.Connection, after: int, limit: int) -> list[Entry]:
    """Return at most `limit` entries with a sequence above `after`, in the order in which they were stored."""
    rows = connection.execute(f"{_SELECT} WHERE sequence > ? ORDER BY sequence LIMIT ?", (after, limit))
    return [Entry(*row) for row in rows]


def fetch(connection: sqlite3.Connection, sequences: Iterable[int]) -> list[Entry]:
    """Return the entries with these numbers, in this order, without those that are gone."""
    wanted = list(sequences)
    if wanted and max(wanted) - min(wanted) < _NEAR * len(wanted):  # mostly stored one after the other
        between = connection.execute(f"{_SELECT} WHERE sequence BETWEEN ? AND ?", (min(wanted), max(wanted)))
        rows = {row[0]: row for row in between}
    else:
        found = (connection.execute(f"{_SELECT} WHERE sequence = ?", (sequence,)).fetchone() for sequence in wanted)
        rows = {row[0]: row for row in found if row is not None}
    return [Entry(*rows[sequence]) for sequence in wanted if sequence in rows]


def reschedule(connection: sqlite3.Connection, now: int) -> None:
    """Limit every wait to the entry's own delay from `now`, in case the clock was set back."""
    connection.execute("UPDATE outbox SET not_before = ? + delay WHERE not_before > ? + delay", (now, now))


def delete(connection: sqlite3.Connection, sequences: Iterable[int]) -> None:
    connection.executemany("DELETE FROM outbox WHERE sequence = ?", ((sequence,) for sequence in sequences))


def find(connection: sqlite3.Connection, device: str, task: str, round_: int) -> int | None:
    """Return the entry with the report of a device for one round; None once the broker has it."""
    select = "SELECT sequence FROM charge JOIN outbox USING (sequence) WHERE device = ? AND task = ? AND round = ?"
    row = connection.execute(select, (device, task, round_)).fetchone()
    return None if row is None else int(row[0])


def is_late(entry: Entry, now: int) -> bool:
    """Whether no aggregator counts an entry any more."""
    return entry.closes is not None and entry.closes + _LATE <= now


def count(connection: sqlite3.Connection) -> int:
    """Return the number of payloads that wait."""
    return _one(connection, "SELECT count(*) FROM outbox")


def count_without(connection: sqlite3.Connection, sequences: Iterable[int]) -> tuple[int, int]:
    """Return the number of payloads that wait, with and without these entries, some of which may be gone."""
    left = count(connection)
    return left, left - sum(_one(connection, "SELECT count(*) FROM outbox WHERE sequence = ?", n) for n in sequences)


def count_in_time(connection: sqlite3.Connection, now: int) -> int:
    """Return the number of waiting payloads that may still be counted; slow: call it only if `count` is too large."""
    return _one(connection, "SELECT count(*) FROM outbox WHERE closes IS NULL OR closes > ?", now - _LATE)


@dataclass(frozen=True, slots=True)
class RetentionTerm:
    """How long entries are kept; times are in milliseconds.

    Recalled entries are `scheduled`: they stay until they are sent, and expire this long after the close of their task.
    """

    now: int
    keep: int  # after an acknowledgement, at most; 0 keeps nothing
    scheduled: Mapping[int, int] = field(default_factory=dict)


def retain(connection: sqlite3.Connection, sequences: Iterable[int], place: str, now: int) -> int:
    """Move acknowledged entries, unless they are gone, from the outbox to the kept ones; return their bytes.

    `place` is the broker and the sender; the entry may be sent again only there.
    """
    entries = fetch(connection, sequences)
    connection.executemany(
        "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?)",
        ((one.sequence, one.topic, one.payload, place, now, one.closes) for one in entries),
    )
    delete(connection, (one.sequence for one in entries))
    return sum(len(one.payload) + len(one.topic) + len(place) for one in entries)


def retained_bytes(connection: sqlite3.Connection) -> int:
    """Return the bytes of all kept entries: payloads, topics and places."""
    return _one(connection, f"SELECT coalesce(sum({_SIZE}), 0) FROM kept")  # noqa: S608 - our own text


def fetch_retained(connection: sqlite3.Connection, sequences: Iterable[int]) -> list[Entry]:
    """Return the entries with these numbers, in this order, without those that are gone."""
    select = "SELECT sequence, topic, payload, 0, 0, closes FROM kept WHERE sequence = ?"
    rows = (connection.execute(select, (sequence,)).fetchone() for sequence in sequences)
    return [Entry(*row) for row in rows if row is not None]


def plan_recall(
    connection: sqlite3.Connection, topic: str, place: str, digest: bytes, *, term: RetentionTerm, spread: int
) -> list[tuple[int, int]]:
    """Return the entries of a recall, and after how many milliseconds to send each.

    A recall requests the frames that have the first 16 bytes of its digest. The delays are uniform over `spread`
    seconds, from the operating system's entropy, one draw for each entry: they reveal neither an order nor a start.
    """
    rows = connection.execute(
        f"SELECT sequence, acknowledged, closes FROM kept WHERE topic = ? AND place = ? AND {_DIGEST} = ?",  # noqa: S608 - our own text
        (topic, place, digest),
    )
    rng = SystemRng()
    return [
        (sequence, rng.randbelow(1000 * spread + 1))
        for sequence, acknowledged, closes in rows
        if not _has_ended(sequence, acknowledged, closes, term)
    ]


def expire_retained(connection: sqlite3.Connection, term: RetentionTerm) -> int:
    """Delete expired entries; return their bytes. After the clock was set back nothing is kept longer than `keep`."""
    connection.execute("UPDATE kept SET acknowledged = ? WHERE acknowledged > ?", (term.now, term.now))
    rows = connection.execute(
        f"SELECT sequence, acknowledged, closes, {_SIZE} FROM kept WHERE acknowledged <= ? OR closes <= ?",  # noqa: S608 - our own text
        (term.now - term.keep, term.now - _SKEW),
    )
    ended = [
        (sequence, length)
        for sequence, acknowledged, closes, length in rows.fetchall()
        if _has_ended(sequence, acknowledged, closes, term)
    ]
    return _drop(connection, ended)


def drop_oldest(connection: sqlite3.Connection, excess: int) -> int:
    """Delete the oldest entries, at least `excess` bytes, and count the reports of each device; return their bytes."""
    oldest, gone = list[tuple[int, int]](), 0
    for sequence, length in connection.execute(f"SELECT sequence, {_SIZE} FROM kept ORDER BY sequence"):  # noqa: S608 - our own text
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


def count_retained(connection: sqlite3.Connection, device: str) -> int:
    """Return the number of reports of a device that are kept."""
    select = "SELECT count(*) FROM charge WHERE device = ? AND sequence IN (SELECT sequence FROM kept)"
    return _one(connection, select, device)


def count_dropped(connection: sqlite3.Connection, device: str) -> int:
    """Return the number of reports of a device that were deleted before they expired, because there was no room."""
    select = "SELECT coalesce(sum(reports), 0) FROM dropped WHERE device = ? AND typeof(reports) = 'integer'"
    return _one(connection, select, device)


def _one(connection: sqlite3.Connection, select: str, *parameters: object) -> int:
    (number,) = connection.execute(select, parameters).fetchone()
    return int(number)


def _has_ended(sequence: int, acknowledged: int, closes: int | None, term: RetentionTerm) -> bool:
    if not term.keep:
        return True
    if sequence in term.scheduled:
        return closes is not None and closes + term.scheduled[sequence] <= term.now
    return acknowledged + term.keep <= term.now or (closes is not None and closes + _SKEW <= term.now)


def _drop(connection: sqlite3.Connection, entries: Sequence[tuple[int, int]]) -> int:
    connection.executemany("DELETE FROM kept WHERE sequence = ?", ((sequence,) for sequence, _ in entries))
    return sum(length for _, length in entries)


@dataclass(frozen=True, slots=True)
class AppliedRecall:
    """A recall that is or was applied."""

    task: str
    id: bytes
    began: int  # when, in milliseconds since 1970
    over: int  # seconds over which its entries are spread, clamped
    open: bool  # whether some of them are still to be acknowledged


@dataclass(frozen=True, slots=True)
class RecallProgress:
    """The progress of a recall since it was last written; `planned` is None if that is already written."""

    row: AppliedRecall
    planned: Mapping[int, int] | None = None  # entries still to be acknowledged, and when due, in ms since 1970
    done: Sequence[int] = ()  # entries that were acknowledged, or are gone
    resent: Counter[int] = field(default_factory=Counter)  # how often entries were handed to the network


@dataclass(frozen=True, slots=True)
class SavedRecalls:
    """What earlier runs have kept, for one place."""

    size: int  # bytes of all kept entries
    known: set[tuple[str, bytes]]  # topics and digests of the entries
    rows: list[tuple[AppliedRecall, dict[int, int]]]  # the recalls, the oldest first, with what is due under each
    elsewhere: int = 0  # number of entries for other places


def recall_grace(over: int) -> int:
    """Return the milliseconds after the close of a task at which a recall over `over` seconds (clamped) ends."""
    return grace_of(over) // timedelta(milliseconds=1)


def resume_recalls(connection: sqlite3.Connection, place: str, now: int, keep: int) -> SavedRecalls:
    """Delete damaged and expired entries, and return the rest. `now` and `keep` are in milliseconds."""
    mend(connection)
    connection.execute("DELETE FROM recall WHERE abs(? - began) > ?", (now, _REMEMBERED))
    scheduled = {sequence: recall_grace(row.over) for row, due in load_recalls(connection, place) for sequence in due}
    expire_retained(connection, RetentionTerm(now, keep, scheduled))
    elsewhere = _one(connection, "SELECT count(*) FROM kept WHERE place <> ?", place)
    topics = connection.execute(f"SELECT DISTINCT topic, {_DIGEST} FROM kept WHERE place = ?", (place,))  # noqa: S608 - our own text
    return SavedRecalls(retained_bytes(connection), set(topics), load_recalls(connection, place), elsewhere)


def load_recalls(connection: sqlite3.Connection, place: str) -> list[tuple[AppliedRecall, dict[int, int]]]:
    """Return the recalls of a place, and when each kept entry is due under them; the oldest first."""
    select = "SELECT task, id, began, over, open FROM recall WHERE place = ? ORDER BY began, task, id"
    due = "SELECT sequence, due FROM planned JOIN kept USING (sequence) WHERE id = ?"
    found = connection.execute(select, (place,)).fetchall()
    rows = [AppliedRecall(task, name, began, over, bool(still)) for task, name, began, over, still in found]
    return [(row, dict(connection.execute(due, (row.id,)).fetchall()) if row.open else {}) for row in rows]


def save_recalls(connection: sqlite3.Connection, place: str, recalls: Iterable[RecallProgress]) -> None:
    for each in recalls:
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
    """Delete damaged rows of the tables on which no spending depends."""
    connection.execute(
        "DELETE FROM kept WHERE typeof(topic) <> 'text' OR typeof(payload) <> 'blob' OR typeof(place) <> 'text' "
        "OR typeof(acknowledged) <> 'integer' OR typeof(closes) NOT IN ('integer', 'null')"
    )
    connection.execute("DELETE FROM dropped WHERE typeof(device) <> 'text' OR typeof(reports) <> 'integer'")
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


def record_acks(
    connection: sqlite3.Connection,
    *,
    acknowledged: Iterable[int],
    resent: Counter[int],
    recalls: Iterable[RecallProgress],
    place: str,
    now: int,
    room: int | None,
) -> int:
    """Retain or delete acknowledged entries, and write resends and the progress of recalls.

    `room` is how many more bytes may be kept, below 0 if there are too many already; None keeps nothing. Return by how
    many bytes the kept entries grew, below 0 if more was dropped than added.
    """
    save_recalls(connection, place, recalls)
    ledger.resent(connection, resent)
    if room is None:
        delete(connection, acknowledged)
        return 0
    grown = retain(connection, acknowledged, place, now)
    if grown > room:
        grown -= drop_oldest(connection, grown - room)
    return grown
