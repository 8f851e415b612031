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
    CategoryEstimate,
    CoordinateEstimate,
    Estimate,
    Interval,
    PooledMean,
    WinsorisedMean,
)
from hush_aggregator.estimate.mechanisms import Asked, analysis_of
from hush_aggregator.estimate.numerics.guard import guarded
from hush_aggregator.estimate.tallies import check, parts_of
from hush_aggregator.tally import Tally
from hush_common.domain import Domain, NumberDomain, VectorDomain
from hush_common.task import Task

__all__ = [
    "ANYTIME",
    "ANYTIME_POPULATION",
    "ENROLLED",
    "POPULATION",
    "REPORTERS",
    "CategoryEstimate",
    "CoordinateEstimate",
    "Estimate",
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
        made = _with_replacement(_dispatch(task, tally, confidence), task.domain)
        return made if task.enrolled is None else _with_silence(made, task.domain, task.enrolled)


def _with_replacement(made: Estimate, domain: Domain) -> Estimate:
    """Add what reporters without a value may have done to the mean, the frequencies, or each coordinate."""
    if not isinstance(domain, VectorDomain):
        return replace(made, replacement_bias=replacement_bias(domain))
    biased = [
        replace(one, replacement_bias=replacement_bias(coordinate)) if one.n else one
        for one, coordinate in zip(made.coordinates, domain.coordinates, strict=True)
    ]
    return replace(made, coordinates=tuple(biased))


def _with_silence(made: Estimate, domain: Domain, enrolled: int) -> Estimate:
    """Add the Manski bounds of the mean, of each frequency or of each coordinate, where the reporters have an interval.

    They may all hold either bound of the domain who are silent, whichever coordinates the others drew.
    """

    def bounds(one: Estimate | CategoryEstimate | CoordinateEstimate, values: Domain) -> Interval | None:
        interval = one.intervals.get(REPORTERS)
        lower, upper = (values.lower, values.upper) if isinstance(values, NumberDomain) else (0.0, 1.0)
        return None if interval is None else manski(made.n, enrolled, interval, lower, upper)

    if isinstance(domain, VectorDomain):
        pairs = zip(made.coordinates, domain.coordinates, strict=True)
        return replace(made, coordinates=tuple(replace(one, manski=bounds(one, of)) for one, of in pairs))
    return replace(
        made,
        manski=bounds(made, domain),
        categories=tuple(replace(one, manski=bounds(one, domain)) for one in made.categories),
    )


def _dispatch(task: Task, tally: Tally, confidence: float) -> Estimate:
    parts = parts_of(task.randomizer, tally)
    return analysis_of(parts[0][0]).estimate(parts, Asked(task.domain, confidence, task.enrolled))
