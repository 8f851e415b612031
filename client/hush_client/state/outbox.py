"""The outbox: reports that the broker has not acknowledged; those retained after it; recalls. On an open transaction.

A payload is written once and never changed: what is sent again is the same bytes, which count once. A broker may lose
what it has acknowledged. So a payload moves from `outbox` to `kept` in the write that would have deleted it, and is
sent once more when the aggregator asks (`hush_common.recall`). A recall is written once all its entries are
acknowledged, not at each of them: flash wears out. If something else is written before, or the client is closed, what
is still to be sent is written, too. No spending depends on the last four tables: a damaged row there is deleted, and
blocks no ledger.
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

_NEAR = 4
"""Reading this many entries for one that is wanted costs less than one more statement."""
_LATE = LAST_COUNTED // timedelta(milliseconds=1)
_SELECT = "SELECT sequence, topic, payload, not_before, delay, closes FROM outbox"
_SKEW = CLOCK_SKEW // timedelta(milliseconds=1)
_SIZE = "length(payload) + length(topic) + length(place)"
_DIGEST = f"substr(payload, {DIGEST.start + 1}, {DIGEST.stop - DIGEST.start})"
"""The bytes of the digest in a frame."""
_REMEMBERED = 1000 * (int(KEPT_FOR.total_seconds()) + 2 * LONGEST_OVER)
"""Milliseconds; no recall is open for this long."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored payload and its topic.

    Args:
        sequence: grows with time.
        not_before: when it may be sent, in milliseconds since 1970 by the clock of the device.
        delay: how long it was to be held back when it was stored, in milliseconds; limits every wait.
        closes: when its task closes, in milliseconds since 1970; None where it does not.
    """

    sequence: int
    topic: str
    payload: bytes
    not_before: int = 0
    delay: int = 0
    closes: int | None = None


def next_sequence(connection: sqlite3.Connection) -> int:
    """Return the sequence number of the payload that is stored next in this transaction; the following ones follow."""
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
    """Where the clock was set back, restart every delay: no entry waits longer than its own delay from `now`."""
    connection.execute("UPDATE outbox SET not_before = ? + delay WHERE not_before > ? + delay", (now, now))


def delete(connection: sqlite3.Connection, sequences: Iterable[int]) -> None:
    connection.executemany("DELETE FROM outbox WHERE sequence = ?", ((sequence,) for sequence in sequences))


def find(connection: sqlite3.Connection, device: str, task: str, round_: int) -> int | None:
    """Return the entry that carries the report of a device for one round; None once the broker has that."""
    select = "SELECT sequence FROM charge JOIN outbox USING (sequence) WHERE device = ? AND task = ? AND round = ?"
    row = connection.execute(select, (device, task, round_)).fetchone()
    return None if row is None else int(row[0])


def is_late(entry: Entry, now: int) -> bool:
    """Whether no aggregator counts an entry any more, at `now` in milliseconds since 1970."""
    return entry.closes is not None and entry.closes + _LATE <= now


def count(connection: sqlite3.Connection) -> int:
    """Return how many payloads wait."""
    return _one(connection, "SELECT count(*) FROM outbox")


def count_besides(connection: sqlite3.Connection, sequences: Iterable[int]) -> tuple[int, int]:
    """Return how many payloads wait, and how many without these entries, of which some may be gone."""
    left = count(connection)
    return left, left - sum(_one(connection, "SELECT count(*) FROM outbox WHERE sequence = ?", n) for n in sequences)


def count_in_time(connection: sqlite3.Connection, now: int) -> int:
    """Return how many payloads wait that may still be counted; slow, so call it only if `count` is too large.

    Args:
        connection: inside a transaction.
        now: milliseconds since 1970.
    """
    return _one(connection, "SELECT count(*) FROM outbox WHERE closes IS NULL OR closes > ?", now - _LATE)


@dataclass(frozen=True, slots=True)
class RetentionTerm:
    """Until when entries are kept.

    Args:
        now: milliseconds since 1970, by the clock of the device.
        keep: milliseconds after an acknowledgement, at most; 0 keeps nothing.
        scheduled: the recalled entries, which stay until they are sent, with the milliseconds after the close of their
            task at which they expire all the same.
    """

    now: int
    keep: int
    scheduled: Mapping[int, int] = field(default_factory=dict)


def retain(connection: sqlite3.Connection, sequences: Iterable[int], place: str, now: int) -> int:
    """Move acknowledged entries from the outbox to the kept ones; return their bytes.

    Args:
        connection: inside a transaction.
        sequences: of the outbox; those that are gone are left out.
        place: broker and sender; the entry may be sent again only there.
        now: milliseconds since 1970.
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
    """Return the entries that a recall asks for, and after how many milliseconds to send each.

    A recall asks for the frames that have the first 16 bytes of its digest. The delays are uniform over `spread`
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
    """Delete expired entries; return their bytes.

    Where the clock was set back, time counts anew from now: nothing is kept for longer than `keep` from then on.
    """
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
    """Return how many reports of a device are kept."""
    select = "SELECT count(*) FROM charge WHERE device = ? AND sequence IN (SELECT sequence FROM kept)"
    return _one(connection, select, device)


def count_dropped(connection: sqlite3.Connection, device: str) -> int:
    """Return how many reports of a device were deleted for want of room, before they expired."""
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
    """A recall that is or was applied.

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
class RecallProgress:
    """What is to be written about a recall.

    Args:
        row: the recall.
        planned: all entries that are still to be acknowledged, and when each is due, in milliseconds since 1970; None
            where they are written already.
        done: entries that were acknowledged, or are gone, since it was written.
        resent: how often entries were handed to the network since.
    """

    row: AppliedRecall
    planned: Mapping[int, int] | None = None
    done: Sequence[int] = ()
    resent: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class SavedRecalls:
    """What earlier runs have left.

    Args:
        size: bytes of all kept entries.
        known: topics and digests of what is kept for the place.
        rows: the recalls of the place, the oldest first, with what is due under each.
        elsewhere: how many entries are kept for other places.
    """

    size: int
    known: set[tuple[str, bytes]]
    rows: list[tuple[AppliedRecall, dict[int, int]]]
    elsewhere: int = 0


def recall_grace(over: int) -> int:
    """Return the milliseconds after the close of a task at which a recall over `over` seconds (clamped) ends."""
    return grace_of(over) // timedelta(milliseconds=1)


def resume_recalls(connection: sqlite3.Connection, place: str, now: int, keep: int) -> SavedRecalls:
    """Delete what is damaged or has expired, and return what is left.

    Args:
        connection: inside a transaction.
        place: broker and sender.
        now: milliseconds since 1970.
        keep: milliseconds for which entries are kept.
    """
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
    """Retain or delete acknowledged entries, and write what was sent again and the progress of recalls.

    Args:
        connection: inside a transaction.
        acknowledged: entries of the outbox.
        resent: how often entries were handed to the network again.
        recalls: their progress.
        place: broker and sender.
        now: milliseconds since 1970.
        room: how many more bytes may be kept, below 0 where it is too much already; None keeps nothing.

    Returns:
        By how many bytes the kept entries grew; below 0 where more was dropped than came in.
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
