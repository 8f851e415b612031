"""Estimates from randomized response: the proportion of ones among bits.

Of n reports K are ones. A device of bit x reports 1 with probability p_x, 0 < p_0 < p_1 < 1 (any two weights).

Mean. (K/n - p_0)/(p_1 - p_0): unbiased for both targets, computed as a fraction, rounded once.

`reporters`. With j true ones K is distributed as Bin(j, p_1) + Bin(n-j, p_0), whose tails are monotone in j.
"binomial-inversion", at every n: all j with P(≥ K | j) > alpha/2 and P(≤ K | j) > alpha/2, over n (`inversion`).
Coverage is at least the confidence at every n and every j, without any approximation.
The set is empty in one case only: K lies beyond what n true ones, or none, make likely (P(≥ K | n) ≤ alpha/2, or
P(≤ K | 0) ≤ alpha/2). (No other gap exists: one more true one raises K by at most one, so P(≤ K | j) ≥ P(< K | j-1) =
1 - P(≥ K | j-1), and where j - 1 is refused because it makes this many ones unlikely, j is not refused because it
makes this few unlikely.) Then the nearest boundary takes its place, before the rule of the last paragraph.
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

All of this holds for any reported yes or no (`proportions`), so it is computed for arrays of counts (`quantiles`): one
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

from hush_aggregator.estimate.bounded_mean import Batch, is_normal
from hush_aggregator.estimate.diagnostics import finite_monitor, finite_monitors, worst_case_bias, worst_verdict
from hush_aggregator.estimate.estimates import (
    ANYTIME,
    ANYTIME_POPULATION,
    ENROLLED,
    POPULATION,
    REPORTERS,
    Estimate,
    Interval,
    PartEstimate,
)
from hush_aggregator.estimate.finite_channel import FiniteChannel, finite
from hush_aggregator.estimate.intervals.chernoff import Sizes, bands
from hush_aggregator.estimate.intervals.inversion import fewest
from hush_aggregator.estimate.intervals.lattice import lattices, widened
from hush_aggregator.estimate.intervals.student_score import enough
from hush_aggregator.estimate.intervals.tilted import tilted_limits
from hush_aggregator.estimate.numerics.guard import attempt
from hush_aggregator.estimate.numerics.quantiles import beta_band, clopper_pearson, normal_quantile, student_quantile
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.estimate.units import around
from hush_common.mechanisms import Mechanism

MOST_INVERTED = 128
"""Most questions for each of which a sum of two binomials is inverted."""

_LEAST = 1e-300
_SLACK = 1 - 1e-9  # a tail that equals alpha/2 but for its rounding is not refused

_Pair: TypeAlias = tuple[Fraction, Fraction]
_Array: TypeAlias = NDArray[np.float64]
_Counts: TypeAlias = NDArray[np.int64]
_Ends: TypeAlias = tuple[_Array, _Array]
_Intervals: TypeAlias = dict[str, Interval]


def estimate_alone(mechanism: Mechanism, tally: Tally, confidence: float, *, enrolled: int | None = None) -> Estimate:
    """The proportion of ones and its error bars of n ≥ 1 reports; this module's docstring specifies them."""
    (ones,) = tally.moments
    channel = finite(mechanism)
    found = proportions(channel.of_yes, tally.n, [ones], [confidence], enrolled=enrolled)
    return found.estimate(tally.n, channel.reach, finite_monitor(channel, (tally.n - ones, ones)))


@dataclass(frozen=True, slots=True)
class Proportions:
    """Estimates of several questions, in their order; `intervals` has a list of them for each confidence."""

    mean: list[float]
    stderr: list[dict[str, float]]
    stderr_plug_in: list[dict[str, float]]
    intervals: list[list[_Intervals]]
    methods: dict[str, str]
    failures: dict[str, str] = field(default_factory=dict)

    def estimate(self, n: int, reach: float, monitor: str | None, labels: Sequence[str] = ("",)) -> Estimate:
        """Return the estimate with these parts: one for each label, or the one of a bit.

        Of several, the second confidence is that of the joint intervals.
        """
        alone, *joint = self.intervals
        bias = worst_case_bias(n, reach)
        parts = tuple(
            PartEstimate(
                name=label,
                n=n,
                mean=self.mean[place],
                stderr=self.stderr[place],
                stderr_plug_in=self.stderr_plug_in[place],
                intervals=alone[place],
                methods=self.methods,
                joint_intervals=joint[0][place] if joint else {},
                worst_case_bias=bias,
                failures={} if joint else self.failures,
            )
            for place, label in enumerate(labels)
        )
        return Estimate(n, parts, monitor, failures=self.failures if joint else {})


