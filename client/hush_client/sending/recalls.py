"""Recalls: a device sends again what it has kept, each entry at its own random time.

Anyone who may write a recall can make a device send what it has kept, but not often: it applies one recall of a task
in an hour. A newer one waits until then, and replaces one that waits already. It costs one write on the disk.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from hush_client.limits import DEVICE_BYTES
from hush_client.sending.schedule import Clock, Schedule, milliseconds
from hush_client.state import outbox
from hush_client.state.database import State
from hush_client.state.outbox import Entry, RecallProgress, RecallRow
from hush_common.errors import HushError
from hush_common.recall import Recall, decode_recall
from hush_common.topics import recall_topic, report_topic, task_of_recall_topic, task_of_report_topic
from hush_common.wire import report_digest_of

_LOG = logging.getLogger(__name__)

HOUR = 3600.0
_SWEEP = 3600.0  # seconds; what has expired is not sent from then on, and is deleted after this at most
_NAP = 60.0  # seconds; the loop's clock stands still while the machine sleeps
_REMEMBERED = 300  # of a task: more than a device can apply while one of them is open


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long, and how much of, what the broker has acknowledged stays on the device in case it is recalled.

    Args:
        sender: in the topics of its reports.
        keep: seconds after an acknowledgement, at most a week; 0 keeps nothing.
        room: most bytes, of payloads, topics and the name of the broker.
        every: least seconds between two recalls of a task.
    """

    sender: str = "nobody"
    keep: float = 0.0
    room: int = DEVICE_BYTES
    every: float = HOUR


@dataclass(slots=True)
class _Open:
    """A recall that is applied: what is still to be acknowledged, when each is due, and what is not written yet."""

    row: RecallRow
    outstanding: dict[int, float]
    written: bool = False
    done: list[int] = field(default_factory=list)
    resent: Counter[int] = field(default_factory=Counter)

    @property
    def grace(self) -> int:
        return outbox.recall_grace(self.row.over)


class Recalls:
    """What is kept in the state for recalls, and which of it is to be sent again.

    Args:
        retention: what is kept.
        broker: its name in the transport: entries are sent only to the broker that took them before.
        state: where the entries are.
        schedule: of the sender.
        clock: the current time, aware.
        subscribe: subscribes to a topic.
    """

    def __init__(
        self,
        retention: RetentionPolicy,
        broker: str,
        state: State,
        *,
        schedule: Schedule,
        clock: Clock,
        subscribe: Callable[[str], object],
    ) -> None:
        self.retention = retention
        self.place: str = f"{broker.partition('?')[0]} {retention.sender}"
        """Broker (without the files that an address may name) and sender: an entry is sent again to the same place."""
        self.earlier: frozenset[str] = frozenset()
        """Recall topics of the reports that earlier runs have kept."""
        self.elsewhere: int = 0
        """How many entries earlier runs have kept for another place."""
        self.resent: int = 0
        """How often an entry was sent once more, and acknowledged."""
        self._state, self._schedule, self._clock = state, schedule, clock
        self._subscribe = subscribe
        self._size = 0
        self._known: dict[str, set[bytes]] = {}  # digests in their reports, by task
        self._waiting: dict[str, Recall] = {}
        self._open: dict[str, _Open] = {}
        self._owner: dict[int, str] = {}  # task by entry
        self._superseded: list[RecallRow] = []
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
        """Load what earlier runs have left; once.

        Raises:
            StateError: the state is damaged, or locked for long.
        """
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
        """Subscribe to recalls of a task of which a report is kept, or is about to be."""
        task = task_of_report_topic(topic)
        if self.retention.keep and task is not None and topic == report_topic(task, self.retention.sender):
            self._known.setdefault(task, set()).add(digest)
            self._subscribe(recall_topic(task))

    def receive(self, topic: str, payload: bytes) -> None:
        """Handle a retained message: a recall, the end of one, or anything else."""
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
        """Apply recalls when their hour has come, and delete what has expired, until cancelled."""
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
        """Whether an entry that is due may be sent: a recalled one only while it can be counted."""
        task = self._owner.get(entry.sequence)
        if task is None or entry.closes is None:
            return True
        return milliseconds(self._clock()) < entry.closes + self._open[task].grace

    def sent(self, sequence: int) -> None:
        """Count that a recalled entry is handed to the network."""
        self._open[self._owner[sequence]].resent[sequence] += 1

    def done(self, sequence: int, *, acknowledged: bool = True) -> bool:
        """Remove an entry that was acknowledged, or is gone; return whether it was the last one of its recall."""
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
        """Return when every recall is planned, except those that must wait for their hour."""
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
        """Note that this is written, and by how many bytes the retained entries grew."""
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
        """How many more bytes may be kept; None where nothing is."""
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
            row = RecallRow(recall.task, recall.id, wall, recall.spread, open=True)
            self._next[recall.task] = now + self.retention.every
            self._begin(_Open(row, {sequence: now + delay / 1000 for sequence, delay in delays}))
        self._planned.set()

    def _begin(self, one: _Open) -> None:
        """Schedule these; what an earlier recall asked for and is not sent yet is sent no later than planned."""
        task = one.row.task
        self._remember(task, one.row.id)
        before = self._open.get(task)
        if before is not None:
            for sequence, due in before.outstanding.items():  # those, too, of a changed task under the same id
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
