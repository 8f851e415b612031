"""The tables of a store's file, and what is read from them."""

import hashlib
import json
import secrets
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.tally import Tally
from hush_aggregator.store.base import (
    WHOLE_TASK,
    BrokerMemory,
    DamagedError,
    Dropped,
    Origin,
    PublishedStep,
    Release,
    Step,
    StoredRecall,
    StoredRound,
    StoredRows,
    TaskCount,
    TaskRow,
    TaskState,
)
from hush_aggregator.store.lsm import Section, ids_of, last_key, merge, read_runs, series_number
from hush_aggregator.store.steps import checked_steps, put_step, step_from, step_values
from hush_common.errors import StoreError
from hush_common.recall import Recall
from hush_common.task import decode_task, digest_of
from hush_common.wire import Refusal, Report, report_digest_of

_APPLICATION = 0x68757368  # "hush" in ASCII: tells our file from another program's
_VERSION = 10
"""Of the tables below. Up to 7 a digest had 8 bytes: no release wrote such a store, and none reads one."""
# No sender, and no time of a report: who reported when is nobody's business, so it is never written down.
_TABLES = """
CREATE TABLE task (  -- digest: 32 bytes; origin: who gave it; payload: empty once it is forgotten; owner: the store
    -- that publishes its estimate, '' if that is not known; term: rises when it is taken over; taken_from: by this
    -- store, from that one; release_from: reports, release_every: seconds, 0 without
    id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, payload BLOB NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('file', 'command', 'http', 'broker')),
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'withdrawn', 'closed')),
    owner TEXT NOT NULL DEFAULT '', term INTEGER NOT NULL DEFAULT 0, taken_from TEXT NOT NULL DEFAULT '',
    release_from INTEGER NOT NULL, release_every INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE series (  -- the reports of a round; width: how many integers each of their bodies has; dropped: by
    -- policy, 1 while that goes on and 2 afterwards
    ordinal INTEGER PRIMARY KEY, digest BLOB NOT NULL, round INTEGER NOT NULL, width INTEGER NOT NULL,
    dropped INTEGER NOT NULL DEFAULT 0, UNIQUE (digest, round)
) STRICT;
CREATE TABLE run (  -- see lsm.py; id: never used again; level: -1 is being written, -2 is merged and not deleted yet;
    -- firsts: the first keys of its chunks
    id INTEGER PRIMARY KEY AUTOINCREMENT, level INTEGER NOT NULL, n INTEGER NOT NULL, firsts BLOB NOT NULL,
    filter BLOB NOT NULL
) STRICT;
CREATE TABLE chunk (  -- number: of the run and of the chunk in it; series: their numbers, with a count of reports each
    number INTEGER PRIMARY KEY, series BLOB NOT NULL, ids BLOB NOT NULL, ids_check INTEGER NOT NULL,
    bodies BLOB NOT NULL, bodies_check INTEGER NOT NULL
) STRICT;
CREATE TABLE tally (  -- moments: a JSON list of integers, which outgrow 64 bits
    digest BLOB NOT NULL, round INTEGER NOT NULL, n INTEGER NOT NULL, moments TEXT NOT NULL, seal BLOB NOT NULL,
    PRIMARY KEY (digest, round)
) WITHOUT ROWID, STRICT;
CREATE TABLE released (  -- of tasks with a release policy: their tallies at the last release
    digest BLOB NOT NULL, round INTEGER NOT NULL, n INTEGER NOT NULL, moments TEXT NOT NULL, seal BLOB NOT NULL,
    PRIMARY KEY (digest, round)
) WITHOUT ROWID, STRICT;
CREATE TABLE release (  -- the last release of a task; refused: JSON, counts by reason; closed: JSON, rounds
    digest BLOB PRIMARY KEY, at INTEGER NOT NULL, refused TEXT NOT NULL, closed TEXT NOT NULL
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
    -- salt: of the filters of runs; secret, or anyone could choose ids that make look-ups slow
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL,
    newest TEXT NOT NULL DEFAULT '', store TEXT NOT NULL, restored INTEGER NOT NULL DEFAULT 0,
    charged BLOB NOT NULL DEFAULT x'', version INTEGER NOT NULL DEFAULT 0, salt BLOB NOT NULL
) STRICT;
CREATE TABLE closed (  -- nothing counts there any more, whatever the clock says; round -1 is the whole task; at: when
    -- it was marked, in seconds since 1970
    digest BLOB NOT NULL, round INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (digest, round)
) WITHOUT ROWID, STRICT;
CREATE TABLE recall (  -- the last of each task; made: seconds since 1970; ended: to be cleared on the broker
    task TEXT PRIMARY KEY, digest BLOB NOT NULL, id BLOB NOT NULL, over INTEGER NOT NULL, made INTEGER NOT NULL,
    ended INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE broker (  -- one row, see `BrokerMemory`
    one INTEGER PRIMARY KEY CHECK (one = 1), session INTEGER NOT NULL, started INTEGER, alive INTEGER, dropped INTEGER
) STRICT;
INSERT INTO broker VALUES (1, 0, NULL, NULL, NULL);
INSERT INTO identity (one, id, store, salt) VALUES (1, new_identity(), new_identity(), randomblob(32));
"""
# Added later: a store without it is one that has no steps yet.
_STEPS = """
CREATE TABLE IF NOT EXISTS step (  -- see steps.py; until: the end of an hour or a day, in seconds since 1970; low,
    -- high: of the interval
    digest BLOB NOT NULL, round INTEGER NOT NULL, until INTEGER NOT NULL, n INTEGER NOT NULL,
    mean REAL, low REAL, high REAL, confidence REAL NOT NULL, PRIMARY KEY (digest, round, until)
) WITHOUT ROWID, STRICT;
CREATE INDEX IF NOT EXISTS step_of_hour ON step (until) WHERE until % 86400 <> 0;
"""


