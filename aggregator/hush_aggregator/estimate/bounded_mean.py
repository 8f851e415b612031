"""Estimates from bounded reports: `multilevel`, `table`, and whatever comes under several epsilons.

Reports are grouped by channel (`finite`); group c has n_c of N reports. Every report decodes to a position a with
mean x, its value.

Mean. Σ a/N over all groups: every person weighs the same. Unbiased for both targets no matter who chose which epsilon.

Intervals. Let reach be the largest error of a report, and V the variance of one (given its value). "Normal" means
Σ n_c·min V_c ≥ `enough(confidence)`·reach^2: the rule knows n, the channels and the confidence, and never looks at the
reports. Those of the first kind hold at every n and confidence, whatever the values are; none of them collapses when
all reports are equal.

One group with two outputs (two levels):
- "clopper-pearson" (population). The number of upper outputs is binomial.
- "clopper-pearson-hoeffding" (reporters). That number is a sum of unequal coins with mean n·c; its tail at k is at most
  the binomial tail where k ≥ n·c + 1 (Hoeffding 1956). So the limits of Clopper and Pearson hold if they are at least
  one report away from k, and are moved there if they are nearer.
One group with more outputs:
- "betting" (population, not normal): `betting`. It adapts to the variance of the reports.
- "betting", "chernoff" or "chernoff-betting" (reporters, not normal): the betting interval adapts to the noise that
  there is, and Chernoff's bound of the noise leaves out the spread of the values. Which, or the average of both, is a
  public rule (`noise_rule`).
- "student-score" (population, normal): `score`. "student-score-capped" (reporters, normal): the same with s^2 not above
  the largest V. The sample variance estimates an upper bound of the mean V, because it also
  has the spread of the values in it.
Several groups:
- "chernoff-berry-esseen" (both targets, not normal, all of two outputs): `tilted`.
- "betting" (population), and one of the three (reporters): not normal, and any of more outputs.
- "student-t" (population, normal): t·s/sqrt(N), s^2 the sample variance of all reports, not below the mean of the
  smallest V. "student-t-capped" (reporters, normal): the same with s^2 not above the mean of the largest V.
These four are approximate; at such sizes the mean of bounded reports is close to normal whatever the values are
(docs/statistics.md has the coverage).

`enrolled`, the mean of N' devices of which a random subset answered (g = 1 - N/N'): what holds at every n for the
population holds for a random subset too, and is taken as it is ("clopper-pearson-hoeffding" for Clopper and Pearson's);
the normal ones take s^2 less (1 - g)·(s^2 - max V)_+, for at most max V of s^2 is noise: "student-score-enrolled",
"student-t-enrolled".

Bands that may be watched: `anytime` with the noise exponents G_c, for the reporters ("chernoff-mixture"); and with
l^2/8 for the values (Hoeffding 1963), for the population ("chernoff-hoeffding-mixture").

Standard errors. Reporters: by the largest V, an upper bound. Population: of the sample where it is normal at 95 %, else
of the largest variance there can be. `stderr_plug_in` has the deviation of the reports for the population, and the same
with s^2 not above the largest V for the reporters: too small at small n.

Intervals are clipped to the domain, where the targets lie; around an estimate outside it they keep their inner arm
(`Units.around`).

A coordinate of a vector is seen by a random subset of the devices (`sampled`): then both targets take the bound for
the population. In Clopper-Pearson's case the count is again a sum of independent coins, because a symmetric
multiaffine function of stable linear factors is real-rooted (Grace, Walsh and Szegő), and the -hoeffding form holds.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from math import expm1, log, sqrt
from operator import mul
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.diagnostics import each_monitored, finite_monitor, worst_case_bias, worst_verdict
from hush_aggregator.estimate.estimates import (
    ANYTIME,
    ANYTIME_POPULATION,
    ENROLLED,
    POPULATION,
    REPORTERS,
    Estimate,
    Interval,
    Intervals,
    PartEstimate,
)
from hush_aggregator.estimate.finite_channel import FiniteChannel
from hush_aggregator.estimate.intervals.betting import (
    STAKE,
    Reports,
    betting_limits,
    half_as_often,
    noise_limits,
)
from hush_aggregator.estimate.intervals.chernoff import Rates, Sizes, bands, chernoff_rates
from hush_aggregator.estimate.intervals.lattice import Lattice, Spread, lattices, widened
from hush_aggregator.estimate.intervals.student_score import enough, score_ends
from hush_aggregator.estimate.intervals.tilted import tilted_limits
from hush_aggregator.estimate.numerics.guard import are_finite, attempt
from hush_aggregator.estimate.numerics.quantiles import clopper_pearson_shares, student_quantiles
from hush_aggregator.estimate.units import Units

_USUAL = 0.95


@lru_cache(maxsize=64)
def is_normal(sizes: Sizes, confidence: float) -> bool:
    """Whether the mean of n reports is close to normal, far enough out for this confidence."""
    reach = max(channel.reach for channel, _ in sizes)
    return sum(size * channel.variances[0] for channel, size in sizes) >= enough(confidence) * reach**2


@dataclass(frozen=True)
class Group:
    """The reports of one channel: how often each output came."""

    channel: FiniteChannel
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


@dataclass(frozen=True)
class Sample:
    """All reports of at least one device; empty groups are left out."""

    groups: tuple[Group, ...]

    @cached_property
    def sizes(self) -> Sizes:
        return tuple((group.channel, group.n) for group in self.groups)

    @cached_property
    def reports(self) -> Reports:
        return tuple((group.channel, group.counts) for group in self.groups)

    @cached_property
    def n(self) -> int:
        return sum(group.n for group in self.groups)

    @cached_property
    def center(self) -> Fraction:
        return sum((group.total for group in self.groups), Fraction(0)) / self.n

    @cached_property
    def noise(self) -> tuple[float, float]:
        """Bounds of the mean variance of a report given its value."""
        low, high = (sum(size * channel.variances[at] for channel, size in self.sizes) / self.n for at in (0, 1))
        return low, high

    @cached_property
    def variance(self) -> float:
        """Of all reports, not below that of the noise."""
        squares = sum(group.squares for group in self.groups)
        if len(self.groups) > 1:
            squares += sum(group.n * float(group.total / group.n - self.center) ** 2 for group in self.groups)
        return max(squares / max(self.n - 1, 1), self.noise[0])

    def without(self, answered: float) -> float:
        """The variance, where that of the values counts but for a share of it: no more than this is noise for sure."""
        return self.variance - answered * max(self.variance - self.noise[1], 0.0)

    def lattices(self, shortest: float, answered: float) -> list[Lattice]:
        """Those of the sum that show in an interval of this half-length; the values smooth but for a share of them."""
        return lattices(self.sizes, shortest, seen=lambda: self._spread, answered=answered)

    @cached_property
    def _spread(self) -> Spread:
        return Spread(self.sizes, self._seen())

    def _seen(self) -> list[NDArray[np.float64]]:
        return [np.array([[group.counts[y] for y in group.channel.used]], dtype=float) for group in self.groups]

    @property
    def monitor(self) -> str | None:
        """The verdict on the reports."""
        return worst_verdict(finite_monitor(group.channel, group.counts) for group in self.groups)

    def deviation(self) -> float:
        """A standard error for the population: of the sample if it is large, else of the largest variance there is."""
        if is_normal(self.sizes, _USUAL):
            return sqrt(self.variance / self.n)
        return sqrt(sum(size * channel.second_moment for channel, size in self.sizes)) / self.n


Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class Batch(Generic[Q, A]):
    """Questions of one kind; the first answer that is wanted brings those of all that were asked until then."""

    def __init__(self, solve: Callable[[Sequence[Q]], Sequence[A]]) -> None:
        self._solve = solve
        self._open: dict[Q, None] = {}
        self._known: dict[Q, A] = {}

    def ask(self, question: Q) -> Callable[[], A]:
        """What gives the answer, once all questions are asked."""
        self._open[question] = None
        return partial(self._answer, question)

    def _answer(self, question: Q) -> A:
        together, self._open = list(self._open), {}
        if together:
            with suppress(Exception):  # one question must never take the others with it: then each is asked alone
                self._known.update(zip(together, self._solve(together), strict=True))
        if question not in self._known:
            (self._known[question],) = self._solve([question])
        return self._known[question]


_Pair = tuple[float, float]
_FEW = 4
_Q = TypeVar("_Q", bound=Hashable)
_A = TypeVar("_A")


def _remembered(solve: Callable[[Sequence[_Q]], Sequence[_A]]) -> Callable[[Sequence[_Q]], Sequence[_A]]:
    """The same, which knows the last answers: for what depends on how many reports there are, and not on what they say.

    Estimates of many samples of one size, as in a sweep, ask for the same each time. The many questions about a
    vector are not kept.
    """

    @lru_cache(maxsize=256)
    def known(asked: tuple[_Q, ...]) -> tuple[_A, ...]:
        return tuple(solve(asked))

    return lambda asked: known(tuple(asked)) if len(asked) <= _FEW else solve(asked)


_bands = _remembered(bands)
_rates: Callable[[Sequence[tuple[Sizes, float]]], Sequence[Rates]] = _remembered(chernoff_rates)
_students = _remembered(student_quantiles)


def noise_bounds(asked: Sequence[tuple[Sizes, float]]) -> Sequence[_Pair]:
    """Return bounds of the noise; the last answers are cached."""
    return [(above, below) for above, below, _, _ in _rates(asked)]


def _noise_limits(asked: Sequence[tuple[Reports, float]]) -> list[_Pair]:
    sizes = [tuple((channel, sum(counts)) for channel, counts in reports) for reports, _ in asked]
    rates = _rates([(one, half_as_often(confidence)) for one, (_, confidence) in zip(sizes, asked, strict=True)])
    return noise_limits([(*one, bounds) for one, bounds in zip(asked, rates, strict=True)])


@dataclass(frozen=True)
class Batches:
    """Questions of every kind, by what answers them: `Batch.ask` first, and then what it gave."""

    betting: Batch[tuple[Reports, float], _Pair] = field(default_factory=partial(Batch, betting_limits))
    chernoff_betting: Batch[tuple[Reports, float], _Pair] = field(default_factory=partial(Batch, _noise_limits))
    chernoff: Batch[tuple[Sizes, float], _Pair] = field(default_factory=partial(Batch, noise_bounds))
    band: Batch[tuple[Sizes, float, bool], _Pair] = field(default_factory=partial(Batch, _bands))
    clopper_pearson: Batch[tuple[int, int, float], _Pair] = field(
        default_factory=partial(Batch, clopper_pearson_shares)
    )
    student: Batch[tuple[int, float], float] = field(default_factory=partial(Batch, _students))
    monitor: Batch[tuple[FiniteChannel, tuple[int, ...]], str | None] = field(
        default_factory=partial(Batch, each_monitored)
    )


_LITTLE = 1.2


@lru_cache(maxsize=1024)
def rule(sizes: Sizes, confidence: float) -> str:
    """The name of the method.

    Betting is valid for the reporters too, and is then the interval of the population. Its width depends on the
    reports: the least where all are equal, the largest where half of the people are at either bound. Chernoff's depends
    on n, the channels and the confidence alone.

    - "betting": even at its widest it is little wider than Chernoff's bound at alpha/2. Then the two targets have one
      interval.
    - "chernoff": it is narrower than betting could ever be.
    - "chernoff-betting": bets on the noise and Chernoff's, half of the weight each (`noise_limits`). Where all values
      are alike this may be wider than the interval of the population. docs/statistics.md says why, and by how much.

    The rule knows n, the channels and the confidence, and never reads the reports.
    """
    (alone,) = map(sum, noise_bounds([(sizes, confidence)]))
    if alone <= _least_of_betting(sizes, confidence):
        return "chernoff"
    (halved,) = map(sum, noise_bounds([(sizes, half_as_often(confidence))]))
    mirrored = all(channel.symmetric for channel, _ in sizes)
    kinds = (None, 0, 1) if mirrored else (None, 0, 1, 2)
    tallies = [tuple((channel, _counts(channel, n, at)) for channel, n in sizes) for at in kinds]
    widths = [high - low for low, high in betting_limits([(one, confidence) for one in tallies])]
    if widths[0] <= _LITTLE * halved:
        return "betting"
    return "chernoff" if alone <= min(widths[1:]) else "chernoff-betting"


def _least_of_betting(sizes: Sizes, confidence: float) -> float:
    """No betting interval is shorter, were all reports equal and each bet as high as it may be."""
    growth = expm1(log(2 / (1 - confidence)) / sum(n for _, n in sizes)) / STAKE
    ends = [end for channel, _ in sizes for end in (float(channel.a[0]), float(channel.a[-1]))]
    return (max(ends) - min(ends)) * growth / (1 + growth)


def _counts(channel: FiniteChannel, n: int, at: int | None) -> tuple[int, ...]:
    """All of the first output used, the middle one or the last (0, 1, 2); None: half of the people at either bound."""
    law = channel.parted
    if at is not None:
        law = np.zeros(len(channel.used))
        law[at * (len(law) - 1) // 2] = 1
    until = [0, *(round(n * share) for share in np.cumsum(law).tolist())]
    counts = [0] * len(channel.positions)
    for place, (before, after) in zip(channel.used, pairwise(until), strict=True):
        counts[place] = after - before
    return tuple(counts)


_Ends = tuple[float | Fraction, float | Fraction]
_Made = tuple[str, Callable[[], _Ends]]
"""The name of a method, and what makes the ends of its interval: positions."""

_UNNAMED = PartEstimate()


@dataclass(frozen=True, slots=True)
class IntervalSet:
    """Intervals by target, their methods, and why others could not be made."""

    intervals: Intervals
    methods: Mapping[str, str]
    failures: Mapping[str, str]


def estimate(
    groups: Sequence[Group],
    units: Units,
    confidence: float,
    *,
    sampled: bool = False,
    enrolled: int | None = None,
) -> Estimate:
    """The mean and its error bars of at least one report; this module's docstring specifies them."""
    return ask(groups, units, confidence, Batches(), sampled=sampled, enrolled=enrolled)()


