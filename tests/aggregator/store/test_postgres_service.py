"""`hush serve` with a store in PostgreSQL, through restarts of the server, and the commands that read and change it."""

import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from servers import Mosquitto, Postgres
from serving import estimate
from steady_load import Load
from stores import StorePlace
from waiting import PATIENCE_S, wait_until

from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.task import make_task

pytestmark = pytest.mark.large

TASK_TOML = 'id = "heights"\nepsilon = 1\n[domain]\nkind = "number"\nlower = 150\nupper = 200\n'
TASK = make_task({"id": "heights", "epsilon": 1, "domain": {"kind": "number", "lower": 150, "upper": 200}})
HUSH = [sys.executable, "-m", "hush"]
RESTART_S = 3.0  # of the five that are promised: a busy machine delays the service, too


class Service:
    """`hush serve` on a store in PostgreSQL."""

    def __init__(self, store: str, broker: str, directory: Path) -> None:
        self._log = directory / "log"
        (directory / "task.toml").write_text(TASK_TOML, encoding="utf-8")
        task = str(directory / "task.toml")
        self._command = [*HUSH, "serve", "--broker", broker, "--store", store, "--task", task]
        self.start()

    def start(self) -> None:
        with self._log.open("w") as log:
            self.process = subprocess.Popen(self._command, stderr=log)
        wait_until(lambda: "connected to" in self.log())

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def log(self) -> str:
        return self._log.read_text("utf-8")


def hush(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HUSH, *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_every_command_works_on_a_store_in_postgres(postgres: StorePlace, mosquitto: Mosquitto, tmp_path: Path) -> None:
    assert isinstance(postgres.address, PostgresUrl)
    where = f"127.0.0.1:{postgres.address.options['port']}/postgres?schema={postgres.address.schema}"
    store = f"postgresql://hush:s3cret@{where}"
    service = Service(store, mosquitto.url, tmp_path)
    try:
        for k in range(3):
            device = ("--spread", "0", "--state", str(tmp_path / str(k)))
            sent = hush("report", "heights", "172", "--broker", mosquitto.url, *device)
            assert sent.returncode == 0, sent.stderr
        assert estimate(mosquitto.port, 3)["n"] == 3
        (listed,) = json.loads(hush("task", "list", "--store", store, "--json").stdout)["tasks"]
        assert (listed["task"], listed["state"]) == ("heights", "open")
        assert json.loads(hush("results", "heights", "--store", store, "--json").stdout)["results"][0]["n"] == 3
        exported = hush("export", "heights", "--store", store, "--out", str(tmp_path / "out.csv"))
        assert exported.returncode == 0, exported.stderr
        with (tmp_path / "out.csv").open() as file:
            assert len([*csv.DictReader(file)]) == 3
        (checked, *_) = json.loads(hush("doctor", "--store", store, "--json").stdout)["checks"]
        assert (checked["check"], checked["status"]) == ("store", "ok")
        assert hush("task", "close", "heights", "--store", store).returncode == 0
        backup = hush("store", "backup", str(tmp_path / "backup"), "--store", store)
        assert (backup.returncode, "pg_dump" in backup.stderr) == (1, True)
        second = hush("serve", "--broker", mosquitto.url, "--store", store)
        assert (second.returncode, "another aggregator" in second.stderr) == (1, True)
        assert service.stop() == 0
    finally:
        service.process.kill()
    assert "s3cret" not in service.log() + backup.stderr + second.stderr
    assert hush("task", "forget", "heights", "--yes", "--store", store).returncode == 0
    assert postgres.ids() == []


# A server that restarts


@pytest.fixture
def service(own_postgres_server: Postgres, mosquitto: Mosquitto, tmp_path: Path) -> Iterator[Service]:
    service = Service(own_postgres_server.url, mosquitto.url, tmp_path)
    yield service
    service.process.kill()
    service.process.wait()


def query(server: Postgres, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.url) as connection:
        return connection.execute(statement.encode()).fetchall()


def counted(server: Postgres) -> int:
    return int(query(server, "SELECT coalesce(sum(n), 0) FROM hush.tally")[0][0])


def counts_more(server: Postgres, reports: int) -> None:
    before = counted(server)
    wait_until(lambda: counted(server) >= before + reports)


def restart_often(server: Postgres, mosquitto: Mosquitto, service: Service, times: int) -> None:
    """Restart the server under load; the service goes on, and counts every report once."""
    with Load(mosquitto.port, TASK) as load:
        for k in range(times):
            counts_more(server, 50)
            began = time.monotonic()
            server.stop("fast" if k % 2 else "immediate")
            server.start()
            is_short = time.monotonic() - began < RESTART_S  # otherwise nothing is promised
            if not is_short and service.process.poll() is not None:
                service.start()
            counts_more(server, 1)
            assert service.process.poll() is None, service.log()
        load.end()
        wait_until(lambda: counted(server) == load.made)
    found = query(server, "SELECT count(*), count(DISTINCT id) FROM hush.report")
    assert found == [(load.made, load.made)]
    assert query(server, "SELECT reason FROM hush.refusal") == []
    assert service.stop() == 0, service.log()


def test_a_restart_of_the_database_is_survived(
    own_postgres_server: Postgres, mosquitto: Mosquitto, service: Service
) -> None:
    restart_often(own_postgres_server, mosquitto, service, 2)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_restarts_of_the_database_are_survived(
    own_postgres_server: Postgres, mosquitto: Mosquitto, service: Service
) -> None:
    restart_often(own_postgres_server, mosquitto, service, 200)


def test_a_database_that_stays_away_ends_the_service_with_one_line(
    own_postgres_server: Postgres, mosquitto: Mosquitto, service: Service
) -> None:
    with Load(mosquitto.port, TASK) as load:
        counts_more(own_postgres_server, 50)
        own_postgres_server.stop()
        assert service.process.wait(PATIENCE_S) == 1
        own_postgres_server.start()
        service.start()
        counts_more(own_postgres_server, 50)
        own_postgres_server.stop()
        assert service.stop() == 1
        assert own_postgres_server.url in service.log().splitlines()[-1]
        own_postgres_server.start()
        service.start()
        load.end()
        wait_until(lambda: counted(own_postgres_server) == load.made)
