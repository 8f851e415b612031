"""Cancellation that always arrives, and delays between attempts."""

import asyncio
from typing import NoReturn
from unittest.mock import patch

import pytest

from hush_common.aio import Backoff, cancellable, run_to_completion, run_together
from hush_common.errors import BrokerError, StoreError, flatten_group


async def swallowing(result: asyncio.Future[int]) -> int:
    """What `asyncio.wait_for` does before Python 3.12, made certain: it lets the result win over a cancellation."""
    try:
        return await asyncio.shield(result)
    except asyncio.CancelledError:
        return await result


async def outcome(*, guarded: bool) -> bool:
    """Whether a cancelled task ended as cancelled."""
    result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    call = swallowing(result)
    task = asyncio.create_task(cancellable(call) if guarded else call)
    await asyncio.sleep(0)
    task.cancel()
    result.set_result(7)
    await asyncio.wait({task})
    return task.cancelled()


async def test_a_cancellation_is_never_swallowed() -> None:
    assert await outcome(guarded=True)


async def test_without_the_guard_it_is() -> None:
    assert not await outcome(guarded=False)


async def lose_a_connection(*, cancel: bool) -> asyncio.Task[None]:
    """A task that uses a connection, after its loss; `cancel` cancels it in the same turn of the loop."""
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
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    lost.set()
    if cancel:
        await asyncio.sleep(0)  # the error is raised, and has not reached the group yet
        task.cancel()
    await asyncio.wait({task})
    return task


async def test_a_cancellation_is_stronger_than_a_loss_that_comes_together_with_it() -> None:
    assert (await lose_a_connection(cancel=True)).cancelled()


async def test_a_loss_alone_is_no_cancellation() -> None:
    assert isinstance((await lose_a_connection(cancel=False)).exception(), BrokerError)


async def test_a_loop_that_goes_on_after_an_error_ends_if_the_error_comes_with_its_cancellation() -> None:
    begun, fails = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await fails.wait()
        raise StoreError("gone")

    async def loop(*, guarded: bool) -> NoReturn:
        while True:
            call = run_to_completion(work())
            try:
                await (cancellable(call, StoreError) if guarded else call)
            except StoreError:
                await asyncio.sleep(60)

    for guarded in (True, False):
        begun.clear()
        fails.clear()
        task = asyncio.create_task(loop(guarded=guarded))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        fails.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert task.done() is guarded
        task.cancel()
        await asyncio.wait({task})


async def test_work_goes_to_its_end_however_often_its_caller_is_cancelled() -> None:
    may_end, steps = asyncio.Event(), list[str]()

    async def work() -> None:
        await may_end.wait()
        steps.append("committed")

    task = asyncio.create_task(run_to_completion(work()))
    for _ in range(3):
        await asyncio.sleep(0.01)
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
        await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert sorted(ended) == ["a", "a", "b", "b"]


async def test_a_call_that_is_not_cancelled_gives_its_result() -> None:
    async def seven() -> int:
        return 7

    assert await cancellable(seven()) == 7


async def test_a_task_that_survived_an_earlier_cancellation_is_left_in_peace() -> None:
    async def earlier() -> int:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(10)
        return await cancellable(asyncio.sleep(0, 7))

    task = asyncio.create_task(earlier())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 7


def test_delays_double_up_to_half_a_minute_and_are_cut_by_half_at_most() -> None:
    backoff = Backoff()
    for usual in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30):
        assert backoff.longest == (usual == 30)
        assert usual / 2 <= backoff.next() < usual


def test_a_connection_that_held_lets_it_begin_anew() -> None:
    backoff = Backoff()
    for _ in range(12):
        backoff.next()
    backoff.reset()
    assert not backoff.longest
    assert backoff.next() < 0.1


def test_clients_that_lost_one_broker_come_back_at_different_times() -> None:
    delays = {Backoff().next() for _ in range(100)}
    assert len(delays) > 50  # of 1000: fewer would happen once in 1e38
    with patch("hush_common.rng.token_bytes", return_value=bytes(3)):
        assert Backoff().next() == 0.05


def test_the_leaves_of_a_group_are_those_of_the_groups_in_it_in_order() -> None:
    a, b, c = ValueError("a"), KeyError("b"), SystemExit("c")
    assert flatten_group(BaseExceptionGroup("", [ExceptionGroup("", [a, b]), c])) == [a, b, c]
    assert flatten_group(a) == [a]
