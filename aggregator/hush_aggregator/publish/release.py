"""Release estimates of tasks whose counts changed, each at most once a second."""

# Estimates are computed and published in batches of a tenth of a second, longest-waiting tasks first; tasks that were
# not published before the last stop come first. Exceptions keep all estimates fresh, however many are slow, new or
# foreign:
#
# - While own tasks wait, tasks that somebody else published get a quarter of the time.
# - A slow estimate that was not known to be quick uses time of its own kind: quick tasks get as much before the next
#   batch of the others.
# - Where estimates are not known to be quick, every second batch takes the smallest tasks.
#
# If an estimate fails, the task is released without figures. If it is slow, its last document stays until the next is
# computed.
#
# A slow estimate continues in the background, one at a time, and further slow ones wait for it. So it delays the others
# once, by `QUICK_S`. A failed or slow estimate is tried again once its reports have doubled: a thousand reports cost
# ten attempts. All this is forgotten at a restart.

import asyncio
import heapq
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import partial
from itertools import count, islice
from typing import NamedTuple, NoReturn

from hush_aggregator.delivery.session import Publisher
from hush_aggregator.estimate import Estimate
from hush_aggregator.estimate.process import BATCH_S, CRASHED, TOO_SLOW, Estimator, Failure
from hush_aggregator.estimate.result import Result, RoundCounts, result_of
from hush_aggregator.logs import fields
from hush_aggregator.publish.status import EstimateStatus
from hush_common.aio import run_all
from hush_common.errors import BrokerError
from hush_common.topics import estimate_topic

_LOG = logging.getLogger("hush.aggregator")

QUICK_S = 2.0
"""Seconds after which an estimate is slow."""

LONGEST_S = 300.0
"""Seconds after which a slow estimate is given up."""


@dataclass(frozen=True, slots=True)
class ComputedEstimate:
    """An estimate, or why there is none, and what it was made of."""

    counted: RoundCounts
    estimate: Estimate | Failure


@dataclass(frozen=True, slots=True)
class _Making:
    """Estimates that are being made since a time of the event loop: of what, and those made so far, in that order."""

    task: "asyncio.Task[None]"
    asked: Sequence[RoundCounts]
    made: list[Estimate | Failure]
    began: float


@dataclass(frozen=True, slots=True)
class _Trouble:
    """The last attempt failed (`failure`) or was slow (None)."""

    counted: RoundCounts
    failure: Failure | None

    def lasts(self, counted: RoundCounts) -> bool:
        """Whether it is too early to try again. The last word of a round is tried once, however few reports came."""
        before = self.counted
        if (counted.round, counted.final) != (before.round, before.final):
            return False
        return counted.tally.n < max(2 * before.tally.n, before.tally.n + 1)


