"""The MQTT transport of a device, against brokers that misbehave on purpose and against a real one.

A device speaks MQTT 5, in which a broker can say what became of a report, and 3.1.1 where there is no other.
"""

import asyncio
import gc
import re
import socket
import struct
import warnings
from contextlib import suppress
from pathlib import Path

import aiomqtt
import pytest
from heights import HEIGHTS
from leftovers import collect_leftovers
from scripted_broker import (
    Action,
    Kind,
    ScriptedBroker,
    after,
    half,
    hang_up,
    header,
    keep_silent,
    message,
    nonsense,
    reply_and_hang_up,
    replying,
    twice,
)
from servers import Mosquitto, free_port
from waiting import PATIENCE_S

from hush_client import Client, Gateway, MqttTransport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, LoginRefusedError, TaskError
from hush_common.topics import ALL_REPORTS, Acknowledgement, report_topic, task_topic
from hush_simulations.brokers.choice import open_broker

pytestmark = [pytest.mark.medium, pytest.mark.face]

TOPIC = report_topic("heights", "d")
GOOD, OLD_GOOD = Acknowledgement(0, can_refuse=True), Acknowledgement(0, can_refuse=False)
FIVE, OLD = 5, 4


def client_of(url: str, state: Path) -> Client:
    return Client(url, device="d", state=state, spread=0)


async def connect(url: BrokerUrl | str) -> None:
    async with MqttTransport(url, "d").connect():
        pass


# Reports through brokers that fail


@pytest.mark.parametrize("kind", [Kind.CONNECT, Kind.SUBSCRIBE, None])
@pytest.mark.parametrize("action", [hang_up, half, nonsense, reply_and_hang_up])
async def test_a_broker_that_fails_before_the_report_costs_nothing(
    tmp_path: Path, kind: Kind | None, action: Action
) -> None:
    async with ScriptedBroker((kind, action), (kind, action)).running() as broker:
        async with client_of(broker.url, tmp_path) as client:
            receipt = await client.report("heights", 172.0, timeout=60)
            assert await client.flush()
            assert (await client.ledger()).spent == 1
        assert receipt.status == "sent"
        assert broker.script == []
        assert len(set(broker.payloads)) == 1


async def acknowledge_another(writer: asyncio.StreamWriter, reply: bytes) -> None:
    writer.write(reply[:2] + bytes([reply[2] ^ 0x55]) + reply[3:])
    writer.close()


@pytest.mark.parametrize("action", [hang_up, half, nonsense, acknowledge_another])
async def test_the_same_bytes_are_sent_until_they_are_acknowledged(tmp_path: Path, action: Action) -> None:
    async with ScriptedBroker(*[(Kind.PUBLISH, action)] * 2).running() as broker:
        async with client_of(broker.url, tmp_path) as client:
            receipt = await client.report("heights", 172.0, timeout=60)
            assert (await client.ledger()).spent == 1
        assert receipt.status == "sent"
        assert len(broker.payloads) == 3
        assert len(set(broker.payloads)) == 1


@pytest.mark.large
async def test_a_report_without_an_acknowledgement_is_sent_again(tmp_path: Path) -> None:
    """It waits for half a minute, and takes no processor time."""
    async with ScriptedBroker((Kind.PUBLISH, keep_silent)).running() as broker:
        async with client_of(broker.url, tmp_path) as client:
            assert (await client.report("heights", 172.0, timeout=200)).status == "sent"
        assert len(broker.payloads) == broker.connections == 2
        assert len(set(broker.payloads)) == 1


@pytest.mark.parametrize("action", [after(0.3), reply_and_hang_up])
async def test_an_acknowledgement_that_is_late_or_the_last_word_counts(tmp_path: Path, action: Action) -> None:
    async with ScriptedBroker((Kind.PUBLISH, action)).running() as broker:
        async with client_of(broker.url, tmp_path) as client:
            assert (await client.report("heights", 172.0, timeout=60)).status == "sent"
            assert await client.flush()
        assert len(broker.payloads) == 1


async def test_an_acknowledgement_that_comes_twice_does_no_harm(tmp_path: Path) -> None:
    async with ScriptedBroker(*[(Kind.PUBLISH, twice)] * 2).running() as broker:
        async with Gateway(MqttTransport(broker.url, "g"), name="g", state=tmp_path, spread=0) as gateway:
            receipts = [await gateway.report(device, "heights", 172.0, timeout=60) for device in "abc"]
        assert [receipt.status for receipt in receipts] == ["sent"] * 3
        assert len(broker.payloads) == len(set(broker.payloads)) == 3


