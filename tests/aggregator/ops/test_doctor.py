"""What `hush doctor` finds in a store, at a service and about the clock."""

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import run
from servers import free_port

from hush_aggregator import SqliteStore
from hush_aggregator.closing import MADE
from hush_aggregator.doctor import peers, store
from hush_aggregator.doctor.check_result import CheckResult, Verdict, size
from hush_aggregator.doctor.peers import check_clock, check_service
from hush_aggregator.doctor.store import check_store
from hush_aggregator.store.disk import StoreDisk, is_in_use, note_backup
from hush_aggregator.watch.source import HttpUrl
from hush_common.task import make_task

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
SMOKE = make_task({"id": "smoke", "epsilon": "1", "domain": {"kind": "bit"}})
OK, WARNING, FAILURE = Verdict


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "hush.sqlite3"
    with SqliteStore(found) as opened:
        opened.add_task(SMOKE)
    return found


def found_in(path: Path, now: datetime = NOW) -> dict[str, CheckResult]:
    findings = list(check_store(path, now))
    assert all(bool(one.remedy) is (one.verdict is not OK) for one in findings)
    return {one.check: one for one in findings}


def test_a_store_that_is_backed_up_and_in_use_has_nothing_wrong(path: Path) -> None:
    note_backup(path, NOW - timedelta(days=1))
    with SqliteStore(path):
        found = found_in(path)
    assert {name: one.verdict for name, one in found.items()} == dict.fromkeys(
        ("store", "access", "service", "disk", "backup", "calendar"), OK
    )
    assert found["store"].detail == f"{path}: 1 task, 0 reports, and every sum is as it was written"


def test_checking_writes_nothing(path: Path) -> None:
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    found_in(path)
    after = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith(("-shm", "-wal"))}
    assert after == before


def test_a_store_that_cannot_be_read_is_one_finding(tmp_path: Path) -> None:
    (finding,) = check_store(tmp_path / "none", NOW)
    assert (finding.check, finding.verdict) == ("store", FAILURE)
    assert finding.remedy == "name the store of an aggregator"
    (tmp_path / "other").write_bytes(b"x" * 5000)
    (finding,) = check_store(tmp_path / "other", NOW)
    assert finding.verdict is FAILURE


def test_no_aggregator_is_a_warning(path: Path) -> None:
    assert found_in(path)["service"].verdict is WARNING
    assert not is_in_use(path)
    with SqliteStore(path):
        assert is_in_use(path)
        assert is_in_use(path)  # looking at it takes no lock
    with SqliteStore(path):  # and leaves none
        pass


def test_a_store_that_others_may_open_or_replace(path: Path) -> None:
    path.chmod(0o644)
    found = found_in(path)["access"]
    assert (found.verdict, found.remedy) == (WARNING, f"run: chmod o= {path}")
    path.chmod(0o600)
    assert found_in(path)["access"].verdict is OK
    path.parent.chmod(0o777)
    found = found_in(path)["access"]
    assert (found.verdict, found.remedy) == (FAILURE, f"run: chmod o-w {path.parent}")


@pytest.mark.parametrize(
    ("used", "free", "grown_from", "verdict", "said"),
    [
        (10e9, 1000e9, 9e9, OK, "at 1 GB a day, as since 2026-11-30, it lasts 2.74 years"),
        (10e9, 60e9, 9e9, OK, "it lasts 60 days"),
        (10e9, 20e9, 9e9, WARNING, "it lasts 20 days"),
        (10e9, 6e9, 9e9, FAILURE, "it lasts 6 days"),
        (10e9, 9e9, 9.9e9, WARNING, "it lasts 90 days"),
        (10e9, 11e9, 11e9, OK, "it has not grown since 2026-11-30"),
        (1e6, 400e6, 1e6, FAILURE, "400 MB free"),
        (1e6, 600e6, 1e6, OK, "600 MB free"),
    ],
)
def test_the_disk_lasts_as_long_as_its_growth_since_the_backup_says(  # noqa: PLR0917 - a row of the table
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    used: float,
    free: float,
    grown_from: float,
    verdict: Verdict,
    said: str,
) -> None:
    monkeypatch.setattr("hush_aggregator.store.disk.disk_of", lambda _: StoreDisk(int(grown_from), 0))
    note_backup(path, NOW - timedelta(days=1))
    monkeypatch.setattr(store, "disk_of", lambda _: StoreDisk(int(used), int(free)))
    found = found_in(path)["disk"]
    assert said in found.detail
    assert found.verdict is verdict


