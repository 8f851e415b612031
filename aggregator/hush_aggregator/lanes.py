"""Lanes: slow and failing estimates run apart, so that they do not delay the others.

Estimates are made one after the other, a batch at a time. One that takes longer than `QUICK_S` goes on in a lane
beside, which has room for one at a time; further slow ones wait for their turn there. So it delays the others by
`QUICK_S`, once: the next of its task begins in the slow lane, and the rest of its batch comes with the next one.

What failed or was slow is tried again once its reports have doubled, so that a thousand reports cost ten attempts. All
this is remembered while the service runs: a start tries everything once.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hush_aggregator.estimate import Estimate
from hush_aggregator.estimating import BATCH_S, CRASHED, TOO_SLOW, Estimator, Failure
from hush_aggregator.log_fields import fields
from hush_aggregator.result import Counted

__all__ = ["LONGEST_S", "QUICK_S", "Lanes", "Made"]

_LOG = logging.getLogger("hush.aggregator")

QUICK_S = 2.0
"""Seconds after which an estimate is slow."""

LONGEST_S = 300.0
"""Seconds after which a slow estimate is given up."""


@dataclass(frozen=True, slots=True)
class Made:
    """An estimate, or why there is none, and what it was made of."""

    counted: Counted
    estimate: Estimate | Failure


@dataclass(frozen=True, slots=True)
class _Making:
    """Estimates that are being made since a time of the event loop: of what, and those made so far, in that order."""

    task: "asyncio.Task[None]"
    asked: Sequence[Counted]
    made: list[Estimate | Failure]
    began: float


@dataclass(frozen=True, slots=True)
class _Trouble:
    """The last attempt failed (`failure`) or was slow (None)."""

    counted: Counted
    failure: Failure | None

    def lasts(self, counted: Counted) -> bool:
        """Whether it is too early to try again. The last word of a round is tried once, however few reports came."""
        before = self.counted
        if (counted.round, counted.final) != (before.round, before.final):
            return False
        return counted.tally.n < max(2 * before.tally.n, before.tally.n + 1)


class Lanes:
    """Makes the estimates that are to be released.

    Args:
        estimator: makes each.
        confidence: nominal coverage of the intervals, inside (0, 1).
        wake: called with the ids of tasks that are to be asked for again: their slow estimate is made (`finished`), or
            may begin.
    """

    def __init__(self, estimator: Estimator, confidence: float, wake: Callable[[set[str]], None]) -> None:
        self._estimator = estimator
        self._confidence = confidence
        self._wake = wake
        self._quick: set[str] = set()  # tasks whose last estimate was quick
        self._slow: set[str] = set()  # tasks whose last estimate was not
        self._trouble: dict[str, _Trouble] = {}
        self._beside: asyncio.Task[None] | None = None  # the slow lane
        self._parked: dict[str, None] = {}  # slow tasks that wait for it, in order
        self._finished: dict[str, Made] = {}
        self._told: set[str] = set()

    def is_quick(self, task_id: str) -> bool:
        """Whether the estimate of a task is known to be quick."""
        return task_id in self._quick

    def finished(self, task_id: str) -> Made | None:
        """Take what came out of the slow lane for a task since the last call."""
        return self._finished.pop(task_id, None)

    async def make(self, counted: Sequence[Counted], quick_s: float | None = None) -> dict[str, Made | None]:
        """The estimates, by task; None where there is to be none for now. A task that is left out had no turn.

        Args:
            counted: of what, in this order.
            quick_s: seconds after which an estimate is slow, by default `QUICK_S`.
        """
        found: dict[str, Made | None] = {}
        asked: list[Counted] = []
        for one in counted:
            task_id = one.task.id
            trouble = self._trouble.get(task_id)
            if trouble is not None and trouble.lasts(one):
                found[task_id] = None if trouble.failure is None else Made(one, trouble.failure)
            elif task_id in self._slow:
                self._put_beside(one, None)
                found[task_id] = None
            else:
                asked.append(one)
        if asked:
            await self._estimator.prepare()
            await self._make_batch(asked, QUICK_S if quick_s is None else quick_s, found)
        return found

    async def _make_batch(self, asked: Sequence[Counted], quick_s: float, found: dict[str, Made | None]) -> None:
        making = self._start(asked)
        is_over = await _within(making.task, quick_s + BATCH_S)  # so late began none
        made = making.made[:]
        for one, result in zip(asked, made, strict=False):
            found[one.task.id] = self._judged(one, result, slow=False)
        if not is_over and len(made) < len(asked):
            slow = asked[len(made)]
            self._slow.add(slow.task.id)
            self._quick.discard(slow.task.id)
            self._tell(slow, f"its estimate takes longer than {quick_s:g} s: it is made beside the others")
            self._put_beside(slow, making)
            found[slow.task.id] = None

    async def close(self) -> None:
        """Give up the slow estimate."""
        if self._beside is not None:
            self._beside.cancel()
            await asyncio.wait({self._beside})

    def _start(self, asked: Sequence[Counted]) -> "_Making":
        made: list[Estimate | Failure] = []

        async def run() -> None:
            try:
                await self._estimator.many([(one.task, one.tally) for one in asked], self._confidence, made)
            except Exception as error:  # noqa: BLE001 - whatever it was, the other tasks go on
                made.append(Failure(CRASHED, type(error).__name__))

        began = asyncio.get_running_loop().time()
        return _Making(asyncio.create_task(run(), name="hush-estimate"), asked, made, began)

    # The slow lane

    def _put_beside(self, counted: Counted, making: "_Making | None") -> None:
        """Let a slow estimate go on, or begin, or wait: parked, it is asked for again when the lane is free."""
        if self._beside is None:
            making = making or self._start([counted])
            self._beside = asyncio.create_task(self._go_on(counted, making), name="hush-slow-estimate")
            return
        if making is not None:
            making.task.cancel()
        self._parked[counted.task.id] = None

    async def _go_on(self, counted: Counted, making: "_Making") -> None:
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

    def _judged(self, counted: Counted, result: Estimate | Failure, *, slow: bool) -> Made:
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
        return Made(counted, result)

    def _tell(self, counted: Counted, what: str) -> None:
        """One line for each task while the service runs, however often its estimate is in trouble."""
        task_id = counted.task.id
        if task_id not in self._told:
            self._told.add(task_id)
            said = fields("estimate_trouble", held=True, task=task_id, round=counted.round)
            _LOG.warning("task %s, round %d: %s (told once)", task_id, counted.round, what, extra=said)


def _left_out(result: Estimate | Failure) -> str:
    """What an estimate could not say, and why."""
    if isinstance(result, Failure):
        return ""
    merged = dict(result.failures)
    for category in result.categories:
        merged |= category.failures
    for coordinate in result.coordinates:
        merged |= coordinate.failures
    return ", ".join(f"{target} ({reason})" for target, reason in sorted(merged.items()))


async def _within(making: "asyncio.Task[None]", seconds: float) -> bool:
    """Whether it is over within so many seconds; if the caller is cancelled, it is given up."""
    try:
        done, _ = await asyncio.wait({making}, timeout=seconds)
    except asyncio.CancelledError:
        making.cancel()
        raise
    return bool(done)
