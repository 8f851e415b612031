"""The durable state of a device: its directory, the lock, and one SQLite file behind a worker thread.

Calls that wait for the worker at the same time are committed together, with one fsync. Each runs in its own savepoint,
so that a call that fails rolls back alone; none returns before the common COMMIT is on the disk.
"""

import asyncio
import json
import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self, TypeVar

from hush_client.policy import Policy
from hush_client.state import ledger, outbox
from hush_common.address import looks_like_address
from hush_common.aio import WorkerThread
from hush_common.errors import EpsilonError, StateError
from hush_common.files import FileLock, draft_of, find_world_writable_parent, replace_file
from hush_common.rng import SystemRng
from hush_common.topics import is_sender

FILE_NAME = "hush.sqlite3"
LOCK_NAME = "hush.lock"
_POLICY_NAME = "policy.json"

_T = TypeVar("_T")
Job = Callable[[sqlite3.Connection], _T]

_LOCK_WAIT = 5.0  # seconds; two commands of cron at the same minute take turns
_LOCK_PAUSE = 0.05
_VERSION = 7  # of the schema
_MENDED = {"kept", "dropped", "recall", "planned"}
"""Tables on which no spending depends: `outbox.mend` deletes their damaged rows, which block no ledger."""
_APPLICATION = 0x68757368  # "hush", the SQLite application id of our file
_BUSY_SECONDS = 5
_BATCH_LIMIT = 512
_SCHEMA = f"""
BEGIN;
{ledger.SCHEMA}
{outbox.SCHEMA}
CREATE TABLE identity (one INTEGER PRIMARY KEY CHECK (one = 1), device TEXT NOT NULL);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
COMMIT;
"""

_WORKER = WorkerThread("hush-state")
"""One thread for all states of a process: with one each, fifty gateways spend four times as long handing the
interpreter lock around as working."""


def state_directory(given: Path | None) -> Path:
    """Return `given`, or `$XDG_STATE_HOME/hush`, or `~/.local/state/hush`; StateError for an address."""
    if given is not None:
        if looks_like_address(str(given)):
            raise StateError("state: this is an address, and a state is in a directory; name one, as in ./NAME")
        return given
    base = os.environ.get("XDG_STATE_HOME", "")
    home = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    return home / "hush"


