"""When each entry of the outbox is sent: after its random delay, again after a refusal, and again for a recall.

The time of sending must reveal nothing. How long a draw takes depends on the noise, and a gateway asks its devices in
some order. So every report gets a delay, uniform over a window and independent of value and noise, that starts before
the draw. Only a report whose delay ends before it is on the disk leaves as soon as it is.

A broker that speaks MQTT 5 may refuse a report. It stays and is tried again, after ten seconds at first and at least
every hour; the others go on. None of this is written to the disk: a start tries everything once, so that a corrected
rule works at once. A report that is too late to be counted is not tried again before that.

Anyone who may write a recall can make a device resend what it has kept, but not often: it applies one recall of a task
in an hour. A newer one waits until then, and replaces one that waits already. It costs one write on the disk.
"""

import asyncio
import heapq
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from hush_client.limits import DEVICE_BYTES
from hush_client.receipt import Undelivered
from hush_client.state import outbox
from hush_client.state.database import DeviceState
from hush_client.state.outbox import AppliedRecall, Entry, RecallProgress, is_late
from hush_common.aio import Backoff
from hush_common.errors import HushError
from hush_common.recall import Recall, decode_recall
from hush_common.rng import SystemRng
from hush_common.task import Task
from hush_common.topics import Acknowledgement, recall_topic, report_topic, task_of_recall_topic, task_of_report_topic
from hush_common.wire import report_digest_of

_LOG = logging.getLogger(__name__)

Clock = Callable[[], datetime]  # the current time, aware

LONGEST_SPREAD = 7 * 24 * 3600.0  # seconds

_NAP = 60.0  # seconds until the wall clock is read again; the loop's clock stops while the machine sleeps


def utc_now() -> datetime:
    return datetime.now(UTC)


def milliseconds(now: datetime) -> int:
    """Return the time as the outbox stores it: milliseconds since 1970."""
    return int(now.timestamp() * 1000)


def draw_delay(spread: float, task: Task, now: datetime) -> int:
    """Return the milliseconds to hold a report back: uniform over [0, `spread`], from the operating system's entropy.

    If the task closes soon, the window is half of the remaining time: a late report would not be counted.
    """
    longest = milliseconds_to_wait(spread, task, now)
    return SystemRng().randbelow(longest + 1) if longest else 0


def milliseconds_to_wait(seconds: float, task: Task, now: datetime) -> int:
    """Return these seconds, or half of the time until the task closes, in milliseconds."""
    window = timedelta(seconds=seconds)
    if task.closes is not None:
        window = min(window, max((task.closes - now) / 2, timedelta(0)))
    return window // timedelta(milliseconds=1)


