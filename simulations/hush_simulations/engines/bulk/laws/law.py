# ruff: noqa: ANN401 - what is passed for a mechanism is of the kind that the module is for
"""What the bulk engine knows of one mechanism: the one contract of the modules beside this one.

A law is the same as that of `Mechanism.perturb`, with floats in place of certified integers. Each probability is the
exact one rounded once, and each coin of numpy compares it with a uniform number of 53 bits: a report of c coins is
within 2c·2^-53 of its law (total variation), and a tally of n reports within n times that; `scatter` adds its own.
Each module says what c is. That is for simulations; no device may draw so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import Estimate
from hush_simulations.engines.bulk.cells import Cells, Places
from hush_simulations.engines.bulk.scatter import Counts

__all__ = ["Held", "Law"]


@dataclass(frozen=True, slots=True)
class Held:
    """What people hold whose values were drawn with their reports.

    Args:
        sums: of the true values of each coordinate, shape (trials, coordinates).
        moved: people of whom a value is moved into the domain, shape (trials,).
    """

    sums: NDArray[np.float64]
    moved: Counts


class Law(Protocol):
    """A module of this package. Wherever a mechanism is asked for, it is of the module's own kind."""

    @property
    def WHOLE(self) -> bool:  # noqa: N802 - a constant of a module
        """Whether `sums` are all sums of a tally."""
        ...

    def sums(self, mechanism: Any, indices: Places, counts: Counts, rng: np.random.Generator, /) -> Counts:
        """The sums of the reports of so many devices at each index, drawn at once for each trial.

        Args:
            mechanism: of the task.
            indices: of the domain, shape (cells,), of a vector (cells, coordinates).
            counts: devices at each, shape (trials, cells).
            rng: the randomness.

        Returns:
            Shape (trials, sums): those of a tally, or the first of them if that is all that can be drawn so.
        """
        ...

    def levels(self, mechanism: Any, /) -> int | None:
        """G, where the law of a report is linear in the index between each of G + 1 levels; None where it is not.

        Then the index of a cell in `sums` and `of_coordinates` may be a mean.
        """
        ...

    def of_coordinates(
        self, mechanism: Any, coordinates: Sequence[Cells], people: Counts, rng: np.random.Generator, /
    ) -> tuple[Counts, Held]:
        """The sums of so many vectors of independent coordinates, and what is true of them.

        Args:
            mechanism: as above.
            coordinates: where the values of each may lie.
            people: shape (trials,).
            rng: the randomness of values and noise.

        Raises:
            TypeError: the mechanism asks for no vector.
        """
        ...

    def edge(self, mechanism: Any, /) -> tuple[int, ...]:
        """The admissible report that moves the estimate up furthest: of the first category, or of all coordinates."""
        ...

    def completed(self, mechanism: Any, n: int, sums: tuple[int, ...], /) -> tuple[int, ...]:
        """The sums of a tally, with anything possible for those that `sums` leaves out."""
        ...

    def known(self, estimate: Estimate, /) -> Estimate:
        """Of an estimate from `completed` sums what does not rest on them; `failures` names what is left out."""
        ...

    def bodies(self, mechanism: Any, indices: NDArray[np.int64], rng: np.random.Generator, /) -> NDArray[np.int64]:
        """A report for each device, shape (devices, width), from the index of each."""
        ...