def ask(
    groups: Sequence[Group],
    units: Units,
    confidence: float,
    batches: Batches,
    *,
    sampled: bool = False,
    enrolled: int | None = None,
) -> Callable[[], Estimate]:
    """What makes the estimate, once those of all samples that share `batches` are asked for."""
    sample = Sample(tuple(group for group in groups if group.n))
    asked = intervals(sample, units, confidence, batches, sampled=sampled, enrolled=enrolled)
    monitors = [batches.monitor.ask((group.channel, group.counts)) for group in sample.groups]

    def make() -> Estimate:
        part = around(sample, units, asked(), sampled=sampled, enrolled=enrolled)
        return Estimate(sample.n, (part,), worst_verdict(one() for one in monitors))

    return make


def around(
    sample: Sample,
    units: Units,
    made: IntervalSet,
    *,
    sampled: bool,
    enrolled: int | None,
    named: PartEstimate = _UNNAMED,
) -> PartEstimate:
    """Return the estimate that has these intervals, under the name of `named`."""
    deviation, reach = sample.deviation(), max(channel.reach for channel, _ in sample.sizes)
    stderr = {REPORTERS: deviation if sampled else sqrt(sample.noise[1] / sample.n), POPULATION: deviation}
    plug_in = {
        REPORTERS: sqrt(sample.without(0.0 if sampled else 1.0) / sample.n),
        POPULATION: sqrt(sample.variance / sample.n),
    }
    if enrolled is not None:
        answered = sample.n / enrolled
        stderr[ENROLLED] = sqrt(answered * stderr[REPORTERS] ** 2 + (1 - answered) * stderr[POPULATION] ** 2)
        plug_in[ENROLLED] = sqrt(sample.without(answered) / sample.n)
    return replace(
        named,
        n=sample.n,
        mean=units.value(sample.center),
        stderr={target: units.length(error) for target, error in stderr.items()},
        stderr_plug_in={target: units.length(error) for target, error in plug_in.items()},
        intervals=made.intervals,
        methods=made.methods,
        worst_case_bias=worst_case_bias(sample.n, units.length(reach)),
        failures=made.failures,
    )


