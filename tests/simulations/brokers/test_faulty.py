"""Links that lose, repeat, delay and reorder messages, each as its fate says."""

import asyncio

import pytest

from hush_common.errors import BrokerError
from hush_simulations.brokers.faulty import Fate, FaultyTransport
from hush_simulations.brokers.memory import MemoryBroker
from hush_simulations.engines.live import FaultDraws
from hush_simulations.scenarios.behaviour import Faults

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.session().filters.append("a/+")
    return broker


@pytest.mark.parametrize(
    ("fate", "arrived", "acknowledged"),
    [
        (Fate.GOOD, 1, True),
        (Fate.LATE, 1, True),
        (Fate.TWICE, 2, True),
        (Fate.LOST, 0, False),
        (Fate.CUT, 1, False),
        (Fate.NEVER, 1, False),
    ],
)
async def test_each_fate_is_what_its_name_says(
    broker: MemoryBroker, fate: Fate, arrived: int, *, acknowledged: bool
) -> None:
    asked: list[tuple[str, bytes]] = []

    def decide(topic: str, payload: bytes) -> Fate:
        asked.append((topic, payload))
        return fate

    loop = asyncio.get_running_loop()
    async with FaultyTransport(broker.transport(), decide, lambda: 0.2).connect() as link:
        began = loop.time()
        if acknowledged:
            await link.publish("a/b", b"1")
        else:
            with pytest.raises(BrokerError, match="memory: "):
                await link.publish("a/b", b"1")
            with pytest.raises(BrokerError):
                await link.subscribe("a/b")
        took = loop.time() - began
    assert (took >= 0.09) == (fate in (Fate.LATE, Fate.NEVER))
    assert asked == [("a/b", b"1")]
    assert len(broker.session().waiting) == arrived


async def test_a_cut_link_raises_from_every_method_and_the_next_works(broker: MemoryBroker) -> None:
    transport = FaultyTransport(broker.transport(), lambda _topic, _payload: Fate.GOOD)
    async with transport.connect() as link:
        receiving = asyncio.create_task(link.receive())
        await asyncio.sleep(0)
        transport.drop()
        for call in (receiving, link.publish("a/b", b"1"), link.subscribe("a/b")):
            with pytest.raises(BrokerError):
                await call
    transport.drop()  # there is none
    async with transport.connect() as link:
        await link.subscribe("a/b")
        await link.publish("a/b", b"2")
        assert await link.receive() == ("a/b", b"2")


async def test_a_reordered_message_arrives_after_a_later_one(broker: MemoryBroker) -> None:
    def decide(_topic: str, payload: bytes) -> Fate:
        return Fate.REORDERED if payload in {b"1", b"2"} else Fate.GOOD

    async with (
        FaultyTransport(broker.transport(), decide, lambda: 30.0).connect() as link,
        asyncio.TaskGroup() as group,
    ):
        for payload in (b"1", b"2", b"3"):
            group.create_task(link.publish("a/b", payload))
    assert broker.session().waiting[0][1] == b"3"
    assert sorted(payload for _, payload in broker.session().waiting) == [b"1", b"2", b"3"]


async def test_a_reordered_message_without_a_later_one_still_arrives(
    broker: MemoryBroker,
) -> None:
    transport = FaultyTransport(broker.transport(), lambda _topic, _payload: Fate.REORDERED, lambda: 0.01)
    async with transport.connect() as link:
        await link.publish("a/b", b"1")
    transport.lateness = lambda: 30.0
    async with transport.connect() as link:
        held = asyncio.create_task(link.publish("a/b", b"2"))
        await asyncio.sleep(0)
        transport.drop()
        with pytest.raises(BrokerError):
            await held
    assert [payload for _, payload in broker.session().waiting] == [b"1"]


async def test_a_scenario_that_reorders_loses_nothing(broker: MemoryBroker) -> None:
    trouble = FaultDraws(Faults(reordered=0.5), "a/", 1)
    sent = [bytes([number]) for number in range(60)]
    async with trouble.around(broker.transport()).connect() as link, asyncio.TaskGroup() as group:
        for payload in sent:
            group.create_task(link.publish("a/b", payload))
    arrived = [payload for _, payload in broker.session().waiting]
    assert sorted(arrived) == sent != arrived


async def test_an_unreachable_broker_admits_nobody(broker: MemoryBroker) -> None:
    transport = FaultyTransport(broker.transport(), lambda _topic, _payload: Fate.GOOD, reachable=False)
    with pytest.raises(BrokerError, match="memory: "):
        async with transport.connect():
            pytest.fail("it did")
