"""The durable state: created with care, never trusted blindly, never started over, on disks that fail."""

import asyncio
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from device_state import FILE_NAME, DeviceState, execute, opened_state

from hush_client.state import database, outbox
from hush_common.errors import StateError


@pytest.mark.parametrize(
    ("base", "directory"),
    [("/data", "/data/hush"), (None, "/home/d/.local/state/hush"), ("relative", "/home/d/.local/state/hush")],
)
def test_a_state_is_where_the_xdg_base_directories_have_it(
    monkeypatch: pytest.MonkeyPatch, base: str | None, directory: str
) -> None:
    monkeypatch.setenv("HOME", "/home/d")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if base is not None:
        monkeypatch.setenv("XDG_STATE_HOME", base)
    assert database.state_directory(None) == Path(directory)
    assert database.state_directory(Path("given")) == Path("given")


async def test_the_state_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    async with opened_state(directory) as state:
        assert await state.run(lambda c: c.execute("PRAGMA synchronous").fetchone()) == (2,)
        assert await state.run(lambda c: c.execute("PRAGMA journal_mode").fetchone()) == ("wal",)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in directory.iterdir()] == [FILE_NAME]


async def test_simultaneous_openings_and_moves_share_one_file(tmp_path: Path) -> None:
    states = await asyncio.gather(*(DeviceState.open(tmp_path / "old") for _ in range(5)))
    names = {await state.run(database.device_name) for state in states}
    for state in states:
        await state.close()
    shutil.move(tmp_path / "old", tmp_path / "new place %41?#")
    async with opened_state(tmp_path / "new place %41?#") as state:
        assert {await state.run(database.device_name)} == names


