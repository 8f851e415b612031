"""A device that is killed: after the restart it sends the very same bytes, and has paid once."""

import asyncio
import os
import sqlite3
import sys
from collections import Counter
from pathlib import Path

import aiomqtt
from fake_transport import HEIGHTS
from servers import Mosquitto

from hush_client import Gateway, MqttTransport, ledger, outbox
from hush_client.state import FILE_NAME, State
from hush_common.broker_url import BrokerUrl
from hush_common.codec import Frame, decode
from hush_common.topics import ALL_REPORTS, task_topic

BETWEEN_CHARGE_AND_SEND = """
import asyncio, sys
from pathlib import Path
from fake_transport import FakeTransport
from hush_client import Gateway

def about_to_send():
    print(broker.attempts[0][1].hex(), flush=True)
    sys.stdin.read()  # until killed: not one byte has left the process

broker = FakeTransport(on_publish=about_to_send)

async def main():
    async with Gateway(broker, name="g", state=Path(sys.argv[1]), spread=0) as gateway:
        await gateway.report("d", "heights", 172.0)

asyncio.run(main())
"""

MANY_REPORTS = """
import asyncio, sys
from pathlib import Path
from hush_client import Gateway, MqttTransport
from hush_common.broker_url import BrokerUrl

async def main():
    transport = MqttTransport(BrokerUrl.parse(sys.argv[2]), "g")
    async with Gateway(transport, name="g", state=Path(sys.argv[1]), spread=0) as gateway:
        await gateway.task("heights")
        print("ready", flush=True)
        for start in range(0, 400, 8):
            await asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0) for i in range(start, start + 8)))

asyncio.run(main())
"""


async def start(program: str, *arguments: str) -> asyncio.subprocess.Process:
    tests = str(Path(__file__).parents[1])
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": tests},
    )


async def kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def publish_task(port: int) -> None:
    async with aiomqtt.Client("127.0.0.1", port) as administrator:
        await administrator.publish(task_topic("heights"), HEIGHTS, qos=1, retain=True)


async def test_killed_between_charge_and_send_the_same_bytes_are_sent_and_paid_once(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    child = await start(BETWEEN_CHARGE_AND_SEND, str(tmp_path))
    assert child.stdout is not None
    drawn = bytes.fromhex((await child.stdout.readline()).decode())
    await kill(child)
    await publish_task(mosquitto.port)
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as aggregator:
        await aggregator.subscribe(ALL_REPORTS, qos=1)
        transport = MqttTransport(BrokerUrl.parse(mosquitto.url), "g")
        async with Gateway(transport, name="g", state=tmp_path, spread=0) as gateway:
            receipt = await gateway.report("d", "heights", 172.0)
            assert await gateway.flush(timeout=10)
        message = await anext(aggregator.messages)
        assert len(aggregator.messages) == 0
    assert message.payload == drawn
    frame = decode(drawn)
    assert isinstance(frame, Frame)
    assert (receipt.status, receipt.report_id) == ("already_answered", frame.reports[0].id.hex())
    assert receipt.spent == 1
    assert await stored(tmp_path) == (1, 0)


async def test_killed_at_random_moments_every_charge_has_its_report_and_none_has_two(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    await publish_task(mosquitto.port)
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as aggregator:
        await aggregator.subscribe(ALL_REPORTS, qos=1)
        for attempt in range(6):
            child = await start(MANY_REPORTS, str(tmp_path), mosquitto.url)
            assert child.stdout is not None
            assert await child.stdout.readline() == b"ready\n"
            await asyncio.sleep(0.01 + 0.023 * attempt)
            await kill(child)
        transport = MqttTransport(BrokerUrl.parse(mosquitto.url), "g")
        async with Gateway(transport, name="g", state=tmp_path, spread=0) as gateway:
            assert await gateway.flush(timeout=20)
        with sqlite3.connect(tmp_path / FILE_NAME) as connection:
            charged = {row[0].hex() for row in connection.execute("SELECT report_id FROM charge")}
        connection.close()
        arrived = await drain(aggregator)
    assert len(charged) > 8
    assert set(arrived) == charged
    assert max(Counter(arrived.values()).values()) == 1


async def drain(aggregator: aiomqtt.Client) -> dict[str, bytes]:
    """All payloads by report id; two different payloads under one id fail."""
    arrived: dict[str, bytes] = {}
    while True:
        try:
            async with asyncio.timeout(0.5):
                message = await anext(aggregator.messages)
        except TimeoutError:
            return arrived
        assert isinstance(message.payload, bytes)
        frame = decode(message.payload)
        assert isinstance(frame, Frame)
        (report,) = frame.reports
        assert arrived.setdefault(report.id.hex(), message.payload) == message.payload


async def stored(directory: Path) -> tuple[int, int]:
    """How many charges the device `d` has, and how many reports wait."""
    state = await State.open(directory)
    charges = await state.run(lambda c: len(ledger.charges(c, "d", "workplaces")))
    waiting = await state.run(outbox.count)
    await state.close()
    return charges, waiting
