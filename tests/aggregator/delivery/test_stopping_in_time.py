"""`hush serve` ends before it is killed, whatever is due and whatever the broker does."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from servers import Mosquitto

from hush_aggregator import SqliteStore
from hush_common.task import make_task

pytestmark = pytest.mark.medium

LIMIT_S = 30.0  # containers are killed after ten: here the machine has other work, and the service counts on five


def serve(mosquitto: Mosquitto, directory: Path, tasks: int) -> "tuple[subprocess.Popen[bytes], Path]":
    """Started, with so many tasks in its store, and connected."""
    with SqliteStore(directory / "store") as store:
        store.add_tasks(
            [make_task({"id": f"task-{k}", "epsilon": "1", "domain": {"kind": "bit"}}) for k in range(tasks)]
        )
    log = directory / "log"
    command = [sys.executable, "-m", "hush", "serve", "--broker", mosquitto.url, "--store", str(directory / "store")]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file)
    deadline = time.monotonic() + 60
    while b"connected to" not in log.read_bytes():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return process, log


def seconds_to_end(process: "subprocess.Popen[bytes]") -> float:
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(60) == 0
    finally:
        process.kill()
    return time.monotonic() - began


@pytest.mark.large
@pytest.mark.parametrize("after_s", [0.0, 2.0])
def test_with_2000_estimates_due(mosquitto: Mosquitto, tmp_path: Path, after_s: float) -> None:
    process, log = serve(mosquitto, tmp_path, 2000)
    time.sleep(after_s)
    assert seconds_to_end(process) < LIMIT_S
    assert b"ERROR" not in log.read_bytes()


def test_with_a_broker_that_does_not_answer_any_more(mosquitto: Mosquitto, tmp_path: Path) -> None:
    process, _ = serve(mosquitto, tmp_path, 10)
    time.sleep(1)
    assert mosquitto.process is not None
    mosquitto.process.send_signal(signal.SIGSTOP)
    try:
        assert seconds_to_end(process) < LIMIT_S
    finally:
        mosquitto.process.send_signal(signal.SIGCONT)
