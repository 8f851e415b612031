"""The book of ownership: what the store knows of who publishes a task, read and written in the store's thread."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from hush_aggregator.claims import Claim
from hush_aggregator.known_tasks import KnownTasks
from hush_aggregator.store.base import Owner, Store, TaskRow

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

    async def counted(self, rounds: Collection[tuple[bytes, int]]) -> dict[tuple[bytes, int], int]:
        """Reports counted of these rounds (digest, round)."""
        if not rounds:
            return {}

        def read() -> dict[tuple[bytes, int], int]:
            return {(digest, round_): self._store.tally(digest, round_).n for digest, round_ in rounds}

        counts: dict[tuple[bytes, int], int] = await self._in_worker(read)
        return counts

    async def note(self, notes: Collection[tuple[TaskRow, Claim]]) -> None:
        """Keep who owns these tasks, and since which term, as it follows from the rows: a take-over since then stays.

        In one transaction, whatever their number, after which the tasks are read once.
        """
        if not notes:
            return

        def write() -> None:
            self._store.set_owners(
                [Owner(row.id, claim.store, claim.term, claim.taken_from, row.taken_from) for row, claim in notes]
            )
            self._tasks.refresh()

        await self._in_worker(write)
