"""The durable state: created with care, never trusted blindly, never started over."""

import asyncio
import os
import re
import shutil
import sqlite3
import stat
import threading
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from waiting import wait_until

from hush_client.state import database, ledger, outbox
from hush_client.state.database import FILE_NAME, DeviceState
from hush_common.errors import StateError

ONE_CHARGE = """
INSERT INTO charge (device, task, round, digest, purpose, mechanism, epsilon, report_id, charged_at) VALUES
    ('d', 'heights', 0, CAST('12345678' AS BLOB), 'workplaces', 'laplace', '1/1',
    zeroblob(16), '2026-01-01T00:00:00+00:00');
INSERT INTO account VALUES ('d', 'workplaces', '1/1');
INSERT INTO outbox (sequence, topic, payload) VALUES (7, 'hush/v1/reports/heights/d', CAST('report' AS BLOB));
INSERT INTO identity VALUES (1, 'device-1');
"""
"""With its report waiting."""


async def open_and_close(directory: Path) -> None:
    state = await DeviceState.open(directory)
    await state.close()


async def test_the_state_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    await open_and_close(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in directory.iterdir()] == [FILE_NAME]


async def test_every_commit_is_on_the_disk_before_it_is_told(tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path)
    assert await state.run(lambda c: c.execute("PRAGMA synchronous").fetchone()) == (2,)
    assert await state.run(lambda c: c.execute("PRAGMA journal_mode").fetchone()) == ("wal",)
    await state.close()


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("charge", "digest", "'12345678'"), ("pin", "task", "x'00'"), ("account", "spent", "x'00'")],
)
async def test_a_value_of_another_type_is_damage(tmp_path: Path, table: str, column: str, value: str) -> None:
    await open_and_close(tmp_path)
    rows = {
        "charge": "('d', 't', 0, x'00', 'p', 'laplace', '1/1', x'00', '2026-01-01', 'draw', NULL, 0)",
        "pin": "('d', 't', x'00')",
        "account": "('d', 'p', '1/1')",
    }
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute(f"INSERT INTO {table} VALUES {rows[table]}")  # noqa: S608
        connection.execute(f"UPDATE {table} SET {column} = {value}")  # noqa: S608
    connection.close()
    with pytest.raises(StateError, match=rf"{table} .*damaged"):
        await DeviceState.open(tmp_path)


async def test_a_name_that_cannot_be_part_of_a_topic_is_damage(tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path)
    assert await state.run(database.device_name) == await state.run(database.device_name)
    await state.run(lambda connection: connection.execute("UPDATE identity SET device = 'a/b'"))
    with pytest.raises(StateError, match="damaged"):
        await state.run(database.device_name)
    await state.close()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (b"", "another program"),
        (b"not a database" * 100, "is damaged"),
        (b"SQLite format 3\0", "is damaged"),
    ],
)
async def test_a_damaged_state_is_never_started_over(tmp_path: Path, damage: bytes, complaint: str) -> None:
    (tmp_path / FILE_NAME).write_bytes(damage)
    with pytest.raises(StateError, match=complaint) as caught:
        await DeviceState.open(tmp_path)
    assert "restore no backup" in str(caught.value)
    assert (tmp_path / FILE_NAME).read_bytes() == damage


def test_the_remedy_for_damage_is_the_one_of_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "device.md").read_text(encoding="utf-8")
    title = re.search(r"docs/device.md: (.+?)\)", ledger.LOST)
    assert title is not None
    assert f"- **{title[1]}**, or the state damaged" in guide
    assert "**Do not restore an old backup" in guide
    assert ledger.LOST.startswith("restore no backup")


async def test_a_page_gone_bad_is_found(tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path)
    for _ in range(200):
        await state.run(lambda c: outbox.put(c, "topic", b"x" * 100))
    await state.close()
    content = bytearray((tmp_path / FILE_NAME).read_bytes())
    content[-8192:] = os.urandom(8192)
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(StateError, match="restore no backup"):
        await DeviceState.open(tmp_path)


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (1, "reads 7; .*move it away"),
        (6, "reads 7; .*move it away"),
        (8, "reads 7; .*newer hush"),
    ],
)
async def test_a_state_of_another_version_is_left_alone(tmp_path: Path, version: int, remedy: str) -> None:
    await open_and_close(tmp_path)
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(StateError, match=f"has schema version {version}.*{remedy}") as caught:
        await DeviceState.open(tmp_path)
    assert "\n" not in str(caught.value)
    assert (tmp_path / FILE_NAME).read_bytes() == before


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()
    with pytest.raises(StateError, match="from another program"):
        await DeviceState.open(tmp_path)


