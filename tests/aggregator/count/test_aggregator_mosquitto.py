"""The aggregator on a real mosquitto, and `hush serve` and `hush task publish` as a user meets them."""

import asyncio
import json
import logging
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from counting import aggregating, counted, shell
from processes import HEIGHTS, Serve, fill
from scripted_broker import ScriptedBroker, hang_up
from servers import Mosquitto, free_port
from serving import estimate
from waiting import until, wait_until

from hush_aggregator import MqttBroker, SqliteReader, SqliteStore
from hush_aggregator.delivery.mqtt import warn_if_open
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.mqtt.codec import Kind
from hush_common.task import make_task
from hush_common.topics import (
    ALL_REPORTS,
    ALL_TASKS,
    BROKER_DROPPED,
    BROKER_UPTIME,
    estimate_topic,
    report_topic,
    status_topic,
    task_topic,
)
from hush_common.wire import Report, encode_json

pytestmark = [pytest.mark.medium, pytest.mark.face]

DOCUMENT = json.loads(HEIGHTS.payload)
FILTERS = (ALL_TASKS, ALL_REPORTS)
TASK, ESTIMATE = task_topic("heights"), estimate_topic("heights")


def retained(mosquitto: Mosquitto, topic: str) -> bytes:
    """What is retained there, once something is."""
    found = shell("mosquitto_sub", mosquitto.port, "-t", topic, "-C", "1", "-W", "60", "-F", "%p")
    return found.rstrip("\n").encode()


# Counting


async def test_a_json_report_from_a_shell_counts_once(mosquitto: Mosquitto, tmp_path: Path) -> None:
    report = encode_json("heights", Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (571231,))).decode()
    async with aggregating(mosquitto, tmp_path / "store", tasks=(HEIGHTS,)) as aggregator:
        topic = report_topic("heights", "device")
        for _ in range(2):
            await asyncio.to_thread(shell, "mosquitto_pub", mosquitto.port, "-t", topic, "-q", "1", "-m", report)
        released = await asyncio.to_thread(estimate, mosquitto.port, 2)
        document = await aggregator.estimate("heights")
    assert (document.n, document.refused) == (1, {"duplicate": 1})
    assert (released["n"], released["refused"]) == (1, {"duplicate": 1})
    assert released["mean"] == pytest.approx(571231 / 2**20)


