"""The embedded broker: sessions, acknowledgements, its port, and a private one for polls and simulations."""

import asyncio
import stat
import tempfile
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hush_aggregator import MqttBroker
from hush_aggregator.delivery.session import BrokerSession
from hush_client import MqttTransport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, SubscriptionRefusedError
from hush_simulations.brokers.embedded import embedded_broker, private_broker

pytestmark = pytest.mark.medium

CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01x"
DISCONNECT = b"\xe0\x00"


def publish(number: int) -> bytes:
    """A QoS 1 message to a/b whose payload is its packet id."""
    packet_id = number.to_bytes(2, "big")
    return b"\x32\x09\x00\x03a/b" + packet_id + packet_id


async def collect(session: BrokerSession, count: int) -> set[bytes]:
    """The payloads of so many different messages, or of those that came within a minute."""
    got: set[bytes] = set()
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while len(got) < count:
                for delivery in await session.batch():
                    got.add(delivery.payload)
                    delivery.ack()
    return got


async def test_a_session_that_was_away_gets_what_it_missed() -> None:
    async with embedded_broker() as address:
        url = BrokerUrl.parse(address)
        bus = MqttBroker(url, "aggregator", status="status")
        async with bus.connect(["a/+"]):
            pass
        async with MqttTransport(url, "device").connect() as link:
            await asyncio.gather(*(link.publish("a/b", b"%d" % number) for number in range(50)))
        async with bus.connect(["a/+"]) as session:
            assert len(await collect(session, 50)) == 50


async def test_an_acknowledged_message_is_delivered_if_its_sender_leaves() -> None:
    async with embedded_broker() as address:
        url = BrokerUrl.parse(address)
        async with MqttBroker(url, "aggregator", status="status").connect(["a/+"]) as session:
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(CONNECT + b"".join(map(publish, range(1, 301))) + DISCONNECT)
            answers = await reader.read(-1)
            writer.close()
            acknowledged = answers.count(b"\x40\x02")
            assert acknowledged > 100
            assert len(await collect(session, acknowledged)) >= acknowledged


async def test_a_newcomer_gets_retained_messages_of_its_subscriptions() -> None:
    async with embedded_broker() as address:
        url = BrokerUrl.parse(address)
        async with MqttBroker(url, "aggregator").connect(["tasks/+"]) as session:
            await session.publish("tasks/a", b"task", retain=True)
            await session.publish("estimates/a", b"estimate", retain=True)
            async with MqttTransport(url, "device").connect() as link:
                await link.subscribe("estimates/a")
                assert await link.receive() == ("estimates/a", b"estimate")


async def test_a_taken_port_is_refused_with_its_option() -> None:
    async with embedded_broker() as address:
        port = BrokerUrl.parse(address).port
        with pytest.raises(BrokerError) as caught:
            async with embedded_broker(port=port):
                pass
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "--port" in str(caught.value)


async def test_a_cancelled_start_leaves_no_socket_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up, listen, begun = threading.Event(), asyncio.start_server, list[asyncio.Server]()

    async def listen_late(*arguments: Any) -> asyncio.Server:  # noqa: ANN401 - those of asyncio
        await asyncio.to_thread(given_up.wait, 60)
        begun.append(await listen(*arguments))
        return begun[0]

    async def start() -> None:
        async with embedded_broker():
            pytest.fail("it was given up before")

    monkeypatch.setattr(asyncio, "start_server", listen_late)
    starting = asyncio.create_task(start())
    await asyncio.sleep(0)  # its thread begins
    starting.cancel()
    for _ in range(3):
        await asyncio.sleep(0)  # it stops, and waits for its thread
    given_up.set()
    await asyncio.wait((starting,))
    assert starting.cancelled()
    assert [server.is_serving() for server in begun] == [False]


async def test_garbage_on_its_socket_disturbs_nobody(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with embedded_broker() as address:
        url = BrokerUrl.parse(address)
        _, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)))
        await writer.drain()
        writer.close()
        silent = await asyncio.open_connection(url.host, url.port)
        async with MqttTransport(url, "device").connect() as link:
            await link.publish("a/b", b"1")
        silent[1].close()
    assert capfd.readouterr() == ("", "")


async def test_with_an_owner_everybody_else_is_a_device() -> None:
    will = b"\x10\x1a\x00\x04MQTT\x04\x06\x00\x3c\x00\x01x\x00\x06a/will\x00\x03bad"
    async with private_broker("right") as url:
        for password, opens in (("right", True), ("wrong", False)):
            bus = MqttBroker(replace(url, user="aggregator", password=password), "owner")
            if opens:
                async with bus.connect(["a/+"]) as session:
                    await session.publish("a/b", b"1")
                    assert await collect(session, 1) == {b"1"}
            else:
                with pytest.raises(BrokerError):
                    async with bus.connect([]):
                        pass
        for hello, answer in ((CONNECT, b"\x20\x02\x00\x00"), (will, b"\x20\x02\x00\x05")):
            reader, writer = await asyncio.open_unix_connection(url.host)
            writer.write(hello)
            assert await reader.readexactly(4) == answer
            writer.close()


async def test_a_device_leaves_nothing_on_a_private_broker() -> None:
    """A session that is kept, and any number of subscriptions, would slow down the broker for others."""
    async with private_broker("right") as url:
        reader, writer = await asyncio.open_unix_connection(url.host)
        writer.write(CONNECT.replace(b"\x04\x02\x00", b"\x04\x00\x00"))  # not clean
        assert await reader.readexactly(4) == b"\x20\x02\x00\x05"
        writer.close()
        async with MqttTransport(url, "device").connect() as link:
            for number in range(100):
                await link.subscribe(f"hush/v1/tasks/{number}")
            for number in range(100, 110):
                with pytest.raises(SubscriptionRefusedError):
                    await link.subscribe(f"hush/v1/tasks/{number}")
        async with MqttTransport(url, "device").connect() as link:
            await link.subscribe("hush/v1/tasks/+")


@pytest.mark.parametrize("parent", ["", "a-long-name" * 20])
async def test_a_private_broker_is_in_a_directory_of_this_user(
    parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / parent
    place.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    async with private_broker() as url:
        directory = Path(url.host).parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        async with MqttTransport(url, "device").connect() as link:
            await link.subscribe("a/b")
            await link.publish("a/b", b"1")
            assert await link.receive() == ("a/b", b"1")
    assert not directory.exists()
