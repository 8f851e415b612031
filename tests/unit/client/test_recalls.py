"""A device keeps what the broker has acknowledged, and sends it once more where an aggregator asks: the same bytes."""

import asyncio
from pathlib import Path

from fake_transport import FakeTransport
from recalling import Wall, in_virtual_time, kept, make_recall, opened, publish, recalled


async def answered(broker: FakeTransport, state: Path, clock: Wall, devices: int = 3, **options: object) -> None:
    """So many devices of one gateway answer, and all of it is acknowledged."""
    async with opened(broker, state, clock, **options) as gateway:
        for number in range(devices):
            assert (await gateway.report(f"d{number}", "heights", 172.0)).status == "sent"


def test_a_recall_brings_every_acknowledged_report_once_more_with_the_same_bytes(tmp_path: Path) -> None:
    broker, clock = FakeTransport(), Wall()

    async def run() -> None:
        await answered(broker, tmp_path, clock)
        async with opened(broker, tmp_path, clock) as gateway:
            await asyncio.sleep(10)
            publish(broker, make_recall(1))
            await asyncio.sleep(61)
            assert await gateway.flush(timeout=1)

    in_virtual_time(run())
    assert len(broker.arrived) == 6
    assert sorted(broker.arrived[3:]) == sorted(broker.arrived[:3])
    assert set(recalled(broker).values()) == {1}
    assert len(kept(tmp_path)) == 3
    assert kept(tmp_path, "SELECT open FROM recall") == [0]
