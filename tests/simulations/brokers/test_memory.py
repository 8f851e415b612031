"""The broker in memory keeps the promises of MQTT that devices and aggregators rest on."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.delivery.session import Broker, BrokerSession
from hush_aggregator.store.base import CommitOutcome
from hush_client import Gateway
from hush_common.errors import BrokerError, SubscriptionRefusedError
from hush_common.task import make_task
from hush_common.topics import matches
from hush_simulations.brokers.memory import MemoryBroker

pytestmark = pytest.mark.virtual_time

TASK = make_task({"id": "survey", "epsilon": "1", "domain": {"kind": "bit"}})


async def payloads(session: BrokerSession, count: int) -> list[bytes]:
    """The next messages, not acknowledged."""
    got: list[bytes] = []
    async with asyncio.timeout(60):
        while len(got) < count:
            got += [delivery.payload for delivery in await session.batch()]
    return got


async def nothing_more(session: BrokerSession) -> bool:
    try:
        async with asyncio.timeout(5):
            return not await session.batch()
    except TimeoutError:
        return True


async def visit(bus: Broker, filters: Sequence[str] = ("a/+",)) -> None:
    async with bus.connect(filters):
        pass


FILTERS = [
    ("a/b", "a/b", True),
    ("a/b", "a/b/c", False),
    ("a/+", "a/b", True),
    ("a/+", "a", False),
    ("a/+", "a/b/c", False),
    ("+/b", "a/b", True),
    ("a/#", "a/b/c", True),
    ("#", "a", True),
    ("a/+/c", "a/b/c", True),
    ("a/+/c", "a/b/d", False),
]


async def test_a_session_gets_the_topics_that_its_filter_matches() -> None:
    for wanted, topic, expected in FILTERS:
        broker = MemoryBroker()
        async with broker.bus().connect([wanted]):
            broker.deliver(topic, b"1")
        assert (matches(wanted, topic), bool(broker.session().waiting)) == (expected, expected)


async def test_a_new_subscriber_gets_the_retained_message_first() -> None:
    broker = MemoryBroker()
    async with broker.bus().connect([]) as session:
        await session.publish("a/b", b"old", retain=True)
        await session.publish("a/b", b"kept", retain=True)
        await session.publish("a/b", b"passing")
    async with broker.transport().connect() as link:
        await link.subscribe("a/b")
        broker.deliver("a/b", b"new")
        assert [await link.receive(), await link.receive()] == [("a/b", b"kept"), ("a/b", b"new")]


async def test_an_empty_retained_message_clears_the_topic() -> None:
    broker = MemoryBroker()
    async with broker.bus().connect([]) as session:
        await session.publish("a/b", b"kept", retain=True)
        await session.publish("a/b", b"", retain=True)
    assert "a/b" not in broker.retained


async def test_an_unacknowledged_message_comes_again_in_order() -> None:
    broker = MemoryBroker()
    bus = broker.bus()
    async with bus.connect(["a/+"]) as session:
        for number in range(4):
            broker.deliver("a/b", b"%d" % number)
        (first, *_, last) = await session.batch()
        first.ack()
        last.ack()
    broker.deliver("a/b", b"4")
    async with bus.connect(["a/+"]) as session:
        assert await payloads(session, 3) == [b"1", b"2", b"4"]


async def test_a_session_collects_messages_while_it_is_away() -> None:
    broker = MemoryBroker()
    await visit(broker.bus())
    async with broker.transport().connect() as link:
        await link.publish("a/b", b"1")
    async with broker.bus().connect(["a/+"]) as session:
        assert await payloads(session, 1) == [b"1"]


async def test_an_acknowledged_message_never_comes_again() -> None:
    broker = MemoryBroker()
    async with broker.bus().connect(["a/+"]) as session:
        broker.deliver("a/b", b"1")
        for delivery in await session.batch():
            delivery.ack()
            delivery.ack()
    async with broker.bus().connect(["a/+"]) as session:
        assert await nothing_more(session)


async def test_a_late_acknowledgement_of_an_old_connection_does_nothing() -> None:
    broker = MemoryBroker()
    async with broker.bus().connect(["a/+"]) as session:
        broker.deliver("a/b", b"1")
        (stale,) = await session.batch()
    async with broker.bus().connect(["a/+"]) as session:
        stale.ack()
        assert await payloads(session, 1) == [b"1"]
    async with broker.bus().connect(["a/+"]) as session:
        assert await payloads(session, 1) == [b"1"]


async def test_each_aggregator_has_its_own_session() -> None:
    broker = MemoryBroker()
    async with broker.bus("one").connect(["a/+"]) as one, broker.bus("two").connect(["a/+"]) as two:
        broker.deliver("a/b", b"1")
        assert await payloads(one, 1) == await payloads(two, 1) == [b"1"]


async def test_the_second_connection_of_a_session_ends_the_first() -> None:
    broker = MemoryBroker()
    async with broker.bus().connect(["a/+"]) as first, broker.bus().connect(["a/+"]) as second:
        broker.deliver("a/b", b"1")
        assert await payloads(second, 1) == [b"1"]
        with pytest.raises(BrokerError):
            await first.batch()


async def test_a_dropped_connection_raises_from_every_method() -> None:
    broker = MemoryBroker()
    async with broker.transport().connect() as link, broker.bus().connect(["a/+"]) as session:
        waiting = asyncio.create_task(link.receive())
        await asyncio.sleep(0)
        broker.drop()
        for call in (
            waiting,
            link.publish("a/b", b""),
            link.subscribe("a/b"),
            session.batch(),
            session.publish("a", b""),
        ):
            with pytest.raises(BrokerError, match="memory: "):
                await call


async def test_a_session_gets_no_more_than_its_window() -> None:
    broker = MemoryBroker(window=2)
    async with broker.bus().connect(["a/+"]) as session:
        for number in range(3):
            broker.deliver("a/b", b"%d" % number)
        (first, second) = await session.batch()
        assert await nothing_more(session)
        second.ack()
        assert await payloads(session, 1) == [b"2"]
        first.ack()
    assert broker.session().acknowledged == 2


async def test_a_forbidden_subscription_is_refused_and_others_work() -> None:
    broker = MemoryBroker()
    broker.forbidden.add("secret")
    async with broker.transport().connect() as link:
        with pytest.raises(SubscriptionRefusedError, match="secret"):
            await link.subscribe("secret")
        await link.subscribe("a/b")
        broker.deliver("secret", b"1")
        broker.deliver("a/b", b"2")
        assert await link.receive() == ("a/b", b"2")


async def test_a_broker_that_is_switched_off_admits_nobody() -> None:
    broker = MemoryBroker("kitchen")
    broker.reachable = False
    for way in (broker.transport().connect(), broker.bus().connect([])):
        with pytest.raises(BrokerError, match="kitchen: "):
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(way)


@pytest.mark.medium
async def test_each_report_counts_once_over_breaking_connections(tmp_path: Path) -> None:
    broker = MemoryBroker()
    counted, complete = 0, asyncio.Event()

    def on_commit(outcome: CommitOutcome) -> None:
        nonlocal counted
        counted += outcome.accepted
        if counted == 60:
            complete.set()

    with SqliteStore(tmp_path / "store.sqlite") as store:
        aggregator = Aggregator(broker.bus(), store, tasks=(TASK,), on_commit=on_commit)
        running = asyncio.create_task(aggregator.run())
        async with Gateway(broker.transport(), name="gateway", state=tmp_path / "state", spread=0) as gateway:
            for number in range(60):
                await gateway.report(f"device-{number}", "survey", number % 2, timeout=0.01 if number else None)
                if number % 7 == 0:
                    broker.drop()
            assert await gateway.flush(timeout=60)
        await asyncio.wait_for(complete.wait(), 60)
        assert (await aggregator.estimate("survey")).n == 60
        running.cancel()
        await asyncio.wait((running,))
