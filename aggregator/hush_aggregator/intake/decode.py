"""Decode a batch of messages into arrays. Every message ends in an array or is counted as refused."""

# Reports of one task, round and body length form one block, in the order of receipt, whether they came in frames or as
# JSON. `np.frombuffer` reads all rows of one length at once. The reports and refusals equal those of
# `hush_common.wire.decode`; a property test compares them.

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.store.base import note_sender, only_sender
from hush_common.rng import REPORT_ID_BYTES
from hush_common.topics import Delivery, is_sender, task_of_report_topic, task_of_task_topic
from hush_common.wire import HEADER, VERSION, Refusal, count_of, decode_json, width_of


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
    for topic, payload, number, _ in deliveries:
        task_id = task_of_report_topic(topic)
        if task_id is None and (published := task_of_task_topic(topic)) is not None:
            tasks.append(TaskMessage(published, payload, number))
        else:
            add(make(ReportMessage, (task_id, topic.rpartition("/")[2], payload, number)))
    return Messages(tasks, reports)


@dataclass(frozen=True, slots=True)
class Block:
    """Reports that stand or fall together until their bodies are looked at, in the order of receipt."""

    topic_task: str | None  # the task id in the topic they came on; None for a topic that is none of ours
    stated_task: str | None  # the task id that JSON reports state, where it is not the one in the topic; else None
    digest: bytes  # the first 16 bytes of the digest of the task they answer
    round: int  # the round they answer
    ids: NDArray[np.void]  # report ids, shape (count,), dtype `V16`
    bodies: NDArray[np.int64]  # shape (count, width), in the byte order in which they came
    senders: Sequence[str] = ()  # who sent each, as their topics say

    @property
    def sender(self) -> str | None:
        """Who sent all of them; None for several senders."""
        return only_sender(self.senders)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch, read."""

    blocks: list[Block]  # what could be read
    refused: Counter[tuple[str | None, Refusal]]  # counts the other messages by (task id in the topic, reason)
    # who sent those, by the same; None for several senders
    senders: dict[tuple[str | None, Refusal], str | None] = field(default_factory=dict)


_Key = tuple[str | None, str | None, bytes]
"""What the reports of a block have in common: the task in the topic, another one that they state, and the header of a
frame, which says digest, round and length of a body."""


def decode(messages: Iterable[ReportMessage]) -> Decoded:
    """Read every payload of a batch of messages on report topics."""
    found = Decoded([], Counter())

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
        width, whole = _whole(key[2], places, parts)
        if len(whole) < len(places):
            for k in sorted({*places} - {*whole}):
                refuse(key[0], width if isinstance(width, Refusal) else Refusal.MALFORMED, senders[k])
        if not isinstance(width, Refusal) and whole:
            by_width[width][key] = whole
    for width, some in by_width.items():
        found.blocks.extend(_blocks(width, some, parts, senders))
    return found


def _read(payload: bytes) -> tuple[str | None, bytes, bytes] | Refusal:
    """The task that a payload states, if any; its header and its reports as a frame has them, which may be invalid."""
    if payload[:1] != b"{":
        return None, payload[: HEADER.size], payload[HEADER.size :]
    read = decode_json(payload)
    if isinstance(read, Refusal):
        return read
    task, digest, round_, report_id, body = read
    header = HEADER.pack(VERSION, 0, 8 * len(body), digest, round_)
    return task, header, report_id + b"".join([k.to_bytes(8, "big", signed=True) for k in body])


def _whole(header: bytes, places: list[int], parts: Sequence[bytes]) -> tuple[int | Refusal, list[int]]:
    """How many integers a body has under a header, and which of the messages under it have whole reports."""
    width = width_of(header)
    if isinstance(width, Refusal):
        return width, []
    return width, [k for k in places if count_of(HEADER.size + len(parts[k]), width)]


@lru_cache
def _row(width: int) -> "np.dtype[np.void]":
    return np.dtype([("id", f"V{REPORT_ID_BYTES}"), ("body", ">i8", (width,))])


def _blocks(
    width: int, groups: Mapping[_Key, Sequence[int]], parts: Sequence[bytes], senders: Sequence[str]
) -> Iterator[Block]:
    """Blocks of one width: slices of one array."""
    row = _row(width)
    rows = np.frombuffer(b"".join([parts[k] for places in groups.values() for k in places]), dtype=row)
    ids, bodies, end = rows["id"].copy(), rows["body"], 0
    for (topic_task, stated_task, header), places in groups.items():
        _, _, _, digest, round_ = HEADER.unpack(header)
        counts = [len(parts[k]) // row.itemsize for k in places]
        start, end = end, end + sum(counts)
        names = chain.from_iterable(repeat(senders[k], count) for k, count in zip(places, counts, strict=True))
        yield Block(topic_task, stated_task, digest, round_, ids[start:end], bodies[start:end], list(names))
