"""Pins: which task a device has admitted under an id. Functions on an open transaction.

A task is pinned when it is admitted, before any value is asked for, and for good once something was charged for it:
nobody can have one device answer one question after another under one id. A task that is refused pins nothing, or a
hostile one could lock the real one out.
"""

import sqlite3

__all__ = ["admitted", "forget", "is_charged", "pin", "pinned"]


def pin(connection: sqlite3.Connection, device: str, task: str, digest: bytes) -> None:
    """Remember a task that was admitted."""
    if pinned(connection, device, task) is None:
        connection.execute("INSERT INTO pin VALUES (?, ?, ?)", (device, task, digest))


def pinned(connection: sqlite3.Connection, device: str, task: str) -> bytes | None:
    """The digest of the task that a device has answered or admitted under this id, or None."""
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


def admitted(connection: sqlite3.Connection) -> list[tuple[str, str, bytes]]:
    """Device, task and digest wherever a task is pinned and nothing was charged for it, in order."""
    return connection.execute(
        "SELECT device, task, digest FROM pin WHERE NOT EXISTS "
        "(SELECT 1 FROM charge WHERE charge.device = pin.device AND charge.task = pin.task) ORDER BY device, task"
    ).fetchall()


def forget(connection: sqlite3.Connection, task: str) -> int:
    """Let another task be answered under this id, on each device that was charged nothing for it; on how many."""
    delete = "DELETE FROM pin WHERE device = ? AND task = ?"
    unpaid = [(device, name) for device, name, _ in admitted(connection) if name == task]
    connection.executemany(delete, unpaid)
    return len(unpaid)
