"""Delays between attempts to connect."""

from hush_common.rng import SystemRng

__all__ = ["Backoff"]

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 30.0
_STEPS = 1000


class Backoff:
    """From 0.1 s the delay doubles up to 30 s; each is cut short by up to half, so that not all come back at once."""

    def __init__(self) -> None:
        self._delay = _FIRST_SECONDS

    @property
    def longest(self) -> bool:
        """Whether attempts have become as rare as they get."""
        return self._delay >= _LONGEST_SECONDS

    def reset(self) -> None:
        """Begin anew: the last attempt was none that failed."""
        self._delay = _FIRST_SECONDS

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        delay = self._delay * (1 + SystemRng().randbelow(_STEPS) / _STEPS) / 2
        self._delay = min(2 * self._delay, _LONGEST_SECONDS)
        return delay
