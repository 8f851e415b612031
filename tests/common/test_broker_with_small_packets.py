"""A broker that hangs up on long packets: what is too long is named and held back, and all else goes on."""

import asyncio
import json
import logging
import secrets
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

pytestmark = pytest.mark.medium


def task(name: str, labels: int) -> Task:
    domain = {"kind": "category", "labels": [f"label {number}" for number in range(labels)]}
    return make_task({"id": name, "epsilon": "1", "domain": domain})


BITS = make_task({"id": "bits", "epsilon": "1", "domain": {"kind": "bit"}})
CARS, TRAINS = task("cars", 60), task("trains", 80)
"""Their estimates are too long."""
FLEET = task("fleet", 300)
"""So is this task itself."""


async def send(broker: Mosquitto, *tasks: Task) -> None:
    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        for one in tasks:
            body = one.perturb(Index(0), SystemRng(), 0)
            frame = encode_frame([Report(one.report_digest, 0, secrets.token_bytes(16), body)])
            await client.publish(report_topic(one.id, "device"), frame, qos=1)


async def retained(broker: Mosquitto, name: str, n: int) -> None:
    """Wait until the estimate of so many reports is there."""
    async with aiomqtt.Client("127.0.0.1", broker.port) as client, asyncio.timeout(60):
        await client.subscribe(ALL_ESTIMATES, qos=1)
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            document = json.loads(message.payload)
            if (document["task"], document.get("n")) == (name, n):
                return


async def test_messages_too_long_for_the_broker_hold_up_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store, tasks = tmp_path / "store.sqlite3", (FLEET, CARS, BITS, TRAINS)
    settings = "max_queued_messages 0\nmax_inflight_messages 1000\nmax_packet_size 2000"
    with Mosquitto(tmp_path, settings=settings).running() as broker:
        async with aggregating(broker, store, tasks=tasks):
            for n in (1, 2, 3):
                await send(broker, *tasks)
                await retained(broker, "bits", n)
            assert counted(store) == 12
            async with aiomqtt.Client("127.0.0.1", broker.port) as client, asyncio.timeout(60):
                await client.subscribe(ALL_TASKS)
                seen = {bytes((await anext(client.messages)).payload) for _ in range(3)}
            assert seen == {CARS.payload, BITS.payload, TRAINS.payload}
    held_back = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    for topic in ("hush/v1/estimates/cars", "hush/v1/estimates/trains", "hush/v1/tasks/fleet"):
        (told,) = (text for text in held_back if topic in text)
        assert "max_packet_size" in told
    assert not any("task bits" in text for text in held_back)
