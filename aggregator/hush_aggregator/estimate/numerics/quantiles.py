"""Quantiles for intervals: normal, Student's t, and the mean of Laplace variables.

scipy is not needed at run time. Every search is Newton's method on the logarithm of a probability that is concave in
its argument (a log-concave density has a log-concave distribution function and tail). The tangent of a concave function
lies above it, so after one step all iterates stand on one side of the root and approach it monotonically: no bracket
is needed, and nothing can diverge.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import exp, log, sqrt
from statistics import NormalDist

from hush_aggregator.estimate.numerics.incomplete_beta import beta_logits
from hush_aggregator.estimate.numerics.laplace_sums import mixed_laplace_quantile

__all__ = ["laplace_mean_quantile", "normal_quantile", "student_quantile", "student_quantiles"]


@lru_cache(maxsize=256)
def normal_quantile(confidence: float) -> float:
    """The z with P(|N(0, 1)| ≤ z) = `confidence`."""
    return -_normal_quantile_below((1 - confidence) / 2)


def laplace_mean_quantile(n: int, confidence: float) -> float:
    """The h with P(|mean of n independent Laplace variables of scale 1| ≤ h) = `confidence`; exact at every n."""
    return mixed_laplace_quantile(((1.0, n),), confidence) / n


@lru_cache(maxsize=4096)
def student_quantile(freedom: int, confidence: float) -> float:
    """The t with P(|T| ≤ t) = `confidence` for Student's T with `freedom` ≥ 1 degrees of freedom f.

    P(|T| > t) = I_x(f/2, 1/2) at x = f/(f + t^2) (Abramowitz and Stegun 26.7.1), so t^2 = f·(1 - x)/x. Of the two
    tails the smaller is solved for, so that neither end of (0, 1) loses digits.
    """
    return student_quantiles([(freedom, confidence)])[0]


def student_quantiles(asked: Sequence[tuple[int, float]]) -> list[float]:
    """`student_quantile` of many degrees of freedom and confidences."""
    tails, a, b, starts, signs = [], [], [], [], []
    for freedom, confidence in asked:
        z = max(normal_quantile(confidence), confidence)  # the former is 0 where 1 - confidence is 1
        start = log(freedom) - 2 * log(z + (z**3 + z) / (4 * freedom))  # 26.7.5, two terms
        outer = confidence > 0.5  # noqa: PLR2004 - one half: where the tails are equal
        tails.append(1 - confidence if outer else confidence)
        a.append(freedom / 2 if outer else 0.5)
        b.append(0.5 if outer else freedom / 2)
        starts.append(start if outer else -start)
        signs.append(1 if outer else -1)
    logits = beta_logits(tails, a, b, starts).tolist()
    return [
        sqrt(freedom) * exp(-sign * logit / 2) for (freedom, _), sign, logit in zip(asked, signs, logits, strict=True)
    ]


def _normal_quantile_below(probability: float) -> float:
    """The z with P(N(0, 1) ≤ z) = `probability`, 0 < probability."""
    return NormalDist().inv_cdf(probability)
