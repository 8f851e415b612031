"""What reports say of the values behind them: the unbiased numbers that the aggregator would average."""

import numpy as np
from numpy.typing import NDArray

from hush import Task
from hush_aggregator.estimate.mechanisms import analysis_of
from hush_common.domain import BitDomain, NumberDomain
from hush_simulations.engines.experiment import offers_of


def decoded(task: Task, bodies: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each report as an unbiased estimate of its device's value: noisy, in the unit of the task, never clipped."""
    assert isinstance(task.domain, NumberDomain | BitDomain)
    parts, offers, rest = offers_of(task, bodies)
    values = np.empty(len(bodies))
    for offer, part in enumerate(parts):
        chosen = offers == offer
        values[chosen] = analysis_of(part).said(part, task.domain, rest[chosen], 0)
    return values
