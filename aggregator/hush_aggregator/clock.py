"""Whether the clock can be right. One that says 2020 would have every report refused as `not_open`, for good.

So while the clock is before a day that has certainly been, reports are neither counted nor acknowledged: they wait at
the broker. That day is one before this hush was made, or the newest on which the store was in use. The store
keeps it as a day, whether reports come or not, so that it is no time of a report.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, date, datetime

from hush_aggregator.store import SqliteStore
from hush_common.errors import StoreError

__all__ = ["MADE", "CheckedClock"]

MADE = date(2025, 1, 1)
"""A day before every release. To be raised with them."""

_LOG = logging.getLogger("hush.aggregator")
_NOTE_EVERY_S = 3600.0
_LOOK_EVERY_S = 1.0
_TELL_EVERY = 600  # looks


def _today() -> date:
    return datetime.now(UTC).date()


class CheckedClock:
    """Compares the clock with what the store and the build know.

    Args:
        store: remembers the newest day.
        accept: take the clock for right, whatever they know; the store then begins anew from today.
        made: the day of the build.
        today: the day, in UTC.
    """

    def __init__(
        self, store: SqliteStore, *, accept: bool = False, made: date = MADE, today: Callable[[], date] = _today
    ) -> None:
        self._store = store
        self._today = today
        self._made = date.min if accept else made
        self._newest = store.newest_day or date.min
        if accept:
            self._newest = date.min
            store.note_day(today())

    def wrong(self) -> str | None:
        """Why the clock cannot be right; None if it can."""
        today = self._today()
        if today >= max(self._made, self._newest):
            return None
        reason = (
            f"this hush was made after {self._made}"
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
            _LOG.info("the clock can be right again: counting")

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
                _LOG.warning("the day could not be noted: %s", error)
            await asyncio.sleep(_NOTE_EVERY_S)