def seal(digest: bytes, round_: int, n: int, moments: str) -> bytes:
    """What a row of the table of tallies is checked by: a sum that is damaged would look like any other."""
    return hashlib.sha256(b"%b %d %d %b" % (digest, round_, n, moments.encode())).digest()[:8]


def prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file, wholly or not at all, and check those of any other.

    Raises:
        StoreError: the file is another program's, or of another version.
        sqlite3.Error: it cannot be read or written.
    """
    is_new = _is_new(path, connection)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "PRAGMA wal_autocheckpoint = 4000"
    )  # pages: most of a run is merged before it is copied once more
    connection.execute("PRAGMA cache_size = -32768")  # KiB: memory stays the same however large the file grows
    connection.create_function("seal", 4, seal, deterministic=True)
    if not is_new:
        _check_tables(connection)
        if not has_steps(connection):
            connection.executescript(f"BEGIN IMMEDIATE; {_STEPS} COMMIT;")
        return
    connection.create_function("new_identity", 0, partial(secrets.token_hex, 16))
    connection.executescript(
        f"BEGIN IMMEDIATE; {_TABLES} {_STEPS} PRAGMA application_id = {_APPLICATION}; "
        f"PRAGMA user_version = {_VERSION}; COMMIT;"
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


_SMALL_TABLES = ("task", "series", "tally", "released", "release", "refusal", "identity", "closed", "recall", "broker")


def _check_tables(connection: sqlite3.Connection) -> None:
    """Whatever an estimate is made of is as it was written; reports are many, and each has been counted."""
    for table in (*_SMALL_TABLES, *(("step",) if has_steps(connection) else ())):
        (verdict,) = connection.execute(f"PRAGMA quick_check({table})").fetchone()
        if verdict != "ok":
            raise DamagedError(f"the table {table}")
    for table in ("tally", "released"):
        query = f"SELECT 1 FROM {table} WHERE seal IS NOT seal(digest, round, n, moments)"  # noqa: S608 - our names
        if connection.execute(query).fetchone():
            raise DamagedError("a tally")


def has_steps(run: sqlite3.Connection) -> bool:
    """Whether there is a table of steps."""
    return run.execute("SELECT 1 FROM sqlite_schema WHERE name = 'step'").fetchone() is not None


_STEP_COLUMNS = "until, n, mean, low, high, confidence"


def read_steps(run: sqlite3.Connection, digest: bytes, round_: int) -> list[Step]:
    """The steps of a round, in the order of time."""
    if not has_steps(run):
        return []
    query = f"SELECT {_STEP_COLUMNS} FROM step WHERE digest = ? AND round = ? ORDER BY until"  # noqa: S608 - our names
    return checked_steps([step_from(row) for row in run.execute(query, (digest, round_)).fetchall()])


def _read_all_steps(run: sqlite3.Connection) -> dict[tuple[bytes, int], list[Step]]:
    rounds = run.execute("SELECT DISTINCT digest, round FROM step").fetchall() if has_steps(run) else []
    return {(digest, round_): read_steps(run, digest, round_) for digest, round_ in rounds}


def write_step(run: sqlite3.Connection, digest: bytes, round_: int, step: Step) -> None:
    """Add a step to those of a round."""
    run.execute("INSERT INTO step VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (digest, round_, *step_values(step)))


def write_published(run: sqlite3.Connection, new: PublishedStep) -> bool:
    """See `put_step`; none of a task that is forgotten meanwhile."""
    key = new.digest, new.round
    if run.execute("SELECT 1 FROM task WHERE digest = ? AND payload <> x''", key[:1]).fetchone() is None:
        return False

    def last() -> Step | None:
        query = f"SELECT {_STEP_COLUMNS} FROM step WHERE digest = ? AND round = ? ORDER BY until DESC LIMIT 1"  # noqa: S608 - our names
        row = run.execute(query, key).fetchone()
        return None if row is None else step_from(row)

    return put_step(
        new,
        last=last,
        delete_from=lambda at: run.execute(
            "DELETE FROM step WHERE digest = ? AND round = ? AND until >= ?", (*key, at)
        ),
        insert=partial(write_step, run, *key),
    )


_REASONS = frozenset(reason.value for reason in Refusal)
# With one `max`, SQLite takes a column that is not aggregated from the row of the maximum. `length` of a payload
# leaves the payload unread.
_HAS_POLICY = "(task.release_from > 0 OR task.release_every > 0)"
_COUNTS = """
SELECT task.id, task.digest, task.state, counted.latest, counted.n, counted.total,
    (SELECT count(*) FROM closed WHERE closed.digest = task.digest), release.at