class EstimateScheduler:
    """Computes estimates; `wake` is called with tasks that are to be asked for again."""

    def __init__(self, estimator: Estimator, confidence: float, wake: Callable[[set[str]], None]) -> None:
        self._estimator = estimator
        self._confidence = confidence
        self._wake = wake
        self._quick: set[str] = set()  # tasks whose last estimate was quick
        self._slow: set[str] = set()  # tasks whose last estimate was not
        self._trouble: dict[str, _Trouble] = {}
        self._beside: asyncio.Task[None] | None = None  # the slow lane
        self._parked: dict[str, None] = {}  # slow tasks that wait for it, in order
        self._finished: dict[str, ComputedEstimate] = {}
        self._logged: set[str] = set()

    def is_quick(self, task_id: str) -> bool:
        """Whether the estimate of a task is known to be quick."""
        return task_id in self._quick

    def failed(self) -> list[str]:
        """Tasks whose last estimate failed."""
        return [task_id for task_id, trouble in self._trouble.items() if trouble.failure is not None]

    def finished(self, task_id: str) -> ComputedEstimate | None:
        """Take what came out of the slow lane for a task since the last call."""
        return self._finished.pop(task_id, None)

    async def make(
        self, counted: Sequence[RoundCounts], quick_s: float | None = None
    ) -> dict[str, ComputedEstimate | None]:
        """The estimates, by task; None where there is to be none for now. A task that is left out had no turn."""
        found: dict[str, ComputedEstimate | None] = {}
        asked: list[RoundCounts] = []
        for one in counted:
            task_id = one.task.id
            trouble = self._trouble.get(task_id)
            if trouble is not None and trouble.lasts(one):
                found[task_id] = None if trouble.failure is None else ComputedEstimate(one, trouble.failure)
            elif task_id in self._slow:
                self._put_beside(one, None)
                found[task_id] = None
            else:
                asked.append(one)
        if asked:
            await self._estimator.prepare()
            await self._make_batch(asked, QUICK_S if quick_s is None else quick_s, found)
        return found

    async def _make_batch(
        self, asked: Sequence[RoundCounts], quick_s: float, found: dict[str, ComputedEstimate | None]
    ) -> None:
        making = self._start(asked)
        is_over = await _within(making.task, quick_s + BATCH_S)  # so late began none
        made = making.made[:]
        for one, result in zip(asked, made, strict=False):
            found[one.task.id] = self._judged(one, result, slow=False)
        if not is_over and len(made) < len(asked):
            slow = asked[len(made)]
            self._slow.add(slow.task.id)
            self._quick.discard(slow.task.id)
            self._tell(slow, f"its estimate takes longer than {quick_s:g} s: it is calculated separately")
            self._put_beside(slow, making)
            found[slow.task.id] = None

    async def close(self) -> None:
        """Give up the slow estimate."""
        if self._beside is not None:
            self._beside.cancel()
            await asyncio.wait({self._beside})

    def _start(self, asked: Sequence[RoundCounts]) -> "_Making":
        made: list[Estimate | Failure] = []

        async def run() -> None:
            try:
                await self._estimator.many([(one.task, one.tally) for one in asked], self._confidence, made)
            except Exception as error:  # noqa: BLE001 - whatever it was, the other tasks go on
                made.append(Failure(CRASHED, type(error).__name__))

        began = asyncio.get_running_loop().time()
        return _Making(asyncio.create_task(run(), name="hush-estimate"), asked, made, began)

    # The slow lane

    def _put_beside(self, counted: RoundCounts, making: "_Making | None") -> None:
        """Let a slow estimate go on, or begin, or wait: parked, it is asked for again when the lane is free."""
        if self._beside is None:
            making = making or self._start([counted])
            self._beside = asyncio.create_task(self._go_on(counted, making), name="hush-slow-estimate")
            return
        if making is not None:
            making.task.cancel()
        self._parked[counted.task.id] = None

    async def _go_on(self, counted: RoundCounts, making: "_Making") -> None:
        result: Estimate | Failure
        try:
            async with asyncio.timeout(LONGEST_S):
                await making.task
            result = making.made[making.asked.index(counted)]
        except TimeoutError:
            result = Failure(TOO_SLOW, f"it took longer than {LONGEST_S:g} s")
        task_id = counted.task.id
        self._finished[task_id] = self._judged(
            counted, result, slow=asyncio.get_running_loop().time() - making.began > QUICK_S
        )
        self._beside = None
        following = set(list(self._parked)[:1])
        self._parked = {task_id: None for task_id in self._parked if task_id not in following}
        self._wake({task_id} | following)

    # What came of it

    def _judged(self, counted: RoundCounts, result: Estimate | Failure, *, slow: bool) -> ComputedEstimate:
        """Remember how it went."""
        task_id = counted.task.id
        (self._slow if slow else self._quick).add(task_id)
        (self._quick if slow else self._slow).discard(task_id)
        failure = result if isinstance(result, Failure) else None
        self._trouble.pop(task_id, None)
        if slow or failure is not None:
            self._trouble[task_id] = _Trouble(counted, failure)
        if failure is not None:
            self._tell(counted, f"no estimate, {failure.reason} ({failure.cause}): it is released without figures")
        elif left_out := _left_out(result):
            self._tell(counted, f"left out of its estimate: {left_out}")
        return ComputedEstimate(counted, result)

    def _tell(self, counted: RoundCounts, what: str) -> None:
        """One line for each task while the service runs, however often its estimate is in trouble."""
        task_id = counted.task.id
        if task_id not in self._logged:
            self._logged.add(task_id)
            said = fields("estimate_trouble", held=True, task=task_id, round=counted.round)
            _LOG.warning("task %s, round %d: %s (logged once)", task_id, counted.round, what, extra=said)


