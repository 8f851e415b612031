"""Estimates that the intake has computed, for the process of HTTP, which need not compute them again.

An estimate follows from the task, the tally and the confidence, and both processes have the same confidence. So it is
shared where digest and tally agree. An estimate that one process asks for while the other computes it is computed by
both: neither waits for the other.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from hush_aggregator.estimate import Estimate
from hush_aggregator.estimate.process import EstimateInput, Estimator, Failure
from hush_aggregator.estimate.tally import Tally
from hush_common.task import Task

_MOST = 1024


class SharedEstimate(NamedTuple):
    """An estimate, and what it was made of."""

    digest: bytes  # of the task
    tally: Tally
    estimate: Estimate


class SharingEstimator:
    """Computes estimates by another estimator, and has the last one of each task for the other process.

    Failures are not shared: the other process may have the memory or the time.
    """

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._made: OrderedDict[bytes, SharedEstimate] = OrderedDict()
        self.changed: asyncio.Event = asyncio.Event()

    async def prepare(self) -> None:
        await self._estimator.prepare()

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        made = await self._estimator(task, tally, confidence)
        self._add([(task, tally)], [made])
        return made

    async def many(self, asked: Sequence[EstimateInput], confidence: float, made: list[Estimate | Failure]) -> None:
        try:
            await self._estimator.many(asked, confidence, made)
        finally:
            self._add(asked, made)

    def take(self) -> list[SharedEstimate]:
        """Return the estimates that were made since the last call, at most one of a task."""
        found = list(self._made.values())
        self._made.clear()
        self.changed.clear()
        return found

    def _add(self, asked: Sequence[EstimateInput], made: Sequence[Estimate | Failure]) -> None:
        for (task, tally), estimate in zip(asked, made, strict=False):
            if isinstance(estimate, Estimate):
                self._made[task.digest] = SharedEstimate(task.digest, tally, estimate)
                self._made.move_to_end(task.digest)
        while len(self._made) > _MOST:
            self._made.popitem(last=False)
        self.changed.set()


class KnownEstimator:
    """Returns the estimates that the other process has made, and computes the others by another estimator."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._known: OrderedDict[bytes, SharedEstimate] = OrderedDict()

    def learn(self, estimates: Sequence[SharedEstimate]) -> None:
        """Remember the estimates of the other process, the last one of each task."""
        for one in estimates:
            self._known[one.digest] = one
            self._known.move_to_end(one.digest)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)

    async def prepare(self) -> None:
        await self._estimator.prepare()

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        known = self._known.get(task.digest)
        if known is not None and known.tally == tally:
            return known.estimate
        return await self._estimator(task, tally, confidence)

    async def many(self, asked: Sequence[EstimateInput], confidence: float, made: list[Estimate | Failure]) -> None:
        for task, tally in asked:
            made.append(await self(task, tally, confidence))