def intervals(
    sample: Sample, units: Units, confidence: float, batches: Batches, *, sampled: bool, enrolled: int | None
) -> Callable[[], IntervalSet]:
    """What makes the intervals of `estimate`, once those of all samples that share `batches` are asked for."""
    center = sample.center
    fixed = _fixed(sample, confidence, batches, sampled=sampled, enrolled=enrolled)
    wanted = {make: partial(_around, units, center, make) for _, make in fixed.values()}  # of targets that share one
    made: dict[str, tuple[str, Callable[[], Interval]]] = {
        target: (name, wanted[make]) for target, (name, make) in fixed.items()
    }

    def watched(*, sampling: bool) -> Callable[[], Interval]:
        reach = batches.band.ask((sample.sizes, confidence, sampling))
        return lambda: units.interval_about(center, *reach())

    name = "chernoff-hoeffding-mixture"
    if sampled:
        made[ANYTIME] = f"{POPULATION}-{name}", watched(sampling=True)
    else:
        made[ANYTIME] = f"{REPORTERS}-chernoff-mixture", watched(sampling=False)
        made[ANYTIME_POPULATION] = f"{POPULATION}-{name}", watched(sampling=True)
    return partial(_made, made)


def _made(made: dict[str, tuple[str, Callable[[], Interval]]]) -> IntervalSet:
    failures: dict[str, str] = {}
    found: dict[str, Interval] = {}
    shared: dict[int, Interval] = {}  # several targets may have one interval
    for target, (_, make) in made.items():
        ends = shared.get(id(make)) or attempt(failures, target, make, are_finite)
        if ends is not None:
            found[target] = shared[id(make)] = ends
    return IntervalSet(found, {target: made[target][0] for target in found}, failures)