def _left_out(result: Estimate | Failure) -> str:
    """What an estimate could not say, and why."""
    merged = {} if isinstance(result, Failure) else result.all_failures
    return ", ".join(f"{target} ({reason})" for target, reason in sorted(merged.items()))


async def _within(making: "asyncio.Task[None]", seconds: float) -> bool:
    """Whether it is over within so many seconds; if the caller is cancelled, it is given up."""
    try:
        done, _ = await asyncio.wait({making}, timeout=seconds)
    except asyncio.CancelledError:
        making.cancel()
        raise
    return bool(done)


_EVERY_S = 1.0
_LAST_S = 2.5  # with the batch at hand and the farewell to the broker, a service stops within five seconds
_MOST = 128  # tasks of a batch
_QUICK_OF_ANOTHER_S = 0.25


_SHARE = 3  # of four parts of the time, for one's own tasks


class _Kind(Enum):
    """Tasks that wait together."""

    QUICK = "own, and known to be quick"
    OWN = "own, and new or not quick"
    FOUND = "published by somebody else"


class _Waiting(NamedTuple):
    """Since when a task waits, as a number that rises, and how large it is."""

    since: int
    size: int


class _Queue:
    """The tasks of one kind that wait."""

    def __init__(self) -> None:
        self._first: dict[str, _Waiting] = {}  # in the order in which they began to wait
        self._others: dict[str, _Waiting] = {}
        self._turns = 0

    def __bool__(self) -> bool:
        return bool(self._first or self._others)

    @property
    def head(self) -> tuple[bool, int]:
        """Which of two queues has the task whose turn it is: the lesser one. This one must not be empty."""
        waiting = self._first or self._others
        return not self._first, next(iter(waiting.values())).since

    def add(self, task_id: str, waiting: _Waiting, *, first: bool) -> None:
        """Let a task wait; one that waits already comes before those that are not `first` if it is now."""
        if first:
            self._others.pop(task_id, None)
            self._first.setdefault(task_id, waiting)
        elif task_id not in self._first:
            self._others.setdefault(task_id, waiting)

    def remove(self, task_id: str) -> None:
        for waiting in (self._first, self._others):
            waiting.pop(task_id, None)

    def batch(self, *, smallest: bool) -> list[str]:
        """The next tasks."""
        if self._first:
            return list(islice(self._first, _MOST))
        self._turns += 1
        if smallest and self._turns % 2:
            return heapq.nsmallest(_MOST, self._others, key=lambda task_id: self._others[task_id].size)
        return list(islice(self._others, _MOST))


