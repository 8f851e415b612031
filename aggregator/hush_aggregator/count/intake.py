"""Receive, decode and admit reports, and log what was counted."""

# Reports of one task, round and body length form one block, in the order of receipt, whether they came in frames or as
# JSON. `np.frombuffer` reads all rows of one length at once. The reports and refusals equal those of
# `hush_common.wire.decode`; a property test compares them.
# Refusals are logged once a minute for each task and reason, with the sender if it is known. Accepted reports are
# logged every ten minutes, counted from the start and not from a report, and of a task only from `_FEW` reports on; the
# rest and the total follow when the service stops.
#
# The intake is behind while it hardly ever waits for a message and counts many reports. (The inbox alone shows nothing:
# a broker that leaves twenty messages unacknowledged never fills it.) A line needs a thousand reports, so that none
# shows when a single one came.

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache, partial
from itertools import chain, compress, repeat
from types import MappingProxyType
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.logs import fields
from hush_aggregator.store.base import UNKNOWN, Accepted, CommitOutcome, note_sender, only_sender
from hush_common.mechanisms import Offers
from hush_common.rng import REPORT_ID_BYTES
from hush_common.task import CLOCK_SKEW, Task
from hush_common.topics import BATCH_LIMIT, Delivery, is_sender, task_of_report_topic, task_of_task_topic
from hush_common.wire import FRAME_LIMIT, HEADER, VERSION, Refusal, count_of, decode_json, width_of


class TaskMessage(NamedTuple):
    """A message on the topic of a task."""

    task_id: str  # the task in the topic
    payload: bytes  # its bytes, unchecked
    number: int  # by which it is acknowledged


class ReportMessage(NamedTuple):
    """A message on the topic of a report, or on an unknown one, which is refused as a report."""

    task_id: str | None  # the task in the topic; None for an unknown topic
    sender: str  # the last level of the topic
    payload: bytes  # its bytes, unchecked
    number: int  # by which it is acknowledged


class Messages(NamedTuple):
    """A batch, in the order in which it came."""

    tasks: list[TaskMessage]
    reports: list[ReportMessage]


def receive(deliveries: Iterable[Delivery]) -> Messages:
    """Separate the tasks of a batch from its reports."""
    tasks: list[TaskMessage] = []
    reports: list[ReportMessage] = []
    add, make = reports.append, tuple.__new__
    for topic, payload, number, _, _ in deliveries:
        task_id = task_of_report_topic(topic)
        if task_id is None and (published := task_of_task_topic(topic)) is not None:
            tasks.append(TaskMessage(published, payload, number))
        else:
            add(make(ReportMessage, (task_id, topic.rpartition("/")[2], payload, number)))
    return Messages(tasks, reports)


