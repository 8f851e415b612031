"""A number or a bit that is rounded to a level, each level with a law of its own over a few outputs.

The devices at index i divide into those that round down and those that round up (one coin a device), those of a level
among its outputs (at most two coins and a scatter).
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hush_common.mechanisms.mechanism import FiniteLaw
from hush_simulations.engines.bulk.cells import Places
from hush_simulations.engines.bulk.laws.whole import WHOLE, completed, known, of_coordinates
from hush_simulations.engines.bulk.scatter import Counts, scatter, scatter_rows

__all__ = [
    "WHOLE",
    "OnGrid",
    "at_levels",
    "bodies",
    "completed",
    "edge",
    "known",
    "levels",
    "of_coordinates",
    "outputs",
    "rows",
    "sums",
    "truthful",
]


class OnGrid(Protocol):
    """A mechanism of a number on a grid."""

    @property
    def steps(self) -> int: ...

    @property
    def law(self) -> FiniteLaw: ...


def levels(mechanism: OnGrid) -> int:
    return len(mechanism.law.rows) - 1


def rows(law: FiniteLaw) -> NDArray[np.float64]:
    """The probability of each output at each level, each rounded once."""
    return np.array([[float(p) for p in row] for row in law.rows])


def truthful(law: FiniteLaw) -> float:
    """Of an even law: the probability to report the level itself; otherwise any of the outputs is as likely."""
    return float(law.rows[0][0] - law.rows[0][1])


def sums(mechanism: OnGrid, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
    """How often each output is reported."""
    return outputs(mechanism.law, at_levels(levels(mechanism), mechanism.steps, indices, counts, rng), rng)


def at_levels(levels: int, steps: int, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
    """How many devices round to each level; shape (trials, levels + 1)."""
    level, rest = np.divmod(indices * levels, steps)
    level = level.astype(np.int64)
    up = rng.binomial(counts, rest / steps)
    return np.array(
        [
            _by_level(level, stay, levels) + _by_level(level + 1, more, levels)
            for stay, more in zip(counts - up, up, strict=True)
        ]
    )


def _by_level(level: NDArray[np.int64], counts: NDArray[np.int64], levels: int) -> NDArray[np.int64]:
    """Exact: sums of floats that are integers below 2^53."""
    return np.bincount(level, counts, minlength=levels + 2)[: levels + 1].astype(np.int64)


def outputs(law: FiniteLaw, at: Counts, rng: np.random.Generator) -> Counts:
    """How often each output is reported by so many devices at each level; shape (trials, outputs)."""
    if law.even:
        true = rng.binomial(at, truthful(law))
        return true + scatter((at - true).sum(axis=1), np.ones(at.shape[1]), rng)
    each = scatter_rows(at.reshape(-1), np.tile(rows(law), (len(at), 1)), rng)
    found: Counts = each.reshape(len(at), len(law.rows), -1).sum(axis=1)
    return found


def edge(mechanism: OnGrid) -> tuple[int, ...]:
    positions = mechanism.law.positions
    return (positions.index(max(positions)),)


def bodies(mechanism: OnGrid, indices: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """The output that each device reports; three coins."""
    law = mechanism.law
    level, rest = np.divmod(indices * (len(law.rows) - 1), mechanism.steps)
    level += rng.integers(0, mechanism.steps, size=len(level)) < rest
    draws = rng.random(len(level))
    if law.even:
        true = draws < truthful(law)
        return np.where(true, level, rng.integers(0, len(law.rows), size=len(level)))[:, None]
    below = np.cumsum(rows(law), axis=1)[:, :-1]
    found = np.zeros(len(level), dtype=np.int64)
    for output in range(below.shape[1]):
        found += draws >= below[level, output]
    return found[:, None]