class _Shares:
    """Whose turn it is: see the module."""

    def __init__(self) -> None:
        self.queues = {kind: _Queue() for kind in _Kind}
        self._own_s = self._found_s = 0.0  # spent, by their weight
        self._owed_s = 0.0  # to the quick ones
        self._since = count()

    def add(self, kind: _Kind, task_id: str, size: int, *, first: bool) -> None:
        if not self._own and not self.queues[_Kind.FOUND]:
            self._own_s = self._found_s = 0.0
        elif kind is _Kind.FOUND and not self.queues[kind]:  # what was not asked for is not owed
            self._found_s = max(self._found_s, self._own_s)
        elif kind is not _Kind.FOUND and not self._own:
            self._own_s = max(self._found_s, self._own_s)
        self.queues[kind].add(task_id, _Waiting(next(self._since), size), first=first)

    def next(self) -> _Kind:
        """Something must wait."""
        if self.queues[_Kind.FOUND] and (not self._own or self._found_s < self._own_s):
            return _Kind.FOUND
        if not self.queues[_Kind.QUICK]:
            self._owed_s = 0.0
        if len(self._own) == 1:
            return self._own[0]
        return _Kind.QUICK if self._owed_s > 0 else min(self._own, key=lambda kind: self.queues[kind].head)

    def spent(self, kind: _Kind, seconds: float) -> None:
        if kind is _Kind.FOUND:
            self._found_s += seconds
            return
        self._own_s += seconds / _SHARE
        slow = max(0.0, seconds - 2 * BATCH_S)
        self._owed_s = max(0.0, self._owed_s + (slow if kind is _Kind.OWN else -seconds))

    @property
    def _own(self) -> list[_Kind]:
        return [kind for kind in (_Kind.QUICK, _Kind.OWN) if self.queues[kind]]


async def _at_once() -> None:
    pass


