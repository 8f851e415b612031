"""The sender: connects, subscribes, and publishes the outbox until the broker has acknowledged all of it."""

import asyncio
import logging
import math
import sqlite3
from functools import partial

from hush_client.sending.keeping import Keeping
from hush_client.sending.recalls import Recalls
from hush_client.sending.schedule import Clock, Schedule, milliseconds
from hush_client.sending.settling import Settling
from hush_client.sending.synced import Synced
from hush_client.sending.transport import Acknowledgement, Link, Listener, SubscriptionRefusedError, Transport
from hush_client.sending.verdicts import Verdicts
from hush_client.sending.waiters import Waiters
from hush_client.state import kept, outbox
from hush_client.state.database import State
from hush_client.state.outbox import Entry
from hush_common.aio import Backoff, cancellable
from hush_common.errors import HushError, leaves

__all__ = ["Sender"]

_LOG = logging.getLogger(__name__)

_STEADY = 30.0  # seconds; a connection that lasted so long was no failed attempt
_WINDOW = 64
_PAGE = 256
_HEARING = 1.0  # seconds after a subscription in which a retained message comes, if there is one


class Sender:
    """Publishes each entry of the outbox when it is due, a window of them in flight, and keeps the acknowledged.

    Args:
        transport: the way to the broker.
        state: where the outbox is.
        listener: hears of connections and messages.
        clock: the current time, aware.
        keeping: how long what was acknowledged is kept; it is deleted at once if left out.
    """

    def __init__(
        self,
        transport: Transport,
        state: State,
        listener: Listener,
        clock: Clock,
        keeping: Keeping | None = None,
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
        self._subscribed: dict[str, float] = {}  # on the present connection, and since when
        self._wanted = asyncio.Event()
        self._answered = asyncio.Event()
        self._schedule = Schedule(clock)
        self._recalls = Recalls(
            keeping or Keeping(),
            transport.name,
            state,
            schedule=self._schedule,
            clock=clock,
            want=self.want,
        )
        self._settling = Settling(state, clock, self._recalls)
        self._planned = asyncio.Event()
        self._verdicts = Verdicts(self._schedule, clock)
        self._waiters = Waiters(lambda sequence: self._verdicts.said(sequence) or self._settling.said(sequence))
        self._oldest = math.inf  # of what this run has stored
        self._progress = False
        self._received = 0.0

    def want(self, topic: str, *, again: bool = False) -> None:
        """Subscribe to `topic`, on this connection and every later one.

        Args:
            topic: of a task or of a recall, or all of them.
            again: even if it is subscribed: its retained message is needed once more.
        """
        if again:
            self._subscribed.pop(topic, None)
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
        self._oldest = min(self._oldest, sequence)
        self._waiters.of(sequence)
        self._schedule.add(sequence, due)

    def acknowledgement(self, sequence: int | None) -> asyncio.Future[Acknowledgement | None] | None:
        """What the broker says next to an entry of the outbox, or has said; see `Waiters.of`."""
        return None if sequence is None else self._waiters.of(sequence)

    async def flush(self) -> bool:
        """Return once the outbox is empty, or holds nothing but what the broker did not take; whether it is empty."""
        return await self._settling.flush(self._verdicts.waiting)

    async def sync(self) -> None:
        """Hear what is recalled of what earlier runs have kept, and return when nothing is due that is not sent."""
        await self._recalls.load()
        wanted, loop = self._recalls.earlier, asyncio.get_running_loop()
        while wanted:
            self._answered.clear()
            if not wanted <= self._subscribed.keys():
                await self._answered.wait()
            elif (left := max(self._subscribed[topic] for topic in wanted) + _HEARING - loop.time()) > 0:
                await asyncio.sleep(left)
            else:
                break
        await self._recalls.caught_up()
        await self._planned.wait()
        await self._schedule.passed(self._schedule.now())

    async def synced(self, *, done: bool) -> Synced:
        """What was sent again so far, and what waits."""
        waiting = await self._state.run(outbox.count)
        recalls = self._recalls
        return Synced(done, recalls.resent, len(recalls), waiting, self.trouble, recalls.elsewhere)

    async def run(self) -> None:
        """Keep connected until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._recalls.run(self._settling.settle_acknowledged), name="hush-recalls")
                group.create_task(self._settling.run(), name="hush-settle")
                group.create_task(self._connect_for_ever(), name="hush-connect")
        finally:
            try:
                await self._settling.settle()
            finally:
                self._waiters.end()

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
            self._received = asyncio.get_running_loop().time()
            self._recalls.receive(topic, payload)
            self._listener.receive(topic, payload)

    async def _subscribe(self, link: Link) -> None:
        self._subscribed.clear()
        while True:
            self._wanted.clear()
            for topic in [topic for topic in self._topics if topic not in self._subscribed]:
                self.forbidden.pop(topic, None)
                try:
                    await link.subscribe(topic)
                    self._hear_later(topic, link)
                except SubscriptionRefusedError as error:
                    self.forbidden[topic] = error
                self._subscribed[topic] = asyncio.get_running_loop().time()
            self._answered.set()
            await self._wanted.wait()

    def _hear_later(self, topic: str, link: Link) -> None:
        asyncio.get_running_loop().call_later(_HEARING, self._heard, topic, link)

    def _heard(self, topic: str, link: Link) -> None:
        """All that is retained has come, unless messages still come: a thousand may take their time."""
        if link is not self._link:
            return
        if asyncio.get_running_loop().time() - self._received < _HEARING:
            self._hear_later(topic, link)
        else:
            self._listener.heard(topic)

    async def _publish(self, link: Link, group: asyncio.TaskGroup) -> None:
        await self._load()
        self._schedule.restart()
        window = asyncio.Semaphore(_WINDOW)
        while True:
            sequences = self._schedule.take(_PAGE)
            for entry in await self._fetch(sequences) if sequences else ():
                await window.acquire()
                if (answer := self._verdicts.stands(entry)) is not None:
                    window.release()
                    self._tell(entry.sequence, answer)
                    continue
                group.create_task(self._publish_one(link, entry, window), name="hush-publish-one")
            await self._schedule.wait()

    async def _fetch(self, sequences: list[int]) -> list[Entry]:
        """The entries with these numbers that may go."""
        again = [sequence for sequence in sequences if sequence in self._recalls]
        entries = await self._state.run(partial(_fetch, sequences=sequences, again=again))
        found = {entry.sequence for entry in entries if self._recalls.may_go(entry)}
        for sequence in sequences:
            if sequence not in found:
                self._settling.recalled(sequence, gone=True)
        return [entry for entry in entries if entry.sequence in found]

    async def _load(self) -> None:
        """Plan what an earlier run has left."""
        await self._recalls.load()
        if self._planned.is_set():
            return
        wall, now, last = milliseconds(self._clock()), self.now(), 0
        await self._state.run(partial(outbox.reschedule, now=wall))
        while entries := await self._state.run(partial(outbox.page, after=last, limit=_PAGE)):
            for entry in entries:
                last = entry.sequence
                self._schedule.add(last, now + (entry.not_before - wall) / 1000)
                if entry.not_before <= wall and last < self._oldest:  # an earlier run may have sent it
                    self._settling.maybe_sent(last)
        self._planned.set()

    async def _publish_one(self, link: Link, entry: Entry, window: asyncio.Semaphore) -> None:
        again = entry.sequence in self._recalls
        self._settling.sent(entry.sequence)
        answer = await link.publish(entry.topic, entry.payload)
        window.release()
        self._progress = True
        taken = self._verdicts.heard(entry.sequence, entry.topic, answer)
        if taken and again:
            self._settling.recalled(entry.sequence)
        elif taken:
            self._schedule.done(entry.sequence)
            self._settling.acknowledged(entry, answer)
        self._tell(entry.sequence, answer)

    def _tell(self, sequence: int, answer: Acknowledgement) -> None:
        """What the broker said to an entry, or to others like it."""
        self._waiters.tell(sequence, answer)
        self._settling.look()  # whoever flushes: it may be the last that was open


def _fetch(connection: sqlite3.Connection, *, sequences: list[int], again: list[int]) -> list[Entry]:
    return outbox.fetch(connection, sequences) + kept.fetch(connection, again)
