"""`hush http` and `hush serve --http` as a user starts them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from http_world import TOKEN, bearer
from servers import free_port
from waiting import PATIENCE_S, wait_until

__all__ = ["TOKEN", "HttpProcess", "running", "write_token"]


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
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=PATIENCE_S)

    def post(self, path: str, document: object = None, token: str = TOKEN) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=document, headers=bearer(token), timeout=PATIENCE_S)

    def until(self, path: str, status: int) -> httpx.Response:
        """The answer, once it has that status."""
        found: list[httpx.Response] = []

        def is_there() -> bool:
            with suppress(httpx.TransportError):
                found[:] = [self.get(path)]
            return bool(found) and found[0].status_code == status

        wait_until(is_there)
        return found[0]


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

        def answers() -> bool:
            assert process.poll() is None, log.read_text(encoding="utf-8")
            with suppress(httpx.TransportError):
                return bool(found.get("/healthz"))
            return False

        try:
            wait_until(answers)
            yield found
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, log.read_text(encoding="utf-8")
