"""Quantiles that error bars are made of: normal, Student's t, and the sum of Laplace variables; `beta` has its own.

scipy is not needed at run time. Every search is Newton's method on the logarithm of a probability that is concave in
its argument (a log-concave density has a log-concave distribution function and tail). The tangent of a concave function
lies above it, so after one step all iterates stand on one side of the root and approach it monotonically: no bracket
is needed, and nothing can diverge.
"""

from functools import lru_cache
from math import exp, inf, lgamma, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.beta import beta_logits

__all__ = [
    "LAPLACE_SUM_LIMIT",
    "laplace_mean_quantile",
    "laplace_sum_tail",
    "normal_quantile",
    "student_quantile",
]

LAPLACE_SUM_LIMIT = 1000
"""Up to this many reports the quantile of their summed noise is exact; above, it is Cornish-Fisher's."""

_NEWTON_STEPS = 100  # 4 to 8 are taken
_CONVERGED = 1e-13  # relative step: the error after it is of the order of its square


def normal_quantile(confidence: float) -> float:
    """The z with P(|N(0, 1)| ≤ z) = `confidence`."""
    return -_normal_quantile_below((1 - confidence) / 2)


@lru_cache(maxsize=4096)
def laplace_mean_quantile(n: int, confidence: float) -> float:
    """The h with P(|mean of n independent Laplace variables of scale 1| ≤ h) = `confidence`.

    - n ≤ 1000: exact, from `laplace_sum_tail`, to 1e-10 relative or 1e-13 absolute.
    - n > 1000: Cornish-Fisher, h = sqrt(2/n)·(z + (z^3 - 3z)/(8n)): skewness 0, excess kurtosis 3/n (Abramowitz and
      Stegun 26.2.49). At n = 1001 it is off by less than 3e-6 of h up to confidence 0.999, and by 4e-5 at 1 - 1e-9.
    """
    if n <= LAPLACE_SUM_LIMIT:
        return _laplace_sum_quantile(n, confidence) / n
    z = normal_quantile(confidence)
    return sqrt(2 / n) * (z + (z**3 - 3 * z) / (8 * n))


def _laplace_sum_quantile(n: int, confidence: float) -> float:
    """The s ≥ 0 with P(S > s) = (1 - confidence)/2; log P(S > s) is concave, because Laplace's density is."""
    target = log((1 - confidence) / 2)
    s = normal_quantile(confidence) * sqrt(2 * n)
    for _ in range(_NEWTON_STEPS):
        log_tail, log_density = _laplace_sum(n, s)
        step = (log_tail - target) * exp(log_tail - log_density)
        s = max(s + step, 0.0)
        if abs(step) <= _CONVERGED * s or s == 0:
            break
    return s


def laplace_sum_tail(n: int, s: float) -> float:
    """P(S > s), s ≥ 0, for the sum S of n independent Laplace variables of scale 1; relative error below 1e-10.

    S = G - G' with independent Gamma(n) variables, and P(G > x) = P(Poisson(x) ≤ n - 1). A Poisson variable of mean
    G' + s is one of mean s plus one of mean G', and the latter is negative binomial NB(n, 1/2). Hence

        P(S > s) = P(Poisson(s) + NB(n, 1/2) ≤ n - 1),    density at s = P(Poisson(s) + NB(n, 1/2) = n - 1):

    sums of positive terms only, taken in logarithms, so that nothing cancels and nothing underflows.
    """
    return exp(_laplace_sum(n, s)[0])


def _laplace_sum(n: int, s: float) -> tuple[float, float]:
    """Logarithms of P(S > s) and of the density of S at s."""
    log_factorial, log_terms, log_sums = _negative_binomial(n)
    j = np.arange(n)
    log_poisson = j * log(s) - s - log_factorial[:n] if s > 0 else np.where(j == 0, 0.0, -inf)
    return _log_sum(log_poisson + log_sums[::-1]), _log_sum(log_poisson + log_terms[::-1])


@lru_cache(maxsize=64)
def _negative_binomial(n: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Logarithms of k! for k < 2n, of P(NB = i) = C(n+i-1, i) 2^-(n+i) and of P(NB ≤ i) for i < n."""
    log_factorial = np.array([lgamma(k + 1) for k in range(2 * n)])
    i = np.arange(n)
    log_terms = log_factorial[n - 1 + i] - log_factorial[i] - log_factorial[n - 1] - (n + i) * log(2)
    return log_factorial, log_terms, np.logaddexp.accumulate(log_terms)


def _log_sum(logs: NDArray[np.float64]) -> float:
    """The logarithm of a sum of exponentials."""
    largest = float(logs.max())
    return largest + log(float(np.exp(logs - largest).sum()))


@lru_cache(maxsize=4096)
def student_quantile(freedom: int, confidence: float) -> float:
    """The t with P(|T| ≤ t) = `confidence` for Student's T with `freedom` ≥ 1 degrees of freedom f.

    P(|T| > t) = I_x(f/2, 1/2) at x = f/(f + t^2) (Abramowitz and Stegun 26.7.1), so t^2 = f·(1 - x)/x. Of the two
    tails the smaller is solved for, so that neither end of (0, 1) loses digits.
    """
    z = max(normal_quantile(confidence), confidence)  # the former is 0 where 1 - confidence is 1
    start = log(freedom) - 2 * log(z + (z**3 + z) / (4 * freedom))  # 26.7.5, two terms
    if confidence > 0.5:  # noqa: PLR2004 - one half: where the tails are equal
        logit = float(beta_logits(1 - confidence, freedom / 2, 0.5, start)[0])
    else:
        logit = -float(beta_logits(confidence, 0.5, freedom / 2, -start)[0])
    return sqrt(freedom) * exp(-logit / 2)


def _normal_quantile_below(probability: float) -> float:
    """The z with P(N(0, 1) ≤ z) = `probability`, 0 < probability."""
    return NormalDist().inv_cdf(probability)
