"""What the aggregator received, read back from its store."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.mechanisms import analysis_of
from hush_aggregator.store import StoreReader
from hush_common.domain import BitDomain, NumberDomain
from hush_common.mechanisms import Mechanism, Offers
from hush_common.rng import REPORT_ID_BYTES
from hush_common.task import Task

__all__ = ["Received", "decoded", "in_words", "offers_of", "read_received", "said"]


@dataclass(frozen=True, slots=True)
class Received:
    """The reports of one round, in the order of their random ids, which says nothing about the devices.

    Args:
        joined_ids: report ids, 16 bytes each.
        bodies: the integers reported, shape (count, integers in a body).
    """

    joined_ids: bytes
    bodies: NDArray[np.int64]

    @property
    def ids(self) -> tuple[str, ...]:
        """Report ids, 32 hexadecimal digits each."""
        starts = range(0, len(self.joined_ids), REPORT_ID_BYTES)
        return tuple(self.joined_ids[start : start + REPORT_ID_BYTES].hex() for start in starts)


def read_received(store: StoreReader, task: Task, round_: int) -> Received:
    """The accepted reports of a round. Blocks while they are read."""
    ids, bodies = bytearray(), array("q")
    for report in store.reports(task.digest, round_):
        ids += report.id
        bodies.extend(report.body)
    return Received(bytes(ids), np.frombuffer(bodies, dtype=np.int64).reshape(-1, task.randomizer.width))


def offers_of(
    task: Task, bodies: NDArray[np.int64]
) -> tuple[Sequence[Mechanism], NDArray[np.int64], NDArray[np.int64]]:
    """The mechanisms of a task, which of them each report followed, and what is left of its body."""
    mechanism = task.randomizer
    if isinstance(mechanism, Offers):
        return mechanism.parts, bodies[:, 0], bodies[:, 1:]
    return (mechanism,), np.zeros(len(bodies), dtype=np.int64), bodies


def decoded(task: Task, bodies: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each report as an unbiased estimate of its device's value: noisy, in the unit of the task, never clipped.

    Args:
        task: what was asked.
        bodies: shape (count, integers in a body).

    Raises:
        TypeError: one report is no estimate of a number.
    """
    if not isinstance(task.domain, NumberDomain | BitDomain):
        raise TypeError(f"no decoding for {task.mechanism}")
    parts, offers, rest = offers_of(task, bodies)
    values = np.empty(len(bodies))
    for offer, part in enumerate(parts):
        chosen = offers == offer
        values[chosen] = analysis_of(part).said(part, task.domain, rest[chosen], 0)
    return values


def said(task: Task, bodies: NDArray[np.int64], place: int) -> NDArray[np.float64]:
    """What the reports that speak of a category or a coordinate say of it, from 0 to 1; in order of their offers."""
    parts, offers, rest = offers_of(task, bodies)
    each = (analysis_of(part).said(part, task.domain, rest[offers == offer], place) for offer, part in enumerate(parts))
    return np.concatenate(list(each))


def in_words(task: Task, bodies: NDArray[np.int64]) -> list[str]:
    """What each report says: the labels that it names, the coordinates that it drew and their values, or a number."""
    parts, offers, rest = offers_of(task, bodies)
    words = [""] * len(bodies)
    for offer, part in enumerate(parts):
        chosen = np.nonzero(offers == offer)[0]
        for row, text in zip(chosen, analysis_of(part).in_words(part, task.domain, rest[chosen]), strict=True):
            words[row] = text
    return words
