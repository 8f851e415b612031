"""The MQTT transport of a device, against brokers that behave badly on purpose and against a real one."""

import asyncio
import gc
import re
import socket
from contextlib import suppress
from pathlib import Path

import aiomqtt
import pytest
from heights import HEIGHTS, make_heights
from leftovers import collect_leftovers
from scripted_broker import Action, Kind, ScriptedBroker, after, half, hang_up, nonsense, reply_and_hang_up, twice
from servers import Mosquitto
from waiting import PATIENCE_S

from hush_client import Client, Gateway, MqttTransport, Reason
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, SubscriptionRefusedError, TaskError
from hush_common.topics import ALL_REPORTS, task_topic

pytestmark = pytest.mark.medium

FAULTS = [
    *((None, action) for action in (hang_up,)),
    *((packet, action) for packet in (Kind.CONNECT, Kind.SUBSCRIBE) for action in (hang_up, half, nonsense)),
    *((packet, reply_and_hang_up) for packet in (Kind.CONNECT, Kind.SUBSCRIBE)),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[0] and fault[0].name}-{fault[1].__name__}")
async def test_a_broker_that_fails_before_the_report_is_sent_costs_nothing(
    tmp_path: Path, fault: tuple[Kind, Action]
) -> None:
    async with ScriptedBroker(fault, fault).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
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
async def test_the_same_bytes_are_sent_again_until_they_are_acknowledged(tmp_path: Path, action: Action) -> None:
    async with ScriptedBroker(*[(Kind.PUBLISH, action)] * 2).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            receipt = await client.report("heights", 172.0, timeout=60)
            assert (await client.ledger()).spent == 1
        assert receipt.status == "sent"
        assert len(broker.payloads) == 3
        assert len(set(broker.payloads)) == 1


async def test_a_broker_that_acknowledges_and_hangs_up_has_the_report(tmp_path: Path) -> None:
    async with ScriptedBroker((Kind.PUBLISH, reply_and_hang_up)).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            assert (await client.report("heights", 172.0, timeout=60)).status == "sent"
            assert await client.flush()
        assert len(set(broker.payloads)) == 1


async def test_an_acknowledgement_that_comes_twice_does_no_harm(tmp_path: Path) -> None:
    async with ScriptedBroker(*[(Kind.PUBLISH, twice)] * 2).running() as broker:
        async with Gateway(MqttTransport(broker.url, "g"), name="g", state=tmp_path, spread=0) as gateway:
            receipts = [await gateway.report(device, "heights", 172.0, timeout=60) for device in "abc"]
        assert [receipt.status for receipt in receipts] == ["sent"] * 3
        assert len(broker.payloads) == len(set(broker.payloads)) == 3


async def test_an_acknowledgement_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    async with ScriptedBroker((Kind.PUBLISH, after(0.3))).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            assert (await client.report("heights", 172.0, timeout=60)).status == "sent"
        assert len(broker.payloads) == broker.connections == 1


async def test_an_acknowledgement_that_never_comes_ends_the_connection_and_the_same_bytes_go_over_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def keep_silent(_writer: asyncio.StreamWriter, _reply: bytes) -> None:
        pass

    monkeypatch.setattr("hush_client.sending.mqtt._PATIENCE_SECONDS", 0.1)
    async with ScriptedBroker(*[(Kind.PUBLISH, keep_silent)] * 2).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            assert (await client.report("heights", 172.0, timeout=60)).status == "sent"
        assert len(set(broker.payloads)) == 1
        assert len(broker.payloads) == broker.connections >= 3, "more if the third answer did not come in time"


@pytest.mark.parametrize(
    ("task", "words"),
    [(b"no JSON", "cannot be read"), (b'{"id": "heights"}', "domain: is missing"), (b"\xff\x00", "cannot be read")],
)
async def test_what_is_retained_and_no_task_is_named_and_the_connection_lives_on(
    tmp_path: Path, task: bytes, words: str
) -> None:
    async with ScriptedBroker(retained={task_topic("heights"): task}).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            for _ in range(2):
                with pytest.raises(TaskError, match=words):
                    await client.report("heights", 172.0, timeout=60)
            assert (await client.ledger()).spent == 0
        assert broker.connections == 1
        assert broker.payloads == []