FROM task LEFT JOIN (SELECT digest, max(round) AS latest, n, sum(n) AS total FROM {table} GROUP BY digest) AS counted
    ON counted.digest = task.digest
LEFT JOIN release ON release.digest = task.digest
WHERE length(task.payload) > 0 AND {which}
"""


def read_counts(run: sqlite3.Connection) -> list[TaskCount]:
    """What is released of each task that is not forgotten."""
    refused = _read_refusals(run)
    found = []
    for table, which in (("tally", f"NOT {_HAS_POLICY}"), ("released", _HAS_POLICY)):
        rows = run.execute(_COUNTS.format(table=table, which=which)).fetchall()
        for task_id, digest, state, latest, n, total, closed, at in rows:
            counted = int(latest or 0), int(n or 0), int(total or 0), reasons(refused.get(task_id, {}))
            found.append(TaskCount(task_id, digest, *counted, closed, state_of(state), int(at or 0)))
    return sorted(found, key=attrgetter("id"))


def _read_refusals(run: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """Refusals by task and reason; of tasks with a release policy, those at their last release."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    live = f"SELECT task, reason, count FROM refusal WHERE task NOT IN (SELECT id FROM task WHERE {_HAS_POLICY})"  # noqa: S608 - our names
    for task_id, reason, count in run.execute(live):
        found[task_id][reason] = count
    for task_id, refused in run.execute("SELECT id, refused FROM release JOIN task USING (digest)"):
        found[task_id] = json.loads(refused)
    return found


def _read_releases(run: sqlite3.Connection, digest: bytes | None = None) -> dict[bytes, Release]:
    """The last release of each task, or of one."""
    query = "SELECT digest, at, closed, refused FROM release WHERE ? IS NULL OR digest = ?"
    return {
        of: Release(at, frozenset(json.loads(closed)), reasons(json.loads(refused)))
        for of, at, closed, refused in run.execute(query, (digest, digest)).fetchall()
    }


def _table_of(run: sqlite3.Connection, digest: bytes) -> str:
    """Where the tallies of a task are that may be seen."""
    row = run.execute(f"SELECT {_HAS_POLICY} FROM task WHERE digest = ?", (digest,)).fetchone()  # noqa: S608 - our names
    return "released" if row is not None and row[0] else "tally"


def state_of(text: str) -> TaskState:
    try:
        return TaskState(text)
    except ValueError:
        raise DamagedError("a task") from None


def reasons(counts: Mapping[str, int]) -> dict[Refusal, int]:
    """Counts by reason, as a store writes them."""
    if not counts.keys() <= _REASONS:
        raise DamagedError("a refusal reason")
    return {Refusal(reason): count for reason, count in counts.items()}


