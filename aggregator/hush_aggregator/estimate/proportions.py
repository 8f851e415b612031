"""Estimates from randomized response: the proportion of ones among bits.

Of n reports K are ones. A device of bit x reports 1 with probability p_x, 0 < p_0 < p_1 < 1 (any two weights).

Mean. (K/n - p_0)/(p_1 - p_0): unbiased for both targets, computed as a fraction, rounded once.

`reporters`. With j true ones K is distributed as Bin(j, p_1) + Bin(n-j, p_0), whose tails are monotone in j.
"binomial-inversion", at every n: all j with P(≥ K | j) > alpha/2 and P(≤ K | j) > alpha/2, over n (`inversion`).
Coverage is at least the confidence at every n and every j, without any approximation.
The set is empty in one case only: K lies beyond what n true ones, or none, make likely (P(≥ K | n) ≤ alpha/2, or
P(≤ K | 0) ≤ alpha/2). (No other gap exists: one more true one raises K by at most one, so P(≤ K | j) ≥ P(< K | j-1) =
1 - P(≥ K | j-1), and where j - 1 is refused because it makes so many ones unlikely, j is not refused because it makes
so few unlikely.) Then the nearest boundary stands for it, before the rule of the last paragraph.
Standard error sqrt(v/n)/(p_1 - p_0), v between p_0(1 - p_0) and p_1(1 - p_1) in proportion to the estimate, moved into
[0, 1]: exact for the optimal form, where both bits have the same variance. It is never below the deviation of the less
noisy answer, so that it does not collapse at small n.

`population`. Devices are an independent sample, so K is Bin(n, lam) with lam = p_0 + theta(p_1 - p_0), and Clopper and
Pearson's interval (1934) for lam gives one for theta: "clopper-pearson", coverage at least the confidence at every n
and theta. Standard error sqrt(lam(1 - lam)/n)/(p_1 - p_0) at lam = K/n moved into [p_0, p_1], where every honest
lam lies: it is never 0, though all reports may be equal.

`enrolled`. Of N devices that were asked a random subset of n answered. Then K is a sum of independent unequal coins,
whatever the N bits are: its generating function has real roots only (Grace, Walsh and Szegő; Vatutin and Mikhailov
1982). Its variance is n·(noise(theta) + theta(1 - theta)(p_1 - p_0)^2·(N - n)/(N - 1)).
- Where n·min p_x(1 - p_x) ≥ `enough(confidence)` ("score-enrolled"): all theta with | |K/n - lam| - 1/(2n) | at most z
  deviations: Wilson's interval with a correction for continuity, approximate.
- Below: "clopper-pearson-hoeffding", valid at every n (Hoeffding 1956), without any gain from n/N.

`enrolled`: standard error sqrt(v/n/(p_1 - p_0)^2 + theta(1 - theta)(N - n)/(N - 1)/n) at the same estimate.

All three are deviations at the estimate, as plots and meta-analyses need them, and so is `stderr_plug_in`. No interval
is made of them.

`anytime`. A band for the population that may be watched, "population-beta-mixture": see `anytime`.

All of this holds for any reported yes or no (`proportions`), so it is computed for arrays of counts (`binomial`): one
for a bit, one for each category of a subset.

Both targets lie in [0, 1], and to that the intervals are clipped: no coverage is lost. Around an estimate outside
[0, 1] an interval is joined with itself, moved to the nearest bound: none collapses (`units.around`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from math import lcm
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.diagnostics import finite_monitor, worst_case_bias
from hush_aggregator.estimate.estimates import ANYTIME, ENROLLED, POPULATION, REPORTERS, Estimate, Interval
from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.estimate.intervals.inversion import fewest
from hush_aggregator.estimate.intervals.student_score import enough
from hush_aggregator.estimate.numerics.binomial import beta_band, clopper_pearson
from hush_aggregator.estimate.numerics.guard import attempt
from hush_aggregator.estimate.numerics.quantiles import normal_quantile
from hush_aggregator.estimate.units import around
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Mechanism

__all__ = ["MOST_INVERTED", "Proportions", "each", "each_interval", "estimate", "proportions", "sampling_variance"]

MOST_INVERTED = 128
"""Most questions for each of which a sum of two binomials is inverted."""

_LEAST = 1e-300
_SLACK = 1 - 1e-9  # a tail that equals alpha/2 but for its rounding is not refused

_Pair: TypeAlias = tuple[Fraction, Fraction]
_Array: TypeAlias = NDArray[np.float64]
_Counts: TypeAlias = NDArray[np.int64]
_Ends: TypeAlias = tuple[_Array, _Array]
_Intervals: TypeAlias = dict[str, Interval]


def estimate(mechanism: Mechanism, tally: Tally, confidence: float, *, enrolled: int | None = None) -> Estimate:
    """The proportion of ones and its error bars of n ≥ 1 reports; this module's docstring specifies them."""
    (ones,) = tally.moments
    channel = finite(mechanism)
    found = proportions(channel.of_yes, tally.n, [ones], [confidence], enrolled=enrolled)
    return Estimate(
        n=tally.n,
        mean=found.mean[0],
        stderr=found.stderr[0],
        stderr_plug_in=found.stderr_plug_in[0],
        intervals=found.intervals[0][0],
        methods=found.methods,
        worst_case_bias=worst_case_bias(tally.n, channel.reach),
        monitor=finite_monitor(channel, (tally.n - ones, ones)),
        failures=found.failures,
    )


