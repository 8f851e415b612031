"""Results from a store: beside an aggregator, or in a process that only reads."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import TypeVar, TypeVarTuple, Unpack

from hush_aggregator.estimate.pooled_rounds import combine
from hush_aggregator.estimation import Estimator, InThread
from hush_aggregator.result import Counted, Result, result_of
from hush_aggregator.store.base import StoreReader
from hush_aggregator.tally import Tally
from hush_aggregator.tasks.known import stored_task
from hush_common.errors import TaskError
from hush_common.task import Task

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def utc_now() -> datetime:
    return datetime.now(UTC)


class ResultReader:
    """Gives the result of any round of any task in a store. It counts nothing, and needs no broker.

    Args:
        store: read in threads; `SqliteReader` for one that another process writes.
        confidence: nominal coverage of the intervals, inside (0, 1).
        estimator: makes the estimates, by default in a thread.
        clock: the time, aware.
        executor: where the store is read; None for that of the event loop.
    """

    def __init__(
        self,
        store: StoreReader,
        *,
        confidence: float = 0.95,
        estimator: Estimator | None = None,
        clock: Callable[[], datetime] = utc_now,
        executor: Executor | None = None,
    ) -> None:
        self._store = store
        self._confidence = confidence
        self._estimator = estimator or InThread()
        self._clock = clock
        self._executor = executor
        self._tasks: dict[str, Task] = {}  # those asked for: a task never changes

    async def result(self, task_id: str, round_: int = 0) -> Result:
        """The result of a round, from what is committed now.

        It is made now, however long that takes. If it fails, `failures` says so, and nothing is raised.

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

        def read() -> tuple[Counted, list[Tally]]:
            latest = self._read(task, None)
            return latest, [self._store.tally(task.digest, number) for number in range(latest.round + 1)]

        latest, tallies = await self._run(read)
        estimate = await self._run(combine, task, tallies, self._confidence)
        return None if estimate is None else result_of(latest, estimate, self._confidence, self._clock())

    async def latest(self, tasks: Sequence[Task]) -> list[Counted]:
        """What is counted of the latest round of each task that has a report.

        Raises:
            StoreError: the store cannot be read.
        """

        def read() -> list[Counted]:
            return [self._read(task, None) for task in tasks]

        return await self._run(read)

    async def _task(self, task_id: str) -> Task:
        if task_id not in self._tasks:
            payload = await self._run(self._store.task, task_id)
            if payload is None:
                raise TaskError("task", f"no task {task_id!r} is known here; publish it, or check the name")
            self._tasks[task_id] = stored_task(payload)
        return self._tasks[task_id]

    def _read(self, task: Task, round_: int | None) -> Counted:
        return read_round(self._store, task, round_, self._clock())

    async def _run(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


def read_round(store: StoreReader, task: Task, round_: int | None, now: datetime) -> Counted:
    """What is counted of a round of a task, by default of the latest that has a report. Blocks.

    Raises:
        StoreError: the store cannot be read.
    """
    if round_ is None:
        round_ = store.latest_round(task.digest)
    final = store.is_closed(task.digest, round_)  # first: nothing is counted between this and the tally
    tally, refused = store.tally(task.digest, round_), store.refusals(task.id)
    closed = final or (task.closes is not None and now >= task.closes)
    return Counted(task, round_, tally, refused, closed=closed, final=final)
