"""A forked process: it may use clients of its own, and gets one clear error from a client of its parent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, multiprocessing, os, sys
from pathlib import Path
from scripted_broker import ScriptedBroker
from hush_client import Client, Gateway, SyncClient

def client(name, kind=SyncClient):
    return kind("mqtt://h", device=name, state=Path(sys.argv[1]) / name, spread=0, transport=ScriptedBroker())

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

def after_close():
    with client("parent") as c:
        c.report("heights", 172.0)
    forked(own)

def while_open():
    with client("parent") as c:
        c.report("heights", 172.0)
        forked(own)
        print(c.ledger().spent)

def of_a_process():
    with client("parent") as c:
        c.report("heights", 172.0)
        in_a_process(own)

def of_a_loop():
    async def main():
        async with client("parent", Client) as c:
            await c.report("heights", 172.0)
            in_a_process(lambda: asyncio.run(own_async()))
    asyncio.run(main())

def inherited():
    with client("parent") as c:
        forked(lambda: c.report("heights", 172.0, timeout=3))
        print(c.report("heights", 172.0).status)

def inherited_and_closed():
    with client("parent") as c:
        forked(lambda: (c.__exit__(None, None, None), print("closed", flush=True)))
        print(c.report("heights", 172.0).status)

def inherited_async():
    async def main():
        async with client("parent", Client) as c:
            forked(lambda: asyncio.run(c.report("heights", 172.0, timeout=3)))
            print((await c.report("heights", 172.0)).status)
    asyncio.run(main())

def inherited_tasks():
    async def main():
        async with client("parent", Client) as c:
            await c.report("heights", 172.0)
            forked(c.tasks)
            print(*c.tasks())
    asyncio.run(main())

globals()[sys.argv[2]]()
"""


@pytest.mark.large
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
@pytest.mark.parametrize(
    ("way", "lines"),
    [
        ("after_close", ["sent 1"]),
        ("while_open", ["sent 1", "1"]),
        ("of_a_process", ["sent 1"]),
        ("of_a_loop", ["sent"]),
        ("inherited", ["RuntimeError: …state directory", "sent"]),
        ("inherited_and_closed", ["closed", "sent"]),
        ("inherited_tasks", ["RuntimeError: …state directory", "heights"]),
        ("inherited_async", ["RuntimeError: …state directory", "sent"]),
    ],
)
def test_a_forked_process_answers_with_a_client_of_its_own_only(way: str, lines: list[str], tmp_path: Path) -> None:
    path = os.pathsep.join((str(Path(__file__).parents[1]), *sys.path))
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path), way]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    printed = done.stdout.splitlines()
    assert len(printed) == len(lines)
    for line, (start, _, end) in zip(printed, (line.partition("…") for line in lines), strict=True):
        assert line.startswith(start)
        assert line.endswith(end)
