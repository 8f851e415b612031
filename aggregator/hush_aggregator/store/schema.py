"""The tables of a store in SQLite: how they are made, and checked."""

import hashlib
import secrets
import sqlite3
from functools import partial
from pathlib import Path

from hush_common.errors import StoreError

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
