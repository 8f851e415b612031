import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from hush_common.errors import BrokerError
from hush_common.topics import ALL_REPORTS, ALL_TASKS
from hush_simulations.brokers.memory import MemoryBroker
from hush_simulations.engines.live import SingleTaskBroker, VirtualClock


async def test_a_watched_bus_sees_one_task_and_no_other() -> None:
    broker = MemoryBroker()
    async with SingleTaskBroker(broker.bus(), "mine").connect([ALL_TASKS, ALL_REPORTS]) as session:
        for task in ("theirs", "mine"):
            broker.deliver(f"hush/v1/tasks/{task}", b"task")
            broker.deliver(f"hush/v1/reports/{task}/device", b"report")
        topics = [delivery.topic for delivery in await session.batch()]
    assert topics == ["hush/v1/tasks/mine", "hush/v1/reports/mine/device"]


async def test_a_watched_bus_knows_whether_it_is_connected_and_why_not() -> None:
    broker = MemoryBroker()
    bus = SingleTaskBroker(broker.bus(), "mine")
    broker.reachable = False
    with pytest.raises(BrokerError):
        await asyncio.wait_for(_visit(bus), 60)
    assert _state(bus) == (True, False, True, "memory: cannot connect (the broker is switched off)")
    broker.reachable = True
    async with bus.connect([]):
        assert _state(bus) == (True, True, False, "None")
    assert not bus.connected.is_set()


def _state(bus: SingleTaskBroker) -> tuple[bool, bool, bool, str]:
    return bus.attempted.is_set(), bus.connected.is_set(), bus.troubled.is_set(), str(bus.trouble)


async def _visit(bus: SingleTaskBroker) -> None:
    async with bus.connect([]):
        pass


def test_a_virtual_clock_runs_and_is_only_turned_forward() -> None:
    clock = VirtualClock(datetime(2030, 1, 1, tzinfo=UTC))
    assert timedelta(0) <= clock() - datetime(2030, 1, 1, tzinfo=UTC) < timedelta(minutes=1)
    clock.turn_to(datetime(2030, 1, 2, tzinfo=UTC))
    assert clock() >= datetime(2030, 1, 2, tzinfo=UTC)
    clock.turn_to(datetime(2030, 1, 1, tzinfo=UTC))
    assert clock() >= datetime(2030, 1, 2, tzinfo=UTC)
