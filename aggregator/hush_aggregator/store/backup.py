"""Back up and restore a store: a whole file or none."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from hush_aggregator.store.reading import translated
from hush_aggregator.store.schema import check
from hush_aggregator.store.sqlite import take_lock
from hush_common.errors import StoreError
from hush_common.files import draft_of, sync

_SIDES = ("-wal", "-shm", "-journal")
_FURTHER = 1 << 32  # more transactions than the store had since its backup: its version goes on rising


def back_up(store: Path, file: Path) -> int:
    """Copy a store into a file that is not there yet; return how many reports are counted in it.

    Raises:
        StoreError: there is no such store, it is damaged, or the file is there already or cannot be written.
    """
    if file.exists():
        raise StoreError(f"{file}: is there already; name a new file, or remove it")
    return _copy(store, file, restored=False)


def put_back(file: Path, store: Path, *, replace: bool) -> int:
    """Copy a backup to where a store is to be, marked as put back; return how many reports are counted in it.

    Raises:
        StoreError: an aggregator uses the store, it is there and is not to be replaced, or the backup is none.
    """
    lock = take_lock(store)
    try:
        if store.exists() and not replace:
            raise StoreError(f"{store}: is there already; move it away, or give --replace to lose what is in it")
        return _copy(file, store, restored=True)
    finally:
        lock.release()


def _copy(source: Path, target: Path, *, restored: bool) -> int:
    if not source.is_file():
        raise StoreError(f"{source}: there is no such file; name the store of an aggregator, or its backup")
    try:
        with draft_of(target) as draft:
            reports = _write_copy(source, draft, restored=restored)
            _gather(target)
            for side in _SIDES:  # of the replaced store: SQLite would take them for those of the new one
                target.with_name(f"{target.name}{side}").unlink(missing_ok=True)
            draft.replace(target)
    except OSError as error:
        raise StoreError(
            f"{target}: cannot be written ({error.strerror}); name a writable directory with room"
        ) from error
    return reports


def _write_copy(source: Path, draft: Path, *, restored: bool) -> int:
    with translated(source), closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as there:
        check(source, there)
        with closing(sqlite3.connect(draft, isolation_level=None)) as here:
            there.backup(here)  # in one step: what is written meanwhile is not in it, and waits for nothing
            here.execute("PRAGMA journal_mode = DELETE")  # one file, without sides
            if restored:
                here.execute("UPDATE identity SET restored = 1, version = version + ?", (_FURTHER,))
            reports = _checked(draft, here)
    sync(draft)
    return reports


def _gather(store: Path) -> None:
    """Bring what a store that is there has in its sides into its file: until it is replaced it stays whole."""
    if store.is_file():
        with suppress(sqlite3.Error), closing(sqlite3.connect(store)) as there:  # a damaged one stays as it is
            there.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _checked(path: Path, copy: sqlite3.Connection) -> int:
    """See that all of it can be read, reports included; return how many there are."""
    (verdict,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(f"{path}: the copy is damaged ({verdict}); so is the store, or the disk")
    check(path, copy)
    (reports,) = copy.execute("SELECT coalesce(sum(n), 0) FROM tally").fetchone()
    return int(reports)
