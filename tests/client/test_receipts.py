"""A receipt says what became of a report, as far as a broker tells: a real mosquitto, its rules, a real aggregator."""

import asyncio
import json
import signal
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import aiomqtt
import pytest
from counting import aggregating, counted, shell
from device_state import waiting
from hardened import HOST, Hardened
from hardened import hush as command
from heights import make_heights
from scripted_broker import ScriptedBroker
from servers import Mosquitto
from waiting import until

from hush_client import Client, Gateway, MqttTransport, Undelivered
from hush_common.task import decode_task
from hush_common.topics import ALL_REPORTS, Acknowledgement, report_topic, task_topic
from hush_simulations.brokers.choice import open_broker

HEIGHTS, WEIGHTS = make_heights(), make_heights(id="weights", purpose="weights")
TASKS = decode_task(HEIGHTS), decode_task(WEIGHTS)
OPEN = "topic readwrite #\n"
MAY_WRITE = ("tasks/+", "estimates/+", "status/+", "reports/weights/+")
CLOSED = "".join(("topic read #\n", *(f"topic write hush/v1/{topic}\n" for topic in MAY_WRITE)))


@pytest.fixture
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """A broker whose rules forbid reports about heights, and which a test may write anew (SIGHUP)."""
    directory = tmp_path_factory.mktemp("mosquitto")
    (directory / "acl").write_text(CLOSED, encoding="utf-8")
    broker = Mosquitto(directory, access=f"allow_anonymous true\nacl_file {directory}/acl")
    broker.start()
    for task in TASKS:
        shell("mosquitto_pub", broker.port, "-q", "1", "-r", "-t", task_topic(task.id), "-m", task.payload.decode())
    yield broker
    broker.stop()


def subscribe(broker: Mosquitto, name: str = "aggregator") -> None:
    """Be an aggregator that is away: its session is kept."""
    shell("mosquitto_sub", broker.port, "-i", name, "-c", "-q", "1", "-E", "-t", ALL_REPORTS)


@pytest.mark.medium
@pytest.mark.face
async def test_a_forbidden_report_is_kept_and_sent_once_it_is_allowed(ruled: Mosquitto, tmp_path: Path) -> None:
    store, state = tmp_path / "store.sqlite3", tmp_path / "state"
    async with aggregating(ruled, store, tasks=TASKS):
        async with Client(ruled.url, device="d", state=state, spread=0) as client:
            refused = await client.report("heights", 172.0, timeout=60)
            other = await client.report("weights", 172.0, timeout=60)
            assert not await client.flush(timeout=60)
            repeated = await client.report("heights", 172.0, timeout=60)
            assert (repeated.status, repeated.reason) == ("already_answered", Undelivered.FORBIDDEN)
            spent = (await client.ledger()).spent
        assert (refused.status, refused.reason, refused.can_refuse) == ("undelivered", Undelivered.FORBIDDEN, True)
        assert "access rules" in refused.meaning
        assert (other.status, other.reason, other.can_refuse) == ("sent", None, True)
        assert "aggregator" in other.caveat
        assert (refused.spent, spent) == (Fraction(1), Fraction(2)), "the charge stands"
        (kept,) = waiting(state)
        assert refused.report_id is not None
        assert bytes.fromhex(refused.report_id) in kept
        (ruled.directory / "acl").write_text(OPEN, encoding="utf-8")
        assert ruled.process is not None
        ruled.process.send_signal(signal.SIGHUP)
        delivered = False
        while not delivered:  # the broker has not read its rules yet
            async with Client(ruled.url, device="d", state=state, spread=0) as client:
                delivered = await client.flush(timeout=60)
                again = await client.report("heights", 100.0, timeout=60)
        assert (again.status, again.report_id) == ("already_answered", refused.report_id)
        assert not again.waiting
        assert waiting(state) == []
        await until(lambda: counted(store) >= 2)


@pytest.mark.medium
async def test_a_report_waits_until_an_aggregator_has_a_session(mosquitto: Mosquitto, tmp_path: Path) -> None:
    shell("mosquitto_pub", mosquitto.port, "-q", "1", "-r", "-t", task_topic("heights"), "-m", HEIGHTS.decode())
    async with Client(mosquitto.url, device="d", state=tmp_path, spread=0) as client:
        receipt = await client.report("heights", 172.0, timeout=60)
        assert (receipt.status, receipt.reason) == ("undelivered", Undelivered.NO_SUBSCRIBER)
        assert not await client.flush(timeout=60)
    await asyncio.to_thread(subscribe, mosquitto)
    async with Client(mosquitto.url, device="d", state=tmp_path, spread=0) as client:
        assert await client.flush(timeout=60)
    read = shell(
        "mosquitto_sub", mosquitto.port, "-i", "aggregator", "-c", "-q", "1", "-t", ALL_REPORTS, "-C", "1", "-F", "%l"
    )
    assert int(read) == 48


