"""`hush serve --http` as operators watch it: metrics that say what was counted, and a log of one object a line."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from servers import Mosquitto, free_port, need

from hush_common.task import make_task
from hush_common.wire import Report, encode_frame

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "bit"}})
TOKEN = "t0k3n" + secrets.token_hex(20)


def send(mosquitto: Mosquitto, folder: Path, topic: str, content: bytes, *options: str) -> None:
    payload = folder / "payload"
    payload.write_bytes(content)
    command = [need("mosquitto_pub"), "-p", str(mosquitto.port), "-u", "alice", "-P", "right", "-q", "1", *options]
    subprocess.run([*command, "-t", topic, "-f", str(payload)], check=True, timeout=60)


def publish(mosquitto: Mosquitto, folder: Path, task: str, count: int) -> None:
    reports = [Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (1,)) for _ in range(count)]
    send(mosquitto, folder, f"hush/v1/reports/{task}/x", encode_frame(reports))


def metrics(client: httpx.Client, wanted: str) -> str:
    """The metrics, once a line of them is there."""
    deadline = time.monotonic() + 60
    text = ""
    while wanted not in text.splitlines():
        assert time.monotonic() < deadline, text
        time.sleep(0.2)
        try:
            text = client.get("/metrics").text
        except httpx.TransportError:
            continue
    return text


@pytest.mark.large
def test_metrics_and_log_of_a_service(guarded_mosquitto: Mosquitto, tmp_path: Path) -> None:
    (tmp_path / "task.json").write_bytes(HEIGHTS.payload)
    port, log = free_port(), tmp_path / "log"
    command = [sys.executable, "-m", "hush", "serve", "--store", str(tmp_path / "s.sqlite"), "--log-format", "json"]
    command += ["--task", str(tmp_path / "task.json"), "--http", f"127.0.0.1:{port}"]
    broker = f"mqtt://alice:right@127.0.0.1:{guarded_mosquitto.port}"
    environment = {**os.environ, "HUSH_HTTP_TOKEN": TOKEN, "HUSH_BROKER": broker}
    with log.open("wb") as stderr, subprocess.Popen(command, stderr=stderr, env=environment) as service:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                metrics(client, "hush_broker_connected 1.0")
                for number in range(3):
                    publish(guarded_mosquitto, tmp_path, f"made-up-{number}", 1)
                neighbour = make_task({"id": "walks", "epsilon": "1", "domain": {"kind": "bit"}})
                send(guarded_mosquitto, tmp_path, "hush/v1/tasks/walks", neighbour.payload, "--retain")
                publish(guarded_mosquitto, tmp_path, "walks", 200)
                publish(guarded_mosquitto, tmp_path, "heights", 5)
                text = metrics(client, 'hush_reports_accepted_total{task="heights"} 5.0')
        finally:
            service.send_signal(signal.SIGTERM)
            assert service.wait(60) == 0
    assert 'hush_reports_refused_total{reason="unknown_task"} 3.0' in text.splitlines()
    assert set(re.findall(r'task="([^"]*)"', text)) == {"heights"}
    assert "made-up" not in text
    assert "hush_batch_reports_sum 8.0" in text.splitlines()
    assert "hush_foreign_reports_total 200.0" in text.splitlines()
    values = {
        name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    }
    assert 10e6 < values["process_resident_memory_bytes"] < 1e9
    assert values["hush_store_bytes"] > 4096
    assert values["hush_store_free_bytes"] > 0
    assert values["hush_estimates_failed"] == 0
    assert values["hush_estimate_age_seconds"] in (0, 60)
    assert values['hush_http_request_duration_seconds_count{code="2xx"}'] > 0
    assert not {name for name in values if "certificate" in name or "backup" in name or "notif" in name}
    written = log.read_text(encoding="utf-8")
    events = [json.loads(line)["event"] for line in written.splitlines()]
    assert {"listening", "connected", "refused", "accepted_since_start", "stopped"} <= set(events)
    assert "right" not in written.replace("rights", "")
    assert TOKEN not in written
