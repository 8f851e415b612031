"""A receipt says what became of a report, as far as a broker tells: a real mosquitto, its rules, a real aggregator."""

import asyncio
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import aiomqtt
import pytest
from counting import aggregating, counted, shell
from heights import make_heights
from scripted_broker import ScriptedBroker
from servers import Mosquitto

from hush_client import Client, Gateway, SyncClient, Undelivered
from hush_client.state.database import FILE_NAME
from hush_common.task import decode_task
from hush_common.topics import ALL_REPORTS, Acknowledgement, task_topic
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


def waiting(state: Path) -> list[bytes]:
    """What the outbox of a device that is off holds."""
    with closing(sqlite3.connect(state / FILE_NAME)) as connection:
        return [payload for (payload,) in connection.execute("SELECT payload FROM outbox ORDER BY sequence")]


def subscribe(broker: Mosquitto, name: str = "aggregator") -> None:
    """Be an aggregator that is away: its session is kept."""
    shell("mosquitto_sub", broker.port, "-i", name, "-c", "-q", "1", "-E", "-t", ALL_REPORTS)


@pytest.mark.medium
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
        async with Client(ruled.url, device="d", state=state, spread=0) as client:
            again = await client.report("heights", 100.0, timeout=60)
            assert await client.flush(timeout=60)
        assert (again.status, again.report_id) == ("already_answered", refused.report_id)
        assert not again.waiting
        assert waiting(state) == []
        async with asyncio.timeout(60):
            while counted(store) < 2:  # noqa: ASYNC110 - another process's file
                await asyncio.sleep(0.05)


@pytest.mark.medium
async def test_a_report_waits_until_somebody_subscribes(mosquitto: Mosquitto, tmp_path: Path) -> None:
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
def test_an_aggregator_that_is_away_with_a_kept_session_has_the_report(mosquitto: Mosquitto, tmp_path: Path) -> None:
    shell("mosquitto_pub", mosquitto.port, "-q", "1", "-r", "-t", task_topic("heights"), "-m", HEIGHTS.decode())
    subscribe(mosquitto)
    with SyncClient(mosquitto.url, device="d", state=tmp_path, spread=0) as client:
        receipt = client.report("heights", 172.0, timeout=60)
    assert (receipt.status, receipt.can_refuse) == ("sent", True)


@pytest.mark.medium
async def test_a_receipt_claims_no_more_than_that_somebody_subscribes(mosquitto: Mosquitto, tmp_path: Path) -> None:
    shell("mosquitto_pub", mosquitto.port, "-q", "1", "-r", "-t", task_topic("heights"), "-m", HEIGHTS.decode())
    shell("mosquitto_sub", mosquitto.port, "-i", "monitor", "-c", "-q", "1", "-E", "-t", "#")
    async with Client(mosquitto.url, device="d", state=tmp_path, spread=0) as client:
        receipt = await client.report("heights", 172.0, timeout=60)
    assert receipt.status == "sent"
    assert "aggregator" in receipt.caveat


@pytest.mark.medium
async def test_over_3_1_1_the_receipt_says_what_it_cannot_know(tmp_path: Path) -> None:
    async with open_broker("embedded", tmp_path) as url, aiomqtt.Client(url.host, transport="unix") as administrator:
        await administrator.publish(task_topic("heights"), HEIGHTS, qos=1, retain=True)
        async with Client(url, device="d", state=tmp_path / "state", spread=0) as client:
            receipt = await client.report("heights", 172.0, timeout=60)
    assert (receipt.status, receipt.can_refuse) == ("sent", False)
    assert receipt.caveat.startswith("over MQTT 3.1.1")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (0x10, "no_subscriber"),
        (0x80, "refused"),
        (0x83, "refused"),
        (0x87, "forbidden"),
        (0x90, "refused"),
        (0x95, "too_large"),
        (0x97, "over_quota"),
        (0x99, "invalid"),
        (0xFF, "refused"),
    ],
)
async def test_each_reason_of_a_broker_is_shown(code: int, reason: str, tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.answers.append(Acknowledgement(code, can_refuse=True))
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        receipts = await gateway.report_many("heights", {"a": 172.0, "b": None}, timeout=60)
        assert not await gateway.flush(timeout=60)
    assert {(receipt.status, receipt.reason) for receipt in receipts.values()} == {("undelivered", reason)}
    assert all(receipt.meaning and not receipt.caveat for receipt in receipts.values())
    assert len(waiting(tmp_path)) == 1


@pytest.mark.parametrize("code", [0, 1, 0x11, 0x7F])
async def test_any_other_reason_below_128_is_a_success(code: int, tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.answers.append(Acknowledgement(code, can_refuse=True))
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        assert (await gateway.report("a", "heights", 172.0, timeout=60)).status == "sent"
        assert await gateway.flush(timeout=60)
