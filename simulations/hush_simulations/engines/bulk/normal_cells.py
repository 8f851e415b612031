"""How much of a mixture of normal distributions lies in each of many cells, and the mean of what lies there.

Where a cell is narrow (below a thousandth of a deviation) its share is the density in its middle times its width, with
the next term of the series; what is left out is below 2e-14·(1 + z^4) of it. Elsewhere it is a difference of two
complementary error functions, taken on the side where they are small.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hush_simulations.scenarios.population import Mixture, Normal

__all__ = ["NARROW", "REACH", "between", "densities", "moments_between", "reach"]

Floats = NDArray[np.float64]

NARROW = 1e-3
"""Deviations: cells that are narrower have a share that is their density times their width."""

REACH = 39.0
"""Deviations: beyond, nothing is left that a float could hold."""


def reach(mixture: Mixture) -> tuple[float, float]:
    """Two numbers that all values lie between, but for a share of 1e-300."""
    parts = [part for part in mixture.parts if part.weight > 0]
    return min(p.mean - REACH * p.sd for p in parts), max(p.mean + REACH * p.sd for p in parts)


def moments_between(mixture: Mixture, edges: Floats) -> tuple[Floats, Floats]:
    """The share of the people between each edge and the next, and the mean of their values.

    Args:
        mixture: their distribution.
        edges: ascending, one more than cells; a group of deviation 0 belongs to the cell that begins with it.
    """
    share, moment = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for weight, part in zip(mixture.shares, mixture.parts, strict=True):
        one, mean = _of_one(part, edges)
        share += weight * one
        moment += weight * one * mean
    middles = (edges[:-1] + edges[1:]) / 2
    return share, np.clip(np.divide(moment, share, out=middles, where=share > 0), edges[:-1], edges[1:])


def _of_one(part: Normal, edges: Floats) -> tuple[Floats, Floats]:
    share, mean = np.zeros(len(edges) - 1), (edges[:-1] + edges[1:]) / 2
    if part.sd == 0:
        place = int(np.searchsorted(edges, part.mean, side="right")) - 1
        if 0 <= place < len(share):
            share[place], mean[place] = 1.0, part.mean
        return share, mean
    z = (edges - part.mean) / part.sd
    first, last = np.searchsorted(z, (-REACH, REACH))
    some = slice(max(int(first) - 1, 0), min(int(last) + 1, len(share)))
    left, right = z[:-1][some], z[1:][some]
    if float((right - left).max(initial=0.0)) < NARROW:
        middle, width = (left + right) / 2, right - left
        share[some] = densities(middle, width)
        mean[some] = part.mean + part.sd * (middle - middle * width**2 / 12)
        return share, mean
    share[some] = between(left.tolist(), right.tolist())
    ends = [np.exp(-(side**2) / 2) / math.sqrt(2 * math.pi) for side in (left, right)]
    inner = np.divide(ends[0] - ends[1], share[some], out=(left + right) / 2, where=share[some] > 0)
    mean[some] = part.mean + part.sd * inner
    return share, mean


def densities(middle: Floats, width: Floats) -> Floats:
    """How much of a standard normal distribution lies in narrow cells."""
    density = np.exp(-(middle**2) / 2) / math.sqrt(2 * math.pi)
    share: Floats = density * width * (1 + width**2 * (middle**2 - 1) / 24)
    return share


def between(left: Sequence[float], right: Sequence[float]) -> list[float]:
    """How much of it lies between two numbers each."""
    root = math.sqrt(2)
    return [
        (math.erfc(a / root) - math.erfc(b / root)) / 2 if a > 0 else (math.erfc(-b / root) - math.erfc(-a / root)) / 2
        for a, b in zip(left, right, strict=True)
    ]