def _around(units: Units, center: Fraction, make: Callable[[], _Ends]) -> tuple[float, float]:
    return units.around(center, *make())


def _fixed(
    sample: Sample, confidence: float, batches: Batches, *, sampled: bool, enrolled: int | None
) -> dict[str, _Made]:
    """Of each target the method for one look at n, and what makes the ends."""
    coins = all(len(channel.used) == 2 for channel, _ in sample.sizes)  # noqa: PLR2004 - two outputs are a coin
    several = len(sample.groups) > 1
    if is_normal(sample.sizes, confidence) and (several or not coins or enrolled is not None):
        t = batches.student.ask((sample.n - 1, confidence))
        made = {POPULATION: _normal(sample, t, 0.0)}
        made = {REPORTERS: made[POPULATION] if sampled else _normal(sample, t, 1.0), **made}
        if enrolled is not None:
            made[ENROLLED] = _normal(sample, t, sample.n / enrolled, "-enrolled")
        if several or not coins:
            return made
        coin = _coin(sample.groups[0], confidence, batches)
        return made | {target: coin[target] for target in (REPORTERS, POPULATION)}
    if coins and not several:
        made = _coin(sample.groups[0], confidence, batches)
    elif coins:
        made = dict.fromkeys(
            (REPORTERS, POPULATION, ENROLLED), ("chernoff-berry-esseen", lambda: _tilted(sample, confidence))
        )
    else:
        betting = batches.betting.ask((sample.reports, confidence))
        made = dict.fromkeys((REPORTERS, POPULATION, ENROLLED), ("betting", betting))
        if not sampled:
            made[REPORTERS] = _noise(sample, confidence, batches)
    if enrolled is None:
        del made[ENROLLED]
    return made