CHARGE = "INSERT INTO charge VALUES ('d', 't', 0, x'00', 'p', 'laplace', '1/1', x'00', '2026', 'draw', NULL, 0); "


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (f"{CHARGE} UPDATE charge SET digest = '12345678'", "charge .*damaged"),  # noqa: S608 - of this file
        ("INSERT INTO pin VALUES ('d', 't', x'00'); UPDATE pin SET task = x'00'", "pin .*damaged"),
        ("INSERT INTO account VALUES ('d', 'p', '1/1'); UPDATE account SET spent = x'00'", "account .*damaged"),
        ("PRAGMA user_version = 1", "version.* 7"),
        ("PRAGMA user_version = 6", "version.* 7"),
        ("PRAGMA user_version = 8", "7.*newer"),
    ],
)
async def test_a_file_that_is_not_as_hush_writes_it_is_left_alone(tmp_path: Path, script: str, words: str) -> None:
    async with opened_state(tmp_path):
        pass
    execute(tmp_path, script)
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(StateError, match=words) as caught:
        await DeviceState.open(tmp_path)
    assert "\n" not in str(caught.value)
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("damage", [b"", b"not a database" * 100, b"SQLite format 3\0"])
async def test_a_damaged_state_is_never_started_over(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(damage)
    with pytest.raises(StateError, match=r"docs/device\.md"):
        await DeviceState.open(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == damage


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    execute(tmp_path, "CREATE TABLE other (x)")
    with pytest.raises(StateError, match="another program"):
        await DeviceState.open(tmp_path)
    with pytest.raises(StateError, match=FILE_NAME):
        await DeviceState.open(tmp_path / FILE_NAME)


async def test_a_page_gone_bad_is_found(tmp_path: Path) -> None:
    async with opened_state(tmp_path) as state:
        await state.run(lambda c: [outbox.put(c, "topic", b"x" * 100) for _ in range(200)])
    content = bytearray((tmp_path / FILE_NAME).read_bytes())
    content[-8192:] = os.urandom(8192)
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(StateError, match=r"docs/device\.md"):
        await DeviceState.open(tmp_path)


async def test_a_name_that_cannot_be_part_of_a_topic_is_damage(tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path)
    assert await state.run(database.device_name) == await state.run(database.device_name)
    await state.run(lambda connection: connection.execute("UPDATE identity SET device = 'a/b'"))
    with pytest.raises(StateError, match="damaged"):
        await state.run(database.device_name)
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
    await (await DeviceState.open(tmp_path)).close()
    assert events == ["synchronous 2", "directory synced"]


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
    async with opened_state(tmp_path) as state:
        begun, told, free = asyncio.Event(), asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def put(connection: sqlite3.Connection) -> None:
            loop.call_soon_threadsafe(begun.set)
            free.wait(60)
            outbox.put(connection, "t", b"x")

        call = asyncio.create_task(state.run(put, after=lambda _: told.set()))
        await begun.wait()
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled()
        free.set()
        await asyncio.wait_for(told.wait(), 60)
        assert await state.run(outbox.count) == 1


async def test_a_call_that_is_cancelled_while_it_waits_does_nothing(tmp_path: Path) -> None:
    async with opened_state(tmp_path) as state:
        busy, free = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        first = asyncio.create_task(state.run(lambda _: (loop.call_soon_threadsafe(busy.set), free.wait(60))))
        await busy.wait()
        calls = [asyncio.create_task(state.run(lambda c: outbox.put(c, "t", b"x"))) for _ in range(3)]
        await asyncio.sleep(0)
        calls[1].cancel()
        free.set()
        assert await asyncio.gather(*calls, return_exceptions=True) == [1, ANY, 2]
        assert calls[1].cancelled()
        await first
        assert await state.run(outbox.count) == 2


async def test_closing_finishes_what_was_begun(tmp_path: Path) -> None:
    state = await DeviceState.open(tmp_path)
    calls = [asyncio.create_task(state.run(lambda c: outbox.put(c, "t", b"x"))) for _ in range(10)]
    await asyncio.sleep(0)
    await state.close()
    assert all(call.done() and call.result() for call in calls)


class Held:
    """Connections that are opened only when a test lets them, and that tell when they are closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.free, self.closed = threading.Event(), threading.Event(), threading.Event()
        held, connect = self, sqlite3.connect

        class Connection(sqlite3.Connection):
            def close(self) -> None:
                super().close()
                held.closed.set()

        def opened(path: str, **options: Any) -> sqlite3.Connection:  # noqa: ANN401 - of sqlite3
            self.begun.set()
            assert self.free.wait(60)
            self.closed.clear()
            return connect(path, **options, factory=Connection)

        monkeypatch.setattr("hush_client.state.database.sqlite3.connect", opened)


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
    assert held.closed.wait(60)


@pytest.mark.parametrize("ends", [True, False], ids=["the loop ends", "the loop goes on"])
def test_a_cancelled_close_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ends: bool) -> None:
    held, begun, busy = Held(monkeypatch), threading.Event(), threading.Event()
    held.free.set()

    def hold(_: sqlite3.Connection) -> bool:
        begun.set()
        return busy.wait(60)

    async def give_up() -> None:
        state = await DeviceState.open(tmp_path)
        first = asyncio.create_task(state.run(hold))
        await asyncio.to_thread(begun.wait, 60)  # the worker is busy, and a second transaction waits
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

    asyncio.run(give_up())
    busy.set()
    assert held.closed.wait(60)


FULL = """
import asyncio, json, resource, sys
from pathlib import Path

from scripted_broker import ScriptedBroker
from hush_client import Gateway
from hush_common.errors import StateError

directory = Path(sys.argv[1])

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

async def main():
    broker = ScriptedBroker()
    async with Gateway(broker, name="g", state=directory, spread=0) as gateway:
        before = [await gateway.report(f"d{i}", "heights", 172.0) for i in range(3)]
        limit(max(file.stat().st_size for file in directory.iterdir()) + 200_000)
        sent, error = 3, ""
        while not error and sent < 200:
            try:
                await gateway.report(f"d{sent}", "heights", 172.0)
                sent += 1
            except StateError as caught:
                error = str(caught)
        arrived = len(set(broker.arrived))
        limit(resource.RLIM_INFINITY)
        after = await gateway.report(f"d{sent}", "heights", 172.0)
        spent = [(await gateway.ledger(f"d{i}")).spent for i in range(sent + 1)]
    print(json.dumps([sent, error, arrived, after.status, [int(s) for s in spent], len(set(broker.arrived))]))

asyncio.run(main())
"""


@pytest.mark.medium
@pytest.mark.face
def test_a_full_disk_spends_and_sends_nothing_until_there_is_room(tmp_path: Path) -> None:
    sent, error, arrived, after, spent, arrived_after = run(FULL, tmp_path)
    assert "disk" in error
    assert str(tmp_path) in error
    assert 3 < sent < 200
    assert arrived == sent
    assert after == "sent"
    assert spent == [1] * (sent + 1)
    assert arrived_after == sent + 1


READ_ONLY = """
import asyncio, json, os, sys, tempfile
from pathlib import Path

from scripted_broker import ScriptedBroker
from hush_client import Gateway
from hush_common.errors import StateError

async def report(directory):
    broker = ScriptedBroker()
    try:
        async with Gateway(broker, name="g", state=directory, spread=0) as gateway:
            return (await gateway.report("d", "heights", 172.0)).status
    except StateError as error:
        return str(error)

with tempfile.TemporaryDirectory() as root:
    os.chmod(root, 0o755)
    fresh, used = Path(root, "fresh"), Path(root, "used")
    fresh.mkdir()
    found = [asyncio.run(report(used))]  # everything is imported now: another user may not be able to
    for path in (*used.iterdir(), fresh, used):
        path.chmod(0o444 if path.is_file() else 0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)  # root may write anywhere
    found += [asyncio.run(report(fresh)), asyncio.run(report(used))]
    if os.getuid() == 0:
        os.seteuid(0)
    for path in (fresh, used):
        path.chmod(0o755)
print(json.dumps(found))
"""


@pytest.mark.medium
def test_a_directory_that_may_not_be_written_is_named_with_the_remedy(tmp_path: Path) -> None:
    writable, fresh, used = run(READ_ONLY, tmp_path)
    assert writable == "sent"
    for error, name in ((fresh, "fresh"), (used, "used")):
        assert f"{name}: " in error


def run(program: str, directory: Path) -> Any:  # noqa: ANN401 - JSON
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[1]), *sys.path))}
    command = [sys.executable, "-c", program, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
