"""A Debian made by debootstrap, the image of hush built on it, and the same Debian booted by systemd."""

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from operations_guide import ROOT, Machine
from servers import missing, need

__all__ = ["Booted", "Engine"]

PACKAGES = "ca-certificates,dbus,mosquitto,openssl,python3,python3-venv,systemd,systemd-sysv"
COMPOSE = Path(sys.executable).with_name("podman-compose")
"""Debian 12 has an older one, which does not wait until the service `setup` has ended."""
DEBIAN = ROOT / "out/started/debian"
"""Made once for all runs: remove it to get a newer one."""
IMAGES = {"hush": "localhost/hush", "broker": "docker.io/library/eclipse-mosquitto:2.0.22"}
ENGINE = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
"""runc also runs where two versions of cgroups are mounted. Lower limits need no right to raise them."""
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{0}/images"
runroot = "{0}/containers"
"""


def output(*command: str, timeout: float = 300, **environment: str) -> str:
    """What a command prints; its failure fails the test."""
    variables = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout, env=variables)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def debian() -> Path:
    """The root directory of a small Debian with Python, systemd and mosquitto."""
    if os.getuid() != 0:
        missing("not root: debootstrap, podman and systemd-nspawn are run as root here")
    if not DEBIAN.exists():
        part = DEBIAN.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        output(need("debootstrap"), "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(part), timeout=600)
        part.rename(DEBIAN)
    return DEBIAN


@dataclass
class Engine:
    """podman with images and containers in a directory of its own.

    The image of hush is built by its Dockerfile on Debian instead of python:3.13, and the image of the broker is
    this Debian with its mosquitto: no registry of images is asked.
    """

    directory: Path
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        need("podman")
        need("runc")
        if not COMPOSE.exists():
            missing("podman-compose is not installed: pip install --group started")
        (self.directory / "containers.conf").write_text(ENGINE, encoding="utf-8")
        (self.directory / "storage.conf").write_text(STORAGE.format(self.directory), encoding="utf-8")
        self.environment = {
            "CONTAINERS_CONF": str(self.directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.directory / "storage.conf"),
        }

    def podman(self, *words: str, timeout: float = 240) -> str:
        return output("podman", *words, timeout=timeout, **self.environment)

    def build(self) -> None:
        root = self.directory / "debian.tar"
        output("tar", "-C", str(debian()), "-cf", str(root), ".")
        self.podman("import", str(root), IMAGES["broker"])
        root.unlink()
        host = [Path("/etc/ssl/certs"), Path("/etc/pip.conf")]  # how this machine reaches the package index
        volumes = [f"--volume={path}:{path}:ro" for path in host if path.exists()]
        arguments = ["--isolation=chroot", f"--build-arg=BASE={IMAGES['broker']}", f"--tag={IMAGES['hush']}"]
        dockerfile = ROOT / "aggregator/packaging/Dockerfile"
        self.podman("build", *arguments, *volumes, f"--file={dockerfile}", str(ROOT), timeout=600)

    def compose(self, file: Path, *words: str) -> str:
        return output(str(COMPOSE), "--file", str(file), *words, timeout=240, **self.environment)

    def copy(self, path: str, target: Path) -> None:
        """A directory of the image of hush."""
        name = self.podman("create", IMAGES["hush"]).split()[-1]
        self.podman("cp", f"{name}:{path}", str(target))
        self.podman("rm", name)

    def stop(self) -> None:
        """Remove all containers, volumes and images, so that nothing stays mounted."""
        self.podman("rm", "--all", "--force", "--time=2")
        self.podman("volume", "rm", "--all", "--force")
        self.podman("rmi", "--all", "--force")


@dataclass
class Booted(Machine):
    """A Debian whose process 1 is systemd, in which hush is installed as the Dockerfile does.

    Args:
        shared: a directory that has the same path inside.
    """

    shared: Path = field(kw_only=True)
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.root.chmod(0o755)
        (self.root / "etc/hosts").write_text("127.0.0.1 localhost broker.local\n", encoding="utf-8")
        (self.root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
        need("systemd-nspawn")
        words = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network"]
        words += [f"--directory={self.root}", f"--bind={self.shared}", f"--bind-ro={ROOT}"]
        with (self.root.parent / "console").open("wb") as console:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        deadline = time.monotonic() + 60
        while "degraded" not in (state := self.state()) and "running" not in state:
            assert time.monotonic() < deadline, (self.root.parent / "console").read_text(errors="replace")
            time.sleep(0.2)

    def inside(self, *command: str) -> "subprocess.CompletedProcess[str]":
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        enter = ["nsenter", f"--target={children[0] if children else 0}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        environment = {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin", "LANG": "C.UTF-8"}
        return subprocess.run(
            [*enter, "--", *command], capture_output=True, text=True, check=False, timeout=240, env=environment
        )

    def state(self) -> str:
        return self.inside("systemctl", "is-system-running").stdout

    def here(self, text: str) -> str:
        """Commands as in the document, but for those of pip, which the Dockerfile has run."""
        return re.sub(r"^(python3 -m venv|/opt/hush/bin/pip) .*\n", "", text, flags=re.MULTILINE)

    def run(self, commands: str, directory: Path) -> str:
        done = self.inside("sh", "-euc", f"cd '{directory}'\n{self.here(commands)}")
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}{self.log('hush-aggregator')}"
        return done.stdout

    def log(self, unit: str) -> str:
        return self.inside("journalctl", "--no-pager", "--unit", unit).stdout

    def stop(self) -> None:
        """Power off, as systemd does it."""
        self.inside("systemctl", "poweroff")
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
