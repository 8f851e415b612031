"""One sender for one state: a second one is refused, a killed one leaves no lock, a forked process uses its own."""

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from device_state import FILE_NAME, rows
from scripted_broker import ScriptedBroker

from hush_client import Gateway
from hush_common.errors import StateError


def opened(state: Path) -> Gateway:
    return Gateway(ScriptedBroker(), name="g", state=state, spread=0)


def run(program: str, directory: Path) -> subprocess.Popen[str]:
    """A process of its own that does something with the state in `directory`."""
    path = os.pathsep.join((str(Path(__file__).parents[1]), *sys.path))
    command = [sys.executable, "-W", "ignore", "-c", program, str(directory)]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)


@pytest.mark.virtual_time
async def test_a_second_gateway_on_the_same_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "state")
    async with opened(tmp_path / "state") as first:
        for way in ("state", "link"):
            with pytest.raises(StateError, match="another client") as caught:
                await opened(tmp_path / way).__aenter__()
            assert str(tmp_path / way) in str(caught.value)
        assert (await first.report("d", "heights", 172.0)).status == "sent"
        assert rows(tmp_path / "state", "SELECT device FROM charge") == ["d"], "the ledger can be read"
    async with opened(tmp_path / "link") as next_one:
        assert (await next_one.report("d", "heights", 172.0)).status == "already_answered"


@pytest.mark.virtual_time
async def test_a_client_that_waits_gets_the_lock_once_it_is_free(tmp_path: Path) -> None:
    first = opened(tmp_path)
    await first.__aenter__()
    closers = list[asyncio.Future[None]]()
    asyncio.get_running_loop().call_later(
        3, lambda: closers.append(asyncio.ensure_future(first.__aexit__(None, None, None)))
    )
    async with opened(tmp_path):
        assert closers


async def test_a_gateway_whose_state_is_damaged_keeps_no_lock(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 100)
    with pytest.raises(StateError, match="damaged") as caught:
        await opened(tmp_path).__aenter__()
    (tmp_path / FILE_NAME).unlink()
    async with opened(tmp_path):
        assert caught.tb is not None  # which keeps all that was on the stack
    with pytest.raises(StateError, match=FILE_NAME):
        await opened(tmp_path / FILE_NAME).__aenter__()


@pytest.mark.virtual_time
async def test_a_gateway_that_nobody_refers_to_keeps_no_lock(tmp_path: Path) -> None:
    gateway = opened(tmp_path)
    await gateway.__aenter__()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(1)
    del gateway
    gc.collect()
    async with opened(tmp_path):
        pass


HOLD = """
import asyncio, os, sys
from pathlib import Path
from scripted_broker import ScriptedBroker
from hush_client import Gateway

async def main():
    async with Gateway(ScriptedBroker(), name="g", state=Path(sys.argv[1]), spread=0) as gateway:
        await gateway.report("d", "heights", 172.0)
        if os.fork():
            print("holding", flush=True)
            await asyncio.Event().wait()
        else:
            sys.stdin.read()
            os._exit(0)

asyncio.run(main())
"""


@pytest.mark.medium
@pytest.mark.face
async def test_a_killed_process_leaves_no_lock_nor_does_its_child(tmp_path: Path) -> None:
    with run(HOLD, tmp_path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        with pytest.raises(StateError, match="another client"):
            await opened(tmp_path).__aenter__()
        holder.kill()
        holder.wait(60)  # its child lives on until its input ends
        async with opened(tmp_path) as gateway:
            assert (await gateway.report("d", "heights", 140.0)).status == "already_answered"


FORKS = """
import asyncio, multiprocessing, os, sys
from pathlib import Path
from scripted_broker import ScriptedBroker
from hush_client import Client, SyncClient

def client(name, kind=SyncClient):
    state = Path(sys.argv[1]) / way / name
    return kind("mqtt://h", device=name, state=state, spread=0, transport=ScriptedBroker())

def own():
    with client("own") as c:
        print(c.report("heights", 172.0).status, c.ledger().spent, flush=True)

async def own_async():
    async with client("own", Client) as c:
        print((await c.report("heights", 172.0)).status, flush=True)

def forked(work):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        return
    try:
        work()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(0)

def in_a_process(work):
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0

def while_open():
    with client("parent") as c:
        c.report("heights", 172.0)
        forked(own)
        in_a_process(own)
        print(c.ledger().spent, flush=True)
    forked(own)

def of_a_loop():
    async def main():
        async with client("parent", Client) as c:
            await c.report("heights", 172.0)
            in_a_process(lambda: asyncio.run(own_async()))
    asyncio.run(main())

def inherited():
    with client("parent") as c:
        forked(lambda: c.report("heights", 172.0, timeout=3))
        forked(lambda: (c.__exit__(None, None, None), print("closed", flush=True)))
        print(c.report("heights", 172.0).status, flush=True)

def inherited_async():
    async def main():
        async with client("parent", Client) as c:
            forked(lambda: asyncio.run(c.report("heights", 172.0, timeout=3)))
            await c.report("heights", 172.0)
            forked(c.tasks)
            print(*c.tasks(), flush=True)
    asyncio.run(main())

for way in ("while_open", "of_a_loop", "inherited", "inherited_async"):
    print(way, flush=True)
    globals()[way]()
"""


@pytest.mark.medium
@pytest.mark.face
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_process_answers_with_a_client_of_its_own_only(tmp_path: Path) -> None:
    with run(FORKS, tmp_path) as process:
        printed = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 0
    parts = [line.partition(":")[0] for line in printed]
    assert parts == [
        *("while_open", "sent 1", "already_answered 1", "1", "already_answered 1"),
        *("of_a_loop", "sent"),
        *("inherited", "RuntimeError", "closed", "sent"),
        *("inherited_async", "RuntimeError", "RuntimeError", "heights"),
    ]
    assert all("state directory" in line for line in printed if line.startswith("RuntimeError"))


WRITING = """
import os, threading, time
from hush_common.aio import WorkerThread

started, written = threading.Event(), []

def write():
    started.set()
    time.sleep(0.3)
    written.append(1)

WorkerThread("state").submit(write)
started.wait()
child = os.fork()
if not child:
    os._exit(len(written))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.medium
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_fork_waits_until_no_thread_is_inside_sqlite(tmp_path: Path) -> None:
    """A child that inherits a lock of SQLite, which a thread of its parent held, waits for ever at its first call."""
    with run(WRITING, tmp_path) as process:
        assert process.communicate(timeout=60)[0] == "1\n"