def test_a_growth_of_minutes_is_not_taken_for_that_of_a_day(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {NOW - timedelta(days=2): 1, NOW - timedelta(days=1): 2, NOW - timedelta(minutes=5): 3}
    for at, gigabytes in sizes.items():
        monkeypatch.setattr("hush_aggregator.store.disk.disk_of", lambda _, n=gigabytes: StoreDisk(n * 10**9, 0))
        note_backup(path, at)
    monkeypatch.setattr(store, "disk_of", lambda _: StoreDisk(4 * 10**9, 10**12))
    assert "at 2 GB a day, as since 2026-11-30" in found_in(path)["disk"].detail
    monkeypatch.setattr("hush_aggregator.store.disk.disk_of", lambda _: StoreDisk(3 * 10**9, 0))
    note_backup(path, NOW - timedelta(minutes=1))  # the mark of yesterday stays
    assert "as since 2026-11-30" in found_in(path)["disk"].detail


def test_without_a_backup_nobody_knows_how_quickly_it_grows(path: Path) -> None:
    found = found_in(path)
    assert "its growth is known six hours after the first backup" in found["disk"].detail
    assert found["backup"].verdict is WARNING
    assert found["backup"].remedy == f"run: hush store backup FILE --store {path}"


@pytest.mark.parametrize(
    ("hours", "verdict", "said"),
    [
        (1, OK, "the last backup is less than a day old"),
        (47, OK, "the last backup is 1.96 days old"),
        (49, WARNING, "the last backup is 2.04 days old"),
    ],
)
def test_a_backup_is_old_after_two_days(path: Path, hours: int, verdict: Verdict, said: str) -> None:
    note_backup(path, NOW - timedelta(hours=hours))
    found = found_in(path)["backup"]
    assert (found.verdict, found.detail) == (verdict, said)


def test_a_clock_before_the_last_day_of_the_store_is_a_failure(path: Path) -> None:
    with SqliteStore(path) as opened:
        opened.note_day(date(2026, 12, 1))
    assert found_in(path, NOW)["calendar"].verdict is OK
    found = found_in(path, NOW - timedelta(days=1))["calendar"]
    assert (found.verdict, found.detail) == (
        FAILURE,
        "the clock says 2026-11-30, but this store was in use on 2026-12-01",
    )
    before = datetime(MADE.year, MADE.month, MADE.day, tzinfo=UTC) - timedelta(days=1)
    with SqliteStore(path) as opened:
        opened.note_day(date(2020, 1, 1))
    assert f"this hush was made on {MADE} or later" in found_in(path, before)["calendar"].detail


# A service, and the clock of a server


class Answer(NamedTuple):
    """What a server answers on a path."""

    status: int = 200
    body: bytes = b"{}"
    date: str = ""


@contextmanager
def answering(answers: Mapping[str, Answer]) -> Iterator[HttpUrl]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path, Answer(404))
            self.send_response_only(answer.status)
            if answer.date:
                self.send_header("Date", answer.date)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield HttpUrl(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


METRICS = Answer(body=b'# TYPE x gauge\nhush_build_info{version="1.2"} 1.0\n')


def service(answers: Mapping[str, Answer]) -> list[tuple[str, Verdict, str]]:
    with answering({"/metrics": METRICS, **answers}) as url:
        return [(one.check, one.verdict, one.detail.replace(str(url), "URL")) for one in check_service(url, "", "1.2")]


def test_a_service_that_is_ready() -> None:
    assert service({"/readyz": Answer()}) == [("http", OK, "URL is ready"), ("release", OK, "hush 1.2 runs")]


def test_a_service_that_is_not_ready_says_why() -> None:
    problem = json.dumps({"detail": "the aggregator is not connected to its broker"}).encode()
    http_, _ = service({"/readyz": Answer(503, problem)})
    assert http_ == ("http", FAILURE, "URL is not ready: the aggregator is not connected to its broker")
    http_, _ = service({"/readyz": Answer(502, b"<html>")})
    assert http_ == ("http", FAILURE, "URL is not ready: it answers 502")


def test_a_service_that_warns_and_writes_to_terminals() -> None:
    http_, _ = service({"/readyz": Answer(body=json.dumps({"warnings": ["no room\x1b[2J"]}).encode())})
    assert http_ == ("http", WARNING, r"URL is ready, and warns: no room\x1b[2J")


def test_another_version_and_none() -> None:
    other = Answer(body=b'hush_build_info{version="1.1"} 1.0\n')
    assert service({"/readyz": Answer(), "/metrics": other})[1] == (
        "release",
        WARNING,
        "hush 1.1 runs, and 1.2 is installed here",
    )
    assert service({"/readyz": Answer(), "/metrics": Answer(401)})[1][1] is WARNING


@pytest.mark.parametrize(
    ("name", "check", "count", "found"),
    [
        ("hush_estimates_failed", "estimates", 0, (OK, "every estimate was made")),
        ("hush_estimates_failed", "estimates", 1, (WARNING, "1 task is published without figures")),
        ("hush_estimates_failed", "estimates", 12, (WARNING, "12 tasks are published without figures")),
        ("hush_notifications_waiting", "webhook", 0, (OK, "the webhook has accepted every event")),
        ("hush_notifications_waiting", "webhook", 1, (WARNING, "the webhook has not accepted 1 event")),
        ("hush_notifications_waiting", "webhook", 3, (WARNING, "the webhook has not accepted 3 events")),
    ],
)
def test_what_a_service_says_of_itself(name: str, check: str, count: int, found: tuple[Verdict, str]) -> None:
    metrics = Answer(body=METRICS.body + f"# TYPE {name} gauge\n{name} {count}.0\n".encode())
    assert service({"/readyz": Answer(), "/metrics": metrics})[2:] == [(check, *found)]


def test_no_service() -> None:
    (finding,) = check_service(HttpUrl(f"http://127.0.0.1:{free_port()}"), "", "1.2")
    assert (finding.check, finding.verdict) == ("http", FAILURE)
    assert "does not answer (Connection refused)" in finding.detail


@pytest.mark.parametrize(
    ("ahead", "verdict"),
    [(0, OK), (50, OK), (-50, OK), (70, WARNING), (-70, WARNING), (290, WARNING), (310, FAILURE), (-310, FAILURE)],
)
def test_the_clock_is_compared_with_that_of_a_server(ahead: int, verdict: Verdict) -> None:
    theirs = format_datetime(NOW - timedelta(seconds=ahead), usegmt=True)
    with answering({"/": Answer(404, date=theirs)}) as url:
        (finding,) = check_clock(url, lambda: NOW, lambda: None)
    assert (finding.check, finding.verdict) == ("clock", verdict)
    assert abs(float(finding.figures["ahead_s"]) - ahead) <= 0.6


@pytest.mark.parametrize("said", ["", "yesterday", "Mon, 99 Foo 2026 00:00:00 GMT"])
def test_a_server_that_does_not_tell_the_time(said: str) -> None:
    with answering({"/": Answer(date=said)}) as url:
        (finding,) = check_clock(url, lambda: NOW, lambda: True)
    assert (finding.verdict, finding.detail) == (WARNING, f"{url} sends no valid Date header")


def test_without_a_server_the_system_is_asked() -> None:
    assert [one.verdict for one in check_clock(None, lambda: NOW, lambda: True)] == [OK]
    assert [one.verdict for one in check_clock(None, lambda: NOW, lambda: False)] == [WARNING]
    assert list(check_clock(None, lambda: NOW, lambda: None)) == []
    assert peers.is_synchronised() in (True, False, None)


# The command


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (999, "999 bytes"), (4608, "4.61 kB"), (78.2e9, "78.2 GB"), (5e15, "5 000 TB")]
)
def test_a_size_is_short(count: float, text: str) -> None:
    assert size(count) == text


