"""`vector`: for each coordinate how often each level is reported.

A device draws its coordinates whatever its values are: `named` says how many of those in a cell draw each, and with
these numbers each coordinate is a number of its own (`finite`). As many coins as coordinates, and a few more.

Where the coordinates know nothing of each other, the values of those who draw one, and of those who do not, are counted
for each coordinate by itself: given who draws what, nothing else connects them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hush_common.mechanisms import Vector
from hush_simulations.engines.bulk.cells import Cells, Places
from hush_simulations.engines.bulk.laws import finite
from hush_simulations.engines.bulk.laws.law import Held
from hush_simulations.engines.bulk.laws.whole import WHOLE, completed, known
from hush_simulations.engines.bulk.scatter import Counts
from hush_simulations.engines.bulk.subsets import named

__all__ = ["WHOLE", "bodies", "completed", "edge", "known", "levels", "of_coordinates", "sums"]


def _drawing(mechanism: Vector, counts: Counts, rng: np.random.Generator) -> Counts:
    """How many of so many devices draw each coordinate; shape of `counts`, and one more axis for the coordinates."""
    free = counts.reshape(-1)
    none = np.zeros((len(free), mechanism.coordinates), dtype=np.int64)
    return named(free, none, mechanism.sampled, rng).reshape(*counts.shape, mechanism.coordinates)


def sums(mechanism: Vector, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
    drawn = _drawing(mechanism, counts, rng)
    places = range(mechanism.coordinates)
    return np.concatenate([finite.sums(mechanism.part, indices[:, c], drawn[:, :, c], rng) for c in places], axis=1)


def levels(mechanism: Vector) -> int:
    return mechanism.levels


def of_coordinates(
    mechanism: Vector, coordinates: Sequence[Cells], people: Counts, rng: np.random.Generator
) -> tuple[Counts, Held]:
    drawn = _drawing(mechanism, people, rng)
    sums, values, moved = [], [], np.zeros_like(people)
    for place, cells in enumerate(coordinates):
        asking, asked = cells.drawn(drawn[:, place], rng)
        resting, others = cells.drawn(people - drawn[:, place], rng)
        sums.append(finite.sums(mechanism.part, asking.indices, asked, rng))
        values.append((asked * asking.values).sum(axis=1) + (others * resting.values).sum(axis=1))
        moved = _either(moved, asked @ asking.moved + others @ resting.moved, people, rng)
    return np.concatenate(sums, axis=1), Held(np.stack(values, axis=1), moved)


def _either(some: Counts, others: Counts, people: Counts, rng: np.random.Generator) -> Counts:
    """How many people are among some or among others, who know nothing of each other."""
    both = np.minimum(some, others)
    random = both > 0
    both[random] = rng.hypergeometric(some[random], (people - some)[random], others[random])
    return some + others - both


def edge(mechanism: Vector) -> tuple[int, ...]:
    return tuple(number for c in range(mechanism.sampled) for number in (c, mechanism.levels))


def bodies(mechanism: Vector, indices: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    keys = rng.random((len(indices), mechanism.coordinates))
    drawn = np.sort(np.argsort(keys, axis=1)[:, : mechanism.sampled], axis=1)
    values = np.take_along_axis(indices, drawn, axis=1)
    levels = finite.bodies(mechanism.part, values.reshape(-1), rng).reshape(drawn.shape)
    found: NDArray[np.int64] = np.stack((drawn, levels), axis=2).reshape(len(indices), -1)
    return found