def read_recalls(run: sqlite3.Connection) -> list[StoredRecall]:
    """The last recall of each task, in the order of their ids."""
    rows = run.execute("SELECT task, digest, id, over, made, ended FROM recall ORDER BY task").fetchall()
    try:
        return [StoredRecall(Recall(*row[:4]), row[4], ended=bool(row[5])) for row in rows]
    except ValueError:
        raise DamagedError("a recall") from None


_POLICY = f"SELECT id, release_from, release_every FROM task WHERE digest = ? AND {_HAS_POLICY}"  # noqa: S608 - our names
_RELEASE = """
INSERT OR REPLACE INTO released SELECT * FROM tally WHERE digest = ? AND n >= ? AND NOT EXISTS (
    SELECT 1 FROM released AS before
    WHERE before.digest = tally.digest AND before.round = tally.round AND before.seal = tally.seal)
"""


def release_task(run: sqlite3.Connection, digest: bytes, at: int) -> list[str]:
    """See `Store.release`: the id of the task if it was released."""
    policy = run.execute(f"{_POLICY} AND payload <> x''", (digest,)).fetchone()
    if policy is None:
        return []
    task_id, least, every = policy
    before = run.execute("SELECT at, closed FROM release WHERE digest = ?", (digest,)).fetchone()
    if every and before is not None and at <= before[0]:
        return []
    marks = run.execute("SELECT round FROM closed WHERE digest = ? ORDER BY round", (digest,)).fetchall()
    closed = json.dumps([round_ for (round_,) in marks])
    changed = run.execute(_RELEASE, (digest, max(least, 1))).rowcount > 0
    if not changed and not every and closed == ("[]" if before is None else before[1]):
        return []
    query = "SELECT reason, count FROM refusal WHERE task = ? AND EXISTS (SELECT 1 FROM released WHERE digest = ?)"
    refused = dict(run.execute(f"{query} ORDER BY reason", (task_id, digest)).fetchall())
    run.execute("INSERT OR REPLACE INTO release VALUES (?, ?, ?, ?)", (digest, at, json.dumps(refused), closed))
    return [task_id]


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


DROPPING, DROPPED = 1, 2
"""Values of the column `dropped` of the table `series`."""

