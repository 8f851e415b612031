"""A cancellation that comes together with the result still ends the caller."""

import asyncio

import pytest

from hush_common.aio import cancellable
from hush_common.errors import BrokerError


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