async def test_a_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="file"):
        await DeviceState.open(tmp_path / "file")


async def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")  # what root, who may run this test, never sees

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StateError, match=r"Permission denied.*writable"):
        await DeviceState.open(tmp_path / "state")


async def test_a_file_that_turned_read_only_is_named(tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path)
    await state.run(lambda c: c.execute("SELECT 1").fetchone())
    await state.run(lambda c: c.execute("PRAGMA query_only = ON"))
    with pytest.raises(StateError, match="writable"):
        await state.run(lambda c: outbox.put(c, "topic", b"x"))
    await state.close()


async def test_a_failed_statement_rolls_back_its_transaction(tmp_path: Path) -> None:
    def half(connection: sqlite3.Connection) -> None:
        outbox.put(connection, "topic", b"half")
        connection.execute("INSERT INTO nowhere VALUES (1)")

    state = await DeviceState.open(tmp_path)
    with pytest.raises(StateError, match="no such table: nowhere"):
        await state.run(half)
    assert await state.run(outbox.count) == 0
    await state.close()


async def test_a_state_that_another_process_keeps_locked_is_named(tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path)
    await state.run(lambda c: c.execute("PRAGMA busy_timeout = 1"))
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateError, match="locked"):
        await state.run(outbox.count)
    other.close()
    assert await state.run(outbox.count) == 0
    await state.close()


async def test_simultaneous_openings_share_one_file(tmp_path: Path) -> None:
    states = await asyncio.gather(*(DeviceState.open(tmp_path) for _ in range(5)))
    names = [await state.run(database.device_name) for state in states]
    assert len(set(names)) == 1
    for state in states:
        await state.close()


async def test_the_second_process_that_creates_a_state_uses_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    monkeypatch.setattr(Path, "exists", lambda _: False)  # as a process sees it that looked a moment ago
    for _ in range(2):
        state = await DeviceState.open(tmp_path)
        names.append(await state.run(database.device_name))
        await state.close()
    assert names[0] == names[1]