class Schedule:
    """Outbox entries by the time at which each may be sent.

    Time is counted in seconds from the start, by the loop's clock or the wall clock, whichever went further: a clock
    that is set back delays nothing, and one that went on while the machine slept makes up for the other.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = 0.0
        self._seen = self._read()
        self._due: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._added, self._removed = asyncio.Event(), asyncio.Event()

    def now(self) -> float:
        """Return the seconds since the start; never less than before."""
        seen = self._read()
        self._now += max(0.0, *(after - before for after, before in zip(seen, self._seen, strict=True)))
        self._seen = seen
        return self._now

    def add(self, sequence: int, due: float) -> None:
        """Schedule an entry, unless it is scheduled already."""
        if sequence not in self._due:
            self._push(sequence, due)

    def advance(self, sequence: int, due: float) -> None:
        """Schedule an entry; one that is scheduled for later is moved forward."""
        if due < self._due.get(sequence, math.inf):
            self._push(sequence, due)

    def postpone(self, sequence: int, due: float) -> None:
        """Schedule an entry again, earlier or later."""
        self._push(sequence, due)
        self._removed.set()

    def done(self, sequence: int) -> None:
        """Forget an entry: the broker has it."""
        self._due.pop(sequence, None)
        self._removed.set()

    async def passed(self, moment: float) -> None:
        """Return when everything that is due by then is done."""
        due = [sequence for sequence, at in self._due.items() if at <= moment]
        while due:
            self._removed.clear()
            if self._due.get(due[-1], math.inf) > moment:
                due.pop()
            else:
                await self._removed.wait()

    def restart(self) -> None:
        """Start again with everything that is not done, such as what was in flight."""
        self._heap = sorted((due, sequence) for sequence, due in self._due.items())

    def take(self, limit: int) -> list[int]:
        """Return at most `limit` entries that are due, in the order of their times; each only once."""
        now, taken = self.now(), list[int]()
        while len(taken) < limit and self._heap and self._heap[0][0] <= now:
            due, sequence = heapq.heappop(self._heap)
            if self._due.get(sequence) == due:  # else it was rescheduled, or is done
                taken.append(sequence)
        return taken

    async def wait(self) -> None:
        """Return when something may be due, or was added."""
        self._added.clear()
        pause = min(self._heap[0][0] - self.now(), _NAP) if self._heap else None
        if pause is not None and pause <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._added.wait()

    def _read(self) -> tuple[float, float]:
        return asyncio.get_running_loop().time(), self._clock().timestamp()

    def _push(self, sequence: int, due: float) -> None:
        self._due[sequence] = due
        heapq.heappush(self._heap, (due, sequence))
        self._added.set()


_FIRST_PAUSE = 10.0  # seconds
LONGEST_PAUSE = 3600.0  # seconds

_OF_ALL = (Undelivered.FORBIDDEN, Undelivered.NO_SUBSCRIBER, Undelivered.OVER_QUOTA)
"""Reasons that concern every report to a topic: one report is tried again, and the others wait for the answer."""

_OF_ONE = frozenset({0x81, 0x82, 0x87, 0x90, 0x95, 0x97, 0x99})
"""Reasons with which a broker ends a connection because of the message that it has just read."""

_STRIKES = 5  # connections that end at the same message, without a reason, before the others go first


@dataclass(slots=True)
class _Hold:
    """A topic whose reports the broker refuses; times are by the clock of the schedule."""

    ack: Acknowledgement  # the last one
    pauses: Backoff  # until the next try
    until: float = 0.0  # when that is
    probe: int | None = None  # the entry that is tried
    waiting: set[int] = field(default_factory=set)  # the entries that wait for the answer
    fresh: float = 0.0  # until then new entries wait like the others; after that one is tried


class DeliveryFailures:
    """Which entries of the outbox the broker refused, and until when they wait."""

    def __init__(self, schedule: Schedule, clock: Clock) -> None:
        self._schedule, self._clock = schedule, clock
        self._topics: dict[str, _Hold] = {}
        self._single: dict[int, tuple[Acknowledgement, Backoff]] = {}
        self._suspected: dict[int, Backoff] = {}
        self._in_flight: dict[int, str] = {}  # in the order in which they were sent
        self._suspect: tuple[int | None, int] = None, 0

    def waiting(self) -> Iterator[int]:
        """Return the entries that wait because the broker refused them, or others like them."""
        yield from self._single
        for hold in self._topics.values():
            yield from hold.waiting

    def ack_of(self, sequence: int) -> Acknowledgement | None:
        """Return why an entry waits; None if it does not."""
        if (single := self._single.get(sequence)) is not None:
            return single[0]
        return next((hold.ack for hold in self._topics.values() if sequence in hold.waiting), None)

    def held_back(self, entry: Entry) -> Acknowledgement | None:
        """Return why an entry that is due must wait on; None to send it now."""
        sequence, topic = entry.sequence, entry.topic
        if is_late(entry, milliseconds(self._clock())) and (ack := self.ack_of(sequence)) is not None:
            self._schedule.done(sequence)
            return ack
        hold, now = self._topics.get(topic), self._schedule.now()
        if hold is not None and now < (hold.until if sequence in hold.waiting else hold.fresh):
            self._wait(hold, sequence)
            return hold.ack
        if hold is not None:
            hold.probe, hold.fresh = sequence, now + _FIRST_PAUSE
            hold.until = max(hold.until, hold.fresh)  # the others wait for the answer to this one
            hold.waiting.discard(sequence)
        self._in_flight[sequence] = topic
        return None

    def record(self, sequence: int, topic: str, ack: Acknowledgement) -> bool:
        """Record the broker's answer to an entry; return whether it has the report."""
        self._in_flight.pop(sequence, None)
        self._suspected.pop(sequence, None)
        why = Undelivered.of(ack)
        if why is None:
            self._single.pop(sequence, None)
            self._release(topic)
        elif why in _OF_ALL:
            if topic not in self._topics:
                _LOG.warning("%s: not delivered: %s; reports to this topic wait and are retried", topic, why.meaning)
            self._hold(sequence, topic, ack)
        else:
            if sequence not in self._single:
                _LOG.warning("%s: a report is not delivered: %s; it is retried", topic, why.meaning)
            _, pauses = self._single.get(sequence, (ack, Backoff(_FIRST_PAUSE, LONGEST_PAUSE)))
            self._single[sequence] = ack, pauses
            self._schedule.postpone(sequence, self._schedule.now() + pauses.next())
        return why is None

    def connection_lost(self, reason: int | None) -> Iterator[tuple[int, Acknowledgement]]:
        """Record the end of a connection; return the entry that caused it, and its acknowledgement.

        A broker reads messages in order, so it ends the connection because of the first that it has not answered.
        Without a reason it may be the network; if it happens again and again, other entries are sent before this one.
        """
        sequence, topic = next(iter(self._in_flight.items()), (None, ""))
        self._in_flight.clear()
        suspect, strikes = self._suspect
        self._suspect = sequence, strikes + 1 if sequence == suspect else 1
        if sequence is None:
            return
        if reason in _OF_ONE:
            ack = Acknowledgement(reason, can_refuse=True)
            self.record(sequence, topic, ack)
            yield sequence, ack
        elif self._suspect[1] >= _STRIKES or sequence in self._suspected:
            pauses = self._suspected.setdefault(sequence, Backoff(_FIRST_PAUSE, LONGEST_PAUSE))
            self._schedule.postpone(sequence, self._schedule.now() + pauses.next())
            self._suspect = None, 0

    def _hold(self, sequence: int, topic: str, ack: Acknowledgement) -> None:
        now, hold = self._schedule.now(), self._topics.get(topic)
        if hold is None:
            hold = self._topics[topic] = _Hold(ack, Backoff(_FIRST_PAUSE, LONGEST_PAUSE))
        if hold.until <= now or sequence == hold.probe:
            hold.until, hold.probe = now + hold.pauses.next(), None
        self._single.pop(sequence, None)
        hold.ack, hold.fresh = ack, min(now + _FIRST_PAUSE, hold.until)
        self._wait(hold, sequence)

    def _wait(self, hold: _Hold, sequence: int) -> None:
        hold.waiting.add(sequence)
        self._schedule.postpone(sequence, hold.until)

    def _release(self, topic: str) -> None:
        """Send the entries that waited for this topic."""
        hold = self._topics.pop(topic, None)
        for sequence in () if hold is None else sorted(hold.waiting):
            self._schedule.postpone(sequence, self._schedule.now())


