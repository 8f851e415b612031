"""`hush doctor` with a real mosquitto: what is wrong is found, and nothing that runs is disturbed."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from counting import shell
from servers import Mosquitto, free_port, need
from waiting import PATIENCE_S, wait_until

from hush_aggregator import SqliteReader
from hush_aggregator.broker.mosquitto import Role, hash_password, rules
from hush_aggregator.doctor.broker import check_broker
from hush_aggregator.doctor.check_result import CheckResult, Verdict
from hush_common.broker_url import BrokerUrl
from hush_common.task import make_task
from hush_common.wire import Refusal, Report, encode_frame

NOW = datetime.now(UTC)
HUSH = [sys.executable, "-m", "hush"]
SMOKE = make_task({"id": "smoke", "epsilon": "1", "domain": {"kind": "bit"}})
ROLES = dict.fromkeys(("aggregator", "aggregator-control", "doctor"), Role.AGGREGATOR) | {"kitchen": Role.DEVICE}
SYS_S = 2.5
"""Seconds after which $SYS has told of everything: here it is written every second."""
PASSWORD = "right"  # noqa: S105 - of a test


@dataclass
class Broker:
    """A mosquitto with the rules of `hush broker config`, perhaps with a mistake in them."""

    directory: Path
    mistake: tuple[str, str] = ("", "")
    settings: str = "max_queued_messages 1000\nuse_username_as_clientid true"
    listeners: dict[int, str] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[Mosquitto]:
        passwords, access = self.directory / "passwords", self.directory / "rules"
        passwords.write_text("".join(f"{name}:{hash_password(PASSWORD, 101)}\n" for name in ROLES), encoding="ascii")
        text = rules(ROLES)
        assert self.mistake[0] in text
        access.write_text(text.replace(*self.mistake), encoding="ascii")
        words = f"allow_anonymous false\npassword_file {passwords}\nacl_file {access}\nsys_interval 1"
        broker = Mosquitto(self.directory, words, settings=self.settings, listeners=self.listeners)
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has to come is waited for, on a machine with other work too; what must not is waited for a moment."""
    for name in ("_ECHO_S", "_RETAINED_S"):
        monkeypatch.setattr(f"hush_aggregator.doctor.broker.{name}", PATIENCE_S)
    monkeypatch.setattr("hush_aggregator.doctor.broker._SILENCE_S", 1.5)


def url(broker: Mosquitto, user: str = "doctor") -> BrokerUrl:
    return BrokerUrl.parse(f"mqtt://{user}:{PASSWORD}@127.0.0.1:{broker.port}")


def by_name(findings: list[CheckResult]) -> dict[str, CheckResult]:
    names = [one.check for one in findings]
    assert len(set(names)) == len(names)
    return {one.check: one for one in findings}


async def checked(broker: Mosquitto, user: str = "doctor", **given: Any) -> dict[str, CheckResult]:  # noqa: ANN401 - of `check_broker`
    return by_name(await check_broker(url(broker, user), NOW, **given))


async def checked_once_two_are_idle(broker: Mosquitto, *, running: bool) -> dict[str, CheckResult]:
    """As `checked`. Where a socket has not said whose it is as mosquitto counts, it counts one idle session less."""
    for _ in range(5):
        await asyncio.sleep(SYS_S)
        found = await checked(broker, running=running)
        if "sessions" in found and found["sessions"].figures == {"idle": 2}:
            break
    return found


def bad(findings: dict[str, CheckResult]) -> dict[str, str]:
    """What is not ok, except that no aggregator runs, and the version of this mosquitto."""
    expected = {"aggregators", "version"}
    return {
        name: one.detail for name, one in findings.items() if one.verdict is not Verdict.OK and name not in expected
    }


