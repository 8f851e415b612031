"""Log progress: refusals, accepted reports and backlogs, but never when a single report came."""

# Refusals are logged once a minute for each task and reason, with the sender if it is known. Accepted reports are
# logged every ten minutes, counted from the start and not from a report, and of a task only from `_FEW` reports on; the
# rest and the total follow when the service stops.
#
# The intake is behind while it hardly ever waits for a message and counts many reports. (The inbox alone shows nothing:
# a broker that leaves twenty messages unacknowledged never fills it.) A line needs a thousand reports, so that none
# shows when a single one came.

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from hush_aggregator.logs import fields
from hush_aggregator.store.base import CommitOutcome, note_sender
from hush_common.wire import Refusal

_LOG = logging.getLogger("hush.aggregator")
_MINUTE_S = 60.0
_ACCEPTED_EVERY = 10  # minutes
_FEW = 10
_LINES = 20  # a minute: a client that publishes many tasks must not fill the disk with refusals


class Progress:
    """Tells what was counted: `add` after each commit, `run` meanwhile, `stop` at the end."""

    def __init__(self) -> None:
        self._total = 0
        self._accepted: Counter[str] = Counter()  # by task, not told yet
        self._refused: Counter[tuple[str, Refusal]] = Counter()
        self._senders: dict[tuple[str, Refusal], str | None] = {}

    def add(self, outcome: CommitOutcome) -> None:
        self._total += outcome.accepted
        self._accepted.update(outcome.counted)
        self._refused.update(outcome.details)
        for key in outcome.details:
            if key in outcome.senders:
                note_sender(self._senders, key, outcome.senders[key])

    async def run(self) -> None:
        """Tell, until cancelled."""
        while True:
            for _ in range(_ACCEPTED_EVERY):
                await asyncio.sleep(_MINUTE_S)
                self._tell_refused()
            self._tell_accepted()

    def stop(self) -> None:
        """Tell the rest."""
        self._tell_refused()
        if self._total:
            said = fields("accepted_since_start", count=self._total)
            _LOG.info("accepted %d since the start", self._total, extra=said)

    def _tell_accepted(self) -> None:
        """Of each task, once that are `_FEW` or more; until then they wait, and are in no sum either."""
        told = {task: count for task, count in self._accepted.items() if count >= _FEW}
        if not told:
            return
        self._accepted -= Counter(told)
        total = sum(told.values())
        shown = dict(Counter(told).most_common(_LINES))
        left_out = len(told) - len(shown) or None
        said = fields("accepted", count=total, tasks=shown, tasks_left_out=left_out)
        _LOG.info("accepted %d", total, extra=said)

    def _tell_refused(self) -> None:
        again = {key[0]: self._refused.pop(key) for key in list(self._refused) if key[1] is Refusal.DUPLICATE}
        if again:  # nobody's fault: devices send until they are sure, and once more when they are asked to
            which = next(iter(again)) if len(again) == 1 else f"{len(again)} tasks"
            count = sum(again.values())
            said = fields("refused", reason=Refusal.DUPLICATE.value, count=count)
            _LOG.info("%s: %d reports came again, and count once", which, count, extra=said)
        for (task, reason), count in self._refused.most_common(_LINES):
            sender = self._senders.get((task, reason))
            source = "" if sender is None else f" from {sender[:80]!r}"
            said = fields("refused", task=task, reason=reason.value, count=count, sender=sender and sender[:80])
            _LOG.warning("%s: refused %d%s: %s, %s", task, count, source, reason.value, reason.meaning, extra=said)
        if len(self._refused) > _LINES:
            rest = self._refused.most_common()[_LINES:]
            said = fields("left_out", count=len(rest), reports=sum(count for _, count in rest))
            _LOG.warning("and refusals for %d other reasons", len(rest), extra=said)
        self._refused.clear()
        self._senders.clear()


_EVERY_S = 10.0
_BUSY = 0.8  # share of the time in which the intake did not wait for a message
_MANY = 1000  # reports in that time


@dataclass(frozen=True, slots=True)
class Backlog:
    """Reports that wait at the broker, and are being counted."""

    counted: int  # reports counted since the backlog was noticed
    rate: float  # reports counted each second, over the last ten


@dataclass(frozen=True, slots=True)
class IntakeStatus:
    """The state of the intake of an aggregator."""

    tasks: Collection[str]  # ids of the tasks that are counted
    connected: bool  # whether there is a connection to the broker, over which reports come
    waiting: int  # messages that have come from it, and are in no batch yet
    dropped: int | None  # messages that the broker says it has dropped since it started; None if it has not said
    without_room: int = 0  # tasks that are published and are not counted for lack of room
    backlog: Backlog | None = None  # None if reports are counted as they come
    stored: int | None = None  # messages that the broker holds for somebody, about; None if it does not tell
    # how many there were since the start, by what they are for: `intake` and `control`
    connections: Mapping[str, int] = field(default_factory=dict)
    repeated: int = 0  # messages that came with a packet id that was in flight already


class BacklogWatch:
    """Watches the intake: `waiting` around each wait for a message, `add` after each commit, `run` meanwhile."""

    def __init__(self, stored: Callable[[], int | None]) -> None:
        self._stored = stored
        self._idle = 0.0
        self._waits_since: float | None = None
        self._counted = 0  # in this interval
        self._total = 0  # since the backlog was noticed
        self._since = 0.0
        self._rate = 0.0

    @property
    def state(self) -> Backlog | None:
        """None if reports are counted as they come."""
        return Backlog(self._total, self._rate) if self._since else None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for a message in the block."""
        clock = asyncio.get_running_loop().time
        self._waits_since = clock()
        try:
            yield
        finally:
            self._idle += clock() - self._waits_since
            self._waits_since = None

    def add(self, reports: int) -> None:
        """Note that these were counted, or refused."""
        self._counted += reports

    async def run(self) -> NoReturn:
        """Log, until cancelled."""
        clock = asyncio.get_running_loop().time
        last = clock()
        while True:
            await asyncio.sleep(_EVERY_S)
            now = clock()
            self._look(last, now)
            last = now

    def _look(self, last: float, now: float) -> None:
        idle, counted = self._idle, self._counted
        if self._waits_since is not None:
            idle += now - max(self._waits_since, last)
            self._waits_since = now
        self._idle, self._counted = 0.0, 0
        is_behind = counted >= _MANY and idle <= (1 - _BUSY) * (now - last)
        if is_behind:
            self._since = self._since or last
            self._rate = counted / (now - last)
        if self._since:
            self._total += counted
        if is_behind:
            stored = self._stored()
            rest = "" if stored is None else f", about {stored} wait at the broker"
            said = fields("draining", count=self._total, rate=round(self._rate), waiting=stored)
            _LOG.info("draining a backlog: %d counted, %.0f a second%s", self._total, self._rate, rest, extra=said)
        elif self._since:
            took = now - self._since
            said = fields("drained", count=self._total, seconds=round(took))
            _LOG.info("drained a backlog: %d counted in %.0f s", self._total, took, extra=said)
            self._total, self._since = 0, 0.0