@pytest.mark.parametrize("task", [b"no JSON", b'{"id": "heights"}', b"\xff\x00"])
async def test_a_retained_message_that_is_no_task_is_refused(tmp_path: Path, task: bytes) -> None:
    async with ScriptedBroker(retained={task_topic("heights"): task}).running() as broker:
        async with client_of(broker.url, tmp_path) as client:
            for _ in range(2):
                with pytest.raises(TaskError):
                    await client.report("heights", 172.0, timeout=60)
            assert (await client.ledger()).spent == 0
        assert broker.connections == 1
        assert broker.payloads == []


@pytest.mark.parametrize("topic", [b"\xff\xfe", b"hush/v1/tasks/+", b"#"])
async def test_an_impossible_topic_is_passed_over(tmp_path: Path, topic: bytes) -> None:
    async def impossible(writer: asyncio.StreamWriter, reply: bytes) -> None:
        body = len(topic).to_bytes(2, "big") + topic + b"\x00x"
        writer.write(header(0x30, len(body)) + body + reply)

    async with ScriptedBroker((Kind.SUBSCRIBE, impossible)).running() as broker:
        async with client_of(broker.url, tmp_path) as client:
            assert (await client.report("heights", 172.0, timeout=60)).status == "sent"
        assert broker.connections == 1


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(b"\x00", id="none"),
        pytest.param(b"\x08\x26\x00\x01a\x00\x02\xed\xa0", id="text that is no text"),
        pytest.param(b"\x03\x77\x77\x77", id="a property that nobody knows"),
        pytest.param(b"\x80\x80\x04" + bytes(65_536), id="64 KiB of them"),
    ],
)
async def test_a_task_is_read_whatever_its_properties_are(properties: bytes, tmp_path: Path) -> None:
    task = message(task_topic("heights"), HEIGHTS, properties=properties)

    async def decorated(writer: asyncio.StreamWriter, reply: bytes) -> None:
        writer.write(reply + task)

    async with ScriptedBroker((Kind.SUBSCRIBE, decorated), retained={}).running() as broker:
        async with client_of(broker.url, tmp_path) as client:
            assert (await client.task("heights", timeout=60)).payload == HEIGHTS
        assert broker.versions == [FIVE]


async def test_a_message_whose_properties_do_not_end_locks_nobody_out(tmp_path: Path) -> None:
    """A long one is truncated; a short one ends the connection."""
    longer = message(task_topic("big"), bytes(200_000), properties=b"\xff\xff\xff\x7f")

    async def endless(writer: asyncio.StreamWriter, reply: bytes) -> None:
        writer.write(longer + reply)

    async def broken(writer: asyncio.StreamWriter, reply: bytes) -> None:
        writer.write(message(task_topic("heights"), b"x", properties=b"\x7f") + reply)

    async with ScriptedBroker((Kind.SUBSCRIBE, broken), (Kind.SUBSCRIBE, endless)).running() as broker:
        async with client_of(broker.url, tmp_path) as client:
            assert (await client.report("heights", 172.0, timeout=60)).status == "sent"
        assert broker.connections == 2


# MQTT 5 and 3.1.1


@pytest.mark.parametrize(
    ("refusal", "is_remembered"),
    [
        pytest.param(reply_and_hang_up, True, id="the refusal of 3.1.1"),
        pytest.param(replying(b"\x20\x03\x00\x84\x00", hangs_up=True), True, id="the refusal of 5"),
        pytest.param(replying(b"\x20\x02\x00\x84", hangs_up=True), False, id="that of 5 without properties"),
        pytest.param(replying(b"\x20\x02\x00\x00", hangs_up=True), False, id="the welcome of 3.1.1"),
        pytest.param(replying(b"\x20\x02\x00\x05", hangs_up=True), False, id="another refusal of 3.1.1"),
        pytest.param(replying(b"\x20\x03\x00\x01\x00", hangs_up=True), True, id="the code of 3.1.1 in 5"),
        pytest.param(hang_up, False, id="nothing, and hangs up"),
        pytest.param(half, False, id="half a word, and hangs up"),
        pytest.param(nonsense, False, id="nonsense"),
    ],
)
async def test_3_1_1_is_spoken_where_5_is_not(refusal: Action, *, is_remembered: bool) -> None:
    async with ScriptedBroker(old=refusal).running() as broker:
        transport = MqttTransport(broker.url, "d")
        for _ in range(2):
            async with transport.connect() as link:
                assert await link.publish(TOPIC, b"1") == OLD_GOOD
        assert broker.versions == ([FIVE, OLD, OLD] if is_remembered else [FIVE, OLD, FIVE, OLD])
        assert broker.payloads == [b"1", b"1"]


