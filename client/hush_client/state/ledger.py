"""The ledger: what each device has spent, as exact fractions, one charge per (device, task, round); and pinned tasks.

Functions on an open transaction. A charge is written with the report it pays for and is never refunded; the total of a
device and purpose changes in the same transaction as its charges. Nothing here depends on a value: not the cost of an
answer, not whether it is drawn or comes from memory, not why one is refused.

A task is pinned when it is admitted, before a source is called, and permanently once something was charged for it: so
nobody can make one device answer several questions under one id. A refused task pins nothing: otherwise a hostile one
could lock the real one out.

The memory of a sticky task is written with the charge that pays for it and never changes: a second draw would spend a
second time. It is secret, like the value that it hides: it stays in this file, and in no message.
"""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from hush_common.errors import StateError
from hush_common.mechanisms.mechanism import LevelMechanism
from hush_common.mechanisms.sticky import Memory

SCHEMA = """
CREATE TABLE charge (
    device TEXT NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL,
    digest BLOB NOT NULL, purpose TEXT NOT NULL, mechanism TEXT NOT NULL, epsilon TEXT NOT NULL,
    report_id BLOB NOT NULL, charged_at TEXT NOT NULL,
    kind TEXT NOT NULL DEFAULT 'draw',
    sequence INTEGER, resends INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (device, task, round)
) WITHOUT ROWID;
CREATE TABLE account (
    device TEXT NOT NULL, purpose TEXT NOT NULL, spent TEXT NOT NULL,
    PRIMARY KEY (device, purpose)
) WITHOUT ROWID;
CREATE TABLE refusal (
    device TEXT NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL, reason TEXT NOT NULL,
    purpose TEXT NOT NULL, epsilon TEXT NOT NULL, refused_at TEXT NOT NULL,
    PRIMARY KEY (device, task, round, reason)
) WITHOUT ROWID;
CREATE INDEX sent_as ON charge (sequence);
CREATE TABLE pin (device TEXT, task TEXT, digest BLOB NOT NULL, PRIMARY KEY (device, task)) WITHOUT ROWID;
CREATE TABLE memory (
    device TEXT NOT NULL, task TEXT NOT NULL, threshold INTEGER NOT NULL, reports TEXT NOT NULL,
    substitute INTEGER, PRIMARY KEY (device, task)
) WITHOUT ROWID;
"""

LOST = (
    "restore no backup and begin no new state yet, either forgets what was spent: leave the device off until every "
    "task it may have answered has closed (docs/device.md: When the ledger is lost)"
)
"""The remedy if the spending is unknown."""
DAMAGED = f"it is damaged: {LOST}"

_NO_ROUND = -1
_NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class Charge:
    """What one answer cost. It reveals nothing about the answer.

    `kind` is `"draw"` (from fresh randomness) or `"memo"` (from a memory that an earlier draw has paid for). `resends`
    is an upper bound: a device that was stopped before the acknowledgement does not know whether a report was sent.
    """

    device: str
    task: str
    round: int
    digest: bytes  # of the task, 32 bytes
    purpose: str
    mechanism: str
    epsilon: Fraction  # exact, stored as "num/den"
    report_id: bytes  # the 16 bytes under which the aggregator counts the report
    charged_at: datetime  # aware, UTC, by the clock of the device; no decision reads it
    sequence: int | None = None  # of the outbox entry with its report
    kind: Literal["draw", "memo"] = "draw"
    resends: int = 0  # how often its report was handed to the network again, at most


@dataclass(frozen=True, slots=True)
class RefusedAnswer:
    """A refused answer, stored once for each task, round and reason."""

    device: str
    task: str
    round: int | None  # None if none was open
    reason: str  # a `hush_client.receipt.Reason`
    purpose: str
    epsilon: Fraction  # what the answer would have cost
    refused_at: datetime  # the first time, aware, UTC


@dataclass(frozen=True, slots=True)
class Account:
    """What one device has spent on one purpose."""

    device: str
    purpose: str
    spent: Fraction


def find(connection: sqlite3.Connection, device: str, task: str, round_: int) -> Charge | None:
    """Return the charge of a device for one round, or None."""
    row = connection.execute(
        f"{_SELECT} WHERE device = ? AND task = ? AND round = ?", (device, task, round_)
    ).fetchone()
    return None if row is None else _charge(row)