_STORED = """
SELECT digest, round, tally.n, coalesce(series.dropped, 0),
    (SELECT min(at) FROM closed WHERE closed.digest = tally.digest AND closed.round IN (tally.round, -1))
FROM tally LEFT JOIN series USING (digest, round) WHERE ? IS NULL OR digest = ? ORDER BY digest, round
"""
_AT_ONCE = 400  # rounds: a statement has at most 999 parameters where SQLite is old
_PORTION = 4096  # reports read at a time: a writer of the same process waits no longer
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
    def newest_day(self) -> date | None:
        """The newest day (UTC) on which it was in use, as far as was noted."""
        with self._reading() as run:
            (text,) = run.execute("SELECT newest FROM identity").fetchone()
            try:
                return date.fromisoformat(text) if text else None
            except ValueError:
                raise DamagedError("a day") from None

    @property
    def restored(self) -> bool:
        """Whether the file was put back from a backup, and the aggregator has not reacted yet."""
        with self._reading() as run:
            return bool(run.execute("SELECT restored FROM identity").fetchone()[0])

    def task(self, task_id: str) -> bytes | None:
        with self._reading() as run:
            row = run.execute("SELECT payload, digest FROM task WHERE id = ? AND payload <> x''", (task_id,)).fetchone()
            return None if row is None else whole_task(*row)

    def tasks(self) -> list[bytes]:
        with self._reading() as run:
            rows = run.execute("SELECT payload, digest FROM task WHERE payload <> x'' ORDER BY id").fetchall()
            return [whole_task(*row) for row in rows]

    def task_rows(self) -> list[TaskRow]:
        with self._reading() as run:
            return [make_task_row(row) for row in run.execute(f"{_TASKS} ORDER BY id").fetchall()]

    def task_row(self, task_id: str) -> TaskRow | None:
        with self._reading() as run:
            row = run.execute(f"{_TASKS} WHERE id = ?", (task_id,)).fetchone()
            return None if row is None else make_task_row(row)

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
        total = Counter[str]()
        with self._reading() as run:
            for counts in _read_refusals(run).values():
                total.update(counts)
            return reasons(total)

    def tally(self, digest: bytes, round_: int) -> Tally:
        with self._reading() as run:
            return read_tally(run, digest, round_, _table_of(run, digest))

    def latest_round(self, digest: bytes) -> int:
        with self._reading() as run:
            query = f"SELECT max(round) FROM {_table_of(run, digest)} WHERE digest = ?"  # noqa: S608 - our names
            (latest,) = run.execute(query, (digest,)).fetchone()
        return int(latest or 0)

    def refusals(self, task_id: str) -> dict[Refusal, int]:
        with self._reading() as run:
            row = run.execute(f"SELECT digest, {_HAS_POLICY} FROM task WHERE id = ?", (task_id,)).fetchone()  # noqa: S608 - our names
            if row is not None and row[1]:
                released = run.execute("SELECT refused FROM release WHERE digest = ?", (row[0],)).fetchone()
                return {} if released is None else reasons(json.loads(released[0]))
            rows = run.execute("SELECT reason, count FROM refusal WHERE task = ? ORDER BY reason", (task_id,))
            return reasons(dict(rows.fetchall()))

    def release_of(self, digest: bytes) -> Release | None:
        with self._reading() as run:
            return _read_releases(run, digest).get(digest)

    def stored_rounds(self, digest: bytes | None = None) -> list[StoredRound]:
        with self._reading() as run:
            rows = run.execute(_STORED, (digest, digest)).fetchall()
        return make_stored_rounds(rows)

    def reports(self, digest: bytes, round_: int) -> Iterator[Report]:
        carried = report_digest_of(digest)
        for ids, bodies in self.arrays(digest, round_):
            for report_id, body in zip(ids.tolist(), bodies.tolist(), strict=True):
                yield Report(carried, round_, report_id, tuple(body))

    def arrays(self, digest: bytes, round_: int) -> Iterator[tuple[NDArray[np.void], NDArray[np.int64]]]:
        with self._reading() as run:
            number = read_series(run, [(digest, round_)]).get((digest, round_))
        if number is None:
            return
        after = last_key(number - 1)
        while True:
            with self._reading() as run:
                portion = _portion(run, number, after)
            for keys, bodies in portion:
                yield ids_of(keys), bodies
            if not portion:
                return
            after = bytes(portion[-1].keys[-1])

    def stored_rows(self) -> StoredRows:
        with self._reading() as run:
            session, newest, store = run.execute("SELECT id, newest, store FROM identity").fetchone()
            marks = {(digest, round_): at for digest, round_, at in run.execute("SELECT * FROM closed")}
            rows = run.execute("SELECT * FROM released").fetchall()
            released = {(row[0], row[1]): checked_tally(*row) for row in rows}
            dropped = {
                (digest, round_): Dropped(width, read_tally(run, digest, round_))
                for digest, round_, width in run.execute(
                    "SELECT digest, round, width FROM series WHERE dropped > 0"
                ).fetchall()
            }
            rest = _read_releases(run), released, dropped, _read_all_steps(run)
        return StoredRows(store, session, newest, self.task_rows(), marks, self.recalls(), *rest)

    def counted_tally(self, digest: bytes, round_: int) -> Tally:
        with self._reading() as run:
            return read_tally(run, digest, round_)

    def counted_refusals(self) -> dict[tuple[str, Refusal], int]:
        with self._reading() as run:
            rows = run.execute("SELECT task, reason, count FROM refusal").fetchall()
        return {(task_id, reason): count for task_id, name, count in rows for reason in reasons({name: count})}

    def is_closed(self, digest: bytes, round_: int | None = None) -> bool:
        with self._reading() as run:
            return is_closed(run, digest, WHOLE_TASK if round_ is None else round_)

    def marks(self) -> frozenset[tuple[bytes, int]]:
        with self._reading() as run:
            return frozenset(run.execute("SELECT digest, round FROM closed").fetchall())

    def counted_since(self, digest: bytes, round_: int) -> int:
        with self._reading() as run:
            table = _table_of(run, digest)
            query = f"SELECT coalesce(sum(n), 0) FROM {table} WHERE digest = ? AND round >= ?"  # noqa: S608 - our names
            return int(run.execute(query, (digest, round_)).fetchone()[0])

    def steps(self, digest: bytes, round_: int) -> list[Step]:
        with self._reading() as run:
            return read_steps(run, digest, round_)

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


