"""What another process writes into a store is noticed while its aggregator runs."""

import asyncio

import pytest

from hush_aggregator.delivery.closing import StoreWatcher


@pytest.mark.virtual_time
async def test_each_listener_is_called_once_for_a_change_and_in_order() -> None:
    numbers, called = [7], list[str]()

    async def changes() -> int:
        return numbers[-1]

    async def first() -> None:
        called.append("first")

    async def second() -> None:
        called.append("second")

    watch = StoreWatcher(changes)
    watch.add_listener(first)
    watch.add_listener(second)
    await watch.begin()
    running = asyncio.create_task(watch.run())
    for number, times in ((7, 0), (8, 1), (8, 1), (9, 2)):
        numbers.append(number)
        await asyncio.sleep(5)
        assert called == ["first", "second"] * times
    running.cancel()
