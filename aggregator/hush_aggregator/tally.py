"""Tally: the sufficient statistics of one round, as exact integers.

`fold` adds reports and `merge` adds tallies; both commute, so shards in any order give the same tally bit for bit.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tally"]

_SAFE = 1 << 62


@dataclass(frozen=True, slots=True)
class Tally:
    """Count, sum and sum of squares of the integers reported. For bits, `total` is the number of ones.

    Args:
        n: reports counted.
        total: sum of the reported integers.
        squares: sum of their squares.
    """

    n: int = 0
    total: int = 0
    squares: int = 0

    def fold(self, reported: NDArray[np.int64]) -> "Tally":
        """The tally with the integers of further reports, shape (count,), added exactly."""
        return self.merge(Tally(len(reported), _sum(reported), _sum_of_squares(reported)))

    def merge(self, other: "Tally") -> "Tally":
        """The tally of both sets of reports."""
        return Tally(self.n + other.n, self.total + other.total, self.squares + other.squares)


def _sum(reported: NDArray[np.int64]) -> int:
    """An exact sum: in 64 bits where it cannot overflow, in Python's integers where it could."""
    if len(reported) == 0:
        return 0
    largest = max(abs(int(reported.max())), abs(int(reported.min())))
    if largest * len(reported) < _SAFE:
        return int(reported.sum())
    return sum(reported.tolist())


def _sum_of_squares(reported: NDArray[np.int64]) -> int:
    """An exact sum of squares."""
    if len(reported) == 0:
        return 0
    largest = max(abs(int(reported.max())), abs(int(reported.min())))
    if largest * largest * len(reported) < _SAFE:
        return int((reported * reported).sum())
    return sum(k * k for k in reported.tolist())
