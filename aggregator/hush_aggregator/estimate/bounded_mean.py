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
- "student-score" (population, normal): `student_score`. "student-score-capped" (reporters, normal): the same with the
  largest V for s^2, unless s^2 is clearly below it. The sample variance estimates an upper bound of the mean V, because
  it also has the spread of the values in it.
Several groups:
- "chernoff-berry-esseen" (both targets, not normal, all of two outputs): `tilted`.
- "betting" (population), and one of the three (reporters): not normal, and any of more outputs.
- "student-t" (population, normal): t·s/sqrt(N), s^2 the sample variance of all reports, not below the mean of the
  smallest V. "student-t-capped" (reporters, normal): the same with s^2 not above the mean of the largest V.
These four are approximate; at such sizes the mean of bounded reports is close to normal whatever the values are
(docs/statistics.md has the coverage).

`enrolled`, the mean of N' devices of which a random subset answered (g = 1 - N/N'): what holds at every n for the
population holds for a random subset too, and is taken as it is ("clopper-pearson-hoeffding" for Clopper and Pearson's);
the normal ones take s^2 less (1 - g)·(s^2 - max V) where s^2 is above max V (under one epsilon: where it is not clearly
below), for at most max V of s^2 is noise: "student-score-enrolled", "student-t-enrolled".

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
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from math import expm1, lcm, log, sqrt
from operator import mul
from typing import Generic, NamedTuple, TypeVar

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
from hush_aggregator.estimate.intervals.student_score import enough, score_of, skewness_loss
from hush_aggregator.estimate.intervals.tilted import tilted_limits
from hush_aggregator.estimate.numerics.guard import are_finite, attempt
from hush_aggregator.estimate.numerics.quantiles import clopper_pearson_shares, student_quantiles
from hush_aggregator.estimate.units import Units

_USUAL = 0.95
_DOUBT = 2.5
"""Deviations below max V from which on a sample variance is a sign that the noise is less (`student_score`)."""

_Pair = tuple[float, float]


@lru_cache(maxsize=64)
def is_normal(sizes: Sizes, confidence: float) -> bool:
    """Whether the mean of n reports is close to normal, far enough out for this confidence."""
    reach = max(channel.reach for channel, _ in sizes)
    return sum(size * channel.variances[0] for channel, size in sizes) >= enough(confidence) * reach**2


@lru_cache(maxsize=64)
def _noises(sizes: Sizes) -> _Pair:
    """Bounds of the mean variance of a report given its value."""
    n = sum(size for _, size in sizes)
    low, high = (sum(size * channel.variances[at] for channel, size in sizes) / n for at in (0, 1))
    return low, high


@lru_cache(maxsize=64)
def _deviation_of_variance(sizes: Sizes) -> float:
    """Of the sample variance, where every report is as noisy as its channel allows."""
    n = sum(size for _, size in sizes)
    fourth = sum(size * channel.fourth_moment for channel, size in sizes) / n
    return sqrt(max(fourth - _noises(sizes)[1] ** 2, 0.0) / n)


class Group:
    """The reports of one channel: how often each output came.

    `total` is the sum of the decoded positions, counted as `FiniteChannel.scaled` does.
    """

    def __init__(self, channel: FiniteChannel, counts: tuple[int, ...]) -> None:
        self.channel: FiniteChannel = channel
        self.counts: tuple[int, ...] = counts
        self.n: int = sum(counts)
        self.total: int = sum(map(mul, counts, channel.scaled[0]))

    @cached_property
    def squares(self) -> float:
        """The sum of squares of the decoded positions around their mean."""
        (squares,) = _squares(self.channel, [self])
        return squares


def groups_of(channel: FiniteChannel, rows: Sequence[tuple[int, ...]]) -> list[Group]:
    """The reports of one channel in many samples, whose squares are computed at once."""
    groups = [Group(channel, counts) for counts in rows]
    for group, squares in zip(groups, _squares(channel, groups), strict=True):
        vars(group)["squares"] = squares  # where a cached property looks first
    return groups


def _squares(channel: FiniteChannel, groups: Sequence[Group]) -> list[float]:
    unit = channel.scaled[1]
    means = np.array([group.total / (unit * max(group.n, 1)) for group in groups])
    counts = np.array([group.counts for group in groups], dtype=float).take(channel.used, axis=1)
    squares: list[float] = (counts[:, None] @ ((channel.a - means[:, None]) ** 2)[:, :, None]).ravel().tolist()
    return squares


class Sample:
    """All reports of at least one device; empty groups are left out.

    `counted` is the mean as a ratio, whose denominator is the same for all samples of one size, and `variance` that of
    all reports, not below that of the noise.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups: Sequence[Group] = groups
        self.sizes: Sizes = tuple([(group.channel, group.n) for group in groups])
        self.n: int = sum([group.n for group in groups])
        unit = lcm(*[group.channel.scaled[1] for group in groups])
        total = sum([group.total * (unit // group.channel.scaled[1]) for group in groups])
        self.counted: tuple[int, int] = total, unit * self.n
        self.center: Fraction = Fraction(*self.counted)
        squares = sum([group.squares for group in groups])
        if len(groups) > 1:
            means = [Fraction(group.total, group.channel.scaled[1] * group.n) for group in groups]
            squares += sum(group.n * float(mean - self.center) ** 2 for group, mean in zip(groups, means, strict=True))
        self._noise = _noises(self.sizes)
        self.variance: float = max(squares / max(self.n - 1, 1), self._noise[0])

    @property
    def squared_skewness(self) -> float:
        """Of the reports of one channel."""
        (group,) = self.groups
        counts = np.array([group.counts[y] for y in group.channel.used], dtype=float)
        third = float(counts @ (group.channel.a - float(self.center)) ** 3) / self.n
        return third**2 / self.variance**3

    @cached_property
    def reports(self) -> Reports:
        return tuple([(group.channel, group.counts) for group in self.groups])

    def without(self, answered: float, doubt: float = 0.0) -> float:
        """The variance, where that of the values counts but for a share of it: max V and no more is noise for sure.

        Args:
            answered: the share of the values that does not count.
            doubt: deviations below max V down to which a variance is no sign that the noise is less.
        """
        most, deviation = self._noise[1], doubt and _deviation_of_variance(self.sizes)
        return self.variance - answered * (self.variance - most) * (self.variance > most - doubt * deviation)

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
    known = [
        (tuple((channel, sum(counts)) for channel, counts in reports), half_as_often(confidence))
        for reports, confidence in asked
    ]
    different = list(dict.fromkeys(known))  # of many samples of one size there is one
    rates = dict(zip(different, _rates(different), strict=True))
    return noise_limits([(*one, rates[sizes]) for one, sizes in zip(asked, known, strict=True)])


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
_Asked = Callable[[Sample], Callable[[], _Ends]]
_Method = tuple[str, _Asked]
"""The name of a method, and what asks for the ends of its interval, positions, and returns what makes them."""


class IntervalSet(NamedTuple):
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
    sample = Sample([group for group in groups if group.n])
    (made,) = estimate_samples([sample], units, confidence, sampled=sampled, enrolled=enrolled)
    return made


def estimate_samples(
    samples: Sequence[Sample],
    units: Units,
    confidence: float,
    *,
    sampled: bool = False,
    enrolled: int | None = None,
) -> list[Estimate]:
    """The estimates of several samples: their intervals are solved together."""
    batches, designs, pending = Batches(), dict[Sizes, SampleDesign](), []
    for sample in samples:
        design = designs.get(sample.sizes)
        if design is None:
            design = SampleDesign(sample.sizes, units, confidence, batches, sampled=sampled, enrolled=enrolled)
            designs[sample.sizes] = design
        pending.append((design, sample, design.ask(sample)))
    monitors = [[batches.monitor.ask(reports) for reports in sample.reports] for sample in samples]
    return [
        Estimate(sample.n, (design.part(sample, asked()),), worst_verdict(one() for one in monitor))
        for (design, sample, asked), monitor in zip(pending, monitors, strict=True)
    ]


class SampleDesign:
    """What is known before a report is read: the same for all samples of one size, as in a sweep.

    First ask with all samples, then let all be answered: what the same batches are asked is solved together.
    """

    def __init__(
        self,
        sizes: Sizes,
        units: Units,
        confidence: float,
        batches: Batches,
        *,
        sampled: bool = False,
        enrolled: int | None = None,
    ) -> None:
        self._units, self._sampled, self._n = units, sampled, sum(size for _, size in sizes)
        self._enrolled = enrolled if enrolled is not None and self._n <= enrolled else None
        self._fixed = _fixed(sizes, confidence, batches, sampled=sampled, enrolled=self._enrolled)
        name = "chernoff-hoeffding-mixture"
        names = {ANYTIME: f"{REPORTERS}-chernoff-mixture", ANYTIME_POPULATION: f"{POPULATION}-{name}"}
        self._watched = {ANYTIME: f"{POPULATION}-{name}"} if sampled else names
        self._methods = {target: method for target, (method, _) in self._fixed.items()} | self._watched
        self._reaches = {
            target: batches.band.ask((sizes, confidence, sampled or target == ANYTIME_POPULATION))
            for target in self._watched
        }
        self._arms: dict[str, Callable[[int], Interval]] = {}
        self._bias = worst_case_bias(self._n, units.length(max(channel.reach for channel, _ in sizes)))
        self._noise = sqrt(_noises(sizes)[1] / self._n)
        moments = sum(size * channel.second_moment for channel, size in sizes)
        self._deviation = None if is_normal(sizes, _USUAL) else sqrt(moments) / self._n

    def ask(self, sample: Sample) -> Callable[[], IntervalSet]:
        """What makes the intervals of a sample of this size."""
        makers = {asked: asked(sample) for _, asked in self._fixed.values()}  # several targets may have one interval
        return partial(self._made, sample, makers)

    def _made(self, sample: Sample, makers: Mapping[_Asked, Callable[[], _Ends]]) -> IntervalSet:
        failures: dict[str, str] = {}
        found: dict[str, Interval] = {}
        shared: dict[_Asked, Interval] = {}
        for target, (_, asked) in self._fixed.items():
            ends = shared.get(asked) or attempt(
                failures, target, partial(self._around, sample, makers[asked]), are_finite
            )
            if ends is not None:
                found[target] = shared[asked] = ends
        for target in self._watched:
            ends = attempt(failures, target, partial(self._band, sample, target), are_finite)
            if ends is not None:
                found[target] = ends
        methods = {target: self._methods[target] for target in found} if failures else self._methods
        return IntervalSet(found, methods, failures)

    def _around(self, sample: Sample, make: Callable[[], _Ends]) -> Interval:
        return self._units.around(sample.center, *make())

    def _band(self, sample: Sample, target: str) -> Interval:
        center, under = sample.counted
        arms = self._arms.get(target)
        if arms is None:
            arms = self._arms[target] = self._units.arms(under, *self._reaches[target]())
        return arms(center)

    def part(self, sample: Sample, made: IntervalSet, *, name: str = "", unit: str = "") -> PartEstimate:
        """Return the estimate that has these intervals."""
        n, length = self._n, self._units.length
        spread = sqrt(sample.variance / n)
        deviation = spread if self._deviation is None else self._deviation
        stderr = {REPORTERS: deviation if self._sampled else self._noise, POPULATION: deviation}
        plug_in = {REPORTERS: sqrt(sample.without(0.0 if self._sampled else 1.0) / n), POPULATION: spread}
        if self._enrolled is not None:
            answered = n / self._enrolled
            stderr[ENROLLED] = sqrt(answered * stderr[REPORTERS] ** 2 + (1 - answered) * stderr[POPULATION] ** 2)
            plug_in[ENROLLED] = sqrt(sample.without(answered) / n)
        return PartEstimate(
            name=name,
            unit=unit,
            n=n,
            mean=self._units.value_of(*sample.counted),
            stderr={target: length(error) for target, error in stderr.items()},
            stderr_plug_in={target: length(error) for target, error in plug_in.items()},
            intervals=made.intervals,
            methods=made.methods,
            worst_case_bias=self._bias,
            failures=made.failures,
        )


def _fixed(
    sizes: Sizes, confidence: float, batches: Batches, *, sampled: bool, enrolled: int | None
) -> dict[str, _Method]:
    """Of each target the method for one look at n."""
    coins = all(len(channel.used) == 2 for channel, _ in sizes)  # noqa: PLR2004 - two outputs are a coin
    several, n = len(sizes) > 1, sum(size for _, size in sizes)
    if is_normal(sizes, confidence) and (several or not coins or enrolled is not None):
        t = batches.student.ask((n - 1, confidence))
        made = {POPULATION: _normal(sizes, t, 0.0)}
        made = {REPORTERS: made[POPULATION] if sampled else _normal(sizes, t, 1.0), **made}
        if enrolled is not None:
            made[ENROLLED] = _normal(sizes, t, n / enrolled, "-enrolled")
        if several or not coins:
            return made
        coin = _coin(*sizes[0], confidence, batches)
        return made | {target: coin[target] for target in (REPORTERS, POPULATION)}
    if coins and not several:
        made = _coin(*sizes[0], confidence, batches)
    elif coins:
        tilted = "chernoff-berry-esseen", lambda sample: partial(_tilted, sample, confidence)
        made = dict.fromkeys((REPORTERS, POPULATION, ENROLLED), tilted)
    else:
        betting = "betting", lambda sample: batches.betting.ask((sample.reports, confidence))
        made = dict.fromkeys((REPORTERS, POPULATION, ENROLLED), betting)
        if not sampled:
            made[REPORTERS] = _noise(sizes, confidence, batches, betting)
    if enrolled is None:
        del made[ENROLLED]
    return made


def _normal(sizes: Sizes, t: Callable[[], float], answered: float, suffix: str = "") -> _Method:
    """Student's, where the spread of the values counts but for the share of the devices that answered."""
    suffix = suffix or "-capped" * (answered == 1)
    if len(sizes) > 1:
        return "student-t" + suffix, lambda sample: partial(_pooled, sample, t, answered)
    ((channel, n),) = sizes
    ends: list[Callable[[float, float], _Pair]] = []  # the same for all samples, once the quantile is known

    def score(sample: Sample) -> _Ends:
        if not ends:
            ends.append(score_of(channel, n, t(), sampling=1 - answered))
        longer = 1.0
        if answered < 1:  # the noise alone has no such term
            longer += (1 - answered) * skewness_loss(t(), sample.squared_skewness / n)
        low, high = ends[0](float(sample.center), sample.without(answered, _DOUBT) * longer**2)
        more = _on_lattice(sample, (high - low) / 2, t(), answered)
        return low - more, high + more

    return "student-score" + suffix, lambda sample: partial(score, sample)


def _pooled(sample: Sample, t: Callable[[], float], answered: float) -> _Ends:
    half = t() * sqrt(sample.without(answered) / sample.n)
    half_mean = Fraction(half + _on_lattice(sample, half, t(), answered))
    return sample.center - half_mean, sample.center + half_mean


def _on_lattice(sample: Sample, half: float, t: float, answered: float) -> float:
    """By how much both arms of an interval of this half-length grow, because the sum lies on a lattice."""
    total = half * sample.n
    return float(widened(np.array([total]), t, sample.lattices(total, answered))[0] - total) / sample.n


def _noise(sizes: Sizes, confidence: float, batches: Batches, betting: _Method) -> _Method:
    """For the reporters where the mean is not normal: Chernoff's bound of the noise, betting, or both."""
    which = rule(sizes, confidence)
    if which == "betting":
        return betting
    if which == "chernoff":
        noise = batches.chernoff.ask((sizes, confidence))
        return which, lambda sample: partial(_chernoff, sample, noise)
    limits = batches.chernoff_betting
    return which, lambda sample: partial(_inside, sample, limits.ask((sample.reports, confidence)))


def _chernoff(sample: Sample, noise: Callable[[], _Pair]) -> _Ends:
    above, below = noise()
    return sample.center - Fraction(above), sample.center + Fraction(below)


def _inside(sample: Sample, limits: Callable[[], _Pair]) -> _Ends:
    """The limits, on either side of the estimate whatever is rounded."""
    (low, high), center = limits(), sample.center
    over, under = sample.counted
    (least, of_least), (most, of_most) = low.as_integer_ratio(), high.as_integer_ratio()
    return low if least * under <= over * of_least else center, high if most * under >= over * of_most else center


def _tilted(sample: Sample, confidence: float) -> _Ends:
    low, high = tilted_limits(sample.sizes, np.array([float(sample.center)]), [confidence], whole=False)
    return float(low[0, 0]), float(high[0, 0])


def _coin(channel: FiniteChannel, n: int, confidence: float, batches: Batches) -> dict[str, _Method]:
    """Clopper and Pearson's limits: apart from the count by at least one report, or for the population as they are."""
    high = channel.used[1]
    p = (channel.rows[0][high], channel.rows[-1][high])
    unit = lcm(p[0].denominator, p[1].denominator)
    none, contrast = int(p[0] * unit), int((p[1] - p[0]) * unit)

    def position(over: int, under: int) -> Fraction:
        """(over/under - p_0)/(p_1 - p_0), of integers: a fraction for each step takes several times as long."""
        return Fraction(over * unit - none * under, contrast * under)

    def ends(share: Callable[[], _Pair], k: int, apart: int) -> _Ends:
        least, most = (end.as_integer_ratio() for end in share())
        if apart and least[0] * n > (k - apart) * least[1]:
            least = k - apart, n
        if apart and most[0] * n < (k + apart) * most[1]:
            most = k + apart, n
        return position(*least), position(*most)

    def ask(sample: Sample, apart: int) -> Callable[[], _Ends]:
        k = sample.groups[0].counts[high]
        return partial(ends, batches.clopper_pearson.ask((n, k, confidence)), k, apart)

    hoeffding = "clopper-pearson-hoeffding", partial(ask, apart=1)
    return {REPORTERS: hoeffding, POPULATION: ("clopper-pearson", partial(ask, apart=0)), ENROLLED: hoeffding}
