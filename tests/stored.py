"""What a store has of reports, read from its tables by another connection."""

import sqlite3
from contextlib import closing
from pathlib import Path

from hush_aggregator.store.lsm import ids_of, merge, read_runs


def read_ids(connection: sqlite3.Connection) -> list[bytes]:
    """The ids of all reports, of all tasks and rounds."""
    found: list[bytes] = []
    for section in merge(connection, read_runs(connection)):
        found += ids_of(section.keys).tolist()
    return found


def stored_ids(store: Path) -> list[bytes]:
    """The ids of all reports in a file, at one moment."""
    return counted_ids(store)[0]


def counted_ids(store: Path) -> tuple[list[bytes], int]:
    """The ids of all reports in a file, and how many the tallies have, at one moment."""
    with closing(sqlite3.connect(store, timeout=30, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        ids = read_ids(reader)
        (n,) = reader.execute("SELECT coalesce(sum(n), 0) FROM tally").fetchone()
    return ids, n


def drop_reports(store: Path) -> None:
    """Delete all reports, and leave the tallies."""
    with closing(sqlite3.connect(store, timeout=30, isolation_level=None)) as writer:
        writer.executescript("BEGIN IMMEDIATE; DELETE FROM run; DELETE FROM chunk; COMMIT;")