def spent(connection: sqlite3.Connection, device: str, purpose: str) -> Fraction:
    """Return what a device has spent on a purpose; StateError if the ledger is damaged."""
    row = connection.execute("SELECT spent FROM account WHERE device = ? AND purpose = ?", (device, purpose)).fetchone()
    return _NOTHING if row is None else _amount(row[0])


def spent_in_all(connection: sqlite3.Connection, device: str) -> Fraction:
    """Return what a device has spent on all purposes together; StateError if the ledger is damaged."""
    rows = connection.execute("SELECT spent FROM account WHERE device = ?", (device,))
    return sum((_amount(total) for (total,) in rows), Fraction(0))


def charge(connection: sqlite3.Connection, entry: Charge) -> Fraction:
    """Write a charge and return the new total of its device and purpose; IntegrityError if the round is charged."""
    about = entry.device, entry.task, entry.round, entry.digest, entry.purpose, entry.mechanism
    moment = _in_seconds(entry.charged_at)
    connection.execute(_INSERT, (*about, _text(entry.epsilon), entry.report_id, moment, entry.sequence, entry.kind))
    before = spent(connection, entry.device, entry.purpose)
    total = before + entry.epsilon if before else entry.epsilon
    connection.execute("REPLACE INTO account VALUES (?, ?, ?)", (entry.device, entry.purpose, _text(total)))
    return total


def resent(connection: sqlite3.Connection, sequences: Mapping[int, int]) -> None:
    """Count how often outbox entries were handed to the network again: the same bytes, which cost nothing."""
    connection.executemany(
        "UPDATE charge SET resends = resends + ? WHERE sequence = ?",
        ((times, sequence) for sequence, times in sequences.items()),
    )