def _normal(sample: Sample, t: Callable[[], float], answered: float, suffix: str = "") -> _Made:
    """Student's, where the spread of the values counts but for the share of the devices that answered."""
    suffix = suffix or "-capped" * (answered == 1)
    variance = sample.without(answered)

    def pooled() -> _Ends:
        half = t() * sqrt(variance * sample.n)
        longer = widened(np.array([half]), t(), sample.lattices(half, answered))
        half_mean = Fraction(float(longer[0])) / sample.n
        return sample.center - half_mean, sample.center + half_mean

    def score() -> _Ends:
        channel, center = sample.groups[0].channel, float(sample.center)
        return score_ends(channel, sample.n, center, variance, t(), sampling=1 - answered)

    return ("student-t" + suffix, pooled) if len(sample.groups) > 1 else ("student-score" + suffix, score)


def _noise(sample: Sample, confidence: float, batches: Batches) -> _Made:
    """For the reporters where the mean is not normal: Chernoff's bound of the noise, betting, or both."""
    which = rule(sample.sizes, confidence)
    if which == "betting":
        return which, batches.betting.ask((sample.reports, confidence))
    if which == "chernoff":
        return which, _chernoff(sample, batches.chernoff.ask((sample.sizes, confidence)))
    return which, _inside(sample, batches.chernoff_betting.ask((sample.reports, confidence)))


