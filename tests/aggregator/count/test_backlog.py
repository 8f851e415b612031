"""A backlog on a broker that repeats packet ids, answers late or is silent: nothing is lost or counted twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from processes import HEIGHTS, report_id
from scripted_broker import Manners, ScriptedBroker
from stored import counted_ids
from waiting import until

from hush_aggregator import Aggregator, MqttBroker, SqliteStore
from hush_common.broker_url import BrokerUrl
from hush_common.topics import report_topic, task_topic
from hush_common.wire import Report, encode_frame


def backlog(count: int, others: int = 0) -> list[tuple[str, bytes]]:
    """Reports, and between them so many tasks that are counted nowhere."""
    every = count // others if others else count + 1
    found = []
    for number in range(count):
        if number % every == every - 1:
            found.append((task_topic(f"f{number}"), b"{}"))
        payload = encode_frame([Report(HEIGHTS.report_digest, 0, report_id(number), (7,))])
        found.append((report_topic("heights", f"d{number % 1000}"), payload))
    return found


@asynccontextmanager
async def aggregating(broker: ScriptedBroker, path: Path) -> AsyncIterator[Aggregator]:
    """Over one connection, where tasks, reports and answers come one behind the other."""
    with SqliteStore(path) as store:
        bus = MqttBroker(BrokerUrl.parse(broker.url), "hush-aggregator-test", kept=True)
        aggregator = Aggregator(bus, store, tasks=(HEIGHTS,), settle_s=0.1)
        running = asyncio.create_task(aggregator.run())
        try:
            yield aggregator
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def check(path: Path, reports: int) -> None:
    ids, n = counted_ids(path)
    assert n == reports
    assert sorted(ids) == sorted(map(report_id, range(reports)))


@pytest.mark.large
@pytest.mark.parametrize(("ids", "hang_up_after"), [(65_535, 35_000), (2000, 1500)])
async def test_packet_ids_that_repeat_lose_nothing_and_count_nothing_twice(
    memory_path: Path, ids: int, hang_up_after: int
) -> None:
    """70 000 messages are in flight; the broker hangs up, halfway or soon, and sends again what it has left."""
    waiting = ScriptedBroker(
        backlog=backlog(69_000, others=1000), ids=ids, manners=Manners(hang_up_after=hang_up_after)
    )
    async with waiting.running() as broker, aggregating(broker, memory_path / "store") as aggregator:
        async with asyncio.timeout(200):
            while broker.backlog:  # noqa: ASYNC110 - a queue has no event
                await asyncio.sleep(0.05)
        assert broker.connections == 2
        assert (aggregator.intake.repeated > 0) is (ids < 65_535)
    check(memory_path / "store", 69_000)


@pytest.mark.medium
async def test_reports_are_not_acknowledged_out_of_order(memory_path: Path) -> None:
    """mosquitto up to 2.0.12 deletes the oldest message with the id of an acknowledgement."""
    waiting = ScriptedBroker(backlog=backlog(3000, others=100), ids=100, manners=Manners(hang_up_after=150))
    async with waiting.running() as broker, aggregating(broker, memory_path / "store") as aggregator:
        await until(lambda: not broker.backlog)
        assert (broker.connections, aggregator.intake.repeated > 0) == (2, True)
    check(memory_path / "store", 3000)


@pytest.mark.soak
@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    "manners", [Manners(suback_after=60), Manners(retained_for=60), Manners(silent_for=15)], ids=str
)
async def test_a_broker_that_is_slow_for_a_minute_is_not_given_up(memory_path: Path, manners: Manners) -> None:
    waiting = ScriptedBroker(retained={}, backlog=backlog(20_000), manners=manners)
    async with waiting.running() as broker, aggregating(broker, memory_path / "store"):
        async with asyncio.timeout(450):
            while task_topic("heights") not in dict(broker.published):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)
        assert not broker.backlog
        assert broker.connections == 1
    check(memory_path / "store", 20_000)


@pytest.mark.soak
@pytest.mark.timeout(240)
async def test_a_broker_that_is_silent_for_longer_is_given_up(
    memory_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = ScriptedBroker(backlog=backlog(1000), manners=Manners(silent_for=120))
    async with waiting.running() as broker, aggregating(broker, memory_path / "store"):
        async with asyncio.timeout(120):
            while broker.connections < 2:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        broker.manners = Manners()
        await until(lambda: not broker.backlog)
    assert any("30 s" in line and "ping" in line for line in caplog.messages)
    check(memory_path / "store", 1000)
