"""The lease of the worker that publishes, by a clock that the tests set: a worker that may have lost it is silent."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

import pytest
from fake_bus import FakeBus
from group_world import Lease
from waiting import until

from hush_aggregator.aggregator import Aggregator
from hush_aggregator.store import SqliteStore
from hush_aggregator.workers import LEASE_S, LeasedSession, LeaseKeeper, LeaseLostError, WorkerGroup

if TYPE_CHECKING:
    from hush_aggregator.broker.session import BrokerSession


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
        self.keeper = LeaseKeeper(WorkerGroup("g", name, row.of(name), lambda: row.now), self._ask)
        self.sent, self.begun = Sent(), 0
        self._session = self._connect()

    async def _ask(self, what: Callable[[], T]) -> T:
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


async def test_a_worker_whose_database_does_not_answer_is_silent_before_another_may_begin() -> None:
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


async def test_a_worker_that_takes_its_own_lease_again_after_it_ended_begins_again_under_a_new_number() -> None:
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


async def test_no_estimate_is_due_to_a_worker_that_publishes_nothing(tmp_path: Path) -> None:
    """Else its metrics would raise the alarm of late estimates."""
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        member = Aggregator(FakeBus(), store, group=WorkerGroup("g", "1", Lease().of("1")))
        alone = Aggregator(FakeBus(), store)
        for one in (member, alone):
            one._publisher.mark({"heights"})
        assert (member.estimates.due, alone.estimates.due) == (0, 1)
