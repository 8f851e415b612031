"""The attacker publishes tasks, or is the broker itself, and wants the memory of a device or of an aggregator."""

import asyncio
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from counting import aggregating, counted, refused, shell
from heights import HEIGHTS
from scripted_broker import Kind, ScriptedBroker, endless, header, message
from servers import Mosquitto

from hush_client import Client
from hush_common.task import decode_task, make_task
from hush_common.topics import report_topic, task_topic

pytestmark = pytest.mark.medium

MIB = 1 << 20
HUGE = 32 * MIB


@dataclass
class Peak:
    """The most memory that Python took in a block, in bytes."""

    bytes: int = field(default=0, init=False)


@contextmanager
def measured() -> Iterator[Peak]:
    peak = Peak()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield peak
        peak.bytes = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


async def send_huge(writer: asyncio.StreamWriter, reply: bytes) -> None:
    """The reply, after a message of 32 MiB that is sent in pieces."""
    head = struct.pack(">H", 17) + b"hush/v1/tasks/big"
    writer.write(header(0x31, len(head) + HUGE) + head)
    for _ in range(HUGE // 65_536):
        writer.write(bytes(65_536))
        await writer.drain()
    writer.write(reply)


async def send_qos_2(writer: asyncio.StreamWriter, reply: bytes) -> None:
    """512 messages of 60 000 bytes that must be kept until the broker releases them, which it never does."""
    head = struct.pack(">H", 17) + b"hush/v1/tasks/big"
    for number in range(1, 513):
        writer.write(header(0x35, len(head) + 2 + 60_000) + head + struct.pack(">H", number) + bytes(60_000))
        await writer.drain()
    writer.write(reply)


@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize("way", ["tcp", "websocket"])
async def test_by_a_message_of_32_mib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, way: str, *, limited: bool
) -> None:
    if not limited:
        monkeypatch.setattr("hush_common.mqtt.connection.limit_packets", lambda *_: int)
    async with ScriptedBroker((Kind.SUBSCRIBE, send_huge)).running(
        frame=endless() if way == "websocket" else None
    ) as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            with measured() as peak:
                receipt = await client.report("heights", 172.0, timeout=60)
        assert receipt.status == "sent"
        assert broker.connections == 1
    if limited:
        assert peak.bytes < 2 * MIB
        assert str(HUGE + 19) in caplog.text
    else:
        assert peak.bytes > HUGE


async def test_by_messages_that_are_never_released(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedBroker((Kind.SUBSCRIBE, send_qos_2)).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            with measured() as peak:
                receipt = await client.report("heights", 172.0, timeout=60)
        assert receipt.status == "sent"
        assert broker.connections == 2
    assert peak.bytes < 2 * MIB
    assert "QoS 2" in caplog.text


@pytest.mark.large
async def test_by_four_hundred_tasks_of_58_kb(tmp_path: Path) -> None:
    labels = [f"{number:04d}" + "x" * 90 for number in range(590)]
    large = make_task({"id": "t0000", "epsilon": "1", "domain": {"kind": "category", "labels": labels}}).payload
    flood = b"".join(
        message(task_topic(f"t{number:04d}"), large.replace(b"t0000", b"t%04d" % number), properties=b"\x00")
        for number in range(400)
    )

    async def send(writer: asyncio.StreamWriter, reply: bytes) -> None:
        writer.write(reply)
        for start in range(0, len(flood), 65_536):
            writer.write(flood[start : start + 65_536])
            await writer.drain()

    told = []
    async with (
        ScriptedBroker((Kind.SUBSCRIBE, send)).running() as broker,
        Client(broker.url, device="d", state=tmp_path, spread=0) as client,
    ):
        with measured() as peak:
            client.on_task(lambda task: told.append(task.id))
            async with asyncio.timeout(60):
                while len(told) < 401:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.05)
        assert len(client.tasks()) == 8 * MIB // len(large)
        assert (await client.report("heights", 172.0)).status == "sent"  # forgotten, and asked for again
    assert peak.bytes < 5 * 8 * MIB  # it was 72 MB


async def test_of_an_aggregator_by_a_report_of_40_mb(mosquitto: Mosquitto, tmp_path: Path) -> None:
    task, path = decode_task(HEIGHTS), tmp_path / "hush.sqlite"
    huge = tmp_path / "huge"
    huge.write_bytes(bytes([2]) + bytes(40_000_000))
    async with aggregating(mosquitto, path, tasks=(task,)):
        topic = report_topic("heights", "evil")
        await asyncio.to_thread(shell, "mosquitto_pub", mosquitto.port, "-t", topic, "-q", "1", "-f", str(huge))
        async with Client(mosquitto.url, device="d", state=tmp_path / "d", spread=0) as client:
            assert (await client.report("heights", 172.0)).status == "sent"
        async with asyncio.timeout(60):
            while counted(path) < 1:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.05)
    assert refused(path) == {"malformed": 1}, "acknowledged, so that it comes once"