def _chernoff(sample: Sample, noise: Callable[[], tuple[float, float]]) -> Callable[[], _Ends]:
    def make() -> _Ends:
        above, below = noise()
        return sample.center - Fraction(above), sample.center + Fraction(below)

    return make


def _inside(sample: Sample, limits: Callable[[], tuple[float, float]]) -> Callable[[], _Ends]:
    """The limits, on either side of the estimate whatever is rounded."""

    def make() -> _Ends:
        (low, high), center = limits(), sample.center
        return min(center, Fraction(low)), max(center, Fraction(high))

    return make


def _tilted(sample: Sample, confidence: float) -> _Ends:
    low, high = tilted_limits(sample.sizes, np.array([float(sample.center)]), [confidence], whole=False)
    return float(low[0, 0]), float(high[0, 0])


def _coin(group: Group, confidence: float, batches: Batches) -> dict[str, _Made]:
    """Clopper and Pearson's limits: apart from the count by at least one report, or for the population as they are."""
    high = group.channel.used[1]
    p = (group.channel.rows[0][high], group.channel.rows[-1][high])
    n, k = group.n, group.counts[high]
    share = batches.clopper_pearson.ask((n, k, confidence))

    def exact() -> _Ends:
        least, most = map(Fraction, share())
        return (least - p[0]) / (p[1] - p[0]), (most - p[0]) / (p[1] - p[0])

    def apart() -> _Ends:
        least, most = map(Fraction, share())
        least, most = min(least, Fraction(k - 1, n)), max(most, Fraction(k + 1, n))
        return (least - p[0]) / (p[1] - p[0]), (most - p[0]) / (p[1] - p[0])

    hoeffding = "clopper-pearson-hoeffding", apart
    return {REPORTERS: hoeffding, POPULATION: ("clopper-pearson", exact), ENROLLED: hoeffding}
