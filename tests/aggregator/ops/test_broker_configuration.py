"""A real mosquitto with the configuration of `hush broker config`: a device can report, and nothing else."""

import asyncio
import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiomqtt
import pytest
from hardened import HOST, Hardened, hush
from waiting import PATIENCE_S, until, wait_until

from hush_aggregator.ops.mosquitto import LARGEST_PACKET
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

pytestmark = pytest.mark.medium

FORBIDDEN, TAKEN = 0x87, 0x00
USERS = {"aggregator": "aggregator", "publisher": "publisher", "kitchen": "device", "evil": "device"}
TASK = 'id = "heights"\nepsilon = "1"\n[domain]\nkind = "number"\nlower = 120.0\nupper = 220.0\n'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hardened]:
    with Hardened(tmp_path_factory.mktemp("hardened") / "broker", USERS).running() as hardened:
        yield hardened


def url(broker: Hardened, user: str, *, websockets: bool = False) -> BrokerUrl:
    found = BrokerUrl.parse(broker.address(user))
    if websockets:
        found = BrokerUrl.parse(f"wss://{user}@{HOST}:{broker.websockets}/?ca={broker.home / 'ca.pem'}")
    return replace(found, password=broker.password(user))


async def reasons(broker: Hardened, user: str, *topics: str, websockets: bool = False) -> list[int | None]:
    """What the broker says to a publication of a user on each topic."""
    async with MqttTransport(url(broker, user, websockets=websockets), user).connect() as link:
        return [(await link.publish(topic, b"forged")).reason for topic in topics]


async def come(client: aiomqtt.Client, last: str) -> list[object]:
    """The payloads of all that is delivered, up to a message on `last`."""
    payloads: list[object] = []
    async with asyncio.timeout(PATIENCE_S):
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


async def test_a_device_reads_no_reports_and_no_status(broker: Hardened) -> None:
    """A subscription is granted whatever the rules say, so what counts is what is delivered."""
    async with broker.client("evil") as evil, watching(broker, ALL_REPORTS) as aggregator:
        for wanted in ("#", ALL_REPORTS, "hush/v1/reports/heights/kitchen", "$SYS/#", "$share/g/hush/v1/reports/+/+"):
            await evil.subscribe(wanted, qos=1)
        assert await reasons(broker, "kitchen", report_topic("heights", "kitchen")) == [TAKEN]
        assert await come(aggregator, report_topic("heights", "kitchen")) == []  # it was delivered to whom it is for
        await aggregator.publish(status_topic("aggregator"), b"online", qos=1)
        await aggregator.publish(recall_topic("end"), b"x", qos=1)
        assert await come(evil, recall_topic("end")) == []


OTHERS = [
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
]


@pytest.mark.parametrize("websockets", [False, True], ids=["tcp", "websockets"])
async def test_a_device_writes_nothing_but_its_own_reports(broker: Hardened, *, websockets: bool) -> None:
    wanted = (ALL_REPORTS, ALL_TASKS, ALL_RECALLS, ALL_ESTIMATES, status_topic("+"), "hush/v1/reports/#", "anything")
    own = report_topic("heights", "evil")
    async with watching(broker, *wanted) as aggregator:
        found = await reasons(broker, "evil", *OTHERS, own, websockets=websockets)
        assert found == [FORBIDDEN] * len(OTHERS) + [TAKEN]
        assert await come(aggregator, own) == []
    wrong = replace(url(broker, "evil", websockets=websockets), password="wrong")  # noqa: S106 - of a test
    with pytest.raises(LoginRefusedError):
        async with MqttTransport(wrong, "phone").connect():
            pass


async def test_nothing_that_a_device_retains_stays(broker: Hardened) -> None:
    async with broker.client("evil") as evil:
        for topic in OTHERS:
            with suppress(aiomqtt.MqttError):
                await evil.publish(topic, b"forged", qos=1, retain=True)
    async with watching(broker, *OTHERS, estimate_topic("end")) as later:
        await later.publish(estimate_topic("end"), b"x", qos=1)
        assert b"forged" not in await come(later, estimate_topic("end"))


async def test_a_publisher_writes_tasks_alone(broker: Hardened) -> None:
    others = estimate_topic("heights"), recall_topic("heights"), report_topic("heights", "kitchen")
    taken, *forbidden = await reasons(broker, "publisher", task_topic("other"), *others)
    assert (taken or 0) < FORBIDDEN
    assert forbidden == [FORBIDDEN] * 3


