"""Fold: reduce a batch of reports to sufficient statistics, as exact integers.

Which sums they are is the business of each mechanism (`hush_aggregator.estimate.mechanisms`), under several epsilons of
each offer. Each is a sum over reports, so tallies of shards add up. From these sums alone every number of an estimate
is made.
"""

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.tallies import sums
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Mechanism, Offers

__all__ = ["fold"]


def fold(randomizer: Mechanism | Offers, bodies: NDArray[np.int64]) -> Tally:
    """The tally of a batch.

    Args:
        randomizer: of the task.
        bodies: admitted bodies, shape (count, width).
    """
    if len(bodies) == 0:
        return Tally()
    return Tally(len(bodies), sums(randomizer, bodies))
