"""`hush serve` as a user starts it, and the estimate as a user reads it: with the programs of mosquitto."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servers import need
from waiting import PATIENCE_S

__all__ = ["estimate", "serving"]


@contextmanager
def serving(url: str, directory: Path, task: str) -> Iterator[None]:
    """`hush serve` for a task, given as TOML, up until the block ends."""
    (directory / "task.toml").write_text(task, encoding="utf-8")
    command = [sys.executable, "-m", "hush", "serve", "--broker", url]
    command += ["--store", str(directory / "hush.sqlite3"), "--task", str(directory / "task.toml")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            yield
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0


def estimate(port: int, reports: int, task: str = "heights") -> dict[str, object]:
    """The retained estimate, once it speaks of `reports` reports, refused ones included."""
    watch = [need("mosquitto_sub"), "-h", "127.0.0.1", "-p", str(port), "-t", f"hush/v1/estimates/{task}", "-C", "1"]
    deadline = time.monotonic() + 2 * PATIENCE_S
    while True:
        run = subprocess.run([*watch, "-W", "5"], capture_output=True, check=False)
        document: dict[str, Any] = json.loads(run.stdout) if run.stdout else {}  # the aggregator has not begun
        if document and document["n"] + sum(document["refused"].values()) >= reports:
            return document
        assert time.monotonic() < deadline, document or "no estimate is retained"
        time.sleep(0.2)
