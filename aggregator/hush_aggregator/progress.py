"""Progress: what the log says about reports, and never when a single one came.

Refusals are told once a minute for each task and reason, with the sender where one is known. What was accepted is told
every ten minutes, counted from the start and not from a report, and of a task only once it is `_FEW` or more; the rest,
and the total, when the service stops.
"""

import asyncio
import logging
from collections import Counter

from hush_aggregator.log_fields import fields
from hush_aggregator.senders import note
from hush_aggregator.store.base import CommitOutcome
from hush_common.wire import Refusal

__all__ = ["Progress"]

_LOG = logging.getLogger("hush.aggregator")
_MINUTE_S = 60.0
_ACCEPTED_EVERY = 10  # minutes
_FEW = 10
_LINES = 20  # a minute: whoever publishes many tasks must not fill the disk with refusals


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
                note(self._senders, key, outcome.senders[key])

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
