"""The commands of docs/operations.md, and a machine to run them on.

This machine has no systemd: a program of that name starts and stops what the installed units say. Paths are below a
directory of the test, everything else is as in the document: hush, openssl, mosquitto, install.
"""

import getpass
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from servers import free_port, need

__all__ = [
    "BLOCKS",
    "HEIGHTS",
    "HUSH",
    "MAKE",
    "SYSTEMD",
    "USE",
    "Machine",
    "as_device",
    "block",
    "install_update_and_restore",
    "until_counted",
]

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)
HEIGHTS = 'id = "heights"\nepsilon = "1"\n[domain]\nkind = "number"\nlower = 120.0\nupper = 220.0\n'
HUSH = Path(sys.executable).with_name("hush")

VENV = f"""#!/bin/sh
# python3 -m venv DIRECTORY
mkdir -p "$3/bin" && ln -s {HUSH} "$3/bin/hush" && printf '#!/bin/sh\\n[ -e pyproject.toml ]\\n' > "$3/bin/pip"
chmod 755 "$3/bin/pip"
"""
RUNUSER = """#!/bin/sh
[ "$1 $2 $3" = "-u hush --" ] && shift 3 && exec "$@"
"""
SYSUSERS = """#!/bin/sh
grep -q '^u hush ' HERE/usr/lib/sysusers.d/hush.conf
"""
SYSTEMCTL = """#!PYTHON
# daemon-reload | enable UNIT... | start UNIT... | restart UNIT... | stop UNIT...
import os, re, shlex, shutil, signal, subprocess, sys, time
from pathlib import Path

here, (verb, *units) = Path("HERE"), sys.argv[1:]
system = here / "etc/systemd/system"

def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

def stop(unit):
    number = here / f"{unit}.pid"
    if number.exists():
        pid = int(number.read_text())
        os.kill(pid, signal.SIGTERM)
        while lives(pid):
            time.sleep(0.05)
        number.unlink()

def start(unit):
    text = file_of(unit).read_text().replace("127.0.0.1:8080", "127.0.0.1:0")
    text = re.sub("(?<=[= :])/(?=opt/|var/|etc/)", f"{here}/", text)
    settings = dict(line.split("=", 1) for line in text.splitlines() if re.match("[A-Z][A-Za-z]+=.", line))
    environment = dict(os.environ)
    if "EnvironmentFile" in settings:
        lines = Path(settings["EnvironmentFile"]).read_text().splitlines()
        environment |= dict(line.split("=", 1) for line in lines)
    if "LoadCredential" in settings:
        name, source = settings["LoadCredential"].split(":", 1)
        shutil.copy(source, here / name)
    state = here / "var/lib/hush"
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = settings["ExecStart"].replace("${CREDENTIALS_DIRECTORY}", str(here))
    command = command.replace("${STATE_DIRECTORY}", str(state))
    with (here / f"{unit}.log").open("a") as log:
        command, new = shlex.split(command), {"stdout": log, "stderr": log, "start_new_session": True}
        process = subprocess.Popen(command, env=environment, **new)
    (here / f"{unit}.pid").write_text(str(process.pid))

def file_of(unit):
    return system / ("mosquitto.service.d/hush.conf" if unit == "mosquitto" else f"{unit}.service")

for unit in units:
    assert file_of(unit).is_file(), unit
    if verb in ("stop", "restart"):
        stop(unit)
    if verb in ("start", "restart"):
        start(unit)
"""


@dataclass
class Machine:
    """A machine of which the test has a directory.

    Args:
        root: where the document has `/`.
    """

    root: Path
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        shims = self.root / "shims"
        shims.mkdir(parents=True)
        for name, text in (
            ("python3", VENV),
            ("runuser", RUNUSER),
            ("systemd-sysusers", SYSUSERS),
            ("systemctl", SYSTEMCTL),
        ):
            (shims / name).write_text(text.replace("HERE", str(self.root)).replace("PYTHON", sys.executable))
            (shims / name).chmod(0o755)
        for place in ("usr/local/bin", "var/lib", "etc/systemd/system", "tmp"):
            (self.root / place).mkdir(parents=True)
        need("mosquitto")
        need("openssl")

    def here(self, text: str) -> str:
        """Commands of the document, with its paths, its host and the user of its broker where this test has them."""
        text = re.sub(r"(?<![\w./])/(?=opt/|usr/local/|usr/lib/|var/lib/|etc/|tmp/)", f"{self.root}/", text)
        text = text.replace("--host broker.local", f"--host 127.0.0.1 --port {self.port} --run-as {getpass.getuser()}")
        return text.replace("broker.local", f"127.0.0.1:{self.port}")

    def run(self, commands: str, directory: Path) -> str:
        """Run commands of the document to their end, the first that fails ends them; return what they print."""
        path = os.pathsep.join(
            [str(self.root / "shims"), str(self.root / "usr/local/bin"), os.environ["PATH"], "/usr/sbin"]
        )
        environment = {**os.environ, "PATH": path}
        words = ["sh", "-euc", self.here(commands)]
        done = subprocess.run(
            words, cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}{self.log('hush-aggregator')}"
        return done.stdout

    def log(self, unit: str) -> str:
        file = self.root / f"{unit}.log"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def stop(self) -> None:
        """What is still running."""
        for file in self.root.glob("*.pid"):
            os.kill(int(file.read_text()), signal.SIGKILL)


