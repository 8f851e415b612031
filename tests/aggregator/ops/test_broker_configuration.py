"""At a real mosquitto with the configuration that `hush broker config` writes, a device can report and nothing else."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiomqtt
import pytest
from hardened import HOST, Hardened, hush
from paho.mqtt.reasoncodes import ReasonCode

from hush_aggregator.broker.mosquitto import LARGEST_PACKET
from hush_client import MqttTransport
from hush_client.privacy.answer import FRAME_REPORTS
from hush_common.broker_url import BrokerUrl
from hush_common.errors import LoginRefusedError
from hush_common.topics import (
    ALL_ESTIMATES,
    ALL_RECALLS,
    ALL_REPORTS,
    ALL_TASKS,
    estimate_topic,
    recall_topic,
    report_topic,
    status_topic,
    task_topic,
)
from hush_common.wire import BODY_LIMIT, Report, encode_frame

FORBIDDEN, TAKEN = 0x87, 0x00
USERS = {"aggregator": "aggregator", "publisher": "publisher", "kitchen": "device", "evil": "device"}
TASK = """\
id = "heights"
epsilon = "1"
[domain]
kind = "number"
lower = 120.0
upper = 220.0
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hardened]:
    with Hardened(tmp_path_factory.mktemp("hardened") / "broker", USERS).running() as hardened:
        yield hardened


_PATIENCE_S = 60  # it only ends a test that fails: a machine can sleep for longer than a broker takes


async def reason(client: aiomqtt.Client, topic: str, payload: bytes, *, retain: bool = False) -> int:
    """What a broker of MQTT 5 says to a publication at QoS 1."""
    paho = client._client
    said: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    before = paho.on_publish

    def told(_client: object, _data: object, _mid: int, code: ReasonCode, *_: object) -> None:
        said.get_loop().call_soon_threadsafe(said.set_result, code.value)

    paho.on_publish = told
    try:
        paho.publish(topic, payload, qos=1, retain=retain)
        async with asyncio.timeout(_PATIENCE_S):
            return await said
    finally:
        paho.on_publish = before


async def come(client: aiomqtt.Client, last: str) -> list[object]:
    """The payloads of all that is delivered, up to a message on `last`."""
    payloads: list[object] = []
    async with asyncio.timeout(_PATIENCE_S):
        async for message in client.messages:
            if str(message.topic) == last:
                break
            payloads.append(message.payload)
    return payloads


async def is_let_in(client: aiomqtt.Client) -> bool:
    try:
        async with client:
            return True
    except aiomqtt.MqttError as error:
        if "uthori" not in str(error):
            raise
        return False


@asynccontextmanager
async def watching(broker: Hardened, *filters: str) -> AsyncIterator[aiomqtt.Client]:
    """The aggregator, who may read all of it."""
    async with broker.client("aggregator") as client:
        for one in filters:
            await client.subscribe(one, qos=1)
        yield client


async def test_a_device_reads_nobody_s_reports_not_even_its_own_and_no_status(broker: Hardened) -> None:
    """A subscription is granted whatever the rules say, so what counts is what is delivered."""
    async with broker.client("evil") as evil, watching(broker, ALL_REPORTS) as aggregator:
        for wanted in ("#", ALL_REPORTS, "hush/v1/reports/heights/kitchen", "$SYS/#", "$share/g/hush/v1/reports/+/+"):
            await evil.subscribe(wanted, qos=1)
        async with broker.client("kitchen") as kitchen:
            assert await reason(kitchen, report_topic("heights", "kitchen"), b"secret") == TAKEN
        assert await come(aggregator, report_topic("heights", "kitchen")) == []  # it was delivered to whom it is for
        await aggregator.publish(status_topic("aggregator"), b"online", qos=1)
        await aggregator.publish(recall_topic("end"), b"x", qos=1)
        assert await come(evil, recall_topic("end")) == []


