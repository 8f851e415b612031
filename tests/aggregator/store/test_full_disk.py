"""A file system that is full when a state is created or at any write of a store, and has room again later."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from servers import Mosquitto, need
from steady_load import Load
from waiting import PATIENCE_S, wait_until

from hush_aggregator import SqliteReader
from hush_common.task import make_task

PROGRAM = """
import asyncio, json, subprocess, sys
from pathlib import Path
from hush_client.state.database import DeviceState
from hush_common.errors import StateError

disk = Path(sys.argv[1])

def mount(options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(disk)], check=True)

async def attempt():
    try:
        state = await DeviceState.open(disk / "state")
        await state.close()
    except StateError as error:
        return str(error)

async def main():
    found = []
    for size in range(12, 125, 4):
        mount(f"size={size}k")
        first = await attempt()
        left = [] if first is None else [path.name for path in (disk / "state").iterdir()]
        mount("remount,size=8m")
        found.append([first, left, await attempt()])
        subprocess.run(["umount", str(disk)], check=True)
    print(json.dumps(found))

asyncio.run(main())
"""


@pytest.mark.medium
def test_a_disk_that_is_full_at_the_first_start_bricks_no_device(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount a file system of their own")
    ran = subprocess.run(
        [unshare, "-rm", sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    refused = [first for first, *_ in found if first is not None]
    assert 2 < len(refused) < len(found)  # sizes on both sides of what a state needs
    assert all("room" in first for first in refused)
    for first, left, second in found:
        assert len(left) <= 1, first
        assert second is None


TASK_TOML = 'id = "heights"\nepsilon = 1\nrelease_every = "1m"\n[domain]\nkind = "number"\nlower = 0\nupper = 1\n'
NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
TASK = make_task({"id": "heights", "epsilon": "1", "release_every": "1m", "domain": NUMBER})


class FullDisk:
    """`hush serve` whose disk is full from a write on, in each of its threads."""

    def __init__(self, directory: Path, broker: str) -> None:
        self.store = directory / "hush.sqlite3"
        self._log = directory / "log"
        (directory / "task.toml").write_text(TASK_TOML, encoding="utf-8")
        options = ["--broker", broker, "--store", str(self.store), "--task", str(directory / "task.toml")]
        self._command = [sys.executable, "-m", "hush", "serve", *options]

    def start(self, full_at: int | None = None) -> "subprocess.Popen[bytes]":
        command = self._command
        if full_at is not None:
            paths = [f"--trace-path={self.store}{end}" for end in ("", "-wal", ".quota", ".quota-wal")]
            inject = f"--inject=pwrite64,write:error=ENOSPC:when={full_at}+"
            words = ["-f", "-qq", "-o", "/dev/null", "--trace=pwrite64,write"]
            command = [need("strace"), *words, inject, *paths, *command]
        with self._log.open("wb") as log:
            return subprocess.Popen(command, stderr=log, start_new_session=True)

    def log(self) -> str:
        return self._log.read_text("utf-8")

    def counted(self) -> int:
        with SqliteReader(self.store) as reader:
            return reader.counted_tally(TASK.digest, 0).n


def count_on_a_full_disk(directory: Path, mosquitto: Mosquitto, full_at: int) -> None:
    """Fill the disk while reports come: the service ends with one line. Then there is room: each counts once."""
    service = FullDisk(directory, mosquitto.url)
    first = service.start()
    wait_until(lambda: "connected to" in service.log())
    os.killpg(first.pid, signal.SIGTERM)
    assert first.wait(PATIENCE_S) == 0
    with Load(mosquitto.port, TASK) as load:
        full = service.start(full_at)
        try:
            assert full.wait(PATIENCE_S) == 1, service.log()
        finally:
            if full.poll() is None:
                os.killpg(full.pid, signal.SIGKILL)
        assert "full" in service.log().splitlines()[-1], service.log()
        assert "Traceback" not in service.log()
        last = service.start()
        load.end()
        wait_until(lambda: service.counted() == load.made)
    os.killpg(last.pid, signal.SIGTERM)
    assert last.wait(PATIENCE_S) == 0, service.log()
    assert service.counted() == load.made


@pytest.mark.large
@pytest.mark.parametrize("full_at", [1, 12])
def test_a_service_whose_disk_is_full_at_a_write_ends_with_one_line(
    tmp_path: Path, mosquitto: Mosquitto, full_at: int
) -> None:
    count_on_a_full_disk(tmp_path, mosquitto, full_at)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("full_at", range(1, 61))
def test_a_service_whose_disk_is_full_at_any_write_ends_with_one_line(
    tmp_path: Path, mosquitto: Mosquitto, full_at: int
) -> None:
    count_on_a_full_disk(tmp_path, mosquitto, full_at)
