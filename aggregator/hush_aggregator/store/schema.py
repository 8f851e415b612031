"""The tables of a store in SQLite: how they are made, brought up to date, and checked."""

import hashlib
import secrets
import sqlite3
from functools import partial
from pathlib import Path

from hush_common.errors import StoreError

__all__ = ["check", "damaged", "prepare", "seal"]

_APPLICATION = 0x68757368  # "hush" in ASCII: tells our file from another program's
# No time and no sender: who reported when is nobody's business, so it is never written down.
_VERSION_1 = """
CREATE TABLE task (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, payload BLOB NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE report (  -- body: the integers, 8 bytes each, big-endian
    digest BLOB NOT NULL, round INTEGER NOT NULL, id BLOB NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (digest, round, id)
) WITHOUT ROWID, STRICT;
CREATE TABLE tally (  -- moments: a JSON list of integers, which outgrow 64 bits
    digest BLOB NOT NULL, round INTEGER NOT NULL, n INTEGER NOT NULL, moments TEXT NOT NULL,
    PRIMARY KEY (digest, round)
) WITHOUT ROWID, STRICT;
CREATE TABLE refusal (
    task TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (task, reason)
) WITHOUT ROWID, STRICT;
"""
_VERSION_2 = """
CREATE TABLE identity (  -- one row; former: whether a session of the time before there was one may wait at a broker
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, former INTEGER NOT NULL
) STRICT;
INSERT INTO identity VALUES (1, new_identity(), was_there());
ALTER TABLE tally ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
UPDATE tally SET seal = seal(digest, round, n, moments);
"""
# The newest day (UTC) on which the store was in use, "" if unknown. Noted whether reports come or not: no time of any.
_VERSION_3 = "ALTER TABLE identity ADD COLUMN newest TEXT NOT NULL DEFAULT '';"
# identity.store: the name that estimates bear; not `id`, for whoever knows that can take what waits at the broker.
# restored: the file was put back from a backup, and the aggregator has not reacted yet. task.origin: who gave it, which
# nobody wrote down before. Its payload is empty once it is forgotten. owner: the store that publishes its estimate, ""
# if that is not known; term: rises when it is taken over; taken_from: by this store, from that one.
_VERSION_4 = """
ALTER TABLE identity ADD COLUMN store TEXT NOT NULL DEFAULT '';
ALTER TABLE identity ADD COLUMN restored INTEGER NOT NULL DEFAULT 0;
UPDATE identity SET store = new_identity();
ALTER TABLE task ADD COLUMN origin TEXT NOT NULL DEFAULT 'broker'
    CHECK (origin IN ('file', 'command', 'http', 'broker'));
ALTER TABLE task ADD COLUMN state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'withdrawn', 'closed'));
ALTER TABLE task ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE task ADD COLUMN term INTEGER NOT NULL DEFAULT 0;
ALTER TABLE task ADD COLUMN taken_from TEXT NOT NULL DEFAULT '';
"""
# closed: nothing counts there any more, whatever the clock says; round -1 is the whole task. recall: the last of each
# task; made: seconds since 1970; ended: to be cleared at the broker, then deleted. broker: one row, see `BrokerMemory`.
_VERSION_5 = """
CREATE TABLE closed (
    digest BLOB NOT NULL, round INTEGER NOT NULL, PRIMARY KEY (digest, round)
) WITHOUT ROWID, STRICT;
INSERT INTO closed SELECT digest, -1 FROM task WHERE state = 'closed';
CREATE TABLE recall (
    task TEXT PRIMARY KEY, digest BLOB NOT NULL, id BLOB NOT NULL, over INTEGER NOT NULL, made INTEGER NOT NULL,
    ended INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE broker (
    one INTEGER PRIMARY KEY CHECK (one = 1), session INTEGER NOT NULL, started INTEGER, alive INTEGER, dropped INTEGER
) STRICT;
INSERT INTO broker SELECT 1, former = 0 AND EXISTS (SELECT 1 FROM tally), NULL, NULL, NULL FROM identity;
"""
# charged: the token of the last batch whose senders were charged: see `quotas`. It is random, and names nobody.
_VERSION_6 = "ALTER TABLE identity ADD COLUMN charged BLOB NOT NULL DEFAULT x'';"
# version: how many transactions have written. It orders what is told about the store, and says nothing of a time.
_VERSION_7 = "ALTER TABLE identity ADD COLUMN version INTEGER NOT NULL DEFAULT 0;"
_MIGRATIONS = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5, _VERSION_6, _VERSION_7)


def seal(digest: bytes, round_: int, n: int, moments: str) -> bytes:
    """What a row of the table of tallies is checked by: a sum that is damaged would look like any other."""
    return hashlib.sha256(b"%b %d %d %b" % (digest, round_, n, moments.encode())).digest()[:8]


def damaged(what: str) -> sqlite3.DatabaseError:
    """What to raise, as SQLite does where it finds damage itself."""
    error = sqlite3.DatabaseError(f"{what} is not what was written")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Make the tables, or bring older ones up to date, wholly or not at all.

    Raises:
        StoreError: the file is another program's, or of a later version.
        sqlite3.Error: it cannot be read or written.
    """
    version = _version(path, connection)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -32768")  # KiB: memory stays the same however large the file grows
    connection.create_function("seal", 4, seal, deterministic=True)
    if version == len(_MIGRATIONS):
        _check_tables(connection)
        return
    connection.create_function("new_identity", 0, partial(secrets.token_hex, 16))
    connection.create_function("was_there", 0, lambda: int(version > 0))
    connection.executescript(
        f"BEGIN IMMEDIATE; {''.join(_MIGRATIONS[version:])} "
        f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {len(_MIGRATIONS)}; COMMIT;"
    )


def check(path: Path, connection: sqlite3.Connection) -> None:
    """See that the tables are there as this version makes them; nothing is written.

    Raises:
        StoreError: the file is another program's, or of another version.
        sqlite3.Error: it cannot be read.
    """
    version = _version(path, connection)
    if version < len(_MIGRATIONS):
        raise StoreError(f"{path}: was written by an earlier hush (schema {version}); start its aggregator once")
    connection.create_function("seal", 4, seal, deterministic=True)
    _check_tables(connection)


def _version(path: Path, connection: sqlite3.Connection) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != _APPLICATION and (objects or application or version):
        raise StoreError(f"{path}: is a database of another program; name another file")
    if version > len(_MIGRATIONS):
        raise StoreError(f"{path}: was written by a later hush (schema {version}); update hush")
    return int(version)


def _check_tables(connection: sqlite3.Connection) -> None:
    """Whatever an estimate is made of is as it was written; reports are many, and each has been counted."""
    for table in ("task", "tally", "refusal", "identity", "closed", "recall", "broker"):
        (verdict,) = connection.execute(f"PRAGMA quick_check({table})").fetchone()
        if verdict != "ok":
            raise damaged(f"the table {table}")
    if connection.execute("SELECT 1 FROM tally WHERE seal IS NOT seal(digest, round, n, moments)").fetchone():
        raise damaged("a tally")
