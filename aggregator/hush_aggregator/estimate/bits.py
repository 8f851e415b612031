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

All of this holds for any reported yes or no (`coins`), so it is computed for arrays of counts (`binomial`): one for a
bit, one for each category of a subset.

Both targets lie in [0, 1], and to that the intervals are clipped: no coverage is lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.binomial import INVERSION_LIMIT, beta_band, clopper_pearson, fewest
from hush_aggregator.estimate.finite import finite
from hush_aggregator.estimate.honesty import finite_monitor, worst_case_bias
from hush_aggregator.estimate.quantiles import normal_quantile
from hush_aggregator.estimate.result import ANYTIME, POPULATION, REPORTERS, Estimate
from hush_aggregator.tally import Tally
from hush_common.mechanisms import RandomizedResponse

__all__ = ["Coins", "coins", "estimate"]

_LEAST = 1e-300
_SLACK = 1 - 1e-9  # a tail that equals alpha/2 but for its rounding is not refused

_Pair: TypeAlias = tuple[Fraction, Fraction]
_Array: TypeAlias = NDArray[np.float64]
_Counts: TypeAlias = NDArray[np.int64]
_Ends: TypeAlias = tuple[_Array, _Array]


def estimate(mechanism: RandomizedResponse, tally: Tally, confidence: float) -> Estimate:
    """The proportion of ones and its error bars of n ≥ 1 reports; this module's docstring specifies them."""
    (ones,) = tally.moments
    channel = finite(mechanism)
    found = coins(mechanism.probability_of_one, tally.n, [ones], [confidence])
    return Estimate(
        n=tally.n,
        mean=found.mean[0],
        stderr=found.stderr[0],
        intervals=found.intervals[0][0],
        methods=found.methods,
        worst_case_bias=worst_case_bias(tally.n, channel.reach),
        monitor=finite_monitor(channel, (tally.n - ones, ones)),
    )


@dataclass(frozen=True, slots=True)
class Coins:
    """Estimates of several questions, in their order.

    Args:
        mean: of each question.
        stderr: of each question.
        intervals: for each confidence, those of each question.
        methods: how all were made.
    """

    mean: list[float]
    stderr: list[dict[str, float]]
    intervals: list[list[dict[str, tuple[float, float]]]]
    methods: dict[str, str]


def coins(p: _Pair, n: int, counts: Sequence[int], confidences: Sequence[float]) -> Coins:
    """The share of those for whom it is true, for questions that are answered yes or no with the same probabilities.

    Args:
        p: probability of a reported yes where it is false, and where it is true.
        n: reports, at least 1.
        counts: reported yes to each question; with many, the exact inversion of a long sum takes too long.
        confidences: of the intervals; every question gets them at each.
    """
    ones, which = np.unique(np.array(counts, dtype=np.int64), return_inverse=True)
    method, reporters = _reporters(p, n, ones, confidences, alike=len(counts))
    noise = sqrt(_largest_variance(p) / n) / float(p[1] - p[0])
    found = {
        REPORTERS: reporters,
        POPULATION: _positions(clopper_pearson(n, ones, [(1 - one) / 2 for one in confidences]), p),
        ANYTIME: _positions(beta_band(n, ones, [max(1 - one, _LEAST) for one in confidences]), p),
    }
    means = list(_means(p, n, ones.tolist()))
    return Coins(
        mean=[means[place] for place in which.tolist()],
        stderr=[{REPORTERS: noise, POPULATION: one} for one in _spread(p, n, ones)[which].tolist()],
        intervals=[
            _paired({name: (low[at], high[at]) for name, (low, high) in found.items()}, which)
            for at in range(len(confidences))
        ],
        methods={REPORTERS: method, POPULATION: "clopper-pearson", ANYTIME: f"{POPULATION}-beta-mixture"},
    )


def _paired(ends: dict[str, _Ends], which: NDArray[np.intp]) -> list[dict[str, tuple[float, float]]]:
    """For each question its intervals."""
    reporters, population, anytime = (
        zip(low[which].tolist(), high[which].tolist(), strict=True)
        for low, high in (ends[REPORTERS], ends[POPULATION], ends[ANYTIME])
    )
    return [
        {REPORTERS: first, POPULATION: second, ANYTIME: third}
        for first, second, third in zip(reporters, population, anytime, strict=True)
    ]


def _means(p: _Pair, n: int, counts: Sequence[int]) -> Iterator[float]:
    """Exact until the one rounding: the quotient of two integers."""
    unit = lcm(p[0].denominator, p[1].denominator)
    none, contrast = int(p[0] * unit), int((p[1] - p[0]) * unit)
    return ((count * unit - n * none) / (n * contrast) for count in counts)


def _spread(p: _Pair, n: int, counts: _Counts) -> _Array:
    """The standard error for the population."""
    yes = np.clip(counts / n, float(p[0]), float(p[1]))
    no = np.clip((n - counts) / n, float(1 - p[1]), float(1 - p[0]))
    return np.asarray(np.sqrt(yes * no / n) / float(p[1] - p[0]))


def _largest_variance(p: _Pair) -> Fraction:
    return max(p[0] * (1 - p[0]), p[1] * (1 - p[1]))


def _positions(shares: _Ends, p: _Pair) -> _Ends:
    """theta, clipped to [0, 1], where these shares of ones are reported."""
    low, high = (np.clip((share - float(p[0])) / float(p[1] - p[0]), 0, 1) for share in shares)
    return low, high


def _reporters(p: _Pair, n: int, ones: _Counts, confidences: Sequence[float], alike: int) -> tuple[str, _Ends]:
    """Method and ends of the intervals for the reporters, by confidence and count."""
    if n * alike <= INVERSION_LIMIT:
        return "binomial-inversion", _invert(p, n, ones, confidences)
    if n > INVERSION_LIMIT:
        return "normal", _normal(p, n, ones, confidences)
    low, high = clopper_pearson(n, ones, [(1 - one) / 2 for one in confidences])
    apart = np.minimum(low, (ones - 1) / n), np.maximum(high, (ones + 1) / n)
    return "clopper-pearson-hoeffding", _positions(apart, p)


def _normal(p: _Pair, n: int, ones: _Counts, confidences: Sequence[float]) -> _Ends:
    """For many reports."""
    deviation = sqrt(_largest_variance(p) / n)
    half = np.array([[normal_quantile(one) * deviation + 0.5 / n] for one in confidences])
    return _positions((ones / n - half, ones / n + half), p)


def _invert(p: _Pair, n: int, ones: _Counts, confidences: Sequence[float]) -> _Ends:
    """Exactly. An upper end is the lower end of the question about zeros."""
    shape = (len(confidences), len(ones))
    tails = np.repeat([(1 - one) / 2 * _SLACK for one in confidences], len(ones))
    counts = np.tile(ones, len(confidences))
    yes = [float(one) for one in (p[0], p[1], 1 - p[0], 1 - p[1])]
    no = [yes[3], yes[2], yes[1], yes[0]]
    rows = np.repeat(np.array([yes, no]).T, len(counts), axis=1)
    found = fewest(n, np.concatenate((counts, n - counts)), rows, np.tile(tails, 2))
    low, high = found[: len(counts)], n - found[len(counts) :]
    return low.reshape(shape) / n, high.reshape(shape) / n
