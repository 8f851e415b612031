"""Pending reports: those whose task is not known yet wait a while before they are refused.

After a reconnect a broker may redeliver reports before it sends the retained task that they answer. So until tasks
have stopped arriving, reports of unknown tasks are held, unacknowledged. A bounded number of them: what does not fit
is forgotten, and the connection has to be renewed, whereupon the broker delivers it again.
"""

import asyncio
from collections.abc import Container

from hush_aggregator.bus import BATCH_LIMIT
from hush_aggregator.receive import ReportMessage

__all__ = ["PendingReports"]

_LIMIT = 2 * BATCH_LIMIT
_LONGEST = 10


class PendingReports:
    """The reports of one connection that wait for their task.

    Args:
        patience: seconds from now, and from each new task that arrives until then, during which unknown is not refused;
            `_LONGEST` times as long at most, whoever publishes tasks meanwhile.
    """

    def __init__(self, patience: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._patience = patience
        self._settles_at = self._clock() + patience
        self._latest = self._clock() + _LONGEST * patience
        self._held: list[ReportMessage] = []
        self.overflowed: bool = False

    @property
    def settled(self) -> bool:
        """Whether a task that is unknown now is unknown for good."""
        return self._clock() >= self._settles_at

    @property
    def until(self) -> float | None:
        """When to come back without a new message (time of the event loop); None if nothing waits for it."""
        return self._settles_at if self._held or self.overflowed else None

    def sift(self, reports: list[ReportMessage], known: Container[str | None], *, extend: bool) -> list[ReportMessage]:
        """The reports to judge now, those held before among them; the others are kept.

        Args:
            reports: those that came now.
            known: ids of the tasks known now.
            extend: whether new, legal tasks came with them. (Anything else on their topics must not make honest
                reports wait: anybody may be able to publish there.)
        """
        waiting = self._held + reports
        self._held = []
        if self.settled:
            return waiting
        if extend:
            self._settles_at = min(self._clock() + self._patience, self._latest)
        ready = [report for report in waiting if report.task_id in known]
        if len(ready) < len(waiting):
            self._held = [report for report in waiting if report.task_id not in known]
            self.overflowed = self.overflowed or len(self._held) > _LIMIT
            del self._held[_LIMIT:]
        return ready
