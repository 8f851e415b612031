"""Whoever has another account on the machine wants the broker's password, which the arguments of a process show."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from servers import Mosquitto

pytestmark = [pytest.mark.medium, pytest.mark.face]

HUSH = [sys.executable, "-m", "hush"]
DOCUMENT = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0}}


@pytest.fixture
def login(guarded_mosquitto: Mosquitto, tmp_path: Path) -> list[str]:
    (tmp_path / "task.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    (tmp_path / "password").write_text("right\n", encoding="utf-8")
    return ["--broker", guarded_mosquitto.url, "--user", "alice", "--password-file", str(tmp_path / "password")]


def test_a_task_is_published_with_a_password_from_a_file(login: list[str], tmp_path: Path) -> None:
    command = [*HUSH, "task", "publish", str(tmp_path / "task.json"), *login]
    assert subprocess.check_output(command, text=True, timeout=60).startswith("published: heights")


def test_a_service_logs_in_with_a_password_from_a_file(login: list[str], tmp_path: Path) -> None:
    command = [*HUSH, "serve", "--store", str(tmp_path / "hush.sqlite"), *login]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "connected to mqtt://alice@127.0.0.1" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize("command", [["serve", "--store", "hush.sqlite"], ["task", "publish", "task.json"]])
def test_a_file_that_cannot_be_read_is_named(login: list[str], tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "password").unlink()
    done = subprocess.run(
        [*HUSH, *command, *login], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "--password-file: " in done.stderr
    assert len(done.stderr.splitlines()) == 1
