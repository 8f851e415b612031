"""How much of a lognormal distribution lies in each of many cells, and the mean of what lies there.

The logarithm is normal, so that a cell has the share of that of its logarithms (`normal_cells`), and what lies above a
point has the mean times P(Z > z - sigma). In a narrow cell the mean is the middle, moved along the slope of the density
by a twelfth of the square of its width.
"""

import math

import numpy as np
from numpy.typing import NDArray

from hush_simulations.engines.bulk.normal_cells import NARROW, REACH, between, densities
from hush_simulations.scenarios.shapes import Lognormal

__all__ = ["edges_above", "edges_below", "moments_between"]

Floats = NDArray[np.float64]

_LARGEST = 709.0  # the logarithm of about the largest float


def edges_above(population: Lognormal, bound: float, cells: int) -> Floats:
    """Edges of so many cells above a bound, as far as there is anybody: of equal ratios."""
    start = _deviations(population, np.array([bound]))[0]
    logarithms = population.sigma * np.linspace(max(start, -REACH), max(start + 1, REACH), cells + 1)[1:]
    ends = np.exp(np.minimum(logarithms + math.log(population.median), _LARGEST))
    return np.concatenate(((bound,), np.maximum(ends, bound)))


def edges_below(population: Lognormal, bound: float, cells: int) -> Floats:
    """Edges of at most so many cells below a bound; nobody is below 0."""
    if bound <= 0:
        return np.array([bound - 1.0, bound])
    end = _deviations(population, np.array([bound]))[0]
    starts = np.exp(population.sigma * np.linspace(min(end - 1, -REACH), min(end, REACH), cells)[:-1])
    return np.concatenate(((0.0,), np.minimum(population.median * starts, bound), (bound,)))


def moments_between(population: Lognormal, edges: Floats) -> tuple[Floats, Floats]:
    """As of normal ones: the share of the people between each edge and the next, and the mean of their values."""
    z = _deviations(population, edges)
    left, right = z[:-1], z[1:]
    middles, widths = (edges[:-1] + edges[1:]) / 2, edges[1:] - edges[:-1]
    with np.errstate(invalid="ignore"):  # from -inf to -inf
        wide = ~(right - left < NARROW)
    some = ~wide & (np.abs(left) < REACH)
    share, mean = np.zeros(len(left)), middles.copy()
    center = (left[some] + right[some]) / 2
    share[some] = densities(center, right[some] - left[some])
    mean[some] -= widths[some] ** 2 / 12 * (1 + center / population.sigma) / middles[some]
    share[wide] = between(left[wide].tolist(), right[wide].tolist())
    above = between((left[wide] - population.sigma).tolist(), (right[wide] - population.sigma).tolist())
    held = population.mean * np.array(above)
    mean[wide] = np.divide(held, share[wide], out=middles[wide], where=share[wide] > 0)
    return share, np.clip(mean, edges[:-1], edges[1:])


def _deviations(population: Lognormal, edges: Floats) -> Floats:
    """Of the logarithms of some edges; -inf at 0 and below."""
    found = np.full(len(edges), -math.inf)
    above = edges > 0
    found[above] = np.log(edges[above] / population.median) / population.sigma
    return found
