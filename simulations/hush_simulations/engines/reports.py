"""What the aggregator received, read back from its store."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.store import StoreReader
from hush_common.domain import CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.mechanisms import (
    Channel,
    Laplace,
    Multilevel,
    Offers,
    RandomizedResponse,
    Single,
    SubsetSelection,
    Vector,
)
from hush_common.task import Task

__all__ = ["Received", "decoded", "in_words", "named", "offers_of", "read_received"]

_WORD = 32  # bits of an integer that names categories


@dataclass(frozen=True, slots=True)
class Received:
    """The reports of one round, in the order of their random ids, which says nothing about the devices.

    Args:
        ids: report ids, 32 hexadecimal digits each.
        bodies: the integers reported, shape (count, integers in a body).
    """

    ids: tuple[str, ...]
    bodies: NDArray[np.int64]


def read_received(store: StoreReader, task: Task, round_: int) -> Received:
    """The accepted reports of a round. Blocks while they are read."""
    reports = list(store.reports(task.digest, round_))
    bodies = np.array([report.body for report in reports], dtype=np.int64)
    return Received(tuple(report.id.hex() for report in reports), bodies.reshape(-1, task.randomizer.width))


def offers_of(task: Task, bodies: NDArray[np.int64]) -> tuple[Sequence[Single], NDArray[np.int64], NDArray[np.int64]]:
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
        TypeError: one report of this mechanism is no estimate of a number.
    """
    parts, offers, rest = offers_of(task, bodies)
    values = np.empty(len(bodies))
    for offer, part in enumerate(parts):
        chosen = offers == offer
        values[chosen] = _decoded(task.domain, part, rest[chosen, 0])
    return values


def named(task: Task, bodies: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which categories each report names, shape (count, categories)."""
    parts, _, rest = offers_of(task, bodies)
    categories = next(part.categories for part in parts if isinstance(part, SubsetSelection))
    bits = rest[:, :, None] >> np.arange(_WORD) & 1
    return bits.reshape(len(rest), -1)[:, :categories].astype(np.bool_)


def in_words(task: Task, bodies: NDArray[np.int64]) -> list[str]:
    """What each report says: the labels that it names, the coordinates that it drew and their values, or a number."""
    domain = task.domain
    match domain:
        case CategoryDomain(labels=labels):
            return [" | ".join(labels[place] for place in row.nonzero()[0]) for row in named(task, bodies)]
        case VectorDomain():
            parts, offers, rest = offers_of(task, bodies)
            return [_drawn(domain, parts[offer], body) for offer, body in zip(offers, rest.tolist(), strict=True)]
    return [repr(value) for value in decoded(task, bodies).tolist()]


def _drawn(domain: VectorDomain, part: Single, body: Sequence[int]) -> str:
    if not isinstance(part, Vector):
        raise TypeError(f"{part.name} draws no coordinates")
    found = []
    for place, level in zip(body[::2], body[1::2], strict=True):
        coordinate = domain.coordinates[place]
        found.append(f"{coordinate.name} = {float(_number(coordinate, finite(part.part).positions[level]))!r}")
    return " | ".join(found)


def _decoded(domain: Domain, mechanism: Single, bodies: NDArray[np.int64]) -> NDArray[np.float64]:
    match mechanism:
        case Laplace() if isinstance(domain, NumberDomain):
            return domain.lower + bodies.astype(np.float64) * float(domain.step)
        case RandomizedResponse() | Multilevel() | Channel():
            positions = np.array([float(_number(domain, x)) for x in finite(mechanism).positions])
            return positions[bodies]
    raise TypeError(f"no decoding for {mechanism.name}")


def _number(domain: Domain, position: Fraction) -> Fraction:
    """The number at a position on the unit interval: itself for a bit."""
    return domain.value_of(position * domain.steps) if isinstance(domain, NumberDomain) else position
