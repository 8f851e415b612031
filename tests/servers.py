"""Real servers on loopback, for tests."""

import getpass
import itertools
import os
import secrets
import shutil
import socket
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Self

import pytest
from waiting import wait_until

__all__ = ["Mosquitto", "Postgres", "free_port", "missing", "need"]


def need(program: str) -> str:
    """The path of a server's program; skip if it is missing, fail if HUSH_NO_SKIP is set (CI)."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        missing(f"{program} is not installed")
    return path


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where HUSH_NO_SKIP is set (CI sets it)."""
    if os.environ.get("HUSH_NO_SKIP"):
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """A port of the loopback that nobody listens on, nor will before a server does.

    Not one of those that the system gives to whoever leaves the choice to it, and of the others a share for each
    process of the test run. Each in turn from a random one on: drawn each time, two of a test would now and then be the
    same. An abstract socket with its number tells other test runs on this machine that the port is taken.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ours = range(20_000 + worker, 32_000, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    for _ in ours:
        port = ours[next(_TURNS) % len(ours)]
        with socket.socket() as probe, socket.socket(socket.AF_UNIX) as claim, suppress(OSError):
            claim.bind(f"\0hush-tests-{port}")
            probe.bind(("127.0.0.1", port))
            _CLAIMS.append(claim.detach())
            if len(_CLAIMS) > _CLAIMED:  # a server listens there since, or has ended
                os.close(_CLAIMS.popleft())
            return port
    pytest.fail("no port is free")


_TURNS = itertools.count(secrets.randbelow(12_000))
_CLAIMED = 50
_CLAIMS: deque[int] = deque()


@dataclass
class Mosquitto:
    """A real mosquitto on free ports of the loopback, which a test may stop and start again (its memory persists).

    Args:
        directory: where its configuration, its memory and its log are.
        access: who may come in, in the words of its configuration.
        listeners: further ports, each with the lines of configuration that follow it.
        settings: what else its configuration says, for all listeners.
    """

    directory: Path
    access: str = "allow_anonymous true"
    port: int = field(default_factory=free_port)
    listeners: dict[int, str] = field(default_factory=dict)
    settings: str = "max_queued_messages 0\nmax_inflight_messages 1000"
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def ports(self) -> Iterable[int]:
        return self.port, *self.listeners

    def configure(self) -> None:
        """Write its configuration, before each start."""
        lines = (
            f"user {getpass.getuser()}",  # started by root, mosquitto would change to a user who may not read tmp_path
            f"listener {self.port} 127.0.0.1",
            self.access,
            "persistence true",
            f"persistence_location {self.directory}/",
            self.settings,
            *(f"listener {port} 127.0.0.1\n{text}" for port, text in self.listeners.items()),
        )
        (self.directory / "mosquitto.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def start(self) -> None:
        """Start it; return once it accepts connections on all its ports."""
        self.configure()
        command = [need("mosquitto"), "-c", str(self.directory / "mosquitto.conf")]
        log = self.directory / "mosquitto.log"
        with log.open("ab") as out:
            self.process = process = subprocess.Popen(command, stdout=out, stderr=out)
        for port in self.ports:
            wait_until(lambda port=port: process.poll() is not None or is_listening(port))
        assert process.poll() is None, log.read_text(encoding="utf-8")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def kill(self) -> None:
        """SIGKILL: what it has not written is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)
        self.process = None

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Start it; stop it at the end."""
        self.start()
        try:
            yield self
        finally:
            self.stop()


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections on a port of the loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


_SETTINGS = "fsync = off\nmax_connections = 40\nshared_buffers = 64MB\nlog_min_messages = fatal\n"


class Postgres:
    """A PostgreSQL cluster of its own, on a socket and on a port of the loopback, as an unprivileged user.

    Args:
        directory: an empty one, which that user can enter.
        settings: lines of postgresql.conf. Without any, what is committed survives a killed server, not a power cut.
    """

    def __init__(self, directory: Path, settings: str = _SETTINGS) -> None:
        self.directory = directory
        self.port = free_port()
        self._user = "postgres" if os.geteuid() == 0 else getpass.getuser()
        directory.mkdir(parents=True, exist_ok=True)
        shutil.chown(directory, self._user)
        self._run("initdb", "--no-sync", "--auth=trust", "--username=hush", "--encoding=UTF8", "--locale=C")
        with (directory / "data" / "postgresql.conf").open("a") as configuration:
            configuration.write(f"unix_socket_directories = '{directory}'\nport = {self.port}\n{settings}")

    @property
    def url(self) -> str:
        return f"postgresql://hush@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        return int((self.directory / "data" / "postmaster.pid").read_text().splitlines()[0])

    def start(self, largest_file: int | None = None) -> None:
        """Start it; none of its files may then become larger than so many KiB."""
        arguments = ("start", "--wait", "--silent", f"--log={self.directory / 'log'}")
        self._run("pg_ctl", *arguments, limit=f"ulimit -f {2 * largest_file}; " if largest_file else "")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; with `immediate` as where the machine fails: the next start recovers from its log."""
        self._run("pg_ctl", "stop", "--wait", "--silent", f"--mode={mode}")

    def _run(self, program: str, *arguments: str, limit: str = "") -> None:
        path = max(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), default=None) or need(program)
        command = [str(path), f"--pgdata={self.directory / 'data'}", *arguments]
        if limit:
            command = ["sh", "-c", f'{limit}exec "$@"', "sh", *command]
        user = self._user if os.geteuid() == 0 else None
        done = subprocess.run(
            command,
            user=user,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
        )
        assert done.returncode == 0, done.stderr + done.stdout
