"""What `hush doctor` finds in a store, at a service and about the clock."""

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import run
from servers import free_port

from hush_aggregator import SqliteStore
from hush_aggregator.delivery.closing import MADE
from hush_aggregator.ops.doctor import peers, store
from hush_aggregator.ops.doctor.check_result import CheckResult, Verdict
from hush_aggregator.ops.doctor.peers import check_clock, check_service
from hush_aggregator.ops.doctor.store import check_store
from hush_aggregator.ops.watch.source import HttpUrl
from hush_aggregator.store.disk import StoreDisk, is_in_use, note_backup
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


# A store


def test_a_store_that_is_backed_up_and_in_use_has_nothing_wrong(path: Path) -> None:
    note_backup(path, NOW - timedelta(days=1))
    with SqliteStore(path):
        found = found_in(path)
    checks = ("store", "access", "service", "disk", "backup", "calendar")
    assert {name: one.verdict for name, one in found.items()} == dict.fromkeys(checks, OK)
    assert "1 task" in found["store"].detail


def test_checking_a_store_writes_nothing(path: Path) -> None:
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    found_in(path)
    after = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith(("-shm", "-wal"))}
    assert after == before


def test_a_store_that_cannot_be_read_is_one_failure(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 5000)
    for name in ("none", "other"):
        (finding,) = check_store(tmp_path / name, NOW)
        assert (finding.check, finding.verdict) == ("store", FAILURE)
        assert finding.remedy


def test_a_store_without_an_aggregator_is_a_warning(path: Path) -> None:
    found = found_in(path)["service"]
    assert (found.verdict, "hush serve" in found.remedy) == (WARNING, True)
    assert not is_in_use(path)
    with SqliteStore(path):
        assert is_in_use(path)
        assert is_in_use(path)  # it takes no lock
    with SqliteStore(path):  # and leaves none
        pass


def test_a_store_that_others_may_open_or_replace_is_found(path: Path) -> None:
    for mode, verdict in ((0o644, WARNING), (0o600, OK)):
        path.chmod(mode)
        found = found_in(path)["access"]
        assert (found.verdict, f"chmod o= {path}" in found.remedy) == (verdict, verdict is WARNING)
    path.parent.chmod(0o777)
    found = found_in(path)["access"]
    assert (found.verdict, f"chmod o-w {path.parent}" in found.remedy) == (FAILURE, True)


GB = 10**9


@pytest.mark.parametrize(
    ("used", "free", "before", "verdict", "said"),
    [
        (10, 1000, 9, OK, "2.74 years"),
        (10, 60, 9, OK, "60 days"),
        (10, 20, 9, WARNING, "20 days"),
        (10, 6, 9, FAILURE, "6 days"),
        (10, 9, 9.9, WARNING, "90 days"),
        (10, 11, 11, OK, "has not grown"),
        (0.001, 0.4, 0.001, FAILURE, "400 MB free"),
        (0.001, 0.6, 0.001, OK, "600 MB free"),
    ],
)
def test_the_disk_lasts_as_long_as_its_growth_since_the_backup_says(  # noqa: PLR0917 - a row of the table
    path: Path, monkeypatch: pytest.MonkeyPatch, used: float, free: float, before: float, verdict: Verdict, said: str
) -> None:
    disks = {"hush_aggregator.store.disk": before, "hush_aggregator.ops.doctor.store": used}
    for module, size_ in disks.items():
        found = StoreDisk(int(size_ * GB), int(free * GB))
        monkeypatch.setattr(f"{module}.disk_of", lambda _, found=found: found)
    note_backup(path, NOW - timedelta(days=1))
    disk = found_in(path)["disk"]
    assert (disk.verdict, said in disk.detail) == (verdict, True)


def test_a_backup_is_old_after_two_days(path: Path) -> None:
    assert found_in(path)["backup"].verdict is WARNING
    for hours, verdict in ((1, OK), (47, OK), (49, WARNING)):
        note_backup(path, NOW - timedelta(hours=hours))
        found = found_in(path)["backup"]
        assert found.verdict is verdict
        assert found.figures["age_days"] == pytest.approx(hours / 24, abs=0.01)
    assert f"hush store backup FILE --store {path}" in found.remedy


