"""Delays between attempts to connect."""

from hush_common.rng import SystemRng

__all__ = ["Backoff"]

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 30.0
_STEPS = 1000


class Backoff:
    """The first delay doubles up to the longest; each is cut short by up to half, so that not all come back at once.

    Args:
        first: seconds.
        longest: seconds.
    """

    def __init__(self, first: float = _FIRST_SECONDS, longest: float = _LONGEST_SECONDS) -> None:
        self._first, self._longest = first, longest
        self._delay = first

    @property
    def longest(self) -> bool:
        """Whether attempts have become as rare as they get."""
        return self._delay >= self._longest

    def reset(self) -> None:
        """Begin anew: the last attempt was none that failed."""
        self._delay = self._first

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        delay = self._delay * (1 + SystemRng().randbelow(_STEPS) / _STEPS) / 2
        self._delay = min(2 * self._delay, self._longest)
        return delay
