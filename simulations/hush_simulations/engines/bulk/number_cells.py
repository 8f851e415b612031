"""Where the numbers of a population lie: cells that tell the index of a device, and the truth.

There is one for each grid point, cut where values begin to be beyond a bound or to be withheld, and many beyond bounds.
Values that drift move by whole steps, so that a cell stays within one grid point in every round. For that the grid goes
on beyond a bound as far as values come in from there, and is cut where they pass it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import NumberDomain
from hush_simulations.engines.bulk import lognormal_cells, normal_cells
from hush_simulations.scenarios.population import Mixture, Numbers
from hush_simulations.scenarios.shapes import Lognormal, Points

__all__ = ["BEYOND", "number_cells", "on_grid"]

Floats = NDArray[np.float64]

BEYOND = 1 << 14
"""Cells beyond each bound."""

_FINEST = 1e-9  # of the range: cells beyond a bound need not be narrower


def number_cells(
    domain: NumberDomain, population: Numbers, cuts: Sequence[float], shifts: Sequence[int]
) -> tuple[Floats, Floats]:
    """Shares and means of the cells in which somebody may be, in ascending order.

    Args:
        domain: of the task.
        population: of the first round.
        cuts: numbers that are to be between two cells.
        shifts: by how many steps the values of each round are above those of the first.
    """
    if isinstance(population, Points):
        return population.shares, np.array(population.values)
    step = float(domain.step)
    first, last = -max(*shifts, 0), domain.steps - min(*shifts, 0)
    points = domain.lower + step * np.arange(first, last + 1)
    bounds = [bound - step * shift for bound in (domain.lower, domain.upper) for shift in shifts]
    inner = _cut((points[:-1] + points[1:]) / 2, (*bounds, points[0], points[-1]))
    parts = [_below(domain, population, points[0]), inner, _above(domain, population, points[-1])]
    found = [_moments(population, _cut(edges, _inside(cuts, edges))) for edges in parts]
    shares, means = (np.concatenate([part[place] for part in found]) for place in (0, 1))
    used = shares > 0
    return shares[used], means[used]


def on_grid(domain: NumberDomain, values: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The index of each value, and whether a device moves it into the domain. NaN has any index."""
    beyond = (values < domain.lower) | (values > domain.upper)
    steps = np.rint((np.clip(values, domain.lower, domain.upper) - domain.lower) * float(1 / domain.step))
    return np.clip(np.nan_to_num(steps), 0, domain.steps).astype(np.int64), beyond


def _cut(edges: Floats, cuts: Sequence[float]) -> Floats:
    return np.unique(np.concatenate((edges, cuts))) if len(cuts) else edges


def _inside(cuts: Sequence[float], edges: Floats) -> list[float]:
    return [cut for cut in cuts if edges[0] < cut < edges[-1]]


def _below(domain: NumberDomain, population: Mixture | Lognormal, bound: float) -> Floats:
    if isinstance(population, Lognormal):
        return lognormal_cells.edges_below(population, bound, BEYOND)
    least = _FINEST * (domain.upper - domain.lower)
    return np.linspace(min(normal_cells.reach(population)[0], bound - least), bound, BEYOND + 1)


def _above(domain: NumberDomain, population: Mixture | Lognormal, bound: float) -> Floats:
    if isinstance(population, Lognormal):
        return lognormal_cells.edges_above(population, bound, BEYOND)
    least = _FINEST * (domain.upper - domain.lower)
    return np.linspace(bound, max(normal_cells.reach(population)[1], bound + least), BEYOND + 1)


def _moments(population: Mixture | Lognormal, edges: Floats) -> tuple[Floats, Floats]:
    if isinstance(population, Lognormal):
        return lognormal_cells.moments_between(population, edges)
    return normal_cells.moments_between(population, edges)
