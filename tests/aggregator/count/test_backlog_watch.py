"""What the log says while a backlog is counted, and when it says nothing."""

import asyncio

import pytest
from virtual_time import VirtualLoop

from hush_aggregator.intake import BacklogWatch


async def count(watch: BacklogWatch, seconds: int, each: int, idle: float) -> None:
    """Count so many reports each second, and wait for messages for a share of it."""
    for _ in range(seconds):
        with watch.waiting():
            await asyncio.sleep(idle)
        await asyncio.sleep(1 - idle)
        watch.add(each)


def test_a_line_every_ten_seconds_and_one_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stored: list[int | None] = [900_000, 500_000, None]

    async def drain() -> None:
        watch = BacklogWatch(lambda: stored.pop(0))
        running = asyncio.create_task(watch.run())
        await asyncio.sleep(0)
        await count(watch, 10, 40_000, 0.0)
        await asyncio.sleep(0.5)
        assert watch.state is not None
        assert watch.state.rate == pytest.approx(watch.state.counted / 10, rel=1e-3)
        await count(watch, 20, 40_000, 0.1)
        await count(watch, 10, 10, 0.95)
        ended.append(watch.state is None)
        running.cancel()

    ended: list[bool] = []
    loop = VirtualLoop()
    loop.run_until_complete(drain())
    loop.close()
    assert ended == [True]
    first, second, third, last = caplog.messages
    assert first.startswith("draining a backlog: ")
    assert first.endswith(" a second, about 900000 wait on the broker")
    assert second.endswith(", about 500000 wait on the broker")
    assert third.endswith(" a second")
    assert last.startswith("drained a backlog: ")


@pytest.mark.parametrize(("each", "idle"), [(90, 0.0), (40_000, 0.5)])
def test_few_reports_and_an_intake_that_waits_for_messages_are_no_backlog(
    each: int, idle: float, caplog: pytest.LogCaptureFixture
) -> None:
    """A line for a few would tell when a single one came."""
    caplog.set_level("INFO")

    async def live() -> None:
        watch = BacklogWatch(lambda: None)
        running = asyncio.create_task(watch.run())
        await count(watch, 60, each, idle)
        assert watch.state is None
        running.cancel()

    loop = VirtualLoop()
    loop.run_until_complete(live())
    loop.close()
    assert caplog.messages == []
