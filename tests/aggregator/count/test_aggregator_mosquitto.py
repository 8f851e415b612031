"""The aggregator against a real mosquitto, and `hush serve` and `hush task publish` as a user meets them."""

import asyncio
import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from counting import aggregating, counted, shell
from paho.mqtt.enums import CallbackAPIVersion
from servers import Mosquitto
from serving import estimate

from hush_aggregator import MqttBroker, SqliteStore
from hush_common.broker_url import BrokerUrl
from hush_common.task import make_task, read_task
from hush_common.topics import ALL_REPORTS, ALL_TASKS, status_topic
from hush_common.wire import Report, encode_frame, encode_json

HUSH = [sys.executable, "-m", "hush"]
DOCUMENT = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0}}
HEIGHTS = make_task(DOCUMENT)
TOPIC = "hush/v1/reports/heights/device"


def frames(count: int) -> list[bytes]:
    return [encode_frame([Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (k,))]) for k in range(count)]


def publish(port: int, payloads: list[bytes]) -> None:
    """Send at QoS 1 and wait for every acknowledgement, through restarts of the broker."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"p-{secrets.token_hex(4)}", clean_session=False)
    client.max_inflight_messages_set(500)
    client.reconnect_delay_set(1, 1)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for sent in [client.publish(TOPIC, payload, qos=1) for payload in payloads]:
        sent.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()


async def reach(path: Path, count: int, within_s: float = 60) -> None:
    async with asyncio.timeout(within_s):
        while counted(path) < count:  # noqa: ASYNC110 - another process's file has no event
            await asyncio.sleep(0.02)


async def test_a_json_report_from_a_shell_is_counted_and_the_same_again_is_a_duplicate(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    store = tmp_path / "hush.sqlite"
    report = encode_json("heights", Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (571231,))).decode()
    async with aggregating(mosquitto, store, tasks=(HEIGHTS,)) as aggregator:
        for _ in range(2):
            await asyncio.to_thread(shell, "mosquitto_pub", mosquitto.port, "-t", TOPIC, "-q", "1", "-m", report)
        released = await asyncio.to_thread(estimate, mosquitto.port, 2)
        document = await aggregator.estimate("heights")
    assert (document.n, document.refused) == (1, {"duplicate": 1})
    assert (released["n"], released["refused"]) == (1, {"duplicate": 1})
    assert released["mean"] == pytest.approx(120 + 571231 / 2**20 * 100)


async def test_reports_published_while_nobody_counts_wait_at_the_broker(mosquitto: Mosquitto, tmp_path: Path) -> None:
    store = tmp_path / "hush.sqlite"
    async with aggregating(mosquitto, store, tasks=(HEIGHTS,)):
        pass
    await asyncio.to_thread(publish, mosquitto.port, frames(500))
    async with aggregating(mosquitto, store, tasks=(HEIGHTS,)):
        await reach(store, 500)


async def test_a_lost_store_loses_no_waiting_report_although_its_task_comes_later(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    """The broker redelivers a full window of reports before it sends the retained task that explains them."""
    async with aggregating(mosquitto, tmp_path / "first.sqlite", tasks=(HEIGHTS,)):
        await asyncio.to_thread(shell, "mosquitto_sub", mosquitto.port, "-t", "hush/v1/tasks/heights", "-C", "1")
    await asyncio.to_thread(publish, mosquitto.port, frames(3000))
    async with aggregating(mosquitto, tmp_path / "second.sqlite", tasks=(), any_task=True) as aggregator:
        await reach(tmp_path / "second.sqlite", 3000)
        assert (await aggregator.estimate("heights")).refused == {}


async def test_a_broker_that_restarts_in_the_middle_costs_nothing(mosquitto: Mosquitto, tmp_path: Path) -> None:
    store = tmp_path / "hush.sqlite"
    async with aggregating(mosquitto, store, tasks=(HEIGHTS,)):
        publishing = asyncio.create_task(asyncio.to_thread(publish, mosquitto.port, frames(5000)))
        for _ in range(2):
            await asyncio.sleep(0.3)
            mosquitto.stop()
            mosquitto.start()
        await publishing
        await reach(store, 5000)
    assert counted(store) == 5000


@pytest.mark.large
async def test_a_full_inbox_stops_reading_and_loses_nothing(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush_aggregator.broker.mqtt._INBOX_MESSAGES", 10)
    monkeypatch.setattr("hush_common.mqtt.packets._PIECE", 1024)  # what is read at once, about ten messages, fits in
    batches: list[int] = []
    store = tmp_path / "hush.sqlite"
    async with aggregating(
        mosquitto, store, tasks=(HEIGHTS,), on_commit=lambda outcome: batches.append(outcome.accepted)
    ):
        await asyncio.to_thread(publish, mosquitto.port, frames(3000))
        await reach(store, 3000)
    assert max(batches) <= 10 + 1024 // len(frames(1)[0])


async def test_the_answer_to_a_publication_comes_behind_what_is_taken_from_a_full_inbox(
    mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush_aggregator.broker.mqtt._INBOX_MESSAGES", 10)
    bus = MqttBroker(BrokerUrl.parse(mosquitto.url), "hush-aggregator-test", status=status_topic("test"))
    async with bus.connect([ALL_TASKS, ALL_REPORTS]) as session:
        publishing = asyncio.create_task(asyncio.to_thread(publish, mosquitto.port, frames(900)))
        await session.batch()
        await publishing
        answered = asyncio.create_task(session.publish("hush/v1/estimates/heights", b"{}"))
        taken = 0
        async with asyncio.timeout(60):
            while not answered.done():
                batch = asyncio.create_task(session.batch())
                await asyncio.wait((batch, answered), return_when=asyncio.FIRST_COMPLETED)
                batch.cancel()
                if batch.done() and not batch.cancelled():
                    taken += len(batch.result())
        assert taken > 10


@pytest.mark.large
async def test_twenty_thousand_reports_are_all_counted(mosquitto: Mosquitto, tmp_path: Path) -> None:
    store = tmp_path / "hush.sqlite"
    payloads = frames(20_000)
    async with aggregating(mosquitto, store, tasks=(HEIGHTS,)):
        await asyncio.to_thread(publish, mosquitto.port, payloads)
        await reach(store, 20_000)


def serve(url: str, tmp_path: Path, last: str = "", seconds: float = 1.5) -> tuple[int, list[str]]:
    """Exit code and lines of a service that runs for some seconds after the first line with these words."""
    command = [*HUSH, "serve", "--broker", url, "--store", str(tmp_path / "hush.sqlite")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = ""
        while last not in told or not told:
            line = process.stderr.readline()
            assert line, told
            told += line
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        told += process.stderr.read()
    return process.returncode, told.splitlines()


def test_a_wrong_password_is_one_line_without_the_password(guarded_mosquitto: Mosquitto, tmp_path: Path) -> None:
    code, lines = serve(f"mqtt://alice:wrong@127.0.0.1:{guarded_mosquitto.port}", tmp_path)
    warnings = [line for line in lines if "WARNING" in line]
    assert len(warnings) == 1
    assert "refuses the login" in warnings[0]
    assert "check user and password" in warnings[0]
    assert "wrong" not in "".join(lines)
    assert (code, len(lines)) == (0, 2)


def test_a_broker_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    code, lines = serve("mqtt://127.0.0.1:1", tmp_path)
    assert (code, len(lines)) == (0, 2)
    assert "mqtt://127.0.0.1:1: cannot connect (Connection refused); start the broker, or correct" in lines[0]


def test_serve_says_what_it_does_and_leaves_offline_behind(mosquitto: Mosquitto, tmp_path: Path) -> None:
    code, lines = serve(mosquitto.url, tmp_path, "control: connected", 0.5)
    assert code == 0
    told = [line.split(" ", 3)[3] for line in lines if "accepts clients without a login" not in line]
    there = f"connected to {mosquitto.url}"
    assert told == [f"aggregator: {there}", f"aggregator, control: {there}", "stopped"]
    assert shell("mosquitto_sub", mosquitto.port, "-t", status_topic("aggregator"), "-C", "1") == "offline\n"


def test_a_task_file_that_contradicts_the_store_is_named_with_both_digests(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps(DOCUMENT | {"id": "steps"}), encoding="utf-8")
    second.write_text(json.dumps(DOCUMENT | {"epsilon": "2"}), encoding="utf-8")
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        store.add_task(HEIGHTS)
    tasks = ["--task", str(first), "--task", str(second)]
    command = [*HUSH, "serve", "--broker", "mqtt://127.0.0.1:1", "--store", str(tmp_path / "hush.sqlite"), *tasks]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == (
        f"hush: {second}: the task 'heights', digest {read_task(second).digest.hex()}, is not the one that is counted "
        f"here under this id, digest {HEIGHTS.digest.hex()}, and tasks never change; choose another id\n"
    )


def test_the_last_will_tells_of_a_kill(mosquitto: Mosquitto, tmp_path: Path) -> None:
    command = [*HUSH, "serve", "--broker", mosquitto.url, "--store", str(tmp_path / "hush.sqlite")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        topic = status_topic("aggregator")
        assert shell("mosquitto_sub", mosquitto.port, "-t", topic, "-C", "1", "-W", "60") == "online\n"
        process.kill()
    assert shell("mosquitto_sub", mosquitto.port, "-t", topic, "-C", "1") == "offline\n"


def publisher(mosquitto: Mosquitto, tmp_path: Path) -> Callable[[Mapping[str, object]], tuple[int, str]]:
    """`hush task publish` of a document: exit code and all that it says."""

    def task_publish(document: Mapping[str, object]) -> tuple[int, str]:
        path = tmp_path / "task.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        done = subprocess.run(
            [*HUSH, "task", "publish", str(path), "--broker", mosquitto.url],
            check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return task_publish


@pytest.mark.large
def test_a_task_stays_as_an_earlier_version_published_and_stored_it(mosquitto: Mosquitto, tmp_path: Path) -> None:
    task_publish = publisher(mosquitto, tmp_path)
    draft = {**DOCUMENT, "epsilon": "3", "mechanism": "auto"}
    before = make_task(draft | {"mechanism": "multilevel", "levels": 3})
    where = f"heights, digest {before.digest.hex()}, at {mosquitto.url}\n"
    assert task_publish(draft | {"mechanism": "multilevel", "levels": 3}) == (0, f"published: {where}")
    code, told = task_publish(draft)
    assert (code, told.splitlines()[0]) == (0, f"already published: {where}".rstrip())
    assert "it stays what it was published as, multilevel" in told
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        store.add_task(before)
    command = [*HUSH, "serve", "--broker", mosquitto.url, "--store", str(tmp_path / "hush.sqlite")]
    with subprocess.Popen([*command, "--task", str(tmp_path / "task.json")], stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        assert "task heights stays as it was stored: multilevel" in run.stderr.readline()
        assert "connected" in run.stderr.readline()
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 0
    retained = shell("mosquitto_sub", mosquitto.port, "-t", "hush/v1/tasks/heights", "-C", "1")
    assert retained.encode() == before.payload + b"\n"
    assert task_publish(draft | {"purpose": "another"})[0] == 2
    assert task_publish(draft | {"mechanism": "laplace"})[0] == 2


def test_a_task_is_published_once_and_never_replaced(mosquitto: Mosquitto, tmp_path: Path) -> None:
    task_publish = publisher(mosquitto, tmp_path)
    where = f"heights, digest {HEIGHTS.digest.hex()}, at {mosquitto.url}\n"
    assert task_publish(DOCUMENT) == (0, f"published: {where}")
    assert task_publish(DOCUMENT) == (0, f"already published: {where}")
    code, told = task_publish(DOCUMENT | {"epsilon": "2"})
    assert code == 2
    other = make_task({**DOCUMENT, "epsilon": "2"}).digest.hex()
    assert told.startswith(
        f"hush: {tmp_path / 'task.json'}: the task 'heights', digest {other}, is not the one that is"
    )
    assert f"digest {HEIGHTS.digest.hex()}, and tasks never change" in told
    assert told.endswith("choose another id\n")
    retained = shell("mosquitto_sub", mosquitto.port, "-t", "hush/v1/tasks/heights", "-C", "1")
    assert retained.encode() == HEIGHTS.payload + b"\n"