def test_a_clock_before_the_last_day_of_the_store_is_a_failure(path: Path) -> None:
    with SqliteStore(path) as opened:
        opened.note_day(date(2026, 12, 1))
    assert found_in(path, NOW)["calendar"].verdict is OK
    found = found_in(path, NOW - timedelta(days=1))["calendar"]
    assert found.verdict is FAILURE
    for day in ("2026-11-30", "2026-12-01"):
        assert day in found.detail
    with SqliteStore(path) as opened:
        opened.note_day(date(2020, 1, 1))
    before = datetime(MADE.year, MADE.month, MADE.day, tzinfo=UTC) - timedelta(days=1)
    assert str(MADE) in found_in(path, before)["calendar"].detail


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

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield HttpUrl(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


METRICS = b'# TYPE x gauge\nhush_build_info{version="1.2"} 1.0\n'


@pytest.mark.medium
@pytest.mark.parametrize(
    ("ready", "metrics", "verdict", "words"),
    [
        (Answer(), METRICS, {"http": OK, "release": OK}, "1.2"),
        (Answer(503, b'{"detail": "no broker"}'), METRICS, {"http": FAILURE, "release": OK}, "no broker"),
        (Answer(502, b"<html>"), METRICS, {"http": FAILURE, "release": OK}, "502"),
        (Answer(body=b'{"warnings": ["a\\u001b[2J"]}'), METRICS, {"http": WARNING, "release": OK}, r"a\x1b[2J"),
        (Answer(), METRICS.replace(b"1.2", b"1.1"), {"http": OK, "release": WARNING}, "1.1"),
        (Answer(), b"", {"http": OK, "release": WARNING}, ""),
        (Answer(), METRICS + b"hush_estimates_failed 0.0\n", {"http": OK, "release": OK, "estimates": OK}, ""),
        (
            Answer(),
            METRICS + b"hush_estimates_failed 12.0\n",
            {"http": OK, "release": OK, "estimates": WARNING},
            "12 tasks",
        ),
        (
            Answer(),
            METRICS + b"hush_notifications_waiting 3.0\n",
            {"http": OK, "release": OK, "webhook": WARNING},
            "3 events",
        ),
    ],
)
def test_a_service_says_whether_it_is_ready_and_what_is_wrong(
    ready: Answer, metrics: bytes, verdict: Mapping[str, Verdict], words: str
) -> None:
    with answering({"/readyz": ready, "/metrics": Answer(200 if metrics else 401, metrics)}) as url:
        found = list(check_service(url, "", "1.2"))
    assert {one.check: one.verdict for one in found} == verdict
    assert words in " ".join(one.detail for one in found)


@pytest.mark.medium
def test_a_service_that_does_not_answer_is_one_failure() -> None:
    (finding,) = check_service(HttpUrl(f"http://127.0.0.1:{free_port()}"), "", "1.2")
    assert (finding.check, finding.verdict) == ("http", FAILURE)
    assert "Connection refused" in finding.detail


@pytest.mark.medium
def test_the_clock_is_compared_with_that_of_a_server() -> None:
    cases = {0: OK, 50: OK, -50: OK, 70: WARNING, -70: WARNING, 290: WARNING, 310: FAILURE, -310: FAILURE}
    for ahead, verdict in cases.items():
        theirs = format_datetime(NOW - timedelta(seconds=ahead), usegmt=True)
        with answering({"/": Answer(404, date=theirs)}) as url:
            (finding,) = check_clock(url, lambda: NOW, lambda: None)
        assert (finding.check, finding.verdict) == ("clock", verdict)
        assert abs(float(finding.figures["ahead_s"]) - ahead) <= 0.6
    for said in ("", "yesterday", "Mon, 99 Foo 2026 00:00:00 GMT"):
        with answering({"/": Answer(date=said)}) as url:
            (finding,) = check_clock(url, lambda: NOW, lambda: True)
        assert (finding.verdict, "Date" in finding.detail) == (WARNING, True)


def test_without_a_server_the_system_says_whether_its_clock_is_right() -> None:
    def verdicts(synchronised: bool | None) -> list[Verdict]:
        return [one.verdict for one in check_clock(None, lambda: NOW, lambda: synchronised)]

    assert (verdicts(True), verdicts(False), verdicts(None)) == ([OK], [WARNING], [])
    assert peers.is_synchronised() in (True, False, None)


# The command


def test_the_command_needs_something_to_check(tmp_path: Path) -> None:
    shown = run(["doctor"], tmp_path)
    assert shown.code == 2
    for option in ("--store", "--broker", "--http"):
        assert option in shown.err
    shown = run(["doctor", "--store", "x", "--device-user", "kitchen"], tmp_path)
    assert (shown.code, "--device-user" in shown.err) == (2, True)


def test_the_command_fails_only_if_a_check_failed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "is_synchronised", lambda: True)
    monkeypatch.setattr(store, "disk_of", lambda _: StoreDisk(10**6, 10**12))
    note_backup(path, datetime.now(UTC))
    arguments = ["doctor", "--store", str(path)]
    with SqliteStore(path):
        assert run([*arguments, "--strict"], path.parent).code == 0
    warned = run([*arguments, "--json"], path.parent)
    assert (warned.code, json.loads(warned.out)["status"]) == (0, "warning")
    strict = run([*arguments, "--strict"], path.parent)
    assert (strict.code, "service" in strict.err) == (1, True)
    broken = run(["doctor", "--store", "none", "--json"], path.parent)
    assert (broken.code, "store" in broken.err) == (1, True)
    document = json.loads(broken.out)
    assert document["status"] == "failure"
    first = document["checks"][0]
    assert (first["check"], first["status"]) == ("store", "failure")
    assert first.keys() == {"check", "status", "detail", "remedy"}  # without the figures that it does not have
