"""When the counts of tasks with a release policy are released, and what may be said of them before."""

# A release copies the counts of a task to another table of the store (`Store.release`). Estimates, pages, events,
# metrics and logs read that table alone, so that none of them can say more. With `release_every` that happens at
# multiples of it since 1970 and at no other time: not at a start, not after an outage, and not when the task is closed.
# Two releases are then at least 0.9 times `release_every` apart, whatever somebody does to the service or to its
# connection; a late or extra release could differ from the one next to it by a single report.
#
# A release is made, with a new time, even if nothing was counted since the last one.

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple, NoReturn

from hush_aggregator.count.tasks import KnownTasks
from hush_aggregator.periodic import repeat
from hush_aggregator.store.base import WHOLE_TASK, CommitOutcome, Store, Worker
from hush_common.aio import run_to_completion
from hush_common.task import Task
from hush_common.wire import Refusal

_EVERY_S = 1.0  # at most: estimates are not released more often
_LONGEST_S = 60.0  # the clock may have been set
_LATE = 10  # a release is at most this part of `release_every` late, and at most `_LONGEST_S`


def most_late(task: Task) -> float:
    """Seconds by which a release at a fixed time may be late: after them it waits for the next one."""
    return min(task.release_seconds / _LATE, _LONGEST_S)


def without(outcome: CommitOutcome, task_ids: set[str]) -> CommitOutcome:
    """Return what a commit did, apart from these tasks."""
    details = {key: count for key, count in outcome.details.items() if key[0] not in task_ids}
    counted = {task_id: count for task_id, count in outcome.counted.items() if task_id not in task_ids}
    return replace(
        _outcome(counted, details),
        changed=outcome.changed - task_ids,
        senders={key: sender for key, sender in outcome.senders.items() if key[0] not in task_ids},
        foreign=outcome.foreign,
        commit_s=outcome.commit_s,
    )


def _outcome(counted: Mapping[str, int], details: Mapping[tuple[str, Refusal], int]) -> CommitOutcome:
    refused = Counter[Refusal]()
    for (_, reason), count in details.items():
        refused[reason] += count
    return CommitOutcome(sum(counted.values()), refused, frozenset(counted), details, counted=counted)


class ReleaseSchedule:
    """Releases tasks with a release policy when it is time.

    Args:
        store: with the counts.
        tasks: those that are counted; of others nothing is released.
        work: the thread of the store.
        clock: the time, aware.
        on_release: called with the tasks that were released, and with what that adds to what was released before.
    """

    def __init__(
        self,
        store: Store,
        tasks: KnownTasks,
        *,
        work: Worker,
        clock: Callable[[], datetime],
        on_release: Callable[[set[str], CommitOutcome], object],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._work = work
        self._clock = clock
        self._on_release = on_release
        self._at: dict[str, int] = {}  # the last time for which a release was made here, or found made
        self._final: set[str] = set()  # tasks that were released after they were closed
        self._made: dict[str, float] = {}  # when the last release of a task with fixed times was made (event loop time)
        self._marked: set[str] = set()  # tasks without fixed times of which something changed
        self._unreported: dict[str, tuple[Task, _Released]] = {}  # released tasks, and what was released before
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._wait = _EVERY_S  # seconds until the next release, at most a minute

    def withheld(self, task_ids: Iterable[str]) -> set[str]:
        """Return those of these tasks of which nothing may be said before a release."""
        return {task_id for task_id in task_ids if task_id in self._tasks and self._tasks[task_id].has_release_policy}

    def mark(self, task_ids: Iterable[str]) -> None:
        """Release those of these tasks that have no fixed times."""
        some = {task_id for task_id in self.withheld(task_ids) if self._tasks[task_id].release_every is None}
        self._marked |= some
        if some:
            self._wake.set()

    async def refresh(self) -> None:
        """Something was written by another process, or it has just been started."""
        self.mark(self._tasks)

    async def run(self) -> NoReturn:
        """Release until cancelled; a store that cannot be written is tried again."""
        await repeat(self.step, self._pause, failure="estimates cannot be released", event="release_failed")

    async def _pause(self) -> None:
        await asyncio.sleep(min(self._wait, _EVERY_S))  # tasks without fixed times wait for so long
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._wait - _EVERY_S)):
                await self._wake.wait()

    async def step(self) -> None:
        """Release what is due; calls wait for each other."""
        async with self._turn:
            await self._step()

    async def _step(self) -> None:
        self._wake.clear()
        self._wait = _EVERY_S
        marked, self._marked = self._marked, set()
        now, wait, elapsed = self._clock().timestamp(), _LONGEST_S, asyncio.get_running_loop().time()
        due: dict[int, list[Task]] = {int(now): [self._tasks[task_id] for task_id in marked if task_id in self._tasks]}
        for task_id, task in self._tasks.items():
            if (every := task.release_seconds) and task_id not in self._final:
                at = int(now // every) * every
                # A clock that jumps ahead must not bring a release earlier than its time.
                is_early = elapsed - self._made.get(task_id, -every) < every - most_late(task)
                if self._at.get(task_id) != at and now - at <= most_late(task) and not is_early:
                    due.setdefault(at, []).append(task)
                wait = min(wait, at + every - now)
        try:
            if self._unreported:
                await run_to_completion(self._report())
            for at, tasks in due.items():
                if tasks:
                    await run_to_completion(self._release(tasks, at))
        except BaseException:
            self._marked |= marked
            raise
        self._wait = wait

    async def _release(self, tasks: list[Task], at: int) -> None:
        # Separate calls, each of which may be repeated: a second release would not return what the first has released.
        left = await self._work(lambda: [task for task in tasks if not self._is_final(task)])
        before = await self._work(partial(self._read, left))
        released = set(await self._work(partial(self._store.release, [task.digest for task in left], at)))
        self._at |= {task.id: at for task in tasks}
        self._made |= dict.fromkeys(released, asyncio.get_running_loop().time())
        new = {task.id: (task, before[task.id]) for task in left if task.id in released}
        self._unreported = new | self._unreported
        await self._report()

    async def _report(self) -> None:
        """Report what was released."""
        done = await self._work(partial(self._read, [task for task, _ in self._unreported.values()]))
        counted, details = Counter[str](), Counter[tuple[str, Refusal]]()
        for task_id, after in done.items():
            _, before = self._unreported.pop(task_id)
            counted[task_id] = after.n - before.n
            details.update(
                {(task_id, reason): k - before.refused.get(reason, 0) for reason, k in after.refused.items()}
            )
        if done:
            self._on_release({*done}, replace(_outcome(+counted, +details), is_batch=False))

    def _read(self, tasks: list[Task]) -> dict[str, "_Released"]:
        return {
            task.id: _Released(self._store.counted_since(task.digest, 0), self._store.refusals(task.id))
            for task in tasks
        }

    def _is_final(self, task: Task) -> bool:
        """Whether a task was released after it was closed. In the store's thread."""
        release = self._store.release_of(task.digest)
        if release is not None and WHOLE_TASK in release.closed:
            self._final.add(task.id)
        return task.id in self._final


class _Released(NamedTuple):
    """Reports of a task that are released."""

    n: int  # counted, in all rounds
    refused: Mapping[Refusal, int]
