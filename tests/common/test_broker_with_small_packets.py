"""A broker that takes short packets alone: what is too long for it is named and set aside, and all else goes on."""

import asyncio
import json
import logging
import secrets
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import pytest
from counting import aggregating, counted
from servers import Mosquitto

from hush import Task
from hush_common.domain import Index
from hush_common.rng import SystemRng
from hush_common.task import make_task
from hush_common.topics import ALL_ESTIMATES, ALL_TASKS, report_topic
from hush_common.wire import Report, encode_frame

QUEUE = "max_queued_messages 0\nmax_inflight_messages 1000"
SMALL = f"{QUEUE}\nmax_packet_size 2000"


def task(name: str, labels: int) -> Task:
    domain = {"kind": "category", "labels": [f"label {number}" for number in range(labels)]}
    return make_task({"id": name, "epsilon": "1", "domain": domain})


BITS = make_task({"id": "bits", "epsilon": "1", "domain": {"kind": "bit"}})
CARS, TRAINS = task("cars", 60), task("trains", 80)
"""Their estimates are too long."""
FLEET = task("fleet", 300)
"""So is this task itself."""


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path_factory.mktemp("mosquitto"), settings=SMALL)
    broker.start()
    yield broker
    broker.stop()


def report(task: Task) -> bytes:
    body = task.perturb(Index(0), SystemRng(), 0)
    return encode_frame([Report(task.report_digest, 0, secrets.token_bytes(16), body)])


async def send(broker: Mosquitto, *tasks: Task) -> None:
    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        for one in tasks:
            await client.publish(report_topic(one.id, "device"), report(one), qos=1)


async def retained(broker: Mosquitto, name: str, n: int) -> None:
    """Wait until the estimate of so many reports is there."""
    async with aiomqtt.Client("127.0.0.1", broker.port) as client, asyncio.timeout(60):
        await client.subscribe(ALL_ESTIMATES, qos=1)
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            document = json.loads(message.payload)
            if (document["task"], document.get("n")) == (name, n):
                return


def of_log(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if all(word in line for word in words)]


async def test_an_estimate_that_the_broker_hangs_up_on_is_named_and_everything_else_goes_on(
    small: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = tmp_path / "store.sqlite3"
    async with aggregating(small, store, tasks=(BITS, CARS, TRAINS)):
        for n in (1, 2, 3):
            await send(small, CARS, BITS, TRAINS)
            await retained(small, "bits", n)
        connections = len(of_log(caplog, ": connected to"))
        await send(small, CARS, TRAINS, BITS)
        await retained(small, "bits", 4)
        assert counted(store) == 12
        assert len(of_log(caplog, ": connected to")) == connections <= 5, "it stays connected"
        (told,) = of_log(caplog, "task cars")
        assert "hush/v1/estimates/cars is held back" in told
        assert "raise max_packet_size" in told
        (told,) = of_log(caplog, "task trains")
        assert "hush/v1/estimates/trains is held back" in told
        assert of_log(caplog, "did not come back") == of_log(caplog, "task bits") == []


async def test_what_was_set_aside_is_published_once_the_broker_takes_it(
    small: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush_aggregator.broker.session._AGAIN_S", 1.0)
    caplog.set_level(logging.INFO)
    async with aggregating(small, tmp_path / "store.sqlite3", tasks=(BITS, CARS, TRAINS)):
        await send(small, CARS, TRAINS)
        async with asyncio.timeout(60):
            while not of_log(caplog, "task cars", "held back"):  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.05)
        small.stop()
        small.settings = QUEUE
        small.start()
        await retained(small, "cars", 1)
        await retained(small, "trains", 1)
    assert of_log(caplog, "accepted again")


async def test_a_task_that_is_too_long_is_named_and_the_others_are_published_and_counted(
    small: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store.sqlite3"
    async with aggregating(small, store, tasks=(FLEET, BITS)):
        await send(small, FLEET, BITS)
        await retained(small, "bits", 1)
        async with aiomqtt.Client("127.0.0.1", small.port) as client, asyncio.timeout(60):
            await client.subscribe(ALL_TASKS)
            assert (await anext(client.messages)).payload == BITS.payload
        await send(small, FLEET, BITS)
        await retained(small, "bits", 2)
        assert counted(store) == 4
    assert len(of_log(caplog, "task fleet: its message to hush/v1/tasks/fleet is held back")) == 1
