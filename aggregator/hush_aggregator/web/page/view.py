"""What the page shows of a task, read from the store first, so that a page never waits for a slow estimate."""

import asyncio
import json
import unicodedata
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

from hush_aggregator.estimate.result import WHOLE, Result, RoundCounts
from hush_aggregator.publish.explain import release_rule
from hush_aggregator.publish.results import read_round
from hush_aggregator.store.base import WHOLE_TASK, Origin, Step, StoreReader, TaskRow, TaskState
from hush_common.task import Task

if TYPE_CHECKING:  # it brings the web framework
    from hush_aggregator.web.service import StoreService

CARDS = 24
"""The maximum number of tasks that are shown as cards; more are a list."""

LISTED = 100
"""The number of tasks on a page of the list."""

_ROUNDS = 24
_LISTS = 8  # pages of the list that are stored as they were read
_PATIENCE_S = 0.12  # on the first page: a slower estimate goes on being made, and is shown when the page loads again
_AWAITED = 24  # estimates that a list waits for; of more, few would be made in time
_SENT_S = 0.3  # after which a page and its style are on the screen
_PATIENCE_OF_ONE_S = 5.0
_CLOSED_LAST = {TaskState.OPEN: 0, TaskState.WITHDRAWN: 1, TaskState.CLOSED: 2}


