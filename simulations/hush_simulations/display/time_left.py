"""How quickly work goes on, and how long the rest takes."""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from hush_common.formatting import duration, significant

_WINDOW_S = 3.0  # the rate is that of the last seconds, or of the last steps if these take longer
_LEAST_S = 2.0  # of samples
_APART_S = _WINDOW_S / 64
_FEWEST = 3  # samples
_STEADY = 2.0  # the most that the rates of both halves of the window differ by
_ENOUGH, _ENOUGH_S = 0.05, 10.0  # of the work, or seconds, after which the time left is worth saying
_ROUNDED = ((600, 60), (60, 10))  # from so many seconds on to so many


class _Sample(NamedTuple):
    time: float
    done: int


class TimeLeft:
    """The rate of work over a moving window, from its first progress on: what came before was preparation.

    There is no rate until both halves of the window have nearly the same one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._done: int | None = None
        self._before = 0
        self._began = 0.0
        self._samples: deque[_Sample] = deque()
        self._is_steady = False

    def add(self, done: int) -> None:
        """Take how much is done now. The first call says what was done before."""
        if self._done is None:
            self._done = self._before = done
        if done <= self._done:
            return
        self._done = done
        now, samples = self._clock(), self._samples
        self._began = self._began if samples else now
        if samples and now - samples[-1].time < _APART_S:
            return
        samples.append(_Sample(now, done))
        while len(samples) > _FEWEST and samples[1].time <= now - _WINDOW_S:
            samples.popleft()

    @property
    def rate(self) -> float | None:
        """How much is done in a second; None as long as that is not known."""
        samples = list(self._samples)
        if len(samples) < _FEWEST or samples[-1].time - samples[0].time < _LEAST_S:
            return None
        first, last = samples[0], samples[-1]
        middle = samples[
            bisect_left(samples, (first.time + last.time) / 2, 1, len(samples) - 2, key=lambda one: one.time)
        ]
        slow, quick = sorted((_rate(first, middle), _rate(middle, last)))
        self._is_steady = self._is_steady or quick <= _STEADY * slow
        return _rate(first, last) if self._is_steady else None

    def rate_in_words(self) -> str:
        """Return `12 a second` or `3 s each`; empty if it is not known."""
        rate = self.rate
        if rate is None:
            return ""
        return f"{significant(rate)} a second" if rate >= 1 else f"{significant(1 / rate)} s each"

    def left(self, missing: int) -> str:
        """Return how long so much more takes: `20 s left`; empty if it is not known."""
        rate, done = self.rate, (self._done or 0) - self._before
        is_enough = done >= _ENOUGH * (done + missing) or (
            self._samples and self._samples[-1].time - self._began >= _ENOUGH_S
        )
        if rate is None or not is_enough or not missing:
            return ""
        seconds = max(missing / rate, 1)
        unit = next((unit for least, unit in _ROUNDED if seconds >= least), 1)
        return f"{duration(timedelta(seconds=round(seconds / unit) * unit))} left"


def _rate(start: _Sample, end: _Sample) -> float:
    return (end.done - start.done) / (end.time - start.time)
