"""Places: a bounded number of things at the same time, and a bounded share of them for each address."""

from collections import Counter

from hush_aggregator.http.problems import Kind, ProblemError

__all__ = ["Places"]

_RETRY = {"Retry-After": "5"}


class Places:
    """A bounded number of things at the same time.

    Args:
        most: how many.
        kind: of the problem when all places are taken.
        detail: of the same problem.
        share: how many of them one address can take; None for all.
        what: they are, for the message about a share.
    """

    def __init__(self, most: int, kind: Kind, detail: str, *, share: int | None = None, what: str = "") -> None:
        self._most = most
        self._kind = kind
        self._detail = detail
        self._share = share
        self._what = what
        self._taken: Counter[str] = Counter()

    def take(self, who: str = "") -> None:
        """Take one.

        Raises:
            ProblemError: none is free, or `who` has its share.
        """
        if self._share is not None and self._taken[who] >= self._share:
            detail = f"{self._share} {self._what} of this address are under way, which is its share; ask again later"
            raise ProblemError(Kind.OVER_SHARE, detail, headers=_RETRY)
        if self._taken.total() >= self._most:
            raise ProblemError(self._kind, self._detail, headers=_RETRY)
        self._taken[who] += 1

    def leave(self, who: str = "") -> None:
        """Give one back."""
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]
