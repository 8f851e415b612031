"""Release: the estimates of tasks whose counts changed, each published at most once a second, the last change too.

Tasks whose estimate is known to be quick come first in each round of releases; the others share a second of it, so
that however many of them are slow or new, the estimates of the quick ones stay fresh. So do tasks that somebody else
published, whether they are quick or not: one's own never wait for more than that second. Among those that share it
small ones come first in its first half, and in its second those that have waited longest.

A task whose estimate failed is released without figures; one whose estimate is slow keeps its last document, which
says of how many reports it speaks, until the next is made.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import NoReturn

from hush_aggregator.bus import Publisher
from hush_aggregator.estimating import Estimator
from hush_aggregator.lanes import QUICK_S, Lanes, Made
from hush_aggregator.result import Counted, encode, result_of
from hush_common.errors import BrokerError
from hush_common.topics import estimate_topic

__all__ = ["Releases"]

_LOG = logging.getLogger("hush.aggregator")
_EVERY_S = 1.0
_LAST_S = 5.0
_OTHERS_S = 1.0  # of each round, for tasks not known to be quick, and for those of others
_QUICK_OF_ANOTHER_S = 0.25


def _nothing(_: str) -> Mapping[str, str | int]:
    return {}


async def _at_once() -> None:
    pass


def _ignore(_: str, __: bytes) -> None:
    pass


class Releases:
    """Keeps the retained estimates up to date.

    Args:
        read: what is counted of the latest round of a task, None if it is forgotten; may raise a `StoreError`.
        estimator: makes the estimates.
        confidence: nominal coverage of the intervals, inside (0, 1).
        clock: the time, aware.
        rank: for the order: whether a task is another's, which anybody may have published, and how large it is.
        fields: what else the document of a task says; None if nothing is to be released of it.
        publishing: called with a task and its document before that is published.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[Counted | None]],
        estimator: Estimator,
        *,
        confidence: float,
        clock: Callable[[], datetime],
        rank: Callable[[str], tuple[bool, int]] = lambda _: (False, 0),
        fields: Callable[[str], Mapping[str, str | int] | None] = _nothing,
        publishing: Callable[[str, bytes], object] = _ignore,
    ) -> None:
        self._read = read
        self._confidence = confidence
        self._clock = clock
        self._rank = rank
        self._fields = fields
        self._publishing = publishing
        self._lanes = Lanes(estimator, confidence, self.mark)
        self._due: set[str] = set()  # ids of the tasks whose retained estimate is out of date
        self._made: dict[str, Made] = {}  # made, and not published yet
        self._waited: dict[str, int] = {}  # rounds of releases that a task was due in and had no turn
        self._changed = asyncio.Event()

    def mark(self, task_ids: set[str]) -> None:
        """Release these: their counts changed."""
        self._due |= task_ids
        if self._due:
            self._changed.set()

    async def serve(self, session: Publisher) -> NoReturn:
        """Release what changes, until cancelled or the connection is lost."""
        while True:
            await self._changed.wait()
            await self._release_due(session)
            await asyncio.sleep(_EVERY_S)

    async def release_last(self, session: Publisher, *, first: Callable[[], Awaitable[None]] = _at_once) -> None:
        """Release what is due before the service stops; what takes too long is left to the next start.

        Args:
            session: the connection.
            first: what is to be done before, as part of it.
        """
        try:
            async with asyncio.timeout(_LAST_S):
                await first()
                while self._due:
                    await self._release_due(session)
        except (BrokerError, TimeoutError) as error:
            why = error if isinstance(error, BrokerError) else f"they took longer than {_LAST_S:g} s"
            _LOG.warning("the last estimates could not be released (%s); the next start releases them", why)

    async def close(self) -> None:
        """Give up what is still being made."""
        await self._lanes.close()

    async def _release_due(self, session: Publisher) -> None:
        """One round of releases."""
        self._changed.clear()
        clock = asyncio.get_running_loop().time
        rank = {task_id: self._rank(task_id) for task_id in self._due}
        quick = [task_id for task_id in rank if self._lanes.is_quick(task_id) and not rank[task_id][0]]
        for task_id in sorted(quick):
            await self._release(session, task_id)
        others = sorted(rank.keys() - set(quick), key=lambda task_id: (*rank[task_id], task_id))
        until = clock() + _OTHERS_S
        for take, end in ((0, until - _OTHERS_S / 2), (-1, until)):
            others.sort(key=lambda task_id: self._waited.get(task_id, 0) * take)  # keeps the order of equals
            while others and clock() < end:
                task_id = others.pop(0)
                self._waited.pop(task_id, None)
                await self._release(session, task_id, QUICK_S if not rank[task_id][0] else _QUICK_OF_ANOTHER_S)
        for task_id in others:
            self._waited[task_id] = self._waited.get(task_id, 0) + 1
        if self._due:
            self._changed.set()

    async def _release(self, session: Publisher, task_id: str, quick_s: float = QUICK_S) -> None:
        self._due.discard(task_id)  # first, so that a commit in between marks it again
        if self._fields(task_id) is None:
            return
        try:
            made = self._made.get(task_id) or self._lanes.finished(task_id)
            if made is not None:
                self._made[task_id] = made  # kept until it is published
                self._due.add(task_id)  # more may have been counted meanwhile
            else:
                counted = await self._read(task_id)
                made = None if counted is None else await self._lanes.make(counted, quick_s)
            if made is not None and (fields := self._fields(task_id)) is not None:
                document = self._encoded(made, fields)
                self._publishing(task_id, document)
                await session.publish(estimate_topic(task_id), document, retain=True)
            self._made.pop(task_id, None)
        except BaseException:
            self.mark({task_id})
            raise

    def _encoded(self, made: Made, fields: Mapping[str, str | int]) -> bytes:
        result = result_of(made.counted, made.estimate, self._confidence, self._clock())
        return encode({**result.to_document(), **fields})
