"""Metrics: what was counted by task and reason, the state of a service, and nothing about when or by whom."""

import gc
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from commands import run
from http_world import TOKEN, Service, asked, make_store
from prometheus_client.parser import text_string_to_metric_families
from servers import Mosquitto, free_port, need
from waiting import PATIENCE_S, wait_until

from hush_aggregator import SqliteStore
from hush_aggregator.count.intake import Backlog, IntakeStatus
from hush_aggregator.ops.metrics import EVERY_S, Exposition, IntakeFigures, MetricValues, StoreFigures
from hush_aggregator.ops.service_metrics import ProcessFigures, ServiceValues
from hush_aggregator.publish.status import EstimateStatus
from hush_aggregator.store import CommitOutcome, TaskCount
from hush_aggregator.store.disk import StoreDisk, disk_of, note_backup, read_backup
from hush_common.task import make_task
from hush_common.wire import Refusal, Report, encode_frame

NOW = datetime(2026, 11, 23, 6, 30, 17, tzinfo=UTC)


def text(figures: MetricValues) -> str:
    return Exposition(lambda: figures, "1.2.3").text().decode()


def samples(shown: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(shown)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def at(shown: str, name: str, **labels: str) -> float | None:
    return samples(shown).get((name, frozenset(labels.items())))


def outcome(counted: Mapping[str, int], refused: Mapping[Refusal, int] | None = None) -> CommitOutcome:
    found = CommitOutcome(sum(counted.values()), refused or {}, frozenset(counted), counted=counted)
    return replace(found, commit_s=0.02, acknowledged_s=0.3)


def intake(*tasks: str) -> IntakeStatus:
    return IntakeStatus(
        tasks,
        connected=True,
        waiting=7,
        dropped=2,
        backlog=Backlog(5000, 400.0),
        stored=800,
        connections={"intake": 1, "control": 3},
        repeated=9,
        without_room=3,
    )


# What was counted


def test_counts_go_on_from_those_of_the_store() -> None:
    counting = IntakeFigures({"a": 10, "b": 0}, {Refusal.DUPLICATE: 5})
    counting.add(outcome({"a": 2}, {Refusal.DUPLICATE: 1, Refusal.QUOTA: 4}))
    shown = text(counting.figures(intake("a", "b")))
    for task, count in (("a", 12), ("b", 0)):
        assert at(shown, "hush_reports_accepted_total", task=task) == count
    for reason, count in (("duplicate", 6), ("quota", 4), ("closed", 0)):
        assert at(shown, "hush_reports_refused_total", reason=reason) == count
    assert at(shown, "hush_commit_duration_seconds_bucket", le="0.05") == 1
    assert at(shown, "hush_commit_duration_seconds_bucket", le="0.01") == 0
    assert at(shown, "hush_broker_connections_total", connection="control") == 3
    assert at(shown, "hush_build_info", version="1.2.3") == 1
    alone = {
        "hush_batch_reports_sum": 7,
        "hush_acknowledge_lag_seconds_sum": 0.3,
        "hush_inbox_messages": 7,
        "hush_broker_connected": 1,
        "hush_broker_dropped_messages_total": 2,
        "hush_broker_stored_messages": 800,
        "hush_backlog_draining": 1,
        "hush_packet_ids_repeated_total": 9,
        "hush_tasks_without_room": 3,
    }
    assert {name: at(shown, name) for name in alone} == alone


def test_a_task_that_the_store_does_not_have_is_no_label() -> None:
    counting = IntakeFigures({"a": 10, "gone": 3}, {})
    counting.add(outcome({f"made-up-{number}": 1 for number in range(1000)} | {"a": 1}))
    shown = text(counting.figures(intake("a")))
    assert re.findall(r'task="([^"]*)"', shown) == ["a"]
    assert "gone" not in shown


def test_no_sample_says_when_something_was_counted() -> None:
    counting = IntakeFigures({}, {})
    counting.add(outcome({"a": 1}))
    shown = text(counting.figures(intake("a")))
    assert "_created" not in shown
    assert max(samples(shown).values()) < 1e6  # no time since 1970 either
    assert all(len(line.split(" ")) == 2 for line in shown.splitlines() if not line.startswith("#"))  # no time stamp


def test_metrics_stay_the_same_for_a_second_however_often_they_are_read() -> None:
    counting, now = IntakeFigures({}, {}), [100.0]
    exposition = Exposition(lambda: counting.figures(intake("a")), "1", clock=lambda: now[0])
    before = exposition.text()
    counting.add(outcome({"a": 1}))
    now[0] += EVERY_S * 0.99
    assert exposition.text() == before
    now[0] += EVERY_S * 0.02
    assert at(exposition.text().decode(), "hush_reports_accepted_total", task="a") == 1
    assert EVERY_S >= 1


def test_reports_for_other_stores_are_no_refusals() -> None:
    counting = IntakeFigures({}, {})
    counting.add(replace(outcome({}), foreign=5))
    shown = text(counting.figures(intake("a")))
    assert at(shown, "hush_foreign_reports_total") == 5
    assert {value for (name, _), value in samples(shown).items() if name == "hush_reports_refused_total"} == {0}


def test_refusals_never_fall_when_a_task_is_forgotten() -> None:
    alone = StoreFigures()
    for refused in (5, 2, 4):  # to Prometheus, a counter that falls has begun anew
        alone.look_at([], {Refusal.CLOSED: refused})
    assert alone.figures().refused[Refusal.CLOSED] == 7


@pytest.mark.medium
@pytest.mark.virtual_time
async def test_a_store_alone_has_its_counts_and_nothing_of_an_intake(tmp_path: Path) -> None:
    alone = StoreFigures()
    alone.look_at([TaskCount("a", b"", counted=12), TaskCount("b", b"")], {Refusal.CLOSED: 5})
    assert at(text(alone.figures()), "hush_reports_accepted_total", task="a") == 12
    async with asked(Service(make_store(tmp_path / "store"))) as client:
        for place, status in (("/v1/tasks", 200), ("/v1/tasks/none", 404)):
            assert (await client.get(place)).status_code == status
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert at(answer.text, "hush_reports_accepted_total", task="heights") == 45
    assert at(answer.text, "hush_reports_refused_total", reason="closed") == 3
    assert at(answer.text, "hush_broker_connected") is None
    for code in ("2xx", "4xx"):  # each request once, under its class
        assert at(answer.text, "hush_http_request_duration_seconds_count", code=code) == 1


# The state of a service


def of_service(values: ServiceValues) -> dict[str, float]:
    found = samples(text(replace(StoreFigures().figures(), service=values)))
    known = ("hush_reports_refused_total", "hush_build_info")
    return {name: value for (name, _), value in found.items() if name not in known}


def test_each_value_of_a_service_has_its_metric() -> None:
    assert of_service(ServiceValues()) == {}  # what is not known is missing
    values = ServiceValues(
        ProcessFigures(123, 4.5, 6, 7), StoreDisk(8, 9), NOW, EstimateStatus(10, 11, 119.0), NOW + timedelta(1), 13
    )
    assert of_service(values) == {
        "process_resident_memory_bytes": 123,
        "process_cpu_seconds_total": 4,
        "process_open_fds": 6,
        "process_max_fds": 7,
        "hush_store_bytes": 1 << 20,  # in full megabytes
        "hush_store_free_bytes": 0,
        "hush_backup_timestamp_seconds": NOW.timestamp(),
        "hush_estimates_due": 10,
        "hush_estimates_failed": 11,
        "hush_estimate_age_seconds": 60,  # in full minutes
        "hush_broker_certificate_expiry_timestamp_seconds": NOW.timestamp() + 86400,
        "hush_notifications_waiting": 13,
    }


def test_the_values_of_this_process_and_its_store(tmp_path: Path) -> None:
    path = tmp_path / "hush.sqlite3"
    with SqliteStore(path):
        values = ServiceValues.read(path)
        assert values.disk is not None
        assert values.disk.used == sum(file.stat().st_size for file in tmp_path.iterdir() if file.suffix != ".lock")
    assert values.process is not None
    assert 10e6 < values.process.memory < 10e9
    gc.collect()  # so that no forgotten file is closed meanwhile
    before = ProcessFigures.read()
    with Path(os.devnull).open("rb"):
        after = ProcessFigures.read()
    assert before is not None
    assert after is not None
    assert before.files + 1 == after.files <= after.most_files
    assert (values.backup_at, values.estimates, values.certificate_until) == (None, None, None)
    missing = ServiceValues.read(tmp_path / "none").disk
    assert missing is not None
    assert missing.used == 0
    assert ServiceValues.read(tmp_path / "no-directory" / "none").disk is None


# Backups


def test_a_backup_leaves_a_mark_that_its_copy_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "hush.sqlite3"
    backup = ["store", "backup", "copy.sqlite3", "--store", str(path)]
    assert run(backup, tmp_path).code == 1
    assert read_backup(path) is None
    with SqliteStore(path):
        pass
    before = datetime.now(UTC)
    assert run(backup, tmp_path).code == 0
    mark = read_backup(path)
    assert mark is not None
    assert before - timedelta(minutes=1) < mark.at <= datetime.now(UTC)
    assert (mark.at.second, mark.used) == (0, disk_of(path).used)
    assert read_backup(tmp_path / "copy.sqlite3") is None
    assert ServiceValues.read(path).backup_at == mark.at


def test_a_mark_is_the_last_one_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "hush.sqlite3"
    for size, days in ((1000, 0), (5000, 1)):
        path.write_bytes(bytes(size))
        note_backup(path, NOW + timedelta(days=days))
    mark = read_backup(path)
    assert mark is not None
    assert (mark.at, mark.used) == (NOW.replace(second=0) + timedelta(days=1), 5000)
    for content in (b"", b"{}", b"[]", b'{"at":"2026-11-23T06:30","bytes":1}', b'{"at":"x","bytes":1}', b"\xff"):
        (tmp_path / "hush.sqlite3.backup").write_bytes(content)
        assert read_backup(path) is None


# As operators see it

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "bit"}})


