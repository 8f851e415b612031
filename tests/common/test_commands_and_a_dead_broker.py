"""`hush report` that runs for a moment, and a broker that is killed between two runs: every report is counted.

Each run of the command is a process of its own, forked from one that has loaded it.
"""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from counting import shell
from processes import Serve, spent
from servers import Mosquitto
from waiting import PATIENCE_S

from hush_common.topics import recall_topic, task_topic

pytestmark = pytest.mark.medium
_COMMANDS = Path(__file__).parents[1] / "many_commands.py"


def report(bare: Mosquitto, directory: Path, devices: int) -> set[int]:
    """Each device runs the command once; all exit codes."""
    lines = [
        [
            *("report", "heights", "0.5", "--broker", bare.url, "--device", f"d{number}", "--spread", "0"),
            *("--state", str(directory / f"d{number}")),
        ]
        for number in range(devices)
    ]
    command = [sys.executable, str(_COMMANDS), str(directory / "commands.log")]
    done = subprocess.run(command, input=json.dumps(lines).encode(), capture_output=True, check=True, timeout=300)
    return set(json.loads(done.stdout))


async def retained(bare: Mosquitto, topic: str) -> None:
    """Return once the broker retains a message there."""
    await asyncio.to_thread(shell, "mosquitto_sub", bare.port, "-t", topic, "-C", "1", "-W", "60")


async def run(bare: Mosquitto, directory: Path, devices: int, over: int) -> Serve:
    """All answer while nobody counts, the broker is killed, and all run twice more, or until all are counted."""
    serve = Serve(bare.url, directory, over)
    serve.start()
    await serve.connected()
    await retained(bare, task_topic("heights"))
    serve.end(signal.SIGKILL)
    assert await asyncio.to_thread(report, bare, directory, devices) == {0}
    bare.kill()
    bare.start()
    serve.start()
    await serve.connected(2)
    for topic in (task_topic("heights"), recall_topic("heights"))[: 2 if over else 1]:
        await retained(bare, topic)
    assert await asyncio.to_thread(report, bare, directory, devices) == {0}
    assert await asyncio.to_thread(report, bare, directory, devices) == {0}
    async with asyncio.timeout(4 * PATIENCE_S):
        while over and serve.counted()[0] < devices:  # each has a moment of its own within `over` seconds
            assert await asyncio.to_thread(report, bare, directory, devices) == {0}
    assert serve.end(signal.SIGTERM) == 0
    assert {spent(directory / f"d{number}") for number in range(devices)} == {(1, 1)}
    return serve


@pytest.mark.large
async def test_ten_commands_lose_nothing_with_the_broker(bare: Mosquitto, memory_path: Path) -> None:
    assert (await run(bare, memory_path, 10, over=2)).counted() == (10, 10)


@pytest.mark.large
async def test_without_a_recall_they_lose_all_that_they_sent(bare: Mosquitto, memory_path: Path) -> None:
    assert (await run(bare, memory_path, 10, over=0)).counted() == (0, 0)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_thousand_commands_lose_nothing_with_the_broker(bare: Mosquitto, memory_path: Path) -> None:
    assert (await run(bare, memory_path, 1000, over=10)).counted() == (1000, 1000)
