"""Closings: a task whose time is over is marked closed, for good, and its estimate is released as final.

Admission looks at the clock for every batch; the mark is what a clock that goes back cannot take away. It is set once
nothing can come any more that counts: the clock skew after `closes`, or later where an open recall brings reports, and
only when the clock has said so for a while.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import NoReturn

from hush_aggregator.known_tasks import KnownTasks
from hush_aggregator.lasting import Lasting
from hush_aggregator.store.base import State, Store, Worker
from hush_common.task import CLOCK_SKEW

__all__ = ["Closings"]

_LOOK_S = 60.0  # the clock may have been set
_AFTER_S = 0.01
_NOTHING = timedelta(0)


class Closings:
    """Marks what is over, and tells whose estimate says something else from then on.

    Args:
        store: keeps the marks.
        tasks: those counted.
        grace: how much longer than others some tasks count after they close, by id.
        work: runs a function in the store's thread.
        clock: the time, aware.
        changed: awaited with the ids of tasks that have closed, or of which a round has.
    """

    def __init__(
        self,
        store: Store,
        tasks: KnownTasks,
        *,
        grace: Callable[[], Mapping[str, timedelta]],
        work: Worker,
        clock: Callable[[], datetime],
        changed: Callable[[set[str]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._grace = grace
        self._work = work
        self._clock = clock
        self._changed = changed
        self._lasting = Lasting(lambda: asyncio.get_running_loop().time())
        self._marks: frozenset[tuple[bytes, int]] = frozenset()
        self._silent: set[str] = set()  # tasks that no device answers any more, as far as was told

    async def refresh(self) -> None:
        """Read the marks again: a command may have set one."""
        marks = await self._work(self._store.marks)
        digests = {digest for digest, _ in marks - self._marks}
        self._marks = marks
        await self._tell({task_id for task_id, task in self._tasks.items() if task.digest in digests})

    async def serve(self) -> NoReturn:
        """Mark what is over, until cancelled."""
        while True:
            wait = await self._step()
            await asyncio.sleep(wait)

    async def _step(self) -> float:
        """Look at every task; return in how many seconds to look again."""
        now, grace, wait = self._clock(), self._grace(), _LOOK_S
        silent, over = set[str](), set[str]()
        for task_id, task in self._tasks.items():
            if task.closes is None or self._tasks.rows[task_id].state is State.CLOSED:
                continue
            left = task.closes - now
            last = left + grace.get(task_id, CLOCK_SKEW)
            if left <= _NOTHING:
                silent.add(task_id)
            if self._lasting.holds(task.digest, now=last < _NOTHING):
                over.add(task_id)
            wait = min([wait, *(span.total_seconds() + _AFTER_S for span in (left, last) if span >= _NOTHING)])
        await self._tell(silent - self._silent)
        self._silent = silent
        for task_id in sorted(over):
            await self._work(partial(self._store.close_task, task_id))
        if over:
            await self._work(self._tasks.refresh)
            await self.refresh()
        return wait

    async def _tell(self, task_ids: set[str]) -> None:
        if task_ids:
            await self._changed(task_ids)
