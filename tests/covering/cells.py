"""What the grid of docs/coverage.md is made of: cells, the people, and the sizes to look at."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from single_intervals import FiniteChannel

__all__ = [
    "BAR", "CONFIDENCES", "EPSILONS", "RUNS", "SIZES", "SLACK", "VALUES", "Array", "Cell", "Counts", "law",
    "shares", "sizes", "switches",
]  # fmt: skip

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

SIZES = (1, 2, 3, 5, 10, 30, 100, 1000)
EPSILONS = ("0.1", "0.5", "1", "2", "4", "8", "16")
CONFIDENCES = (0.5, 0.8, 0.95, 0.99, 0.999)
RUNS = 20_000
BAR = -4.0
"""Standard errors by which a cell may cover less than it claims."""
SLACK = 1e-8
"""Of a limit: what rounding may move it by."""

VALUES: dict[str, dict[float, float]] = {
    "all at the lower bound": {0.0: 1.0},
    "all at the upper bound": {1.0: 1.0},
    "all equal, inside": {0.3: 1.0},
    "half at each bound": {0.0: 0.5, 1.0: 0.5},
    "a tenth at the upper bound": {0.0: 0.9, 1.0: 0.1},
    "a hundredth at the upper bound": {0.0: 0.99, 1.0: 0.01},
}
"""Distributions: probability of each value."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One coverage.

    Args:
        mechanism: and how it is used.
        target: which interval, or which band.
        row: epsilon, or several and who chose which.
        n: reports.
        confidence: what is claimed.
        values: name of the distribution.
        method: what `methods` says.
        coverage: probability that the interval holds its target.
        exact: by summation, not by simulation.
    """

    mechanism: str
    target: str
    row: str
    n: int
    confidence: float
    values: str
    method: str
    coverage: float
    exact: bool

    @property
    def claimed(self) -> float:
        """The confidence of this interval; each of k joint ones claims more than all together."""
        return self.confidence

    @property
    def margin(self) -> float:
        """Coverage beyond what is claimed, in standard errors of `RUNS` runs that cover as claimed."""
        return (self.coverage - self.confidence) / sqrt(self.confidence * (1 - self.confidence) / RUNS)


def law(of: FiniteChannel, value: float) -> Array:
    """P(y | value) of every output that occurs."""
    return np.array([np.interp(value, of.nodes, of.p[:, y]) for y in range(of.p.shape[1])])


def shares(n: int, values: dict[float, float]) -> dict[float, int]:
    """n people of these values, as nearly as whole people can be."""
    most, *others = sorted(values, key=lambda x: -values[x])
    split, left = {}, n
    for x in others:
        split[x] = min(round(n * values[x]), left)
        left -= split[x]
    return {most: left, **split}


def switches(method: Callable[[int], object], most: int) -> Iterator[int]:
    """The n on both sides of every change of `method(n)`, n ≤ `most`: a geometric search, then bisection."""
    here, kind = 1, method(1)
    while here < most:
        there = min(max(here + 1, here * 3 // 2), most)
        if (other := method(there)) != kind:
            low, high = here, there
            while high - low > 1:
                middle = (low + high) // 2
                if (found := method(middle)) == kind:
                    low = middle
                else:
                    high, other = middle, found
            yield from (low, high)
            there, kind = high, other
        here = there


def sizes(method: Callable[[int], object], most: int, usual: Iterable[int] = SIZES) -> list[int]:
    """The usual sizes and those around switches."""
    return sorted({*usual, *switches(method, most)})
