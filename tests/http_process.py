"""`hush http` and `hush serve --http` as a user starts them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from http_world import TOKEN
from servers import free_port

__all__ = ["TOKEN", "HttpProcess", "running", "write_token"]

_PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class HttpProcess:
    """A service that answers.

    Args:
        process: what runs.
        port: on the loopback.
        log: what it has written to standard error.
    """

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=_PATIENCE_S)

    def post(self, path: str, document: object = None, token: str = TOKEN) -> httpx.Response:
        bearer = {"Authorization": f"Bearer {token}"}
        return httpx.post(f"{self.url}{path}", json=document, headers=bearer, timeout=_PATIENCE_S)

    def until(self, path: str, status: int) -> httpx.Response:
        """The answer, once it has that status."""
        deadline = time.monotonic() + _PATIENCE_S
        while (answer := self.get(path)).status_code != status:
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.05)
        return answer


def write_token(directory: Path) -> Path:
    """A file with `TOKEN`, as it has to be."""
    file = directory / "token"
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    file.chmod(0o600)
    return file


@contextmanager
def running(
    directory: Path, words: Sequence[str], *, option: str = "--bind", environment: dict[str, str] | None = None
) -> Iterator[HttpProcess]:
    """A command with HTTP on a free port, once it answers and until the block ends.

    Args:
        directory: for its log.
        words: of the command line, but for the address.
        option: that names the address.
        environment: further variables.
    """
    port = free_port()
    log = directory / "http.log"
    command = [sys.executable, "-m", "hush", *words, option, f"127.0.0.1:{port}"]
    with (
        log.open("ab") as file,
        subprocess.Popen(command, stdout=file, stderr=file, env=os.environ | (environment or {})) as process,
    ):
        found = HttpProcess(process, port, log)
        try:
            _wait(found)
            yield found
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.wait(_PATIENCE_S) == 0, log.read_text(encoding="utf-8")


def _wait(found: HttpProcess) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while found.process.poll() is None and time.monotonic() < deadline:
        try:
            found.get("/healthz")
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(found.log.read_text(encoding="utf-8"))
