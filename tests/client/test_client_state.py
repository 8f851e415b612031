"""A disk that fails for real: full by a limit of the kernel, or not writable by the user who runs the device."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FULL = """
import asyncio, json, resource, sys
from pathlib import Path

import pytest
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

import pytest
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
