"""`hush serve` with a store in PostgreSQL, and the commands that read and change it."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from servers import Mosquitto
from serving import estimate
from stores import StorePlace

from hush_aggregator.store.postgres_url import PostgresUrl

pytestmark = pytest.mark.medium

TASK = 'id = "heights"\nepsilon = 1\n[domain]\nkind = "number"\nlower = 150\nupper = 200\n'
HUSH = [sys.executable, "-m", "hush"]


def hush(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HUSH, *arguments], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.large
def test_every_command_works_on_a_store_in_postgres(postgres: StorePlace, mosquitto: Mosquitto, tmp_path: Path) -> None:
    assert isinstance(postgres.address, PostgresUrl)
    options = postgres.address.options
    store = f"postgresql://hush:s3cret@127.0.0.1:{options['port']}/postgres?schema={postgres.address.schema}"
    (tmp_path / "task.toml").write_text(TASK, encoding="utf-8")
    command = [*HUSH, "serve", "--broker", mosquitto.url, "--store", store, "--task", str(tmp_path / "task.toml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            assert any("connected to" in line for line in server.stderr)
            for k in range(3):
                sent = hush(
                    "report", "heights", "172", "--broker", mosquitto.url, "--spread", "0", "--state", f"{tmp_path}/{k}"
                )
                assert sent.returncode == 0, sent.stderr
            assert estimate(mosquitto.port, 3)["n"] == 3
            (listed,) = json.loads(hush("task", "list", "--store", store, "--json").stdout)["tasks"]
            assert (listed["task"], listed["state"]) == ("heights", "open")
            found = json.loads(hush("results", "heights", "--store", store, "--json").stdout)
            assert found["results"][0]["n"] == 3
            exported = hush("export", "heights", "--store", store, "--out", str(tmp_path / "out.csv"))
            assert exported.returncode == 0, exported.stderr
            with (tmp_path / "out.csv").open() as file:
                assert len([*csv.DictReader(file)]) == 3
            checked = json.loads(hush("doctor", "--store", store, "--json").stdout)
            assert (checked["checks"][0]["check"], checked["checks"][0]["status"]) == ("store", "ok")
            assert hush("task", "close", "heights", "--store", store).returncode == 0
            backup = hush("store", "backup", str(tmp_path / "backup"), "--store", store)
            assert (backup.returncode, "pg_dump" in backup.stderr) == (1, True)
            second = hush("serve", "--broker", mosquitto.url, "--store", store)
            assert (second.returncode, "another aggregator uses this store" in second.stderr) == (1, True)
        finally:
            server.terminate()
            rest = server.stderr.read()
            assert server.wait(60) == 0
    said = rest + backup.stderr + second.stderr
    assert "s3cret" not in said
    assert hush("task", "forget", "heights", "--yes", "--store", store).returncode == 0
    assert postgres.ids() == []