async def test_a_broker_of_neither_version_ends_in_an_error() -> None:
    async with ScriptedBroker(login=1).running() as broker:
        with pytest.raises(BrokerError):
            await connect(broker.url)
        assert broker.versions == [FIVE, OLD]


@pytest.mark.parametrize(("code", "word"), [(0x89, "busy"), (0x8A, "banned"), (0x97, "quota")])
async def test_a_refusal_for_another_reason_is_final(code: int, word: str) -> None:
    async with ScriptedBroker(login=code).running() as broker:
        with pytest.raises(BrokerError, match=word) as caught:
            await connect(broker.url)
        assert broker.versions == [FIVE]
        assert caught.value.reason == code


async def test_the_embedded_broker_is_spoken_to_in_3_1_1(tmp_path: Path) -> None:
    async with open_broker("embedded", tmp_path) as url, MqttTransport(url, "d").connect() as link:
        assert await link.publish(TOPIC, b"1") == OLD_GOOD


async def test_mosquitto_says_what_became_of_a_report(mosquitto: Mosquitto) -> None:
    async with MqttTransport(mosquitto.url, "d").connect() as link:
        assert (await link.publish(TOPIC, b"1")).reason == 0x10, "nobody has ever subscribed"
        aggregator = aiomqtt.Client("127.0.0.1", mosquitto.port, identifier="a", clean_session=False)
        async with aggregator:
            await aggregator.subscribe(ALL_REPORTS, qos=1)
            assert await link.publish(TOPIC, b"2") == GOOD
        assert await link.publish(TOPIC, b"3") == GOOD, "it is away, and its session is kept"


async def test_mosquitto_says_what_its_rules_forbid(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic readwrite hush/v1/reports/heights/d\n")
    queue = {free_port(): "max_queued_messages 1000"}  # at 0, mosquitto 2.0 hangs up after each refusal
    broker = Mosquitto(tmp_path, access=f"allow_anonymous true\nacl_file {tmp_path}/acl", listeners=queue)
    with broker.running():
        async with MqttTransport(broker.url, "d").connect() as link:
            assert (await link.publish(report_topic("heights", "other"), b"1")).reason == 0x87
            await link.subscribe(TOPIC)
            assert (await link.publish(TOPIC, b"2")).reason == 0
            assert await link.receive() == (TOPIC, b"2")


@pytest.mark.parametrize("limit", ["message_size_limit 30", "max_packet_size 100"])
async def test_mosquitto_refuses_a_large_report_and_takes_the_next(limit: str, tmp_path: Path) -> None:
    queue = {free_port(): "max_queued_messages 1000"}
    broker = Mosquitto(tmp_path, access=f"allow_anonymous true\n{limit}", listeners=queue)
    with broker.running():
        async with MqttTransport(broker.url, "d").connect() as link:
            assert (await link.publish(TOPIC, bytes(90))).reason == 0x95
            assert (await link.publish(TOPIC, bytes(20))).reason == 0x10


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
async def test_every_answer_of_a_broker_is_passed_on(said: bytes, reason: int) -> None:
    puback = header(0x40, 2 + len(said)) + b"\x00\x01" + said
    async with (
        ScriptedBroker((Kind.PUBLISH, replying(puback))).running() as broker,
        MqttTransport(broker.url, "d").connect() as link,
    ):
        assert await link.publish(TOPIC, b"1") == Acknowledgement(reason, can_refuse=True)
        assert await link.publish(TOPIC, b"2") == GOOD
        assert broker.connections == 1


async def test_a_message_longer_than_the_broker_takes_is_not_sent() -> None:
    limits = b"\x27" + struct.pack(">I", 100)
    async with ScriptedBroker(limits=limits).running() as broker, MqttTransport(broker.url, "d").connect() as link:
        assert (await link.publish(TOPIC, bytes(200))).reason == 0x95
        assert await link.publish(TOPIC, b"short") == GOOD
        assert broker.payloads == [b"short"]


# Connections that fail


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (4, LoginRefusedError, "user name or password"),
        (5, LoginRefusedError, "not authorized"),
        (3, BrokerError, "server unavailable"),
    ],
)
@pytest.mark.parametrize("old", [None, reply_and_hang_up], ids=["5", "3.1.1"])
async def test_a_refused_login_has_its_reason(
    code: int, error: type[BrokerError], words: str, old: Action | None
) -> None:
    async with ScriptedBroker(login=code, old=old).running() as broker:
        with pytest.raises(error, match=words):
            await connect(broker.url)


