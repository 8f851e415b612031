"""A cancellation that comes together with the result still ends the caller."""

import asyncio

import pytest

from hush_common.cancellation import cancellable


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
