"""Cancellation that always arrives, and delays between attempts."""

import asyncio
from typing import NoReturn
from unittest.mock import patch

import pytest

from hush_common.aio import Backoff, cancellable, run_all, run_to_completion, run_together
from hush_common.errors import BrokerError, StoreError, flatten_group

pytestmark = pytest.mark.virtual_time


async def turns(count: int = 10) -> None:
    """Let every task that can go on do so."""
    for _ in range(count):
        await asyncio.sleep(0)


async def swallowing(result: asyncio.Future[int]) -> int:
    """What `asyncio.wait_for` does before Python 3.12, made certain: it lets the result win over a cancellation."""
    try:
        return await asyncio.shield(result)
    except asyncio.CancelledError:
        return await result


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_cancellation_is_never_swallowed(*, guarded: bool) -> None:
    result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    call = swallowing(result)
    task = asyncio.create_task(cancellable(call) if guarded else call)
    await asyncio.sleep(0)
    task.cancel()
    result.set_result(7)
    await asyncio.wait({task})
    assert task.cancelled() is guarded


@pytest.mark.parametrize("cancel", [True, False])
async def test_a_cancellation_is_stronger_than_a_loss_at_the_same_time(*, cancel: bool) -> None:
    lost = asyncio.Event()

    async def use() -> None:
        await lost.wait()
        raise BrokerError("fake", "lost")

    async def serve() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(use())
                await asyncio.Event().wait()
        except ExceptionGroup as errors:  # not except*: before Python 3.11.4 that wraps what it raises
            raise errors.exceptions[0] from None

    task = asyncio.create_task(cancellable(serve()))
    await turns(2)
    lost.set()
    if cancel:
        await asyncio.sleep(0)  # the error is raised, and has not reached the group yet
        task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() is cancel
    assert cancel or isinstance(task.exception(), BrokerError)


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_loop_that_survives_errors_ends_when_it_is_cancelled(*, guarded: bool) -> None:
    begun, fails = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await fails.wait()
        raise StoreError("gone")

    async def loop() -> NoReturn:
        while True:
            call = run_to_completion(work())
            try:
                await (cancellable(call, StoreError) if guarded else call)
            except StoreError:
                await asyncio.Event().wait()

    task = asyncio.create_task(loop())
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    fails.set()
    await turns()
    assert task.done() is guarded
    task.cancel()
    await asyncio.wait({task})


async def test_work_goes_to_its_end_however_often_it_is_cancelled() -> None:
    may_end, steps = asyncio.Event(), list[str]()

    async def work() -> None:
        await may_end.wait()
        steps.append("committed")

    task = asyncio.create_task(run_to_completion(work()))
    for _ in range(3):
        await turns()
        assert not task.done()
        task.cancel()
    may_end.set()
    await asyncio.wait({task})
    assert task.cancelled()
    assert steps == ["committed"]


async def waits(ended: list[str], name: str, error: Exception | None = None, *, cancellations: int = 1) -> NoReturn:
    """Fail at once with an error; without one, end after so many cancellations."""
    if error is not None:
        raise error
    for _ in range(cancellations):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(name)
    raise asyncio.CancelledError


async def test_works_end_with_the_first_error_that_matters() -> None:
    ended: list[str] = []
    works = {
        "link": waits(ended, "link", BrokerError("fake", "lost")),
        "store": waits(ended, "store", StoreError("gone")),
        "other": waits(ended, "other"),
    }
    with pytest.raises(StoreError, match="gone"):
        await run_together(works, least=BrokerError)
    assert ended == ["other"]


async def test_every_cancellation_reaches_every_work() -> None:
    ended: list[str] = []
    works = {name: waits(ended, name, cancellations=2) for name in "ab"}
    task = asyncio.create_task(run_together(works, least=BrokerError))
    for _ in range(2):
        await turns()
        assert not task.done()
        task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert sorted(ended) == ["a", "a", "b", "b"]


async def test_a_task_that_survived_an_earlier_cancellation_goes_on() -> None:
    async def earlier() -> int:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.Event().wait()
        return await cancellable(asyncio.sleep(0, 7))

    task = asyncio.create_task(earlier())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 7


async def test_calls_run_in_order_and_no_more_at_once_than_asked() -> None:
    running, most, done = 0, 0, list[int]()

    async def call(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        done.append(number)

    await run_all([lambda number=number: call(number) for number in range(10)], at_once=3)  # type: ignore[misc]
    assert (most, done) == (3, [*range(10)])
    await run_all([])


def test_delays_double_up_to_half_a_minute() -> None:
    backoff = Backoff()
    for usual in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30):
        assert backoff.longest == (usual == 30)
        assert usual / 2 <= backoff.next() < usual
    backoff.reset()
    assert not backoff.longest
    assert backoff.next() < 0.1


def test_clients_that_lost_one_broker_come_back_at_different_times() -> None:
    delays = {Backoff().next() for _ in range(100)}
    assert len(delays) > 50  # of 1000: fewer would happen once in 1e38
    with patch("hush_common.rng.token_bytes", return_value=bytes(3)):
        assert Backoff().next() == 0.05


def test_the_leaves_of_a_group_are_those_of_its_groups_in_order() -> None:
    a, b, c = ValueError("a"), KeyError("b"), SystemExit("c")
    assert flatten_group(BaseExceptionGroup("", [ExceptionGroup("", [a, b]), c])) == [a, b, c]
    assert flatten_group(a) == [a]
