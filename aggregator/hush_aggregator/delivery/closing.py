"""Close tasks when their time is over; check the clock and watch the store for that."""

# Admission compares each batch with the clock. The mark of a closed task also holds if the clock is set back. It is set
# once nothing that counts can still arrive: the clock skew after `closes`, or later if an open recall brings reports,
# and only if the clock has said so for `LASTING_S`.

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import NoReturn

from hush_aggregator.count.tasks import KnownTasks
from hush_aggregator.periodic import repeat
from hush_aggregator.store.base import ServedStore, Store, TaskState, Worker
from hush_common.task import CLOCK_SKEW

LASTING_S = 300.0
"""Seconds for which the clock has to say something that cannot be taken back."""


class Debounce:
    """Checks whether something has been true for a while, by a monotonic clock."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._since: dict[Hashable, float] = {}

    def holds(self, what: Hashable, *, now: bool) -> bool:
        """Return whether it was true at every call for `LASTING_S`."""
        if not now:
            self._since.pop(what, None)
            return False
        return self._elapsed() - self._since.setdefault(what, self._elapsed()) >= LASTING_S

    def forget(self, what: Hashable) -> None:
        self._since.pop(what, None)


_CHECK_S = 60.0  # the clock may have been set
_AFTER_S = 0.01
_NOTHING = timedelta(0)


class TaskCloser:
    """Marks closed tasks and rounds, and reports whose estimates change."""

    def __init__(
        self,
        store: Store,
        tasks: KnownTasks,
        *,
        grace: Callable[[], Mapping[str, timedelta]],
        work: Worker,
        clock: Callable[[], datetime],
        changed: Callable[[set[str]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._grace = grace
        self._work = work
        self._clock = clock
        self._changed = changed
        self._lasting = Debounce(lambda: asyncio.get_running_loop().time())
        self._marks: frozenset[tuple[bytes, int]] = frozenset()
        self._silent: set[str] = set()  # tasks that devices no longer answer, reported already

    async def refresh(self) -> None:
        """Read the marks again: a command may have set one."""
        marks = await self._work(self._store.marks)
        digests = {digest for digest, _ in marks - self._marks}
        await self._report({task_id for task_id, task in self._tasks.items() if task.digest in digests})
        self._marks = marks

    async def serve(self) -> NoReturn:
        """Mark what is over, until cancelled."""
        while True:
            wait = await self._step()
            await asyncio.sleep(wait)

    async def _step(self) -> float:
        """Check every task; return the seconds until the next check."""
        now, grace, wait = self._clock(), self._grace(), _CHECK_S
        silent, over = set[str](), set[str]()
        for task_id, task in self._tasks.items():
            if task.closes is None or self._tasks.rows[task_id].state is TaskState.CLOSED:
                continue
            left = task.closes - now
            last = left + grace.get(task_id, CLOCK_SKEW)
            if left <= _NOTHING:
                silent.add(task_id)
            if self._lasting.holds(task.digest, now=last < _NOTHING):
                over.add(task_id)
            wait = min([wait, *(span.total_seconds() + _AFTER_S for span in (left, last) if span >= _NOTHING)])
        await self._report(silent - self._silent)
        self._silent = silent
        for task_id in sorted(over):
            await self._work(partial(self._store.close_task, task_id, at=now))
        if over:
            await self._work(self._tasks.refresh)
            await self.refresh()
        return wait

    async def _report(self, task_ids: set[str]) -> None:
        if task_ids:
            await self._changed(task_ids)


MADE = date(2026, 11, 22)
"""The day of this version: no clock can be earlier. To be raised with each release."""

_LOG = logging.getLogger("hush.aggregator")
_NOTE_EVERY_S = 3600.0
_CHECK_EVERY_S = 1.0
_LOG_EVERY = 600  # checks
_MADE_AT = re.compile(rb'"updated_at":"([0-9TZ:+.-]{1,40})"')


def _now() -> datetime:
    return datetime.now(UTC)


class ClockCheck:
    """Compares the clock with the newest day in the store, and with the day of the build (`made`).

    With `accept`, the clock is trusted, and the store continues from today, releases included.
    """

    def __init__(
        self, store: ServedStore, *, accept: bool = False, made: date = MADE, now: Callable[[], datetime] = _now
    ) -> None:
        self._store = store
        self._now = now
        self._made = date.min if accept else made
        self._newest = store.newest_day or date.min
        self._is_logged = False
        if accept:
            self._newest = date.min
            store.note_day(self._today())
            store.set_back_releases(int(now().timestamp()))

    def problem(self) -> str | None:
        """Return why the clock cannot be right, if so."""
        today = self._today()
        if today >= max(self._made, self._newest):
            return None
        reason = (
            f"this hush was made no earlier than {self._made}"
            if self._made >= self._newest
            else f"this store was in use on {self._newest}"
        )
        return f"the clock says {today}, but {reason}"

    async def wait_until_plausible(self) -> None:
        """Return once the clock can be right."""
        checks = 0
        while (problem := self.problem()) is not None:
            if checks % _LOG_EVERY == 0:
                _LOG.error(
                    "%s: reports wait on the broker, uncounted and unacknowledged; set the clock, "
                    "or start once with --accept-clock if it is right",
                    problem,
                )
            checks += 1
            await asyncio.sleep(_CHECK_EVERY_S)
        if checks:
            _LOG.info("the clock is plausible again: counting")

    def look_at(self, estimate: bytes) -> None:
        """Log once if a retained estimate is from the future. It has no other effect."""
        made = _time_of(estimate)
        if self._is_logged or made is None or made - self._now() <= CLOCK_SKEW:
            return
        self._is_logged = True
        _LOG.warning(
            "an estimate on this broker is from %s, which this clock has not reached: is the clock slow? Anyone who "
            "may write estimates can forge that, so reports are counted all the same",
            made.isoformat(timespec="seconds"),
        )

    def note(self) -> None:
        """Store the day, if it can be right."""
        if self.problem() is None and (today := self._today()) != self._newest:
            self._store.note_day(today)
            self._newest = today

    async def run(self) -> NoReturn:
        """Store the day once an hour, until cancelled."""
        note = partial(asyncio.to_thread, self.note)
        await repeat(note, _NOTE_EVERY_S, failure="the day cannot be recorded", event="day_failed")

    def _today(self) -> date:
        return self._now().astimezone(UTC).date()


def _time_of(estimate: bytes) -> datetime | None:
    """The time in a result document, if there is one."""
    found = _MADE_AT.search(estimate)
    if found is None:
        return None
    try:
        return datetime.fromisoformat(found[1].decode()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


class StoreWatcher:
    """Calls listeners after another process has written to the store."""

    def __init__(self, changes: Callable[[], Awaitable[int]]) -> None:
        self._changes = changes
        self._listeners: list[Callable[[], Awaitable[None]]] = []
        self._last: int | None = None

    def add_listener(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Await `listener` after each change, after those added before."""
        self._listeners.append(listener)

    async def begin(self) -> None:
        """Note the state of the store; to be awaited before it is first read, so that no change is missed."""
        self._last = await self._changes()

    async def run(self) -> NoReturn:
        """Check once a second, until cancelled; raises `StoreError` if the store cannot be read."""
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            now = await self._changes()
            if now != self._last:
                self._last = now
                await self.refresh()

    async def refresh(self) -> None:
        """Call the listeners now."""
        for listener in self._listeners:
            await listener()
