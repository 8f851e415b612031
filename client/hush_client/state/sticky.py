"""Memoized answers of sticky tasks, one per (device, task). Functions on an open transaction.

A memory is written with the charge that pays for it and never changes: a second draw would spend a second time. It is
secret, like the value that it hides: it stays in this file, and in no message.
"""

import json
import sqlite3

from hush_common.errors import StateError
from hush_common.mechanisms.mechanism import LevelMechanism
from hush_common.mechanisms.sticky import Memory

SCHEMA = """
CREATE TABLE memory (
    device TEXT NOT NULL, task TEXT NOT NULL, threshold INTEGER NOT NULL, reports TEXT NOT NULL,
    substitute INTEGER, PRIMARY KEY (device, task)
) WITHOUT ROWID;
"""


def find(
    connection: sqlite3.Connection, device: str, task: str, mechanism: LevelMechanism, *, answered: bool
) -> Memory | None:
    """Return the memory of a device for a task, or None before its first answer.

    Args:
        connection: inside a transaction.
        device: whose memory.
        task: id of the task.
        mechanism: what the memory was drawn from.
        answered: whether the ledger has charged the device for this task.

    Raises:
        StateError: a memory without a charge, a charge without a memory, or a memory that does not fit the mechanism.
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
            "leave this task unanswered, and restore no backup (docs/device.md: When the ledger is lost)"
        )
    return memory


def keep(connection: sqlite3.Connection, device: str, task: str, memory: Memory) -> None:
    """Write a new memory.

    Raises:
        sqlite3.IntegrityError: there is one already.
    """
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
