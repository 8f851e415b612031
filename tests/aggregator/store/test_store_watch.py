"""What commands write into a store while its aggregator runs."""

import asyncio
from pathlib import Path

import pytest
from scripted_broker import ScriptedBroker

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.closing import StoreWatcher
from hush_aggregator.store import Origin, SqliteEditor
from hush_common.task import make_task

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})


async def test_each_listener_is_told_of_a_change_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_aggregator.closing._CHECK_EVERY_S", 0.0)
    numbers = iter([7, 7, 8, 8, 8, 9])
    told: list[str] = []

    async def changes() -> int:
        number = next(numbers, None)
        if number is None:
            raise asyncio.CancelledError
        return number

    async def first() -> None:
        told.append("first")

    async def second() -> None:
        told.append("second")

    watch = StoreWatcher(changes)
    watch.add_listener(first)
    watch.add_listener(second)
    await watch.begin()
    with pytest.raises(asyncio.CancelledError):
        await watch.run()
    assert told == ["first", "second"] * 2


async def test_a_running_aggregator_counts_a_task_that_a_command_adds(tmp_path: Path) -> None:
    bus = ScriptedBroker(retained={})
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        running = asyncio.create_task(Aggregator(bus, store).run(), name="aggregator")
        await bus.up.wait()
        with SqliteEditor(tmp_path / "hush.sqlite") as command:
            command.add_task(HEIGHTS, Origin.COMMAND)
        async with asyncio.timeout(60):
            while not bus.published:  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0.02)
        running.cancel()
        await asyncio.wait({running})