async def test_browsers_have_the_same_rules_over_websockets(broker: Hardened) -> None:
    url = f"wss://{{}}@{HOST}:{broker.websockets}/?ca={broker.home / 'ca.pem'}"
    evil = replace(BrokerUrl.parse(url.format("evil")), password=broker.password("evil"))
    async with watching(broker, ALL_REPORTS, ALL_TASKS) as aggregator, MqttTransport(evil, "phone").connect() as link:
        for topic, code in (
            (report_topic("heights", "kitchen"), FORBIDDEN),
            (task_topic("heights"), FORBIDDEN),
            (report_topic("heights", "evil"), TAKEN),
        ):
            assert (await link.publish(topic, b"forged")).reason == code
        assert await come(aggregator, report_topic("heights", "evil")) == []
    with pytest.raises(LoginRefusedError):
        async with MqttTransport(replace(evil, password="wrong"), "phone").connect():  # noqa: S106 - of a test
            pass


@pytest.mark.parametrize(
    "topic",
    [
        report_topic("heights", "kitchen"),
        "hush/v1/reports/heights/evil/more",
        "hush/v1/reports/evil",
        task_topic("heights"),
        recall_topic("heights"),
        estimate_topic("heights"),
        status_topic("aggregator"),
        "$SYS/broker/uptime",
        "$CONTROL/dynamic-security/v1",
        "anything",
    ],
)
async def test_a_device_writes_nothing_but_its_own_reports_and_is_told_so(broker: Hardened, topic: str) -> None:
    wanted = (ALL_REPORTS, ALL_TASKS, ALL_RECALLS, ALL_ESTIMATES, status_topic("+"), "hush/v1/reports/#", "anything")
    async with watching(broker, *wanted) as aggregator, broker.client("evil") as evil:
        for retain in (False, True):
            assert await reason(evil, topic, b"forged", retain=retain) == FORBIDDEN
        assert await reason(evil, report_topic("heights", "evil"), b"own") == TAKEN
        assert await come(aggregator, report_topic("heights", "evil")) == []
    async with watching(broker, topic, estimate_topic("end")) as later:  # nor was anything retained
        await later.publish(estimate_topic("end"), b"x", qos=1)
        assert b"forged" not in await come(later, estimate_topic("end"))


async def test_a_publisher_writes_tasks_and_nothing_else_of_the_aggregator_s(broker: Hardened) -> None:
    async with broker.client("publisher") as publisher:
        assert await reason(publisher, task_topic("other"), b"{}", retain=False) < FORBIDDEN
        for topic in (estimate_topic("heights"), recall_topic("heights"), report_topic("heights", "kitchen")):
            assert await reason(publisher, topic, b"forged") == FORBIDDEN


async def test_nobody_takes_the_aggregator_s_session_or_deletes_what_waits_in_it(broker: Hardened) -> None:
    topic = report_topic("heights", "kitchen")
    async with broker.client("aggregator", identifier="hush-aggregator-secret", kept=True) as aggregator:
        await aggregator.subscribe(ALL_REPORTS, qos=1)
    async with broker.client("kitchen") as kitchen:
        for number in range(100):
            await kitchen.publish(topic, b"%d" % number, qos=1)
    for identifier in ("aggregator", "hush-aggregator-secret"):
        async with broker.client("evil", identifier=identifier):  # a clean session under the same id
            pass
        async with broker.client("evil", identifier=identifier, kept=True) as evil:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await anext(evil.messages)
    async with broker.client("aggregator", kept=True) as aggregator, asyncio.timeout(60):
        assert [(await anext(aggregator.messages)).payload for _ in range(100)] == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize(("user", "password"), [(None, None), ("evil", "wrong"), ("nobody", "x"), ("kitchen", "")])
async def test_nobody_comes_in_without_a_password_of_their_own(
    broker: Hardened, user: str | None, password: str | None
) -> None:
    client = broker.client(None)
    if user is not None:
        client._client.username_pw_set(user, password)
    assert not await is_let_in(client)