async def test_a_task_that_costs_more_than_the_device_allows_is_refused(tmp_path: Path) -> None:
    async with ScriptedBroker(retained={task_topic("heights"): make_heights(epsilon="9")}).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            receipt = await client.report("heights", 172.0, timeout=60)
        assert (receipt.status, receipt.reason) == ("refused", Reason.EPSILON_TOO_LARGE)
        assert broker.payloads == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4, r"login \(bad user name or password\); check user and password"),
        (5, r"login \(not authorized\); check user and password"),
        (3, r"connection \(server unavailable\)"),
    ],
)
@pytest.mark.parametrize("old", [None, reply_and_hang_up])
async def test_a_refused_login_is_told_with_its_reason(code: int, words: str, old: Action | None) -> None:
    async with ScriptedBroker(login=code, old=old).running() as broker:
        with pytest.raises(BrokerError, match=f"the broker refuses the {words}"):
            async with MqttTransport(BrokerUrl.parse(broker.url), "d").connect():
                pass


async def test_a_wrong_password_is_told_without_the_password(guarded_mosquitto: Mosquitto, tmp_path: Path) -> None:
    url = guarded_mosquitto.url.replace("//", "//alice:wr0ng@")
    async with Client(url, device="d", state=tmp_path, spread=0) as client:
        told = await refusal(client, "refuses the login")
    assert "wr0ng" not in told


async def test_the_right_password_opens_the_door(guarded_mosquitto: Mosquitto, tmp_path: Path) -> None:
    url = guarded_mosquitto.url.replace("//", "//alice:right@")
    async with Client(url, device="d", state=tmp_path, spread=0) as client:
        await refusal(client, "no task 'heights'")


async def refusal(client: Client, words: str) -> str:
    """Try until the error has these words: before there is a connection, it says that there is none."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with pytest.raises(BrokerError) as caught:
                await client.report("heights", 172.0, timeout=0.5)
            if words in str(caught.value):
                return str(caught.value)
            assert "no connection yet" in str(caught.value)


def test_a_broker_is_called_by_its_address_without_the_password() -> None:
    assert MqttTransport("mqtts://alice:wr0ng@h:8000", "d").name == "mqtts://alice@h:8000"


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
    monkeypatch.setattr("hush_common.mqtt.connection._CONNECT_SECONDS", 0.2)
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
        await asyncio.wait_for(closed.wait(), 60)


async def test_a_broker_that_hangs_up_with_its_welcome_leaves_nothing_for_asyncio_to_complain_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collect_leftovers()
    tries = 5
    async with ScriptedBroker(*[(Kind.CONNECT, reply_and_hang_up)] * tries).running() as broker:
        for _ in range(tries):
            with suppress(BrokerError):  # it may be seen while connecting, or only when the connection is used
                async with MqttTransport(BrokerUrl.parse(broker.url), "d").connect() as link:
                    await link.publish("hush/v1/reports/heights/d", b"lost")
            gc.collect()
        assert broker.payloads == []
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


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
        await asyncio.wait_for(arrived.wait(), 60)
        connecting.cancel()
        await asyncio.wait((connecting,))
        await asyncio.wait_for(closed.wait(), 60)
    assert connecting.cancelled()


async def test_a_subscription_that_the_broker_forbids_is_told_and_the_connection_lives_on() -> None:
    async with (
        ScriptedBroker(forbidden={task_topic("heights")}).running() as broker,
        MqttTransport(BrokerUrl.parse(broker.url), "d").connect() as link,
    ):
        with pytest.raises(SubscriptionRefusedError, match="check its access rules"):
            await link.subscribe(task_topic("heights"))
        await link.publish("hush/v1/reports/heights/d", b"still here")
        assert broker.payloads == [b"still here"]


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
        assert await gateway.flush(timeout=120)
    async with aggregator() as listener:
        payloads = {bytes((await anext(listener.messages)).payload) for _ in range(100)}
    assert len(payloads) == 100


@pytest.mark.parametrize("topic", [b"\xff\xfe", b"hush/v1/tasks/+", b"#"])
async def test_a_topic_that_cannot_be_is_passed_over(
    tmp_path: Path, topic: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def impossible(writer: asyncio.StreamWriter, reply: bytes) -> None:
        body = len(topic).to_bytes(2, "big") + topic + b"\x00x"
        writer.write(reply[:6] + b"\x30" + bytes([len(body)]) + body + reply[6:])

    async with ScriptedBroker((Kind.SUBSCRIBE, impossible)).running() as broker:
        async with Client(broker.url, device="d", state=tmp_path, spread=0) as client:
            assert (await client.report("heights", 172.0, timeout=60)).status == "sent"
        assert broker.connections == 1
    assert [record.message for record in caplog.records] == ["ignored a message on an impossible topic"]
