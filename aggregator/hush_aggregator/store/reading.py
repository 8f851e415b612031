"""The tables of a store's file, and what is read from them."""

import hashlib
import json
import secrets
import sqlite3
import struct
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from hush_aggregator.store.base import BrokerMemory, Origin, StoredRecall, TaskCount, TaskRow, TaskState
from hush_aggregator.tally import Tally
from hush_common.errors import StoreError
from hush_common.recall import Recall
from hush_common.rng import REPORT_ID_BYTES
from hush_common.task import digest_of
from hush_common.wire import Refusal, Report, report_digest_of

_APPLICATION = 0x68757368  # "hush" in ASCII: tells our file from another program's
_VERSION = 8
"""Of the tables below. Up to 7 a digest had 8 bytes: no release wrote such a store, and none reads one."""
# No time and no sender: who reported when is nobody's business, so it is never written down.
_TABLES = """
CREATE TABLE task (  -- digest: 32 bytes; origin: who gave it; payload: empty once it is forgotten; owner: the store
    -- that publishes its estimate, '' if that is not known; term: rises when it is taken over; taken_from: by this
    -- store, from that one
    id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, payload BLOB NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('file', 'command', 'http', 'broker')),
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'withdrawn', 'closed')),
    owner TEXT NOT NULL DEFAULT '', term INTEGER NOT NULL DEFAULT 0, taken_from TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID, STRICT;
CREATE TABLE numbered (  -- a short name of each digest, so that a report need not have 32 bytes of it
    number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE
) STRICT;
CREATE TABLE report (  -- task: the number of its digest; body: the integers, 8 bytes each, big-endian
    task INTEGER NOT NULL, round INTEGER NOT NULL, id BLOB NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (task, round, id)
) WITHOUT ROWID, STRICT;
CREATE TABLE tally (  -- moments: a JSON list of integers, which outgrow 64 bits
    digest BLOB NOT NULL, round INTEGER NOT NULL, n INTEGER NOT NULL, moments TEXT NOT NULL, seal BLOB NOT NULL,
    PRIMARY KEY (digest, round)
) WITHOUT ROWID, STRICT;
CREATE TABLE refusal (
    task TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (task, reason)
) WITHOUT ROWID, STRICT;
CREATE TABLE identity (  -- one row
    -- id: of the session on the broker; secret, or anyone could take what waits there
    -- newest: the newest day (UTC) on which the store was in use, '' if unknown; noted whether reports come or not
    -- store: the name that estimates bear
    -- restored: the file was put back from a backup, and the aggregator has not reacted yet
    -- charged: the token of the last batch whose senders were charged (`quotas`); random, names nobody
    -- version: how many transactions have written; it says nothing of a time
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL,
    newest TEXT NOT NULL DEFAULT '', store TEXT NOT NULL, restored INTEGER NOT NULL DEFAULT 0,
    charged BLOB NOT NULL DEFAULT x'', version INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE closed (  -- nothing counts there any more, whatever the clock says; round -1 is the whole task
    digest BLOB NOT NULL, round INTEGER NOT NULL, PRIMARY KEY (digest, round)
) WITHOUT ROWID, STRICT;
CREATE TABLE recall (  -- the last of each task; made: seconds since 1970; ended: to be cleared on the broker
    task TEXT PRIMARY KEY, digest BLOB NOT NULL, id BLOB NOT NULL, over INTEGER NOT NULL, made INTEGER NOT NULL,
    ended INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE broker (  -- one row, see `BrokerMemory`
    one INTEGER PRIMARY KEY CHECK (one = 1), session INTEGER NOT NULL, started INTEGER, alive INTEGER, dropped INTEGER
) STRICT;
INSERT INTO broker VALUES (1, 0, NULL, NULL, NULL);
INSERT INTO identity (one, id, store) VALUES (1, new_identity(), new_identity());
"""


def seal(digest: bytes, round_: int, n: int, moments: str) -> bytes:
    """What a row of the table of tallies is checked by: a sum that is damaged would look like any other."""
    return hashlib.sha256(b"%b %d %d %b" % (digest, round_, n, moments.encode())).digest()[:8]


