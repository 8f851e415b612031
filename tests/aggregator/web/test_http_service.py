"""HTTP beside an aggregator and alone, as processes, with a real broker."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest
from http_process import TOKEN, HttpProcess, running, write_token
from servers import Mosquitto, free_port
from serving import estimate

from hush_aggregator import SqliteStore

HEIGHTS = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 250.0}}
PATIENCE_S = 60


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


def results(found: httpx.Response) -> dict[str, object]:
    return {name: value for name, value in found.json().items() if name not in ("updated_at", "owner")}


@pytest.mark.large
def test_what_is_given_over_http_is_published_counted_and_told_alike_everywhere(
    broker: Mosquitto, tmp_path: Path
) -> None:
    with running(tmp_path, serve(broker, tmp_path), option="--http") as service:
        service.until("/readyz", 200)
        assert service.post("/v1/tasks", HEIGHTS).status_code == 201
        report(broker, tmp_path, "a")
        retained = estimate(broker.port, 1)
        shown = hush("results", "heights", "--store", str(tmp_path / "store"), "--json")
        document = service.get("/v1/tasks/heights/rounds/latest").json()
        command = json.loads(shown.stdout)["results"][0]
        names = document.keys() - {"updated_at"}
        assert document["n"] == 1
        assert {name: document[name] for name in names} == {name: command[name] for name in names}
        assert {name: document[name] for name in names} == {name: retained[name] for name in names}
        alone = tmp_path / "alone"
        alone.mkdir()
        with running(alone, ["http", "--store", str(tmp_path / "store")]) as other:  # beside it, and only reads
            assert results(other.get("/v1/tasks/heights/rounds/latest")) == results(
                service.get("/v1/tasks/heights/rounds/latest")
            )
            assert other.post("/v1/tasks/heights/close").status_code == 403
            assert other.get("/readyz").status_code == 200
            assert service.post("/v1/tasks/heights/close").status_code == 200
            assert other.get("/v1/tasks/heights/rounds/latest").json()["final"] is True
        broker.stop()
        assert "not connected" in service.until("/readyz", 503).json()["detail"]
        broker.start()
        service.until("/readyz", 200)
    assert_secret(service, tmp_path)


def assert_secret(service: HttpProcess, directory: Path) -> None:
    """The token is in no log and no file but its own."""
    for file in directory.rglob("*"):
        if file.is_file() and file.name != "token":
            assert TOKEN.encode() not in file.read_bytes(), file
    lines = service.log.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if "GET" in line or "/v1/" in line], "a request was logged"


@pytest.mark.large
def test_the_token_is_in_no_list_of_processes_and_no_log(tmp_path: Path) -> None:
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
    assert_secret(service, tmp_path)


@pytest.mark.large
def test_reading_goes_on_while_the_store_is_written_locked_or_away(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(tmp_path, ["http", "--store", str(store)]) as service:
        assert service.get("/readyz").status_code == 503
        with SqliteStore(store):
            assert service.get("/readyz").status_code == 200
            with closing(sqlite3.connect(store, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")  # whoever writes holds up nobody who reads
                other.execute("UPDATE identity SET newest = '2026-01-01'")
                assert service.get("/v1/tasks").status_code == 200
                other.execute("ROLLBACK")
        os.rename(store, tmp_path / "away")  # noqa: PTH104 - as `mv` does
        assert service.get("/v1/tasks").status_code == 503
        assert service.get("/healthz").status_code == 200


def child_of(process: int) -> int:
    """The process of HTTP."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for pid in (Path("/proc") / str(process) / "task" / str(process) / "children").read_text().split():
            with suppress(OSError):
                if b"hush_aggregator.http.process" in (Path("/proc") / pid / "cmdline").read_bytes():
                    return int(pid)
        assert time.monotonic() < deadline
        time.sleep(0.05)


def somebody_listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0  # also where the process that listens is stopped


@pytest.mark.large
def test_http_that_ends_or_hangs_ends_no_intake_and_is_started_again(broker: Mosquitto, tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text(json.dumps(HEIGHTS), encoding="utf-8")
    with running(
        tmp_path, [*serve(broker, tmp_path), "--task", str(tmp_path / "task.json")], option="--http"
    ) as service:
        service.until("/readyz", 200)
        first = child_of(service.process.pid)
        os.kill(first, signal.SIGKILL)
        report(broker, tmp_path, "a")
        assert estimate(broker.port, 1)["n"] == 1
        service.until("/readyz", 200)  # who asked meanwhile has waited
        second = child_of(service.process.pid)
        assert second != first
        os.kill(second, signal.SIGSTOP)
        report(broker, tmp_path, "b")
        assert estimate(broker.port, 2)["n"] == 2
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(PATIENCE_S) == 0  # although the other one had to be killed
        with pytest.raises(ProcessLookupError):
            os.kill(second, 0)


@pytest.mark.large
def test_http_tells_of_an_intake_that_hangs_and_ends_with_one_that_dies(broker: Mosquitto, tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "hush", *serve(broker, tmp_path), "--http", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        service = HttpProcess(process, port, tmp_path / "none")
        http = child_of(service.process.pid)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                service.until("/readyz", 200)
                break
        service.process.send_signal(signal.SIGSTOP)
        for path in ("/healthz", "/readyz"):
            assert "nothing was heard of the aggregator" in service.until(path, 503).json()["detail"]
        service.process.send_signal(signal.SIGCONT)
        service.until("/healthz", 200)
        os.kill(http, signal.SIGSTOP)  # a process that hangs does not notice the end of the other one
        service.process.kill()
        service.process.wait()
        deadline = time.monotonic() + 60
        while somebody_listens(service.port):
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.large
def test_a_port_that_is_taken_ends_the_command_before_the_store_is_made(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port()))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        run = hush("serve", "--broker", "mqtt://127.0.0.1:9", "--store", str(tmp_path / "store"), "--http", taken)
    assert run.returncode == 2
    assert run.stderr.startswith(f"hush: --http: cannot listen on {taken}")
    assert not (tmp_path / "store").exists()


@pytest.mark.large
def test_an_open_stream_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store"):
        pass
    with running(tmp_path, ["http", "--store", str(tmp_path / "store")]) as service:
        with httpx.stream("GET", f"{service.url}/v1/events", timeout=PATIENCE_S) as stream:
            assert next(stream.iter_lines()).startswith(("event:", "retry:", "id:", "data:", ":"))
            began = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(PATIENCE_S) == 0
        assert time.monotonic() - began < PATIENCE_S
