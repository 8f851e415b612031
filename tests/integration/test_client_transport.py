"""The MQTT transport of a device, against brokers that behave badly on purpose and against a real one."""

import asyncio
import gc
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiomqtt
import pytest
from fake_transport import HEIGHTS
from servers import Mosquitto

from hush_client import Client, Gateway, MqttTransport
from hush_client.transport import SubscriptionRefusedError
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.topics import ALL_REPORTS, task_topic

Puback = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]
CONNACK, SUBACK, PUBACK = b"\x20\x02\x00", b"\x90\x03", b"\x40\x02"


async def read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """One MQTT packet: its type and its body."""
    head = (await reader.readexactly(1))[0]
    length = shift = 0
    while True:
        (byte,) = await reader.readexactly(1)
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return head >> 4, await reader.readexactly(length)


def message(topic: str, payload: bytes) -> bytes:
    body = struct.pack(">H", len(topic)) + topic.encode() + payload
    length = bytes([len(body) & 0x7F | 0x80, len(body) >> 7])
    return b"\x31" + length + body


class ScriptedBroker:
    """Speaks just enough MQTT to serve one task, and treats each publication as its script says."""

    def __init__(self, *scripts: Puback, login: int = 0, grant: int = 1) -> None:
        self.published: list[bytes] = []
        self.url = ""
        self._scripts = list(scripts)
        self._login = login
        self._grant = grant

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ScriptedBroker"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                kind, body = await read_packet(reader)
                await self._answer(kind, body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, kind: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        match kind:
            case 1:
                writer.write(CONNACK + bytes([self._login]))
            case 8:
                writer.write(SUBACK + body[:2] + bytes([self._grant]))
                writer.write(message(task_topic("heights"), HEIGHTS))
            case 3:
                (length,) = struct.unpack_from(">H", body)
                self.published.append(body[2 + length + 2 :])
                script = self._scripts.pop(0) if self._scripts else acknowledge
                await script(writer, body[2 + length : 4 + length])


async def acknowledge(writer: asyncio.StreamWriter, mid: bytes) -> None:
    writer.write(PUBACK + mid)


async def acknowledge_twice(writer: asyncio.StreamWriter, mid: bytes) -> None:
    writer.write((PUBACK + mid) * 2)


async def acknowledge_another(writer: asyncio.StreamWriter, mid: bytes) -> None:
    writer.write(PUBACK + bytes([mid[0] ^ 0x55, mid[1]]))
    writer.close()


async def hang_up(writer: asyncio.StreamWriter, _mid: bytes) -> None:
    writer.close()


async def talk_nonsense(writer: asyncio.StreamWriter, _mid: bytes) -> None:
    writer.write(b"\x00\xff\xff\xff\xff")
    writer.close()


@pytest.mark.parametrize("script", [hang_up, acknowledge_another, talk_nonsense])
async def test_the_same_bytes_are_sent_again_until_they_are_acknowledged(tmp_path: Path, script: Puback) -> None:
    async with ScriptedBroker(script, script).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            receipt = await client.report("heights", 172.0, timeout=10)
        assert receipt.status == "sent"
        assert len(broker.published) == 3
        assert len(set(broker.published)) == 1


async def test_an_acknowledgement_that_comes_twice_does_no_harm(tmp_path: Path) -> None:
    async with ScriptedBroker(acknowledge_twice, acknowledge_twice).running() as broker:
        url = BrokerUrl.parse(broker.url)
        async with Gateway(MqttTransport(url, "g"), name="g", state=tmp_path, spread=0) as gateway:
            receipts = [await gateway.report(device, "heights", 172.0, timeout=10) for device in "abc"]
        assert [receipt.status for receipt in receipts] == ["sent"] * 3
        assert len(broker.published) == len(set(broker.published)) == 3


@pytest.mark.parametrize(
    ("code", "words"), [(4, "bad user name or password"), (5, "not authorized"), (3, "unavailable")]
)
async def test_a_refused_login_is_told_with_its_reason(code: int, words: str) -> None:
    async with ScriptedBroker(login=code).running() as broker:
        with pytest.raises(BrokerError, match=f"refuses the login .*{words}.*; check user and password"):
            async with MqttTransport(BrokerUrl.parse(broker.url), "d").connect():
                pass


async def test_a_wrong_password_is_told_without_the_password(guarded_mosquitto: Mosquitto, tmp_path: Path) -> None:
    url = guarded_mosquitto.url.replace("//", "//alice:wr0ng@")
    async with Client(url, device="d", state=tmp_path, spread=0) as client:
        with pytest.raises(BrokerError, match="refuses the login") as caught:
            await client.report("heights", 172.0, timeout=0.5)
    assert "wr0ng" not in str(caught.value)


async def test_the_right_password_opens_the_door(guarded_mosquitto: Mosquitto, tmp_path: Path) -> None:
    url = guarded_mosquitto.url.replace("//", "//alice:right@")
    async with Client(url, device="d", state=tmp_path, spread=0) as client:
        with pytest.raises(BrokerError, match="no task 'heights'"):
            await client.report("heights", 172.0, timeout=0.5)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mqtt://127.0.0.1:{free}", "Connection refused"),
        ("mqtt://no-such-host.invalid:1883", "cannot connect"),
        ("mqtt://a..b:1883", "cannot connect"),
        ("mqtts://127.0.0.1:{free}?ca=/no/such/file", "ca=/no/such/file"),
    ],
)
async def test_a_broker_that_is_not_there_gives_one_line_with_a_remedy(url: str, words: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    with pytest.raises(BrokerError, match=re.escape(words)) as caught:
        async with MqttTransport(BrokerUrl.parse(url.format(free=free)), "d").connect():
            pass
    assert "\n" not in str(caught.value)
    assert "; " in str(caught.value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho drops a socket that fails TLS
async def test_tls_to_a_server_without_it_is_told(mosquitto: Mosquitto) -> None:
    url = BrokerUrl.parse(mosquitto.url.replace("mqtt:", "mqtts:"))
    with pytest.raises(BrokerError, match="cannot connect"):
        async with MqttTransport(url, "d").connect():
            pass
    await asyncio.sleep(0)  # until here the task that was woken holds on to its error
    gc.collect()


async def test_what_does_not_speak_mqtt_leaves_no_socket_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_client.transport._CONNECT_TIMEOUT", 0.2)
    closed = asyncio.Event()

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            pass
        writer.close()
        closed.set()

    async with await asyncio.start_server(stay_silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(BrokerError, match="cannot connect"):
            async with MqttTransport(BrokerUrl("127.0.0.1", port), "d").connect():
                pass
        await asyncio.wait_for(closed.wait(), 5)


async def test_giving_up_while_connecting_leaves_no_socket_behind() -> None:
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            arrived.set()
        writer.close()
        closed.set()

    async def connect(port: int) -> None:
        async with MqttTransport(BrokerUrl("127.0.0.1", port), "d").connect():
            pass

    async with await asyncio.start_server(stay_silent, "127.0.0.1", 0) as server:
        connecting = asyncio.create_task(connect(server.sockets[0].getsockname()[1]))
        await asyncio.wait_for(arrived.wait(), 5)
        connecting.cancel()
        await asyncio.wait((connecting,))
        await asyncio.wait_for(closed.wait(), 5)
    assert connecting.cancelled()


async def test_a_subscription_that_the_broker_forbids_is_told_and_the_connection_lives_on() -> None:
    async with (
        ScriptedBroker(grant=0x80).running() as broker,
        MqttTransport(BrokerUrl.parse(broker.url), "d").connect() as link,
    ):
        with pytest.raises(SubscriptionRefusedError, match="check its access rules"):
            await link.subscribe(task_topic("heights"))
        await link.publish("hush/v1/reports/heights/d", b"still here")
        assert broker.published == [b"still here"]


async def test_a_broker_that_vanishes_and_returns_gets_every_report(mosquitto: Mosquitto, tmp_path: Path) -> None:
    def aggregator() -> aiomqtt.Client:
        return aiomqtt.Client("127.0.0.1", mosquitto.port, identifier="aggregator", clean_session=False)

    async with aggregator() as listener:
        await listener.publish(task_topic("heights"), HEIGHTS, qos=1, retain=True)
        await listener.subscribe(ALL_REPORTS, qos=1)
    transport = MqttTransport(BrokerUrl.parse(mosquitto.url), "g")
    async with Gateway(transport, name="g", state=tmp_path, spread=0) as gateway:
        await gateway.task("heights")
        await asyncio.to_thread(mosquitto.stop)
        receipts = await asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0, timeout=0.2) for i in range(100)))
        assert {receipt.status for receipt in receipts} == {"queued"}
        await asyncio.to_thread(mosquitto.start)
        assert await gateway.flush(timeout=20)
    async with aggregator() as listener:
        payloads = {bytes((await anext(listener.messages)).payload) for _ in range(100)}
    assert len(payloads) == 100
