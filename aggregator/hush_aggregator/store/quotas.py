"""Quotas: how many reports of a round one sender may have counted. Kept in a separate file, which is never backed up.

The store knows no sender, so that nobody who has it learns who answered. A quota has to know, for as long as a round is
open: of each sender a hash under a key that is drawn for each round, and a number. Neither a name nor a time. The file
is no part of any backup; what it has of a round is deleted with its key when the round closes, or after 30 days.

**Two files, one truth.** A report that is counted twice cannot come of it: the store alone decides what is new. What a
crash could do is charge a report that was not counted, which would refuse an honest one later, or not charge one that
was. SQLite makes no transaction over two files whole when the power fails, so the charges of a batch are written first,
as *pending* under a random token, and the transaction of the store that counts the batch writes that token too. The
token in the store then says which of both happened:

- it is that of the pending charges: they hold;
- it is the last one that held before: the batch was not counted, and its charges are forgotten;
- it is neither: the store was put back from a copy, or this file was. Then these counts are of other reports, and all
  of them are forgotten: a sender may have a quota twice, but nobody is refused for reports that are gone.

Each file is on the disk when its transaction returns, in that order; no third state is left.
"""

import hashlib
import hmac
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hush_aggregator.store.reading import is_closed, translated
from hush_common.files import make_private_file

KEPT_DAYS = 30
_TABLES = """
CREATE TABLE IF NOT EXISTS token (one INTEGER PRIMARY KEY CHECK (one = 1), held BLOB NOT NULL, pending BLOB NOT NULL)
STRICT;
CREATE TABLE IF NOT EXISTS round (
    number INTEGER PRIMARY KEY, digest BLOB NOT NULL, round INTEGER NOT NULL, key BLOB NOT NULL, day INTEGER NOT NULL,
    UNIQUE (digest, round)
) STRICT;
CREATE TABLE IF NOT EXISTS charge (
    round INTEGER NOT NULL, sender BLOB NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (round, sender)
) WITHOUT ROWID, STRICT;
CREATE TABLE IF NOT EXISTS pending (
    round INTEGER NOT NULL, sender BLOB NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (round, sender)
) WITHOUT ROWID, STRICT;
"""
_HOLD = """
INSERT INTO charge SELECT round, sender, n FROM pending WHERE true
ON CONFLICT (round, sender) DO UPDATE SET n = n + excluded.n
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many reports of one round count."""

    each: int  # of one sender
    gateways: Mapping[str, int] = field(default_factory=dict)  # of senders that speak for many devices, by their names

    def of(self, sender: str) -> int:
        return self.gateways.get(sender, self.each)


def quota_file(store: Path) -> Path:
    """Where the quotas of a store are."""
    return store.with_name(f"{store.name}.quota")


def sender_hash(key: bytes, sender: str) -> bytes:
    """Return what is kept of a sender under the key of a round."""
    return hmac.digest(key, sender.encode(), hashlib.sha256)[:16]


