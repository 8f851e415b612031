"""Results of the tasks in a store: of a round, of the latest ones, and of all rounds together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from hush_aggregator.count.tasks import stored_task
from hush_aggregator.estimate.pooled_rounds import combine
from hush_aggregator.estimate.process import Estimator, ThreadEstimator
from hush_aggregator.estimate.result import Result, RoundCounts, result_of, utc_now
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.store.base import WHOLE_TASK, StoreReader
from hush_common.errors import TaskError
from hush_common.task import Task


class ResultReader:
    """Gives the result of any round of any task in a store. It counts nothing, and needs no broker.

    Args:
        store: read in threads; `SqliteReader` for one that another process writes.
        confidence: nominal coverage of the intervals, inside (0, 1).
        estimator: makes the estimates, by default in a thread.
        clock: the time, aware.
        run: calls a function that reads the store, by default in a thread of the event loop.
    """

    def __init__(
        self,
        store: StoreReader,
        *,
        confidence: float = 0.95,
        estimator: Estimator | None = None,
        clock: Callable[[], datetime] = utc_now,
        run: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self._store = store
        self._confidence = confidence
        self._estimator = estimator or ThreadEstimator()
        self._clock = clock
        self._run = run
        self._tasks: dict[str, Task] = {}  # those asked for: a task never changes

    async def result(self, task_id: str, round_: int = 0) -> Result:
        """The result of a round, from what is committed now.

        The estimate is made now, which can take long. If it fails, `failures` names it, and nothing is raised.

        Raises:
            TaskError: no such task or round.
            StoreError: the store cannot be read.
        """
        task = await self._task(task_id)
        if not 0 <= round_ < task.rounds:
            raise TaskError("round", f"{round_} is not one of the {task.rounds} rounds of {task_id!r}")
        counted = await self._run(self._read, task, round_)
        made = await self._estimator(task, counted.tally, self._confidence)
        return result_of(counted, made, self._confidence, self._clock())

    async def all_rounds(self, task_id: str) -> Result | None:
        """Return all rounds together as one estimate; its round is the latest.

        Returns:
            None if there are not two rounds with reports, or if they repeat their noise.

        Raises:
            TaskError: no such task.
            StoreError: the store cannot be read.
        """
        task = await self._task(task_id)

        def read() -> tuple[RoundCounts, list[Tally]]:
            latest = self._read(task, None)
            return latest, [self._store.tally(task.digest, number) for number in range(latest.round + 1)]

        latest, tallies = await self._run(read)
        estimate = await self._run(combine, task, tallies, self._confidence)
        return None if estimate is None else result_of(latest, estimate, self._confidence, self._clock())

    async def latest(self, tasks: Sequence[Task]) -> list[RoundCounts]:
        """Read the counts of each task's latest round with a report; may raise StoreError."""

        def read() -> list[RoundCounts]:
            return [self._read(task, None) for task in tasks]

        counted: list[RoundCounts] = await self._run(read)
        return counted

    async def _task(self, task_id: str) -> Task:
        if task_id not in self._tasks:
            payload = await self._run(self._store.task, task_id)
            if payload is None:
                raise TaskError("task", f"no task {task_id!r} is known here; publish it, or check the name")
            self._tasks[task_id] = stored_task(payload)
        return self._tasks[task_id]

    def _read(self, task: Task, round_: int | None) -> RoundCounts:
        return read_round(self._store, task, round_, self._clock())


def read_round(store: StoreReader, task: Task, round_: int | None, now: datetime) -> RoundCounts:
    """Read the counts of a round, by default the latest with a report. Blocks; may raise StoreError."""
    if round_ is None:
        round_ = store.latest_round(task.digest)
    final = is_marked = store.is_closed(task.digest, round_)  # first: nothing is counted between this and the tally
    released_at = None
    if task.has_release_policy:
        release = store.release_of(task.digest)
        final = release is not None and not release.closed.isdisjoint((round_, WHOLE_TASK))
        released_at = None if release is None else datetime.fromtimestamp(release.at, UTC)
    tally, refused = store.tally(task.digest, round_), store.refusals(task.id)
    closed = is_marked or (task.closes is not None and now >= task.closes)
    return RoundCounts(task, round_, tally, refused, closed=closed, final=final, released_at=released_at)