HOUR = 3600.0
_SWEEP = 3600.0  # seconds; what has expired is not sent from then on, and is deleted after this at most
_REMEMBERED = 300  # of a task: more than a device can apply while one of them is open


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How many acknowledged reports stay on the device in case they are recalled, and for how long."""

    sender: str = "nobody"  # in the topics of its reports
    keep: float = 0.0  # seconds after an acknowledgement, at most a week; 0 keeps nothing
    room: int = DEVICE_BYTES  # most bytes, of payloads, topics and the name of the broker
    every: float = HOUR  # least seconds between two recalls of a task


@dataclass(slots=True)
class _Open:
    """A recall that is applied, and what of it is not written yet."""

    row: AppliedRecall
    outstanding: dict[int, float]  # entries still to be acknowledged, and when each is due
    written: bool = False
    done: list[int] = field(default_factory=list)
    resent: Counter[int] = field(default_factory=Counter)

    @property
    def grace(self) -> int:
        return outbox.recall_grace(self.row.over)


class RecallHandler:
    """The reports that are kept for recalls, and which of them must be sent again.

    An entry is sent only to the `broker` that took it before.
    """

    def __init__(
        self,
        retention: RetentionPolicy,
        broker: str,
        state: DeviceState,
        *,
        schedule: Schedule,
        clock: Clock,
        subscribe: Callable[[str], object],
    ) -> None:
        self.retention = retention
        self.place: str = f"{broker.partition('?')[0]} {retention.sender}"
        """Broker (without the files that an address may name) and sender: an entry is sent again to the same place."""
        self.earlier: frozenset[str] = frozenset()  # recall topics of the reports that earlier runs have kept
        self.elsewhere: int = 0  # number of entries that earlier runs have kept for another place
        self.resent: int = 0  # how often an entry was sent again, and acknowledged
        self._state, self._schedule, self._clock = state, schedule, clock
        self._subscribe = subscribe
        self._size = 0
        self._known: dict[str, set[bytes]] = {}  # digests in their reports, by task
        self._waiting: dict[str, Recall] = {}
        self._open: dict[str, _Open] = {}
        self._owner: dict[int, str] = {}  # task by entry
        self._superseded: list[AppliedRecall] = []
        self._applied: dict[str, dict[bytes, None]] = {}  # ids by task, the oldest first
        self._next: dict[str, float] = {}
        self._swept = 0.0
        self._loaded, self._loading = False, asyncio.Lock()
        self._received, self._planned = asyncio.Event(), asyncio.Event()

    def __contains__(self, sequence: int) -> bool:
        """Whether an entry is to be sent again."""
        return sequence in self._owner

    def __len__(self) -> int:
        return len(self._owner)

    async def load(self) -> None:
        """Load what earlier runs have kept, once; StateError if the state is damaged, or locked for long."""
        async with self._loading:
            if self._loaded:
                return
            now, wall = self._schedule.now(), milliseconds(self._clock())
            found = await self._state.run(partial(outbox.resume_recalls, place=self.place, now=wall, keep=self._keep))
            self._size, self.elsewhere = found.size, found.elsewhere
            for topic, digest in found.known:
                self.learn(topic, digest)
            self.earlier = frozenset(map(recall_topic, self._known))
            every = self.retention.every
            for row, due in found.rows:
                self._remember(row.task, row.id)
                self._next[row.task] = now + every - min(max(wall - row.began, 0) / 1000, every)
                if due:
                    times = {one: now + min(at - wall, 1000 * row.over) / 1000 for one, at in due.items()}
                    self._begin(_Open(row, times, written=True))
            self._loaded = True

    def learn(self, topic: str, digest: bytes) -> None:
        """Subscribe to the recalls of a task if its reports are kept."""
        task = task_of_report_topic(topic)
        if self.retention.keep and task is not None and topic == report_topic(task, self.retention.sender):
            self._known.setdefault(task, set()).add(digest)
            self._subscribe(recall_topic(task))

    def receive(self, topic: str, payload: bytes) -> None:
        """Handle a retained message: a recall, the end of one, or another message."""
        task = task_of_recall_topic(topic)
        if task is None or task not in self._known:
            return
        if not payload:
            self._waiting.pop(task, None)
            return
        recall = decode_recall(payload)
        if recall is None or recall.task != task or report_digest_of(recall.digest) not in self._known[task]:
            return
        if recall.id not in self._applied.get(task, ()):
            self._waiting[task] = recall
            self._received.set()

    async def run(self, write_acknowledged: Callable[[], Awaitable[object]]) -> None:
        """Apply recalls, one of a task in an hour, and delete what has expired, until cancelled."""
        while True:
            self._received.clear()
            try:
                await self.load()
                for recall in self._ready():
                    await write_acknowledged()  # so that it is kept, and the recall finds it
                    await self._apply(recall)
                if self._schedule.now() - self._swept >= _SWEEP:
                    self._swept = self._schedule.now()
                    self._size -= await self._state.run(partial(outbox.expire_retained, term=self._term()))
            except HushError as error:
                _LOG.warning("%s", error)
                await asyncio.sleep(_NAP)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._received.wait()

    def may_send(self, entry: Entry) -> bool:
        """Whether an entry that is due may be sent: a recalled one, only while it can be counted."""
        task = self._owner.get(entry.sequence)
        if task is None or entry.closes is None:
            return True
        return milliseconds(self._clock()) < entry.closes + self._open[task].grace

    def sent(self, sequence: int) -> None:
        """Count that a recalled entry is handed to the network."""
        self._open[self._owner[sequence]].resent[sequence] += 1

    def done(self, sequence: int, *, acknowledged: bool = True) -> bool:
        """Remove an entry that is acknowledged or gone; return whether it was the last one of its recall."""
        task = self._owner.pop(sequence, None)
        self._schedule.done(sequence)
        if task is None:
            return False
        self.resent += acknowledged
        one = self._open[task]
        del one.outstanding[sequence]
        one.done.append(sequence)
        return not one.outstanding

    async def caught_up(self) -> None:
        """Return when every recall is planned, except those that must wait."""
        while self._ready():
            self._planned.clear()
            await self._planned.wait()

    def unwritten(self) -> list[RecallProgress]:
        """Return what is not written yet."""
        lag = milliseconds(self._clock()) - 1000 * self._schedule.now()
        progress = [RecallProgress(row) for row in self._superseded]
        for one in self._open.values():
            planned = None if one.written else {n: int(lag + 1000 * at) for n, at in one.outstanding.items()}
            if planned is not None or one.done or one.resent:
                row = replace(one.row, open=bool(one.outstanding))
                progress.append(RecallProgress(row, planned, tuple(one.done), Counter(one.resent)))
        return progress

    def written(self, progress: Iterable[RecallProgress], grown: int) -> None:
        """Note that this progress is written, and by how many bytes the retained entries grew."""
        self._size += grown
        for each in progress:
            one = self._open.get(each.row.task)
            if one is None or one.row.id != each.row.id:
                self._superseded = [row for row in self._superseded if row != each.row]
                continue
            one.written = True
            one.done = one.done[len(each.done) :]
            one.resent -= each.resent
            if not each.row.open:
                del self._open[each.row.task]

    @property
    def room(self) -> int | None:
        """How many more bytes may be kept; None if nothing is kept."""
        return self.retention.room - self._size if self.retention.keep else None

    def _term(self) -> outbox.RetentionTerm:
        scheduled = {sequence: self._open[task].grace for sequence, task in self._owner.items()}
        return outbox.RetentionTerm(milliseconds(self._clock()), self._keep, scheduled)

    @property
    def _keep(self) -> int:
        return int(1000 * self.retention.keep)

    def _ready(self) -> list[Recall]:
        now = self._schedule.now()
        return [recall for task, recall in self._waiting.items() if self._next.get(task, now) <= now]

    def _pause(self) -> float:
        now = self._schedule.now()
        times = [self._next.get(task, now) for task in self._waiting]
        return max(min([*times, self._swept + _SWEEP, now + _NAP]) - now, 0.0)

    async def _apply(self, recall: Recall) -> None:
        job = partial(
            outbox.plan_recall,
            topic=report_topic(recall.task, self.retention.sender),
            place=self.place,
            digest=report_digest_of(recall.digest),
            term=self._term(),
            spread=recall.spread,
        )
        delays = await self._state.run(job)
        if self._waiting.get(recall.task) == recall:
            del self._waiting[recall.task]
        if delays:
            now, wall = self._schedule.now(), milliseconds(self._clock())
            row = AppliedRecall(recall.task, recall.id, wall, recall.spread, open=True)
            self._next[recall.task] = now + self.retention.every
            self._begin(_Open(row, {sequence: now + delay / 1000 for sequence, delay in delays}))
        self._planned.set()

    def _begin(self, one: _Open) -> None:
        """Schedule a recall; what an earlier one requested and is not sent yet is sent no later than planned."""
        task = one.row.task
        self._remember(task, one.row.id)
        before = self._open.get(task)
        if before is not None:
            for sequence, due in before.outstanding.items():  # also those of a changed task under the same id
                one.outstanding[sequence] = min(due, one.outstanding.get(sequence, due))
            one.resent += before.resent
            self._superseded.append(replace(before.row, open=False))
        self._open[task] = one
        for sequence, due in one.outstanding.items():
            self._owner[sequence] = task
            self._schedule.advance(sequence, due)

    def _remember(self, task: str, name: bytes) -> None:
        names = self._applied.setdefault(task, {})
        names[name] = None
        if len(names) > _REMEMBERED:
            del names[next(iter(names))]