def send(mosquitto: Mosquitto, topic: str, content: bytes, *options: str) -> None:
    command = [need("mosquitto_pub"), "-p", str(mosquitto.port), "-u", "alice", "-P", "right", "-q", "1", *options]
    subprocess.run([*command, "-t", topic, "-s"], input=content, check=True, timeout=PATIENCE_S)


def publish(mosquitto: Mosquitto, task: str, count: int) -> None:
    reports = [Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (1,)) for _ in range(count)]
    send(mosquitto, f"hush/v1/reports/{task}/x", encode_frame(reports))


@pytest.mark.large
def test_metrics_and_log_of_a_service(guarded_mosquitto: Mosquitto, tmp_path: Path) -> None:
    (tmp_path / "task.json").write_bytes(HEIGHTS.payload)
    port, log = free_port(), tmp_path / "log"
    command = [sys.executable, "-m", "hush", "serve", "--store", str(tmp_path / "s.sqlite"), "--log-format", "json"]
    command += ["--task", str(tmp_path / "task.json"), "--http", f"127.0.0.1:{port}"]
    broker = f"mqtt://alice:right@127.0.0.1:{guarded_mosquitto.port}"
    environment = {**os.environ, "HUSH_HTTP_TOKEN": TOKEN, "HUSH_BROKER": broker}
    found = [""]

    def has(name: str, value: float, **labels: str) -> bool:
        with suppress(httpx.TransportError):
            found[0] = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S).text
        return at(found[0], name, **labels) == value

    with log.open("wb") as stderr, subprocess.Popen(command, stderr=stderr, env=environment) as service:
        try:
            wait_until(lambda: has("hush_broker_connected", 1))
            for number in range(3):
                publish(guarded_mosquitto, f"made-up-{number}", 1)
            neighbour = make_task({"id": "walks", "epsilon": "1", "domain": {"kind": "bit"}})
            send(guarded_mosquitto, "hush/v1/tasks/walks", neighbour.payload, "--retain")
            publish(guarded_mosquitto, "walks", 200)
            publish(guarded_mosquitto, "heights", 5)
            wait_until(lambda: has("hush_reports_accepted_total", 5, task="heights"))
        finally:
            service.send_signal(signal.SIGTERM)
            assert service.wait(PATIENCE_S) == 0
    (shown,) = found
    assert at(shown, "hush_reports_refused_total", reason="unknown_task") == 3
    assert at(shown, "hush_foreign_reports_total") == 200
    assert set(re.findall(r'task="([^"]*)"', shown)) == {"heights"}
    assert "made-up" not in shown
    values = {name: value for (name, _), value in samples(shown).items()}
    assert 10e6 < values["process_resident_memory_bytes"] < 1e9
    assert values["hush_store_bytes"] > 4096
    assert values["hush_estimates_failed"] == 0
    assert not {name for name in values if "certificate" in name or "backup" in name or "notif" in name}
    written = log.read_text(encoding="utf-8")
    events = {json.loads(line)["event"] for line in written.splitlines()}
    assert {"listening", "connected", "refused", "accepted_since_start", "stopped"} <= events
    assert "right" not in written.replace("rights", "")
    assert TOKEN not in written
