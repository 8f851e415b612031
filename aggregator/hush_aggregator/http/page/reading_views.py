"""Reading views: from a store to what the page draws. A page waits for no slow estimate."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from hush_aggregator.http.page.history import History
from hush_aggregator.http.page.view import View
from hush_aggregator.http.service import Reading
from hush_aggregator.result import Result
from hush_aggregator.store.base import State, StoreReader, TaskRow
from hush_common.task import Task

__all__ = ["PER_PAGE", "Views"]

PER_PAGE = 24
_ROUNDS = 24
_PATIENCE_S = 0.12  # of the first page: an estimate that takes longer is made on, and shown when the page comes again
_PATIENCE_OF_ONE_S = 5.0
_CLOSED_LAST = {State.OPEN: 0, State.WITHDRAWN: 1, State.CLOSED: 2}


@dataclass(slots=True)
class Views:
    """Reads what is shown.

    Args:
        reading: the store and its results.
        history: of the estimates that were made, whoever asked for them.
    """

    reading: Reading
    history: History = field(default_factory=History)
    _making: set[asyncio.Task[Result]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.reading.on_result = self.history.add

    async def some(self, page: int, now: datetime) -> tuple[list[View], int, int, int]:
        """The tasks of a page, counted from 1; how many there are in all, how many pages, and what the broker dropped.

        Raises:
            StoreError: the store cannot be read.
        """

        def read(store: StoreReader) -> tuple[list[tuple[TaskRow, bool, int, int]], int, int, int]:
            rows = [row for row in store.task_rows() if row.payload]
            rows.sort(key=lambda row: (_CLOSED_LAST[row.state], row.id))
            pages = max(1, -(-len(rows) // PER_PAGE))
            at = min(max(page, 1), pages)
            shown = rows[(at - 1) * PER_PAGE : at * PER_PAGE]
            return [_facts(store, row) for row in shown], len(rows), pages, store.broker().dropped or 0

        facts, total, pages, dropped = await self.reading.run(read)
        tasks = [self.reading.task(row.digest, row.payload) for row, *_ in facts]
        results = await self._within(_PATIENCE_S, [self.reading.result(task) for task in tasks])
        views = []
        for (row, ended, latest, n), task, result in zip(facts, tasks, results, strict=True):
            views.append(View(task, row.state, row.origin, ended, now, result, n, latest=latest))
        return views, total, pages, dropped

    async def one(self, task_id: str, round_: int | None, now: datetime) -> View | None:
        """A task and one of its rounds, by default the latest; None if there is no such task or round.

        Raises:
            StoreError: the store cannot be read.
        """

        def read(store: StoreReader) -> tuple[TaskRow, bool, int, int] | None:
            row = store.task_row(task_id)
            return None if row is None or not row.payload else _facts(store, row)

        facts = await self.reading.run(read)
        if facts is None:
            return None
        row, ended, latest, n = facts
        task = self.reading.task(row.digest, row.payload)
        if round_ is not None and not 0 <= round_ < task.rounds:
            return None
        wanted = [self.reading.result(task, round_)]
        wanted += [self.reading.result(task, number) for number in _rounds(task, latest)]
        result, *rounds = await self._within(_PATIENCE_OF_ONE_S, wanted)
        points = () if result is None else self.history.until(result)
        known = [one for one in rounds if one is not None]
        return View(task, row.state, row.origin, ended, now, result, n, known, latest, points)

    async def _within(self, patience_s: float, wanted: Sequence[Coroutine[None, None, Result]]) -> list[Result | None]:
        """What is there in time; the rest goes on being made, and is there next time."""
        made = [asyncio.ensure_future(one) for one in wanted]
        self._making |= set(made)
        for one in made:
            one.add_done_callback(self._made)
        if made:
            await asyncio.wait(made, timeout=patience_s)
        return [one.result() if one.done() else None for one in made]

    def _made(self, one: asyncio.Task[Result]) -> None:
        self._making.discard(one)
        if not one.cancelled():
            one.exception()  # asked for by the next page too, which says so


def _rounds(task: Task, latest: int) -> range:
    return range(max(0, latest + 1 - _ROUNDS), latest + 1) if task.rounds > 1 else range(0)


def _facts(store: StoreReader, row: TaskRow) -> tuple[TaskRow, bool, int, int]:
    """The row, whether nothing counts any more, the latest round, and the reports of it."""
    latest = store.latest_round(row.digest)
    return row, store.is_closed(row.digest), latest, store.tally(row.digest, latest).n