def estimate_each(
    mechanism: Mechanism, n: int, tallies: Sequence[Tally], confidence: float, *, enrolled: int | None = None
) -> list[Estimate]:
    """The estimates of several tallies of n ≥ 1 reports each, as `estimate_alone` makes them."""
    ones, channel = [tally.moments[0] for tally in tallies], finite(mechanism)
    found = proportions(channel.of_yes, n, ones, [confidence], enrolled=enrolled, alike=1)
    if found.failures:  # an interval that one of them lacks
        return [estimate_alone(mechanism, tally, confidence, enrolled=enrolled) for tally in tallies]
    monitors = finite_monitors(channel, np.array([(n - one, one) for one in ones]), together=1)
    bias = worst_case_bias(n, channel.reach)
    return [
        Estimate(
            n,
            (
                PartEstimate(
                    n=n,
                    mean=found.mean[place],
                    stderr=found.stderr[place],
                    stderr_plug_in=found.stderr_plug_in[place],
                    intervals=found.intervals[0][place],
                    methods=found.methods,
                    worst_case_bias=bias,
                ),
            ),
            monitors[place] if monitors else None,
        )
        for place in range(len(ones))
    ]


def proportions(
    p: _Pair,
    n: int,
    counts: Sequence[int],
    confidences: Sequence[float],
    *,
    enrolled: int | None = None,
    alike: int | None = None,
) -> Proportions:
    """The share of those for whom it is true, for yes-or-no questions with the same probabilities.

    `p` are the probabilities of a reported yes where it is false, and where it is true; `counts` the reported yes of
    each question. The sums of more than `MOST_INVERTED` questions of one tally are not inverted; `alike` is how many
    questions a tally has, if `counts` are not those of one.
    """
    ones, which = np.unique(np.array(counts, dtype=np.int64), return_inverse=True)
    means = np.array(list(_means(p, n, ones.tolist())))
    makers = _makers(p, n, ones, confidences, enrolled, alike=len(counts) if alike is None else alike)
    errors = _deviations(p, n, ones, means, enrolled)
    return _made(means, makers, (errors, errors), len(confidences), which)