@dataclass(frozen=True, slots=True)
class Block:
    """Reports with one header, in the order of receipt: admitted or refused together, except for their bodies."""

    topic_task: str | None  # the task id in their topic; None for an unknown topic
    stated_task: str | None  # the task id in JSON reports if it differs from that in the topic
    digest: bytes  # the first 16 bytes of the digest of the task they answer
    round: int  # the round they answer
    ids: NDArray[np.void]  # report ids, shape (count,), dtype `V16`
    bodies: NDArray[np.int64]  # shape (count, width), in the byte order in which they came
    senders: Sequence[str] = ()  # the sender of each, from its topic

    @property
    def sender(self) -> str | None:
        """The sender of all of them; None for several senders."""
        return only_sender(self.senders)


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The decoded reports of a batch."""

    blocks: list[Block]
    refused: Counter[tuple[str | None, Refusal]]  # the other messages, by (task id in the topic, reason)
    # the senders of those; None for several senders
    senders: dict[tuple[str | None, Refusal], str | None] = field(default_factory=dict)


_Key = tuple[str | None, str | None, bytes]
"""Common to the reports of a block: the task in the topic, another one that they state, and the header of a frame."""


def decode(messages: Iterable[ReportMessage], *, most: int = FRAME_LIMIT) -> DecodedBatch:
    """Decode a batch of messages on report topics. A message with more than `most` reports is over the quota."""
    found = DecodedBatch([], Counter())

    def refuse(task_id: str | None, reason: Refusal, sender: str) -> None:
        found.refused[task_id, reason] += 1
        note_sender(found.senders, (task_id, reason), sender)

    parts: list[bytes] = []  # the reports of each message, as a frame has them
    senders: list[str] = []
    groups: defaultdict[_Key, list[int]] = defaultdict(list)
    for task_id, sender, payload, _ in messages:
        read = _read(payload) if task_id is None or is_sender(sender) else Refusal.BAD_SENDER
        if isinstance(read, Refusal):
            refuse(task_id, read, sender)
            continue
        named, header, rows = read
        groups[task_id, None if named == task_id else named, header].append(len(parts))
        parts.append(rows)
        senders.append(sender)
    by_width: defaultdict[int, dict[_Key, list[int]]] = defaultdict(dict)
    for key, places in groups.items():
        width, whole, refused = _judge(key[2], places, parts, most)
        for k, reason in refused.items():
            refuse(key[0], reason, senders[k])
        if whole:
            by_width[width][key] = whole
    for width, some in by_width.items():
        found.blocks.extend(_blocks(width, some, parts, senders))
    return found


def _read(payload: bytes) -> tuple[str | None, bytes, bytes] | Refusal:
    """Return the task that a payload states, if any, its header, and its reports as in a frame, possibly invalid."""
    if payload[:1] != b"{":
        return None, payload[: HEADER.size], payload[HEADER.size :]
    read = decode_json(payload)
    if isinstance(read, Refusal):
        return read
    task, digest, round_, report_id, body = read
    header = HEADER.pack(VERSION, 0, 8 * len(body), digest, round_)
    return task, header, report_id + b"".join([k.to_bytes(8, "big", signed=True) for k in body])


def _judge(
    header: bytes, places: list[int], parts: Sequence[bytes], most: int
) -> tuple[int, list[int], dict[int, Refusal]]:
    """Return the integers in a body under this header, the messages to count, and why the others are refused."""
    width = width_of(header)
    if isinstance(width, Refusal):
        return 0, [], dict.fromkeys(places, width)
    counts = {k: count_of(HEADER.size + len(parts[k]), width) for k in places}
    whole = [k for k, count in counts.items() if 0 < count <= most]
    others = counts.keys() - whole if len(whole) < len(places) else ()
    return width, whole, {k: Refusal.QUOTA if counts[k] else Refusal.MALFORMED for k in sorted(others)}


@lru_cache
def _row(width: int) -> "np.dtype[np.void]":
    return np.dtype([("id", f"V{REPORT_ID_BYTES}"), ("body", ">i8", (width,))])


def _blocks(
    width: int, groups: Mapping[_Key, Sequence[int]], parts: Sequence[bytes], senders: Sequence[str]
) -> Iterator[Block]:
    """Return the blocks of one width: slices of one array."""
    row = _row(width)
    rows = np.frombuffer(b"".join([parts[k] for places in groups.values() for k in places]), dtype=row)
    ids, bodies, end = rows["id"].copy(), rows["body"], 0
    for (topic_task, stated_task, header), places in groups.items():
        _, _, _, digest, round_ = HEADER.unpack(header)
        counts = [len(parts[k]) // row.itemsize for k in places]
        start, end = end, end + sum(counts)
        names = chain.from_iterable(repeat(senders[k], count) for k, count in zip(places, counts, strict=True))
        yield Block(topic_task, stated_task, digest, round_, ids[start:end], bodies[start:end], list(names))


_MOST_CHECKED_SINGLY = 16
_NONE: Mapping[str, timedelta] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Admitted:
    """A batch after admission."""

    accepted: list[Accepted]  # for the store
    refused: Counter[tuple[str, Refusal]]  # numbers of reports, by (task id or `UNKNOWN`, reason)
    # the senders of those; None for several senders
    senders: dict[tuple[str, Refusal], str | None] = field(default_factory=dict)
    foreign: int = 0  # messages and reports of tasks published for other stores; they are not refused


def admit(
    decoded: DecodedBatch,
    tasks: Mapping[str, Task],
    now: datetime,
    grace: Mapping[str, timedelta] = _NONE,
    *,
    others: Container[str | None] = (),
    is_without_room: Callable[[str | None], bool] = lambda _: False,
) -> Admitted:
    """Admit or refuse every block. The first reason that applies counts, in the order of `_refusal`, then the bodies.

    Args:
        decoded: a batch.
        tasks: the known tasks, by id.
        now: aware; a report may be `CLOCK_SKEW` early or late, because devices have their own clocks.
        grace: how late it may be instead, by task id: recalled reports come later.
        others: ids of tasks published for other stores.
        is_without_room: whether a task is published, but exceeds the limits for learned tasks.
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
        refusal = _refusal(block, task, now)
        if refusal is not None:
            refuse(task.id, refusal, len(block.ids), block.sender)
            continue
        if task.closes is not None and now - task.closes > grace.get(task.id, CLOCK_SKEW):
            # Not refused yet: a report that was counted in time may come again, which only the store knows.
            accepted.append(Accepted(task, block.round, block.ids, block.bodies, late=True))
            note_sender(senders, (task.id, Refusal.CLOSED), block.sender)
            continue
        accepted += _within(block, task, partial(refuse, task.id, Refusal.OUT_OF_RANGE))
    return Admitted(accepted, refused, senders, foreign)


def _bucket(task_id: str | None, tasks: Mapping[str, Task]) -> str:
    return task_id if task_id is not None and task_id in tasks else UNKNOWN