async def test_reports_while_nobody_counts_wait_also_for_an_empty_store(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """The broker delivers a full window of reports before the retained task that explains them."""
    async with aggregating(mosquitto, tmp_path / "first", tasks=(HEIGHTS,)):
        await asyncio.to_thread(retained, mosquitto, TASK)
    await asyncio.to_thread(fill, mosquitto.port, HEIGHTS, range(3000))
    async with aggregating(mosquitto, tmp_path / "second", tasks=(), any_task=True) as aggregator:
        await until(lambda: counted(tmp_path / "second") == 3000)
        assert (await aggregator.estimate("heights")).refused == {}


async def test_a_broker_that_restarts_in_between_costs_nothing(mosquitto: Mosquitto, tmp_path: Path) -> None:
    async with aggregating(mosquitto, tmp_path / "store", tasks=(HEIGHTS,)):
        for part in range(3):
            await asyncio.to_thread(fill, mosquitto.port, HEIGHTS, range(1000 * part, 1000 * (part + 1)))
            mosquitto.stop()
            mosquitto.start()
        await until(lambda: counted(tmp_path / "store") == 3000)


# What a broker says of itself


def bus(url: str) -> MqttBroker:
    return MqttBroker(BrokerUrl.parse(url), "hush-aggregator-test", kept=True)


async def test_a_killed_broker_has_forgotten_the_session(mosquitto: Mosquitto) -> None:
    resumed = []
    for end in (mosquitto.kill, mosquitto.stop, mosquitto.stop):
        async with bus(mosquitto.url).connect(FILTERS) as session:
            resumed.append(session.resumed)
        end()
        mosquitto.start()
    assert resumed == [False, False, True]


@pytest.mark.parametrize("allowed", [True, False])
async def test_uptime_and_drops_are_heard_where_allowed_and_never_delivered(
    mosquitto: Mosquitto, tmp_path: Path, *, allowed: bool
) -> None:
    if not allowed:
        (tmp_path / "rules").write_text("topic readwrite hush/v1/#\n", encoding="utf-8")
        mosquitto.stop()
        mosquitto.access += f"\nacl_file {tmp_path / 'rules'}"
        mosquitto.start()
    for _ in range(2):  # the second time the session is subscribed from the start
        heard: dict[str, bytes] = {}
        async with bus(mosquitto.url).connect(FILTERS) as session:
            await session.watch(heard.__setitem__)
            if allowed:
                await until(lambda heard=heard: {BROKER_UPTIME, BROKER_DROPPED} <= heard.keys())
                assert heard[BROKER_UPTIME].endswith(b" seconds")
            await session.publish(report_topic("heights", "device"), b"x")
            batch = await session.batch()
            session.acknowledge([delivery.number for delivery in batch])
            assert [delivery.payload for delivery in batch] == [b"x"]
        assert allowed or heard == {}


async def test_a_broker_that_hangs_up_on_a_question_is_not_asked_again() -> None:
    async with ScriptedBroker(*[(Kind.SUBSCRIBE, hang_up)] * 2).running() as broker:
        there, lost = bus(broker.url), []
        for _ in range(4):
            try:
                async with there.connect(()) as session:
                    await session.watch(lambda *_: None)
                    await session.publish("hush/v1/status/a", b"still there", retain=True)
            except BrokerError:
                lost.append(True)
            else:
                lost.append(False)
    assert lost[-2:] == [False, False]


async def warnings(url: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    async with asyncio.timeout(60):
        await warn_if_open(BrokerUrl.parse(url), lambda: True)
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("login", ["", "alice:right@"])
async def test_a_broker_that_needs_no_login_is_named_without_the_password(
    mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture, login: str
) -> None:
    (line,) = await warnings(mosquitto.url.replace("//", f"//{login}"), caplog)
    assert f":{mosquitto.port} " in line
    assert "without a login" in line
    assert "right" not in line


async def test_a_broker_that_needs_a_login_or_is_away_is_not_named(
    guarded_mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    assert await warnings(guarded_mosquitto.url.replace("//", "//alice:right@"), caplog) == []
    assert await warnings(f"mqtt://alice:right@127.0.0.1:{free_port()}", caplog) == []


# `hush serve`


def test_a_service_is_online_until_it_ends_or_is_killed(mosquitto: Mosquitto, tmp_path: Path) -> None:
    serve, status = Serve(mosquitto.url, tmp_path, None), status_topic("aggregator")
    for number in (signal.SIGINT, signal.SIGKILL):
        serve.start()
        wait_until(lambda: retained(mosquitto, status) == b"online")
        assert serve.end(number) == (0 if number == signal.SIGINT else -signal.SIGKILL)
        wait_until(lambda: retained(mosquitto, status) == b"offline")
    assert "Traceback" not in serve.log


def test_a_broker_that_is_away_is_one_line(tmp_path: Path) -> None:
    serve = Serve("mqtt://127.0.0.1:1", tmp_path, None).start()
    wait_until(lambda: "mqtt://127.0.0.1:1" in serve.log)
    assert serve.end(signal.SIGINT) == 0
    assert [("WARNING" in line, "Connection refused" in line) for line in serve.log.splitlines()[:-1]] == [(True, True)]


def test_a_wrong_password_ends_the_service_after_the_stated_time(guarded_mosquitto: Mosquitto, tmp_path: Path) -> None:
    url = f"mqtt://alice:wrong@127.0.0.1:{guarded_mosquitto.port}"
    serve = Serve(url, tmp_path, None, options=("--login-timeout", "0.5")).start()
    assert serve.process is not None
    assert serve.process.wait(60) == 1
    assert "0.5 s" in serve.log
    assert "--login-timeout" in serve.log
    assert "wrong" not in serve.log


def test_the_owner_of_a_task_stays_it_until_a_command_takes_it_over(mosquitto: Mosquitto, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    owner = Serve(mosquitto.url, tmp_path, None).start()
    before = retained(mosquitto, ESTIMATE)
    other = Serve(mosquitto.url, tmp_path / "other", None, options=("--name", "two")).start()
    wait_until(lambda: "hush task take-over heights" in other.log)
    assert (retained(mosquitto, TASK), retained(mosquitto, ESTIMATE)) == (HEIGHTS.payload, before)
    command = [sys.executable, "-m", "hush", "task", "take-over", "heights", "--store", str(other.store)]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    wait_until(lambda: "hush task take-over heights" in owner.log)  # it yields
    assert (owner.end(), other.end()) == (0, 0)
    with SqliteReader(other.store) as reader:
        assert json.loads(retained(mosquitto, ESTIMATE))["store"] == reader.public_identity


@pytest.mark.large
@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        ("topic read hush/v1/#\ntopic write hush/v1/status/+\ntopic write hush/v1/tasks/+\n", "hush/v1/estimates/+"),
        ("topic readwrite hush/v1/estimates/+\ntopic write hush/v1/status/+\ntopic read hush/v1/#\n", TASK),
        ("topic write hush/v1/#\ntopic read hush/v1/reports/#\ntopic read hush/v1/tasks/+\n", "hush/v1/estimates/+"),
    ],
    ids=["writes no estimate", "writes no task", "reads no estimate"],
)
def test_a_right_that_is_missing_is_named(mosquitto: Mosquitto, tmp_path: Path, rules: str, missing: str) -> None:
    (mosquitto.directory / "rules").write_text(rules)
    mosquitto.stop()
    mosquitto.access += f"\nacl_file {mosquitto.directory / 'rules'}"
    mosquitto.start()
    serve = Serve(mosquitto.url, tmp_path, None).start()
    wait_until(lambda: any(missing in line and "read" in line for line in serve.log.splitlines()))
    assert serve.end() == 0


# Tasks never change


def publisher(mosquitto: Mosquitto, tmp_path: Path) -> Callable[[Mapping[str, object]], tuple[int, str]]:
    """`hush task publish` of a document: exit code and all that it says."""

    def task_publish(document: Mapping[str, object]) -> tuple[int, str]:
        path = tmp_path / "task.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        command = [sys.executable, "-m", "hush", "task", "publish", str(path), "--broker", mosquitto.url]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    return task_publish


def test_a_task_is_published_once_and_never_replaced(mosquitto: Mosquitto, tmp_path: Path) -> None:
    task_publish, draft = publisher(mosquitto, tmp_path), {"id": "heights", "domain": DOCUMENT["domain"]}
    made = make_task(draft | {"epsilon": "3", "mechanism": "multilevel", "levels": 3})
    for expected in ("published", "already published"):
        code, said = task_publish(draft | {"epsilon": "3", "mechanism": "multilevel", "levels": 3})
        assert (code, said.startswith(expected), made.digest.hex() in said) == (0, True, True)
    code, said = task_publish(draft | {"epsilon": "3", "mechanism": "auto"})  # which meant that in an earlier version
    assert (code, "multilevel" in said) == (0, True)
    for change in ({"epsilon": "2"}, {"epsilon": "3", "mechanism": "laplace"}):
        code, said = task_publish(draft | change)
        assert (code, made.digest.hex() in said, make_task(draft | change).digest.hex() in said) == (2, True, True)
    assert retained(mosquitto, TASK) == made.payload


def test_a_task_file_that_contradicts_the_store_is_named_with_both_digests(tmp_path: Path) -> None:
    changed = make_task({"id": "heights", "epsilon": "2", "domain": DOCUMENT["domain"]})
    serve = Serve("mqtt://127.0.0.1:1", tmp_path, None, task=changed)
    with SqliteStore(serve.store) as store:
        store.add_task(HEIGHTS)
    serve.start()
    assert serve.process is not None
    assert serve.process.wait(60) == 2
    (line,) = serve.log.splitlines()
    for word in (str(tmp_path / "task.json"), changed.digest.hex(), HEIGHTS.digest.hex(), "another id"):
        assert word in line
