"""What the aggregator received, read back from its store once it has stopped."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import NumberDomain
from hush_common.mechanisms import RandomizedResponse
from hush_common.mechanisms.build import build
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
    """Each report as an unbiased estimate of its device's value: noisy, in the unit of the task, never clipped."""
    mechanism = build(task)
    if isinstance(mechanism, RandomizedResponse):
        low, high = (float(p) for p in mechanism.probability_of_one)
        return (bodies.astype(np.float64) - low) / (high - low)
    if not isinstance(task.domain, NumberDomain):
        raise TypeError(f"no decoding for {task.mechanism}")
    return task.domain.lower + bodies.astype(np.float64) * float(task.domain.step)
