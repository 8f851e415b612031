import asyncio
import logging
import socket
import stat
import tempfile
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hush_aggregator import MqttBroker
from hush_aggregator.broker.session import BrokerSession
from hush_client import MqttTransport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, SubscriptionRefusedError
from hush_simulations.brokers.embedded import embedded_broker, private_broker

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


async def seconds_to_catch_up() -> float:
    """From the return of a session until it has the 200 messages that it missed."""
    async with embedded_broker() as address:
        url = BrokerUrl.parse(address)
        bus = MqttBroker(url, "aggregator", status="status")
        async with bus.connect(["a/+"]):
            pass
        async with MqttTransport(url, "device").connect() as link:
            await asyncio.gather(*(link.publish("a/b", b"%d" % number) for number in range(200)))
        began = asyncio.get_running_loop().time()
        async with bus.connect(["a/+"]) as session:
            assert len(await collect(session, 200)) == 200
        return asyncio.get_running_loop().time() - began


async def test_a_session_that_was_away_gets_what_it_missed_without_delay() -> None:
    for _ in range(3):  # amqtt as it is waits five seconds each time; a busy machine does so now and then
        if await seconds_to_catch_up() < 4:
            return
    pytest.fail("a session that returns has to wait")


async def test_what_it_acknowledges_it_delivers_although_the_client_leaves_at_once() -> None:
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


async def test_a_newcomer_gets_the_retained_messages_of_its_own_subscriptions_only() -> None:
    async with embedded_broker() as address:
        url = BrokerUrl.parse(address)
        async with MqttBroker(url, "aggregator").connect(["tasks/+"]) as session:
            await session.publish("tasks/a", b"task", retain=True)
            await session.publish("estimates/a", b"estimate", retain=True)
            async with MqttTransport(url, "device").connect() as link:
                await link.subscribe("estimates/a")
                assert await link.receive() == ("estimates/a", b"estimate")


async def test_a_port_that_is_taken_is_one_line() -> None:
    async with embedded_broker() as address:
        port = BrokerUrl.parse(address).port
        with pytest.raises(BrokerError) as caught:
            async with embedded_broker(port=port):
                pass
    assert str(caught.value) == (
        f"mqtt://127.0.0.1:{port}: cannot listen there (address already in use); choose another --port or --host"
    )


async def test_its_port_is_free_again_afterwards() -> None:
    async with embedded_broker() as address:
        port = BrokerUrl.parse(address).port
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


async def test_a_start_that_is_given_up_leaves_no_socket_behind(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_garbage_on_its_socket_reaches_neither_the_terminal_nor_the_other_clients(
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


async def test_the_log_of_its_library_is_as_before_afterwards() -> None:
    before = logging.getLogger("amqtt").propagate, list(logging.getLogger("amqtt").handlers)
    async with embedded_broker():
        pass
    assert (logging.getLogger("amqtt").propagate, logging.getLogger("amqtt").handlers) == before


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
async def test_a_private_broker_is_in_a_directory_that_only_this_user_may_enter(
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
