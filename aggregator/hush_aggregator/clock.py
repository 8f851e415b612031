"""Whether the clock can be right. One that says 2020 would have every report refused as `not_open`, for good.

So while the clock is before a day that has certainly been, reports are neither counted nor acknowledged: they wait at
the broker. That day is one before which this hush was not made, or the newest on which the store was in use. The store
keeps it as a day, whether reports come or not, so that it is no time of a report.

A retained estimate that says it was made later than now is a reason to look at the clock, and no more: whoever may
write there can forge it.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import UTC, date, datetime

from hush_aggregator.store import SqliteStore
from hush_common.errors import StoreError
from hush_common.task import CLOCK_SKEW

__all__ = ["MADE", "CheckedClock"]

MADE = date(2026, 11, 22)
"""No hush like this was there before that day. To be raised with each release."""

_LOG = logging.getLogger("hush.aggregator")
_NOTE_EVERY_S = 3600.0
_LOOK_EVERY_S = 1.0
_TELL_EVERY = 600  # looks
_MADE_AT = re.compile(rb'"updated_at":"([0-9TZ:+.-]{1,40})"')


def _now() -> datetime:
    return datetime.now(UTC)


class CheckedClock:
    """Compares the clock with what the store and the build know.

    Args:
        store: remembers the newest day.
        accept: take the clock for right, whatever they know; the store then begins anew from today.
        made: the day of the build.
        now: the time, aware.
    """

    def __init__(
        self, store: SqliteStore, *, accept: bool = False, made: date = MADE, now: Callable[[], datetime] = _now
    ) -> None:
        self._store = store
        self._now = now
        self._made = date.min if accept else made
        self._newest = store.newest_day or date.min
        self._doubted = False
        if accept:
            self._newest = date.min
            store.note_day(self._today())

    def wrong(self) -> str | None:
        """Why the clock cannot be right; None if it can."""
        today = self._today()
        if today >= max(self._made, self._newest):
            return None
        reason = (
            f"this hush was made no earlier than {self._made}"
            if self._made >= self._newest
            else f"this store was in use on {self._newest}"
        )
        return f"the clock says {today}, but {reason}"

    async def right(self) -> None:
        """Return at once if the clock can be right, else once it is."""
        looks = 0
        while (wrong := self.wrong()) is not None:
            if looks % _TELL_EVERY == 0:
                _LOG.error(
                    "%s: reports wait at the broker, uncounted and unacknowledged; set the clock, "
                    "or start once with --accept-clock if it is right",
                    wrong,
                )
            looks += 1
            await asyncio.sleep(_LOOK_EVERY_S)
        if looks:
            _LOG.info("the clock is plausible again: counting")

    def look_at(self, estimate: bytes) -> None:
        """Say once if a retained estimate claims to be from later than now: it decides nothing."""
        made = _time_of(estimate)
        if self._doubted or made is None or made - self._now() <= CLOCK_SKEW:
            return
        self._doubted = True
        _LOG.warning(
            "an estimate on this broker says that it was made at %s, which this clock has not reached yet: is "
            "the clock slow? Whoever may write estimates can forge that, so reports are counted all the same",
            made.isoformat(timespec="seconds"),
        )

    def note(self) -> None:
        """Remember the day, if it can be right."""
        if self.wrong() is None and (today := self._today()) != self._newest:
            self._store.note_day(today)
            self._newest = today

    async def run(self) -> None:
        """Remember the day once an hour, until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self.note)
            except StoreError as error:
                _LOG.warning("could not record the day: %s", error)
            await asyncio.sleep(_NOTE_EVERY_S)

    def _today(self) -> date:
        return self._now().astimezone(UTC).date()


def _time_of(estimate: bytes) -> datetime | None:
    """When a result document says that it was made; None if it does not say."""
    found = _MADE_AT.search(estimate)
    if found is None:
        return None
    try:
        return datetime.fromisoformat(found[1].decode()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
