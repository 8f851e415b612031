"""The commands of docs/operations.md are run, in their order: those with a broker by hand, and those with systemd.

There is no systemd here (test_started.py has one): tests/operations_guide.py has the machine.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from operations_guide import (
    BLOCKS,
    HEIGHTS,
    HUSH,
    MAKE,
    SYSTEMD,
    USE,
    WORKERS,
    Machine,
    as_device,
    block,
    install_update_and_restore,
    until_counted,
)
from servers import need

pytestmark = pytest.mark.medium

WEBHOOK = block('echo "whsec_')
DOCTOR = block("hush broker add doctor")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "machine")
    yield made
    made.stop()


def test_every_block_of_commands_is_run_here() -> None:
    run = (MAKE, USE, WORKERS, WEBHOOK, DOCTOR, *map(block, SYSTEMD))
    assert set(BLOCKS) == set(run)


@contextmanager
def started(machine: Machine, command: str, directory: Path) -> Iterator[None]:
    """A service of the document, from its connection until the block ends."""
    words = shlex.split(machine.here(command.replace("\\\n", " ")))
    with subprocess.Popen([str(HUSH), *words[1:]], cwd=directory, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        try:
            assert any("connected to" in line for line in service.stderr)
            yield
        finally:
            service.terminate()
            service.communicate(timeout=60)


@pytest.mark.large
def test_a_broker_and_an_aggregator_by_hand(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "heights.toml").write_text(HEIGHTS, encoding="utf-8")
    (machine.root / "usr/local/bin/hush").symlink_to(HUSH)
    *make, start = MAKE.strip().splitlines()
    publish, serve, _ = re.split(r"\n(?=hush)", USE.strip())
    machine.run("\n".join(make), tmp_path)
    with subprocess.Popen(shlex.split(machine.here(start).replace("mosquitto ", f"{need('mosquitto')} ", 1))) as broker:
        try:
            machine.run(publish, tmp_path)
            with started(machine, serve, tmp_path):
                as_device(machine, tmp_path)
                until_counted(machine, "hush results heights --store hush.sqlite3", tmp_path, 1)
            secret, notify = WEBHOOK.strip().split("\n", 1)
            machine.run(secret, tmp_path)
            with started(machine, notify, tmp_path):
                add, doctor = DOCTOR.strip().split("\n", 1)
                machine.run(f"{add}\nkill -HUP {broker.pid}", tmp_path)
                checks = json.loads(machine.run(f"{doctor} --json", tmp_path))["checks"]
            assert {one["check"] for one in checks if one["status"] == "failure"} == set()
            assert {"rights", "devices", "senders", "certificate"} <= {one["check"] for one in checks}
        finally:
            broker.terminate()


def test_a_worker_has_all_that_its_command_names(machine: Machine, tmp_path: Path) -> None:
    """It ends because the database of the example is nowhere, and for no other reason."""
    (machine.root / "usr/local/bin/hush").symlink_to(HUSH)
    configure, serve = WORKERS.strip().split("\n", 1)
    machine.run(configure, tmp_path)
    serve = machine.here(serve.replace("\\\n", " ").replace("db.local", "127.0.0.1:1"))
    directory = machine.root / "var/lib/hush-broker"
    done = subprocess.run(
        [str(HUSH), *shlex.split(serve)[1:]], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "127.0.0.1:1/hush" in done.stderr.splitlines()[-1]
    assert "worker-1-control:" in (directory / "passwords").read_text(encoding="utf-8")


@pytest.mark.large
def test_an_installation_with_systemd_is_updated_backed_up_and_restored(machine: Machine, tmp_path: Path) -> None:
    install_update_and_restore(machine, tmp_path)
