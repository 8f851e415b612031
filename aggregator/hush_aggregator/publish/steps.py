"""Keep steps: the last estimate of each hour that was published, for a time axis."""

# A step is written within seconds of its estimate, so that a crash loses none: the reports of these seconds are in the
# next one. Only an aggregator that publishes has something to write.
#
# Figures are rounded to about a thousandth of their interval. A chart needs no more, and from exact ones a thief of the
# store could find which of the stored reports came between two steps: those with that sum.

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from fractions import Fraction
from functools import partial
from typing import NoReturn

from hush_aggregator.delivery.closing import Debounce
from hush_aggregator.estimate.estimates import ANYTIME, Interval
from hush_aggregator.estimate.result import Result
from hush_aggregator.logs import fields
from hush_aggregator.periodic import repeat
from hush_aggregator.store.base import PublishedStep, Step, Store, Worker
from hush_aggregator.store.steps import HOUR, end_of_hour, hours_until
from hush_common.aio import run_to_completion
from hush_common.errors import StoreError

_LOG = logging.getLogger("hush.aggregator")
_EVERY_S = 5.0
_DIGITS = 11


def step_of(result: Result) -> PublishedStep:
    """Return a result, which was published, as a step of its round."""
    single = result.estimate.single
    mean, interval = _rounded(single.mean, single.intervals.get(ANYTIME))
    step = Step(end_of_hour(result.updated_at), result.n, mean, interval, result.confidence)
    return PublishedStep(result.task.digest, result.round, step, is_final=result.final)


def _rounded(mean: float | None, interval: Interval | None) -> tuple[float | None, Interval | None]:
    """Round to `_DIGITS` binary digits of the interval, its ends outwards; without a usable interval there is none."""
    if mean is None or interval is None:
        return None, None
    width = interval[1] - interval[0]
    unit = Fraction(math.ldexp(1.0, math.frexp(width)[1] - _DIGITS)) if 0 < width < math.inf else 0
    if not unit:
        return None, None
    try:
        low, high = math.floor(Fraction(interval[0]) / unit), math.ceil(Fraction(interval[1]) / unit)
        return float(round(Fraction(mean) / unit) * unit), (float(low * unit), float(high * unit))
    except OverflowError:
        return None, None


class StepRecorder:
    """Writes published estimates to the steps of their rounds, all of some seconds in one transaction.

    Args:
        store: with the steps.
        work: the thread of the store.
        clock: the time, aware.
    """

    def __init__(self, store: Store, *, work: Worker, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._work = work
        self._clock = clock
        self._new: dict[tuple[bytes, int, int], PublishedStep] = {}  # by digest, round and time: the last one
        self._wake = asyncio.Event()
        self._lasting = Debounce(lambda: asyncio.get_running_loop().time())
        self._thinned = 0  # until when

    def note(self, result: Result) -> None:
        """Keep a result that was published."""
        one = step_of(result)
        self._new[one.digest, one.round, one.step.until] = one
        self._wake.set()

    async def run(self) -> NoReturn:
        """Write until cancelled; a store that cannot be written is tried again."""
        await repeat(self.write, self._pause, failure="steps of estimates cannot be kept", event="steps_failed")

    async def _pause(self) -> None:
        await asyncio.sleep(_EVERY_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(HOUR):
                await self._wake.wait()

    async def close(self) -> None:
        """Write what is left; call this in place of `run`, once nothing is published any more."""
        try:
            await self.write()
        except StoreError as error:
            said = fields("steps_failed")
            _LOG.error("the last steps of estimates are not kept (%s)", error, extra=said)

    async def write(self) -> None:
        """Write what was published since the last call, and keep whole days of what is a week old."""
        if self._new:
            await run_to_completion(self._put())
        before = hours_until(int(self._clock().timestamp()))
        if before > self._thinned and self._lasting.holds(before, now=True):  # not by a clock that jumps ahead
            await self._work(partial(self._store.thin_steps, before))
            self._thinned = before
            self._lasting.forget(before)

    async def _put(self) -> None:
        new = sorted(self._new.items())
        await self._work(partial(self._store.put_steps, [one for _, one in new]))
        for key, one in new:
            if self._new.get(key) is one:  # no later one has come meanwhile
                del self._new[key]
        if not self._new:
            self._wake.clear()
