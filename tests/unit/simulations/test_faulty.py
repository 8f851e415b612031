import asyncio

import pytest

from hush_common.errors import BrokerError
from hush_simulations.brokers.faulty import Fate, FaultyTransport
from hush_simulations.brokers.memory import MemoryBroker


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
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, fate: Fate, arrived: int, *, acknowledged: bool
) -> None:
    monkeypatch.setattr("hush_simulations.brokers.faulty._PATIENCE_SECONDS", 0.1)
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
            with pytest.raises(BrokerError, match="memory: the connection is lost"):
                await link.publish("a/b", b"1")
            with pytest.raises(BrokerError, match="lost"):
                await link.subscribe("a/b")
        took = loop.time() - began
    assert (took >= 0.09) == (fate in (Fate.LATE, Fate.NEVER))
    assert asked == [("a/b", b"1")]
    assert len(broker.session().waiting) == arrived


async def test_a_link_that_is_cut_raises_from_every_method_and_the_next_is_good(broker: MemoryBroker) -> None:
    transport = FaultyTransport(broker.transport(), lambda _topic, _payload: Fate.GOOD)
    async with transport.connect() as link:
        receiving = asyncio.create_task(link.receive())
        await asyncio.sleep(0)
        transport.drop()
        for call in (receiving, link.publish("a/b", b"1"), link.subscribe("a/b")):
            with pytest.raises(BrokerError, match="lost"):
                await call
    transport.drop()  # there is none
    async with transport.connect() as link:
        await link.subscribe("a/b")
        await link.publish("a/b", b"2")
        assert await link.receive() == ("a/b", b"2")


async def test_a_broker_out_of_reach_admits_nobody(broker: MemoryBroker) -> None:
    transport = FaultyTransport(broker.transport(), lambda _topic, _payload: Fate.GOOD, reachable=False)
    with pytest.raises(BrokerError, match="memory: cannot connect"):
        async with transport.connect():
            pytest.fail("it did")
