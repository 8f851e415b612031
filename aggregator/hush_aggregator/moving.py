"""Moving a broker session from a client id that anybody can guess to a random one.

A broker gives the session of a client id, with all that waits in it, to whoever connects under that id. So the id of an
aggregator ends in the identity of its store. A store from before that has reports waiting under the former id. They
are counted before that session is ended:

1. The new session is subscribed. From here on everything comes under the new id; what comes under both counts once.
2. A mark is sent to the topic of the status, which only the former session is subscribed to: it comes after all that
   waited there.
3. Once the mark has come, or nothing for `_QUIET_S`, and all that was handed over is acknowledged, the former session
   is ended by a connection without memory.

Whatever fails in between is done again, on the next connection or at the next start, and nothing is lost.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from hush_aggregator.bus import Bus, Delivery, Session, SessionAround
from hush_common.errors import BrokerError, StoreError

__all__ = ["MovingBus"]

_LOG = logging.getLogger("hush.aggregator")
_QUIET_S = 5.0  # for brokers whose rules keep the mark away
_ATTEMPTS = 3
_MARK = b"moving"


class MovingBus:
    """The `Bus` of an aggregator under its new id, which takes along what waits under the former one.

    Some brokers choose the client id themselves, by user name for example. Then both ids are one session, the two
    connections throw each other out, and there is nothing to move: after `_ATTEMPTS` it is left until the next start.

    Args:
        bus: under the new id, with a session that the broker keeps.
        former: under the former id, likewise.
        ending: under the former id, with a session that the broker forgets.
        status: the topic that the mark goes to; the aggregator may write it, and need not be allowed to read it.
        ended: notes that nothing waits there any more; called in a thread.
    """

    def __init__(self, bus: Bus, former: Bus, ending: Bus, *, status: str, ended: Callable[[], None]) -> None:
        self._bus = bus
        self._former = former
        self._ending = ending
        self._status = status
        self._ended = ended
        self._attempts = _ATTEMPTS

    @property
    def name(self) -> str:
        return self._bus.name

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[Session]:
        async with self._bus.connect(filters) as session, AsyncExitStack() as connection:
            if not self._attempts:
                yield session
                return
            try:
                former = await connection.enter_async_context(self._former.connect((*filters, self._status)))
            except BrokerError:  # perhaps it may not read that topic
                former = await connection.enter_async_context(self._former.connect(filters))
            await self._send_mark(session)
            both = _Both(session, former, self._status)
            ending = asyncio.create_task(self._end(both, connection), name="hush-move")
            try:
                yield both
            finally:
                ending.cancel()
                await asyncio.wait({ending})

    async def _send_mark(self, session: Session) -> None:
        try:
            await session.publish(self._status, _MARK)
        except BrokerError:
            self._attempts -= 1
            if not self._attempts:
                _LOG.warning("the broker seems to choose client ids itself: nothing to move from the former one")
            raise

    async def _end(self, both: "_Both", connection: AsyncExitStack) -> None:
        await both.drained.wait()
        try:
            await connection.aclose()
            async with self._ending.connect(()):
                pass
            await asyncio.to_thread(self._ended)
        except (BrokerError, StoreError) as error:
            _LOG.warning("the session of the former client id could not be ended (%s); the next start does it", error)
        else:
            _LOG.info("counted what waited under the former client id, and ended its session")
        self._attempts = 0


class _Both(SessionAround):
    """A session that delivers what waits in the former one first."""

    def __init__(self, session: Session, former: Session, status: str) -> None:
        super().__init__(session)
        self._former = former
        self._status = status
        self._passed = False  # whether all that waited there has come
        self._unacknowledged = 0
        self.drained = asyncio.Event()

    async def batch(self) -> list[Delivery]:
        while not self.drained.is_set():
            if self._passed and not self._unacknowledged:
                break
            try:
                async with asyncio.timeout(_QUIET_S):
                    taken = await self._former.batch()
            except TimeoutError:
                self._passed = True
                continue
            marks = [delivery.payload for delivery in taken if delivery.topic == self._status]
            self._passed = self._passed or _MARK in marks
            if others := [self._followed(delivery) for delivery in taken if delivery.topic != self._status]:
                return others
        self.drained.set()
        return await self._session.batch()

    def _followed(self, delivery: Delivery) -> Delivery:
        """The same, and its acknowledgement is waited for: what is only held here must not be forgotten there."""
        self._unacknowledged += 1
        return replace(delivery, ack=partial(self._acknowledge, delivery.ack))

    def _acknowledge(self, ack: Callable[[], object]) -> None:
        self._unacknowledged -= 1
        ack()
