"""Patience with reports of unknown tasks: while new tasks arrive, and no longer than it takes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing

import pytest
from virtual_time import VirtualLoop

from hush_aggregator.intake import PendingReports, ReportMessage, receive
from hush_common.topics import Delivery

LATER, NOW = receive(Delivery(f"hush/v1/reports/{task}/d", b"") for task in ("later", "known")).reports
KNOWN = {"known"}


@pytest.fixture
def run() -> Iterator[Callable[[Callable[[], Awaitable[None]]], None]]:
    with closing(VirtualLoop()) as loop:
        yield lambda story: loop.run_until_complete(story())


def test_an_unknown_task_is_waited_for_and_a_known_one_is_not(run: Callable[..., None]) -> None:
    async def story() -> None:
        hold = PendingReports(1)
        assert hold.until is None
        assert hold.sift([LATER, NOW], KNOWN, extend=False) == [NOW]
        assert hold.until == pytest.approx(1, abs=1e-3)
        await asyncio.sleep(0.99)
        assert hold.sift([], KNOWN, extend=False) == []
        await asyncio.sleep(0.02)
        assert hold.settled
        assert hold.sift([NOW], KNOWN, extend=False) == [LATER, NOW]

    run(story)


def test_a_new_task_extends_the_wait_by_as_much_again(run: Callable[..., None]) -> None:
    async def story() -> None:
        hold = PendingReports(1)
        await asyncio.sleep(0.9)
        assert hold.sift([LATER], KNOWN, extend=True) == []
        await asyncio.sleep(0.9)
        assert hold.sift([], {"known", "later"}, extend=False) == [LATER]
        await asyncio.sleep(0.2)
        assert hold.settled

    run(story)


def test_whoever_publishes_tasks_for_ever_cannot_extend_it_for_ever(run: Callable[..., None]) -> None:
    async def story() -> None:
        hold, turns = PendingReports(1), 0
        judged: list[ReportMessage] = []
        while not judged and turns < 40:
            await asyncio.sleep(0.5)
            turns += 1
            judged = hold.sift([LATER], KNOWN, extend=True)
        assert turns == pytest.approx(20, abs=1)
        assert judged == [LATER] * turns

    run(story)


def test_without_patience_nothing_is_held(run: Callable[..., None]) -> None:
    async def story() -> None:
        hold = PendingReports(0)
        await asyncio.sleep(0)
        assert hold.sift([LATER], KNOWN, extend=True) == [LATER]

    run(story)
