"""The interface of the estimators for the tests of their laws, and single questions to what answers many at once.

A test that needs an estimator below `estimate` takes it from here, so that a move breaks this file alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.bounded_mean import Group, is_normal, rule
from hush_aggregator.estimate.bounded_mean import estimate as bounded
from hush_aggregator.estimate.finite_channel import RATES, FiniteChannel, Values, finite
from hush_aggregator.estimate.intervals.anytime import mixture_deviations
from hush_aggregator.estimate.intervals.betting import betting_limits
from hush_aggregator.estimate.intervals.chernoff import Sizes, bands, chernoff_rates
from hush_aggregator.estimate.intervals.student_score import score_of
from hush_aggregator.estimate.numerics.laplace_sums import mixed_laplace_quantile
from hush_aggregator.estimate.numerics.quantiles import student_quantile
from hush_aggregator.estimate.proportions import pooled_proportions, proportions
from hush_aggregator.estimate.units import Units

__all__ = [
    "RATES", "FiniteChannel", "Group", "Units", "Values", "band", "betting_interval", "bounded", "chernoff",
    "chernoffs", "ends", "finite", "is_normal", "laplace_mean_quantile", "mixture_deviation", "pooled_proportions",
    "proportions", "rule", "score_interval", "unclipped",
]  # fmt: skip


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


@contextmanager
def unclipped() -> Iterator[None]:
    """Let estimators give both ends of an interval of a number, wherever they lie."""

    def around(self: Units, _: Fraction, low: float | Fraction, high: float | Fraction) -> tuple[float, float]:
        return self.value(Fraction(low)), self.value(Fraction(high))

    def arms(
        self: Units, under: int, below: float, above: float, parts: int = 1
    ) -> Callable[[int], tuple[float, float]]:
        ends = -Fraction(below), Fraction(above)

        def interval(center: int) -> tuple[float, float]:
            low, high = (self.value(Fraction(center, under) + end, parts) for end in ends)
            return low, high

        return interval

    with patch.object(Units, "around", around), patch.object(Units, "arms", arms):
        yield


def ends(groups: Sequence[Group], confidence: float, target: str) -> tuple[float, float]:
    """Return the interval for a target, neither clipped nor widened by the rounding of values to a grid."""
    with unclipped():
        return bounded(groups, Units(), confidence).intervals[target]
