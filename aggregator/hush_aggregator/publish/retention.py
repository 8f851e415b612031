"""Drop the ids and bodies of reports a while after their round is over."""

# A round is over when it or its task is marked as closed, or when the next round opens. The time of the task
# (`retention`) and that of the service hold both: the shorter one. Dropping marks the round as closed first, in the
# same transaction as it is marked as dropped, so that no report counts there again once its id is gone. While a recall
# of an open task is under way, none of its rounds is closed: the recall may bring reports that were lost.

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NoReturn

from hush_aggregator.count.tasks import KnownTasks
from hush_aggregator.delivery.closing import Debounce
from hush_aggregator.logs import fields
from hush_aggregator.periodic import repeat
from hush_aggregator.store.base import Store, StoredRound, Worker
from hush_common.aio import run_to_completion
from hush_common.task import Task

_LOG = logging.getLogger("hush.aggregator")
_EVERY_S = 60.0


def retention_of(task: Task, limit: timedelta | None) -> timedelta | None:
    """Return how long reports of a task are stored after the end of their round; None for no end."""
    return min((length for length in (task.retention, limit) if length is not None), default=None)


def end_of(task: Task, one: StoredRound) -> datetime | None:
    """Return when a round was over; None if it is open, or if nobody knows when it ends."""
    if one.closed_at is not None:
        return datetime.fromtimestamp(one.closed_at, UTC)
    return task.round_opens(one.round + 1) if one.round < task.rounds - 1 else None


class Retention:
    """Drops reports by the policies of tasks, and by that of the service.

    Args:
        store: with the reports.
        tasks: those that are counted.
        limit: how long the service stores reports of a round that is over; None for as long as their task says.
        work: the thread of the store.
        clock: the time, aware.
        changed: awaited after a round was marked as closed.
    """

    def __init__(
        self,
        store: Store,
        tasks: KnownTasks,
        limit: timedelta | None,
        *,
        work: Worker,
        clock: Callable[[], datetime],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._limit = limit
        self._work = work
        self._clock = clock
        self._changed = changed
        self._is_unreported = False  # whether a round was marked as closed, and `changed` has failed since
        self._lasting = Debounce(lambda: asyncio.get_running_loop().time())

    async def run(self) -> NoReturn:
        """Drop what is due once a minute, until cancelled; a store that cannot be written is tried again."""
        await repeat(self.step, _EVERY_S, failure="reports cannot be dropped", event="drop_failed")

    async def step(self) -> None:
        """Drop what is due, in portions: reports are counted in between."""
        if self._is_unreported:
            await run_to_completion(self._report())
        lengths = {
            task.digest: (task, length)
            for task in self._tasks.values()
            if (length := retention_of(task, self._limit)) is not None
        }
        if not lengths:
            return
        rounds = await self._work(partial(self._rounds, lengths, self._clock()))
        for task, one, is_over in rounds:
            lasts = not one.dropped and self._lasting.holds((one.digest, one.round), now=is_over)
            if lasts or one.dropping:
                await self._drop(task, one)
                self._lasting.forget((one.digest, one.round))

    async def _drop(self, task: Task, one: StoredRound) -> None:
        is_first = not one.dropped
        while await self._work(partial(self._store.drop_reports, one.digest, one.round)):
            if is_first:
                is_first = False
                said = fields("dropped", task=task.id, round=one.round)
                what = "task %s, round %d: its reports are dropped, as its retention says"
                _LOG.info(what, task.id, one.round, extra=said)
                self._is_unreported = True
                await run_to_completion(self._report())

    async def _report(self) -> None:
        await self._changed()
        self._is_unreported = False

    def _rounds(
        self, lengths: dict[bytes, tuple[Task, timedelta]], now: datetime
    ) -> list[tuple[Task, StoredRound, bool]]:
        """Return the rounds with reports, and whether each is over for long enough. In the store's thread."""
        recalled = {row.recall.digest for row in self._store.recalls() if not row.ended}

        def rounds() -> Iterator[tuple[Task, StoredRound, bool]]:
            for digest, (task, length) in lengths.items():
                for one in self._store.stored_rounds(digest):
                    end = end_of(task, one)
                    is_waiting = one.closed_at is None and digest in recalled
                    yield task, one, end is not None and now - end >= length and not is_waiting

        return [*rounds()]
