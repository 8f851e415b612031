"""`randomized_response`: the number of ones. One coin."""

import numpy as np
from numpy.typing import NDArray

from hush_common.mechanisms import RandomizedResponse
from hush_simulations.engines.bulk.cells import Places
from hush_simulations.engines.bulk.laws.whole import WHOLE, completed, known, levels, of_coordinates
from hush_simulations.engines.bulk.scatter import Counts

__all__ = ["WHOLE", "bodies", "completed", "edge", "known", "levels", "of_coordinates", "sums"]


def _ones(mechanism: RandomizedResponse) -> NDArray[np.float64]:
    return np.array([float(p) for p in mechanism.probability_of_one])


def sums(mechanism: RandomizedResponse, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
    found: Counts = rng.binomial(counts, _ones(mechanism)[indices]).sum(axis=1, keepdims=True)
    return found


def edge(_: RandomizedResponse) -> tuple[int, ...]:
    return (1,)


def bodies(mechanism: RandomizedResponse, indices: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    drawn = rng.random(len(indices))
    no, yes = _ones(mechanism)  # a one is likelier for a yes: to compare with both is quicker than to look up which
    ones: NDArray[np.bool_] = (drawn < no) | ((drawn < yes) & (indices != 0))
    return ones.astype(np.int64)[:, None]