class EstimatePublisher:
    """Keeps the retained estimates up to date.

    Args:
        read: returns the counts of the latest round of these tasks, without forgotten tasks. May raise a `StoreError`.
        estimator: computes the estimates.
        confidence: nominal coverage of the intervals, inside (0, 1).
        clock: the time, aware.
        owns: whether this store publishes a task.
        sign: returns the payload to publish for a document; None if this store does not publish the task.
        rank: for the order: whether the task is foreign, which anybody may have published, and its size.
        on_published: called with each result once the broker has acknowledged its estimate; must not block.
    """

    def __init__(
        self,
        read: Callable[[Sequence[str]], Awaitable[list[RoundCounts]]],
        estimator: Estimator,
        *,
        confidence: float,
        clock: Callable[[], datetime],
        owns: Callable[[str], bool],
        sign: Callable[[str, Mapping[str, object]], bytes | None],
        rank: Callable[[str], tuple[bool, int]],
        on_published: Callable[[Result], object] = id,
    ) -> None:
        self._read = read
        self._estimator, self._confidence = estimator, confidence
        self._clock = clock
        self._rank = rank
        self._owns, self._sign, self._on_published = owns, sign, on_published
        self._scheduler = EstimateScheduler(estimator, confidence, self.mark)
        self._shares = _Shares()
        self._due: dict[str, _Kind] = {}  # tasks whose retained estimate is out of date: in which queue they wait
        self._at_hand: dict[str, bool] = {}  # those of the batch at hand: whether they changed since
        self._resting: dict[str, bool] = {}  # those published less than a second ago: whether they changed since
        self._made: dict[str, ComputedEstimate] = {}  # made, and not published yet
        self._changed = asyncio.Event()
        self._newest = time.monotonic()  # when an estimate was published, or the start

    @property
    def status(self) -> EstimateStatus:
        """What is published, and what is not."""
        failed = sum(map(self._owns, self._scheduler.failed()))
        return EstimateStatus(self.due, failed, time.monotonic() - self._newest)

    @property
    def due(self) -> int:
        """How many tasks have a retained estimate that is out of date."""
        return len(self._due) + sum(self._resting.values())

    def mark(self, task_ids: Iterable[str], *, first: bool = False) -> None:
        """Release these: their counts changed."""
        for task_id in task_ids:
            if task_id in self._at_hand:
                self._at_hand[task_id] = True
            elif task_id in self._resting:
                self._resting[task_id] = True
            elif first or task_id not in self._due:
                self._enqueue(task_id, first=first)
        if self._due:
            self._changed.set()

    async def serve(self, session: Publisher) -> NoReturn:
        """Release what changes, until cancelled or the connection is lost."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._due:
                await self._release_batch(session)

    async def release_last(self, session: Publisher, *, first: Callable[[], Awaitable[None]] = _at_once) -> None:
        """Release what is due before the service stops; what takes too long is left to the next start."""
        try:
            async with asyncio.timeout(_LAST_S):
                await first()
                while self.due:
                    self._rested(list(self._resting))
                    if self._due:
                        await self._release_batch(session)
        except (BrokerError, TimeoutError) as error:
            why = error if isinstance(error, BrokerError) else f"they took longer than {_LAST_S:g} s"
            _LOG.warning("the last estimates could not be released (%s); the next start releases them first", why)

    async def begin_anew(self) -> None:
        """Forget estimates that are made or being made: another worker may have published later ones."""
        await self._scheduler.close()
        self._scheduler = EstimateScheduler(self._estimator, self._confidence, self.mark)
        self._made.clear()

    async def close(self) -> None:
        """Give up what is still being made."""
        await self._scheduler.close()

    # Who is next

    def _enqueue(self, task_id: str, *, first: bool) -> None:
        found, size = self._rank(task_id)
        quick = _Kind.QUICK if self._scheduler.is_quick(task_id) else _Kind.OWN
        kind = self._due.setdefault(task_id, _Kind.FOUND if found else quick)
        self._shares.add(kind, task_id, size, first=first)

    def _rested(self, task_ids: Iterable[str]) -> None:
        """A second has passed since these were published."""
        self.mark([task_id for task_id in task_ids if self._resting.pop(task_id, False)])

    # A batch

    async def _release_batch(self, session: Publisher) -> None:
        """Make and publish estimates for about `BATCH_S`."""
        loop, kind = asyncio.get_running_loop(), self._shares.next()
        batch, began = self._shares.queues[kind].batch(smallest=kind is not _Kind.QUICK), loop.time()
        self._at_hand = dict.fromkeys(batch, False)
        done: set[str] = set()  # those that had their turn
        try:
            made = await self._make(batch, None if kind is not _Kind.FOUND else _QUICK_OF_ANOTHER_S, done)
            self._shares.spent(kind, loop.time() - began)
            done -= made.keys()
            await run_all([partial(self._publish, session, task_id, one, done) for task_id, one in made.items()])
        finally:
            at_hand, self._at_hand = self._at_hand, {}
            for task_id in done:
                self._shares.queues[self._due.pop(task_id)].remove(task_id)
            published = [task_id for task_id in done if task_id in self._resting]
            loop.call_later(_EVERY_S, self._rested, published)
            self.mark([task_id for task_id in done if at_hand[task_id]])

    async def _make(self, batch: Sequence[str], quick_s: float | None, done: set[str]) -> dict[str, ComputedEstimate]:
        """The estimates to publish; in `done` all tasks of the batch that had their turn."""
        asked: list[str] = []
        for task_id in batch:
            if not self._owns(task_id):
                done.add(task_id)
                self._made.pop(task_id, None)
            elif (finished := self._scheduler.finished(task_id)) is not None:
                self._made[task_id] = finished
            elif task_id not in self._made:
                asked.append(task_id)
        for task_id in self._made.keys() & set(batch):
            self._at_hand[task_id] = True  # more may have been counted meanwhile
        if asked:
            counted = await self._read(asked)
            done.update({*asked} - {one.task.id for one in counted})
            for task_id, made in (await self._scheduler.make(counted, quick_s)).items():
                done.add(task_id)
                if made is not None:
                    self._made[task_id] = made  # kept until it is published
        done.update(self._made.keys() & set(batch))
        return {task_id: self._made[task_id] for task_id in batch if task_id in self._made}

    async def _publish(self, session: Publisher, task_id: str, made: ComputedEstimate, done: set[str]) -> None:
        result = result_of(made.counted, made.estimate, self._confidence, self._clock())
        if (payload := self._sign(task_id, result.to_document())) is not None:
            await session.publish(estimate_topic(task_id), payload, retain=True)
            self._newest = time.monotonic()
            self._on_published(result)
            self._resting[task_id] = False
        self._made.pop(task_id, None)
        done.add(task_id)
