"""Recalls as a device obeys them: what it has kept goes out once more, each entry at a moment of its own.

Whoever may write a recall can make a device send what it has kept, but not often: one recall of a task in an hour is
obeyed, and a newer one waits until then, in place of one that waits already. It costs one write on the disk.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from hush_client.sending.keeping import Keeping
from hush_client.sending.schedule import Clock, Schedule, milliseconds
from hush_client.state import kept, recalls
from hush_client.state.database import State
from hush_client.state.outbox import Entry
from hush_client.state.recalls import Obeyed, Row
from hush_common.errors import HushError
from hush_common.recall import Recall, decode_recall
from hush_common.topics import recall_topic, report_topic, task_of_recall_topic, task_of_report_topic
from hush_common.wire import report_digest_of

__all__ = ["Recalls"]

_LOG = logging.getLogger(__name__)

_SWEEP = 3600.0  # seconds; what has ended is not sent from that moment on, and gone from the disk after this at most
_NAP = 60.0  # seconds; the loop's clock stands still while the machine sleeps
_REMEMBERED = 300  # of a task: more than a device can obey while one of them is open


@dataclass(slots=True)
class _Open:
    """A recall that is obeyed: what is still to be acknowledged, when each is due, and what is not written yet."""

    row: Row
    outstanding: dict[int, float]
    written: bool = False
    done: list[int] = field(default_factory=list)
    resent: Counter[int] = field(default_factory=Counter)

    @property
    def grace(self) -> int:
        """Milliseconds after the close of the task at which all of it ends."""
        return recalls.grace(self.row.over)


class Recalls:
    """What is kept in the state for recalls, and which of it is to go out again.

    Args:
        keeping: what is kept.
        broker: what the transport calls it: entries go to no other one than took them before.
        state: where they are.
        schedule: of the sender.
        clock: the current time, aware.
        want: subscribes to a topic.
    """

    def __init__(
        self,
        keeping: Keeping,
        broker: str,
        state: State,
        *,
        schedule: Schedule,
        clock: Clock,
        want: Callable[[str], object],
    ) -> None:
        self.keeping = keeping
        self.place: str = f"{broker.partition('?')[0]} {keeping.sender}"
        """By which entries went, and by which alone they go again; without the files that an address may name."""
        self.earlier: frozenset[str] = frozenset()
        """Topics of the recalls of what earlier runs have kept."""
        self.elsewhere: int = 0
        """How many entries earlier runs have kept for another broker or sender: none of them goes by this one."""
        self.resent: int = 0
        """How often an entry was sent once more, and acknowledged."""
        self._state, self._schedule, self._clock = state, schedule, clock
        self._want = want
        self._size = 0
        self._known: dict[str, set[bytes]] = {}  # digests in their reports, by task
        self._waiting: dict[str, Recall] = {}
        self._open: dict[str, _Open] = {}
        self._owner: dict[int, str] = {}
        self._superseded: list[Row] = []
        self._obeyed: dict[str, dict[bytes, None]] = {}  # ids by task, the oldest first
        self._next: dict[str, float] = {}
        self._swept = 0.0
        self._loaded, self._loading = False, asyncio.Lock()
        self._heard, self._stirred = asyncio.Event(), asyncio.Event()

    def __contains__(self, sequence: int) -> bool:
        """Whether an entry is to go out again."""
        return sequence in self._owner

    def __len__(self) -> int:
        """How many are."""
        return len(self._owner)

    async def load(self) -> None:
        """Take up what earlier runs have left; once.

        Raises:
            StateError: the state is damaged, or locked for long.
        """
        async with self._loading:
            if self._loaded:
                return
            now, wall = self._schedule.now(), milliseconds(self._clock())
            found = await self._state.run(partial(recalls.resume, place=self.place, now=wall, keep=self._keep))
            self._size, self.elsewhere = found.size, found.elsewhere
            for topic, digest in found.known:
                self.learn(topic, digest)
            self.earlier = frozenset(map(recall_topic, self._known))
            for row, due in found.rows:
                self._remember(row.task, row.id)
                self._next[row.task] = (
                    now + self.keeping.every - min(max(wall - row.began, 0) / 1000, self.keeping.every)
                )
                if due:
                    moments = {one: now + min(at - wall, 1000 * row.over) / 1000 for one, at in due.items()}
                    self._begin(_Open(row, moments, written=True))
            self._loaded = True

    def learn(self, topic: str, digest: bytes) -> None:
        """Take notice that a report of a task is kept, or about to be, and listen for recalls of that."""
        task = task_of_report_topic(topic)
        if self.keeping.keep and task is not None and topic == report_topic(task, self.keeping.sender):
            self._known.setdefault(task, set()).add(digest)
            self._want(recall_topic(task))

    def receive(self, topic: str, payload: bytes) -> None:
        """Take in a retained message: a recall, the end of one, or anything else."""
        task = task_of_recall_topic(topic)
        if task is None or task not in self._known:
            return
        if not payload:
            self._waiting.pop(task, None)
            return
        recall = decode_recall(payload)
        if recall is None or recall.task != task or report_digest_of(recall.digest) not in self._known[task]:
            return
        if recall.id not in self._obeyed.get(task, ()):
            self._waiting[task] = recall
            self._heard.set()

    async def run(self, settle: Callable[[], Awaitable[object]]) -> None:
        """Obey what is heard when its hour has come, and drop what has ended, until cancelled.

        Args:
            settle: has whatever was acknowledged by now kept.
        """
        while True:
            self._heard.clear()
            try:
                await self.load()
                for recall in self._ready():
                    await settle()
                    await self._obey(recall)
                if self._schedule.now() - self._swept >= _SWEEP:
                    await self._sweep()
            except HushError as error:
                _LOG.warning("%s", error)
                await asyncio.sleep(_NAP)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._heard.wait()

    def may_go(self, entry: Entry) -> bool:
        """Whether an entry that is due may be sent: one that a recall has asked for not after its end."""
        task = self._owner.get(entry.sequence)
        if task is None or entry.closes is None:
            return True
        return milliseconds(self._clock()) < entry.closes + self._open[task].grace

    def sent(self, sequence: int) -> None:
        """Count that an entry that is to go out again is handed to the network."""
        self._open[self._owner[sequence]].resent[sequence] += 1

    def done(self, sequence: int, *, acknowledged: bool = True) -> bool:
        """Strike an entry that was acknowledged, or is gone; whether that was the last one of its recall."""
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
        """Return when whatever was heard is planned, but for what must wait for its hour."""
        while self._ready():
            self._stirred.clear()
            await self._stirred.wait()

    def news(self) -> list[Obeyed]:
        """What is not written down yet."""
        lag = milliseconds(self._clock()) - 1000 * self._schedule.now()
        news = [Obeyed(row) for row in self._superseded]
        for one in self._open.values():
            planned = None if one.written else {n: int(lag + 1000 * at) for n, at in one.outstanding.items()}
            if planned is not None or one.done or one.resent:
                row = replace(one.row, open=bool(one.outstanding))
                news.append(Obeyed(row, planned, tuple(one.done), Counter(one.resent)))
        return news

    def written(self, news: Iterable[Obeyed], grown: int) -> None:
        """Take notice that it is, and by how many bytes grew what is kept."""
        self._size += grown
        for each in news:
            one = self._open.get(each.row.task)
            if one is None or one.row.id != each.row.id:
                self._superseded = [row for row in self._superseded if row != each.row]
                continue
            one.written = True
            one.done = one.done[len(tuple(each.done)) :]
            one.resent -= each.resent
            if not each.row.open:
                del self._open[each.row.task]

    @property
    def room(self) -> int | None:
        """How many more bytes may be kept; None where nothing is."""
        return self.keeping.room - self._size if self.keeping.keep else None

    def _term(self) -> kept.Term:
        """Until when things are kept, as of now."""
        scheduled = {sequence: self._open[task].grace for sequence, task in self._owner.items()}
        return kept.Term(milliseconds(self._clock()), self._keep, scheduled)

    @property
    def _keep(self) -> int:
        return int(1000 * self.keeping.keep)

    def _ready(self) -> list[Recall]:
        now = self._schedule.now()
        return [recall for task, recall in self._waiting.items() if self._next.get(task, now) <= now]

    def _pause(self) -> float:
        now = self._schedule.now()
        moments = [self._next.get(task, now) for task in self._waiting]
        return max(min([*moments, self._swept + _SWEEP, now + _NAP]) - now, 0.0)

    async def _obey(self, recall: Recall) -> None:
        job = partial(
            kept.plan,
            topic=report_topic(recall.task, self.keeping.sender),
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
            row = Row(recall.task, recall.id, wall, recall.spread, open=True)
            self._next[recall.task] = now + self.keeping.every
            self._begin(_Open(row, {sequence: now + delay / 1000 for sequence, delay in delays}))
        self._stirred.set()

    def _begin(self, one: _Open) -> None:
        """Send these; what an earlier recall has asked for and is not sent yet goes no later than it would have."""
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
        names = self._obeyed.setdefault(task, {})
        names[name] = None
        if len(names) > _REMEMBERED:
            del names[next(iter(names))]

    async def _sweep(self) -> None:
        self._swept = self._schedule.now()
        self._size -= await self._state.run(partial(kept.expire, term=self._term()))
