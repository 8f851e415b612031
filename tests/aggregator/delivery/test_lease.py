"""The lease of the worker that publishes, by a clock that the tests set: a worker that may have lost it is silent."""

import asyncio
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import pytest
from broker_world import Lease
from waiting import until

from hush_aggregator.delivery.workers import (
    LEASE_S,
    LeasedSession,
    LeaseKeeper,
    LeaseLostError,
    SharedSession,
    WorkerGroup,
    drain,
)
from hush_common.aio import run_to_completion
from hush_common.errors import StoreError

if TYPE_CHECKING:
    from hush_aggregator.delivery.session import BrokerSession
pytestmark = pytest.mark.virtual_time
T = TypeVar("T")


class Sent:
    """A session that notes what is published."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        del payload, retain
        self.topics.append(topic)


class Worker:
    """A worker that publishes all the time."""

    def __init__(self, row: Lease, name: str) -> None:
        self._row = row
        self.keeper = LeaseKeeper(WorkerGroup("g", name, row.of(name), lambda: row.now), self.ask)
        self.sent, self.begun = Sent(), 0
        self._session = self._connect()

    async def ask(self, what: Callable[[], T]) -> T:
        await self._row.answers.wait()
        return what()

    async def publish_once(self) -> None:
        await self._session.publish("hush/v1/estimates/heights", b"{}", retain=True)

    def _connect(self) -> LeasedSession:
        return self.keeper.guard(cast("BrokerSession", self.sent))

    async def publish(self) -> NoReturn:
        self._session = self._connect()
        self.begun += 1
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("away", [LEASE_S, 60.0])
async def test_a_worker_that_was_stopped_publishes_nothing_when_it_goes_on(away: float) -> None:
    row = Lease()
    worker = Worker(row, "1")
    running = asyncio.create_task(worker.keeper.run(worker.publish))
    await until(lambda: worker.begun)
    await worker.publish_once()
    row.ahead += away  # nothing ran meanwhile, not even the renewal
    with pytest.raises(LeaseLostError):
        await worker.publish_once()
    assert (worker.keeper.number, len(worker.sent.topics)) == (None, 1)
    running.cancel()
    await asyncio.wait({running})


async def test_a_worker_is_silent_before_another_may_begin() -> None:
    row = Lease()
    worker = Worker(row, "1")
    running = asyncio.create_task(worker.keeper.run(worker.publish))
    await until(lambda: worker.begun)
    row.answers.clear()
    row.ahead = row.expires - 0.4  # clocks of two machines differ by a little
    assert row.of("2").take_lease(LEASE_S) is None
    with pytest.raises(LeaseLostError):
        await worker.publish_once()
    row.ahead = row.expires
    assert row.of("2").take_lease(LEASE_S) == 2
    running.cancel()
    row.answers.set()
    await asyncio.wait({running})
    assert row.holder == "2", "the former holder ended a lease that it does not have"
    assert row.expires > row.now


async def test_a_worker_begins_again_under_a_new_number() -> None:
    row = Lease()
    worker = Worker(row, "1")
    running = asyncio.create_task(worker.keeper.run(worker.publish))
    await until(lambda: worker.begun)
    assert (worker.keeper.number, worker.begun) == (1, 1)
    row.ahead += 60
    await until(lambda: worker.begun > 1)
    assert worker.keeper.number == 2
    running.cancel()
    await asyncio.wait({running})
    assert row.of("2").take_lease(LEASE_S) == 3, "a worker that ends in order leaves its lease at once"


async def test_a_worker_ends_its_lease_after_the_last_publication() -> None:
    row, begun, ended = Lease(), asyncio.Event(), list[str]()

    async def publish() -> NoReturn:
        begun.set()
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append(row.holder if row.expires > row.now else "")
        raise asyncio.CancelledError

    running = asyncio.create_task(Worker(row, "1").keeper.run(publish))
    await begun.wait()
    for _ in range(2):
        running.cancel()
        await asyncio.sleep(0.01)
    await asyncio.wait({running})
    assert ended == ["1", "1"]
    assert row.expires <= row.now


@pytest.mark.parametrize("times", [1, 2])
async def test_what_fails_while_a_worker_leaves_is_not_reported_as_an_error(times: int) -> None:
    loop, is_asked, may_fail, reported = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event(), list[object]()
    loop.set_exception_handler(lambda _, context: reported.append(context))

    async def commit() -> None:
        await may_fail.wait()
        raise StoreError("gone")

    async def receive() -> NoReturn:
        await run_to_completion(commit())
        raise AssertionError

    async def is_followed() -> bool:
        is_asked.set()
        await asyncio.Event().wait()
        return True

    draining = asyncio.create_task(drain(cast("SharedSession", Sent()), "", receive(), is_followed=is_followed))
    await is_asked.wait()
    for _ in range(times):
        draining.cancel()
        await asyncio.sleep(0)
    may_fail.set()
    await asyncio.wait({draining})
    del draining  # its error refers to the task that receives
    await until(lambda: not any(task.get_name() == "hush-drain" for task in asyncio.all_tasks()))
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []


async def test_a_worker_that_cannot_ask_does_not_say_that_it_is_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    row = Lease()
    keeper = LeaseKeeper(WorkerGroup("g", "1", row.of("1"), lambda: row.now), Worker(row, "1").ask)
    running = asyncio.create_task(keeper.run(Worker(row, "1").publish))
    await until(lambda: keeper.number is not None)
    running.cancel()
    await asyncio.wait({running})
    row.is_down = True
    receive = asyncio.Event().wait()
    await drain(cast("SharedSession", Sent()), "", cast("Any", receive), is_followed=keeper.is_followed)
    assert "store" in caplog.messages[-1]
    assert "no other worker" not in caplog.text