def _refusal(block: Block, task: Task, now: datetime) -> Refusal | None:
    """Return why the whole block is refused. Earlier rounds are open until the task closes: devices answer late."""
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
    """Yield the reports that a device can send under the mechanism; refuse the others."""
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
    """Return whether all of a few reports are valid. Quick, because a batch may have thousands of blocks of one."""
    span = _span(task)
    if span is None or len(block.ids) > _MOST_CHECKED_SINGLY or block.bodies.shape[1] != task.randomizer.width:
        return False
    low, high = span
    return all(low <= body[0] <= high for body in block.bodies.tolist())


def _span(task: Task) -> tuple[int, int] | None:
    """The range of bodies, if every integer in it is valid."""
    return None if isinstance(task.randomizer, Offers) else task.randomizer.span


def _inside(block: Block, task: Task) -> NDArray[np.bool_]:
    """Which bodies a device can send under the mechanism."""
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

    They wait `patience` seconds from now, and from each new task that arrives; at most `_LONGEST` times as long.
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
        """When to call again without a new message (event loop time); None if nothing waits."""
        return self._settles_at if self._held or self.overflowed else None

    def sift(self, reports: list[ReportMessage], known: Container[str | None], *, extend: bool) -> list[ReportMessage]:
        """Return the reports to admit now, including earlier ones; hold those of tasks that are not `known`.

        `extend` says whether new, valid tasks came with them. (Anything else on their topics must not make honest
        reports wait: anyone may be able to publish there.)
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


_LOG = logging.getLogger("hush.aggregator")
_MINUTE_S = 60.0
_ACCEPTED_EVERY = 10  # minutes
_FEW = 10
_LINES = 20  # a minute: a client that publishes many tasks must not fill the log


class Progress:
    """Logs what was counted: `add` after each commit, `run` meanwhile, `stop` at the end."""

    def __init__(self) -> None:
        self._total = 0
        self._accepted: Counter[str] = Counter()  # by task, not logged yet
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
        while True:
            for _ in range(_ACCEPTED_EVERY):
                await asyncio.sleep(_MINUTE_S)
                self._log_refused()
            self._log_accepted()

    def stop(self) -> None:
        """Log the rest."""
        self._log_refused()
        if self._total:
            said = fields("accepted_since_start", count=self._total)
            _LOG.info("accepted %d since the start", self._total, extra=said)

    def _log_accepted(self) -> None:
        """Log the tasks with `_FEW` reports or more; the others wait, and are in no sum."""
        told = {task: count for task, count in self._accepted.items() if count >= _FEW}
        if not told:
            return
        self._accepted -= Counter(told)
        total = sum(told.values())
        shown = dict(Counter(told).most_common(_LINES))
        left_out = len(told) - len(shown) or None
        said = fields("accepted", count=total, tasks=shown, tasks_left_out=left_out)
        _LOG.info("accepted %d", total, extra=said)

    def _log_refused(self) -> None:
        again = {key[0]: self._refused.pop(key) for key in list(self._refused) if key[1] is Refusal.DUPLICATE}
        if again:  # devices send until a report is acknowledged, and again after a recall
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
_BUSY = 0.8  # of the time the intake did not wait for a message
_MANY = 1000  # reports in that time


@dataclass(frozen=True, slots=True)
class Backlog:
    """Reports that waited on the broker, and are being counted."""

    counted: int  # reports counted since the backlog was noticed
    rate: float  # reports counted each second, over the last ten


@dataclass(frozen=True, slots=True)
class IntakeStatus:
    """The state of the intake of an aggregator."""

    tasks: Collection[str]  # ids of the tasks that are counted
    connected: bool  # whether there is a connection over which reports come
    waiting: int  # messages that have arrived and are in no batch yet
    dropped: int | None  # messages that the broker reports as dropped since it started; None if it does not report it
    without_room: int = 0  # published tasks that are not counted because a limit is reached
    backlog: Backlog | None = None  # None if reports are counted as they arrive
    stored: int | None = None  # messages that the broker holds, approximately; None if it does not report it
    connections: Mapping[str, int] = field(default_factory=dict)  # since the start, for `intake` and `control`
    repeated: int = 0  # messages with a packet id that was in flight already


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
        """Note that these were counted or refused."""
        self._counted += reports

    async def run(self) -> NoReturn:
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
            rest = "" if stored is None else f", about {stored} wait on the broker"
            said = fields("draining", count=self._total, rate=round(self._rate), waiting=stored)
            _LOG.info("draining a backlog: %d counted, %.0f a second%s", self._total, self._rate, rest, extra=said)
        elif self._since:
            took = now - self._since
            said = fields("drained", count=self._total, seconds=round(took))
            _LOG.info("drained a backlog: %d counted in %.0f s", self._total, took, extra=said)
            self._total, self._since = 0, 0.0