def test_nothing_to_check_is_a_mistake(tmp_path: Path) -> None:
    shown = run(["doctor"], tmp_path)
    assert (shown.code, shown.err) == (2, "hush: --store: name what to check: --store, --broker or --http\n")
    shown = run(["doctor", "--store", "x", "--device-user", "kitchen"], tmp_path)
    assert shown.code == 2
    assert "--device-user: is tested on a broker" in shown.err


def test_the_command_ends_with_one_only_if_a_check_failed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "is_synchronised", lambda: True)
    monkeypatch.setattr(store, "disk_of", lambda _: StoreDisk(10**6, 10**12))
    note_backup(path, datetime.now(UTC))
    arguments = ["doctor", "--store", str(path)]
    with SqliteStore(path):
        assert run([*arguments, "--strict"], path.parent).code == 0
    warned = run([*arguments, "--json"], path.parent)
    assert (warned.code, json.loads(warned.out)["status"]) == (0, "warning")
    strict = run([*arguments, "--strict"], path.parent)
    assert (strict.code, strict.err) == (1, "hush: 1 of 7 checks failed: service\n")
    broken = run(["doctor", "--store", "none", "--json"], path.parent)
    assert (broken.code, broken.err) == (1, "hush: 1 of 2 checks failed: store\n")
    document = json.loads(broken.out)
    assert document["status"] == "failure"
    assert document["checks"][0] == {
        "check": "store",
        "status": "failure",
        "detail": "none: there is no such file",
        "remedy": "name the store of an aggregator",
    }


def test_a_finding_as_json_leaves_out_what_it_does_not_have() -> None:
    finding = CheckResult("disk", OK, "x", figures={"days": 3})
    assert finding.to_document() == {"check": "disk", "status": "ok", "detail": "x", "figures": {"days": 3}}
    assert replace(finding, figures={}).to_document() == {"check": "disk", "status": "ok", "detail": "x"}
