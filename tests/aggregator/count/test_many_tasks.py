"""Thousands of tasks: decided together and published many at a time, whatever an acknowledgement takes."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from virtual_time import VirtualLoop

from hush_aggregator import SqliteStore
from hush_aggregator.ownership import TAKE_OVER, Ownership, OwnershipClaim
from hush_aggregator.store import Owner
from hush_aggregator.tasks import KnownTasks
from hush_common.aio import AT_ONCE, run_all
from hush_common.errors import BrokerError
from hush_common.task import make_task
from hush_common.topics import Delivery, estimate_topic, task_topic

MANY = 300
TASKS = [make_task({"id": f"task-{k}", "epsilon": "1", "domain": {"kind": "bit"}}) for k in range(MANY)]
ACKNOWLEDGED_S = 0.05


class Broker:
    """A session that acknowledges late and gives back what it is sent; it counts what is under way."""

    waiting = 0
    resumed = False
    repeated = 0
    current_until = 0.0

    def acknowledge(self, numbers: Iterable[int]) -> None:
        raise NotImplementedError

    def __init__(self) -> None:
        self.retained: dict[str, bytes] = {}
        self.published: list[str] = []
        self.most = self.under_way = 0
        self.listen: Callable[[str, bytes], object] = lambda *_: None

    async def look(self, topics: Sequence[str], listen: Callable[[str, bytes], object]) -> None:
        self.listen = listen
        for topic in topics:
            if topic in self.retained:
                listen(topic, self.retained[topic])

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(ACKNOWLEDGED_S)
        finally:
            self.under_way -= 1
        self.published.append(topic)
        if retain:
            self.retained[topic] = payload
        self.listen(topic, payload)

    async def watch(self, listen: Callable[[str, bytes], object]) -> None:
        raise NotImplementedError

    async def hear(self, topic: str, listen: Callable[[str, bytes], object]) -> None:
        raise NotImplementedError

    async def batch(self) -> list[Delivery]:
        raise NotImplementedError


class World:
    """A store with many tasks, whose ownership is decided at a broker."""

    def __init__(self, store: SqliteStore) -> None:
        self.store, self.broker = store, Broker()
        store.add_tasks(TASKS)
        self.tasks = KnownTasks(store, ())
        self.tasks.load()
        self.gained: list[str] = []
        self.ownership = Ownership(
            store,
            self.tasks,
            self._at_once,
            settle_s=0,
            on_acquired=lambda task_id, _: self.gained.append(task_id),
            on_estimate=len,
        )

    @staticmethod
    async def _at_once(call: Callable[[], Any]) -> Any:  # noqa: ANN401 - of whatever the store returns
        return call()

    async def serve(self, seconds: float) -> int:
        """How many transactions that took."""
        before = self.store.version()
        serving = asyncio.create_task(self.ownership.serve(self.broker), name="serve")
        await asyncio.wait({serving}, timeout=seconds)
        serving.cancel()
        await asyncio.wait({serving})
        return self.store.version() - before

    @property
    def owners(self) -> set[str]:
        return {row.owner for row in self.store.task_rows()}


@pytest.fixture
def run() -> Iterator[Callable[[Awaitable[Any]], Any]]:
    loop = VirtualLoop()
    yield loop.run_until_complete
    loop.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with SqliteStore(tmp_path / "store") as store:
        yield World(store)


Run = Callable[[Awaitable[Any]], Any]


def test_all_are_decided_in_one_transaction_and_published_without_waiting_for_each_other(
    run: Run, world: World
) -> None:
    assert run(world.serve(1.0)) == 1, "they are owned"
    assert world.owners == {world.store.public_identity}
    assert sorted(world.gained) == sorted(task.id for task in TASKS)
    assert {world.broker.retained[task_topic(task.id)] for task in TASKS} == {task.payload for task in TASKS}
    assert 10 < world.broker.most <= AT_ONCE
    assert run(world.serve(1.0)) == 1, "they are found again, which their term says"
    assert run(world.serve(1.0)) == 0, "nothing is new"
    assert len(world.gained) == 3 * MANY


def test_all_that_others_own_is_kept_in_one_transaction_and_nothing_of_it_published(run: Run, world: World) -> None:
    other = "f" * 32
    for task in TASKS:
        claim = {"store": other, "term": 0, "digest": task.digest.hex(), "n": 5}
        world.broker.retained[estimate_topic(task.id)] = json.dumps(claim).encode()
    assert run(world.serve(1.0)) == 1
    assert world.owners == {other}
    assert (world.broker.published, world.gained) == ([], [])


def test_of_claims_that_come_together_each_is_yielded_to_in_one_transaction(run: Run, world: World) -> None:
    other = "f" * 32

    async def story() -> int:
        serving = asyncio.create_task(world.serve(3.0))
        await asyncio.sleep(1)
        for task in TASKS[:200]:
            claim = {"store": other, "term": 7, "digest": task.digest.hex(), "n": 5}
            world.broker.listen(estimate_topic(task.id), json.dumps(claim).encode())
        return await serving

    assert run(story()) == 2
    owners = {row.id: row.owner for row in world.store.task_rows()}
    for k, task in enumerate(TASKS):
        assert (owners[task.id] == other) == (k < 200) == (not world.ownership.owns(task.id))


def test_what_is_taken_over_while_the_others_are_decided_is_taken_over(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = world.ownership._note

    async def late(notes: Any) -> None:  # noqa: ANN401 - as there
        if not world.store.task_rows()[0].taken_from:
            row = world.store.task_rows()[0]
            world.store.set_owners([Owner(row.id, "e" * 32, 4, TAKE_OVER)])  # a command, in between
        await note(notes)

    async def story() -> OwnershipClaim | None:
        monkeypatch.setattr(world.ownership, "_note", late)
        serving = asyncio.create_task(world.serve(3.0))
        await asyncio.sleep(1)
        world.ownership.look_at(world.tasks.refreshed())  # as the watch of the store tells
        await serving
        return world.ownership._states[world.store.task_rows()[0].id].mine

    assert run(story()) == OwnershipClaim(world.store.public_identity, 5, "e" * 32)
    row = world.store.task_rows()[0]
    assert (row.owner, row.term, row.taken_from) == (world.store.public_identity, 5, "e" * 32)


def test_many_that_are_overwritten_are_published_again_without_waiting_for_each_other(run: Run, world: World) -> None:
    async def story() -> None:
        serving = asyncio.create_task(world.serve(3.0))
        await asyncio.sleep(1)
        world.broker.published.clear()
        for task in TASKS:
            world.broker.listen(task_topic(task.id), b"{}")
        await asyncio.sleep(10 * ACKNOWLEDGED_S)
        assert sorted(world.broker.published) == sorted(task_topic(task.id) for task in TASKS)
        await serving

    run(story())


def test_calls_begin_in_order_and_only_so_many_run_at_once(run: Run) -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def call(k: int) -> None:
        begun.append(k)
        assert len(begun) - len(ended) <= 7
        await asyncio.sleep(1 if k % 3 else 2)
        ended.append(k)

    run(run_all((partial(call, k) for k in range(40)), at_once=7))
    assert begun == list(range(40))
    assert sorted(ended) == begun


def test_the_first_call_that_fails_ends_the_others_and_its_error_is_told(run: Run) -> None:
    begun: list[int] = []
    cancelled: list[int] = []

    async def call(k: int) -> None:
        begun.append(k)
        try:
            await asyncio.sleep(1 + k / 100)
        except asyncio.CancelledError:
            cancelled.append(k)
            raise
        if k == 3:
            raise BrokerError("fake", "the connection was lost")

    with pytest.raises(BrokerError, match="the connection was lost"):
        run(run_all((partial(call, k) for k in range(40)), at_once=7))
    assert begun == list(range(7 + 3))
    assert sorted(cancelled) == [4, 5, 6, 7, 8, 9]
