"""The book of ownership: what the store knows of who publishes a task, read and written in the store's thread."""

from collections.abc import Awaitable, Callable
from typing import Any

from hush_aggregator.claims import Claim
from hush_aggregator.known_tasks import KnownTasks
from hush_aggregator.store.base import Store, TaskRow

__all__ = ["Book"]


class Book:
    """The store, as far as ownership goes.

    Args:
        store: keeps it.
        tasks: follow what is written.
        in_worker: runs a call in the store's thread.
    """

    def __init__(
        self, store: Store, tasks: KnownTasks, in_worker: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._in_worker = in_worker

    async def me(self) -> str:
        """The identity of the store that estimates bear."""
        identity: str = await self._in_worker(lambda: self._store.public_identity)
        return identity

    async def counted(self, digest: bytes, round_: int) -> int:
        """Reports counted of a round."""
        n: int = await self._in_worker(lambda: self._store.tally(digest, round_).n)
        return n

    async def note(self, row: TaskRow, claim: Claim) -> None:
        """Keep who owns a task, and since which term, as it follows from `row`: a take-over that came since stays."""

        def write() -> None:
            self._store.set_owner(row.id, claim.store, claim.term, claim.taken_from, was_taken_from=row.taken_from)
            self._tasks.refresh()

        await self._in_worker(write)
