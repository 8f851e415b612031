"""Estimate: from the tally of one round to an unbiased value with error bars.

Two targets, two questions. `reporters`: what is the mean of those who answered? `population`: what is the mean of
the people they are a sample of? Every interval is for one look at a fixed n: looking again and again until it
pleases voids it.
"""

from hush_aggregator.estimate import bits, laplace
from hush_aggregator.estimate.result import POPULATION, REPORTERS, Estimate
from hush_aggregator.tally import Tally
from hush_common.domain import NumberDomain
from hush_common.mechanisms import RandomizedResponse
from hush_common.mechanisms.build import build
from hush_common.task import Task

__all__ = ["POPULATION", "REPORTERS", "Estimate", "estimate"]


def estimate(task: Task, tally: Tally, confidence: float) -> Estimate:
    """The estimate of one round of `task`, for both targets.

    Args:
        task: what was asked; its mechanism is taken at the epsilon of one round.
        tally: the reports of that round.
        confidence: coverage of each interval, in (0, 1).

    Raises:
        ValueError: `confidence` outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1, for example 0.95")
    if tally.n == 0:
        return Estimate(0)
    mechanism = build(task)
    if isinstance(mechanism, RandomizedResponse):
        return bits.estimate(mechanism, tally, confidence)
    if not isinstance(task.domain, NumberDomain):
        raise TypeError(f"laplace reports need the bounds of a number, not {task.domain}")
    return laplace.estimate(mechanism, task.domain, tally, confidence)
