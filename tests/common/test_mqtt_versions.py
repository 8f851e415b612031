"""A device speaks MQTT 5, in which a broker can say what became of a report, and 3.1.1 where there is no other."""

import asyncio
import struct
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from heights import HEIGHTS
from scripted_broker import (
    Action,
    Kind,
    ScriptedBroker,
    half,
    hang_up,
    header,
    keep_silent,
    message,
    nonsense,
    reply_and_hang_up,
    replying,
)
from servers import Mosquitto, free_port

from hush_client import Client, MqttTransport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.mqtt.connection import MqttConnection, Options, connect
from hush_common.topics import ALL_REPORTS, Acknowledgement, report_topic, task_topic
from hush_simulations.brokers.choice import open_broker

pytestmark = pytest.mark.medium

TOPIC = report_topic("heights", "d")
OPTIONS = Options(
    identifier="test", version="5", payload_limit=65_536, inbox_messages=9, inbox_bytes=99_999, window=10, patience=20.0
)
FIVE, OLD = 5, 4


@pytest.mark.parametrize(
    ("refusal", "remembered"),
    [
        pytest.param(reply_and_hang_up, True, id="the refusal of a broker of 3.1.1"),
        pytest.param(replying(b"\x20\x03\x00\x84\x00", hangs_up=True), True, id="the refusal of MQTT 5"),
        pytest.param(replying(b"\x20\x02\x00\x84", hangs_up=True), False, id="the refusal of MQTT 5, no properties"),
        pytest.param(replying(b"\x20\x02\x00\x00", hangs_up=True), False, id="the welcome of 3.1.1"),
        pytest.param(replying(b"\x20\x02\x00\x05", hangs_up=True), False, id="another refusal of 3.1.1"),
        pytest.param(replying(b"\x20\x03\x00\x01\x00", hangs_up=True), True, id="of 3.1.1 in a packet of 5"),
        pytest.param(hang_up, False, id="nothing, and hangs up"),
        pytest.param(half, False, id="half a word, and hangs up"),
        pytest.param(nonsense, False, id="nonsense"),
        pytest.param(keep_silent, False, id="nothing at all"),
    ],
)
async def test_where_mqtt_5_is_not_spoken_3_1_1_is_and_a_refusal_is_remembered(
    refusal: Action, remembered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if refusal is keep_silent:
        monkeypatch.setattr("hush_common.mqtt.connection._CONNECT_SECONDS", 1.0)
    async with ScriptedBroker(old=refusal).running() as broker:
        transport = MqttTransport(broker.url, "d")
        for _ in range(2):
            async with transport.connect() as link:
                assert await link.publish(TOPIC, b"1") == Acknowledgement(0, can_refuse=False)
        assert broker.versions == ([FIVE, OLD, OLD] if remembered else [FIVE, OLD, FIVE, OLD])
        assert broker.payloads == [b"1", b"1"]


async def test_a_broker_of_neither_version_is_told_as_such() -> None:
    async with ScriptedBroker(login=1).running() as broker:
        with pytest.raises(BrokerError, match="closed the connection before accepting or refusing the login"):
            async with MqttTransport(broker.url, "d").connect():
                pass
        assert broker.versions == [FIVE, OLD]


@pytest.mark.parametrize(("code", "words"), [(0x89, "server busy"), (0x8A, "banned"), (0x97, "quota exceeded")])
async def test_a_broker_that_refuses_the_connection_for_another_reason_is_not_asked_in_3_1_1(
    code: int, words: str
) -> None:
    async with ScriptedBroker(login=code).running() as broker:
        with pytest.raises(BrokerError, match=rf"the broker refuses the (login|connection) \({words}\)") as caught:
            async with MqttTransport(broker.url, "d").connect():
                pass
        assert broker.versions == [FIVE]
        assert caught.value.reason == code


async def test_the_embedded_broker_is_spoken_to_in_3_1_1(tmp_path: Path) -> None:
    async with open_broker("embedded", tmp_path) as url:
        transport = MqttTransport(url, "d")
        for _ in range(2):
            async with transport.connect() as link:
                assert await link.publish(TOPIC, b"1") == Acknowledgement(0, can_refuse=False)
        assert transport._old


async def test_mosquitto_tells_what_became_of_a_report(mosquitto: Mosquitto) -> None:
    url = BrokerUrl.parse(mosquitto.url)
    kept = Options(
        identifier="a", persistent=True, payload_limit=99, inbox_messages=9, inbox_bytes=999, window=9, patience=9.0
    )
    async with MqttTransport(url, "d").connect() as link:
        assert await link.publish(TOPIC, b"1") == Acknowledgement(0x10, can_refuse=True), "nobody has ever subscribed"
        async with connect(url, kept) as aggregator:
            await aggregator.subscribe(ALL_REPORTS)
            assert await link.publish(TOPIC, b"2") == Acknowledgement(0, can_refuse=True), "an aggregator is there"
        assert await link.publish(TOPIC, b"3") == Acknowledgement(0, can_refuse=True), (
            "it is away, and its session is kept"
        )


async def test_mosquitto_tells_what_its_rules_forbid_and_the_connection_lives_on(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("rules")
    (directory / "acl").write_text("topic readwrite hush/v1/reports/heights/d\n")
    queue = {free_port(): "max_queued_messages 1000"}  # at 0, mosquitto 2.0 hangs up after each refusal
    broker = Mosquitto(directory, access=f"allow_anonymous true\nacl_file {directory}/acl", listeners=queue)
    broker.start()
    try:
        async with MqttTransport(broker.url, "d").connect() as link:
            assert (await link.publish(report_topic("heights", "other"), b"1")).reason == 0x87
            await link.subscribe(TOPIC)
            assert (await link.publish(TOPIC, b"2")).reason == 0
            assert await link.receive() == (TOPIC, b"2")
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", 0),
        (b"\x10", 0x10),
        (b"\x10\x00", 0x10),
        (b"\x87\x00", 0x87),
        (b"\x97\x09\x1f\x00\x06enough", 0x97),  # with a reason in words
        (b"\x95", 0x95),  # which mosquitto says, though the standard has it for other packets
        (b"\xff\x02\x77\x77", 0xFF),  # neither a reason nor a property that anybody knows
    ],
)
async def test_whatever_a_broker_says_to_a_publication_is_handed_on(said: bytes, reason: int) -> None:
    puback = header(0x40, 2 + len(said)) + b"\x00\x01" + said
    broker = ScriptedBroker((Kind.PUBLISH, replying(puback)))
    async with broker.running(), MqttTransport(broker.url, "d").connect() as link:
        assert await link.publish(TOPIC, b"1") == Acknowledgement(reason, can_refuse=True)
        assert await link.publish(TOPIC, b"2") == Acknowledgement(0, can_refuse=True)
        assert broker.connections == 1


