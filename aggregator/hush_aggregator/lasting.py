"""What the clock says for a while. A clock that is put forward by mistake, and back again, must close nothing."""

from collections.abc import Callable, Hashable

__all__ = ["LASTING_S", "Lasting"]

LASTING_S = 300.0
"""Seconds for which the clock has to say something that cannot be taken back."""


class Lasting:
    """Remembers since when something is true, by a clock that nobody sets.

    Args:
        elapsed: seconds by that clock.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._since: dict[Hashable, float] = {}

    def holds(self, what: Hashable, *, now: bool) -> bool:
        """Whether it has been true at every look for `LASTING_S`."""
        if not now:
            self._since.pop(what, None)
            return False
        return self._elapsed() - self._since.setdefault(what, self._elapsed()) >= LASTING_S

    def forget(self, what: Hashable) -> None:
        self._since.pop(what, None)
