"""Estimates from bounded reports: `multilevel`, `table`, and whatever comes under several epsilons.

Reports are grouped by channel (`finite`); group c has n_c of N reports. Every report decodes to a position a with
mean x, its value.

Mean. Σ a/N over all groups: every person weighs the same. Unbiased for both targets whoever chose which epsilon.

Bounds of the mean error, alpha/2 on either side. The first five are valid at every n, whatever the values are, and
none collapses when all reports are equal:

- "clopper-pearson" (one group, two outputs; population). The number of upper outputs is binomial: coverage is at
  least the confidence at every n.
- "clopper-pearson-hoeffding" (the same; reporters). That number is a sum of unequal coins with mean n·c; its tail at
  k is at most the binomial tail where k ≥ n·c + 1 (Hoeffding 1956). So the limits of Clopper and Pearson hold if they
  are at least one report away from k, and are moved there if they are nearer.
- "chernoff" (reporters). P(error ≥ d) ≤ exp(Σ n_c·G_c(l) - l·N·d) for every l > 0, with G the noise exponent: the
  least d over a fixed grid of l. "chernoff-hoeffding" (population, several groups): the same with + N·l^2/8 for the
  values (Hoeffding 1963).
- "betting" (population, one group): `betting`. It adapts to the variance of the reports.
- "normal-worst-variance" (reporters, where n·V ≥ 10·reach^2, V the largest variance of a report): z·sqrt(V/N).
- "student-score" (population, one group, where n·V ≥ 12·reach^2 for the smallest V): `score`. "student-score-capped"
  (reporters, there too): the same with s^2 not above the largest V. The sample variance estimates an upper bound of
  the mean V, because it has the spread of the values in it besides.
- "student-t" (population, several groups, where the smallest variances sum to 12·reach^2): t·s/sqrt(N), s^2 the sample
  variance of all reports, not below the mean of the smallest V. These four are approximate; at such sizes the mean of
  bounded reports is close to normal whatever the values are (docs/statistics.md has the coverage).

Intervals are clipped to the domain, where both targets lie. One that lies outside as a whole (a rare draw, or devices
that do not follow the mechanism) starts at the nearest bound and keeps the length of its inner arm, so that none
collapses.

The rule looks at n and public parameters, never at the reports.

A coordinate of a vector is seen by a random subset of the devices (`sampled`): then both targets take the bound for
the population. In Clopper-Pearson's case the count is again a sum of independent coins, because a symmetric
multiaffine function of stable linear factors is real-rooted (Grace, Walsh and Szegő), and the -hoeffding form holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import log, sqrt
from operator import mul

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.anytime import RATES, mixture_deviation
from hush_aggregator.estimate.betting import betting_interval
from hush_aggregator.estimate.binomial import clopper_pearson_share
from hush_aggregator.estimate.finite import Finite
from hush_aggregator.estimate.honesty import finite_monitor, worst_case_bias, worst_verdict
from hush_aggregator.estimate.quantiles import normal_quantile, student_quantile
from hush_aggregator.estimate.result import ANYTIME, POPULATION, REPORTERS, Estimate
from hush_aggregator.estimate.score import score_interval
from hush_aggregator.estimate.span import Span

__all__ = ["Group", "estimate"]

_NORMAL_FROM = 10
_SCORE_FROM = 12
_GRID = 2.0 ** (np.arange(-24, 33) / 4)


@dataclass(frozen=True)
class Group:
    """The reports of one channel: how often each output came."""

    channel: Finite
    counts: tuple[int, ...]

    @cached_property
    def n(self) -> int:
        return sum(self.counts)

    @cached_property
    def total(self) -> Fraction:
        """The sum of the decoded positions."""
        positions, unit = self.channel.scaled
        return Fraction(sum(map(mul, self.counts, positions)), unit)

    @cached_property
    def squares(self) -> float:
        """The sum of squares of the decoded positions around their mean."""
        counts = np.array([self.counts[y] for y in self.channel.used], dtype=float)
        return float(counts @ (self.channel.a - float(self.total / self.n)) ** 2)


_Pair = tuple[float, float]
_Ends = tuple[float | Fraction, float | Fraction]
_Sizes = tuple[tuple[Finite, int], ...]


def estimate(groups: Sequence[Group], span: Span, confidence: float, *, sampled: bool = False) -> Estimate:
    """The mean and its error bars of at least one report; this module's docstring specifies them.

    Args:
        groups: the reports of each channel; empty groups are left out.
        span: the domain.
        confidence: of each interval.
        sampled: whether the reports are those of a random subset of the reporters.
    """
    groups = [group for group in groups if group.n]
    sizes = tuple((group.channel, group.n) for group in groups)
    n = sum(size for _, size in sizes)
    center = sum((group.total for group in groups), Fraction(0)) / n
    spread = _spread(groups, sizes, center)
    noise: _Ends
    people: _Ends
    if len(groups) == 1 and len(groups[0].channel.used) == 2:  # noqa: PLR2004 - two outputs are a coin
        noise, people = _coins(groups[0], confidence)
        noise_method, method = "clopper-pearson-hoeffding", "clopper-pearson"
    else:
        people, method = _population(groups, sizes, center, spread, confidence)
        noise, noise_method = (people, method) if sampled else _reporters(groups, sizes, center, confidence)
    result = Estimate(
        n=n,
        mean=span.value(center),
        stderr={
            REPORTERS: span.length(spread if sampled else sqrt(_noise_variance(sizes)) / n),
            POPULATION: span.length(spread),
        },
        intervals={
            REPORTERS: span.interval(*_kept(center, noise)),
            POPULATION: span.interval(*_kept(center, people)),
        },
        methods={REPORTERS: noise_method, POPULATION: method},
        worst_case_bias=worst_case_bias(n, span.length(max(channel.reach for channel, _ in sizes))),
        monitor=worst_verdict(finite_monitor(group.channel, group.counts) for group in groups),
    )
    down, up = _band(sizes, confidence, sampled=sampled)
    result.intervals[ANYTIME] = span.interval(*_kept(center, (center - Fraction(down), center + Fraction(up))))
    result.methods[ANYTIME] = f"{POPULATION if sampled else REPORTERS}-chernoff-mixture"
    return result


def _noise_variance(sizes: _Sizes) -> float:
    return sum(size * channel.variances[1] for channel, size in sizes)


def _is_normal(sizes: _Sizes, which: int, enough: int) -> bool:
    """Whether n·V ≥ `enough`·reach^2, V the smallest (0) or largest (1) variance of a report."""
    reach = max(channel.reach for channel, _ in sizes)
    return sum(size * channel.variances[which] for channel, size in sizes) >= enough * reach**2


def _reporters(groups: Sequence[Group], sizes: _Sizes, center: Fraction, confidence: float) -> tuple[_Ends, str]:
    if len(groups) == 1 and _is_normal(sizes, 0, _SCORE_FROM):
        (group,) = groups
        variance = min(group.squares / (group.n - 1), group.channel.variances[1])
        ends = score_interval(group.channel, group.n, float(center), variance, confidence, noise_alone=True)
        return ends, "student-score-capped"
    if _is_normal(sizes, 1, _NORMAL_FROM):
        half = Fraction(normal_quantile(confidence) * sqrt(_noise_variance(sizes)) / sum(n for _, n in sizes))
        return (center - half, center + half), "normal-worst-variance"
    above, below = _chernoff(sizes, confidence, sampling=False)
    return (center - Fraction(above), center + Fraction(below)), "chernoff"


def _population(
    groups: Sequence[Group], sizes: _Sizes, center: Fraction, spread: float, confidence: float
) -> tuple[_Ends, str]:
    is_normal = _is_normal(sizes, 0, _SCORE_FROM)
    if len(groups) > 1 and is_normal:
        half = Fraction(student_quantile(sum(n for _, n in sizes) - 1, confidence) * spread)
        return (center - half, center + half), "student-t"
    if len(groups) > 1:
        above, below = _chernoff(sizes, confidence, sampling=True)
        return (center - Fraction(above), center + Fraction(below)), "chernoff-hoeffding"
    (group,) = groups
    if is_normal:
        variance = group.squares / (group.n - 1)
        ends = score_interval(group.channel, group.n, float(center), variance, confidence, noise_alone=False)
        return ends, "student-score"
    return betting_interval(group.channel, group.counts, confidence), "betting"


def _spread(groups: Sequence[Group], sizes: _Sizes, center: Fraction) -> float:
    """Standard error for the population: of the sample where it is large, else of the largest variance there can be."""
    n = sum(size for _, size in sizes)
    if not _is_normal(sizes, 0, _SCORE_FROM):
        return sqrt(sum(size * channel.second_moment for channel, size in sizes)) / n
    squares = sum(group.squares + group.n * float(group.total / group.n - center) ** 2 for group in groups)
    return sqrt(max(squares / (n - 1), sum(size * channel.variances[0] for channel, size in sizes) / n) / n)


def _coins(group: Group, confidence: float) -> tuple[_Ends, _Ends]:
    """Clopper and Pearson's limits: for the reporters apart from the count by at least one report, and as they are."""
    high = group.channel.used[1]
    p = (group.channel.rows[0][high], group.channel.rows[-1][high])
    n, k = group.n, group.counts[high]
    least, most = map(Fraction, clopper_pearson_share(n, k, confidence))

    def means(low: Fraction, high: Fraction) -> _Ends:
        return (low - p[0]) / (p[1] - p[0]), (high - p[0]) / (p[1] - p[0])

    return means(min(least, Fraction(k - 1, n)), max(most, Fraction(k + 1, n))), means(least, most)


