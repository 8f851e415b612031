"""Backlog: notice that reports wait at the broker, and log every ten seconds how far the intake has got.

The intake is behind while it hardly ever waits for a message and counts many reports. (The inbox alone tells nothing:
a broker that leaves twenty messages unacknowledged never fills it.) A line is logged only for a thousand reports or
more, so that none tells when a single one came.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from hush_aggregator.intake import Backlog
from hush_aggregator.log_fields import fields

__all__ = ["BacklogWatch"]

_LOG = logging.getLogger("hush.aggregator")
_EVERY_S = 10.0
_BUSY = 0.8  # share of the time in which the intake did not wait for a message
_MANY = 1000  # reports in that time


class BacklogWatch:
    """Watches the intake: `waiting` around each wait for a message, `add` after each commit, `run` meanwhile.

    Args:
        stored: messages that the broker holds for somebody, about; None if it does not tell.
    """

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