class Quotas:
    """The file of quotas of one store, used under the store's lock. Raises StoreError if it cannot be made."""

    def __init__(self, path: Path, limits: Limits, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = path
        self._limits = limits
        self._now = now
        with translated(path):
            try:
                self._connection = _opened(path)
            except sqlite3.DatabaseError as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                    raise
                path.unlink()  # counts that nobody can read refuse nobody
                self._connection = _opened(path)

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        self._connection.close()

    @contextmanager
    def charging(self, store: sqlite3.Connection) -> "Iterator[Charging]":
        """Charge senders in the block, inside an open transaction of the store, which commits after it."""
        with translated(self._path), self._transaction() as run:
            held = _token(store)
            _settle(run, held)
            charging = Charging(run, self._limits, days(self._now()))
            yield charging
            if charging.counts:
                token = secrets.token_bytes(16)
                run.execute("UPDATE token SET pending = ?", (token,))
                run.executemany(
                    "INSERT INTO pending VALUES (?, ?, ?)", [(*key, count) for key, count in charging.counts.items()]
                )
                store.execute("UPDATE identity SET charged = ?", (token,))

    def forget(self, store: sqlite3.Connection) -> None:
        """Delete what is kept of rounds that are closed, or older than 30 days, and their keys."""
        with translated(self._path), self._transaction() as run:
            _settle(run, _token(store))
            today = days(self._now())
            for number, digest, round_, day in run.execute("SELECT number, digest, round, day FROM round").fetchall():
                if is_closed(store, digest, round_) or today - day >= KEPT_DAYS:
                    _delete(run, number)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        run = self._connection
        run.execute("BEGIN IMMEDIATE")
        try:
            yield run
            run.execute("COMMIT")
        except BaseException:
            if run.in_transaction:
                with suppress(sqlite3.Error):
                    run.execute("ROLLBACK")
            raise


class Charging:
    """Charges the senders of one batch.

    Attributes:
        counts: new reports by (number of the round, hash of the sender).
    """

    def __init__(self, run: sqlite3.Connection, limits: Limits, today: int) -> None:
        self._run = run
        self._limits = limits
        self._today = today
        self._rounds: dict[tuple[bytes, int], tuple[int, bytes]] = {}
        self._left: dict[tuple[int, str], int] = {}
        self._hashes: dict[tuple[int, str], bytes] = {}
        self.counts: Counter[tuple[int, bytes]] = Counter()

    def has_left(self, digest: bytes, round_: int, sender: str) -> bool:
        """Whether one more report of this sender may count."""
        number, key = self._round(digest, round_)
        left = self._left.get((number, sender))
        if left is None:
            hash_ = sender_hash(key, sender)
            query = "SELECT n FROM charge WHERE round = ? AND sender = ?"
            (used,) = self._run.execute(query, (number, hash_)).fetchone() or (0,)
            left = self._left[number, sender] = self._limits.of(sender) - used
            self._hashes[number, sender] = hash_
        return left > 0

    def charge(self, digest: bytes, round_: int, sender: str) -> None:
        """Charge a sender that has some left for a report that is new."""
        number, _ = self._round(digest, round_)
        self._left[number, sender] -= 1
        self.counts[number, self._hashes[number, sender]] += 1

    def _round(self, digest: bytes, round_: int) -> tuple[int, bytes]:
        """Number and key of a round; of one that is new, or too old, drawn now."""
        found = self._rounds.get((digest, round_))
        if found is None:
            query = "SELECT number, key, day FROM round WHERE digest = ? AND round = ?"
            row = self._run.execute(query, (digest, round_)).fetchone()
            if row is not None and self._today - row[2] >= KEPT_DAYS:
                _delete(self._run, row[0])
                row = None
            if row is None:
                new = (digest, round_, secrets.token_bytes(32), self._today)
                cursor = self._run.execute("INSERT INTO round (digest, round, key, day) VALUES (?, ?, ?, ?)", new)
                row = (cursor.lastrowid, new[2])
            found = self._rounds[digest, round_] = row[0], row[1]
        return found


def _opened(path: Path) -> sqlite3.Connection:
    try:
        make_private_file(path)
    except OSError as error:
        raise sqlite3.OperationalError(f"cannot be made ({error.strerror})") from error
    connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA secure_delete = ON")  # a key that is deleted is overwritten
        connection.execute("PRAGMA synchronous = EXTRA")  # a journal that comes back would undo what the store knows
        connection.executescript(_TABLES)
        connection.execute("INSERT OR IGNORE INTO token VALUES (1, x'', x'')")
    except BaseException:
        connection.close()
        raise
    return connection


def _token(store: sqlite3.Connection) -> bytes:
    token: bytes = store.execute("SELECT charged FROM identity").fetchone()[0]
    return token


def _settle(run: sqlite3.Connection, token: bytes) -> None:
    """Settle the charges of the last batch, as described above."""
    held, pending = run.execute("SELECT held, pending FROM token").fetchone()
    if pending and pending == token:
        run.execute(_HOLD)
    elif held != token:
        for table in ("charge", "round"):
            run.execute(f"DELETE FROM {table}")  # noqa: S608 - a constant
    run.execute("DELETE FROM pending")
    run.execute("UPDATE token SET held = ?, pending = x''", (token,))


def _delete(run: sqlite3.Connection, number: int) -> None:
    run.execute("DELETE FROM charge WHERE round = ?", (number,))
    run.execute("DELETE FROM round WHERE number = ?", (number,))


def days(now: datetime) -> int:
    """Return the days since 1970."""
    return int(now.timestamp()) // 86_400