def refuse(connection: sqlite3.Connection, entry: RefusedAnswer) -> None:
    """Store a refusal, unless the same one is stored already."""
    round_ = _NO_ROUND if entry.round is None else entry.round
    moment = entry.refused_at.isoformat(timespec="seconds")
    row = entry.device, entry.task, round_, entry.reason, entry.purpose, _text(entry.epsilon), moment
    connection.execute("INSERT OR IGNORE INTO refusal VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def refusals(connection: sqlite3.Connection) -> list[RefusedAnswer]:
    """Return all refusals, by device, oldest first."""
    rows = connection.execute("SELECT * FROM refusal ORDER BY device, refused_at, task, round, reason")
    return [
        RefusedAnswer(device, task, None if at == _NO_ROUND else at, reason, purpose, _amount(epsilon), _moment(moment))
        for device, task, at, reason, purpose, epsilon, moment in rows
    ]


def accounts(connection: sqlite3.Connection, device: str | None = None) -> list[Account]:
    """Return all accounts, or those of one device, by device and purpose."""
    select = "SELECT device, purpose, spent FROM account WHERE coalesce(device = ?, 1) ORDER BY device, purpose"
    rows = connection.execute(select, (device,))
    return [Account(device, purpose, _amount(total)) for device, purpose, total in rows]


def charges(connection: sqlite3.Connection, device: str, purpose: str) -> list[Charge]:
    """Return the charges of an account, oldest first."""
    rows = connection.execute(
        f"{_SELECT} WHERE device = ? AND purpose = ? ORDER BY charged_at, task, round", (device, purpose)
    )
    return [_charge(row) for row in rows]


def verify(connection: sqlite3.Connection) -> None:
    """Raise StateError if an account is missing, or not the sum of its charges."""
    sums: dict[tuple[str, str], Fraction] = {}
    for device, purpose, epsilon in connection.execute("SELECT device, purpose, epsilon FROM charge"):
        sums[device, purpose] = sums.get((device, purpose), Fraction(0)) + _amount(epsilon)
    found = {(account.device, account.purpose): account.spent for account in accounts(connection)}
    for key in sums.keys() | found.keys():
        if sums.get(key, 0) != found.get(key, 0):
            raise StateError(f"the account of {key[0]!r} does not add up; {DAMAGED}")


_COLUMNS = "device, task, round, digest, purpose, mechanism, epsilon, report_id, charged_at, sequence, kind"
_INSERT = "INSERT INTO charge (" + _COLUMNS + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - no text of others
_SELECT = "SELECT " + _COLUMNS + ", resends FROM charge"  # noqa: S608 - as above
_Row = tuple[str, str, int, bytes, str, str, str, bytes, str, int | None, Literal["draw", "memo"], int]


def _charge(row: _Row) -> Charge:
    return Charge(*row[:6], _amount(row[6]), row[7], _moment(row[8]), *row[9:])


@lru_cache(maxsize=16)
def _in_seconds(moment: datetime) -> str:
    # cached: many that answer together are charged at the same time
    return moment.isoformat(timespec="seconds")


def _text(amount: Fraction) -> str:
    return f"{amount.numerator}/{amount.denominator}"


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (ValueError, TypeError) as error:
        raise StateError(f"the ledger holds {text!r} as a time; {DAMAGED}") from error


def _amount(text: str) -> Fraction:
    try:
        amount = Fraction(text)
    except (ValueError, ZeroDivisionError, TypeError) as error:
        raise StateError(f"the ledger holds {text!r} as an epsilon; {DAMAGED}") from error
    if amount < 0:
        raise StateError(f"the ledger holds {text!r} as an epsilon; {DAMAGED}")
    return amount


def pin(connection: sqlite3.Connection, device: str, task: str, digest: bytes) -> None:
    """Pin a task that was admitted."""
    if pinned(connection, device, task) is None:
        connection.execute("INSERT INTO pin VALUES (?, ?, ?)", (device, task, digest))


def pinned(connection: sqlite3.Connection, device: str, task: str) -> bytes | None:
    """Return the digest of the task that a device has answered or admitted under this id, or None."""
    select = (
        "SELECT digest FROM charge WHERE device = ? AND task = ? UNION ALL "
        "SELECT digest FROM pin WHERE device = ? AND task = ? LIMIT 1"
    )
    row = connection.execute(select, (device, task, device, task)).fetchone()
    return None if row is None else bytes(row[0])


def is_charged(connection: sqlite3.Connection, device: str, task: str) -> bool:
    """Whether a device was ever charged for a task of this id."""
    select = "SELECT 1 FROM charge WHERE device = ? AND task = ? LIMIT 1"
    return connection.execute(select, (device, task)).fetchone() is not None


def unpaid_pins(connection: sqlite3.Connection) -> list[tuple[str, str, bytes]]:
    """Return device, task and digest of each pinned task for which nothing was charged, in order."""
    return connection.execute(
        "SELECT device, task, digest FROM pin WHERE NOT EXISTS "
        "(SELECT 1 FROM charge WHERE charge.device = pin.device AND charge.task = pin.task) ORDER BY device, task"
    ).fetchall()


def unpin(connection: sqlite3.Connection, task: str) -> int:
    """Unpin a task on each device that was charged nothing for it; return the number of devices."""
    delete = "DELETE FROM pin WHERE device = ? AND task = ?"
    unpaid = [(device, name) for device, name, _ in unpaid_pins(connection) if name == task]
    connection.executemany(delete, unpaid)
    return len(unpaid)


def find_memory(
    connection: sqlite3.Connection, device: str, task: str, mechanism: LevelMechanism, *, answered: bool
) -> Memory | None:
    """Return the memory of a device for a task, or None before its first answer.

    Raises:
        StateError: a memory without a charge, a charge without a memory (`answered`), or a memory that does not fit
            the mechanism.
    """
    row = connection.execute(
        "SELECT threshold, reports, substitute FROM memory WHERE device = ? AND task = ?", (device, task)
    ).fetchone()
    if row is None and not answered:
        return None
    memory = None if row is None or not answered else _read(*row)
    if memory is None or not memory.fits(mechanism):
        raise StateError(
            f"the memory of task {task!r} is missing or damaged, and a second one would spend a second time; "
            "do not answer this task, and restore no backup (docs/device.md: When the ledger is lost)"
        )
    return memory


def keep_memory(connection: sqlite3.Connection, device: str, task: str, memory: Memory) -> None:
    """Write a new memory; IntegrityError if there is one already."""
    row = (device, task, memory.threshold, json.dumps(memory.reports), memory.substitute)
    connection.execute("INSERT INTO memory VALUES (?, ?, ?, ?, ?)", row)


def _read(threshold: object, text: object, substitute: object) -> Memory | None:
    try:
        reports = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if not isinstance(reports, list) or not all(type(z) is int for z in reports):
        return None
    if not isinstance(threshold, int) or not isinstance(substitute, int):
        return None
    return Memory(threshold, tuple(reports), substitute)
