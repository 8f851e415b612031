"""How long the calls of a store wait for its server, together."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import pytest

from hush_aggregator.count.store_thread import PATIENCE_S, StoreThread
from hush_common.errors import StoreError, StoreUnavailableError, UnknownCommitError

pytestmark = pytest.mark.virtual_time


def failing(error: StoreError) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


async def calls(first: StoreError) -> tuple[float, list[type[StoreError]]]:
    """Make two calls of a store that stays away; return the seconds that the second waits, and what they raise."""
    thread, raised = StoreThread(), list[type[StoreError]]()
    running = asyncio.create_task(thread.run())
    await asyncio.sleep(0)
    began = 0.0
    for error in (first, StoreUnavailableError("away")):
        began = asyncio.get_running_loop().time()
        try:
            await thread.call(failing(error))
        except StoreError as found:
            raised.append(type(found))
    waited = asyncio.get_running_loop().time() - began
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return waited, raised


async def test_no_call_waits_for_a_server_that_was_waited_for_in_a_commit(caplog: pytest.LogCaptureFixture) -> None:
    waited, raised = await calls(UnknownCommitError("away"))
    assert raised == [UnknownCommitError, StoreUnavailableError]
    assert waited < 1
    assert "trying again" not in caplog.text


async def test_a_call_that_alone_fails_ends_although_the_others_succeed() -> None:
    thread = StoreThread()

    async def succeed() -> None:
        while True:
            await thread.call(int)
            await asyncio.sleep(0.1)

    others = [asyncio.create_task(thread.run()), asyncio.create_task(succeed())]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        with pytest.raises(StoreUnavailableError, match="idle"):
            await thread.call(failing(StoreUnavailableError("idle in a transaction")))
    for one in others:
        one.cancel()
    await asyncio.wait(others)


async def test_a_call_after_another_failure_waits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    waited, raised = await calls(StoreError("no space left"))
    assert raised == [StoreError, StoreUnavailableError]
    assert waited >= PATIENCE_S
    assert "trying again" in caplog.text
