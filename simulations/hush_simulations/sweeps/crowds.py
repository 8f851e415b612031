"""Crowds: the cells of the people of a sweep, made once for all its epsilons, mechanisms and sizes."""

from collections.abc import Hashable
from functools import lru_cache
from typing import cast

from hush_common.domain import Domain, NumberDomain, VectorDomain
from hush_simulations.engines.bulk.cells import Cells, cells_of, coordinates_of
from hush_simulations.scenarios.panel import STEADY, Panel
from hush_simulations.scenarios.population import Independent, Population

__all__ = ["GROUPS", "crowd_of"]

GROUPS = 1024
"""Different values of a number, at most."""


def crowd_of(
    domain: Domain, population: Population, panel: Panel = STEADY, rounds: int = 1
) -> Cells | tuple[Cells, ...]:
    """The cells of a population, or of each coordinate where these know nothing of each other.

    Numbers have at most `GROUPS` different values (`Cells.coarse`), which have the mean of the scenario's: what is left
    out of their spread is below that of rounding them to a thousandth of the range, and nothing is of the truth.
    """
    return _crowd_of(domain, cast("Hashable", population), panel, rounds)


@lru_cache(maxsize=8)
def _crowd_of(domain: Domain, hashable: Hashable, panel: Panel, rounds: int) -> Cells | tuple[Cells, ...]:
    population = cast("Population", hashable)
    if isinstance(population, Independent) and isinstance(domain, VectorDomain):
        return tuple(cells.coarse(GROUPS) for cells in coordinates_of(domain, population))
    cells = cells_of(domain, population, panel, rounds)
    return cells.coarse(GROUPS) if isinstance(domain, NumberDomain) else cells
