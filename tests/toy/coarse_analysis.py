"""The same mechanism for an aggregator: how often either bound was reported."""

import numpy as np
from numpy.typing import NDArray
from toy.coarse import Coarse

from hush_aggregator.estimate.mechanisms.bounded import (
    by_output,
    estimate,
    in_words,
    occurrences,
    possible,
    said,
    spread,
)
from hush_aggregator.estimate.worst_case import Assumed

__all__ = ["columns", "estimate", "fold", "in_words", "possible", "said", "spread", "worst"]


def columns(_: Coarse) -> int:
    return 2


def fold(_: Coarse, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    return occurrences(bodies[:, 0], 2)


def worst(mechanism: Coarse, people: int, assumed: Assumed, _: int) -> tuple[float, tuple[int, ...]]:
    return by_output(mechanism, people, assumed, 2)
