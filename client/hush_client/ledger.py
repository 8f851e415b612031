"""The ledger: what each device has spent, as exact fractions, one charge per (device, task, round).

Functions on an open transaction. A charge is written with the report it pays for and is never refunded; the total of
a device and purpose moves in the same transaction as its charges.
"""

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

__all__ = ["SCHEMA", "Account", "Charge", "accounts", "charge", "charges", "find", "pinned_digest", "spent"]

SCHEMA = """
CREATE TABLE charge (
    device TEXT NOT NULL, task TEXT NOT NULL, round INTEGER NOT NULL,
    digest BLOB NOT NULL, purpose TEXT NOT NULL, mechanism TEXT NOT NULL, epsilon TEXT NOT NULL,
    report_id BLOB NOT NULL, charged_at TEXT NOT NULL,
    PRIMARY KEY (device, task, round)
) WITHOUT ROWID;
CREATE TABLE account (
    device TEXT NOT NULL, purpose TEXT NOT NULL, spent TEXT NOT NULL,
    PRIMARY KEY (device, purpose)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one answer cost. It says nothing about the answer.

    Args:
        epsilon: exact, kept as `"num/den"`.
        report_id: the 16 bytes under which the aggregator counts the report.
        charged_at: aware, UTC.
    """

    device: str
    task: str
    round: int
    digest: bytes
    purpose: str
    mechanism: str
    epsilon: Fraction
    report_id: bytes
    charged_at: datetime


@dataclass(frozen=True, slots=True)
class Account:
    """What one device has spent on one purpose."""

    device: str
    purpose: str
    spent: Fraction


def find(connection: sqlite3.Connection, device: str, task: str, round_: int) -> Charge | None:
    """The charge of a device for one round, or None."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM charge WHERE device = ? AND task = ? AND round = ?",  # noqa: S608 - constant columns
        (device, task, round_),
    ).fetchone()
    return None if row is None else _charge(row)


def pinned_digest(connection: sqlite3.Connection, device: str, task: str) -> bytes | None:
    """The digest of the task that a device has answered under this id, or None if it has not."""
    row = connection.execute(
        "SELECT digest FROM charge WHERE device = ? AND task = ? LIMIT 1", (device, task)
    ).fetchone()
    return None if row is None else bytes(row[0])


def spent(connection: sqlite3.Connection, device: str, purpose: str) -> Fraction:
    """What a device has spent on a purpose."""
    row = connection.execute("SELECT spent FROM account WHERE device = ? AND purpose = ?", (device, purpose)).fetchone()
    return Fraction(0) if row is None else Fraction(row[0])


def charge(connection: sqlite3.Connection, entry: Charge) -> Fraction:
    """Write a charge and return the new total of its device and purpose.

    Raises:
        sqlite3.IntegrityError: the round is charged already.
    """
    connection.execute(
        f"INSERT INTO charge ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constant columns
        (
            entry.device,
            entry.task,
            entry.round,
            entry.digest,
            entry.purpose,
            entry.mechanism,
            _text(entry.epsilon),
            entry.report_id,
            entry.charged_at.isoformat(timespec="seconds"),
        ),
    )
    total = spent(connection, entry.device, entry.purpose) + entry.epsilon
    connection.execute("REPLACE INTO account VALUES (?, ?, ?)", (entry.device, entry.purpose, _text(total)))
    return total


def accounts(connection: sqlite3.Connection) -> list[Account]:
    """All accounts, by device and purpose."""
    rows = connection.execute("SELECT device, purpose, spent FROM account ORDER BY device, purpose")
    return [Account(device, purpose, Fraction(total)) for device, purpose, total in rows]


def charges(connection: sqlite3.Connection, device: str, purpose: str) -> list[Charge]:
    """The charges of an account, oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM charge WHERE device = ? AND purpose = ? "  # noqa: S608 - constant columns
        "ORDER BY charged_at, task, round",
        (device, purpose),
    )
    return [_charge(row) for row in rows]


_COLUMNS = "device, task, round, digest, purpose, mechanism, epsilon, report_id, charged_at"


def _charge(row: tuple[str, str, int, bytes, str, str, str, bytes, str]) -> Charge:
    device, task, round_, digest, purpose, mechanism, epsilon, report_id, charged_at = row
    moment = datetime.fromisoformat(charged_at)
    return Charge(device, task, round_, digest, purpose, mechanism, Fraction(epsilon), report_id, moment)


def _text(amount: Fraction) -> str:
    return f"{amount.numerator}/{amount.denominator}"
