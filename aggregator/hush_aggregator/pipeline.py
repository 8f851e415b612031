"""The order of the stages: intake, decode, admit, commit, acknowledge, then `releasing`. No other module knows it."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

from hush_aggregator.admission import admit
from hush_aggregator.bus import Bus, Delivery, Session
from hush_aggregator.decode import decode
from hush_aggregator.estimating import Estimator, InThread
from hush_aggregator.lanes import Counted
from hush_aggregator.pending import PendingReports
from hush_aggregator.release import Releases
from hush_aggregator.result import Result
from hush_aggregator.store.base import CommitOutcome, Store
from hush_common.cancellation import cancellable
from hush_common.errors import BrokerError, StoreError, TaskError
from hush_common.task import Task
from hush_common.task_file import decode_task, settled
from hush_common.topics import (
    ALL_REPORTS,
    ALL_TASKS,
    task_of_task_topic,
    task_topic,
)

__all__ = ["Aggregator"]

_LOG = logging.getLogger("hush.aggregator")
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 30.0
_STEADY_S = 5.0  # a connection that lasted this long was no failed attempt

T = TypeVar("T")


def _utc_now() -> datetime:
    return datetime.now(UTC)


async def _at_once() -> None:
    pass


class Aggregator:
    """Counts the reports that a broker delivers into a store, and releases estimates.

    Args:
        bus: the broker.
        store: opened by the caller, who closes it after `run` has returned; used in one worker thread.
        tasks: tasks of one's own: stored first, so that no other task takes their ids, and published retained.
        name: in log lines.
        confidence: nominal coverage of the intervals, inside (0, 1).
        estimator: makes the estimates, by default in a thread; `InProcesses` keeps slow ones from holding up the rest.
        clock: the time, aware.
        on_commit: called in the event loop after each transaction; must not block.
        settle_s: how long, after connecting, a report may wait for the retained message of its task.
        ready: awaited before reports are counted; until then they are not acknowledged.
    """

    def __init__(
        self,
        bus: Bus,
        store: Store,
        *,
        tasks: Sequence[Task] = (),
        name: str = "aggregator",
        confidence: float = 0.95,
        estimator: Estimator | None = None,
        clock: Callable[[], datetime] = _utc_now,
        on_commit: Callable[[CommitOutcome], None] | None = None,
        settle_s: float = 1.0,
        ready: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        self._bus = bus
        self._store = store
        self._own = tuple(tasks)
        self._name = name
        self._clock = clock
        self._on_commit = on_commit
        self._settle_s = settle_s
        self._ready = ready
        self._patient = True
        self._told = ""
        self._known: dict[str, Task] = {}
        self._releasing = Releases(self._counted, estimator or InThread(), confidence=confidence, clock=clock)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="hush-store")

    async def run(self) -> NoReturn:
        """Count until cancelled, through every loss of the connection.

        Cancelling finishes the batch at hand (commit, then acknowledge) and releases what is due before it returns.

        Raises:
            StoreError: the store failed; nothing of the batch at hand was counted or acknowledged.
            TaskError: a task of one's own contradicts one that is stored under its id.
        """
        await self._load()
        try:
            await self._stay_connected()
        finally:
            await self._releasing.close()

    async def _stay_connected(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        delay = _FIRST_DELAY_S
        while True:
            began = loop.time()
            try:
                await cancellable(self._connect(), BrokerError)
            except BrokerError as error:
                lasted = loop.time() - began
                delay = _FIRST_DELAY_S if lasted > _STEADY_S else delay
                self._tell(error, again=delay == _LONGEST_DELAY_S)
            # Jitter, so that clients do not come back all at once; nothing secret about it.
            await asyncio.sleep(delay * random.uniform(0.5, 1))  # noqa: S311
            delay = min(2 * delay, _LONGEST_DELAY_S)

    def _tell(self, error: BrokerError, *, again: bool) -> None:
        """One line for an outage, and one for each attempt once those are rare."""
        if again or str(error) != self._told:
            _LOG.warning("%s; trying again until it works", error)
        self._told = str(error)

    async def estimate(self, task_id: str, round_: int = 0) -> Result:
        """The result of a round, from what is committed now.

        It is made now, however long that takes. If it fails, `failures` says so, and nothing is raised.

        Raises:
            TaskError: no such task or round.
            StoreError: the store cannot be read.
        """
        task = self._known.get(task_id)
        if task is None:
            raise TaskError("task", f"no task {task_id!r} is known here; publish it, or check the name")
        if not 0 <= round_ < task.rounds:
            raise TaskError("round", f"{round_} is none of the {task.rounds} rounds of {task_id!r}")
        return await self._releasing.estimate(await self._in_worker(self._read, task, round_))

    # Tasks

    async def _load(self) -> None:
        for payload in await self._in_worker(self._store.tasks):
            try:
                self._know(decode_task(payload, legacy=True))
            except TaskError as error:
                raise StoreError(f"a stored task cannot be read ({error}); was it written by a later hush?") from error
        self._own = tuple([await self._in_worker(self._settle, task) for task in self._own])
        for task in self._own:
            self._know(task)

    def _settle(self, task: Task) -> Task:
        """In the worker: a task of one's own, as it was first stored."""
        if task.legacy and task.id not in self._known:
            raise TaskError("domain.outside", f"{task.id} was never counted here, and nobody answers 'refuse'")
        kept = settled(task, self._store.add_task(task))
        if kept is None:
            raise TaskError("id", f"the store has another task {task.id!r}, and tasks never change; choose another id")
        if kept is not task:
            _LOG.info("task %s stays as it was stored: %s, digest %s", task.id, kept.mechanism, kept.digest.hex())
        return kept

    def _know(self, task: Task) -> None:
        if task.legacy:
            _LOG.warning("%s: counted as before, but no device answers 'refuse' any more; ask under a new id", task.id)
        self._known[task.id] = task
        self._releasing.mark({task.id})

    async def _learn(self, delivery: Delivery) -> None:
        """Take in a message on a task topic: the first payload under an id wins, for good."""
        task_id = task_of_task_topic(delivery.topic) or ""
        known = self._known.get(task_id)
        if known is None or known.payload != delivery.payload:
            try:
                task = await self._in_worker(self._keep, task_id, delivery.payload)
            except TaskError as error:
                _LOG.warning("refused the task published as %.80r: %s", task_id, error)
            else:
                self._know(task)
                _LOG.info("learned task %s, digest %s", task.id, task.digest.hex())
        delivery.ack()

    def _keep(self, task_id: str, payload: bytes) -> Task:
        """In the worker: validate and store a task."""
        if not payload:
            raise TaskError("task", "its message was deleted; a task that was learned before stays")
        task = decode_task(payload)
        if task.id != task_id:
            raise TaskError("id", f"{task.id!r} is not the name in the topic")
        if self._store.add_task(task) != payload:
            raise TaskError("id", "another task was published under it before, and tasks never change; use a new id")
        return task

    # Intake

    async def _connect(self) -> None:
        """Serve one connection until it is lost."""
        async with self._bus.connect((ALL_TASKS, ALL_REPORTS)) as session:
            _LOG.info("%s: connected to %s", self._name, self._bus.name)
            self._told = ""
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._take_in(session), name="hush-intake")
                    group.create_task(self._give_out(session), name="hush-release")
                    await asyncio.Event().wait()  # until one of them fails: see `cancellable`
            except BaseExceptionGroup as errors:
                raise _worst(errors) from errors
            except asyncio.CancelledError:
                await self._releasing.release_last(session)
                raise

    async def _take_in(self, session: Session) -> NoReturn:
        """Count batch after batch, the tasks of a batch before its reports."""
        pending = PendingReports(self._settle_s if self._patient else 0)
        self._patient = True
        while True:
            batch = await _batch(session, until=pending.until)
            tasks = [delivery for delivery in batch if task_of_task_topic(delivery.topic) is not None]
            known = len(self._known)
            for delivery in tasks:
                await _to_the_end(self._learn(delivery))
            others = [delivery for delivery in batch if task_of_task_topic(delivery.topic) is None]
            reports = pending.sift(others, self._known, extend=len(self._known) > known)
            if pending.overflowed and pending.settled:
                self._patient = False
                raise BrokerError(self._bus.name, "too many reports of unknown tasks to hold; they will come again")
            if reports:
                await self._ready()
                await _to_the_end(self._count(reports))

    async def _count(self, reports: list[Delivery]) -> None:
        """Decode, admit, commit; then, and only then, acknowledge."""
        outcome = await self._in_worker(self._process, reports, self._clock())
        for delivery in reports:
            delivery.ack()
        self._releasing.mark(set(outcome.changed & self._known.keys()))
        if self._on_commit is not None:
            self._on_commit(outcome)

    def _process(self, reports: list[Delivery], now: datetime) -> CommitOutcome:
        """In the worker. Nothing else changes the tasks meanwhile: `_take_in` waits for this."""
        admitted = admit(decode(reports), self._known, now)
        outcome = self._store.commit(admitted.accepted, admitted.refused)
        return replace(outcome, senders=admitted.senders)

    # Release

    async def _give_out(self, session: Session) -> NoReturn:
        """Publish the tasks of one's own, then the estimates that change."""
        for task in self._own:
            if not task.legacy:
                await session.publish(task_topic(task.id), task.payload, retain=True)
        await self._releasing.serve(session)

    async def _counted(self, task_id: str) -> Counted:
        return await self._in_worker(self._read_latest, self._known[task_id])

    def _read_latest(self, task: Task) -> Counted:
        return self._read(task, self._store.latest_round(task.digest))

    def _read(self, task: Task, round_: int) -> Counted:
        return Counted(task, round_, self._store.tally(task.digest, round_), self._store.refusals(task.id))

    async def _in_worker(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, function, *args)


async def _batch(session: Session, until: float | None) -> list[Delivery]:
    """The next batch, or an empty one at the time `until`."""
    try:
        async with asyncio.timeout_at(until):
            return await session.batch()
    except TimeoutError:
        return []


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` to its end even if cancelled meanwhile: a commit must not lose its acknowledgements."""
    task = asyncio.create_task(work, name="hush-commit")
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        task.result()  # a failure of the store is worth more than a cancellation
        raise


def _worst(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error of a group to tell: a lost connection is the least of them."""
    flat = [error for error in errors.exceptions if not isinstance(error, BrokerError)]
    return (flat or list(errors.exceptions))[0]
