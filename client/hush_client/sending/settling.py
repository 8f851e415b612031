"""Settling: what the broker has acknowledged is written down, a batch at a time, and what was sent again is counted."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from hush_client.sending.recalls import Recalls
from hush_client.sending.schedule import Clock, milliseconds
from hush_client.sending.transport import Acknowledgement
from hush_client.state import outbox
from hush_client.state.database import State
from hush_client.state.outbox import Entry
from hush_client.state.settle import settle
from hush_common.errors import HushError
from hush_common.wire import DIGEST

__all__ = ["Settling"]

_LOG = logging.getLogger(__name__)

_LINGER = 0.02  # acknowledgements of this time are settled together; after a crash in it they are sent once more


class Settling:
    """From an acknowledgement to the state: an entry leaves the outbox, and is kept for recalls.

    Args:
        state: where the outbox is.
        clock: the current time, aware.
        recalls: what is kept, and what is to be written about that.
    """

    def __init__(self, state: State, clock: Clock, recalls: Recalls) -> None:
        self._state, self._clock, self._recalls = state, clock, recalls
        self._acknowledged: dict[int, Acknowledgement] = {}
        self._attempted: set[int] = set()
        self._resent: Counter[int] = Counter()
        self._due, self._done = asyncio.Event(), asyncio.Event()
        self._settling = asyncio.Lock()

    def maybe_sent(self, sequence: int) -> None:
        """Take notice that an earlier run may have sent an entry."""
        self._attempted.add(sequence)

    def sent(self, sequence: int) -> None:
        """Count that an entry is handed to the network, if it was before."""
        if sequence in self._recalls:
            self._recalls.sent(sequence)
            return
        if sequence in self._attempted:
            self._resent[sequence] += 1
        self._attempted.add(sequence)

    def said(self, sequence: int) -> Acknowledgement | None:
        """What the broker said that has an entry, until that is written down."""
        return self._acknowledged.get(sequence)

    def acknowledged(self, entry: Entry, answer: Acknowledgement) -> None:
        """Have it written down that the broker has an entry of the outbox."""
        self._recalls.learn(entry.topic, entry.payload[DIGEST])
        self._acknowledged[entry.sequence] = answer
        self._due.set()

    def recalled(self, sequence: int, *, gone: bool = False) -> None:
        """Take notice that an entry that a recall has asked for is acknowledged, or that one is gone."""
        if self._recalls.done(sequence, acknowledged=not gone):
            self._due.set()

    async def flush(self, waiting: Callable[[], Iterable[int]]) -> bool:
        """Return once the outbox is empty, or holds nothing but what the broker did not take; whether it is empty.

        Args:
            waiting: says which entries those are, of what is kept and recalled, too.
        """
        while True:
            self._done.clear()
            left, others = await self._state.run(partial(outbox.count_besides, sequences=frozenset(waiting())))
            if not others:
                return not left
            await self._done.wait()

    def look(self) -> None:
        """Have whoever flushes look again."""
        self._done.set()

    async def run(self) -> None:
        """Settle until cancelled."""
        while True:
            await self._due.wait()
            await asyncio.sleep(_LINGER)
            await self.settle()

    async def settle_acknowledged(self) -> None:
        """Settle now, if anything of the outbox was acknowledged."""
        if self._acknowledged:
            await self.settle()

    async def settle(self) -> None:
        """Write down whatever is not."""
        async with self._settling:
            self._due.clear()
            acknowledged, resent, news = tuple(self._acknowledged), Counter(self._resent), self._recalls.news()
            if not acknowledged and not resent and not news:
                return
            job = partial(
                settle,
                acknowledged=acknowledged,
                resent=resent,
                news=news,
                place=self._recalls.place,
                now=milliseconds(self._clock()),
                room=self._recalls.room,
            )
            try:
                grown = await self._state.run(job)
            except HushError as error:
                _LOG.warning("%s", error)  # they stay in the outbox, and are sent once more after a restart
                return
            for sequence in acknowledged:
                self._acknowledged.pop(sequence, None)
            self._attempted.difference_update(acknowledged)
            self._resent -= resent
            self._recalls.written(news, grown)
            self._done.set()
