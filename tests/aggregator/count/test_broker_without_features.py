"""Brokers without retained messages, QoS 1 or last wills, and brokers that hang up for another reason."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import aiomqtt
import pytest
from servers import Mosquitto
from waiting import PATIENCE_S, wait_until

from hush_aggregator import MqttBroker
from hush_aggregator.doctor.broker import check_broker
from hush_aggregator.doctor.check_result import Verdict
from hush_client import MqttTransport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, FeatureMissingError
from hush_common.topics import status_topic

pytestmark = pytest.mark.medium

TASK = 'id = "heights"\nepsilon = 1\n[domain]\nkind = "number"\nlower = 150\nupper = 200\n'
LACKS = {
    "retain_available false": "retained messages",
    "max_qos 0": "QoS 1",
    "retain_available false\nmax_qos 0": "retained messages and QoS 1",
}
STATUS = status_topic("aggregator")
ATTEMPTS = 12  # connections: a service that took it for another trouble had given up its second one by then


@pytest.fixture(params=LACKS)
def lacking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Mosquitto, str]]:
    """A broker, and what it does not have."""
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker", access=f"allow_anonymous true\n{request.param}")
    broker.start()
    yield broker, f"does not support {LACKS[request.param]}, "
    broker.stop()


def hush(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hush", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S)


def test_commands_name_what_a_broker_lacks(lacking: tuple[Mosquitto, str], tmp_path: Path) -> None:
    broker, lacks = lacking
    (tmp_path / "task.toml").write_text(TASK, encoding="utf-8")
    published = hush("task", "publish", str(tmp_path / "task.toml"), "--broker", broker.url)
    reported = hush(
        *("report", "heights", "172", "--spread", "0", "--timeout", "5"),
        *("--state", str(tmp_path / "state"), "--broker", broker.url),
    )
    for command in (published, reported):
        assert command.returncode == 1
        assert lacks in command.stderr
        assert "sent again" not in command.stderr


def test_a_service_names_what_a_broker_lacks_and_accuses_it_of_nothing_else(
    lacking: tuple[Mosquitto, str], tmp_path: Path
) -> None:
    broker, lacks = lacking
    (tmp_path / "task.toml").write_text(TASK, encoding="utf-8")
    options = ["--broker", broker.url, "--store", str(tmp_path / "store"), "--task", str(tmp_path / "task.toml")]
    with (tmp_path / "log").open("w+") as log:
        serving = subprocess.Popen([sys.executable, "-m", "hush", "serve", *options], stderr=log)
        wait_until(lambda: (broker.directory / "mosquitto.log").read_text().count("New connection") > ATTEMPTS)
        serving.terminate()
        serving.wait(PATIENCE_S)
    lines = (tmp_path / "log").read_text("utf-8").splitlines()
    assert any(lacks in line for line in lines), lines
    assert not any("second connection" in line or "start the broker" in line for line in lines), lines


async def test_doctor_names_what_a_broker_lacks(lacking: tuple[Mosquitto, str]) -> None:
    broker, lacks = lacking
    found = {one.check: one for one in await check_broker(BrokerUrl.parse(broker.url), datetime.now(UTC))}
    assert found["features"].verdict is Verdict.FAILURE
    assert lacks in found["features"].detail
    assert "rights" not in found


async def test_a_device_names_what_a_broker_lacks(lacking: tuple[Mosquitto, str]) -> None:
    broker, lacks = lacking
    with pytest.raises(FeatureMissingError, match=lacks):
        async with MqttTransport(broker.url, "device").connect():
            pass


Refuses = Callable[[int, bool], bool]


@asynccontextmanager
async def in_front_of(broker: Mosquitto, refuses: Refuses) -> AsyncIterator[BrokerUrl]:
    """A broker that hangs up on a CONNECT with some version (3, 4 or 5), and with or without a last will."""

    serving: set[asyncio.Task[None]] = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(65536)
        at = first.find(b"MQTT") + 4
        if first and not refuses(first[at], bool(first[at + 1] & 4)):
            back, there = await asyncio.open_connection("127.0.0.1", broker.port)
            there.write(first)
            await asyncio.gather(pipe(reader, there), pipe(back, writer))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(passed_on(reader, writer))
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
    assert f"last will on {STATUS}" in error.message


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


async def test_doctor_finds_a_broker_that_hangs_up_on_retained_messages_or_drops_them(
    mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without MQTT 5 says nothing of it."""
    monkeypatch.setattr("hush_aggregator.doctor.broker._RETAINED_S", 1.5)  # it never comes
    for is_silent in (True, False):
        async with without_retained(mosquitto, is_silent=is_silent) as url:
            found = {one.check: one for one in await check_broker(url, datetime.now(UTC))}
        assert found["rights"].verdict is Verdict.OK
        assert found["retained"].verdict is Verdict.FAILURE
        assert ("does not retain" in found["retained"].detail) is is_silent


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_ECHO_S", "_RETAINED_S"):
        monkeypatch.setattr(f"hush_aggregator.doctor.broker.{name}", PATIENCE_S)


async def test_doctor_leaves_nothing_retained(mosquitto: Mosquitto) -> None:
    found = {one.check: one for one in await check_broker(BrokerUrl.parse(mosquitto.url), datetime.now(UTC))}
    assert found["retained"].verdict is Verdict.OK
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as client:
        await client.subscribe("hush/#")
        await client.publish("hush/end", b"end", qos=1)
        async for message in client.messages:
            assert not message.retain or message.topic.matches("hush/end")
            if message.topic.matches("hush/end"):
                break


@asynccontextmanager
async def without_retained(broker: Mosquitto, *, is_silent: bool) -> AsyncIterator[BrokerUrl]:
    """A broker of MQTT 3.1.1 that hangs up on a retained message, or delivers it and forgets it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, there = await asyncio.open_connection("127.0.0.1", broker.port)

        async def answer() -> None:
            with suppress(ConnectionError):
                while data := await back.read(65536):
                    writer.write(data)

        answering = asyncio.create_task(answer())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, body = await packet(reader)
                if kind >> 4 == 1 and body[6] == 5:
                    break
                if kind >> 4 == 3 and kind & 1:
                    if not is_silent:
                        break
                    kind &= ~1
                there.write(bytes([kind]) + length(len(body)) + body)
        there.close()
        await answering
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        yield BrokerUrl.parse(f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind = (await reader.readexactly(1))[0]
    size, shift = 0, 0
    while True:
        byte = (await reader.readexactly(1))[0]
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return kind, await reader.readexactly(size)


def length(size: int) -> bytes:
    found = bytearray()
    while True:
        size, low = divmod(size, 128)
        found.append(low | (128 if size else 0))
        if not size:
            return bytes(found)
