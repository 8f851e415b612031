"""Estimates from randomized response: the proportion of ones among bits.

Of n reports K are ones. A device of bit x reports 1 with probability p_x, 0 < p_0 < p_1 < 1 (any two weights).

Mean. (K/n - p_0)/(p_1 - p_0): unbiased for both targets, computed as a fraction, rounded once.

`reporters`. With j true ones K is distributed as Bin(j, p_1) + Bin(n-j, p_0), whose tails are monotone in j.
- n ≤ 10 000: "binomial-inversion". All j with P(≥ K | j) > alpha/2 and P(≤ K | j) > alpha/2, over n. Coverage is at
  least the confidence at every n and every j, without any approximation.
  The set is empty in one case only: K lies beyond what n true ones, or none, make likely (P(≥ K | n) ≤ alpha/2, or
  P(≤ K | 0) ≤ alpha/2). Then the nearest boundary is reported, as (1, 1) or (0, 0): it stands for an empty set, that
  is for a draw rarer than alpha/2, or for devices that do not follow the mechanism. (No other gap exists: one more
  true one raises K by at most one, so P(≤ K | j) ≥ P(< K | j-1) = 1 - P(≥ K | j-1), and where j - 1 is refused
  because it makes so many ones unlikely, j is not refused because it makes so few unlikely.)
- n > 10 000: "normal". Half-width (z·sqrt(n·v) + 1/2)/(n·(p_1 - p_0)), with v the larger of p_x(1 - p_x) and the half a
  correction for continuity.
Standard error sqrt(v/n)/(p_1 - p_0): exact for the optimal form, where both bits have the same variance; for general
coins an upper bound, because the variance depends on the bits.

`population`. Devices are an independent sample, so K is Bin(n, lam) with lam = p_0 + theta(p_1 - p_0), and Clopper and
Pearson's interval (1934) for lam gives one for theta: "clopper-pearson", coverage at least the confidence at every n
and theta. Standard error sqrt(lam(1 - lam)/n)/(p_1 - p_0) at lam = K/n moved into [p_0, p_1], where every honest
lam lies: it is never 0, though all reports may be equal.

`anytime`. A band for the population that may be watched, "population-beta-mixture": see `anytime`.

Both targets lie in [0, 1], and to that the intervals are clipped: no coverage is lost.
"""

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import lgamma, log, sqrt

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.anytime import beta_band
from hush_aggregator.estimate.finite import finite
from hush_aggregator.estimate.honesty import finite_monitor, worst_case_bias
from hush_aggregator.estimate.quantiles import beta_quantile, normal_quantile
from hush_aggregator.estimate.result import ANYTIME, POPULATION, REPORTERS, Estimate
from hush_aggregator.tally import Tally
from hush_common.mechanisms import RandomizedResponse

__all__ = ["clopper_pearson_share", "coin_estimate", "estimate"]

_INVERSION_LIMIT = 10_000
_DEVIATIONS, _BEYOND = 9.5, 30
_SUREST = 1 - 2**-53
_SLACK = 1 - 1e-9  # a tail that equals alpha/2 but for its rounding is not refused

_Pair = tuple[Fraction, Fraction]


def estimate(mechanism: RandomizedResponse, tally: Tally, confidence: float) -> Estimate:
    """The proportion of ones and its error bars of n ≥ 1 reports; this module's docstring specifies them."""
    (ones,) = tally.moments
    channel = finite(mechanism)
    result = coin_estimate(mechanism.probability_of_one, tally.n, ones, confidence)
    return replace(
        result,
        worst_case_bias=worst_case_bias(tally.n, channel.reach),
        monitor=finite_monitor(channel, (tally.n - ones, ones)),
    )


@lru_cache(maxsize=4096)
def coin_estimate(p: _Pair, n: int, ones: int, confidence: float, *, alike: int = 1) -> Estimate:
    """The same for any reported yes or no: the share of those for whom it is true.

    Args:
        p: probability of a reported yes where it is false, and where it is true.
        n: reports, at least 1.
        ones: reported yes.
        confidence: of each interval.
        alike: how many such questions there are; with many, the exact inversion of a long sum takes too long.
    """
    share = Fraction(ones, n)
    lam = min(max(share, p[0]), p[1])
    low, high = beta_band(n, ones, confidence)
    reporters, method = _reporters(p, n, ones, confidence, alike)
    return Estimate(
        n=n,
        mean=float((share - p[0]) / (p[1] - p[0])),
        stderr={
            REPORTERS: _deviation(_largest_variance(p) / n, p),
            POPULATION: _deviation(lam * (1 - lam) / n, p),
        },
        intervals={
            REPORTERS: reporters,
            POPULATION: clopper_pearson(n, ones, p, confidence),
            ANYTIME: (_proportion(Fraction(low), p), _proportion(Fraction(high), p)),
        },
        methods={
            REPORTERS: method,
            POPULATION: "clopper-pearson",
            ANYTIME: f"{POPULATION}-beta-mixture",
        },
    )


