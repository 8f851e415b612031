"""The sender: connects, subscribes, and publishes the outbox until the broker has acknowledged all of it."""

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Iterable
from functools import partial

from hush_client.sending.schedule import Clock, Schedule, milliseconds
from hush_client.sending.transport import Acknowledgement, Link, Listener, SubscriptionRefusedError, Transport
from hush_client.sending.verdicts import Verdicts
from hush_client.state import ledger, outbox
from hush_client.state.database import State
from hush_client.state.outbox import Entry
from hush_common.backoff import Backoff
from hush_common.cancellation import cancellable
from hush_common.errors import HushError
from hush_common.exception_groups import leaves

__all__ = ["Sender"]

_LOG = logging.getLogger(__name__)

_STEADY = 30.0  # seconds; a connection that lasted so long was no failed attempt
_WINDOW = 64
_PAGE = 256
_HEARING = 1.0  # seconds after a subscription in which a retained message comes, if there is one
_LINGER = 0.02  # acknowledgements of this time are deleted together; after a crash in it they are sent once more


class Sender:
    """Publishes each entry of the outbox when it is due, a window of them in flight, and deletes the acknowledged.

    Args:
        transport: the way to the broker.
        state: where the outbox is.
        listener: hears of connections and messages.
        clock: the current time, aware.
    """

    def __init__(
        self,
        transport: Transport,
        state: State,
        listener: Listener,
        clock: Clock,
    ) -> None:
        self.trouble: HushError | None = None
        """Why there is no connection; None while there is one, and before the first attempt ended."""
        self.forbidden: dict[str, SubscriptionRefusedError] = {}
        """Topics that the broker does not let us read; the reports of other tasks go on."""
        self._transport = transport
        self._state = state
        self._listener = listener
        self._link: Link | None = None
        self._clock = clock
        self._topics: dict[str, None] = {}  # in the order in which they were wanted
        self._subscribed: set[str] = set()  # on the present connection
        self._wanted = asyncio.Event()
        self._schedule = Schedule(clock)
        self._loaded = False
        self._acknowledged: set[int] = set()
        self._attempted: set[int] = set()
        self._resent: Counter[int] = Counter()
        self._deletable = asyncio.Event()
        self._deleted = asyncio.Event()
        self._verdicts = Verdicts(self._schedule)
        self._waiters: dict[int, asyncio.Future[Acknowledgement | None]] = {}
        self._progress = False

    def want(self, topic: str, *, again: bool = False) -> None:
        """Subscribe to `topic`, on this connection and every later one.

        Args:
            topic: of tasks.
            again: even if it is subscribed: its retained message is needed once more.
        """
        if again:
            self._subscribed.discard(topic)
        if topic not in self._topics or again:
            self._topics[topic] = None
            self._wanted.set()

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._link is not None

    @property
    def broker(self) -> str:
        """What to call the broker in a message."""
        return self._transport.name

    def now(self) -> float:
        """The time by which entries are due."""
        return self._schedule.now()

    def stored(self, sequence: int, due: float) -> None:
        """Take notice of a new entry of the outbox, and send it from `due` on."""
        self._waiters[sequence] = asyncio.get_running_loop().create_future()
        self._schedule.add(sequence, due)

    def acknowledgement(self, sequence: int | None) -> asyncio.Future[Acknowledgement | None] | None:
        """What the broker will say first to a new entry; its result is None if the sender ends before."""
        return None if sequence is None else self._waiters.get(sequence)

    async def flush(self) -> bool:
        """Return once the outbox is empty, or holds nothing but what the broker did not take; whether it is empty."""
        while True:
            self._deleted.clear()
            if (left := await self._state.run(outbox.count)) <= len(self._verdicts):
                return not left
            await self._deleted.wait()

    async def run(self) -> None:
        """Keep connected until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._delete_for_ever(), name="hush-delete")
                group.create_task(self._connect_for_ever(), name="hush-connect")
        finally:
            try:
                await self._delete()
            finally:
                for waiter in self._waiters.values():
                    if not waiter.done():
                        waiter.set_result(None)

    async def _connect_for_ever(self) -> None:
        backoff, loop = Backoff(), asyncio.get_running_loop()
        while True:
            self._progress = False
            began = loop.time()
            try:
                async with self._transport.connect() as link:
                    self.trouble = None
                    self._link = link
                    self._listener.connected(True)
                    await cancellable(self._serve(link))
            except HushError as error:
                self._link = None
                self._report_trouble(error)
                self._listener.connected(False)
                for sequence, answer in self._verdicts.lost(getattr(error, "reason", None)):
                    self._tell(sequence, answer)
            if self._progress or loop.time() - began > _STEADY:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    def _report_trouble(self, error: HushError) -> None:
        if self.trouble is None:  # once per outage, not once per attempt
            _LOG.warning("%s; trying again", error)
        self.trouble = error

    async def _serve(self, link: Link) -> None:
        """Use one connection until it is lost: then every task ends, and whatever was in flight is not acknowledged."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._subscribe(link), name="hush-subscribe")
                group.create_task(self._publish(link, group), name="hush-publish")
                await self._receive(link)  # here, and not in a task: see `cancellable`
        except BaseExceptionGroup as errors:
            lost, bugs = errors.split(HushError)
            if bugs is not None or lost is None:
                raise
            raise leaves(lost)[0] from None

    async def _receive(self, link: Link) -> None:
        while True:
            topic, payload = await link.receive()
            self._progress = True
            self._listener.receive(topic, payload)

    async def _subscribe(self, link: Link) -> None:
        self._subscribed.clear()
        while True:
            self._wanted.clear()
            for topic in [topic for topic in self._topics if topic not in self._subscribed]:
                self.forbidden.pop(topic, None)
                try:
                    await link.subscribe(topic)
                    asyncio.get_running_loop().call_later(_HEARING, self._heard, topic, link)
                except SubscriptionRefusedError as error:
                    self.forbidden[topic] = error
                self._subscribed.add(topic)
            await self._wanted.wait()

    def _heard(self, topic: str, link: Link) -> None:
        if link is self._link:
            self._listener.heard(topic)

    async def _publish(self, link: Link, group: asyncio.TaskGroup) -> None:
        await self._load()
        self._schedule.restart()
        window = asyncio.Semaphore(_WINDOW)
        while True:
            sequences = self._schedule.take(_PAGE)
            for entry in await self._state.run(partial(outbox.fetch, sequences=sequences)) if sequences else ():
                await window.acquire()
                if (answer := self._verdicts.stands(entry.sequence, entry.topic)) is not None:
                    window.release()
                    self._tell(entry.sequence, answer)
                    continue
                group.create_task(self._publish_one(link, entry, window), name="hush-publish-one")
            await self._schedule.wait()

    async def _load(self) -> None:
        """Plan what an earlier run has left."""
        if self._loaded:
            return
        wall, now, last = milliseconds(self._clock()), self.now(), 0
        await self._state.run(partial(outbox.reschedule, now=wall))
        while entries := await self._state.run(partial(outbox.page, after=last, limit=_PAGE)):
            for entry in entries:
                last = entry.sequence
                self._schedule.add(last, now + (entry.not_before - wall) / 1000)
                if entry.not_before <= wall and last not in self._waiters:  # an earlier run may have sent it
                    self._attempted.add(last)
        self._loaded = True

    async def _publish_one(self, link: Link, entry: Entry, window: asyncio.Semaphore) -> None:
        if entry.sequence in self._attempted:
            self._resent[entry.sequence] += 1
        self._attempted.add(entry.sequence)
        answer = await link.publish(entry.topic, entry.payload)
        window.release()
        self._progress = True
        if self._verdicts.heard(entry.sequence, entry.topic, answer):
            self._schedule.done(entry.sequence)
            self._acknowledged.add(entry.sequence)
            self._deletable.set()
        self._tell(entry.sequence, answer)

    def _tell(self, sequence: int, answer: Acknowledgement) -> None:
        """Tell whoever waits for it what the broker said to an entry, or to others like it."""
        waiter = self._waiters.pop(sequence, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)
        self._deleted.set()  # for whoever flushes: it may be the last that was open

    async def _delete_for_ever(self) -> None:
        while True:
            await self._deletable.wait()
            await asyncio.sleep(_LINGER)
            await self._delete()

    async def _delete(self) -> None:
        self._deletable.clear()
        sequences, resent = tuple(self._acknowledged), Counter(self._resent)
        if not sequences and not resent:
            return
        try:
            await self._state.run(partial(_settle, sequences=sequences, resent=resent))
        except HushError as error:
            _LOG.warning("%s", error)  # they stay in the outbox, and are sent once more after a restart
            return
        self._acknowledged.difference_update(sequences)
        self._attempted.difference_update(sequences)
        self._resent -= resent
        self._deleted.set()


def _settle(connection: sqlite3.Connection, *, sequences: Iterable[int], resent: Counter[int]) -> None:
    """Delete what is acknowledged, and count what was sent again, in one transaction."""
    outbox.delete(connection, sequences)
    ledger.resent(connection, resent)
