"""The first visit of a service that has just started: counts at once, estimates as they are made."""

import asyncio
from pathlib import Path

import pytest
from http_world import asked
from page_tasks import count

from hush import Task
from hush_aggregator import Estimate, SqliteStore
from hush_aggregator.estimation import Failure, ThreadEstimator
from hush_aggregator.http import service as http_service
from hush_aggregator.http.service import Service, StoreService
from hush_aggregator.tally import Tally
from hush_common.task import make_task

PATIENCE_S = 60


class HeldEstimator(ThreadEstimator):
    """Makes no estimate of a held task until it is released, and counts those that it makes at the same time."""

    def __init__(self, *held: str) -> None:
        self.held = held
        self.released = asyncio.Event()
        self.now = self.most = 0

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        self.now += 1
        self.most = max(self.most, self.now)
        if task.id in self.held:
            await self.released.wait()
        made = await super().__call__(task, tally, confidence)
        self.now -= 1
        return made


def make_store(path: Path, tasks: int) -> list[Task]:
    """Tasks with three reports each."""
    made = [make_task({"id": f"t{k:02}", "epsilon": "1", "domain": {"kind": "bit"}}) for k in range(tasks)]
    with SqliteStore(path) as store:
        for task in made:
            store.add_task(task)
            count(store, task, [True, False, True])
    return made


async def test_a_long_list_has_its_counts_before_any_estimate_is_made(tmp_path: Path) -> None:
    tasks = make_store(tmp_path / "store", 30)
    estimator = HeldEstimator(*(task.id for task in tasks))
    async with asked(Service(tmp_path / "store", estimator=estimator)) as client, asyncio.timeout(PATIENCE_S):
        first = (await client.get("/")).text
        assert first.count("Being calculated") == len(tasks)
        assert first.count('data-figure="n"') == len(tasks)
        estimator.released.set()
        while "Being calculated" in (await client.get("/")).text:
            pass


async def test_a_short_list_waits_for_its_estimates(tmp_path: Path) -> None:
    make_store(tmp_path / "store", 3)
    async with asked(Service(tmp_path / "store", estimator=HeldEstimator())) as client:
        assert "Being calculated" not in (await client.get("/")).text


async def test_quick_estimates_are_made_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_service, "_SHORT_S", PATIENCE_S)
    tasks, estimator = make_store(tmp_path / "store", 8), HeldEstimator()
    reading = StoreService(tmp_path / "store", estimator=estimator)
    await asyncio.gather(*(reading.result(task) for task in tasks))
    await reading.close()
    assert estimator.most == 1


async def test_a_slow_estimate_delays_no_other_one(tmp_path: Path) -> None:
    slow, *others = make_store(tmp_path / "store", 4)
    estimator = HeldEstimator(slow.id)
    reading = StoreService(tmp_path / "store", estimator=estimator)
    waiting = asyncio.create_task(reading.result(slow))
    async with asyncio.timeout(PATIENCE_S):
        assert all(result.n == 3 for result in await asyncio.gather(*map(reading.result, others)))
        assert not waiting.done()
        estimator.released.set()
        assert (await waiting).n == 3
    await reading.close()
    assert estimator.most == 2
