"""The metrics of a service: what an operator has to know before it fails, and nothing about when a report came."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commands import run
from prometheus_client.parser import text_string_to_metric_families

from hush_aggregator import SqliteStore
from hush_aggregator.http.latency import LatencyMiddleware, RequestLatency
from hush_aggregator.metrics import Exposition, MetricValues, StoreFigures
from hush_aggregator.service_metrics import ProcessFigures, ServiceValues
from hush_aggregator.status import EstimateStatus
from hush_aggregator.store.disk import StoreDisk, disk_of, note_backup, read_backup

NOW = datetime(2026, 11, 23, 6, 30, 17, tzinfo=UTC)


def samples(values: ServiceValues) -> Mapping[str, float]:
    figures: MetricValues = replace(StoreFigures().figures(), service=values)
    text = Exposition(lambda: figures, "1").text().decode()
    found = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    known = ("hush_reports_refused_total", "hush_build_info")
    return {sample.name: sample.value for sample in found if sample.name not in known}


def test_what_is_not_known_is_missing() -> None:
    assert samples(ServiceValues()) == {}


def test_each_value_has_its_metric() -> None:
    values = ServiceValues(
        ProcessFigures(123, 4.5, 6, 7), StoreDisk(8, 9), NOW, EstimateStatus(10, 11, 12.0), NOW + timedelta(1), 13
    )
    assert samples(values) == {
        "process_resident_memory_bytes": 123,
        "process_cpu_seconds_total": 4,
        "process_open_fds": 6,
        "process_max_fds": 7,
        "hush_store_bytes": 1 << 20,
        "hush_store_free_bytes": 0,
        "hush_backup_timestamp_seconds": NOW.timestamp(),
        "hush_estimates_due": 10,
        "hush_estimates_failed": 11,
        "hush_estimate_age_seconds": 0,
        "hush_broker_certificate_expiry_timestamp_seconds": NOW.timestamp() + 86400,
        "hush_notifications_waiting": 13,
    }


@pytest.mark.parametrize(("age", "shown"), [(0.0, 0), (59.9, 0), (60.0, 60), (119.9, 60), (7201.0, 7200)])
def test_the_age_of_an_estimate_is_in_full_minutes(age: float, shown: float) -> None:
    assert samples(ServiceValues(estimates=EstimateStatus(0, 0, age)))["hush_estimate_age_seconds"] == shown


def test_the_values_of_this_process_and_its_store(tmp_path: Path) -> None:
    path = tmp_path / "hush.sqlite3"
    with SqliteStore(path):
        values = ServiceValues.read(path)
        assert values.disk is not None
        sizes = [file.stat().st_size for file in tmp_path.iterdir() if file.suffix != ".lock"]
        assert values.disk.used == sum(sizes)
    assert values.process is not None
    assert 10e6 < values.process.memory < 10e9
    assert 0 < values.process.files <= values.process.most_files
    assert (values.backup_at, values.estimates, values.certificate_until) == (None, None, None)


def test_an_open_file_is_one_more() -> None:
    before = ProcessFigures.read()
    with Path(os.devnull).open("rb"):
        after = ProcessFigures.read()
    assert before is not None
    assert after is not None
    assert after.files == before.files + 1
    assert after.cpu_s >= before.cpu_s


def test_a_store_that_is_not_there_has_no_size_and_a_disk_all_the_same(tmp_path: Path) -> None:
    values = ServiceValues.read(tmp_path / "none")
    assert values.disk is not None
    assert values.disk.used == 0
    assert ServiceValues.read(tmp_path / "no-directory" / "none").disk is None


# Backups


def test_a_backup_leaves_a_mark_that_a_restored_or_copied_store_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "hush.sqlite3"
    with SqliteStore(path):
        pass
    before = datetime.now(UTC)
    assert run(["store", "backup", "copy.sqlite3", "--store", str(path)], tmp_path).code == 0
    mark = read_backup(path)
    assert mark is not None
    assert before - timedelta(minutes=1) < mark.at <= datetime.now(UTC)
    assert mark.at.second == 0
    assert mark.used == disk_of(path).used
    assert read_backup(tmp_path / "copy.sqlite3") is None
    assert ServiceValues.read(path).backup_at == mark.at


def test_a_backup_that_failed_leaves_none(tmp_path: Path) -> None:
    path = tmp_path / "hush.sqlite3"
    assert run(["store", "backup", "copy.sqlite3", "--store", str(path)], tmp_path).code == 1
    assert read_backup(path) is None


def test_a_backup_without_a_mark_is_made_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "hush.sqlite3"
    with SqliteStore(path):
        pass
    (tmp_path / "hush.sqlite3.backup").mkdir()
    shown = run(["store", "backup", "copy.sqlite3", "--store", str(path)], tmp_path)
    assert shown.code == 0
    assert "no mark could be left next to" in shown.err
    assert (tmp_path / "copy.sqlite3").is_file()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b'{"at":"2026-11-23T06:30","bytes":1}',
        b'{"at":1,"bytes":1}',
        b'{"at":"x","bytes":1}',
        b"\xff",
    ],
)
def test_a_mark_that_cannot_be_read_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "hush.sqlite3.backup").write_bytes(content)
    assert read_backup(tmp_path / "hush.sqlite3") is None


def test_a_later_backup_replaces_the_mark(tmp_path: Path) -> None:
    path = tmp_path / "hush.sqlite3"
    path.write_bytes(bytes(1000))
    note_backup(path, NOW)
    path.write_bytes(bytes(5000))
    note_backup(path, NOW + timedelta(days=1))
    mark = read_backup(path)
    assert mark is not None
    assert (mark.at, mark.used) == (NOW.replace(second=0) + timedelta(days=1), 5000)


# HTTP


@pytest.mark.parametrize(("status", "name"), [(200, "2xx"), (304, "3xx"), (404, "4xx"), (503, "5xx"), (700, "5xx")])
def test_a_request_is_measured_once_under_its_class_until_its_answer_begins(
    status: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    latency, now = RequestLatency(), [5.0]
    monkeypatch.setattr("hush_aggregator.http.latency.time.perf_counter", lambda: now[0])

    async def app(_scope: object, _receive: object, send: "Sender") -> None:
        now[0] += 0.06
        await send({"type": "http.response.start", "status": status})
        now[0] += 0.3
        await send({"type": "http.response.body"})

    asyncio.run(ask(LatencyMiddleware(app, latency), "http"))  # type: ignore[arg-type]  # a simpler application
    counts = {code: histogram.cumulative()[-1][1] for code, histogram in latency.histograms.items()}
    assert counts == dict.fromkeys(counts, 0) | {name: 1}
    assert latency.histograms[name].sum == pytest.approx(0.06)


class Sender:
    """What the application sends to."""

    def __init__(self) -> None:
        self.sent: list[object] = []

    async def __call__(self, message: object) -> None:
        self.sent.append(message)


async def ask(app: LatencyMiddleware, kind: str) -> Sender:
    async def receive() -> dict[str, str]:
        return {"type": "http.request"}

    sender = Sender()
    await app({"type": kind}, receive, sender)
    assert len(sender.sent) == 2
    return sender


def test_what_is_no_request_is_not_measured() -> None:
    latency = RequestLatency()

    async def app(_scope: object, _receive: object, send: Sender) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "lifespan.shutdown.complete"})

    asyncio.run(ask(LatencyMiddleware(app, latency), "lifespan"))  # type: ignore[arg-type]  # as above
    assert {histogram.cumulative()[-1][1] for histogram in latency.histograms.values()} == {0}