def make_private(directory: Path) -> None:
    """Create `directory` and missing parents for the owner alone; check who may write to an existing one.

    Anyone who may write to it, or to a directory above it, can replace the ledger by one that has spent nothing.

    Raises:
        StateError: it cannot be created, is not a directory, or others may write to it, or everybody to a parent.
    """
    try:
        for missing in reversed([place for place in (directory, *directory.parents) if not place.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        found = directory.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(0, "it is not a directory")
        above = find_world_writable_parent(directory)
    except OSError as error:
        raise unusable(directory, error) from error
    if sys.platform != "win32" and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StateError(
            f"{directory}: other users may write to it, and so replace the ledger; name your own directory, or "
            "remove their permissions (chmod 700)"
        )
    if above is not None:
        raise StateError(
            f"{directory}: every user may write to {above}, and so replace the ledger; name a directory elsewhere, or "
            f"remove that permission (chmod o-w {above})"
        )


def unusable(directory: Path, error: OSError) -> StateError:
    return StateError(
        f"{directory}: cannot hold the state of a device ({error.strerror}); name a directory that is writable"
    )


def store_policy(directory: Path, policy: Policy) -> None:
    """Store the limits of the program that answers from a state, for `hush ledger` to show. They limit nothing."""
    limits = {"lifetime": str(policy.lifetime), "total": None if policy.total is None else str(policy.total)}
    content = json.dumps(limits).encode()
    path = directory / _POLICY_NAME
    with suppress(OSError):
        if not path.exists() or path.read_bytes() != content:
            replace_file(path, content)


def stored_policy(directory: Path) -> Policy | None:
    """Return the limits of the last program that answered from a state; None if there was none."""
    try:
        limits = json.loads((directory / _POLICY_NAME).read_bytes())
        total = limits["total"]
        return Policy(lifetime=Fraction(limits["lifetime"]), total=None if total is None else Fraction(total))
    except (OSError, ValueError, ArithmeticError, LookupError, TypeError, EpsilonError):
        return None


class Lock(FileLock):
    """The lock of a state directory: two senders for one outbox would send every report twice."""

    @classmethod
    async def acquire(cls, directory: Path) -> Self:
        """Lock `directory`, created if necessary; StateError if another process holds it for seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LOCK_WAIT
        while (lock := cls._try(directory)) is None:
            if loop.time() >= deadline:
                raise StateError(
                    f"{directory}: another client is sending from this state; stop it, "
                    "or give each client its own state directory"
                )
            await asyncio.sleep(_LOCK_PAUSE)
        return lock

    @classmethod
    def _try(cls, directory: Path) -> Self | None:
        make_private(directory)
        try:
            return cls.take(directory / LOCK_NAME)
        except OSError as error:
            raise unusable(directory, error) from error


def device_name(connection: sqlite3.Connection) -> str:
    """Return the name of a device that was given none: random, made once, saved. StateError if it is damaged."""
    fresh = f"device-{SystemRng().token_bytes(8).hex()}"
    connection.execute("INSERT OR IGNORE INTO identity VALUES (1, ?)", (fresh,))
    (name,) = connection.execute("SELECT device FROM identity").fetchone()
    if not is_sender(str(name)):
        raise StateError(f"the state holds no device name; {ledger.DAMAGED}")
    return str(name)


@dataclass(slots=True)
class _Call:
    job: Job[Any]
    after: Callable[[Any], None] | None
    future: asyncio.Future[Any]


class DeviceState:
    """The state in a directory: `await DeviceState.open(directory)`, then `run` jobs, then `close`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._waiting: list[_Call] = []
        self._worker: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, directory: Path) -> "DeviceState":
        """Open the state in `directory`, or create it; StateError if it cannot be created, opened or trusted."""
        path, opened = directory / FILE_NAME, list[sqlite3.Connection]()
        try:
            await asyncio.get_running_loop().run_in_executor(_WORKER, lambda: opened.append(_open(path)))
        except BaseException:  # cancelled: the loop may end before the worker has opened it
            _WORKER.submit(_close_all, opened)
            raise
        return cls(path, opened.pop())

    async def run(self, job: Job[_T], after: Callable[[_T], None] | None = None) -> _T:
        """Run `job` in the worker thread, in a transaction; return its result once that is on the disk.

        An error of the job rolls it back. `after` is called in the event loop with the result right after the commit,
        even if the caller was cancelled.

        Raises:
            StateError: the disk is full, or the file is locked, damaged or gone; nothing was changed.
        """
        if self._closing is not None:
            raise StateError(f"{self._path}: is already closed; open it again")
        call = _Call(job, after, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="hush-state")
        result: _T = await call.future
        return result

    async def close(self) -> None:
        """Finish the running jobs and close the file, even if the caller is cancelled."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._finish(), name="hush-state-close")
        await asyncio.shield(self._closing)

    async def _finish(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            if self._worker is not None:
                await asyncio.wait((self._worker,))
            with suppress(sqlite3.Error):  # everything is committed; SQLite tidies up at the next start
                await loop.run_in_executor(_WORKER, self._connection.close)
        except BaseException:  # the loop ends
            _WORKER.submit(self._connection.close)
            raise

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            calls = [call for call in self._waiting[:_BATCH_LIMIT] if not call.future.cancelled()]
            del self._waiting[:_BATCH_LIMIT]
            results = await loop.run_in_executor(_WORKER, self._commit, [call.job for call in calls])
            for call, result in zip(calls, results, strict=True):
                _deliver(call, result)

    def _commit(self, jobs: list[Job[Any]]) -> list[Any]:
        """Run all jobs in one transaction; return a result or an exception for each."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            results = [_attempt(connection, job) for job in jobs]
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                connection.execute("ROLLBACK")
            return [_state_error(self._path, error) for _ in jobs]
        return results


def _attempt(connection: sqlite3.Connection, job: Job[Any]) -> Any:  # noqa: ANN401 - whatever the job returns
    connection.execute("SAVEPOINT job")
    try:
        result = job(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - handed to the caller, who raises it
        connection.execute("ROLLBACK TO job")
        result = error
    connection.execute("RELEASE job")
    return result


def _deliver(call: _Call, result: Any) -> None:  # noqa: ANN401 - whatever the job returned
    if isinstance(result, Exception):
        if not call.future.done():
            call.future.set_exception(result)
        return
    if call.after is not None:
        call.after(result)
    if not call.future.done():
        call.future.set_result(result)


def _close_all(connections: Iterable[sqlite3.Connection]) -> None:
    for connection in connections:
        connection.close()


def _open(path: Path) -> sqlite3.Connection:
    try:
        make_private(path.parent)
        if not path.exists():
            _create(path)
        return _connect(path)
    except OSError as error:
        raise unusable(path.parent, error) from error
    except sqlite3.Error as error:
        raise _state_error(path, error) from error


def _create(path: Path) -> None:
    """Build a draft and link it into place: under its name the file is always complete, and never replaced.

    Without a write-ahead log: on a full disk SQLite may fail silently to copy it into the file when it is closed.
    """
    with draft_of(path) as draft:
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(_SCHEMA)
            with suppress(FileExistsError):  # another process was first; its file is equal
                os.link(draft, path)
        finally:
            draft.with_name(f"{draft.name}-journal").unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def _connect(path: Path) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode=rw"  # never creates a file
    connection = sqlite3.connect(
        address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # otherwise macOS leaves the bytes in the cache of the disk
        _check(path, connection)
        connection.execute("PRAGMA journal_mode = WAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(path: Path, connection: sqlite3.Connection) -> None:
    """Check that the file is a state: an empty or foreign one would start the spending again at zero."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise StateError(
            f"{path}: is not the state of a device (empty, or from another program); if it was one, {ledger.LOST}"
        )
    if version != _VERSION:
        old = "a development version made it: move it away; a new state begins, which does not count its spending"
        remedy = old if version < _VERSION else "install a newer hush"
        raise StateError(f"{path}: has schema version {version}, this hush reads {_VERSION}; {remedy}")
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":  # perhaps only a row on which no spending depends
        outbox.mend(connection)
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok" or (verdict := _mistyped(connection)):
        raise sqlite3.DatabaseError(verdict)


def _mistyped(connection: sqlite3.Connection) -> str:
    """Name a table in which a value has another type than its column, which SQLite allows; empty if there is none."""
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    for table in {name for (name,) in tables} - _MENDED:
        columns = connection.execute("SELECT name, lower(type) FROM pragma_table_info(?)", (table,)).fetchall()
        wrong = " OR ".join(f"typeof({name}) NOT IN ('{kind}', 'null')" for name, kind in columns)
        if connection.execute(f"SELECT 1 FROM {table} WHERE {wrong}").fetchone():  # noqa: S608 - names of our own schema
            return f"a value in {table} has the wrong type"
    return ""


def _state_error(path: Path, error: sqlite3.Error) -> StateError:
    match error.sqlite_errorcode & 0xFF if hasattr(error, "sqlite_errorcode") else sqlite3.SQLITE_CORRUPT:
        case sqlite3.SQLITE_FULL:
            remedy = "the disk is full; nothing was spent or sent; make room and try again"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            remedy = "another process has locked it; stop that process, or give each its own state directory"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            remedy = "it cannot be written; make file and directory writable"
        case sqlite3.SQLITE_IOERR:
            remedy = "the disk is failing or full; nothing was spent or sent; check it and try again"
        case _:
            remedy = f"the file is damaged; {ledger.LOST}"
    return StateError(f"{path}: {error}: {remedy}")
