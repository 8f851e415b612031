"""Waiters: whoever made an answer, or asks after it, hears what the broker says to its report."""

import asyncio
from collections.abc import Callable

from hush_client.sending.transport import Acknowledgement

__all__ = ["Waiters"]


class Waiters:
    """A future for each entry of the outbox that somebody asks after.

    Args:
        said: what the broker has said to an entry already, if it has.
    """

    def __init__(self, said: Callable[[int], Acknowledgement | None]) -> None:
        self._said = said
        self._waiting: dict[int, asyncio.Future[Acknowledgement | None]] = {}
        self._ended = False

    def of(self, sequence: int) -> asyncio.Future[Acknowledgement | None]:
        """What the broker says next to an entry, or has said; None if the sender ends before."""
        if (waiter := self._waiting.get(sequence)) is not None:
            return waiter
        waiter, said = asyncio.get_running_loop().create_future(), self._said(sequence)
        if said is None and not self._ended:
            self._waiting[sequence] = waiter
        else:
            waiter.set_result(said)
        return waiter

    def tell(self, sequence: int, answer: Acknowledgement) -> None:
        """Tell whoever waits for it what the broker said to an entry, or to others like it."""
        waiter = self._waiting.pop(sequence, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)

    def end(self) -> None:
        """Let nobody wait any more, nor from now on: the sender has ended."""
        self._ended = True
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_result(None)
