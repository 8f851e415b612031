"""A real mosquitto with the configuration that `hush broker config` wrote, and clients of its users."""

import getpass
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import aiomqtt
from servers import Mosquitto, free_port
from waiting import PATIENCE_S

__all__ = ["HOST", "Hardened", "hush"]

HOST = "127.0.0.1"


def hush(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, as somebody types it; `PATH` may be given."""
    return subprocess.run(
        [sys.executable, "-m", "hush", *arguments],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", **environment} if environment else None,
    )


class Hardened(Mosquitto):
    """The broker of a directory that `hush broker config` made, on ports of its own.

    Args:
        home: the directory.
        users: names and roles of those who are let in.
    """

    def __init__(self, home: Path, users: dict[str, str]) -> None:
        super().__init__(home)
        self.home, self.users, self.websockets = home, users, free_port()

    @property
    def ports(self) -> Iterable[int]:
        return self.port, self.websockets

    def configure(self) -> None:
        """Its configuration is there: see `set_up`."""

    def set_up(self) -> None:
        """Configuration and users, by the commands."""
        made = hush(
            *("broker", "config", str(self.home), "--host", HOST, "--listen", HOST),
            *("--port", str(self.port), "--websockets", str(self.websockets), "--run-as", getpass.getuser()),
        )
        assert made.returncode == 0, made.stderr
        for name, role in self.users.items():
            added = hush("broker", "add", name, "--role", role, "--config", str(self.home))
            assert added.returncode == 0, added.stderr
            assert self.password(name) not in added.stdout + added.stderr

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Set it up and start it; stop it at the end."""
        self.set_up()
        with super().running():
            yield self

    def reload(self) -> None:
        """As the commands say: the process reads passwords and rules again."""
        assert self.process is not None
        assert int((self.home / "mosquitto.pid").read_text()) == self.process.pid
        self.process.send_signal(signal.SIGHUP)

    def password(self, user: str) -> str:
        return (self.home / "credentials" / user).read_text(encoding="utf-8").strip()

    def address(self, user: str) -> str:
        return f"mqtts://{user}@{HOST}:{self.port}?ca={self.home / 'ca.pem'}"

    def login(self, user: str) -> tuple[str, ...]:
        """The options of a command of hush for this user."""
        return "--broker", self.address(user), "--password-file", str(self.home / "credentials" / user)

    def client(
        self, user: str | None, *, identifier: str | None = None, password: str | None = None, kept: bool = False
    ) -> aiomqtt.Client:
        """A client of any other make, which speaks MQTT 5 and so is told what is forbidden."""
        return aiomqtt.Client(
            HOST,
            self.port,
            username=user,
            password=password or (self.password(user) if user else None),
            identifier=identifier or user,
            protocol=aiomqtt.ProtocolVersion.V311 if kept else aiomqtt.ProtocolVersion.V5,
            clean_session=False if kept else None,
            tls_context=ssl.create_default_context(cafile=str(self.home / "ca.pem")),
            timeout=PATIENCE_S,
        )
