"""A file system that is full when a state is created, and has room again later."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hush_client.state.database import FILE_NAME

PROGRAM = """
import asyncio, json, subprocess, sys
from pathlib import Path
from hush_client.state.database import FILE_NAME, DeviceState
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
    assert all("nothing was spent or sent; make room" in first for first in refused)
    for first, left, second in found:
        assert set(left) <= {FILE_NAME}, first
        assert second is None
