"""One question to what the product answers for many at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.bounded_mean import Batches, Group, Sample, _fixed
from hush_aggregator.estimate.finite_channel import FiniteChannel
from hush_aggregator.estimate.intervals.anytime import mixture_deviations
from hush_aggregator.estimate.intervals.betting import betting_limits
from hush_aggregator.estimate.intervals.chernoff import Sizes, bands, chernoff_rates
from hush_aggregator.estimate.intervals.student_score import score_of
from hush_aggregator.estimate.numerics.laplace_sums import mixed_laplace_quantile
from hush_aggregator.estimate.numerics.quantiles import student_quantile


def mixture_deviation(rates: NDArray[np.float64], exponents: NDArray[np.float64], confidence: float) -> float:
    return float(mixture_deviations(rates[None], exponents[None], [confidence])[0])


def betting_interval(
    reports: Sequence[tuple[FiniteChannel, tuple[int, ...]]], confidence: float
) -> tuple[float, float]:
    return betting_limits([(tuple(reports), confidence)])[0]


def chernoffs(asked: Sequence[tuple[Sizes, float]]) -> list[tuple[float, float]]:
    return [(above, below) for above, below, _, _ in chernoff_rates(asked)]


def chernoff(sizes: Sizes, confidence: float) -> tuple[float, float]:
    return chernoffs([(sizes, confidence)])[0]


def band(sizes: Sizes, confidence: float, *, sampling: bool) -> tuple[float, float]:
    return bands([(sizes, confidence, sampling)])[0]


def score_interval(
    channel: FiniteChannel, n: int, center: float, variance: float, confidence: float, *, sampling: float
) -> tuple[float, float]:
    return score_of(channel, n, student_quantile(n - 1, confidence), sampling=sampling)(center, variance)


def laplace_mean_quantile(n: int, confidence: float) -> float:
    """Return the h with P(|mean of n Laplace variables of scale 1| ≤ h) = `confidence`."""
    return mixed_laplace_quantile(((1.0, n),), confidence) / n


def ends(
    groups: Sequence[Group], confidence: float, target: str, *, enrolled: int | None = None
) -> tuple[float, float]:
    """Return the interval for a target, neither clipped nor widened by the rounding of values to a grid."""
    sample = Sample(groups)
    _, ask = _fixed(sample.sizes, confidence, Batches(), sampled=False, enrolled=enrolled)[target]
    low, high = ask(sample)()
    return float(low), float(high)
