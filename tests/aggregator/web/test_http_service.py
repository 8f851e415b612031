"""HTTP next to an aggregator and alone, as processes, with a real broker."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_process import TOKEN, HttpProcess, running, write_token
from servers import Mosquitto
from serving import estimate
from waiting import PATIENCE_S, wait_until

from hush_aggregator import SqliteStore

HEIGHTS = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 250.0}}
LATEST = "/v1/tasks/heights/rounds/latest"

pytestmark = pytest.mark.face
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker")
    broker.start()
    yield broker
    broker.stop()


def hush(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hush", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def serve(broker: Mosquitto, directory: Path) -> list[str]:
    words = ["serve", "--broker", broker.url, "--store", str(directory / "store"), "--http-write"]
    return [*words, "--http-token-file", str(write_token(directory))]


def report(broker: Mosquitto, directory: Path, device: str) -> None:
    run = hush("report", "heights", "172", "--broker", broker.url, "--state", str(directory / device), "--spread", "0")
    assert run.returncode == 0, run.stderr


def assert_secret(service: HttpProcess, directory: Path) -> None:
    """The token is in no log and no file but its own, and no request is logged."""
    for file in directory.rglob("*"):
        if file.is_file() and file.name != "token":
            assert TOKEN.encode() not in file.read_bytes(), file
    lines = service.log.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if "GET" in line or "/v1/" in line]


@pytest.mark.large
def test_a_task_from_http_is_published_counted_and_the_same_everywhere(broker: Mosquitto, tmp_path: Path) -> None:
    def without_time(document: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in document.items() if name not in ("updated_at", "owner", "store", "term")}

    with running(tmp_path, serve(broker, tmp_path), option="--http") as service:
        service.until("/readyz", 200)
        assert service.post("/v1/tasks", HEIGHTS).status_code == 201
        report(broker, tmp_path, "a")
        retained = estimate(broker.port, 1)
        document = without_time(service.get(LATEST).json())
        command = json.loads(hush("results", "heights", "--store", str(tmp_path / "store"), "--json").stdout)
        assert document["n"] == 1
        assert document == without_time(command["results"][0]) == without_time(retained)
        alone = tmp_path / "alone"
        alone.mkdir()
        with running(alone, ["http", "--store", str(tmp_path / "store")]) as other:  # it only reads
            assert without_time(other.get(LATEST).json()) == document
            assert other.post("/v1/tasks/heights/close").status_code == 403
            assert service.post("/v1/tasks/heights/close").status_code == 200
            assert other.get(LATEST).json()["final"] is True
        broker.stop()
        assert service.until("/readyz", 503).json()["type"].endswith("#broker-unavailable")
        broker.start()
        service.until("/readyz", 200)
    assert_secret(service, tmp_path)


@pytest.mark.medium
def test_a_token_from_the_environment_appears_nowhere(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store"):
        pass
    words = ["http", "--store", str(tmp_path / "store"), "--write"]
    with running(tmp_path, words, environment={"HUSH_HTTP_TOKEN": TOKEN}) as service:
        assert service.post("/v1/tasks", HEIGHTS).status_code == 201
        for token in ("x", TOKEN[:-1], "x" * 10_000):
            assert service.post("/v1/tasks/heights/close", token=token).status_code in (401, 431)
        listed = Path(f"/proc/{service.process.pid}/cmdline")
        if listed.exists():
            assert TOKEN.encode() not in listed.read_bytes()
        assert service.get("/v1/tasks/heights").json()["state"] == "open"
        with httpx.stream("GET", f"{service.url}/v1/events", timeout=PATIENCE_S) as stream:  # it holds up no end
            assert next(stream.iter_lines())
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(PATIENCE_S) == 0
    assert_secret(service, tmp_path)


@pytest.mark.medium
def test_reading_goes_on_while_the_store_is_written(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(tmp_path, ["http", "--store", str(store)]) as service:
        assert service.get("/readyz").status_code == 503
        with SqliteStore(store), closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert service.get("/v1/tasks").status_code == 200
            other.execute("ROLLBACK")
        os.rename(store, tmp_path / "away")  # noqa: PTH104 - as `mv` does
        assert service.get("/v1/tasks").status_code == 503
        assert service.get("/healthz").status_code == 200


def child_of(process: int) -> int:
    """The process of HTTP."""
    found: list[int] = []

    def is_there() -> bool:
        for pid in (Path("/proc") / str(process) / "task" / str(process) / "children").read_text().split():
            with suppress(OSError):
                if b"hush_aggregator.web.process" in (Path("/proc") / pid / "cmdline").read_bytes():
                    found.append(int(pid))
        return bool(found)

    wait_until(is_there)
    return found[0]


@on_linux
@pytest.mark.large
def test_http_that_ends_or_hangs_ends_no_intake_and_restarts(broker: Mosquitto, tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text(json.dumps(HEIGHTS), encoding="utf-8")
    words = [*serve(broker, tmp_path), "--task", str(tmp_path / "task.json")]
    with running(tmp_path, words, option="--http") as service:
        service.until("/readyz", 200)
        first = child_of(service.process.pid)
        os.kill(first, signal.SIGKILL)
        report(broker, tmp_path, "a")
        assert estimate(broker.port, 1)["n"] == 1
        service.until("/readyz", 200)
        second = child_of(service.process.pid)
        assert second != first
        os.kill(second, signal.SIGSTOP)
        report(broker, tmp_path, "b")
        assert estimate(broker.port, 2)["n"] == 2
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(PATIENCE_S) == 0  # although the other one had to be killed
        with pytest.raises(ProcessLookupError):
            os.kill(second, 0)


@on_linux
@pytest.mark.large
def test_http_reports_an_intake_that_hangs_and_ends_with_it(broker: Mosquitto, tmp_path: Path) -> None:
    ending = pytest.raises(AssertionError)  # `running` complains of the exit code of what is killed
    with ending, running(tmp_path, serve(broker, tmp_path), option="--http") as service:
        service.until("/readyz", 200)
        http = child_of(service.process.pid)
        service.process.send_signal(signal.SIGSTOP)
        for path in ("/healthz", "/readyz"):
            assert service.until(path, 503).json()["type"].endswith("#intake-silent")
        service.process.send_signal(signal.SIGCONT)
        service.until("/healthz", 200)
        os.kill(http, signal.SIGSTOP)  # a process that hangs does not notice the end of the other one
        service.process.kill()

    def nobody_listens() -> bool:  # a stopped process would still listen
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", service.port)) != 0

    wait_until(nobody_listens)


@pytest.mark.medium
def test_a_port_that_is_taken_ends_the_command_before_a_store_exists(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        run = hush("serve", "--broker", "mqtt://127.0.0.1:9", "--store", str(tmp_path / "store"), "--http", taken)
    assert run.returncode == 2
    assert "--http: " in run.stderr
    assert taken in run.stderr
    assert not (tmp_path / "store").exists()


BARE = """
import sys
sys.modules |= dict.fromkeys(["fastapi", "starlette", "uvicorn", "prometheus_client"])  # as if they were not installed
sys.argv = ["hush", *sys.argv[1:]]
from hush.__main__ import main
main()
"""


@pytest.mark.medium
def test_without_its_extra_http_names_it_and_the_rest_works(tmp_path: Path) -> None:
    def bare(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", BARE, *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    serving = ("serve", "--broker", "mqtt://127.0.0.1:9", "--store")
    for words in (("http", "--store", "store"), (*serving, "store", "--http", "127.0.0.1:0")):
        run = bare(*words)
        assert (run.returncode, run.stderr.count("\n")) == (1, 1)
        assert "hush-ldp[service]" in run.stderr
        assert not (tmp_path / "store").exists()
    assert bare("http", "--help").returncode == 0
    assert "hush-ldp" not in bare(*serving, "no/store").stderr
