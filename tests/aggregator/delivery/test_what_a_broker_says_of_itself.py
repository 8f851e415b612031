"""What a real mosquitto says about itself to an aggregator: whether it kept the session, since when it is up."""

import asyncio
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from servers import Mosquitto, free_port, need

from hush_aggregator import MqttBroker
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.topics import ALL_REPORTS, ALL_TASKS, BROKER_DROPPED, BROKER_UPTIME

FILTERS = (ALL_TASKS, ALL_REPORTS)


def bus(url: str) -> MqttBroker:
    return MqttBroker(BrokerUrl.parse(url), "hush-aggregator-test", kept=True)


async def test_a_killed_broker_has_forgotten_the_session_and_one_that_was_stopped_has_not(mosquitto: Mosquitto) -> None:
    resumed = []
    for end in (mosquitto.kill, mosquitto.stop, mosquitto.stop):
        async with bus(mosquitto.url).connect(FILTERS) as session:
            resumed.append(session.resumed)
        end()
        mosquitto.start()
    assert resumed == [False, False, True]


async def test_uptime_and_dropped_messages_are_told_and_never_delivered(mosquitto: Mosquitto) -> None:
    for _ in range(2):  # the second time the session is subscribed from the start
        heard: dict[str, bytes] = {}
        both = asyncio.Event()
        async with bus(mosquitto.url).connect(FILTERS) as session:
            await session.watch(listening(heard, both))
            await asyncio.wait_for(both.wait(), 60)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.batch(), 0.1)
        assert heard[BROKER_UPTIME].endswith(b" seconds")
        assert heard[BROKER_DROPPED] == b"0"


def listening(heard: dict[str, bytes], both: asyncio.Event) -> Callable[[str, bytes], None]:
    def listen(topic: str, payload: bytes) -> None:
        heard[topic] = payload
        if len(heard) == 2:
            both.set()

    return listen


async def test_a_broker_that_forbids_it_still_delivers(mosquitto: Mosquitto, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("topic readwrite hush/v1/#\n", encoding="utf-8")
    mosquitto.stop()
    mosquitto.access += f"\nacl_file {rules}"
    mosquitto.start()
    heard: list[bytes] = []
    async with bus(mosquitto.url).connect(FILTERS) as session:
        await session.watch(lambda _, payload: heard.append(payload))
        await session.publish("hush/v1/reports/heights/device", b"x")
        assert [delivery.payload for delivery in await session.batch()] == [b"x"]
    assert heard == []


async def test_a_broker_that_hangs_up_when_it_is_asked_is_asked_no_third_time() -> None:
    accept, asked = bytes.fromhex("20020000"), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                kind, length = await reader.readexactly(2)
                body = await reader.readexactly(length)
                if kind >> 4 == 8 and b"$SYS" in body:
                    asked.append(body)
                    break
                if kind >> 4 == 14:
                    break
                replies = {1: accept, 12: b"\xd0\x00"}
                writer.write(replies.get(kind >> 4, b"\x90\x03" + body[:2] + b"\x01"))
        writer.close()

    port = free_port()
    server = await asyncio.start_server(serve, "127.0.0.1", port, family=socket.AF_INET)
    there = bus(f"mqtt://127.0.0.1:{port}")
    lost = []
    for _ in range(4):
        try:
            async with there.connect(FILTERS) as session:
                await session.watch(lambda *_: None)
        except BrokerError:
            lost.append(True)
        else:
            lost.append(False)
    server.close()
    await server.wait_closed()
    assert lost == [True, True, False, False]
    assert len(asked) == 2


def test_an_abandoned_session_is_found_and_removed_as_operators_are_told(tmp_path: Path) -> None:
    mosquitto = Mosquitto(tmp_path, settings="max_queued_messages 0\nsys_interval 1")
    mosquitto.start()

    def sub(*arguments: str) -> str:
        command = [need("mosquitto_sub"), "-p", str(mosquitto.port), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    def said(topic: str, wanted: str) -> None:
        """Wait for it: the broker says it once a second."""
        for _ in range(120):
            if sub("-t", f"$SYS/broker/{topic}", "-C", "1") == wanted:
                return
            time.sleep(0.5)
        pytest.fail(f"{topic} is not {wanted}")

    try:
        sub("-i", "left-behind", "-c", "-q", "1", "-t", "hush/v1/reports/+/+", "-E")
        said("clients/disconnected", "1")
        before = int(sub("-t", "$SYS/broker/store/messages/count", "-C", "1"))
        publish = [need("mosquitto_pub"), "-p", str(mosquitto.port), "-t", "hush/v1/reports/a/b", "-q", "1", "-l"]
        subprocess.run(publish, input="x\n" * 500, text=True, check=True, timeout=60)
        for _ in range(120):
            if int(sub("-t", "$SYS/broker/store/messages/count", "-C", "1")) >= before + 500:
                break
            time.sleep(0.5)
        else:
            pytest.fail("what waits is not in the broker's count")
        sub("-i", "left-behind", "-t", "unused", "-E")
        said("clients/disconnected", "0")
    finally:
        mosquitto.stop()
