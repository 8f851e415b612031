"""`multilevel`: how often each level 0 … G was reported."""

import numpy as np
from numpy.typing import NDArray

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
from hush_common.mechanisms import Multilevel

__all__ = ["columns", "estimate", "fold", "in_words", "possible", "said", "spread", "worst"]


def columns(mechanism: Multilevel) -> int:
    return mechanism.levels + 1


def fold(mechanism: Multilevel, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    return occurrences(bodies[:, 0], columns(mechanism))


def worst(mechanism: Multilevel, people: int, assumed: Assumed, _: int) -> tuple[float, tuple[int, ...]]:
    return by_output(mechanism, people, assumed, columns(mechanism))
