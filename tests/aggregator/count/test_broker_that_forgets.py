"""mosquitto 2.0 with `persistence true` is killed: what it had acknowledged is lost, and counted after a recall."""

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import aiomqtt
import pytest
from servers import Mosquitto
from serving import estimate, serving
from waiting import PATIENCE_S

from hush_client import Gateway, MqttTransport
from hush_client.state import outbox
from hush_client.state.database import FILE_NAME
from hush_client.state.outbox import Entry
from hush_common.recall import Recall, encode_recall
from hush_common.rng import SystemRng
from hush_common.task import read_task
from hush_common.topics import ALL_REPORTS, recall_topic, task_topic
from hush_common.wire import HEADER

TASK = """
id = "heights"
epsilon = "1"
[domain]
kind = "number"
lower = 120.0
upper = 220.0
"""
REPORTS = 40


@asynccontextmanager
async def administrator(broker: Mosquitto) -> AsyncIterator[aiomqtt.Client]:
    async with aiomqtt.Client("127.0.0.1", broker.port, identifier="administrator") as client:
        yield client


async def publish(broker: Mosquitto, directory: Path, *, over: int = 1, recall: bool = True) -> None:
    """The task, and a recall of it, as an aggregator publishes them; and a session that keeps the reports."""
    (directory / "made.toml").write_text(TASK, encoding="utf-8")
    task = read_task(directory / "made.toml")
    async with administrator(broker) as client:
        await client.publish(task_topic(task.id), task.payload, qos=1, retain=True)
        if recall:
            document = encode_recall(Recall(task.id, task.digest, SystemRng().token_bytes(16), over))
            await client.publish(recall_topic(task.id), document, qos=1, retain=True)
    kept_session = aiomqtt.Client("127.0.0.1", broker.port, identifier="counter", clean_session=False)
    async with kept_session as client:
        await client.subscribe(ALL_REPORTS, qos=1)


async def waiting(broker: Mosquitto, most: int) -> list[bytes]:
    """What the session that keeps the reports has: so many, and none in the next second."""
    payloads: list[bytes] = []
    async with aiomqtt.Client("127.0.0.1", broker.port, identifier="counter", clean_session=False) as client:
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(1 if len(payloads) >= most else PATIENCE_S):
                    message = await anext(client.messages)
                assert isinstance(message.payload, bytes)
                payloads.append(message.payload)
    assert len(payloads) <= most
    return payloads


def kept_payloads(state: Path) -> list[bytes]:
    with closing(sqlite3.connect(state / FILE_NAME)) as connection:
        return [payload for (payload,) in connection.execute("SELECT payload FROM kept")]


def forget(broker: Mosquitto) -> None:
    """The broker dies, and comes back with what it had on its disk."""
    assert broker.process is not None
    broker.process.send_signal(signal.SIGKILL)
    broker.process.wait(60)
    broker.process = None
    broker.start()


async def listening(broker: Mosquitto) -> None:
    """Return when the aggregator of this broker takes in reports."""
    async with administrator(broker) as client:
        await client.subscribe("hush/v1/status/+", qos=1)
        async for message in client.messages:
            if message.payload == b"online":
                return


async def counted(broker: Mosquitto, least: int) -> dict[str, object]:
    return await asyncio.to_thread(estimate, broker.port, least)


@pytest.mark.large
@pytest.mark.parametrize(("keep", "left"), [(86400.0, REPORTS), (0.0, 0)], ids=["kept", "the twin that keeps nothing"])
async def test_what_a_broker_has_acknowledged_and_lost_is_counted_after_a_recall(
    mosquitto: Mosquitto, tmp_path: Path, keep: float, left: int
) -> None:
    await publish(mosquitto, tmp_path, recall=False)
    way = MqttTransport(mosquitto.url, "house")
    async with Gateway(way, name="house", state=tmp_path / "state", spread=0, keep=keep) as gateway:
        reports = (gateway.report(f"d{number}", "heights", 172.0) for number in range(REPORTS))
        assert {receipt.status for receipt in await asyncio.gather(*reports)} == {"sent"}
    forget(mosquitto)
    with serving(mosquitto.url, tmp_path, TASK):
        await listening(mosquitto)
        async with Gateway(way, name="house", state=tmp_path / "state", spread=0, keep=keep) as gateway:
            assert (await gateway.report("last", "heights", 172.0)).status == "sent"  # so that there is an estimate
            assert (await gateway.sync(timeout=PATIENCE_S)).done
            await publish(mosquitto, tmp_path)
            await asyncio.sleep(1.5)  # the time of the recall
            async with asyncio.timeout(PATIENCE_S):
                while (await gateway.sync(timeout=PATIENCE_S)).planned:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.1)
            again = 1 if keep else 0  # the last one, which nobody had lost
            document = await counted(mosquitto, left + 1 + again)
            assert document["n"] == left + 1
            assert document["refused"] == ({"duplicate": again} if again else {})
            assert {(await gateway.ledger(f"d{number}")).spent for number in range(REPORTS)} == {1}


