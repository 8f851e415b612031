"""`table`: how often each output was reported."""

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
from hush_common.mechanisms import Channel

__all__ = ["columns", "estimate", "fold", "in_words", "possible", "said", "spread", "worst"]


def columns(mechanism: Channel) -> int:
    return len(mechanism.positions)


def fold(mechanism: Channel, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    return occurrences(bodies[:, 0], columns(mechanism))


def worst(mechanism: Channel, people: int, assumed: Assumed, _: int) -> tuple[float, tuple[int, ...]]:
    return by_output(mechanism, people, assumed, columns(mechanism))