def block(beginning: str) -> str:
    found: list[str] = [text for text in BLOCKS if text.startswith(beginning)]
    assert len(found) == 1, beginning
    return found[0]


MAKE = block("hush broker config /var/lib/hush-broker --host broker.local\n")
USE = block("hush task publish")
WORKERS = block("hush broker config /var/lib/hush-broker --host broker.local --workers 2")


def until_counted(machine: Machine, command: str, directory: Path, reports: int) -> None:
    deadline = time.monotonic() + 60
    while f'"n": {reports},' not in (printed := machine.run(f"{command} --json", directory)):
        assert time.monotonic() < deadline, printed + machine.log("hush-aggregator")
        time.sleep(0.2)


def as_device(machine: Machine, directory: Path) -> str:
    """What the document has a device do, which was given the authority and its password."""
    broker = machine.root / "var/lib/hush-broker"
    for source, name in (("ca.pem", "ca.pem"), ("credentials/kitchen-7", "password")):
        (directory / name).write_bytes((broker / source).read_bytes())
    report = next(line for line in USE.splitlines() if line.startswith("hush report"))
    return machine.run(f"{report} --state state --spread 0 --timeout 60", directory)


SYSTEMD = (
    "python3 -m venv",
    "install -D -m 0644 aggregator",
    "install -m 0644 heights.toml",
    "runuser -u hush -- hush store backup",
    "cd /var/lib/hush\n",
)


def install_update_and_restore(machine: Machine, tmp_path: Path) -> None:
    """The whole of the part with systemd: install, start, publish, answer, update, lose the store and restore it."""
    clone, device = tmp_path / "clone", tmp_path / "device"
    device.mkdir()
    clone.mkdir()
    (clone / "pyproject.toml").touch()
    (clone / "aggregator").symlink_to(ROOT / "aggregator")
    (clone / "heights.toml").write_text(HEIGHTS, encoding="utf-8")
    install, start, publish, update, drill = map(block, SYSTEMD)
    machine.run(install, clone)
    machine.run("\n".join(MAKE.strip().splitlines()[:-1]), clone)
    machine.run(start, clone)
    assert oct((machine.root / "etc/hush/ca.pem").stat().st_mode)[-3:] == "644"  # the user hush reads it
    assert oct((machine.root / "etc/hush/password").stat().st_mode)[-3:] == "600"
    store = machine.root / "var/lib/hush/hush.sqlite3"
    deadline = time.monotonic() + 60
    while not store.exists():
        assert time.monotonic() < deadline, machine.log("hush-aggregator")
        time.sleep(0.05)
    assert "heights" in machine.run(publish, clone)
    assert "sent, and the broker has it" in as_device(machine, device)
    until_counted(machine, "hush results heights --store /var/lib/hush/hush.sqlite3", clone, 1)
    assert "heights" in machine.run(update, clone)
    assert ", 1 reports" in machine.run(drill, clone)
    until_counted(machine, "hush results heights --store /var/lib/hush/hush.sqlite3", clone, 1)
    deadline = time.monotonic() + 60
    while "the store was put back from a backup: task heights recalled" not in machine.log("hush-aggregator"):
        assert time.monotonic() < deadline, machine.log("hush-aggregator")
        time.sleep(0.1)
    machine.run("systemctl stop hush-aggregator hush-http mosquitto", clone)
    assert "somebody else" not in machine.log("hush-aggregator")
    assert "Traceback" not in machine.log("hush-aggregator") + machine.log("hush-http")