def _reporters(p: _Pair, n: int, ones: int, confidence: float, alike: int) -> tuple[tuple[float, float], str]:
    if n * alike <= _INVERSION_LIMIT:
        return _invert(n, ones, p, confidence), "binomial-inversion"
    if n > _INVERSION_LIMIT:
        return _normal(n, ones, p, confidence), "normal"
    low, high = clopper_pearson(n, ones, p, confidence)
    apart = _proportion(Fraction(ones - 1, n), p), _proportion(Fraction(ones + 1, n), p)
    return (min(low, apart[0]), max(high, apart[1])), "clopper-pearson-hoeffding"


def _largest_variance(p: _Pair) -> Fraction:
    return max(p[0] * (1 - p[0]), p[1] * (1 - p[1]))


def _deviation(variance: Fraction, p: _Pair) -> float:
    """A variance of the share of reported ones as a standard deviation of the estimate."""
    return sqrt(variance / (p[1] - p[0]) ** 2)


def clopper_pearson(n: int, ones: int, p: _Pair, confidence: float) -> tuple[float, float]:
    """Bounds of theta, clipped to [0, 1]."""
    low, high = clopper_pearson_share(n, ones, confidence)
    return _proportion(Fraction(low), p), _proportion(Fraction(high), p)


def clopper_pearson_share(n: int, ones: int, confidence: float) -> tuple[float, float]:
    """Bounds of the probability of a reported one, from beta quantiles, both tails (1 - confidence)/2."""
    tail = (1 - confidence) / 2
    low = beta_quantile(tail, ones, n - ones + 1) if ones > 0 else 0.0
    high = 1 - beta_quantile(tail, n - ones, ones + 1) if ones < n else 1.0
    return low, high


def _normal(n: int, ones: int, p: _Pair, confidence: float) -> tuple[float, float]:
    """The interval of `reporters` for many reports."""
    share = Fraction(ones, n)
    half = Fraction(normal_quantile(confidence) * sqrt(_largest_variance(p) / n)) + Fraction(1, 2 * n)
    return _proportion(share - half, p), _proportion(share + half, p)


def _proportion(lam: Fraction, p: _Pair) -> float:
    """theta, clipped to [0, 1], where a share `lam` of ones is reported."""
    return float(min(max((lam - p[0]) / (p[1] - p[0]), Fraction(0)), Fraction(1)))


@lru_cache(maxsize=1024)
def _invert(n: int, ones: int, p: _Pair, confidence: float) -> tuple[float, float]:
    """The interval of `reporters`, exactly. The upper end is the lower end of the question about zeros."""
    tail = (1 - confidence) / 2 * _SLACK
    low = _fewest(n, ones, (p[0], p[1]), tail)
    high = n - _fewest(n, n - ones, (1 - p[1], 1 - p[0]), tail)
    return low / n, high / n


def _fewest(n: int, count: int, p: _Pair, tail: float) -> int:
    """The fewest true ones under which P(at least `count` ones of n) exceeds `tail`, or n if none do.

    The probability rises with the number of true ones: a guess, steps that double, then bisection.
    """
    reach = normal_quantile(min(1 - 2 * tail, _SUREST)) * sqrt(n * _largest_variance(p))
    guess = Fraction(count) - n * p[0] - Fraction(reach)
    low, high = 0, n
    at, stride = min(max(int(guess / (p[1] - p[0])), 0), n - 1), 1
    while low < high:
        if _at_least(count, n, at, p) > tail:
            high = at
            at = max(at - stride, (low + high) // 2 if low > 0 else 0)
        else:
            low = at + 1
            at = min(at + stride, (low + high) // 2 if high < n else n - 1)
        stride *= 2
    return low


def _at_least(count: int, n: int, j: int, p: _Pair) -> float:
    """P(Bin(j, p_1) + Bin(n-j, p_0) ≥ count): one product of positive terms."""
    first, true_ones = _binomial(j, p[1])
    least, others = _binomial(n - j, p[0])
    tails = np.append(np.cumsum(others[::-1])[::-1], 0.0)  # P(≥ least + i)
    needed = np.clip(count - least - first - np.arange(len(true_ones)), 0, len(others))
    return float(true_ones @ tails[needed])


def _binomial(n: int, p: Fraction) -> tuple[int, NDArray[np.float64]]:
    """The smallest i and P(Bin(n, p) = i), … of all but 1e-18 of the mass, 0 < p < 1 (Bernstein's inequality)."""
    mean = float(n * p)
    reach = _DEVIATIONS * sqrt(mean * float(1 - p)) + _BEYOND
    low, high = max(int(mean - reach), 0), min(int(mean + reach) + 1, n)
    i = np.arange(low, high + 1)
    log_factorial = _log_factorials()
    log_choose = log_factorial[n] - log_factorial[low : high + 1] - log_factorial[n - high : n - low + 1][::-1]
    chances: NDArray[np.float64] = np.exp(log_choose + i * log(p) + (n - i) * log(1 - p))
    return low, chances


@lru_cache(maxsize=1)
def _log_factorials() -> NDArray[np.float64]:
    return np.array([lgamma(k + 1) for k in range(_INVERSION_LIMIT + 1)])
