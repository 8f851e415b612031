"""The pace of a program: the time in which it waits for a processor or a disk is not counted.

A verdict from silence must not depend on what else a machine does. Linux counts for each thread how long it was ready
to run and did not run (`/proc/PID/task/TID/schedstat`). Where that file is missing, all time is counted.
"""

import os
import time
from pathlib import Path

TICK = 0.1
"""Seconds between two looks at a program."""

_MOST_TIMES, _LEAST_LIMIT = 10, 60.0
"""A wait ends after so many times the seconds that it was to take, but not before one minute."""

_PROC = Path("/proc")


class StarvedError(Exception):
    """The program got so little of the machine that its silence shows nothing."""


class Pace:
    """Counts the time that a program, with everything that it has started, could use."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.used: float = 0.0  # seconds
        self.lost: float = 0.0  # seconds in which the program could not run
        self._waits: dict[int, dict[str, int]] = {}

    def begin(self) -> None:
        """Count from now on."""
        self._waits = _waits_of(self.pid)

    def usable(self, elapsed: float) -> float:
        """Return how many of the seconds since the last call the program could use."""
        before, self._waits = self._waits, _waits_of(self.pid)
        waited = sum(
            max(wait - before.get(process, {}).get(thread, 0) for thread, wait in threads.items())
            for process, threads in self._waits.items()
        )
        counted = min(elapsed, 2 * TICK)  # more, if this process or the whole machine stopped
        usable = 0.0 if self.pid is not None and _waits_for_disk(self.pid) else max(0.0, counted - waited / 1e9)
        self.used += usable
        self.lost += elapsed - usable
        return usable


class Patience:
    """Some seconds, in the time of a program or in that of the clock."""

    def __init__(self, pace: Pace, seconds: float, *, by_clock: bool = False) -> None:
        self.left: float = seconds
        self._pace, self._by_clock = pace, by_clock
        self._began = self._last = time.monotonic()
        self._limit = max(_MOST_TIMES * seconds, _LEAST_LIMIT)
        pace.begin()

    def spend(self) -> None:
        """Subtract the time since the last call.

        Raises:
            StarvedError: the wait takes many times as long as it was to take.
        """
        now = time.monotonic()
        usable = self._pace.usable(now - self._last)
        self.left -= now - self._last if self._by_clock else usable
        self._last = now
        if self.left > 0 and now - self._began > self._limit:
            raise StarvedError(f"the program got too little of the machine in {now - self._began:.0f} s; try again")


def _waits_of(pid: int | None) -> dict[int, dict[str, int]]:
    """Return the nanoseconds that each thread has waited for a processor.

    They are those of a process with its descendants, and of this process, which is its broker.
    """
    own = os.getpid()
    found, left = dict[int, dict[str, int]](), [own] if pid is None else [own, pid]
    while left:
        one = left.pop()
        try:
            threads = list((_PROC / f"{one}" / "task").iterdir())
            found[one] = {path.name: int((path / "schedstat").read_text().split()[1]) for path in threads}
            if one != own:
                left += [int(word) for path in threads for word in (path / "children").read_text().split()]
        except (OSError, ValueError, IndexError):  # it has ended, or the system does not count
            found.pop(one, None)
    return {process: threads for process, threads in found.items() if threads}


def _waits_for_disk(pid: int) -> bool:
    try:
        return (_PROC / f"{pid}" / "stat").read_text().rpartition(")")[2].split()[0] == "D"
    except (OSError, IndexError):
        return False