def test_it_speaks_tls_alone(broker: Hardened) -> None:
    listening = [line for line in (broker.home / "mosquitto.conf").read_text().splitlines() if "listener" in line]
    ports = broker.port, broker.websockets
    assert listening[1:] == [f"listener {port} {HOST}" for port in ports]  # the first is a comment
    connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04evil"
    for port in ports:
        with socket.create_connection((HOST, port), 5) as plain:
            plain.settimeout(5)
            plain.sendall(connect)
            with suppress(ConnectionResetError):
                assert not plain.recv(4).startswith(b"\x20")  # no welcome: an alert of TLS, or an end
        old = ["openssl", "s_client", "-connect", f"{HOST}:{port}", "-tls1_1"]
        refused = subprocess.run(old, input=b"", capture_output=True, timeout=60, check=False)
        assert b"Cipher is (NONE)" in refused.stdout


async def test_the_longest_frame_of_a_gateway_passes_and_what_is_longer_ends_the_connection(broker: Hardened) -> None:
    topic = report_topic("heights", "kitchen")
    longest = encode_frame(
        [Report(bytes(16), 0, number.to_bytes(16), (1,) * BODY_LIMIT) for number in range(FRAME_REPORTS)]
    )
    async with watching(broker, ALL_REPORTS) as aggregator:
        async with broker.client("kitchen") as kitchen:
            assert await reason(kitchen, topic, longest) == TAKEN
            async with asyncio.timeout(60):
                assert (await anext(aggregator.messages)).payload == longest
        async with broker.client("kitchen", kept=True) as kitchen:  # of MQTT 3.1.1, where nobody is told the limit
            with pytest.raises(aiomqtt.MqttError):
                await kitchen.publish(topic, bytes(LARGEST_PACKET), qos=1, timeout=3)


async def test_a_user_who_was_removed_is_put_out_and_does_not_come_in_again(tmp_path: Path) -> None:
    broker = Hardened(tmp_path / "broker", {"kitchen": "device"})
    broker.set_up()
    broker.start()
    try:
        password = broker.password("kitchen")
        async with broker.client("kitchen"):
            pass
        assert hush("broker", "remove", "kitchen", "--config", str(broker.home)).returncode == 0
        broker.reload()
        async with asyncio.timeout(60):
            while await is_let_in(broker.client("kitchen", password=password)):  # noqa: ASYNC110 - a signal has no answer
                await asyncio.sleep(0.05)
    finally:
        broker.stop()


@pytest.mark.large
def test_the_whole_journey(tmp_path: Path) -> None:
    """Configuration, a device, a broker, a service, a task, a report, an estimate: with commands alone."""
    broker = Hardened(tmp_path / "broker", {"aggregator": "aggregator", "publisher": "publisher", "kitchen": "device"})
    broker.set_up()
    broker.start()
    (tmp_path / "heights.toml").write_text(TASK, encoding="utf-8")
    served = [sys.executable, "-m", "hush", "serve", *broker.login("aggregator"), "--store", str(tmp_path / "store")]
    try:
        published = hush("task", "publish", str(tmp_path / "heights.toml"), *broker.login("publisher"))
        assert published.returncode == 0, published.stderr
        served += ["--task", str(tmp_path / "heights.toml")]
        with _ended(subprocess.Popen(served, stderr=subprocess.PIPE, text=True)) as server:
            assert server.stderr is not None
            assert any("connected to" in line for line in server.stderr)  # up to that line
            reported = hush(
                *("report", "heights", "172", *broker.login("kitchen"), "--state", str(tmp_path / "state")),
                *("--spread", "0", "--json"),
            )
            assert json.loads(reported.stdout)["status"] == "sent", reported.stderr
            asyncio.run(_until_counted(broker))
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
    finally:
        broker.stop()


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    with process:
        try:
            yield process
        finally:
            process.kill()


async def _until_counted(broker: Hardened) -> None:
    async with broker.client("kitchen") as anybody, asyncio.timeout(60):
        await anybody.subscribe(ALL_ESTIMATES)
        async for message in anybody.messages:
            assert isinstance(message.payload, bytes)
            if json.loads(message.payload).get("n") == 1:
                return