def _portion(run: sqlite3.Connection, number: int, after: bytes) -> list[Section]:
    """Some thousand reports of a series after a key, in the order of their keys."""
    end, found, count = last_key(number), list[Section](), 0
    for keys, bodies in merge(run, read_runs(run), after):
        of_series = int(np.searchsorted(keys, np.bytes_(end), side="right"))
        if of_series:
            found.append(Section(keys[:of_series], bodies[:of_series]))
        count += of_series
        if of_series < len(keys) or count >= _PORTION:
            break
    return found


def read_series(run: sqlite3.Connection, rounds: Sequence[tuple[bytes, int]]) -> dict[tuple[bytes, int], int]:
    """Return the numbers of the series of these rounds (digest, round); none of a round without a stored report."""
    rows = _of_rounds(run, "series", "digest, round, width, ordinal, dropped", rounds)
    return {
        (digest, round_): series_number(width, ordinal)
        for digest, round_, width, ordinal, dropped in rows
        if not dropped  # that goes on perhaps, and what is left of it is in no use
    }


def read_tally(run: sqlite3.Connection, digest: bytes, round_: int, table: str = "tally") -> Tally:
    """The tally of a round, as it was sealed."""
    query = f"SELECT n, moments, seal FROM {table} WHERE digest = ? AND round = ?"  # noqa: S608 - our names
    row = run.execute(query, (digest, round_)).fetchone()
    return Tally() if row is None else checked_tally(digest, round_, *row)


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
        found[digest, round_] = tally if sealed == seal_before else checked_tally(digest, round_, n, moments, sealed)
    return found


def checked_tally(digest: bytes, round_: int, n: int, moments: str, sealed: bytes) -> Tally:
    """Return a tally from its row; raise DamagedError if it is not what was sealed."""
    if sealed != seal(digest, round_, n, moments):
        raise DamagedError("a tally")
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
    except DamagedError as error:
        raise StoreError(f"{path}: {error}; {_REMEDIES[sqlite3.SQLITE_CORRUPT]}") from error
    except sqlite3.Error as error:
        remedy = _REMEDIES.get(
            getattr(error, "sqlite_errorcode", 0) & 0xFF, "make sure that it can be read and written"
        )
        raise StoreError(f"{path}: {error}; {remedy}") from error
    except UnicodeDecodeError as error:  # SQLite believes that a text is one
        raise StoreError(f"{path}: a text in it is not valid UTF-8; {_REMEDIES[sqlite3.SQLITE_CORRUPT]}") from error


def whole_task(payload: bytes, digest: bytes) -> bytes:
    """Return a payload as it was stored."""
    if digest_of(payload) != digest:
        raise DamagedError("a task")
    return payload


def make_stored_rounds(rows: Iterable[tuple[bytes, int, int, int, int | None]]) -> list[StoredRound]:
    """Return the rounds of rows: digest, round, n, a state of `series`, and the time of the mark."""
    return [
        StoredRound(digest, round_, int(n), dropped=state > 0, dropping=state == DROPPING, closed_at=closed_at)
        for digest, round_, n, state, closed_at in rows
    ]


def task_values(row: TaskRow) -> tuple[object, ...]:
    """Return the columns of a task, in the order of both kinds of stores."""
    task = decode_task(row.payload) if row.payload else None
    policy = (0, 0) if task is None else (task.release_from or 0, task.release_seconds)
    values = row.id, row.digest, row.payload, row.origin.value, row.state.value, row.owner, row.term, row.taken_from
    return (*values, *policy)


def tally_values(round_: tuple[bytes, int], tally: Tally) -> tuple[bytes, int, int, str, bytes]:
    """Return the columns of a tally: digest, round, n, moments and seal."""
    moments = str(list(tally.moments))  # the same text as of `json.dumps`, in half of the time
    return *round_, tally.n, moments, seal(*round_, tally.n, moments)


def make_task_row(row: tuple[str, bytes, bytes, str, str, str, int, str]) -> TaskRow:
    task_id, digest, payload, origin, state, owner, term, taken_from = row
    if payload:
        whole_task(payload, digest)
    try:
        return TaskRow(task_id, digest, payload, Origin(origin), TaskState(state), owner, term, taken_from)
    except ValueError:
        raise DamagedError("a task") from None
