"""When stored reports are sent: each at a random moment of its own, so that the time of sending says nothing.

How long a draw takes depends on the noise that it draws, and a gateway asks its devices in some order: a report that
left as soon as it was drawn would tell a watcher of the network a little of both. So every report gets a delay,
uniform over a window and independent of value and noise, that runs from before the draw began; reports leave in the
order in which their delays end. Only one whose delay ends before it is on the disk leaves as soon as it is.
"""

import asyncio
import heapq
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from hush_common.rng import SystemRng
from hush_common.task import Task

__all__ = ["LONGEST_SPREAD", "Clock", "Schedule", "draw_delay", "milliseconds", "milliseconds_to_wait", "utc_now"]

Clock = Callable[[], datetime]
"""The current time, aware."""

LONGEST_SPREAD = 7 * 24 * 3600.0
"""Seconds."""

_NAP = 60.0  # seconds; the loop's clock stands still while the machine sleeps, and that of the wall is looked at then


def utc_now() -> datetime:
    """By the clock of the machine."""
    return datetime.now(UTC)


def milliseconds(now: datetime) -> int:
    """The time as the outbox keeps it: milliseconds since 1970."""
    return int(now.timestamp() * 1000)


def draw_delay(spread: float, task: Task, now: datetime) -> int:
    """Milliseconds to hold a report back: uniform over [0, `spread`], from the operating system's entropy.

    Where the task closes soon, the window is half of the time that is left: a late report would not be counted.
    """
    longest = milliseconds_to_wait(spread, task, now)
    return SystemRng().randbelow(longest + 1) if longest else 0


def milliseconds_to_wait(seconds: float, task: Task, now: datetime) -> int:
    """So many seconds, or half of the time that is left before the task closes."""
    window = timedelta(seconds=seconds)
    if task.closes is not None:
        window = min(window, max((task.closes - now) / 2, timedelta(0)))
    return window // timedelta(milliseconds=1)


class Schedule:
    """The entries of the outbox by the moment at which each may be sent.

    Time is counted from the start in seconds, by the loop's clock or that of the wall, whichever went further: a clock
    that is set back holds nothing up, and one that went on while the machine slept makes up for the other.

    Args:
        clock: the clock of the wall.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = 0.0
        self._seen = self._read()
        self._due: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._added, self._struck = asyncio.Event(), asyncio.Event()

    def now(self) -> float:
        """Seconds since the start; never less than before."""
        seen = self._read()
        self._now += max(0.0, *(after - before for after, before in zip(seen, self._seen, strict=True)))
        self._seen = seen
        return self._now

    def add(self, sequence: int, due: float) -> None:
        """Plan an entry, unless it is planned already."""
        if sequence not in self._due:
            self._due[sequence] = due
            heapq.heappush(self._heap, (due, sequence))
            self._added.set()

    def advance(self, sequence: int, due: float) -> None:
        """Plan an entry, or bring it forward where it is planned for later."""
        if due < self._due.get(sequence, math.inf):
            self._due[sequence] = due
            heapq.heappush(self._heap, (due, sequence))
            self._added.set()

    def postpone(self, sequence: int, due: float) -> None:
        """Plan an entry anew, whatever was planned for it."""
        self._due[sequence] = due
        heapq.heappush(self._heap, (due, sequence))
        self._added.set()
        self._struck.set()

    def done(self, sequence: int) -> None:
        """Forget an entry: the broker has it."""
        self._due.pop(sequence, None)
        self._struck.set()

    async def passed(self, moment: float) -> None:
        """Return when nothing is left of what is due by then."""
        due = [sequence for sequence, at in self._due.items() if at <= moment]
        while due:
            self._struck.clear()
            if self._due.get(due[-1], math.inf) > moment:
                due.pop()
            else:
                await self._struck.wait()

    def restart(self) -> None:
        """Begin again with everything that is not done: whatever was in flight is not."""
        self._heap = sorted((due, sequence) for sequence, due in self._due.items())

    def take(self, limit: int) -> list[int]:
        """At most `limit` entries that are due, in the order of their moments; each is handed out once."""
        now, taken = self.now(), list[int]()
        while len(taken) < limit and self._heap and self._heap[0][0] <= now:
            due, sequence = heapq.heappop(self._heap)
            if self._due.get(sequence) == due:  # else it was planned anew, or is done
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
