"""Places: so many at the same time, and a problem for whoever comes when all are taken."""

from hush_aggregator.http.problems import ProblemError

__all__ = ["Places"]


class Places:
    """So many at the same time.

    Args:
        most: how many.
        refusal: what is told to whoever comes when all are taken.
    """

    def __init__(self, most: int, refusal: str) -> None:
        self._free = most
        self._refusal = refusal

    def take(self) -> None:
        """Take one.

        Raises:
            ProblemError: none is free.
        """
        if not self._free:
            raise ProblemError(503, self._refusal, headers={"Retry-After": "5"})
        self._free -= 1

    def leave(self) -> None:
        """Give one back."""
        self._free += 1
