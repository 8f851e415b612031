"""Brokers without retained messages, QoS 1 or last wills are named, and brokers that hang up otherwise are not."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiomqtt
import pytest
from processes import Serve
from servers import Mosquitto
from waiting import PATIENCE_S, wait_until

from hush_aggregator import MqttBroker
from hush_aggregator.ops.doctor.broker import check_broker
from hush_aggregator.ops.doctor.check_result import Verdict
from hush_client import MqttTransport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, FeatureMissingError
from hush_common.topics import status_topic

pytestmark = [pytest.mark.medium, pytest.mark.face]

TASK = 'id = "heights"\nepsilon = 1\n[domain]\nkind = "number"\nlower = 150\nupper = 200\n'
STATUS = status_topic("aggregator")
LACKS = {
    "retain_available false": "retained messages",
    "max_qos 0": "QoS 1",
    "retain_available false\nmax_qos 0": "retained messages and QoS 1",
}


@pytest.fixture(params=LACKS)
def lacking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Mosquitto, str]]:
    """A broker, and what it does not have."""
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker", access=f"allow_anonymous true\n{request.param}")
    broker.start()
    yield broker, f"{LACKS[request.param]}, "
    broker.stop()


async def test_devices_and_doctor_name_what_a_broker_lacks(lacking: tuple[Mosquitto, str]) -> None:
    broker, lacks = lacking
    found = {one.check: one for one in await check_broker(BrokerUrl.parse(broker.url), datetime.now(UTC))}
    assert (found["features"].verdict, lacks in found["features"].detail) == (Verdict.FAILURE, True)
    assert "rights" not in found
    with pytest.raises(FeatureMissingError, match=lacks):
        async with MqttTransport(broker.url, "device").connect():
            pass


@pytest.mark.large
def test_commands_name_what_a_broker_lacks_and_nothing_else(lacking: tuple[Mosquitto, str], tmp_path: Path) -> None:
    broker, lacks = lacking
    (tmp_path / "task.toml").write_text(TASK, encoding="utf-8")
    state = ("--state", str(tmp_path / "state"))
    for words in (
        ("task", "publish", str(tmp_path / "task.toml")),
        ("report", "heights", "172", "--spread", "0", "--timeout", "5", *state),
    ):
        command = [sys.executable, "-m", "hush", *words, "--broker", broker.url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S)
        assert (done.returncode, lacks in done.stderr) == (1, True)
    serve = Serve(broker.url, tmp_path, None).start()
    attempts = broker.directory / "mosquitto.log"
    wait_until(lambda: attempts.read_text().count("New connection") > 12)  # it would have given up its second one
    wait_until(lambda: lacks in serve.log)
    assert serve.end() == 0
    assert "second connection" not in serve.log


Refuses = Callable[[int, bool], bool]


@asynccontextmanager
async def in_front_of(broker: Mosquitto, refuses: Refuses) -> AsyncIterator[BrokerUrl]:
    """A broker that hangs up on a CONNECT with some version (3, 4 or 5), and with or without a last will."""

    serving: set[asyncio.Task[None]] = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        finally:
            writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(65536)
        at = first.find(b"MQTT") + 4
        if first and not refuses(first[at], bool(first[at + 1] & 4)):
            back, there = await asyncio.open_connection("127.0.0.1", broker.port)
            there.write(first)
            await asyncio.gather(pipe(reader, there), pipe(back, writer))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(pass_on(reader, writer))
        serving.add(task)
        await asyncio.wait({task})
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        yield BrokerUrl.parse(f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0)  # each connection is closed


async def trouble(broker: Mosquitto, refuses: Refuses) -> BrokerError | None:
    """Why an aggregator cannot connect; None if it can."""
    async with in_front_of(broker, refuses) as url:
        try:
            async with MqttBroker(url, "aggregator", status=STATUS, patience=5.0).connect(()):
                return None
        except BrokerError as error:
            return error


async def test_a_broker_without_mqtt_5_that_refuses_a_last_will_is_named(mosquitto: Mosquitto) -> None:
    error = await trouble(mosquitto, lambda version, has_will: version == 5 or has_will)
    assert isinstance(error, FeatureMissingError)
    assert STATUS in error.message


@pytest.mark.parametrize("is_old", [True, False])
async def test_a_broker_that_hangs_up_on_everybody_is_not_accused(mosquitto: Mosquitto, *, is_old: bool) -> None:
    error = await trouble(mosquitto, lambda version, _: version != 5 or is_old)
    assert error is not None
    assert not isinstance(error, FeatureMissingError)
    assert "will" not in error.message


async def test_a_broker_that_hung_up_once_is_not_accused(mosquitto: Mosquitto) -> None:
    attempts: list[bool] = []

    def refuses(version: int, has_will: bool) -> bool:
        attempts.append(has_will)
        return version == 5 or len(attempts) == 1

    assert await trouble(mosquitto, refuses) is None
    assert attempts[0]


async def test_doctor_leaves_nothing_retained(mosquitto: Mosquitto) -> None:
    for _ in range(20):  # a machine with other work may be too slow for it
        found = {one.check: one for one in await check_broker(BrokerUrl.parse(mosquitto.url), datetime.now(UTC))}
        if found["retained"].verdict is Verdict.OK:
            break
    assert found["retained"].verdict is Verdict.OK
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as client:
        await client.subscribe("hush/#")
        await client.publish("hush/end", b"end", qos=1)
        async for message in client.messages:
            assert not message.retain or message.topic.matches("hush/end")
            if message.topic.matches("hush/end"):
                break