async def test_no_more_is_sent_at_once_than_the_broker_takes() -> None:
    window, unanswered, most = 3, list[bytes](), 0

    async def hold(writer: asyncio.StreamWriter, reply: bytes) -> None:
        nonlocal most
        unanswered.append(reply)
        most = max(most, len(unanswered))
        if len(unanswered) == window:
            await asyncio.sleep(0.05)  # for one too many
            while unanswered:
                writer.write(unanswered.pop())

    limits = b"\x21" + struct.pack(">H", window)
    faults = [(Kind.PUBLISH, hold)] * 30
    async with ScriptedBroker(*faults, limits=limits).running() as broker:
        async with MqttTransport(broker.url, "d").connect() as link:
            async with asyncio.timeout(60):
                await asyncio.gather(*(link.publish(TOPIC, b"%d" % number) for number in range(30)))
        assert most == window
        assert broker.payloads == [b"%d" % number for number in range(30)]


async def test_what_is_longer_than_the_broker_takes_is_not_sent() -> None:
    limits = b"\x27" + struct.pack(">I", 100)
    async with ScriptedBroker(limits=limits).running() as broker, MqttTransport(broker.url, "d").connect() as link:
        assert await link.publish(TOPIC, bytes(200)) == Acknowledgement(0x95, can_refuse=True)
        assert await link.publish(TOPIC, b"short") == Acknowledgement(0, can_refuse=True)
        assert broker.payloads == [b"short"]


@pytest.mark.parametrize("limit", ["message_size_limit 30", "max_packet_size 100"])
async def test_mosquitto_says_that_a_report_is_too_large_and_takes_the_next_one(limit: str, tmp_path: Path) -> None:
    queue = {free_port(): "max_queued_messages 1000"}
    broker = Mosquitto(tmp_path, access=f"allow_anonymous true\n{limit}", listeners=queue)
    broker.start()
    try:
        async with MqttTransport(broker.url, "d").connect() as link:
            assert await link.publish(TOPIC, bytes(90)) == Acknowledgement(0x95, can_refuse=True)
            assert await link.publish(TOPIC, bytes(20)) == Acknowledgement(0x10, can_refuse=True)
    finally:
        broker.stop()


async def test_why_the_broker_ended_the_connection_is_told() -> None:
    async def say_why(writer: asyncio.StreamWriter, _reply: bytes) -> None:
        writer.write(b"\xe0\x02\x97\x00")
        writer.close()

    async with ScriptedBroker((Kind.PUBLISH, say_why)).running() as broker, AsyncExitStack() as stack:
        connection: MqttConnection = await stack.enter_async_context(connect(BrokerUrl.parse(broker.url), OPTIONS))
        with pytest.raises(BrokerError, match=r"the broker ended the connection \(quota exceeded\)") as caught:
            await connection.publish(TOPIC, b"1")
        assert caught.value.reason == 0x97


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(b"\x00", id="none"),
        pytest.param(b"\x08\x26\x00\x01a\x00\x02\xed\xa0", id="text that is no text"),
        pytest.param(b"\x03\x77\x77\x77", id="a property that nobody knows"),
        pytest.param(b"\x80\x80\x04" + bytes(65_536), id="64 KiB of them"),
    ],
)
async def test_a_task_is_read_whatever_properties_somebody_gave_it(properties: bytes, tmp_path: Path) -> None:
    topic = task_topic("heights")

    async def decorated(writer: asyncio.StreamWriter, reply: bytes) -> None:
        writer.write(reply[:6] + message(topic, HEIGHTS, properties=properties))

    async with ScriptedBroker((Kind.SUBSCRIBE, decorated)).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            assert (await client.task("heights", timeout=60)).payload == HEIGHTS
        assert broker.versions == [FIVE]


async def test_a_message_whose_properties_do_not_end_is_cut_if_it_is_long_and_hangs_up_if_not(tmp_path: Path) -> None:
    longer = message(task_topic("big"), bytes(200_000), properties=b"\xff\xff\xff\x7f")

    async def endless(writer: asyncio.StreamWriter, reply: bytes) -> None:
        writer.write(reply[:6] + longer + reply[6:])

    async def broken(writer: asyncio.StreamWriter, reply: bytes) -> None:
        writer.write(reply[:6] + message(task_topic("heights"), b"x", properties=b"\x7f"))

    async with ScriptedBroker((Kind.SUBSCRIBE, broken), (Kind.SUBSCRIBE, endless)).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            assert (await client.report("heights", 172.0, timeout=60)).status == "sent"
        assert broker.connections == 2
