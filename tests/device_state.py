"""The stored state of a device, as its owner can read it: the ledger, the outbox and the reports that are kept."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

from hush_client.state import ledger, outbox
from hush_client.state.database import FILE_NAME, DeviceState

__all__ = ["FILE_NAME", "DeviceState", "execute", "in_memory", "opened_state", "rows", "waiting"]


@contextmanager
def in_memory() -> Iterator[sqlite3.Connection]:
    """An empty ledger and an empty outbox, without a file."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(ledger.SCHEMA + outbox.SCHEMA)
        yield connection


@asynccontextmanager
async def opened_state(directory: Path) -> AsyncIterator[DeviceState]:
    """The state as a client opens it; without its lock."""
    state = await DeviceState.open(directory)
    try:
        yield state
    finally:
        await state.close()


def rows(directory: Path, query: str) -> list[Any]:
    """The rows of a query; a row of one column is its value."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection:
        found = connection.execute(query).fetchall()
    return [row[0] if len(row) == 1 else row for row in found]


def execute(directory: Path, script: str, *, name: str = FILE_NAME) -> None:
    """Change a file of the state, as damage or another program would."""
    with closing(sqlite3.connect(directory / name, isolation_level=None)) as connection:
        connection.executescript(script)


def waiting(directory: Path) -> list[bytes]:
    """The reports in the outbox, in order."""
    return rows(directory, "SELECT payload FROM outbox ORDER BY sequence")
