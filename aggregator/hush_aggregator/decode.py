"""Decode: a batch of payloads into arrays. Total: every message ends in an array or is counted as refused.

Frames that share a topic's task and a header are parts of one table of fixed-width rows, so that `np.frombuffer` reads
all of them at once; only JSON goes through `hush_common.codec.decode`. Both read the same frames and refuse the same
payloads (a property test holds them equal).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.receive import ReportMessage
from hush_common import codec
from hush_common.codec import HEADER, count_of, width_of
from hush_common.refusal import Refusal
from hush_common.report import REPORT_ID_BYTES

__all__ = ["Block", "Decoded", "decode", "note"]

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Block:
    """Reports that stand or fall together until their bodies are looked at.

    Args:
        topic_task: the task id in the topic they came on; None for a topic that is none of ours.
        stated_task: the task id a JSON report states; None for frames, which state none.
        digest: the digest of the task they answer, 8 bytes.
        round: the round they answer.
        ids: report ids, shape (count,), dtype `V16`.
        bodies: shape (count, width), in the byte order in which they came.
        sender: who sent all of them, as their topics say; None for several senders.
        senders: who sent each, shape (count,); None for one sender of all.
    """

    topic_task: str | None
    stated_task: str | None
    digest: bytes
    round: int
    ids: NDArray[np.void]
    bodies: NDArray[np.int64]
    sender: str | None = None
    senders: NDArray[np.object_] | None = None

    @property
    def sender_of_each(self) -> NDArray[np.object_]:
        """Shape (count,)."""
        return np.full(len(self.ids), self.sender, dtype=np.object_) if self.senders is None else self.senders


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch, read.

    Args:
        blocks: what could be read.
        refused: counts the other messages by (task id in the topic, reason).
        senders: who sent those, by the same; None for several senders.
    """

    blocks: list[Block]
    refused: Counter[tuple[str | None, Refusal]]
    senders: dict[tuple[str | None, Refusal], str | None] = field(default_factory=dict)


def decode(messages: Iterable[ReportMessage]) -> Decoded:
    """Read every payload of a batch of messages on report topics."""
    refused: Counter[tuple[str | None, Refusal]] = Counter()
    senders: dict[tuple[str | None, Refusal], str | None] = {}
    frames: defaultdict[tuple[str | None, bytes], list[ReportMessage]] = defaultdict(list)
    framers: dict[tuple[str | None, bytes], str | None] = {}
    blocks: list[Block] = []
    for message in messages:
        task_id, payload = message.task_id, message.payload
        if payload[:1] == b"{":
            read = _json(message)
            if isinstance(read, Block):
                blocks.append(read)
            else:
                refused[task_id, read] += 1
                note(senders, (task_id, read), message.sender)
        else:
            key = task_id, payload[: HEADER.size]
            frames[key].append(message)
            note(framers, key, message.sender)
    for (task_id, header), framed in frames.items():
        width = width_of(header)
        sender = framers[task_id, header]
        if isinstance(width, Refusal):
            refused[task_id, width] += len(framed)
            note(senders, (task_id, width), sender)
            continue
        whole = [message for message in framed if count_of(len(message.payload), width)]
        if len(whole) < len(framed):
            refused[task_id, Refusal.MALFORMED] += len(framed) - len(whole)
            note(senders, (task_id, Refusal.MALFORMED), sender)
        if whole:
            blocks.append(_block((task_id, sender), header, width, whole))
    return Decoded(blocks, refused, senders)


def note(names: dict[K, str | None], key: K, name: str | None) -> None:
    """Keep under `key` the one name that is noted there; None for several."""
    if names.setdefault(key, name) != name:
        names[key] = None


def _json(message: ReportMessage) -> Block | Refusal:
    frame = codec.decode(message.payload)
    if isinstance(frame, Refusal):
        return frame
    ids = np.frombuffer(b"".join(report.id for report in frame.reports), dtype=f"V{REPORT_ID_BYTES}")
    bodies = np.array([report.body for report in frame.reports], dtype=np.int64)
    return Block(message.task_id, frame.task, frame.digest, frame.round, ids, bodies, message.sender)


def _block(source: tuple[str | None, str | None], header: bytes, width: int, messages: list[ReportMessage]) -> Block:
    rows = np.frombuffer(
        b"".join([message.payload[HEADER.size :] for message in messages]),
        dtype=[("id", f"V{REPORT_ID_BYTES}"), ("body", ">i8", (width,))],
    )
    _, _, _, digest, round_ = HEADER.unpack(header)
    task_id, sender = source
    senders = None
    if sender is None:
        names = np.array([message.sender for message in messages], dtype=np.object_)
        senders = np.repeat(names, [count_of(len(message.payload), width) for message in messages])
    return Block(task_id, None, digest, round_, rows["id"].copy(), rows["body"], sender, senders)