def damaged(what: str) -> sqlite3.DatabaseError:
    """What to raise, as SQLite does where it finds damage itself."""
    error = sqlite3.DatabaseError(f"{what} is not what was written")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file, wholly or not at all, and check those of any other.

    Raises:
        StoreError: the file is another program's, or of another version.
        sqlite3.Error: it cannot be read or written.
    """
    is_new = _is_new(path, connection)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -32768")  # KiB: memory stays the same however large the file grows
    connection.create_function("seal", 4, seal, deterministic=True)
    if not is_new:
        _check_tables(connection)
        return
    connection.create_function("new_identity", 0, partial(secrets.token_hex, 16))
    connection.executescript(
        f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION}; COMMIT;"
    )


def check(path: Path, connection: sqlite3.Connection) -> None:
    """See that the tables are there as this version makes them; nothing is written.

    Raises:
        StoreError: the file is empty, another program's, or of another version.
        sqlite3.Error: it cannot be read.
    """
    if _is_new(path, connection):
        raise StoreError(f"{path}: is empty; name the store of an aggregator")
    connection.create_function("seal", 4, seal, deterministic=True)
    _check_tables(connection)


def _is_new(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether the file is empty; if not, it is a store of this version."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not (objects or application or version):
        return True
    if application != _APPLICATION:
        raise StoreError(f"{path}: is a database of another program; name another file")
    if version > _VERSION:
        raise StoreError(f"{path}: was written by a later hush (schema {version}); update hush")
    if version < _VERSION:
        raise StoreError(
            f"{path}: was written by an earlier hush that was never released (schema {version}), and this one reads "
            f"{_VERSION}; name another file: this hush makes a new store there"
        )
    return False


def _check_tables(connection: sqlite3.Connection) -> None:
    """Whatever an estimate is made of is as it was written; reports are many, and each has been counted."""
    for table in ("task", "numbered", "tally", "refusal", "identity", "closed", "recall", "broker"):
        (verdict,) = connection.execute(f"PRAGMA quick_check({table})").fetchone()
        if verdict != "ok":
            raise damaged(f"the table {table}")
    if connection.execute("SELECT 1 FROM tally WHERE seal IS NOT seal(digest, round, n, moments)").fetchone():
        raise damaged("a tally")


_REASONS = frozenset(reason.value for reason in Refusal)
# With one `max`, SQLite takes a column that is not aggregated from the row of the maximum. `length` of a payload
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


def _state(text: str) -> TaskState:
    try:
        return TaskState(text)
    except ValueError:
        raise damaged("a task") from None


def reasons(counts: Mapping[str, int]) -> dict[Refusal, int]:
    """Counts by reason, as a store writes them."""
    if not counts.keys() <= _REASONS:
        raise damaged("a refusal reason")
    return {Refusal(reason): count for reason, count in counts.items()}


def read_recalls(run: sqlite3.Connection) -> list[StoredRecall]:
    """The last recall of each task, in the order of their ids."""
    rows = run.execute("SELECT task, digest, id, over, made, ended FROM recall ORDER BY task").fetchall()
    try:
        return [StoredRecall(Recall(*row[:4]), row[4], ended=bool(row[5])) for row in rows]
    except ValueError:
        raise damaged("a recall") from None


_KEEP = """
INSERT OR REPLACE INTO recall SELECT ?, ?, ?, ?, ?, 0
WHERE NOT EXISTS (SELECT 1 FROM closed WHERE digest = ? AND round = -1)
"""
_END = "UPDATE recall SET ended = 1 WHERE task = ? AND id = ?"


def write_recalls(run: sqlite3.Connection, rows: Iterable[StoredRecall]) -> list[StoredRecall]:
    """Keep these, each in place of an earlier one of its task; return those that were kept.

    They were made from an older state of the store: none is kept of a task that was closed since then, and one that
    has ended ends no later one.
    """
    return [row for row in rows if _written(run, row)]


def _written(run: sqlite3.Connection, row: StoredRecall) -> bool:
    recall = row.recall
    if row.ended:
        return run.execute(_END, (recall.task, recall.id)).rowcount > 0
    values = (recall.task, recall.digest, recall.id, recall.over, row.made, recall.digest)
    return run.execute(_KEEP, values).rowcount > 0


def end_recalls(run: sqlite3.Connection, digest: bytes) -> None:
    """The recall of a task has ended; it is still to be cleared on the broker."""
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


WHOLE_TASK = -1
"""The round of a mark that closes a whole task."""

_AT_ONCE = 400  # rounds: a statement has at most 999 parameters where SQLite is old
_PORTION = 4096  # reports read at a time: a writer of the same process waits no longer
_REPORTS = """
SELECT id, body FROM report
WHERE task = (SELECT number FROM numbered WHERE digest = ?) AND round = ? AND id > ? ORDER BY id LIMIT ?
"""
_TASKS = "SELECT id, digest, payload, origin, state, owner, term, taken_from FROM task"
_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some space and start again: the broker keeps what is not counted yet",
    sqlite3.SQLITE_NOTADB: "name another file",
    sqlite3.SQLITE_BUSY: "another program writes to it; stop that program",
    sqlite3.SQLITE_READONLY: "make it writable",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup",
}


class SqliteReader:
    """A `StoreReader` of the file `path`, whether an aggregator counts into it meanwhile or not.

    Raises:
        StoreError: the file cannot be opened, is another program's, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._connection = self._opened()

    def _opened(self) -> sqlite3.Connection:
        if not self._path.is_file():
            raise StoreError(f"{self._path}: there is no such file; name the store of an aggregator")
        with translated(self._path):
            connection = sqlite3.connect(
                f"{self._path.resolve().as_uri()}?mode=ro",
                uri=True,
                timeout=10,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                check(self._path, connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, once nobody uses it; calling it again does nothing."""
        with self._turn:  # SQLite crashes where a thread still reads
            self._connection.close()

    @property
    def public_identity(self) -> str:
        """A random name of this store, made once: 32 hexadecimal digits, which its estimates bear."""
        with self._reading() as run:
            return str(run.execute("SELECT store FROM identity").fetchone()[0])

    @property
    def restored(self) -> bool:
        """Whether the file was put back from a backup, and the aggregator has not reacted yet."""
        with self._reading() as run:
            return bool(run.execute("SELECT restored FROM identity").fetchone()[0])

    def task(self, task_id: str) -> bytes | None:
        with self._reading() as run:
            row = run.execute("SELECT payload, digest FROM task WHERE id = ? AND payload <> x''", (task_id,)).fetchone()
            return None if row is None else _whole_task(*row)

    def tasks(self) -> list[bytes]:
        with self._reading() as run:
            rows = run.execute("SELECT payload, digest FROM task WHERE payload <> x'' ORDER BY id").fetchall()
            return [_whole_task(*row) for row in rows]

    def task_rows(self) -> list[TaskRow]:
        with self._reading() as run:
            return [_task_row(row) for row in run.execute(f"{_TASKS} ORDER BY id").fetchall()]

    def task_row(self, task_id: str) -> TaskRow | None:
        with self._reading() as run:
            row = run.execute(f"{_TASKS} WHERE id = ?", (task_id,)).fetchone()
            return None if row is None else _task_row(row)

    def changes(self) -> int:
        with self._reading() as run:
            return int(run.execute("PRAGMA data_version").fetchone()[0])

    def version(self) -> int:
        with self._reading() as run:
            return int(run.execute("SELECT version FROM identity").fetchone()[0])

    def counts(self) -> list[TaskCount]:
        with self._reading() as run:
            return read_counts(run)

    def refused(self) -> dict[Refusal, int]:
        with self._reading() as run:
            rows = run.execute("SELECT reason, sum(count) FROM refusal GROUP BY reason").fetchall()
            return reasons(dict(rows))

    def tally(self, digest: bytes, round_: int) -> Tally:
        with self._reading() as run:
            return read_tally(run, digest, round_)

    def latest_round(self, digest: bytes) -> int:
        with self._reading() as run:
            (latest,) = run.execute("SELECT max(round) FROM tally WHERE digest = ?", (digest,)).fetchone()
        return int(latest or 0)

    def refusals(self, task_id: str) -> dict[Refusal, int]:
        with self._reading() as run:
            rows = run.execute("SELECT reason, count FROM refusal WHERE task = ? ORDER BY reason", (task_id,))
            return reasons(dict(rows.fetchall()))

    def reports(self, digest: bytes, round_: int) -> Iterator[Report]:
        last, carried = b"", report_digest_of(digest)
        while True:
            with self._reading() as run:
                rows = run.execute(_REPORTS, (digest, round_, last, _PORTION)).fetchall()
                reports = [Report(carried, round_, report_id, _integers(report_id, body)) for report_id, body in rows]
            yield from reports
            if len(rows) < _PORTION:
                return
            last = rows[-1][0]

    def is_closed(self, digest: bytes, round_: int | None = None) -> bool:
        with self._reading() as run:
            return is_closed(run, digest, WHOLE_TASK if round_ is None else round_)

    def marks(self) -> frozenset[tuple[bytes, int]]:
        with self._reading() as run:
            return frozenset(run.execute("SELECT digest, round FROM closed").fetchall())

    def counted_since(self, digest: bytes, round_: int) -> int:
        with self._reading() as run:
            query = "SELECT coalesce(sum(n), 0) FROM tally WHERE digest = ? AND round >= ?"
            return int(run.execute(query, (digest, round_)).fetchone()[0])

    def recalls(self) -> list[StoredRecall]:
        with self._reading() as run:
            return read_recalls(run)

    def broker(self) -> BrokerMemory:
        with self._reading() as run:
            return read_broker(run)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._turn, translated(self._path):
            yield self._connection


def read_tally(run: sqlite3.Connection, digest: bytes, round_: int) -> Tally:
    """The tally of a round, as it was sealed."""
    query = "SELECT n, moments, seal FROM tally WHERE digest = ? AND round = ?"
    row = run.execute(query, (digest, round_)).fetchone()
    return Tally() if row is None else _checked(digest, round_, *row)


def read_tallies(
    run: sqlite3.Connection,
    rounds: Sequence[tuple[bytes, int]],
    known: Mapping[tuple[bytes, int], tuple[bytes, Tally]] = MappingProxyType({}),
) -> dict[tuple[bytes, int], Tally]:
    """The tallies of these rounds (digest, round), as they were sealed; none of a round without a report.

    Args:
        run: the connection.
        rounds: which.
        known: seals and tallies read before: one whose seal is still the same is not parsed again.
    """
    found = {}
    for digest, round_, n, moments, sealed in _of_rounds(run, "tally", "digest, round, n, moments, seal", rounds):
        seal_before, tally = known.get((digest, round_), (b"", Tally()))
        found[digest, round_] = tally if sealed == seal_before else _checked(digest, round_, n, moments, sealed)
    return found


def _checked(digest: bytes, round_: int, n: int, moments: str, sealed: bytes) -> Tally:
    if sealed != seal(digest, round_, n, moments):
        raise damaged("a tally")
    return Tally(n, tuple(json.loads(moments)))


def is_closed(run: sqlite3.Connection, digest: bytes, round_: int) -> bool:
    """Whether a mark closes a round, by itself or with the whole task."""
    query = "SELECT 1 FROM closed WHERE digest = ? AND round IN (?, ?)"
    return run.execute(query, (digest, round_, WHOLE_TASK)).fetchone() is not None


def closed_rounds(run: sqlite3.Connection, rounds: Sequence[tuple[bytes, int]]) -> set[tuple[bytes, int]]:
    """Which of these rounds (digest, round) a mark closes, by itself or with the whole task."""
    marked = {*rounds, *((digest, WHOLE_TASK) for digest, _ in rounds)}
    marks = {*_of_rounds(run, "closed", "digest, round", sorted(marked))}
    return {(digest, round_) for digest, round_ in rounds if {(digest, round_), (digest, WHOLE_TASK)} & marks}


def _of_rounds(run: sqlite3.Connection, table: str, columns: str, rounds: Sequence[tuple[bytes, int]]) -> Iterator[Any]:
    """The rows of a table with a key (digest, round) that are of these rounds, some hundred at a time."""
    for start in range(0, len(rounds), _AT_ONCE):
        some = rounds[start : start + _AT_ONCE]
        values = ", ".join(["(?, ?)"] * len(some))
        # Joined, for with IN (VALUES …) SQLite reads the whole table.
        query = f"WITH wanted (d, r) AS (VALUES {values}) SELECT {columns} FROM wanted CROSS JOIN {table} ON "  # noqa: S608 - our names
        yield from run.execute(f"{query} digest = d AND round = r", [part for key in some for part in key])


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite complains about into a `StoreError` with a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        remedy = _REMEDIES.get(
            getattr(error, "sqlite_errorcode", 0) & 0xFF, "make sure that it can be read and written"
        )
        raise StoreError(f"{path}: {error}; {remedy}") from error
    except UnicodeDecodeError as error:  # SQLite believes that a text is one
        raise StoreError(f"{path}: a text in it is not valid UTF-8; {_REMEDIES[sqlite3.SQLITE_CORRUPT]}") from error


def _whole_task(payload: bytes, digest: bytes) -> bytes:
    if digest_of(payload) != digest:
        raise damaged("a task")
    return payload


def _task_row(row: tuple[str, bytes, bytes, str, str, str, int, str]) -> TaskRow:
    task_id, digest, payload, origin, state, owner, term, taken_from = row
    if payload:
        _whole_task(payload, digest)
    try:
        return TaskRow(task_id, digest, payload, Origin(origin), TaskState(state), owner, term, taken_from)
    except ValueError:
        raise damaged("a task") from None


def _integers(report_id: bytes, body: bytes) -> tuple[int, ...]:
    if len(report_id) != REPORT_ID_BYTES or not body or len(body) % 8:
        raise damaged("a report")
    return struct.unpack(f">{len(body) // 8}q", body)