async def test_a_password_lets_in_and_is_in_no_message(guarded_mosquitto: Mosquitto) -> None:
    await connect(guarded_mosquitto.url.replace("//", "//alice:right@"))
    with pytest.raises(LoginRefusedError, match="alice") as caught:
        await connect(guarded_mosquitto.url.replace("//", "//alice:wr0ng@"))
    assert "wr0ng" not in str(caught.value)
    assert MqttTransport("mqtts://alice:wr0ng@h:8000", "d").name == "mqtts://alice@h:8000"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mqtt://127.0.0.1:{free}", "refused"),
        ("mqtt://no-such-host.invalid:1883", "no-such-host.invalid"),
        ("mqtt://a..b:1883", "a..b"),
        ("mqtts://127.0.0.1:{free}?ca=/no/such/file", "ca=/no/such/file"),
    ],
)
async def test_a_broker_that_is_not_there_is_one_line_with_a_remedy(url: str, words: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(BrokerError, match=re.escape(words)) as caught:
            await connect(url.format(free=probe.getsockname()[1]))  # bound, and not listened on
    assert "\n" not in str(caught.value)
    assert "; " in str(caught.value)


@pytest.mark.parametrize("scheme", ["mqtts", "ws", "wss", "unix"])
async def test_a_failed_handshake_closes_its_socket_at_once(scheme: str, tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"neither TLS nor HTTP\r\n\r\n")
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        ended.set()

    collect_leftovers()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        url = BrokerUrl.of_socket(tmp_path / "none") if scheme == "unix" else BrokerUrl.parse(f"{scheme}://{place}")
        with warnings.catch_warnings(record=True) as complaints:
            warnings.simplefilter("always")
            with pytest.raises(BrokerError):
                await connect(url)
            await asyncio.sleep(0)  # until here the task that was woken holds on to its error
            gc.collect()
        if scheme != "unix":
            await asyncio.wait_for(ended.wait(), PATIENCE_S)
    assert [str(complaint.message) for complaint in complaints if complaint.category is ResourceWarning] == []


class Silent:
    """A server that accepts connections and says nothing."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.closed = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            self.arrived.set()
        writer.close()
        self.closed += 1


@pytest.mark.large
async def test_a_server_that_says_nothing_leaves_no_socket_behind() -> None:
    """It is given up after ten seconds for each version, which take no processor time."""
    silent = Silent()
    async with await asyncio.start_server(silent.serve, "127.0.0.1", 0) as server:
        with pytest.raises(BrokerError):
            await connect(f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with asyncio.timeout(PATIENCE_S):
            while silent.closed < 2:  # noqa: ASYNC110 - the end of a connection is no event
                await asyncio.sleep(0.01)


async def test_giving_up_while_connecting_leaves_no_socket_behind() -> None:
    silent = Silent()
    async with await asyncio.start_server(silent.serve, "127.0.0.1", 0) as server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        connecting = asyncio.create_task(connect(url))
        await asyncio.wait_for(silent.arrived.wait(), PATIENCE_S)
        connecting.cancel()
        await asyncio.wait((connecting,))
        async with asyncio.timeout(PATIENCE_S):
            while not silent.closed:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
    assert connecting.cancelled()


async def test_a_welcome_that_is_the_last_word_leaves_asyncio_nothing(caplog: pytest.LogCaptureFixture) -> None:
    collect_leftovers()
    tries = 5
    async with ScriptedBroker(*[(Kind.CONNECT, reply_and_hang_up)] * tries).running() as broker:
        for _ in range(tries):
            with suppress(BrokerError):  # it may be seen while connecting, or only when the connection is used
                async with MqttTransport(broker.url, "d").connect() as link:
                    await link.publish(TOPIC, b"lost")
            gc.collect()
        assert broker.payloads == []
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_a_broker_that_vanishes_and_returns_gets_every_report(mosquitto: Mosquitto, tmp_path: Path) -> None:
    def aggregator() -> aiomqtt.Client:
        return aiomqtt.Client("127.0.0.1", mosquitto.port, identifier="aggregator", clean_session=False)

    async with aggregator() as listener:
        await listener.publish(task_topic("heights"), HEIGHTS, qos=1, retain=True)
        await listener.subscribe(ALL_REPORTS, qos=1)
    async with Gateway(MqttTransport(mosquitto.url, "g"), name="g", state=tmp_path, spread=0) as gateway:
        await gateway.task("heights")
        await asyncio.to_thread(mosquitto.stop)
        receipts = await asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0, timeout=0.2) for i in range(100)))
        assert {receipt.status for receipt in receipts} == {"queued"}
        await asyncio.to_thread(mosquitto.start)
        assert await gateway.flush(timeout=120)
    async with aggregator() as listener:
        payloads = {bytes((await anext(listener.messages)).payload) for _ in range(100)}
    assert len(payloads) == 100