@dataclass(frozen=True, slots=True)
class Proportions:
    """Estimates of several questions, in their order.

    Args:
        mean: of each question.
        stderr: of each question.
        stderr_plug_in: of each question.
        intervals: for each confidence, those of each question.
        methods: how all were made.
        failures: intervals that could not be made, for no question, and why.
    """

    mean: list[float]
    stderr: list[dict[str, float]]
    stderr_plug_in: list[dict[str, float]]
    intervals: list[list[_Intervals]]
    methods: dict[str, str]
    failures: dict[str, str] = field(default_factory=dict)


def proportions(
    p: _Pair, n: int, counts: Sequence[int], confidences: Sequence[float], *, enrolled: int | None = None
) -> Proportions:
    """The share of those for whom it is true, for questions that are answered yes or no with the same probabilities.

    Args:
        p: probability of a reported yes where it is false, and where it is true.
        n: reports, at least 1.
        counts: reported yes to each question; the sums of more than `MOST_INVERTED` are not inverted.
        confidences: of the intervals; every question gets them at each.
        enrolled: devices asked, of which those who reported are a random subset.
    """
    ones, which = np.unique(np.array(counts, dtype=np.int64), return_inverse=True)
    means = np.array(list(_means(p, n, ones.tolist())))
    failures: dict[str, str] = {}
    kept: dict[str, _Ends] = {}
    makers = _makers(p, n, ones, confidences, enrolled, alike=len(counts))
    for target, (_, make) in makers.items():
        ends = attempt(failures, target, make, lambda pair: pair)
        if ends is not None:
            kept[target] = around(means, *ends)
    errors = each(_deviations(p, n, ones, means, enrolled), which)
    return Proportions(
        mean=means[which].tolist(),
        stderr=errors,
        stderr_plug_in=errors,
        intervals=[each_interval(kept, at, which) for at in range(len(confidences))],
        methods={target: method for target, (method, _) in makers.items() if target in kept},
        failures=failures,
    )


def _makers(
    p: _Pair, n: int, ones: _Counts, confidences: Sequence[float], enrolled: int | None, *, alike: int
) -> dict[str, tuple[str, Callable[[], _Ends]]]:
    """Of each target the method, and what makes the ends, by confidence and count."""
    tails = [(1 - one) / 2 for one in confidences]
    exact = "binomial-inversion", partial(_invert, p, n, ones, tails)
    apart = "clopper-pearson-hoeffding", partial(_apart, p, n, ones, tails)
    made: dict[str, tuple[str, Callable[[], _Ends]]] = {
        REPORTERS: exact if alike <= MOST_INVERTED else apart,
        POPULATION: ("clopper-pearson", lambda: _positions(clopper_pearson(n, ones, tails), p)),
        ANYTIME: (
            f"{POPULATION}-beta-mixture",
            lambda: _positions(beta_band(n, ones, [max(1 - one, _LEAST) for one in confidences]), p),
        ),
    }
    if enrolled is not None and n <= enrolled:
        least = n * min(float(one * (1 - one)) for one in p)
        if n == enrolled:
            made[ENROLLED] = made[REPORTERS]
        elif all(least >= enough(one) for one in confidences):
            made[ENROLLED] = "score-enrolled", partial(_score, p, n, ones, confidences, enrolled)
        else:
            made[ENROLLED] = apart
    return made


