"""The schedule: each report is sent at its own random time, so that the time of sending reveals nothing.

How long a draw takes depends on the noise, and a gateway asks its devices in some order: a report that left as soon as
it was drawn would reveal a little of both. So every report gets a delay, uniform over a window and independent of value
and noise, that starts before the draw; reports leave in the order in which their delays end. Only a report whose delay
ends before it is on the disk leaves as soon as it is.
"""

import asyncio
import heapq
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from hush_common.rng import SystemRng
from hush_common.task import Task

Clock = Callable[[], datetime]
"""The current time, aware."""

LONGEST_SPREAD = 7 * 24 * 3600.0
"""Seconds."""

_NAP = 60.0  # seconds until the wall clock is read again; the loop's clock stops while the machine sleeps


def utc_now() -> datetime:
    return datetime.now(UTC)


def milliseconds(now: datetime) -> int:
    """Return the time as the outbox stores it: milliseconds since 1970."""
    return int(now.timestamp() * 1000)


def draw_delay(spread: float, task: Task, now: datetime) -> int:
    """Return the milliseconds to hold a report back: uniform over [0, `spread`], from the operating system's entropy.

    If the task closes soon, the window is half of the remaining time: a late report would not be counted.
    """
    longest = milliseconds_to_wait(spread, task, now)
    return SystemRng().randbelow(longest + 1) if longest else 0


def milliseconds_to_wait(seconds: float, task: Task, now: datetime) -> int:
    """Return these seconds, or half of the time until the task closes, in milliseconds."""
    window = timedelta(seconds=seconds)
    if task.closes is not None:
        window = min(window, max((task.closes - now) / 2, timedelta(0)))
    return window // timedelta(milliseconds=1)


class Schedule:
    """Outbox entries by the time at which each may be sent.

    Time is counted in seconds from the start, by the loop's clock or the wall clock, whichever went further: a clock
    that is set back delays nothing, and one that went on while the machine slept makes up for the other.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = 0.0
        self._seen = self._read()
        self._due: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._added, self._removed = asyncio.Event(), asyncio.Event()

    def now(self) -> float:
        """Return the seconds since the start; never less than before."""
        seen = self._read()
        self._now += max(0.0, *(after - before for after, before in zip(seen, self._seen, strict=True)))
        self._seen = seen
        return self._now

    def add(self, sequence: int, due: float) -> None:
        """Schedule an entry, unless it is scheduled already."""
        if sequence not in self._due:
            self._push(sequence, due)

    def advance(self, sequence: int, due: float) -> None:
        """Schedule an entry; one that is scheduled for later is moved forward."""
        if due < self._due.get(sequence, math.inf):
            self._push(sequence, due)

    def postpone(self, sequence: int, due: float) -> None:
        """Schedule an entry again, earlier or later."""
        self._push(sequence, due)
        self._removed.set()

    def done(self, sequence: int) -> None:
        """Forget an entry: the broker has it."""
        self._due.pop(sequence, None)
        self._removed.set()

    async def passed(self, moment: float) -> None:
        """Return when everything that is due by then is done."""
        due = [sequence for sequence, at in self._due.items() if at <= moment]
        while due:
            self._removed.clear()
            if self._due.get(due[-1], math.inf) > moment:
                due.pop()
            else:
                await self._removed.wait()

    def restart(self) -> None:
        """Start again with everything that is not done, such as what was in flight."""
        self._heap = sorted((due, sequence) for sequence, due in self._due.items())

    def take(self, limit: int) -> list[int]:
        """Return at most `limit` entries that are due, in the order of their times; each only once."""
        now, taken = self.now(), list[int]()
        while len(taken) < limit and self._heap and self._heap[0][0] <= now:
            due, sequence = heapq.heappop(self._heap)
            if self._due.get(sequence) == due:  # else it was rescheduled, or is done
                taken.append(sequence)
        return taken

    async def wait(self) -> None:
        """Return when something may be due, or was added."""
        self._added.clear()
        pause = min(self._heap[0][0] - self.now(), _NAP) if self._heap else None
        if pause is not None and pause <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._added.wait()

    def _read(self) -> tuple[float, float]:
        return asyncio.get_running_loop().time(), self._clock().timestamp()

    def _push(self, sequence: int, due: float) -> None:
        self._due[sequence] = due
        heapq.heappush(self._heap, (due, sequence))
        self._added.set()