class TaskStatus(Enum):
    """The status of a task: a word and a sentence."""

    LIVE = "Live", "Devices answer, and their reports are counted as they arrive."
    NOT_OPEN = "Not open yet", "Devices do not answer before the task opens."
    CLOSING = "Closing", "Devices no longer answer. Reports on their way still count for some minutes."
    WITHDRAWN = "Withdrawn", "Devices no longer answer. Reports on their way still count."
    ENDED = "Ended", "Counting has ended. The final figures are published at the next fixed time."
    FINAL = "Final", "Counting has ended. These figures are final."

    def __init__(self, word: str, sentence: str) -> None:
        self.word: str = word
        self.sentence: str = sentence


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task, one of its rounds, and the last rounds, the oldest first (none of a task with one round)."""

    task: Task
    state: TaskState
    origin: Origin
    ended: bool
    now: datetime
    result: Result | None = None  # None while it is being made
    n: int = 0
    rounds: Sequence[Result] = field(default=())
    latest: int = 0  # the latest round with a report
    steps: Sequence[Step] = field(default=())  # of the round that is shown

    @property
    def status(self) -> TaskStatus:
        task = self.task
        if self.ended or self.state is TaskState.CLOSED:
            waits = task.release_every is not None and self.result is not None and not self.result.final
            return TaskStatus.ENDED if waits else TaskStatus.FINAL
        if self.state is TaskState.WITHDRAWN:
            return TaskStatus.WITHDRAWN
        if task.closes is not None and self.now >= task.closes:
            return TaskStatus.CLOSING
        if task.opens is not None and self.now < task.opens:
            return TaskStatus.NOT_OPEN
        return TaskStatus.LIVE

    @property
    def round(self) -> int:
        return self.latest if self.result is None else self.result.round

    @property
    def failed(self) -> bool:
        """Whether there are reports, but hush could not make an estimate of them."""
        return self.result is not None and WHOLE in self.result.failures

    @property
    def has_estimate(self) -> bool:
        return self.result is not None and self.result.n > 0 and not self.failed

    @property
    def rule(self) -> str:
        """When figures are published; empty without a rule."""
        return release_rule(self.task)

    @property
    def title(self) -> str:
        return self.task.title.strip() or self.task.id


class ListedState(StrEnum):
    """The tasks to list."""

    ALL = ""
    OPEN = "open"
    WITHDRAWN = "withdrawn"
    ENDED = "ended"


class ListOrder(StrEnum):
    """The order of a list of tasks."""

    STATE = ""  # those that devices answer first, then by id
    NAME = "name"
    REPORTS = "reports"  # most first


@dataclass(frozen=True, slots=True)
class TaskSearch:
    """Which tasks to list, and how: those with `text` in their id, title or purpose."""

    text: str = ""
    state: ListedState = ListedState.ALL
    order: ListOrder = ListOrder.STATE
    page: int = 1  # from 1 on; one after the last is the last


@dataclass(frozen=True, slots=True)
class TaskListing:
    """A page of the list of tasks. `total` counts all tasks and `found` those that were searched for."""

    search: TaskSearch
    views: Sequence[TaskView]
    total: int
    found: int
    pages: int
    dropped: int = 0  # messages that the broker dropped since it started

    @property
    def page(self) -> int:
        return min(self.search.page, self.pages)

    @property
    def is_long(self) -> bool:
        """Whether it is a list to search, and not a few cards."""
        return self.total > CARDS


_STATES = {
    ListedState.OPEN: TaskState.OPEN,
    ListedState.WITHDRAWN: TaskState.WITHDRAWN,
    ListedState.ENDED: TaskState.CLOSED,
}


def folded(text: str) -> str:
    """Return text for a search: case and width of letters do not matter."""
    return unicodedata.normalize("NFKC", text).casefold().strip()


@dataclass(frozen=True, slots=True)
class _ReadList:
    """What the store has of a page of the list, as of a version of the store."""

    version: tuple[str, int]
    at: datetime
    facts: Sequence[tuple[TaskRow, bool, RoundCounts]]  # of each task: whether all its rounds are closed
    counts: tuple[int, int, int, int]  # tasks, found ones, pages, dropped messages

    def holds(self, version: tuple[str, int], now: datetime) -> bool:
        """Whether the store would say the same now: it was not written, and no task has closed meanwhile."""
        closing = [counted.task.closes for *_, counted in self.facts if counted.task.closes is not None]
        return self.version == version and self.at <= now and not any(self.at < one <= now for one in closing)


@dataclass(slots=True)
class TaskViews:
    """Reads views from a store."""

    reading: "StoreService"
    _making: set[asyncio.Task[Result] | asyncio.Task[None]] = field(default_factory=set)
    _filling: asyncio.Task[None] | None = None
    _lists: OrderedDict[TaskSearch, _ReadList] = field(default_factory=OrderedDict)  # for the thread of the store

    async def some(self, search: TaskSearch, now: datetime) -> TaskListing:
        """Return a page of the tasks that are searched for."""

        def read(store: StoreReader) -> _ReadList:  # once: a hundred reads would use up the patience
            version = store.public_identity, store.version()
            there = self._lists.pop(search, None)
            if there is None or not there.holds(version, now):
                there = self._read(store, search, now, version)
            self._lists[search] = there
            if len(self._lists) > _LISTS:
                self._lists.popitem(last=False)
            return there

        listed = await self.reading.run(read)
        results = await self._known([counted for *_, counted in listed.facts])
        views = []
        for (row, ended, counted), result in zip(listed.facts, results, strict=True):
            n, latest = counted.tally.n, counted.round
            views.append(TaskView(counted.task, row.state, row.origin, ended, now, result, n, latest=latest))
        return TaskListing(search, views, *listed.counts)

    def _read(self, store: StoreReader, search: TaskSearch, now: datetime, version: tuple[str, int]) -> _ReadList:
        rows = [row for row in store.task_rows() if row.payload]
        found = _listed(store, rows, search)
        size = LISTED if len(rows) > CARDS else CARDS
        pages = max(1, -(-len(found) // size))
        at = min(search.page, pages)
        shown = found[(at - 1) * size : at * size]
        counts = len(rows), len(found), pages, store.broker().dropped or 0
        facts = [(row, store.is_closed(row.digest), self._counted(store, row, now)) for row in shown]
        return _ReadList(version, now, facts, counts)

    def _counted(self, store: StoreReader, row: TaskRow, now: datetime) -> RoundCounts:
        return read_round(store, self.reading.task(row.digest, row.payload), None, now)

    async def _known(self, counted: Sequence[RoundCounts]) -> list[Result | None]:
        """Return the results of what is counted; of those that are not ready in time the last ones, if there are."""
        found = [self.reading.known(one) for one in counted]
        missing = [place for place, result in enumerate(found) if result is None]
        tasks = [counted[place].task for place in missing]
        if len(missing) > _AWAITED:
            self._make_each(tasks)
            made: list[Result | None] = [None] * len(missing)
        else:
            made = await self._within(_PATIENCE_S, [self.reading.result(task) for task in tasks])
        for place, result in zip(missing, made, strict=True):
            found[place] = result or self.reading.last_known(counted[place])
        return found

    def _make_each(self, tasks: Sequence[Task]) -> None:
        """Make many results one after the other, unless others are being made like this."""

        async def make() -> None:
            await asyncio.sleep(_SENT_S)
            for task in tasks:
                await self.reading.result(task)

        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(make(), name="hush-fill")
            self._filling.add_done_callback(self._made)

    async def one(self, task_id: str, round_: int | None, now: datetime) -> TaskView | None:
        """Return a task and one of its rounds, by default the latest; None if there is no such task or round."""

        def read(store: StoreReader) -> tuple[tuple[TaskRow, bool, int, int], list[Step]] | None:
            row = store.task_row(task_id)
            if row is None or not row.payload:
                return None
            facts = _facts(store, row)
            return facts, store.steps(row.digest, facts[2] if round_ is None else round_)

        found = await self.reading.run(read)
        if found is None:
            return None
        (row, ended, latest, n), steps = found
        task = self.reading.task(row.digest, row.payload)
        if round_ is not None and not 0 <= round_ < task.rounds:
            return None
        last = range(max(0, latest + 1 - _ROUNDS), latest + 1) if task.rounds > 1 else range(0)
        wanted = [self.reading.result(task, round_), *(self.reading.result(task, number) for number in last)]
        result, *rounds = await self._within(_PATIENCE_OF_ONE_S, wanted)
        known = [one for one in rounds if one is not None]
        if result is not None and round_ is None and result.round != latest:
            steps = []  # a report of the next round has come meanwhile
        return TaskView(task, row.state, row.origin, ended, now, result, n, known, latest, steps)

    async def _within(self, patience_s: float, wanted: Sequence[Coroutine[None, None, Result]]) -> list[Result | None]:
        """Return the results that are ready in time; the others go on being made."""
        made = [asyncio.ensure_future(one) for one in wanted]
        self._making |= set(made)
        for one in made:
            one.add_done_callback(self._made)
        if made:
            await asyncio.wait(made, timeout=patience_s)
        return [one.result() if one.done() else None for one in made]

    def _made(self, one: asyncio.Task[Result] | asyncio.Task[None]) -> None:
        self._making.discard(one)
        if not one.cancelled():
            one.exception()  # the next page asks for it too, and reports the error


def _listed(store: StoreReader, rows: Sequence[TaskRow], search: TaskSearch) -> list[TaskRow]:
    """Return the rows that are searched for, in order."""
    found = list(rows)
    if search.state:
        marks = store.marks()
        states = {row.id: TaskState.CLOSED if (row.digest, WHOLE_TASK) in marks else row.state for row in found}
        found = [row for row in found if states[row.id] is _STATES[search.state]]
    wanted = folded(search.text)
    if wanted:
        found = [row for row in found if any(wanted in folded(text) for text in (row.id, *_texts(row)))]
    found.sort(key=lambda row: (_CLOSED_LAST[row.state], row.id))
    if search.order is ListOrder.NAME:
        found.sort(key=lambda row: folded(_texts(row)[0].strip() or row.id))
    elif search.order is ListOrder.REPORTS:
        reports = {one.id: one.latest for one in store.counts()}
        found.sort(key=lambda row: -reports.get(row.id, 0))
    return found


def _texts(row: TaskRow) -> tuple[str, str]:
    """Return title and purpose, without the work of reading all of a task."""
    document = json.loads(row.payload)
    return document.get("title", ""), document.get("purpose", "")


def _facts(store: StoreReader, row: TaskRow) -> tuple[TaskRow, bool, int, int]:
    """Return the row, whether all its rounds are closed, its latest round, and the number of reports in that."""
    latest = store.latest_round(row.digest)
    return row, store.is_closed(row.digest), latest, store.tally(row.digest, latest).n