def _kept(center: Fraction, ends: _Ends) -> _Ends:
    """An interval that lies outside the range as a whole starts at the nearest bound, and keeps its inner arm."""
    low, high = ends
    if high < 0:
        return 0.0, Fraction(high) - center
    if low > 1:
        return 1 - (center - Fraction(low)), 1.0
    return ends


@lru_cache(maxsize=1024)
def _chernoff(sizes: _Sizes, confidence: float, *, sampling: bool) -> _Pair:
    """How far the mean error can lie above 0, and below: each bound fails with probability at most alpha/2."""
    n = sum(size for _, size in sizes)
    needed = log(2 / (1 - confidence)) / n
    values = 0.25 if sampling else 0.0
    rates = _rates(needed, _noise_variance(sizes) / n + values)

    def bound(sign: int) -> float:
        exponents = sum(size / n * channel.noise_exponent(sign * rates) for channel, size in sizes)
        return float(((needed + exponents + values * rates**2 / 2) / rates).min())

    return bound(1), bound(-1)


def _rates(needed: float, variance: float) -> NDArray[np.float64]:
    """A grid around the rate that is best for normal errors; large rates matter for very few reports."""
    return np.asarray(sqrt(2 * needed / variance) * _GRID)


def _band(sizes: _Sizes, confidence: float, *, sampled: bool) -> _Pair:
    """How far the mean may lie below and above the estimate, at all times at once."""
    n = sum(size for _, size in sizes)
    fastest = min(channel.fastest for channel, _ in sizes)
    rates = fastest * RATES
    exponents = [channel.mixture_exponents(fastest) for channel, _ in sizes]
    values = n * rates**2 / 8 * sampled
    above = sum(size * pair[0] for (_, size), pair in zip(sizes, exponents, strict=True)) + values
    below = sum(size * pair[1] for (_, size), pair in zip(sizes, exponents, strict=True)) + values
    return mixture_deviation(rates, above, confidence) / n, mixture_deviation(rates, below, confidence) / n