@pytest.mark.large
@pytest.mark.parametrize("fresh", [False, True], ids=["the same bytes", "the twin that makes new ids"])
async def test_what_was_not_lost_counts_once_however_often_it_is_recalled(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fresh: bool
) -> None:
    if fresh:
        fetch = outbox.fetch_retained

        def renewed(*arguments: object) -> list[Entry]:
            entries = fetch(*arguments)  # type: ignore[arg-type]  # those of fetch
            return [
                Entry(
                    entry.sequence,
                    entry.topic,
                    entry.payload[: HEADER.size] + SystemRng().token_bytes(16) + entry.payload[HEADER.size + 16 :],
                )
                for entry in entries
            ]

        monkeypatch.setattr(outbox, "fetch_retained", renewed)
    with serving(mosquitto.url, tmp_path, TASK):
        await listening(mosquitto)
        way = MqttTransport(mosquitto.url, "house")
        async with Gateway(way, name="house", state=tmp_path / "state", spread=0, recall_every=0) as gateway:
            for number in range(5):
                assert (await gateway.report(f"d{number}", "heights", 172.0)).status == "sent"
            for reports in (10, 15):
                await publish(mosquitto, tmp_path)
                document = await counted(mosquitto, reports)
    assert (document["n"], document["refused"]) == ((15, {}) if fresh else (5, {"duplicate": 10}))


def hush(broker: Mosquitto, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hush", words[0], "--broker", broker.url, *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.large
async def test_programs_that_run_for_a_moment_bring_back_what_the_broker_lost(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    """`hush report` before the broker dies, once more, and `hush sync` when the time of the recall is over."""
    await publish(mosquitto, tmp_path, recall=False)
    states = [str(tmp_path / f"state{number}") for number in range(2)]
    for state in states:
        done = hush(mosquitto, "report", "heights", "172", "--state", state, "--spread", "0")
        assert "sent, and the broker has it" in done.stdout, done.stderr
    forget(mosquitto)
    await publish(mosquitto, tmp_path, over=3)
    for state in states:
        done = hush(mosquitto, "report", "heights", "172", "--state", state, "--spread", "0")
        assert "answered before" in done.stdout, done.stderr
    await asyncio.sleep(3)
    for state in states:
        done = hush(mosquitto, "sync", "--state", state, "--json")
        document = json.loads(done.stdout)
        assert (done.returncode, document["done"], document["planned"], document["waiting"]) == (0, True, 0, 0)
    again = hush(mosquitto, "sync", "--state", states[0])
    assert again.stdout == "0 sent again for a recall, nothing more is due later; nothing waits for the broker.\n"
    lost = {payload for state in states for payload in kept_payloads(Path(state))}
    assert len(lost) == 2
    assert sorted(await waiting(mosquitto, 2)) == sorted(lost)


def test_sync_without_a_broker_says_so_and_leaves_everything_as_it_is(mosquitto: Mosquitto, tmp_path: Path) -> None:
    assert hush(mosquitto, "sync", "--state", str(tmp_path / "none")).returncode == 2
    asyncio.run(publish(mosquitto, tmp_path, recall=False))
    assert hush(mosquitto, "report", "heights", "172", "--state", str(tmp_path / "state")).returncode == 0
    mosquitto.stop()
    done = hush(mosquitto, "sync", "--state", str(tmp_path / "state"), "--timeout", "0.5")
    assert done.returncode == 1
    assert done.stdout == "0 sent again for a recall, nothing more is due later; nothing waits for the broker.\n"
    assert len(done.stderr.splitlines()) == 1
    assert "cannot connect" in done.stderr