async def test_nobody_takes_over_the_session_of_the_aggregator(broker: Hardened) -> None:
    topic = report_topic("heights", "kitchen")
    async with broker.client("aggregator", identifier="hush-aggregator-secret", kept=True) as aggregator:
        await aggregator.subscribe(ALL_REPORTS, qos=1)
    async with broker.client("kitchen") as kitchen:
        for number in range(20):
            await kitchen.publish(topic, b"%d" % number, qos=1)
    for identifier in ("aggregator", "hush-aggregator-secret"):
        for kept in (False, True):  # a clean session under the same id would delete what waits
            async with broker.client("evil", identifier=identifier, kept=kept):
                pass
    async with broker.client("aggregator", kept=True) as aggregator, asyncio.timeout(PATIENCE_S):
        assert [(await anext(aggregator.messages)).payload for _ in range(20)] == [b"%d" % n for n in range(20)]


async def test_nobody_comes_in_without_a_password_of_their_own(broker: Hardened) -> None:
    trust = ssl.create_default_context(cafile=str(broker.home / "ca.pem"))
    for user, password in ((None, None), ("evil", "wrong"), ("nobody", "x"), ("kitchen", "")):
        client = aiomqtt.Client(
            HOST, broker.port, username=user, password=password, tls_context=trust, timeout=PATIENCE_S
        )
        assert not await is_let_in(client)


def test_it_speaks_tls_alone(broker: Hardened) -> None:
    listening = [line for line in (broker.home / "mosquitto.conf").read_text().splitlines() if line[:8] == "listener"]
    assert listening == [f"listener {port} {HOST}" for port in (broker.port, broker.websockets)]
    connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04evil"
    for port in (broker.port, broker.websockets):
        with socket.create_connection((HOST, port), PATIENCE_S) as plain:
            plain.sendall(connect)
            with suppress(ConnectionResetError):
                assert not plain.recv(4).startswith(b"\x20")  # no welcome: an alert of TLS, or an end
        old = ["openssl", "s_client", "-connect", f"{HOST}:{port}", "-tls1_1"]
        refused = subprocess.run(old, input=b"", capture_output=True, timeout=PATIENCE_S, check=False)
        assert b"Cipher is (NONE)" in refused.stdout


async def test_the_longest_frame_of_a_gateway_passes_and_no_longer_one(broker: Hardened) -> None:
    topic = report_topic("heights", "kitchen")
    longest = encode_frame(
        [Report(bytes(16), 0, number.to_bytes(16), (1,) * BODY_LIMIT) for number in range(FRAME_REPORTS)]
    )
    async with watching(broker, ALL_REPORTS) as aggregator:
        async with broker.client("kitchen") as kitchen, asyncio.timeout(PATIENCE_S):
            await kitchen.publish(topic, longest, qos=1)
            assert (await anext(aggregator.messages)).payload == longest
        with pytest.raises(aiomqtt.MqttError):
            async with broker.client("kitchen", kept=True) as kitchen:  # MQTT 3.1.1, which has no way to say the limit
                await kitchen.publish(topic, bytes(LARGEST_PACKET), qos=1, timeout=5)


async def test_a_user_who_was_removed_does_not_come_in_again(tmp_path: Path) -> None:
    broker = Hardened(tmp_path / "broker", {"kitchen": "device"})
    with broker.running():
        password = broker.password("kitchen")
        assert await is_let_in(broker.client("kitchen"))
        assert hush("broker", "remove", "kitchen", "--config", str(broker.home)).returncode == 0
        broker.reload()
        refused = False

        async def try_again() -> None:
            nonlocal refused
            while not refused:
                refused = not await is_let_in(broker.client("kitchen", password=password))

        trying = asyncio.create_task(try_again())
        await until(lambda: refused)
        await trying


@pytest.mark.large
@pytest.mark.face
def test_the_whole_journey_with_commands_alone(tmp_path: Path) -> None:
    """Configuration, a device, a broker, a service, a task, a report, an estimate."""
    broker = Hardened(tmp_path / "broker", {"aggregator": "aggregator", "publisher": "publisher", "kitchen": "device"})
    file = tmp_path / "heights.toml"
    file.write_text(TASK, encoding="utf-8")
    serve = [sys.executable, "-m", "hush", "serve", *broker.login("aggregator"), "--task", str(file)]
    serve += ["--store", str(tmp_path / "store")]
    with broker.running():
        published = hush("task", "publish", str(file), *broker.login("publisher"))
        assert published.returncode == 0, published.stderr
        with subprocess.Popen(
            [*serve, "--store", str(tmp_path / "store")], stderr=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stderr is not None
                assert any("connected to" in line for line in server.stderr)  # up to that line
                state = ("--state", str(tmp_path / "state"), "--spread", "0", "--json")
                reported = hush("report", "heights", "172", *broker.login("kitchen"), *state)
                assert json.loads(reported.stdout)["status"] == "sent", reported.stderr

                def is_counted() -> bool:
                    shown = hush("results", "heights", *broker.login("kitchen"), "--json")
                    return shown.returncode == 0 and json.loads(shown.stdout)["results"][0]["n"] == 1

                wait_until(is_counted)
            finally:
                server.send_signal(signal.SIGTERM)
                assert server.wait(PATIENCE_S) == 0
