"""What the aggregator received, read back from its store once it has stopped."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.finite import finite
from hush_common.domain import Domain, NumberDomain
from hush_common.mechanisms import Channel, Laplace, Multilevel, RandomizedResponse
from hush_common.task import Task

__all__ = ["Received", "decoded", "read_received"]


@dataclass(frozen=True, slots=True)
class Received:
    """The reports of one round, in the order of their random ids, which says nothing about the devices.

    Args:
        ids: report ids, 32 hexadecimal digits each.
        bodies: the integers reported, shape (count,).
    """

    ids: tuple[str, ...]
    bodies: NDArray[np.int64]


def read_received(store: Path, task: Task, round_: int) -> Received:
    """The accepted reports of a round, from the SQLite file of an aggregator."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT id, body FROM report WHERE digest = ? AND round = ? ORDER BY id", (task.digest, round_)
        ).fetchall()
    bodies = np.frombuffer(b"".join(body for _, body in rows), dtype=">i8").astype(np.int64)
    return Received(tuple(report_id.hex() for report_id, _ in rows), bodies)


def decoded(task: Task, bodies: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each report as an unbiased estimate of its device's value: noisy, in the unit of the task, never clipped.

    Raises:
        TypeError: one report of this mechanism is no estimate of a number.
    """
    domain, mechanism = task.domain, task.randomizer
    match mechanism:
        case Laplace() if isinstance(domain, NumberDomain):
            return domain.lower + bodies.astype(np.float64) * float(domain.step)
        case RandomizedResponse() | Multilevel() | Channel():
            positions = np.array([float(_number(domain, x)) for x in finite(mechanism).positions])
            return positions[bodies]
    raise TypeError(f"no decoding for {task.mechanism}")


def _number(domain: Domain, position: Fraction) -> Fraction:
    """The number at a position on the unit interval: itself for a bit."""
    return domain.value_of(position * domain.steps) if isinstance(domain, NumberDomain) else position