def each(found: Mapping[str, _Array], which: NDArray[np.intp]) -> list[dict[str, float]]:
    """For each question what was found of it."""
    columns = [values[which].tolist() for values in found.values()]
    return [dict(zip(found, row, strict=True)) for row in zip(*columns, strict=True)]


def each_interval(kept: Mapping[str, _Ends], at: int, which: NDArray[np.intp]) -> list[dict[str, Interval]]:
    """For each question its intervals at the confidence number `at`."""
    if not kept:
        return [{} for _ in which]
    columns = [zip(low[at, which].tolist(), high[at, which].tolist(), strict=True) for low, high in kept.values()]
    return [dict(zip(kept, row, strict=True)) for row in zip(*columns, strict=True)]


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


def _deviations(p: _Pair, n: int, ones: _Counts, means: _Array, enrolled: int | None) -> dict[str, _Array]:
    """The standard error for each target, at the estimate."""
    share = np.clip(means, 0, 1)
    variances = [float(one * (1 - one) / (p[1] - p[0]) ** 2) / n for one in p]
    noise = variances[0] + share * (variances[1] - variances[0])
    found = {REPORTERS: np.sqrt(noise), POPULATION: _spread(p, n, ones)}
    if enrolled is not None and n <= enrolled:
        found[ENROLLED] = np.sqrt(noise + share * (1 - share) * sampling_variance(n, enrolled))
    return found


def sampling_variance(n: int, enrolled: int) -> float:
    """Variance of the mean of a random n of N values that have variance 1: (N - n)/(N - 1)/n."""
    return (enrolled - n) / max(enrolled - 1, 1) / n


def _positions(shares: _Ends, p: _Pair) -> _Ends:
    """Theta where these shares of ones are reported; not clipped."""
    low, high = ((share - float(p[0])) / float(p[1] - p[0]) for share in shares)
    return low, high


def _apart(p: _Pair, n: int, ones: _Counts, tails: Sequence[float]) -> _Ends:
    """Clopper and Pearson's, at least one report away from the count."""
    low, high = clopper_pearson(n, ones, list(tails))
    return _positions((np.minimum(low, (ones - 1) / n), np.maximum(high, (ones + 1) / n)), p)


def _score(p: _Pair, n: int, ones: _Counts, confidences: Sequence[float], enrolled: int) -> _Ends:
    """The roots of (x - theta)^2 = z^2·(noise(theta) + sampling·theta(1 - theta)), x half a report farther out."""
    none, all_ = (float(one * (1 - one) / (p[1] - p[0]) ** 2) / n for one in p)
    bend = sampling_variance(n, enrolled)
    ends = []
    for sign in (-1, 1):
        x, _ = _positions(((ones + sign / 2) / n, ones / n), p)
        rows = []
        for one in confidences:
            square = normal_quantile(one) ** 2
            linear, lead = x + square * (all_ - none + bend) / 2, 1 + square * bend
            inside = np.maximum(linear**2 - lead * (x**2 - square * none), 0)
            rows.append((linear + sign * np.sqrt(inside)) / lead)
        ends.append(np.array(rows))
    return ends[0], ends[1]


def _invert(p: _Pair, n: int, ones: _Counts, tails: Sequence[float]) -> _Ends:
    """Exactly. An upper end is the lower end of the question about zeros."""
    shape = (len(tails), len(ones))
    counts, tail = np.tile(ones, len(tails)), np.repeat(tails, len(ones)) * _SLACK
    yes = [float(one) for one in (p[0], p[1], 1 - p[0], 1 - p[1])]
    no = [yes[3], yes[2], yes[1], yes[0]]
    rows = np.repeat(np.array([yes, no]).T, len(counts), axis=1)
    found = fewest(n, np.concatenate((counts, n - counts)), rows, np.tile(tail, 2))
    low, high = found[: len(counts)], n - found[len(counts) :]
    return low.reshape(shape) / n, high.reshape(shape) / n
