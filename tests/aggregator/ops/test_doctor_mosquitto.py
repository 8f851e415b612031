"""`hush doctor` with a real mosquitto: mistakes are found, and nothing that runs is disturbed."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
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
from hush_aggregator.ops.doctor.broker import check_broker
from hush_aggregator.ops.doctor.check_result import CheckResult, Verdict
from hush_aggregator.ops.mosquitto import Role, hash_password, rules
from hush_common.broker_url import BrokerUrl
from hush_common.task import make_task
from hush_common.wire import Refusal, Report, encode_frame

SMOKE = make_task({"id": "smoke", "epsilon": "1", "domain": {"kind": "bit"}})
ROLES = dict.fromkeys(("aggregator", "aggregator-control", "doctor"), Role.AGGREGATOR) | {"kitchen": Role.DEVICE}
PASSWORD = "right"  # noqa: S105 - of a test

pytestmark = pytest.mark.medium


@dataclass
class Broker:
    """A mosquitto with the rules of `hush broker config`, perhaps with a mistake in them."""

    directory: Path
    mistake: tuple[str, str] = ("", "")
    settings: str = "max_queued_messages 1000"
    listeners: dict[int, str] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[Mosquitto]:
        passwords, access = self.directory / "passwords", self.directory / "rules"
        passwords.write_text("".join(f"{name}:{hash_password(PASSWORD, 101)}\n" for name in ROLES), encoding="ascii")
        text = rules(ROLES)
        assert self.mistake[0] in text
        access.write_text(text.replace(*self.mistake), encoding="ascii")
        words = f"allow_anonymous false\npassword_file {passwords}\nacl_file {access}\nsys_interval 1"
        settings = f"{self.settings}\nuse_username_as_clientid true"
        broker = Mosquitto(self.directory, words, settings=settings, listeners=self.listeners)
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()


def url(broker: Mosquitto, user: str = "doctor", password: str = PASSWORD) -> BrokerUrl:
    return BrokerUrl.parse(f"mqtt://{user}:{password}@127.0.0.1:{broker.port}")


Found = Mapping[str, CheckResult]


async def checked(
    address: BrokerUrl,
    *wanted: Callable[[Found], object],
    **given: Any,  # noqa: ANN401 - of `check_broker`
) -> Found:
    """The findings, once these conditions are true: on a busy machine an answer can come after its few seconds."""
    found: Found = {}
    for _ in range(5):
        findings = await check_broker(address, datetime.now(UTC), **given)
        found = {one.check: one for one in findings}
        assert len(found) == len(findings)
        assert all(one.remedy for one in findings if one.verdict is not Verdict.OK)
        if all(condition(found) for condition in wanted):
            break
    return found


def bad(findings: Found) -> dict[str, str]:
    """What is not ok, except that no aggregator runs, and the version of this mosquitto."""
    wrong = {name: one.detail for name, one in findings.items() if one.verdict is not Verdict.OK}
    return {name: detail for name, detail in wrong.items() if name not in ("aggregators", "version")}


def finds(expected: Mapping[str, str]) -> Callable[[Found], bool]:
    """Whether exactly these checks are bad, with these words."""

    def condition(found: Found) -> bool:
        wrong = bad(found)
        return wrong.keys() == expected.keys() and all(word in wrong[name] for name, word in expected.items())

    return condition


READ_TASKS = "pattern read hush/v1/tasks/+"
MISTAKES: Mapping[str, tuple[tuple[str, str], Mapping[str, str]]] = {
    "nothing": (("", ""), {}),
    "no recalls": (
        ("topic readwrite hush/v1/recalls/+", "topic read hush/v1/recalls/+"),
        {"rights": "read: recalls"},
    ),
    "no status, no estimates": (
        ("topic readwrite hush/v1/estimates/+\ntopic readwrite hush/v1/status/+\n", ""),
        {"rights": "estimates, status"},
    ),
    "no reports": (
        ("topic read hush/v1/reports/+/+\n", ""),
        {"reports": "no reports", "devices": "not report"},
    ),
    "other senders": (
        ("pattern write hush/v1/reports/+/%u", "pattern write hush/v1/reports/+/+"),
        {"senders": "doctor and kitchen"},
    ),
    "devices write tasks": ((READ_TASKS, "pattern readwrite hush/v1/tasks/+"), {"devices": "write tasks"}),
    "devices write estimates": (
        ("pattern read hush/v1/estimates/+", "pattern readwrite hush/v1/estimates/+"),
        {"devices": "write estimates"},
    ),
    "devices read reports": (
        (READ_TASKS, f"{READ_TASKS}\npattern read hush/v1/reports/+/+"),
        {"devices": "reports of others"},
    ),
    "devices read no recalls": (("pattern read hush/v1/recalls/+\n", ""), {"devices": "not read recalls"}),
    "no $SYS": (("topic read $SYS/broker/#\n", ""), {"queue": "$SYS"}),
}


@pytest.mark.large
@pytest.mark.parametrize("name", MISTAKES)
async def test_each_mistake_in_the_rules_is_found(name: str, tmp_path: Path) -> None:
    mistake, expected = MISTAKES[name]
    with Broker(tmp_path, mistake).running() as broker:
        found = await checked(url(broker), finds(expected), device=url(broker, "kitchen"))
    assert finds(expected)(found), bad(found)


async def test_a_broker_without_logins_is_a_failure(mosquitto: Mosquitto) -> None:
    verdicts = {"login": Verdict.FAILURE, "senders": Verdict.FAILURE, "rights": Verdict.OK}

    def all_found(found: Found) -> bool:
        return {name: found[name].verdict for name in verdicts if name in found} == verdicts

    assert all_found(await checked(BrokerUrl.parse(mosquitto.url), all_found))


async def test_a_broker_that_cannot_be_used_is_one_failure(tmp_path: Path) -> None:
    with Broker(tmp_path).running() as broker:
        refused = await checked(
            url(broker, password="wr0ng"),  # noqa: S106 - of a test
            lambda found: "password" in found["broker"].remedy,
        )
    missing = await checked(BrokerUrl.parse(f"mqtt://127.0.0.1:{free_port()}"))
    for found, word in ((refused, "password"), (missing, "address")):
        assert {name: one.verdict for name, one in found.items()} == {"broker": Verdict.FAILURE}
        assert word in found["broker"].remedy
        assert "wr0ng" not in str(found)


async def test_a_limit_of_packets_below_a_frame_of_a_gateway_is_found(tmp_path: Path) -> None:
    with Broker(tmp_path, settings="max_packet_size 1000000").running() as broker:
        found = await checked(url(broker), lambda found: "packets" in found)
    assert found["packets"].verdict is Verdict.WARNING
    assert found["packets"].figures == {"largest_packet": 1_000_000}


async def test_a_certificate_that_ends_soon_or_is_not_accepted_is_found(tmp_path: Path) -> None:
    authority = Authority(tmp_path, days=200)
    days = {90: Verdict.OK, 20: Verdict.WARNING, 5: Verdict.FAILURE}
    ports = {free_port(): left for left in days}
    listeners = {}
    for port, left in ports.items():
        certificate, key = authority.issue(f"broker-{left}", host="127.0.0.1", days=left)
        listeners[port] = f"certfile {certificate}\nkeyfile {key}"
    with Broker(tmp_path, listeners=listeners).running():
        for port, left in ports.items():
            secure = BrokerUrl.parse(f"mqtts://doctor:{PASSWORD}@127.0.0.1:{port}?ca={authority.pem}")
            found = (await checked(secure, lambda found: "certificate" in found))["certificate"]
            assert found.verdict is days[left]
            assert left - 0.1 < float(found.figures["days"]) < left + 0.1
        unknown = await checked(
            BrokerUrl.parse(f"mqtts://127.0.0.1:{port}"), lambda found: "certificate" in found["broker"].detail
        )
    assert unknown["broker"].verdict is Verdict.FAILURE
    assert "certificate" in unknown["broker"].detail


# Next to an aggregator


def send(broker: Mosquitto, payload: bytes, option: str = "-s") -> None:
    command = [need("mosquitto_pub"), "-p", str(broker.port), "-u", "kitchen", "-P", PASSWORD, "-q", "1", option]
    topic = "hush/v1/reports/smoke/kitchen"
    subprocess.run([*command, "-t", topic], input=payload, check=True, timeout=PATIENCE_S)


@contextmanager
def serving(broker: Mosquitto, directory: Path) -> Iterator[None]:
    (directory / "task.json").write_bytes(SMOKE.payload)
    (directory / "password").write_text(PASSWORD, encoding="ascii")
    command = [sys.executable, "-m", "hush", "serve", "--broker", str(url(broker, "aggregator"))]
    command += ["--password-file", str(directory / "password"), "--control-user", "aggregator-control"]
    command += ["--store", str(directory / "store"), "--task", str(directory / "task.json")]
    with (directory / "log").open("ab") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            wait_until(lambda: "control: connected" in log_of(directory))
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0


def log_of(directory: Path) -> str:
    return (directory / "log").read_text(encoding="utf-8")


def reports(count: int) -> bytes:
    return encode_frame([Report(SMOKE.report_digest, 0, secrets.token_bytes(16), (1,)) for _ in range(count)])


def estimate_of(broker: Mosquitto, n: int) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def is_there() -> bool:
        login = ("-u", "kitchen", "-P", PASSWORD)
        found.update(
            json.loads(shell("mosquitto_sub", broker.port, *login, "-t", "hush/v1/estimates/smoke", "-C", "1"))
        )
        return bool(found["n"] >= n)

    wait_until(is_there)
    return found


def idle(number: int) -> Callable[[Found], bool]:
    return lambda found: "sessions" in found and found["sessions"].figures == {"idle": number}


@pytest.mark.large
async def test_the_login_of_an_aggregator_is_refused_and_no_report_lost(tmp_path: Path) -> None:
    with Broker(tmp_path).running() as broker:
        with serving(broker, tmp_path):
            pass
        for _ in range(5):
            send(broker, reports(10))
        for user in ("aggregator", "aggregator-control"):
            found = await checked(url(broker, user))
            assert {name: one.verdict for name, one in found.items()} == {"login": Verdict.FAILURE}
            assert "hush broker add" in found["login"].remedy
        waiting = await checked(url(broker), idle(2), running=False)
        assert idle(2)(waiting)
        assert int(waiting["queue"].figures["waiting"]) >= 5
        assert "offline" in waiting["aggregators"].detail
        with serving(broker, tmp_path):
            assert estimate_of(broker, 50)["n"] == 50


@pytest.mark.large
async def test_a_running_service_is_not_disturbed(tmp_path: Path) -> None:
    with Broker(tmp_path).running() as broker, serving(broker, tmp_path):
        before = log_of(tmp_path)
        found = await checked(url(broker), finds({}), idle(0), device=url(broker, "kitchen"), running=True)
        send(broker, reports(3))
        assert estimate_of(broker, 3)["refused"] == {}
        assert log_of(tmp_path) == before
        with SqliteReader(tmp_path / "store") as store:
            assert store.refused().keys() == {Refusal.MALFORMED}  # what looked like a report
    assert bad(found) == {}
    assert idle(0)(found)
    assert "online" in found["aggregators"].detail


@pytest.mark.large
async def test_dropped_messages_and_abandoned_sessions_are_found(tmp_path: Path) -> None:
    with Broker(tmp_path, settings="max_queued_messages 5").running() as broker:
        with serving(broker, tmp_path):
            pass
        send(broker, b"\n".join([b"x"] * 1800), "-l")
        found = await checked(
            url(broker), idle(2), lambda found: found["queue"].verdict is Verdict.WARNING, running=True
        )
    assert int(found["queue"].figures["dropped"]) > 100
    assert "max_queued_messages" in found["queue"].remedy
    assert found["sessions"].verdict is Verdict.WARNING
    assert idle(2)(found)


@pytest.mark.large
def test_the_command_prints_each_check_and_fails_if_one_fails(tmp_path: Path) -> None:
    def doctor(*arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "COLUMNS": "1000"}
        command = [sys.executable, "-m", "hush", "doctor", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)

    with Broker(tmp_path).running() as broker, serving(broker, tmp_path):
        password = str(tmp_path / "password")
        where = ["--store", str(tmp_path / "store"), "--broker", f"mqtt://127.0.0.1:{broker.port}"]
        where += ["--password-file", password, "--user"]
        fine = doctor(*where, "doctor", "--device-user", "kitchen", "--device-password-file", password)
        strict = doctor(*where, "doctor", "--strict")
        wrong = doctor(*where, "aggregator", "--json")
    lines = {tuple(line.split()[:2]) for line in fine.stdout.splitlines()}
    assert {("ok", "service"), ("ok", "aggregators"), ("warning", "backup")} <= lines
    assert "devices" in {name for _, name in lines}
    assert strict.returncode == 1
    assert "backup" in strict.stderr
    document = json.loads(wrong.stdout)
    assert (wrong.returncode, document["v"], document["status"]) == (1, 1, "failure")
    statuses = {one["check"]: one["status"] for one in document["checks"]}
    assert (statuses["login"], statuses["service"]) == ("failure", "ok")