async def test_a_broker_with_the_rules_of_hush_has_nothing_wrong(tmp_path: Path) -> None:
    with Broker(tmp_path).running() as broker:
        found = await checked(broker, device=url(broker, "kitchen"))
    assert bad(found) == {}
    assert found["devices"].detail == "kitchen, a device, reports and reads, and may do nothing else"
    assert found["rights"].detail == "doctor writes and reads tasks, recalls, estimates, status"
    assert found["queue"].figures["dropped"] == 0
    assert all(one.remedy for one in found.values() if one.verdict is not Verdict.OK)


MISTAKES = {
    "no-recalls": (
        ("topic readwrite hush/v1/recalls/+", "topic read hush/v1/recalls/+"),
        {"rights": "doctor may not write and read: recalls"},
    ),
    "no-status-no-estimates": (
        ("topic readwrite hush/v1/estimates/+\ntopic readwrite hush/v1/status/+\n", ""),
        {"rights": "doctor may not write and read: estimates, status"},
    ),
    "no-reports": (
        ("topic read hush/v1/reports/+/+\n", ""),
        {"reports": "doctor reads no reports, or may not write the one that would show it"}
        | {"devices": "kitchen, a device, may not report"},
    ),
    "other-senders": (
        ("pattern write hush/v1/reports/+/%u", "pattern write hush/v1/reports/+/+"),
        {"senders": "doctor and kitchen may report under the name of another sender"},
    ),
    "devices-write-tasks": (
        ("pattern read hush/v1/tasks/+", "pattern readwrite hush/v1/tasks/+"),
        {"devices": "kitchen, a device, may write tasks"},
    ),
    "devices-write-estimates": (
        ("pattern read hush/v1/estimates/+", "pattern readwrite hush/v1/estimates/+"),
        {"devices": "kitchen, a device, may write estimates"},
    ),
    "devices-read-reports": (
        ("pattern read hush/v1/tasks/+", "pattern read hush/v1/tasks/+\npattern read hush/v1/reports/+/+"),
        {"devices": "kitchen, a device, may read the reports of others"},
    ),
    "devices-read-no-recalls": (
        ("pattern read hush/v1/recalls/+\n", ""),
        {"devices": "kitchen, a device, may not read recalls"},
    ),
    "no-sys": (
        ("topic read $SYS/broker/#\n", ""),
        {"queue": "the broker publishes nothing under $SYS, or this user may not read it"},
    ),
}


MUTE = {"no-recalls", "no-status-no-estimates", "no-reports", "devices-read-no-recalls", "no-sys"}
"""Mistakes with which something never comes."""


@pytest.mark.parametrize("name", MISTAKES)
async def test_each_mistake_in_the_rules_is_found_and_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake, expected = MISTAKES[name]
    if name in MUTE:
        monkeypatch.setattr("hush_aggregator.doctor.broker._ECHO_S", 5.0)
    with Broker(tmp_path, mistake).running() as broker:
        found = await checked(broker, device=url(broker, "kitchen"))
    assert bad(found) == expected
    assert all(found[check].remedy for check in expected)


async def test_a_broker_that_lets_everybody_in(mosquitto: Mosquitto) -> None:
    found = by_name(await check_broker(BrokerUrl.parse(mosquitto.url), NOW))
    assert found["login"].verdict is Verdict.FAILURE
    assert "accepts clients without a login" in found["login"].detail
    assert found["senders"].verdict is Verdict.FAILURE
    assert found["rights"].verdict is Verdict.OK


async def test_a_wrong_password_is_one_finding_with_the_remedy(tmp_path: Path) -> None:
    with Broker(tmp_path).running() as broker:
        wrong = BrokerUrl.parse(f"mqtt://doctor:wr0ng@127.0.0.1:{broker.port}")
        (finding,) = await check_broker(wrong, NOW)
    assert (finding.check, finding.verdict) == ("broker", Verdict.FAILURE)
    assert "refuses the login" in finding.detail
    assert finding.remedy == "check user and password"
    assert "wr0ng" not in str(finding)


async def test_no_broker_is_one_finding() -> None:
    (finding,) = await check_broker(BrokerUrl.parse(f"mqtt://127.0.0.1:{free_port()}"), NOW)
    assert finding.verdict is Verdict.FAILURE
    assert finding.remedy == "start the broker, or correct the address"


