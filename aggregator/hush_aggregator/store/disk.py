"""The disk of a store: what it takes, what is left, and when it was backed up."""

import errno
import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hush_common.files import replace_file

_SIDES = ("", "-wal", "-shm", ".quota", ".notify")


@dataclass(frozen=True, slots=True)
class StoreDisk:
    """Bytes of the files of a store, and bytes that are free where they are."""

    used: int
    free: int


_APART = timedelta(hours=6)  # the growth of a shorter time says little about a day


@dataclass(frozen=True, slots=True)
class BackupMark:
    """What `hush store backup` leaves next to a store. It says when an operator made a copy, and nothing of a report.

    Args:
        at: aware time, to the minute.
        used: bytes of the store's files then.
        before: the last one that is at least six hours older; None if there is none.
    """

    at: datetime
    used: int
    before: "BackupMark | None" = None

    def growth(self, now: datetime, used: int) -> tuple["BackupMark", float] | None:
        """Return how many bytes a day the store has grown, and since which backup; None if that is too recent."""
        for mark in (self, self.before):
            if mark is not None and now - mark.at >= _APART:
                return mark, (used - mark.used) / ((now - mark.at) / timedelta(days=1))
        return None


def disk_of(store: Path) -> StoreDisk:
    """Return the disk of a store; an OSError if its directory cannot be read."""
    used = 0
    for side in _SIDES:
        try:
            used += store.with_name(f"{store.name}{side}").stat().st_size
        except FileNotFoundError:  # most come and go
            continue
    return StoreDisk(used, shutil.disk_usage(store.parent).free)


def note_backup(store: Path, now: datetime) -> None:
    """Leave a mark that a store was backed up; an OSError if it cannot be written."""
    last = read_backup(store)
    before = last if last is None or now - last.at >= _APART else last.before
    document = {"v": 1, **_fields(BackupMark(now, disk_of(store).used))}
    if before is not None:
        document["before"] = _fields(before)
    replace_file(_mark(store), json.dumps(document).encode())


def read_backup(store: Path) -> BackupMark | None:
    """Return the mark of the last backup; None if there is none that can be read."""
    try:
        document = json.loads(_mark(store).read_bytes())
        before = document.get("before")
        return replace(_read(document), before=None if before is None else _read(before))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def is_in_use(store: Path) -> bool:
    """Whether an aggregator counts into a store; an OSError if that cannot be found out.

    Reading the file that it locks disturbs it as little as reading the store.
    """
    side = store.resolve()
    side = side.with_name(f"{side.name}.lock")
    if not side.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{side.as_uri()}?mode=ro", uri=True, timeout=0)) as lock:
            lock.execute("SELECT count(*) FROM sqlite_schema")
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            return True
        raise OSError(errno.EIO, str(error), str(side)) from error
    return False


def _fields(mark: BackupMark) -> dict[str, object]:
    return {"at": mark.at.astimezone(UTC).isoformat(timespec="minutes"), "bytes": mark.used}


def _read(document: Mapping[str, str]) -> BackupMark:
    """Return a mark; raise a ValueError, KeyError or TypeError if it is damaged."""
    at = datetime.fromisoformat(document["at"])
    if at.utcoffset() is None:
        raise ValueError("a time without a time zone")
    return BackupMark(at, int(document["bytes"]))


def _mark(store: Path) -> Path:
    return store.with_name(f"{store.name}.backup")
