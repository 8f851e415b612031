"""Quantiles that error bars are made of: normal, Student's t, beta, and the sum of Laplace variables.

scipy is not needed at run time. Every search below is Newton's method on the logarithm of a probability that is
concave in its argument (a log-concave density has a log-concave distribution function and tail). The tangent of a
concave function lies above it, so after one step all iterates stand on one side of the root and approach it
monotonically: no bracket is needed, and nothing can diverge.
"""

from functools import lru_cache
from math import exp, inf, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LAPLACE_SUM_LIMIT",
    "beta_quantile",
    "laplace_mean_quantile",
    "laplace_sum_tail",
    "normal_quantile",
    "student_quantile",
]

LAPLACE_SUM_LIMIT = 1000
"""Up to this many reports the quantile of their summed noise is exact; above, it is Cornish-Fisher's."""

_NEWTON_STEPS = 100  # 4 to 8 are taken
_CONVERGED = 1e-13  # relative step: the error after it is of the order of its square
_FRACTION_TERMS = 1_000_000
_FRACTION_CONVERGED = 1e-15
_STIRLING_FROM = 16


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
    if confidence > 0.5:  # noqa: PLR2004 - one half: where the tails are equal
        logit = _logit_of_beta_quantile(1 - confidence, freedom / 2, 0.5)
    else:
        logit = -_logit_of_beta_quantile(confidence, 0.5, freedom / 2)
    return sqrt(freedom) * exp(-logit / 2)


def beta_quantile(probability: float, a: float, b: float) -> float:
    """The x with I_x(a, b) = `probability` in (0, 1); relative error below 1e-10 for a + b up to 1e9.

    I is the regularised incomplete beta function: P(Bin(n, x) ≥ k) = I_x(k, n - k + 1).
    """
    return exp(-_log1p_exp(-_logit_of_beta_quantile(probability, a, b)))


def _logit_of_beta_quantile(probability: float, a: float, b: float) -> float:
    """The u with I_x(a, b) = `probability` at x = 1/(1 + e^-u).

    In u the density is proportional to x^a (1-x)^b: log-concave for all a, b > 0, and u has no ends to step over.
    """
    target = log(probability)
    logit = log(a / b) + _normal_quantile_below(min(probability, 0.5)) * sqrt(1 / a + 1 / b)
    for _ in range(_NEWTON_STEPS):
        value, slope = _log_incomplete_beta(logit, a, b)
        step = (target - value) / slope
        logit += step
        if abs(step) <= _CONVERGED * max(1.0, abs(logit)):
            break
    return logit


def _log_incomplete_beta(logit: float, a: float, b: float) -> tuple[float, float]:
    """Logarithm of I_x(a, b), and its derivative by the logit of x: x^a (1-x)^b / (B(a, b)·I_x)."""
    log_x, log_y = -_log1p_exp(-logit), -_log1p_exp(logit)
    power = _log_power(log_x, log_y, a, b)
    x = exp(log_x)
    if x * (a + b + 2) < a + 1:
        value = power - log(a * _beta_fraction(x, a, b))
    else:
        value = log1p(-exp(power) / (b * _beta_fraction(exp(log_y), b, a)))
    return value, exp(power - value)


def _log_power(log_x: float, log_y: float, a: float, b: float) -> float:
    """Logarithm of x^a y^b / B(a, b), y = 1 - x, without what lgamma cancels at large a + b.

    With log Γ(z) = (z - 1/2) log z - z + log(2π)/2 + δ(z) it is, exactly,
    a·log(x(a+b)/a) + b·log(y(a+b)/b) + log(ab/(a+b)/2π)/2 + δ(a+b) - δ(a) - δ(b),
    and the first two terms are log1p of ±d/a and ±d/b, d = xb - ya, which cancel to first order only.
    """
    d = exp(log_x) * b - exp(log_y) * a
    deviance = a * (log1p(d / a) if d > -a / 2 else log_x + log((a + b) / a))
    deviance += b * (log1p(-d / b) if d < b / 2 else log_y + log((a + b) / b))
    return deviance + log(a * (b / (a + b)) / (2 * pi)) / 2 + _stirling(a + b) - _stirling(a) - _stirling(b)


def _stirling(z: float) -> float:
    """The error δ(z) of Stirling's formula for log Γ(z); its series (DLMF 5.11.1) is exact to 1e-16 from z = 16."""
    if z < _STIRLING_FROM:
        return lgamma(z) - (z - 0.5) * log(z) + z - log(2 * pi) / 2
    w = 1 / (z * z)
    return (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w / 1188)))) / z


def _beta_fraction(x: float, a: float, b: float) -> float:
    """x^a (1-x)^b / (a·B(a, b)·I_x(a, b)): the continued fraction DLMF 8.17.22, for x < (a+1)/(a+b+2).

    1 + d1/(1 + d2/(1 + ...)), evaluated forwards (modified Lentz); about sqrt(max(a, b)) terms.
    """
    value, c, d = 1.0, 1.0, 0.0
    for term in range(1, _FRACTION_TERMS):
        m, odd = divmod(term, 2)
        if odd:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + numerator * d)
        c = 1 + numerator / c
        value *= c * d
        if abs(c * d - 1) < _FRACTION_CONVERGED:
            break
    return value


def _log1p_exp(u: float) -> float:
    """log(1 + e^u) at any u."""
    return max(u, 0.0) + log1p(exp(-abs(u)))


def _normal_quantile_below(probability: float) -> float:
    """The z with P(N(0, 1) ≤ z) = `probability`, 0 < probability."""
    return NormalDist().inv_cdf(probability)