@pytest.mark.medium
@pytest.mark.face
async def test_over_3_1_1_the_receipt_says_what_it_cannot_know(tmp_path: Path) -> None:
    async with open_broker("embedded", tmp_path) as url, aiomqtt.Client(url.host, transport="unix") as administrator:
        await administrator.publish(task_topic("heights"), HEIGHTS, qos=1, retain=True)
        async with Client(url, device="d", state=tmp_path / "state", spread=0) as client:
            receipt = await client.report("heights", 172.0, timeout=60)
    assert (receipt.status, receipt.can_refuse) == ("sent", False)
    assert receipt.caveat.startswith("over MQTT 3.1.1")


USERS = {"aggregator": "aggregator", "publisher": "publisher", "kitchen": "device", "evil": "device"}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hardened]:
    hardened = Hardened(tmp_path_factory.mktemp("hardened") / "hardened_broker", USERS)
    hardened.set_up()
    with (hardened.home / "rules").open("a", encoding="utf-8") as file:
        file.write(f"\nuser evil\ntopic deny {report_topic('weights', 'evil')}\n")  # an operator's own, on top
    hardened.start()
    yield hardened
    hardened.stop()


async def publish_tasks(rules: Hardened) -> None:
    async with rules.client("publisher") as publisher:
        for name in ("heights", "weights"):
            await publisher.publish(task_topic(name), make_heights(id=name, purpose=name), qos=1, retain=True)


@pytest.mark.medium
@pytest.mark.parametrize(("task", "sender"), [("heights", "kitchen"), ("weights", "evil")], ids=["name", "task"])
async def test_a_report_against_the_rules_is_kept_and_reaches_nobody(
    rules: Hardened, tmp_path: Path, task: str, sender: str
) -> None:
    await publish_tasks(rules)
    url = f"mqtts://evil:{rules.password('evil')}@{HOST}:{rules.port}?ca={rules.home / 'ca.pem'}"
    async with rules.client("aggregator") as aggregator:
        await aggregator.subscribe(ALL_REPORTS, qos=1)
        link = MqttTransport(url, "evil")  # by its address alone, hush writes under the name of the user
        async with Client(
            "mqtts://" + HOST, device=sender, state=tmp_path / "state", spread=0, transport=link
        ) as client:
            forbidden = await client.report(task, 172.0, timeout=60)
            assert not await client.flush(timeout=60)
            assert (await client.ledger()).spent == Fraction(1), "the charge stands"
        async with Client(url, device="kitchen", state=tmp_path / "own", spread=0) as client:
            own = await client.report("heights", 172.0, timeout=60)
        assert (forbidden.status, forbidden.reason, forbidden.can_refuse) == (
            "undelivered",
            Undelivered.FORBIDDEN,
            True,
        )
        assert "access rules" in forbidden.meaning
        assert (own.status, own.reason) == ("sent", None), "a report under its own name is taken"
        async with asyncio.timeout(60):
            first = await anext(aggregator.messages)
        assert str(first.topic) == report_topic("heights", "evil"), "the forbidden one would have come before"


@pytest.mark.medium
async def test_the_command_says_so_too(rules: Hardened, tmp_path: Path) -> None:
    await publish_tasks(rules)
    login = (*rules.login("evil"), "--spread", "0", "--state", str(tmp_path / "state"))
    said = await asyncio.to_thread(command, "report", "weights", "172", *login, "--json")
    receipt = json.loads(said.stdout)
    assert (receipt["status"], receipt["reason"]) == ("undelivered", "forbidden"), said.stderr


@pytest.mark.medium
@pytest.mark.virtual_time
async def test_each_reason_of_a_broker_has_a_meaning(tmp_path: Path) -> None:
    reasons = {
        0x10: "no_subscriber",
        **dict.fromkeys((0x80, 0x83, 0x90, 0xFF), "refused"),
        0x87: "forbidden",
        0x95: "too_large",
        0x97: "over_quota",
        0x99: "invalid",
        **dict.fromkeys((0, 1, 0x11, 0x7F), None),
    }
    for code, reason in reasons.items():
        broker, state = ScriptedBroker(), tmp_path / str(code)
        broker.answers.append(Acknowledgement(code, can_refuse=True))
        async with Gateway(broker, name="g", state=state, spread=0) as gateway:
            receipts = (await gateway.report_many("heights", {"a": 172.0, "b": None}, timeout=60)).values()
            assert await gateway.flush(timeout=60) is (reason is None)
        status = "undelivered" if reason else "sent"
        assert {(receipt.status, receipt.reason) for receipt in receipts} == {(status, reason)}
        assert all(bool(receipt.meaning) is bool(reason) for receipt in receipts)
        assert len(waiting(state)) == bool(reason)
