"""Whoever may read the files of a device, an aggregator or a broker wants a password, or a value that was answered.

The commands are real processes at a real broker that asks for a login, and every logger in them says all that it can.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from commands import Shown
from inputs import CLOSED, FILES, NUMBER, SECRET, TASKS, leaks
from servers import Mosquitto, need
from waiting import wait_until

HUSH = [sys.executable, "-m", "hush"]
TALKATIVE = "import logging, sys\nlogging.basicConfig(stream=sys.stderr, level=logging.DEBUG)\n"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker for `alice` with the secret, whose own files are searched, too."""
    directory = tmp_path / "broker"
    directory.mkdir()
    passwords = directory / "passwords"
    passwords.touch()
    subprocess.run([need("mosquitto_passwd"), "-b", str(passwords), "alice", SECRET], check=True)
    passwords.chmod(0o644)
    with Mosquitto(directory, access=f"allow_anonymous false\npassword_file {passwords}").running() as server:
        yield server


def environment(tmp_path: Path, planted: str = "") -> dict[str, str]:
    (tmp_path / "site").mkdir(exist_ok=True)
    (tmp_path / "site" / "sitecustomize.py").write_text(TALKATIVE + planted, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "HUSH_STATE": str(tmp_path / "state")}


def hush(
    tmp_path: Path, words: Sequence[str], *, address: str = "", typed: str = "", planted: str = "", code: int = 0
) -> Shown:
    """Run a command to its end; with an address, it is told in the environment."""
    variables = environment(tmp_path, planted) | ({"HUSH_BROKER": address} if address else {})
    done = subprocess.run(
        [*HUSH, *words],
        cwd=tmp_path,
        env=variables,
        input=typed,
        capture_output=True,
        check=False,
        text=True,
        timeout=240,
    )
    assert done.returncode == code, done.stderr
    assert "DEBUG" in done.stderr  # else nobody would see what is logged
    return Shown(done.returncode, done.stdout, done.stderr, "")


@pytest.mark.medium
def test_what_a_process_logs_is_found(tmp_path: Path) -> None:
    planted = 'import os\nlogging.debug("%s %s", os.environ.get("HUSH_BROKER"), sys.orig_argv)\n'
    address = f"mqtt://alice:{SECRET}@{CLOSED}"
    one = hush(tmp_path, ["report", "sum", NUMBER, "--timeout", "0.1"], address=address, planted=planted, code=1)
    assert leaks(one, tmp_path, {}, SECRET, NUMBER) == [f"{SECRET} in err", f"{NUMBER} in err"]


@pytest.mark.large
def test_no_password_and_no_value_is(guarded: Mosquitto, tmp_path: Path) -> None:
    files = {**FILES, "password": f"{SECRET}\n".encode(), "wrong": f"{SECRET}x\n".encode()}
    files |= {f"{topic.rpartition('/')[2]}.json": payload for topic, payload in TASKS.items()}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    bare, full = guarded.url, guarded.url.replace("://", f"://alice:{SECRET}@")
    login = ("--broker", bare, "--user", "alice", "--password-file")
    serve = [*HUSH, "serve", *login, "password", "--store", "store", "--task", "sum.json"]
    with (
        (tmp_path / "served").open("w") as log,
        subprocess.Popen(serve, cwd=tmp_path, env=environment(tmp_path), stderr=log, stdout=log) as server,
    ):
        wait_until(lambda: "connected to" in (tmp_path / "served").read_text(encoding="utf-8"))
        shown = [
            hush(tmp_path, ["task", "publish", "sum.json", *login, "password"]),
            hush(tmp_path, ["task", "publish", "pair.json"], address=full),
            hush(tmp_path, ["task", "publish", "way.json", *login, "wrong"], code=1),
            hush(tmp_path, ["report", "sum", NUMBER, "--spread", "0", *login, "password"]),
            hush(tmp_path, ["report", "pair", "-", "--spread", "0", "--json"], address=full, typed=f"{NUMBER},1\n"),
            hush(tmp_path, ["report", "pair", f"{NUMBER},{NUMBER}", "--device", "other"], address=full),
            hush(tmp_path, ["report", "sum", NUMBER, "--device", "third", *login, "wrong", "--timeout", "2"]),
            hush(tmp_path, ["report", "sum", "-", "--device", "late", "--spread", "60", "--timeout", "2"],
                 address=full, typed=NUMBER),
            hush(tmp_path, ["simulate", "--clients", "2", "--broker", full]),
            hush(tmp_path, ["ledger", "--json"]),
        ]  # fmt: skip
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    guarded.stop()
    assert "accepted" in (tmp_path / "served").read_text(encoding="utf-8")
    for name in ("state/hush.sqlite3", "store", "broker/mosquitto.db"):
        assert (tmp_path / name).exists()
    for one in shown:
        assert leaks(one, tmp_path, files, SECRET, NUMBER) == []
