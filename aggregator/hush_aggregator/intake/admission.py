"""Decide which decoded reports count, given the tasks and the clock. Each refusal is counted by reason."""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import compress
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.broker.session import BATCH_LIMIT
from hush_aggregator.intake.decode import Block, Decoded, ReportMessage
from hush_aggregator.store.base import UNKNOWN, Accepted, note_sender
from hush_common.mechanisms import Offers
from hush_common.task import CLOCK_SKEW, Task
from hush_common.wire import Refusal

_FEW = 16
_NONE: Mapping[str, timedelta] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Admitted:
    """A batch, judged."""

    accepted: list[Accepted]  # what goes to the store
    refused: Counter[tuple[str, Refusal]]  # how many reports do not, by (task id or `UNKNOWN`, reason)
    # who sent those, by the same; None for several senders
    senders: dict[tuple[str, Refusal], str | None] = field(default_factory=dict)
    # messages and reports of tasks that are published, and are not for this store; they are not refused
    foreign: int = 0


def admit(
    decoded: Decoded,
    tasks: Mapping[str, Task],
    now: datetime,
    grace: Mapping[str, timedelta] = _NONE,
    *,
    others: Container[str | None] = (),
    is_without_room: Callable[[str | None], bool] = lambda _: False,
) -> Admitted:
    """Judge every block. The first reason that applies counts, in the order of `_misfit`, then of the bodies.

    Args:
        decoded: a batch.
        tasks: the tasks known, by id.
        now: aware; a report may be `CLOCK_SKEW` early or late, because its device has a clock of its own.
        grace: how late it may be instead, by id of the task: reports that were recalled come later.
        others: ids of tasks that are published, and are not for this store.
        is_without_room: whether a task is published, and there was no room for it.
    """
    foreign = 0
    refused: Counter[tuple[str, Refusal]] = Counter()
    senders: dict[tuple[str, Refusal], str | None] = {}

    def refuse(task_id: str, reason: Refusal, count: int, sender: str | None) -> None:
        if count:
            refused[task_id, reason] += count
            note_sender(senders, (task_id, reason), sender)

    for (task_id, reason), count in decoded.refused.items():
        if task_id in others and task_id not in tasks:
            foreign += count
            continue
        refuse(_bucket(task_id, tasks), reason, count, decoded.senders.get((task_id, reason)))
    accepted: list[Accepted] = []
    for block in decoded.blocks:
        task = tasks.get(block.topic_task or "")
        if task is None and block.topic_task in others:
            foreign += len(block.ids)
            continue
        if task is None:
            full = is_without_room(block.topic_task)
            refuse(UNKNOWN, Refusal.TASK_LIMIT if full else Refusal.UNKNOWN_TASK, len(block.ids), block.sender)
            continue
        misfit = _misfit(block, task, now)
        if misfit is not None:
            refuse(task.id, misfit, len(block.ids), block.sender)
            continue
        if task.closes is not None and now - task.closes > grace.get(task.id, CLOCK_SKEW):
            # Not refused yet: what was counted in time and comes again is a duplicate, which only the store can tell.
            accepted.append(Accepted(task, block.round, block.ids, block.bodies, late=True))
            note_sender(senders, (task.id, Refusal.CLOSED), block.sender)
            continue
        accepted += _within(block, task, partial(refuse, task.id, Refusal.OUT_OF_RANGE))
    return Admitted(accepted, refused, senders, foreign)


def _bucket(task_id: str | None, tasks: Mapping[str, Task]) -> str:
    return task_id if task_id is not None and task_id in tasks else UNKNOWN


def _misfit(block: Block, task: Task, now: datetime) -> Refusal | None:
    """Why the whole block is refused. An earlier round is welcome until the task closes: devices answer late."""
    if block.stated_task not in (None, task.id):
        return Refusal.WRONG_TOPIC
    if block.digest != task.report_digest:
        return Refusal.WRONG_DIGEST
    if block.round >= task.rounds:
        return Refusal.UNKNOWN_ROUND
    opens = task.round_opens(block.round)
    if opens is not None and opens - now > CLOCK_SKEW:
        return Refusal.NOT_OPEN
    return None


def _within(block: Block, task: Task, refuse: Callable[[int, str | None], object]) -> Iterator[Accepted]:
    """What a device that follows the mechanism can send; the rest is refused."""
    bodies, senders = block.bodies, block.senders or None
    if _all_inside(block, task):
        yield Accepted(task, block.round, block.ids, bodies, senders=senders)
        return
    inside = _inside(block, task)
    refuse(len(inside) - int(inside.sum()), block.sender)
    if inside.any():
        kept = None if senders is None else list(compress(senders, inside.tolist()))
        yield Accepted(task, block.round, block.ids[inside], bodies[inside], senders=kept)


def _all_inside(block: Block, task: Task) -> bool:
    """Whether none of a few reports is to be refused: quickly, for a batch may have thousands of blocks of one."""
    span = _span(task)
    if span is None or len(block.ids) > _FEW or block.bodies.shape[1] != task.randomizer.width:
        return False
    low, high = span
    return all(low <= body[0] <= high for body in block.bodies.tolist())


def _span(task: Task) -> tuple[int, int] | None:
    """The first and the last body of a task whose bodies are all the integers between."""
    return None if isinstance(task.randomizer, Offers) else task.randomizer.span


def _inside(block: Block, task: Task) -> NDArray[np.bool_]:
    """Which bodies a device that follows the mechanism can send."""
    mechanism = task.randomizer
    if block.bodies.shape[1] != mechanism.width:
        return np.zeros(len(block.ids), dtype=np.bool_)
    span = _span(task)
    if span is None:
        return np.fromiter(map(mechanism.admits, map(tuple, block.bodies.tolist())), np.bool_, len(block.ids))
    low, high = span
    return np.asarray((block.bodies[:, 0] >= low) & (block.bodies[:, 0] <= high))


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
        """Whether a task that is unknown now is permanently unknown."""
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
