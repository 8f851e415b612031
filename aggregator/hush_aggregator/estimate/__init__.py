"""Estimate: from the tally of one round to an unbiased value with error bars.

Two targets, two questions. `reporters`: what is the mean of those who answered? `population`: what is the mean of the
people they are a sample of? For numbers with Laplace noise also `enrolled`, between the two: what is the mean of all
who were asked? Those intervals are for one look at a fixed n: looking again and again until it pleases voids them. The
`anytime` interval may be watched; its method says which of the two it is about. `anytime_population`, of numbers with
Laplace noise, may be watched too.

All arithmetic is guarded: an interval whose making overflows, or fails in another way, is absent, and `failures` names
it.
"""

from dataclasses import replace

from hush_aggregator.estimate.diagnostics import manski, replacement_bias
from hush_aggregator.estimate.estimates import (
    ANYTIME,
    ANYTIME_POPULATION,
    ENROLLED,
    POPULATION,
    REPORTERS,
    Estimate,
    PartEstimate,
    PooledMean,
    WinsorisedMean,
)
from hush_aggregator.estimate.mechanisms import analysis_of, check, parts_of
from hush_aggregator.estimate.mechanisms.analysis import EstimateRequest
from hush_aggregator.estimate.numerics.guard import guarded
from hush_aggregator.tally import Tally
from hush_common.domain import DomainPart
from hush_common.task import Task

__all__ = [
    "ANYTIME",
    "ANYTIME_POPULATION",
    "ENROLLED",
    "POPULATION",
    "REPORTERS",
    "Estimate",
    "PartEstimate",
    "PooledMean",
    "WinsorisedMean",
    "estimate",
]


def estimate(task: Task, tally: Tally, confidence: float) -> Estimate:
    """The estimate of one round of `task`.

    Args:
        task: what was asked; its mechanism is taken at the epsilon of one round.
        tally: the reports of that round.
        confidence: coverage of each interval, in (0, 1).

    Raises:
        ValueError: `confidence` outside (0, 1), or a tally that this task cannot have given.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1, for example 0.95")
    if tally.n == 0:
        return Estimate(0)
    check(task.randomizer, tally)
    with guarded():
        return _with_bounds_of_bias(_dispatch(task, tally, confidence), task)


def _with_bounds_of_bias(made: Estimate, task: Task) -> Estimate:
    """Add to each part what reporters without a value, and the silent ones, may have done to its mean."""

    def bounded(part: PartEstimate, of: DomainPart) -> PartEstimate:
        if not part.n:
            return part
        reporters = part.intervals.get(REPORTERS)
        silent = None
        if task.enrolled is not None and reporters is not None:
            silent = manski(made.n, task.enrolled, reporters, of.lower, of.upper)
        return replace(part, unit=of.unit, replacement_bias=replacement_bias(of), manski=silent)

    return replace(made, parts=tuple(map(bounded, made.parts, task.domain.parts)))


def _dispatch(task: Task, tally: Tally, confidence: float) -> Estimate:
    parts = parts_of(task.randomizer, tally)
    return analysis_of(parts[0][0]).estimate(parts, EstimateRequest(task.domain, confidence, task.enrolled))