async def test_a_new_state_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Traced(sqlite3.Connection):
        def executescript(self, script: str) -> sqlite3.Cursor:
            events.append(f"synchronous {self.execute('PRAGMA synchronous').fetchone()[0]}")
            return super().executescript(script)

    def synced(descriptor: int) -> None:
        events.append("directory synced" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file synced")

    monkeypatch.setattr("hush_client.state.database.sqlite3.connect", partial(sqlite3.connect, factory=Traced))
    monkeypatch.setattr("hush_client.state.database.os.fsync", synced)
    await open_and_close(tmp_path)
    assert events == ["synchronous 2", "directory synced"]


async def test_calls_that_wait_together_are_committed_together(tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path)
    statements: list[str] = []
    await state.run(lambda c: c.set_trace_callback(statements.append))
    statements.clear()
    await asyncio.gather(*(state.run(lambda c: outbox.put(c, "topic", b"x")) for _ in range(100)))
    assert await state.run(outbox.count) == 100
    assert statements.count("COMMIT") == 2
    await state.close()


async def test_a_job_that_fails_undoes_itself_alone(tmp_path: Path) -> None:
    def half(connection: sqlite3.Connection) -> None:
        outbox.put(connection, "topic", b"half")
        raise RuntimeError("planted")

    state = await DeviceState.open(tmp_path)
    whole = asyncio.gather(state.run(lambda c: outbox.put(c, "topic", b"whole")), return_exceptions=True)
    with pytest.raises(RuntimeError, match="planted"):
        await state.run(half)
    await whole
    entries = await state.run(lambda c: outbox.page(c, 0, 10))
    assert [entry.payload for entry in entries] == [b"whole"]
    await state.close()


async def test_what_a_cancelled_caller_began_is_finished_and_told(tmp_path: Path) -> None:
    state, told = await DeviceState.open(tmp_path), asyncio.Event()
    call = asyncio.create_task(state.run(lambda c: outbox.put(c, "t", b"x"), after=lambda _: told.set()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait_for(told.wait(), 60)
    assert call.cancelled()
    assert await state.run(outbox.count) == 1
    await state.close()


async def test_a_call_that_is_cancelled_while_it_waits_does_nothing(tmp_path: Path) -> None:
    state, free = await DeviceState.open(tmp_path), threading.Event()
    first = asyncio.create_task(state.run(lambda _: free.wait(60)))
    await asyncio.sleep(0.01)  # the worker is busy
    calls = [asyncio.create_task(state.run(lambda c: outbox.put(c, "t", b"x"))) for _ in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    free.set()
    assert await asyncio.gather(*calls, return_exceptions=True) == [1, ANY, 2]
    assert calls[1].cancelled()
    assert await first
    assert await state.run(outbox.count) == 2
    await state.close()


async def test_closing_finishes_what_was_begun(tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path)
    calls = [asyncio.create_task(state.run(lambda c: outbox.put(c, "t", b"x"))) for _ in range(10)]
    await asyncio.sleep(0)
    await state.close()
    assert all(call.done() and call.result() for call in calls)


class Held:
    """Connections that are opened and closed only when a test lets them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.free = threading.Event(), threading.Event()
        self.opened: list[sqlite3.Connection] = []
        self._connect = sqlite3.connect
        monkeypatch.setattr("hush_client.state.database.sqlite3.connect", self._open)

    def _open(self, path: str, **options: Any) -> sqlite3.Connection:  # noqa: ANN401 - of sqlite3
        self.begun.set()
        assert self.free.wait(60)
        self.opened.append(self._connect(path, **options))
        return self.opened[-1]

    def is_closed(self) -> bool:
        try:
            self.opened[-1].execute("SELECT 1")
        except (IndexError, sqlite3.ProgrammingError):
            return bool(self.opened)
        return False


def test_an_opening_that_is_cancelled_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)

    async def give_up() -> None:
        opening = asyncio.create_task(DeviceState.open(tmp_path))
        await asyncio.to_thread(held.begun.wait, 60)
        opening.cancel()
        await asyncio.wait((opening,))
        assert opening.cancelled()

    asyncio.run(give_up())
    held.free.set()  # when the loop that wanted it has ended
    wait_until(held.is_closed)


@pytest.mark.parametrize("ends", [True, False], ids=["the loop ends", "the loop goes on"])
def test_a_cancelled_close_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ends: bool) -> None:
    held, busy = Held(monkeypatch), threading.Event()
    held.free.set()

    async def give_up() -> list[asyncio.Task[int]]:
        state = await DeviceState.open(tmp_path)
        first = asyncio.create_task(state.run(lambda _: busy.wait(60)))
        await asyncio.sleep(0.01)  # the worker is busy, and a second transaction waits
        calls = [asyncio.create_task(state.run(lambda c: outbox.put(c, "t", b"x"))) for _ in range(3)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(state.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))
        assert closing.cancelled()
        if not ends:
            busy.set()
            await asyncio.wait([first, *calls])
            assert [call.result() for call in calls] == [1, 2, 3]
            await state.close()
        return calls

    asyncio.run(give_up())
    busy.set()
    wait_until(held.is_closed)


async def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path)
    await state.run(lambda c: c.execute(f"PRAGMA max_page_count = {c.execute('PRAGMA page_count').fetchone()[0]}"))
    with pytest.raises(StateError, match="disk is full"):
        await state.run(lambda c: outbox.put(c, "topic", b"x" * 10_000))
    assert await state.run(outbox.count) == 0
    await state.close()


async def test_the_state_moves_with_its_file(tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path / "old")
    name = await state.run(database.device_name)
    await state.close()
    shutil.move(tmp_path / "old", tmp_path / "new place %41?#")
    state = await DeviceState.open(tmp_path / "new place %41?#")
    assert await state.run(database.device_name) == name
    await state.close()
