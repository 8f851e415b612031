"""Real servers on loopback, for tests."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

__all__ = ["Mosquitto", "need"]

CONFIGURATION = """\
user {user}
listener {port} 127.0.0.1
{access}
persistence true
persistence_location {directory}/
max_queued_messages 0
max_inflight_messages 1000
"""


def need(program: str) -> str:
    """The path of a server's program; without it the test skips, or fails where HUSH_NO_SKIP says so (CI does)."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        reason = f"{program} is not installed"
        if os.environ.get("HUSH_NO_SKIP"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@dataclass
class Mosquitto:
    """A real mosquitto on a free loopback port, which a test may stop and start again (its memory persists)."""

    directory: Path
    access: str = "allow_anonymous true"
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        program = need("mosquitto")
        if not self.port:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
        configuration = self.directory / "mosquitto.conf"
        configuration.write_text(
            CONFIGURATION.format(
                user=getpass.getuser(),  # started by root, mosquitto would change to a user who may not read tmp_path
                port=self.port,
                access=self.access,
                directory=self.directory,
            ),
            encoding="utf-8",
        )
        with (self.directory / "mosquitto.log").open("ab") as log:
            self.process = subprocess.Popen([program, "-c", str(configuration)], stdout=log, stderr=log)
        self._wait_until_ready()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def _wait_until_ready(self) -> None:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        log = (self.directory / "mosquitto.log").read_text(encoding="utf-8")
        pytest.fail(f"mosquitto did not come up on port {self.port}:\n{log}")
