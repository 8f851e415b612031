"""Estimate: from the tally of one round to an unbiased value with error bars.

Two targets, two questions. `reporters`: what is the mean of those who answered? `population`: what is the mean of the
people they are a sample of? For numbers with Laplace noise also `enrolled`, between the two: what is the mean of all
who were asked? Those intervals are for one look at a fixed n: looking again and again until it pleases voids them. The
`anytime` interval may be watched; its method says which of the two it is about. `anytime_population`, of numbers with
Laplace noise, may be watched too.

All arithmetic is guarded: an interval whose making overflows, or fails in another way, is absent, and `failures` names
it.
"""

from collections.abc import Iterator, Sequence

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
from hush_aggregator.estimate.mechanisms import check, estimate_many, parts_of
from hush_aggregator.estimate.mechanisms.analysis import EstimateRequest
from hush_aggregator.estimate.numerics.guard import guarded
from hush_aggregator.estimate.tally import Tally
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
    "estimate_tallies",
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
    (made,) = estimate_tallies(task, [tally], confidence)
    return made


def estimate_tallies(task: Task, tallies: Sequence[Tally], confidence: float) -> list[Estimate]:
    """The estimates of several tallies of one task, as of the trials of a sweep: what they share is computed once.

    Each is as `estimate` makes it, but for the rounding of sums. Errors are those of `estimate`.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1, for example 0.95")
    counted = [tally for tally in tallies if tally.n]
    check(task.randomizer, counted)
    if not counted:
        return [Estimate(0)] * len(tallies)
    samples = [parts_of(task.randomizer, tally) for tally in counted]
    with guarded():
        made = estimate_many(samples, EstimateRequest(task.domain, confidence, task.enrolled))
        found = iter(_with_bounds_of_bias(made, task))
    return [next(found) if tally.n else Estimate(0) for tally in tallies]


def _with_bounds_of_bias(every: Sequence[Estimate], task: Task) -> Iterator[Estimate]:
    """Add to each part what reporters without a value, and the silent ones, may have done to its mean."""
    domain_parts = [(part, replacement_bias(part)) for part in task.domain.parts]
    for made in every:
        pairs = zip(made.parts, domain_parts, strict=True)
        parts = tuple([_bounded(part, of, bias, made.n, task.enrolled) for part, (of, bias) in pairs])
        yield Estimate(made.n, parts, made.monitor, made.winsorised, made.pooled, made.consistent, made.failures)


def _bounded(part: PartEstimate, of: DomainPart, bias: dict[str, float], n: int, enrolled: int | None) -> PartEstimate:
    """One part; by field, because `replace` takes twice as long, and a sweep has tens of thousands."""
    if not part.n:
        return part
    reporters, silent = part.intervals.get(REPORTERS), None
    if enrolled is not None and reporters is not None:
        silent = manski(n, enrolled, reporters, of.lower, of.upper)
    return PartEstimate(
        name=part.name,
        unit=of.unit,
        n=part.n,
        mean=part.mean,
        stderr=part.stderr,
        stderr_plug_in=part.stderr_plug_in,
        intervals=part.intervals,
        methods=part.methods,
        joint_intervals=part.joint_intervals,
        joint_methods=part.joint_methods,
        worst_case_bias=part.worst_case_bias,
        replacement_bias=bias,
        manski=silent,
        failures=part.failures,
    )