def send(broker: Mosquitto, topic: str, payload: bytes, option: str = "-s") -> None:
    command = [need("mosquitto_pub"), "-p", str(broker.port), "-u", "kitchen", "-P", PASSWORD, "-q", "1", option]
    subprocess.run([*command, "-t", topic], input=payload, check=True, timeout=60)


@contextmanager
def serving(broker: Mosquitto, directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    (directory / "task.json").write_bytes(SMOKE.payload)
    command = [*HUSH, "serve", "--broker", str(url(broker, "aggregator"))]
    command += ["--password-file", str(directory / "password")]
    command += ["--store", str(directory / "store"), "--task", str(directory / "task.json")]
    (directory / "password").write_text(PASSWORD, encoding="ascii")
    with (directory / "log").open("ab") as log:
        command += ["--control-user", "aggregator-control"]
        with subprocess.Popen(command, stderr=log) as process:
            try:
                wait_for_log(directory, "control: connected")
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0


def wait_for_log(directory: Path, text: str) -> None:
    wait_until(lambda: text in (directory / "log").read_text(encoding="utf-8"))


def reports(count: int) -> bytes:
    return encode_frame([Report(SMOKE.report_digest, 0, secrets.token_bytes(16), (1,)) for _ in range(count)])


@pytest.mark.large
async def test_the_user_of_an_aggregator_is_refused_and_nothing_that_waits_for_it_is_lost(tmp_path: Path) -> None:
    with Broker(tmp_path).running() as broker:
        with serving(broker, tmp_path):
            pass
        for _ in range(5):
            send(broker, "hush/v1/reports/smoke/kitchen", reports(10))
        for user in ("aggregator", "aggregator-control"):
            findings = await check_broker(url(broker, user), NOW)
            assert [(one.check, one.verdict) for one in findings] == [("login", Verdict.FAILURE)]
            assert findings[0].remedy == "give doctor a user of its own: hush broker add doctor --role aggregator"
        found = await checked_once_two_are_idle(broker, running=False)
        assert found["sessions"].detail == "2 sessions have no connection, which the stopped aggregator has left"
        assert int(found["queue"].figures["waiting"]) >= 5
        assert "aggregator is offline" in found["aggregators"].detail
        with serving(broker, tmp_path):
            document = estimate_of(broker, 50)
    assert document["n"] == 50


def estimate_of(broker: Mosquitto, n: int) -> dict[str, Any]:
    login = ("-u", "kitchen", "-P", PASSWORD)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        text = shell("mosquitto_sub", broker.port, *login, "-t", "hush/v1/estimates/smoke", "-C", "1")
        document: dict[str, Any] = json.loads(text)
        if document["n"] >= n:
            return document
        assert time.monotonic() < deadline, document


@pytest.mark.large
async def test_a_running_service_is_not_disturbed_and_refuses_what_looks_like_a_report(tmp_path: Path) -> None:
    with Broker(tmp_path).running() as broker, serving(broker, tmp_path):
        before = (tmp_path / "log").read_text(encoding="utf-8")
        found = await checked(broker, device=url(broker, "kitchen"), running=True)
        send(broker, "hush/v1/reports/smoke/kitchen", reports(3))
        assert estimate_of(broker, 3)["refused"] == {}
        assert (tmp_path / "log").read_text(encoding="utf-8") == before
        with SqliteReader(tmp_path / "store") as store:
            assert store.refused() == {Refusal.MALFORMED: 3}
    assert bad(found) == {}
    assert found["aggregators"].detail == "aggregator is online"
    assert found["sessions"].figures == {"idle": 0}


@pytest.mark.large
async def test_dropped_messages_and_abandoned_sessions_are_found(tmp_path: Path) -> None:
    with Broker(tmp_path, settings="max_queued_messages 5\nuse_username_as_clientid true").running() as broker:
        with serving(broker, tmp_path):
            pass
        send(broker, "hush/v1/reports/smoke/kitchen", b"\n".join([b"x"] * 1800), "-l")
        found = await checked_once_two_are_idle(broker, running=True)
    assert found["queue"].verdict is Verdict.WARNING
    assert int(found["queue"].figures["dropped"]) > 100
    assert "raise max_queued_messages" in found["queue"].remedy
    assert found["sessions"].verdict is Verdict.WARNING
    assert found["sessions"].figures == {"idle": 2}
    assert "Abandoned sessions" in found["sessions"].remedy


async def test_short_packets_are_found(tmp_path: Path) -> None:
    settings = "max_packet_size 1000000\nuse_username_as_clientid true"
    with Broker(tmp_path, settings=settings).running() as broker:
        found = await checked(broker)
    assert found["packets"].verdict is Verdict.WARNING
    assert found["packets"].figures == {"largest_packet": 1_000_000}


@pytest.mark.parametrize(("days", "verdict"), [(90, Verdict.OK), (20, Verdict.WARNING), (5, Verdict.FAILURE)])
async def test_a_certificate_that_ends_soon_is_found(days: int, verdict: Verdict, tmp_path: Path) -> None:
    authority = Authority(tmp_path, days=200)
    certificate, key = authority.issue("broker", host="127.0.0.1", days=days)
    port = free_port()
    with Broker(tmp_path, listeners={port: f"certfile {certificate}\nkeyfile {key}"}).running():
        secure = BrokerUrl.parse(f"mqtts://doctor:{PASSWORD}@127.0.0.1:{port}?ca={authority.pem}")
        found = by_name(await check_broker(secure, datetime.now(UTC)))
    assert found["certificate"].verdict is verdict
    assert days - 0.1 < float(found["certificate"].figures["days"]) < days + 0.1


async def test_a_certificate_that_is_not_accepted_is_a_failure_that_says_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker", host="127.0.0.1", days=1)
    port = free_port()
    with Broker(tmp_path, listeners={port: f"certfile {certificate}\nkeyfile {key}"}).running():
        (finding,) = await check_broker(BrokerUrl.parse(f"mqtts://127.0.0.1:{port}"), NOW)
    assert finding.verdict is Verdict.FAILURE
    assert "unable to get local issuer certificate" in finding.detail


PATIENT = f"""
from hush_aggregator.doctor import broker
from hush.cli import main
broker._ECHO_S = {PATIENCE_S}
main()
"""


def doctor(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "COLUMNS": "1000"}
    command = [sys.executable, "-c", PATIENT, "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)


@pytest.mark.large
def test_the_command_prints_a_line_for_each_check_and_fails_if_one_fails(tmp_path: Path) -> None:
    with Broker(tmp_path).running() as broker, serving(broker, tmp_path):
        password = str(tmp_path / "password")
        where = ["--store", str(tmp_path / "store"), "--broker", f"mqtt://127.0.0.1:{broker.port}"]
        where += ["--password-file", password, "--user"]
        fine = doctor(*where, "doctor", "--device-user", "kitchen", "--device-password-file", password)
        strict = doctor(*where, "doctor", "--strict")
        wrong = doctor(*where, "aggregator", "--json")
    assert (fine.returncode, fine.stderr) == (0, "")
    lines = [tuple(line.split()[:2]) for line in fine.stdout.splitlines()]
    assert {("ok", "service"), ("ok", "devices"), ("ok", "aggregators"), ("warning", "backup")} <= set(lines)
    assert {status for status, _ in lines} == {"ok", "warning"}
    assert strict.returncode == 1
    assert strict.stderr.startswith("hush: ")
    assert "checks failed: backup" in strict.stderr
    assert wrong.returncode == 1
    document = json.loads(wrong.stdout)
    assert (document["v"], document["status"]) == (1, "failure")
    statuses = {one["check"]: one["status"] for one in document["checks"]}
    assert (statuses["login"], statuses["service"]) == ("failure", "ok")
