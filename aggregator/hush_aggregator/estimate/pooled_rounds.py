"""All rounds together: the reports of several rounds as one estimate.

What it is about: in each round the same devices are asked, and each answer has separate noise. Of R rounds with N
reports in all, the mean is that of the values over all reports; where all devices answer in every round it is the mean
of their values.

`reporters`: given the values, all N reports are independent, so that the interval of one round with N reports holds for
them. (Of sticky answers, which repeat their noise, it does not, and there is no combined estimate.)

`population`: N reports are not N people. The mean of the values over the reports is a weighted mean of people, each of
weight at most R/N. So with m = N/R, values in [0, 1] and mean μ of the distribution that people are drawn from,

    P(mean ≥ x) ≤ exp(-m·KL(x‖μ)) for x ≥ μ,

and its mirror image below μ: the moment generating function of a value is at most that of a coin of the same mean, and
its logarithm is convex and 0 at 0, so the largest possible weights, R/N, are the worst (Hoeffding 1963). The interval
for the reporters at confidence 1 - a, each end moved as far as a mean of m people may stray at confidence 1 - b, with
a + b = 1 - confidence, holds for the population at every n. a and b are chosen from n, R and epsilon, never from a
report. It is an upper bound twice, so that it covers more often than it has to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log, sqrt

from hush_aggregator.estimate import (
    POPULATION,
    REPORTERS,
    Estimate,
    PartEstimate,
)
from hush_aggregator.estimate.estimates import ByTarget, Interval, Intervals
from hush_aggregator.estimate.mechanisms import analysis_of, parts_of
from hush_aggregator.estimate.mechanisms.analysis import EstimateRequest
from hush_aggregator.estimate.numerics.guard import guarded
from hush_aggregator.estimate.numerics.quantiles import normal_quantile
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import Domain
from hush_common.mechanisms import Mechanism, Offers
from hush_common.task import Task

METHOD = "reporters-and-sampling"
"""How the interval for the population was made."""

_SPLITS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
"""Shares of 1 - confidence that the sampling of people may get."""
_STEPS = 60


@dataclass(frozen=True, slots=True)
class _Split:
    """How the probability to miss is split between noise and sampling, and how many people there are at least."""

    noise: float
    sampling: float
    rounds: int

    def population(self, interval: Interval, n: int, bounds: Interval) -> Interval:
        """The ends for the reporters, moved as far as the mean of n reports may be from that of the population."""
        lower, upper = bounds
        low, high = (min(max((end - lower) / (upper - lower), 0.0), 1.0) for end in interval)
        reach = self.rounds / n * log(2 / self.sampling)
        low, high = _stray(low, reach, 0.0), _stray(high, reach, 1.0)
        return max(lower, lower + (upper - lower) * low), min(upper, lower + (upper - lower) * high)


def combine(task: Task, tallies: Sequence[Tally], confidence: float) -> Estimate | None:
    """The estimate of all rounds together.

    Args:
        task: what was asked.
        tallies: of each round.
        confidence: coverage of each interval.

    Returns:
        None where there are not several rounds with reports, or where they repeat their noise. Its `stderr` is that
        for the reporters alone.
    """
    filled = [tally for tally in tallies if tally.n]
    if len(filled) < 2 or task.repeat == "sticky":  # noqa: PLR2004 - several
        return None
    tally = filled[0]
    for other in filled[1:]:
        tally = tally.merge(other)
    split = _split(task.randomizer, tally.n, len(filled), confidence)
    shown, wider = (_merged(task, tally, level) for level in (confidence, 1 - split.noise))
    return _joined(task.domain, shown, wider, split)


def _merged(task: Task, tally: Tally, confidence: float) -> Estimate:
    parts = parts_of(task.randomizer, tally)
    with guarded():
        return analysis_of(parts[0][0]).estimate(parts, EstimateRequest(task.domain, confidence, None))


def _split(randomizer: Mechanism | Offers, n: int, rounds: int, confidence: float) -> _Split:
    """The split whose interval would be the shortest if the noise were normal."""
    parts = randomizer.parts if isinstance(randomizer, Offers) else (randomizer,)
    noise = sqrt(max(part.worst_variance for part in parts) / n)
    missed = 1 - confidence

    def width(share: float) -> float:
        sampling = sqrt(log(2 / (share * missed)) * rounds / (2 * n))
        return noise * normal_quantile(1 - (1 - share) * missed / 2) + sampling

    share = min(_SPLITS, key=width)
    return _Split(missed * (1 - share), missed * share, rounds)


def _joined(domain: Domain, shown: Estimate, wider: Estimate, split: _Split) -> Estimate:
    parts = []
    for one, other, of in zip(shown.parts, wider.parts, domain.parts, strict=True):
        methods = {REPORTERS: one.methods.get(REPORTERS, ""), POPULATION: METHOD}
        parts.append(
            PartEstimate(
                name=one.name,
                unit=one.unit,
                n=one.n,
                mean=one.mean,
                stderr=_reporters(one.stderr),
                intervals=_both(one.intervals, other.intervals, one.n, of.axis, split),
                methods=methods,
            )
        )
    return Estimate(shown.n, tuple(parts))


def _reporters(by_target: ByTarget) -> dict[str, float]:
    return {REPORTERS: by_target[REPORTERS]} if REPORTERS in by_target else {}


def _both(shown: Intervals, wider: Intervals, n: int, bounds: Interval, split: _Split) -> dict[str, Interval]:
    found = {REPORTERS: shown[REPORTERS]} if REPORTERS in shown else {}
    if n and REPORTERS in wider:
        found[POPULATION] = split.population(wider[REPORTERS], n, bounds)
    return found


def _stray(share: float, reach: float, side: float) -> float:
    """The mean farthest from `share`, towards `side`, of which KL(share‖mean) ≤ `reach`."""
    near, far = share, side
    for _ in range(_STEPS):
        middle = (near + far) / 2
        near, far = (middle, far) if _divergence(share, middle) <= reach else (near, middle)
    return far


def _divergence(x: float, mean: float) -> float:
    """KL(x‖mean) of two coins."""
    if not 0 < mean < 1:
        return 0.0 if x == mean else inf
    yes = x * log(x / mean) if x > 0 else 0.0
    no = (1 - x) * log((1 - x) / (1 - mean)) if x < 1 else 0.0
    return yes + no