def _made(
    means: _Array,
    makers: "Mapping[str, _Maker]",
    errors: tuple[Mapping[str, _Array], Mapping[str, _Array]],
    levels: int,
    which: NDArray[np.intp],
) -> Proportions:
    """The estimates with their intervals at several confidences; question i is number `which[i]` of the arrays."""
    failures: dict[str, str] = {}
    kept: dict[str, _Ends] = {}
    shared: dict[int, _Ends] = {}  # several targets may have one interval
    for target, (_, make) in makers.items():
        ends = shared.get(id(make)) or attempt(failures, target, make, lambda pair: np.isfinite(pair).all())
        if ends is not None:
            shared[id(make)] = ends
            kept[target] = around(means, *ends)
    stderr, plug_in = (each(one, which) for one in errors)
    return Proportions(
        mean=means[which].tolist(),
        stderr=stderr,
        stderr_plug_in=plug_in,
        intervals=[each_interval(kept, at, which) for at in range(levels)],
        methods={target: makers[target][0] for target in kept},
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


Part: TypeAlias = tuple[Mechanism, Tally]
_Parts: TypeAlias = Sequence[tuple[FiniteChannel, int, Sequence[int]]]
_Maker: TypeAlias = tuple[str, Callable[[], _Ends]]


def estimate_proportion(parts: Sequence[Part], confidence: float, *, enrolled: int | None = None) -> Estimate:
    """The proportion of ones and its error bars, of at least one report."""
    parts = [part for part in parts if part[1].n]
    if len(parts) == 1:
        ((mechanism, tally),) = parts
        return estimate_alone(mechanism, tally, confidence, enrolled=enrolled)
    groups = [(finite(mechanism), tally.n, tally.moments[0]) for mechanism, tally in parts]
    found = pooled_proportions([(channel, n, [ones]) for channel, n, ones in groups], [confidence], enrolled=enrolled)
    n = sum(size for _, size, _ in groups)
    monitor = worst_verdict(finite_monitor(channel, (size - ones, ones)) for channel, size, ones in groups)
    return found.estimate(n, max(channel.reach for channel, _, _ in groups), monitor)


def pooled_proportions(parts: _Parts, confidences: Sequence[float], *, enrolled: int | None = None) -> Proportions:
    """The share of those for whom it is true, of each question.

    Group c has n_c of N reports, each of which is decoded as in `finite`. The mean of all decoded reports weighs every
    person alike; it is unbiased for both targets no matter who chose which epsilon.

    - "chernoff-berry-esseen" (`tilted`): at every n and confidence, for `reporters`, `population` and `enrolled`.
    - "student-t" (population), "student-t-capped" (reporters) and "student-t-enrolled": where the mean is close to
      normal (`sample.is_normal`, which knows n, the channels and the confidence), as in `bounded_mean`.
    - `anytime` and `anytime_population`: as in `bounded_mean`.

    Standard errors. Reporters and `enrolled`: at the estimated mean moved into [0, 1]. Population: of each group at its
    share of yes moved into [q, p]. `stderr_plug_in`: at the estimated mean for all three.
    """
    sizes = tuple((channel, size) for channel, size, _ in parts)
    n = sum(size for _, size in sizes)
    means = _pooled_means(parts, n)
    if enrolled is not None and n > enrolled:
        enrolled = None
    makers = _bands(sizes, means, confidences)
    variances = _variances(parts, means, n, enrolled)
    if all(is_normal(sizes, one) for one in confidences):
        makers |= {
            target: (f"student-t{suffix}", partial(_student, parts, means, variances[target], confidences, answered))
            for target, suffix, answered in (
                (REPORTERS, "-capped", 1.0),
                (POPULATION, "", 0.0),
                (ENROLLED, "-enrolled", n / (enrolled or n)),
            )
            if target in variances
        }
    else:
        name = "chernoff-berry-esseen"
        own, common = (partial(tilted_limits, sizes, means, confidences, whole=whole) for whole in (True, False))
        makers |= {target: (name, own if target == REPORTERS else common) for target in variances}
    plug_in = _pooled_plug_in(sizes, means, n, enrolled)
    errors = plug_in | {POPULATION: _sample_error(parts, n)}, plug_in
    return _made(means, makers, errors, len(confidences), np.arange(len(means)))


def _pooled_means(parts: _Parts, n: int) -> _Array:
    """Sums of exact integers over one unit a group; the groups are added as floats."""
    total = np.zeros(len(parts[0][2]))
    for channel, size, yes in parts:
        (no_at, yes_at), unit = channel.scaled
        total += [((size - count) * no_at + count * yes_at) / (unit * n) for count in yes]
    return total


def _bands(sizes: Sizes, means: _Array, confidences: Sequence[float]) -> dict[str, _Maker]:
    asked = Batch(bands)
    promised = {sampling: [asked.ask((sizes, one, sampling)) for one in confidences] for sampling in (False, True)}

    def ends(*, sampling: bool) -> _Ends:
        reach = np.array([answer() for answer in promised[sampling]])
        return means - reach[:, :1], means + reach[:, 1:]

    return {
        ANYTIME: (f"{REPORTERS}-chernoff-mixture", partial(ends, sampling=False)),
        ANYTIME_POPULATION: (f"{POPULATION}-chernoff-hoeffding-mixture", partial(ends, sampling=True)),
    }


def _variances(parts: _Parts, means: _Array, n: int, enrolled: int | None) -> dict[str, _Array]:
    """Of a report: the sample's, not below what noise there is at least; and less what is noise at most."""
    squares = np.zeros(len(means))
    for channel, size, yes in parts:
        count = np.array(yes, dtype=float)
        squares += (size - count) * (channel.a[0] - means) ** 2 + count * (channel.a[1] - means) ** 2
    least, most = (sum(size * bound for size, bound in _noises(parts, at)) / n for at in (min, max))
    sample = np.maximum(squares / max(n - 1, 1), least)
    beyond = np.maximum(sample - most, 0)
    found = {REPORTERS: sample - beyond, POPULATION: sample}
    return found if enrolled is None else found | {ENROLLED: sample - n / enrolled * beyond}


def _noises(parts: _Parts, bound: Callable[[Sequence[float]], float]) -> list[tuple[int, float]]:
    return [(size, float(bound(channel.noise.tolist()))) for channel, size, _ in parts]


def _student(parts: _Parts, means: _Array, variance: _Array, confidences: Sequence[float], answered: float) -> _Ends:
    sizes = tuple((channel, size) for channel, size, _ in parts)
    n = sum(size for _, size in sizes)
    quantiles = [student_quantile(n - 1, one) for one in confidences]
    deviation = np.sqrt(variance * n)
    shortest = min(quantiles) * float(deviation.min())
    found = lattices(sizes, shortest, seen=partial(_seen, parts), answered=answered)
    half = np.array([widened(t * deviation, t, found) for t in quantiles]) / n
    return means - half, means + half


def _seen(parts: _Parts) -> list[_Array]:
    yes = [(size, np.array(some, dtype=float)) for _, size, some in parts]
    return [np.stack((size - some, some), axis=1) for size, some in yes]


def _sample_error(parts: _Parts, n: int) -> _Array:
    people = np.zeros(len(parts[0][2]))
    for channel, size, yes in parts:
        (q, p), (no_q, no_p) = channel.p[:, 1], channel.p[:, 0]
        share = np.array(yes, dtype=float) / size
        people += size * np.clip(share, q, p) * np.clip(1 - share, no_p, no_q) * (channel.a[1] - channel.a[0]) ** 2
    return np.asarray(np.sqrt(people) / n)


def _pooled_plug_in(sizes: Sizes, means: _Array, n: int, enrolled: int | None) -> dict[str, _Array]:
    share = np.clip(means, 0, 1)
    none, all_ = (sum(size * float(channel.noise[at]) for channel, size in sizes) / n**2 for at in (0, -1))
    noise, spread = none + share * (all_ - none), share * (1 - share)
    found = {REPORTERS: np.sqrt(noise), POPULATION: np.sqrt(noise + spread / n)}
    if enrolled is not None:
        found[ENROLLED] = np.sqrt(noise + spread * sampling_variance(n, enrolled))
    return found
