"""The sender: connects, subscribes, and publishes the outbox until the broker has acknowledged everything in it."""

import asyncio
import logging
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from hush_client.sending.schedule import Clock, DeliveryFailures, RecallHandler, RetentionPolicy, Schedule, milliseconds
from hush_client.sending.transport import Link, Transport
from hush_client.state import outbox
from hush_client.state.database import DeviceState
from hush_client.state.outbox import Entry
from hush_client.tasks import TaskRegistry
from hush_common.aio import Backoff, cancellable
from hush_common.errors import HushError, SubscriptionRefusedError, flatten_group
from hush_common.topics import Acknowledgement
from hush_common.wire import DIGEST

_LOG = logging.getLogger(__name__)

_LINGER = 0.02  # acknowledgements of this time are written together; after a crash in it they are sent once more
_STEADY = 30.0  # seconds; a connection that lasted this long was not a failed attempt
_WINDOW = 64
_PAGE = 256
_RETAINED_WAIT = 1.0  # seconds after a subscription in which a retained message comes, if there is one


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of one `sync`."""

    done: bool  # whether there was a connection, and the broker has acknowledged everything that was due
    resent: int  # number of reports or frames that were sent again for a recall, since the client was opened
    planned: int  # number of recalled reports or frames that are still to be sent
    waiting: int  # number of reports or frames that the broker has never acknowledged
    trouble: HushError | None = None  # why there is no connection, if there is none
    elsewhere: int = 0  # number of reports or frames that are kept for another broker or device name, and not sent here


class AckWriter:
    """Writes acknowledgements to the state in batches: an entry leaves the outbox, and is kept for recalls."""

    def __init__(self, state: DeviceState, clock: Clock, recalls: RecallHandler) -> None:
        self._state, self._clock, self._recalls = state, clock, recalls
        self._acknowledged: dict[int, Acknowledgement] = {}
        self._attempted: set[int] = set()
        self._resent: Counter[int] = Counter()
        self._due, self._done = asyncio.Event(), asyncio.Event()
        self._writing = asyncio.Lock()

    def maybe_sent(self, sequence: int) -> None:
        """Note that an earlier run may have sent an entry."""
        self._attempted.add(sequence)

    def sent(self, sequence: int) -> None:
        """Count that an entry is handed to the network again, if it is."""
        if sequence in self._recalls:
            self._recalls.sent(sequence)
            return
        if sequence in self._attempted:
            self._resent[sequence] += 1
        self._attempted.add(sequence)

    def ack_of(self, sequence: int) -> Acknowledgement | None:
        """Return the acknowledgement of an entry until it is written."""
        return self._acknowledged.get(sequence)

    def acknowledged(self, entry: Entry, ack: Acknowledgement) -> None:
        """Write later that the broker has an entry of the outbox."""
        self._recalls.learn(entry.topic, entry.payload[DIGEST])
        self._acknowledged[entry.sequence] = ack
        self._due.set()

    def recalled(self, sequence: int, *, gone: bool = False) -> None:
        """Write later that a recalled entry is acknowledged, or that one is gone."""
        if self._recalls.done(sequence, acknowledged=not gone):
            self._due.set()

    async def flush(self, refused: Callable[[], Iterable[int]]) -> bool:
        """Wait until only entries that the broker refuses are in the outbox; return whether it is empty."""
        while True:
            self._done.clear()
            left, others = await self._state.run(partial(outbox.count_without, sequences=frozenset(refused())))
            if not others:
                return not left
            await self._done.wait()

    def wake(self) -> None:
        """Let `flush` count again."""
        self._done.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._due.wait()
            await asyncio.sleep(_LINGER)
            await self.write()

    async def write_acknowledged(self) -> None:
        """Write now, if anything of the outbox was acknowledged."""
        if self._acknowledged:
            await self.write()

    async def write(self) -> None:
        """Write what is not written yet."""
        async with self._writing:
            self._due.clear()
            acknowledged, resent, recalls = tuple(self._acknowledged), Counter(self._resent), self._recalls.unwritten()
            if not acknowledged and not resent and not recalls:
                return
            job = partial(
                outbox.record_acks,
                acknowledged=acknowledged,
                resent=resent,
                recalls=recalls,
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
            self._recalls.written(recalls, grown)
            self._done.set()


class Sender:
    """Publishes each entry of the outbox when it is due, a window of them in flight, and keeps the acknowledged ones.

    Without `retention` acknowledged entries are deleted at once.
    """

    def __init__(
        self,
        transport: Transport,
        state: DeviceState,
        tasks: TaskRegistry,
        clock: Clock,
        retention: RetentionPolicy | None = None,
    ) -> None:
        self.trouble: HushError | None = None
        """Why there is no connection; None while there is one, and before the first attempt ended."""
        self.on_acknowledgement: Callable[[int, Acknowledgement], object] = lambda _sequence, _ack: None
        """Called with each answer of the broker to an entry of the outbox."""
        self.forbidden: dict[str, SubscriptionRefusedError] = {}
        """Topics that the broker does not let us read; the reports of other tasks continue."""
        self._transport = transport
        self._state = state
        self._tasks = tasks
        self._link: Link | None = None
        self._clock = clock
        self._topics: dict[str, None] = {}  # in the order in which they were requested
        self._subscribed: dict[str, float] = {}  # on the present connection, and since when
        self._new_topics = asyncio.Event()
        self._all_subscribed = asyncio.Event()
        self._schedule = Schedule(clock)
        self._recalls = RecallHandler(
            retention or RetentionPolicy(),
            transport.name,
            state,
            schedule=self._schedule,
            clock=clock,
            subscribe=self.subscribe,
        )
        self._writer = AckWriter(state, clock, self._recalls)
        self._loaded = asyncio.Event()
        self._failures = DeliveryFailures(self._schedule, clock)
        self._pending: dict[int, asyncio.Future[Acknowledgement | None]] = {}
        self._ended = False
        self._oldest = math.inf  # of what this run has stored
        self._progress = False
        self._received = 0.0

    def subscribe(self, topic: str, *, again: bool = False) -> None:
        """Subscribe to `topic`, on this connection and every later one; `again`, to get its retained message again."""
        if again:
            self._subscribed.pop(topic, None)
        if topic not in self._topics or again:
            self._topics[topic] = None
            self._new_topics.set()

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def broker(self) -> str:
        """The broker's name in messages."""
        return self._transport.name

    def now(self) -> float:
        """The clock by which entries are due."""
        return self._schedule.now()

    def send(self, sequence: int, due: float) -> None:
        """Send a new entry of the outbox from `due` on."""
        self._oldest = min(self._oldest, sequence)
        self.acknowledgement(sequence)
        self._schedule.add(sequence, due)

    def acknowledgement(self, sequence: int) -> asyncio.Future[Acknowledgement | None]:
        """Return a future of the broker's answer to an entry; its result is None if the sender ends before."""
        if (pending := self._pending.get(sequence)) is not None:
            return pending
        pending = asyncio.get_running_loop().create_future()
        ack = self._failures.ack_of(sequence) or self._writer.ack_of(sequence)
        if ack is None and not self._ended:
            self._pending[sequence] = pending
        else:
            pending.set_result(ack)
        return pending

    async def flush(self) -> bool:
        """Wait until only entries that the broker refuses are in the outbox; return whether it is empty."""
        return await self._writer.flush(self._failures.waiting)

    async def sync(self) -> None:
        """Read the recalls of the reports of earlier runs, and return when everything due now is sent."""
        await self._recalls.load()
        wanted, loop = self._recalls.earlier, asyncio.get_running_loop()
        while wanted:
            self._all_subscribed.clear()
            if not wanted <= self._subscribed.keys():
                await self._all_subscribed.wait()
            elif (left := max(self._subscribed[topic] for topic in wanted) + _RETAINED_WAIT - loop.time()) > 0:
                await asyncio.sleep(left)
            else:
                break
        await self._recalls.caught_up()
        await self._loaded.wait()
        await self._schedule.passed(self._schedule.now())

    async def sync_result(self, *, done: bool) -> SyncResult:
        waiting = await self._state.run(outbox.count)
        recalls = self._recalls
        return SyncResult(done, recalls.resent, len(recalls), waiting, self.trouble, recalls.elsewhere)

    async def run(self) -> None:
        """Keep connected until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._recalls.run(self._writer.write_acknowledged), name="hush-recalls")
                group.create_task(self._writer.run(), name="hush-acks")
                group.create_task(self._reconnect(), name="hush-connect")
        finally:
            try:
                await self._writer.write()
            finally:
                self._ended = True
                for pending in self._pending.values():
                    if not pending.done():
                        pending.set_result(None)

    async def _reconnect(self) -> None:
        backoff, loop = Backoff(), asyncio.get_running_loop()
        while True:
            self._progress = False
            began = loop.time()
            try:
                await cancellable(self._connect())
            except HushError as error:
                self._link = None
                if self.trouble is None:  # once per outage, not once per attempt
                    _LOG.warning("%s; trying again", error)
                self.trouble = error
                self._tasks.connected(False)
                for sequence, ack in self._failures.connection_lost(getattr(error, "reason", None)):
                    self._resolve(sequence, ack)
            if self._progress or loop.time() - began > _STEADY:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    async def _connect(self) -> None:
        async with self._transport.connect() as link:
            self.trouble = None
            self._link = link
            self._tasks.connected(True)
            await self._serve(link)

    async def _serve(self, link: Link) -> None:
        """Use one connection until it is lost: then every task ends, and what was in flight is not acknowledged."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._subscribe(link), name="hush-subscribe")
                group.create_task(self._publish(link, group), name="hush-publish")
                await self._receive(link)  # here, and not in a task: see `cancellable`
        except BaseExceptionGroup as errors:
            lost, bugs = errors.split(HushError)
            if bugs is not None or lost is None:
                raise
            raise flatten_group(lost)[0] from None

    async def _receive(self, link: Link) -> None:
        while True:
            topic, payload = await link.receive()
            self._progress = True
            self._received = asyncio.get_running_loop().time()
            self._recalls.receive(topic, payload)
            self._tasks.receive(topic, payload)

    async def _subscribe(self, link: Link) -> None:
        self._subscribed.clear()
        while True:
            self._new_topics.clear()
            for topic in [topic for topic in self._topics if topic not in self._subscribed]:
                self.forbidden.pop(topic, None)
                try:
                    await link.subscribe(topic)
                    self._end_retained_later(topic, link)
                except SubscriptionRefusedError as error:
                    self.forbidden[topic] = error
                self._subscribed[topic] = asyncio.get_running_loop().time()
            self._all_subscribed.set()
            await self._new_topics.wait()

    def _end_retained_later(self, topic: str, link: Link) -> None:
        asyncio.get_running_loop().call_later(_RETAINED_WAIT, self._end_retained, topic, link)

    def _end_retained(self, topic: str, link: Link) -> None:
        """All retained messages have come, unless messages still come: a thousand may take their time."""
        if link is not self._link:
            return
        if asyncio.get_running_loop().time() - self._received < _RETAINED_WAIT:
            self._end_retained_later(topic, link)
        else:
            self._tasks.retained_ended(topic)

    async def _publish(self, link: Link, group: asyncio.TaskGroup) -> None:
        await self._load()
        self._schedule.restart()
        window = asyncio.Semaphore(_WINDOW)
        while True:
            sequences = self._schedule.take(_PAGE)
            for entry in await self._fetch(sequences) if sequences else ():
                await window.acquire()
                if (ack := self._failures.held_back(entry)) is not None:
                    window.release()
                    self._resolve(entry.sequence, ack)
                    continue
                group.create_task(self._publish_one(link, entry, window), name="hush-publish-one")
            await self._schedule.wait()

    async def _fetch(self, sequences: list[int]) -> list[Entry]:
        """Return the entries with these numbers that may be sent."""
        again = [sequence for sequence in sequences if sequence in self._recalls]
        entries = await self._state.run(partial(_fetch, sequences=sequences, again=again))
        found = {entry.sequence for entry in entries if self._recalls.may_send(entry)}
        for sequence in sequences:
            if sequence not in found:
                self._writer.recalled(sequence, gone=True)
        return [entry for entry in entries if entry.sequence in found]

    async def _load(self) -> None:
        """Schedule the entries of earlier runs."""
        await self._recalls.load()
        if self._loaded.is_set():
            return
        wall, now, last = milliseconds(self._clock()), self.now(), 0
        await self._state.run(partial(outbox.reschedule, now=wall))
        while entries := await self._state.run(partial(outbox.page, after=last, limit=_PAGE)):
            for entry in entries:
                last = entry.sequence
                self._schedule.add(last, now + (entry.not_before - wall) / 1000)
                if entry.not_before <= wall and last < self._oldest:  # an earlier run may have sent it
                    self._writer.maybe_sent(last)
        self._loaded.set()

    async def _publish_one(self, link: Link, entry: Entry, window: asyncio.Semaphore) -> None:
        again = entry.sequence in self._recalls
        self._writer.sent(entry.sequence)
        ack = await link.publish(entry.topic, entry.payload)
        window.release()
        self._progress = True
        taken = self._failures.record(entry.sequence, entry.topic, ack)
        if taken and again:
            self._writer.recalled(entry.sequence)
        elif taken:
            self._schedule.done(entry.sequence)
            self._writer.acknowledged(entry, ack)
        self._resolve(entry.sequence, ack)

    def _resolve(self, sequence: int, ack: Acknowledgement) -> None:
        """Return the broker's answer to those who wait for this entry."""
        pending = self._pending.pop(sequence, None)
        if pending is not None and not pending.done():
            pending.set_result(ack)
        self.on_acknowledgement(sequence, ack)
        self._writer.wake()  # `flush` may wait for this one


def _fetch(connection: sqlite3.Connection, *, sequences: list[int], again: list[int]) -> list[Entry]:
    return outbox.fetch(connection, sequences) + outbox.fetch_retained(connection, again)
