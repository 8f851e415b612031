"""One sender for one state: whoever comes second is told, and a killed one leaves nothing behind."""

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_broker import ScriptedBroker

from hush_client import Gateway
from hush_client.state.database import FILE_NAME, DeviceState, Lock
from hush_common.errors import StateError

HOLD = """
import asyncio, sys
from pathlib import Path
from scripted_broker import ScriptedBroker
from hush_client import Gateway

async def main():
    async with Gateway(ScriptedBroker(), name="g", state=Path(sys.argv[1]), spread=0) as gateway:
        await gateway.report("d", "heights", 172.0)
        print("holding", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def run(program: str, directory: Path) -> subprocess.Popen[bytes]:
    """A process of its own that does something with the state in `directory`."""
    path = os.pathsep.join((str(Path(__file__).parents[1]), *sys.path))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore", "-c", program, str(directory)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


@pytest.mark.virtual_time
async def test_a_second_gateway_on_the_same_state_is_refused(tmp_path: Path) -> None:
    async with Gateway(ScriptedBroker(), name="g", state=tmp_path, spread=0) as first:
        second = Gateway(ScriptedBroker(), name="g", state=tmp_path, spread=0)
        with pytest.raises(StateError, match="state directory") as caught:
            await second.__aenter__()
        assert str(tmp_path) in str(caught.value)
        assert (await first.report("d", "heights", 172.0)).status == "sent"


@pytest.mark.virtual_time
async def test_a_symbolic_link_does_not_open_a_second_door(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "state")
    async with Gateway(ScriptedBroker(), name="g", state=tmp_path / "state", spread=0):
        with pytest.raises(StateError, match="another client"):
            await Gateway(ScriptedBroker(), name="g", state=tmp_path / "link", spread=0).__aenter__()


async def test_the_next_gateway_gets_in_when_the_first_is_closed(tmp_path: Path) -> None:
    for _ in range(2):
        async with Gateway(ScriptedBroker(), name="g", state=tmp_path, spread=0) as gateway:
            assert (await gateway.report("d", "heights", 172.0)).spent == 1


@pytest.mark.virtual_time
async def test_a_client_that_waits_gets_the_lock_once_it_is_free(tmp_path: Path) -> None:
    first = await Lock.acquire(tmp_path)
    asyncio.get_running_loop().call_later(3, first.release)
    (await Lock.acquire(tmp_path)).release()


@pytest.mark.medium
async def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    with run(HOLD, tmp_path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holding\n"
        with pytest.raises(StateError, match="another client"):
            await Lock.acquire(tmp_path)
        holder.kill()
        holder.wait(60)
    async with Gateway(ScriptedBroker(), name="g", state=tmp_path, spread=0) as gateway:
        assert (await gateway.report("d", "heights", 140.0)).status == "already_answered"


FORK = """
import asyncio, os, sys, time
from pathlib import Path
from hush_client.state.database import Lock

lock = asyncio.run(Lock.acquire(Path(sys.argv[1])))
if os.fork():
    os._exit(0)
print("forked", flush=True)
sys.stdin.read()
"""


@pytest.mark.medium
async def test_a_process_that_was_forked_does_not_keep_the_lock(tmp_path: Path) -> None:
    with run(FORK, tmp_path) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"forked\n"
        assert parent.wait(60) == 0  # the child lives on until its input ends
        (await Lock.acquire(tmp_path)).release()


async def test_a_gateway_whose_state_cannot_be_opened_keeps_no_lock(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 100)
    with pytest.raises(StateError, match="is damaged") as caught:
        await Gateway(ScriptedBroker(), name="g", state=tmp_path, spread=0).__aenter__()
    (await Lock.acquire(tmp_path)).release()
    assert caught.tb is not None  # which keeps all that was on the stack


async def test_the_ledger_can_be_read_while_a_gateway_sends(tmp_path: Path) -> None:
    async with Gateway(ScriptedBroker(), name="g", state=tmp_path, spread=0) as gateway:
        await gateway.report("d", "heights", 172.0)
        state = await DeviceState.open(tmp_path)
        assert await state.run(_charges) == 1
        await state.close()


def _charges(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM charge").fetchone()
    return int(count)


async def test_a_lock_that_nobody_refers_to_is_released(tmp_path: Path) -> None:
    lock = await Lock.acquire(tmp_path)
    del lock
    gc.collect()
    (await Lock.acquire(tmp_path)).release()


async def test_a_directory_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="file"):
        await Lock.acquire(tmp_path / "file")
