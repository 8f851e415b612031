"""`laplace`: Σk, Σk², then for each rung r of `LADDER` the winsorised sums.

These are Σ of k moved into [-t, m + t], and how many were moved, t = `threshold(mechanism, r)`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from math import ceil, exp, isfinite, lcm, log, sinh, sqrt
from operator import ne

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.diagnostics import variance_monitor, worst_case_bias, worst_verdict
from hush_aggregator.estimate.estimates import (
    ANYTIME,
    ANYTIME_POPULATION,
    ENROLLED,
    POPULATION,
    REPORTERS,
    Estimate,
    Interval,
    PartEstimate,
    PooledMean,
    WinsorisedMean,
)
from hush_aggregator.estimate.finite_channel import RATES, Assumed, Values, quantile
from hush_aggregator.estimate.intervals.anytime import symmetric_mixture_deviation
from hush_aggregator.estimate.intervals.sampling import HOEFFDING, finite_spread, is_many, noise_and_sampling
from hush_aggregator.estimate.mechanisms.analysis import EstimateRequest
from hush_aggregator.estimate.mechanisms.bounded import in_words_of
from hush_aggregator.estimate.numerics.guard import attempt
from hush_aggregator.estimate.numerics.laplace_sums import Scales, mixed_laplace_quantile
from hush_aggregator.estimate.numerics.quantiles import student_quantile
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.estimate.units import Units
from hush_common.domain import NumberDomain
from hush_common.epsilon import decimal_text
from hush_common.mechanisms import Laplace

LADDER = range(1, 25)
"""Winsorising thresholds, in noise scales beyond the grid. The last is enough for e^24 reports."""


def threshold(mechanism: Laplace, rung: int) -> int:
    """How far beyond the grid, in steps, rung `rung` lets a report lie."""
    scale = mechanism.scale
    return -(-rung * scale.numerator // scale.denominator)


def rung(n: int) -> int:
    """The rung for n reports: the smallest that is at least ln n, so that honest noise loses at most b/(2n)."""
    return min(max(ceil(log(max(n, 1))), LADDER[0]), LADDER[-1])


Part = tuple[Laplace, Tally]
_Sizes = tuple[tuple[Laplace, int], ...]
"""Under each epsilon how many reports there are, at least one."""

_Half = tuple[float, str]
"""A half-width in steps, and how it was made."""

_FASTEST = 0.95


@dataclass(frozen=True)
class _Mean:
    """A mean of reports: those of group c, n_c ≥ 1 of them, weigh w_c/n_c each, Σ w_c = 1."""

    sizes: _Sizes
    weights: Sequence[Fraction]

    @cached_property
    def counted(self) -> tuple[int, tuple[int, ...]]:
        """What the center is counted in, a share of a step; and how often each sum of reports counts."""
        each = [weight / n for weight, (_, n) in zip(self.weights, self.sizes, strict=True)]
        unit = lcm(*(share.denominator for share in each))
        return unit, tuple(int(share * unit) for share in each)

    def center(self, tallies: Sequence[Tally]) -> int:
        """The mean, exactly."""
        return sum(tally.moments[0] * times for tally, times in zip(tallies, self.counted[1], strict=True))

    @cached_property
    def shares(self) -> list[float]:
        return [float(weight / n) for weight, (_, n) in zip(self.weights, self.sizes, strict=True)]

    @cached_property
    def scales(self) -> Scales:
        """Of the noise in it, in steps."""
        return tuple((sqrt(m.variance / 2) * a, n) for a, (m, n) in zip(self.shares, self.sizes, strict=True))

    @cached_property
    def noise(self) -> float:
        """Variance of the noise in it."""
        return sum(2 * n * b**2 for b, n in self.scales)

    @cached_property
    def values(self) -> float:
        """Largest variance of the values in it, were they independent; in squares of the range."""
        return sum(a**2 * n for a, (_, n) in zip(self.shares, self.sizes, strict=True)) / 4


def estimate_mean(
    parts: Sequence[Part], domain: NumberDomain, confidence: float, enrolled: int | None = None
) -> Estimate:
    """The mean and its error bars; this module's docstring specifies them."""
    return _design(parts, domain, confidence, enrolled).estimate(parts)


def _design(parts: Sequence[Part], domain: NumberDomain, confidence: float, enrolled: int | None) -> "_Design":
    sizes = tuple((mechanism, tally.n) for mechanism, tally in parts if tally.n)
    return _Design(sizes, domain, confidence, enrolled, several=len(parts) > 1)


class _Design:
    """What is known before a report is read: the same for all samples of one size, as in a sweep.

    That is all but the center, and the length of the intervals that are made with a sample variance.
    """

    def __init__(
        self, sizes: _Sizes, domain: NumberDomain, confidence: float, enrolled: int | None, *, several: bool
    ) -> None:
        self._sizes, self._steps, self._units = sizes, sizes[0][0].steps, Units.of(domain)
        self._n = n = sum(size for _, size in sizes)
        self._enrolled = enrolled if enrolled is not None and enrolled >= n else None
        self._several = several  # epsilons that were offered
        self._plain = _Mean(sizes, [Fraction(size, n) for _, size in sizes])
        self._people = _Mean(sizes, _pooling_weights(sizes)) if self._several else self._plain
        self._many = is_many(sizes, confidence)
        reach = float(Fraction(self._steps + max(mechanism.window for mechanism, _ in sizes), self._steps))
        self._bias = {lies: self._units.length(share) for lies, share in worst_case_bias(n, reach).items()}
        self._rung, *self._winsorising = self._winsorised()
        self._stderr = {target: self._length(sqrt(spread)) for target, spread in self._spreads().items()}
        self._failures: dict[str, str] = {}
        self._methods: dict[str, str] = {}
        self._quantiles: dict[str, float] = {}
        self._around: dict[str, Callable[[int], Interval]] = {}
        for target, make in self._makers(confidence).items():
            made = attempt(self._failures, target, make, lambda made: isfinite(made[0]))
            if made is not None:
                half, self._methods[target] = made
                if self._many and target in (POPULATION, ENROLLED):
                    self._quantiles[target] = half
                else:
                    self._around[target] = self._arms(target, half)

    def _mean(self, target: str) -> _Mean:
        return self._people if target == POPULATION else self._plain

    def _arms(self, target: str, half: float) -> Callable[[int], Interval]:
        return self._units.arms(self._mean(target).counted[0], half, half, self._steps)

    def _length(self, steps: float) -> float:
        return self._units.length(steps, self._steps)

    def _makers(self, confidence: float) -> dict[str, Callable[[], _Half]]:
        """Of each target half of the interval; where that needs a sample variance, Student's quantile."""
        n, names = self._n, (f"{REPORTERS}-laplace-mixture", f"{POPULATION}-laplace-hoeffding-mixture")
        makers: dict[str, Callable[[], _Half]] = {
            REPORTERS: lambda: self._reporters(confidence),
            POPULATION: lambda: self._population(confidence),
            ANYTIME: lambda: (_band(self._sizes, confidence, values=0) / n, names[0]),
            ANYTIME_POPULATION: lambda: (_band(self._sizes, confidence, values=self._steps) / n, names[1]),
        }
        if self._enrolled is not None:
            makers[ENROLLED] = partial(self._of_enrolled, self._enrolled, confidence)
        return makers

    def _reporters(self, confidence: float) -> _Half:
        how = "laplace-mixed-exact" if self._several else "laplace-exact"
        return mixed_laplace_quantile(self._plain.scales, confidence), how

    def _population(self, confidence: float) -> _Half:
        mean, steps = self._people, self._steps
        if self._many:
            quantile = student_quantile(min(n for _, n in self._sizes) - 1, confidence)
            return quantile, "pooled-student-t" if self._several else "student-t"
        spread = mean.values * steps**2
        half, how = noise_and_sampling(mean.scales, (spread, spread), max(mean.shares) * steps, confidence)
        return half, f"{'pooled' if self._several else 'laplace'}-{how}"

    def _of_enrolled(self, enrolled: int, confidence: float) -> _Half:
        if self._many:
            return student_quantile(self._n - 1, confidence), "finite-student-t"
        proxy, variance = (self._steps**2 * spread for spread in finite_spread(self._n, enrolled))
        half, how = noise_and_sampling(self._plain.scales, (proxy, variance), self._steps / self._n, confidence)
        return half, "laplace-serfling" if how == HOEFFDING else f"finite-{how}"

    def _spreads(self) -> dict[str, float]:
        """Of each target the variance of the estimate, unless it is that of the sample."""
        found = {REPORTERS: self._plain.noise}
        if not self._many:
            found[POPULATION] = self._people.noise + self._people.values * self._steps**2
            if self._enrolled is not None:
                found[ENROLLED] = self._plain.noise + finite_spread(self._n, self._enrolled)[1] * self._steps**2
        return found

    def _sample_spreads(self, tallies: Sequence[Tally]) -> dict[str, float]:
        """The others."""
        if not self._many:
            return {}
        columns = zip(self._people.shares, self._sizes, tallies, strict=True)
        found = {
            POPULATION: sum(
                share**2 * n * max(_sample_variance([tally]), mechanism.variance)
                for share, (mechanism, n), tally in columns
            )
        }
        if self._enrolled is not None:
            noise, answered = self._plain.noise, self._n / self._enrolled
            seen = max(_sample_variance(tallies) / self._n, noise)
            found[ENROLLED] = seen * (1 - answered) + noise * self._n / self._enrolled
        return found

    def _winsorised(self) -> tuple[int, float, float]:
        """The rung of the winsorised mean, how far a report counts, and what honest noise loses."""
        step, loss, reach = rung(self._n), 0.0, 0
        for mechanism, n in self._sizes:
            h, beyond = float(1 / mechanism.scale), threshold(mechanism, step)
            loss += n / self._n * exp(-beyond * h) / (2 * sinh(h))
            reach = max(reach, beyond)
        return step, self._length(reach), self._length(loss)

    def estimate(self, parts: Sequence[Part]) -> Estimate:
        """The estimate of a sample of this size."""
        tallies = [tally for _, tally in parts if tally.n]
        spreads, failures = self._sample_spreads(tallies), dict(self._failures)
        center = self._plain.center(tallies)
        pooled = self._people.center(tallies) if self._several else center
        found: dict[str, Interval] = {}
        for target in self._methods:
            make = self._around.get(target)
            if make is None:
                half = attempt(failures, target, partial(self._student, target, spreads), isfinite)
                if half is None:
                    continue
                make = self._arms(target, half)
            found[target] = make(pooled if target == POPULATION else center)
        part = PartEstimate(
            n=self._n,
            mean=self._value(center, self._plain),
            stderr=self._stderr | {target: self._length(sqrt(spread)) for target, spread in spreads.items()},
            worst_case_bias=self._bias,
            intervals=found,
            methods={target: self._methods[target] for target in found},
            failures=failures,
        )
        about = self._about(pooled) if self._several else None
        return Estimate(self._n, (part,), self._monitor(tallies), self._moved(tallies), about)

    def _student(self, target: str, spreads: Mapping[str, float]) -> float:
        return self._quantiles[target] * sqrt(spreads[target])

    def _value(self, center: int, mean: _Mean) -> float:
        return self._units.value_of(center, mean.counted[0] * self._steps)

    def _about(self, pooled: int) -> PooledMean:
        named = zip(self._people.weights, self._sizes, strict=True)
        return PooledMean(
            mean=self._value(pooled, self._people),
            weights={decimal_text(mechanism.epsilon): float(weight) for weight, (mechanism, _) in named},
            assumes="the choice of an epsilon is unrelated to the value",
        )

    def _monitor(self, tallies: Sequence[Tally]) -> str | None:
        return worst_verdict(
            variance_monitor(n, _sample_variance([tally]), mechanism.variance, self._steps)
            for (mechanism, n), tally in zip(self._sizes, tallies, strict=True)
            if n > 1
        )

    def _moved(self, tallies: Sequence[Tally]) -> WinsorisedMean:
        """The mean with reports moved to at most ln n noise scales beyond the grid; how many; what that costs."""
        at = 2 * self._rung
        total, touched = sum(tally.moments[at] for tally in tallies), sum(tally.moments[at + 1] for tally in tallies)
        return WinsorisedMean(self._units.value_of(total, self._n * self._steps), touched, *self._winsorising)


def _pooling_weights(sizes: _Sizes) -> list[Fraction]:
    raw = [n / (mechanism.variance + mechanism.steps**2 / 12) for mechanism, n in sizes]
    weights = [Fraction(weight / sum(raw)) for weight in raw]
    return [weight / sum(weights) for weight in weights]  # exactly 1 in sum: else the mean is biased


def _sample_variance(tallies: Sequence[Tally]) -> float:
    n, total, squares = 0, 0, 0
    for tally in tallies:
        n, total, squares = n + tally.n, total + tally.moments[0], squares + tally.moments[1]
    return (n * squares - total * total) / (n * (n - 1))  # of integers: rounded once, as a fraction is


@lru_cache(maxsize=64)
def _band(sizes: _Sizes, confidence: float, *, values: int) -> float:
    """How far the sum of noise, and of values in a range of `values` less their mean, stays from 0 at all times."""
    unit = float(max(mechanism.scale for mechanism, _ in sizes))
    rates = _FASTEST * RATES  # in units of 1/scale of the least epsilon
    exponents = sum(n for _, n in sizes) * (rates * (values / unit)) ** 2 / 8
    for mechanism, n in sizes:
        h = float(1 / mechanism.scale)
        ratio = np.sinh(rates / unit / 2) / sinh(h / 2)
        exponents = exponents - n * np.log1p(-(ratio**2))
    return symmetric_mixture_deviation(rates, exponents, confidence) * unit


_SAFE = 1 << 62
_FEW = 8
_EXACT = 1 << 53  # floats below it are exact integers


def columns(_: Laplace) -> int:
    return 2 + 2 * len(LADDER)


def possible(_: Laplace, tally: Tally) -> bool:
    sums, moved = tally.moments, tally.moments[3::2]
    return tally.n * sums[1] >= sums[0] ** 2 and min(moved) >= 0 and max(moved) <= tally.n


def estimate(parts: Sequence[tuple[Laplace, Tally]], request: EstimateRequest) -> Estimate:
    (number,) = request.domain.numbers
    return estimate_mean(parts, number, request.confidence, request.enrolled_of(parts))


def estimate_many(samples: Sequence[Sequence[tuple[Laplace, Tally]]], request: EstimateRequest) -> list[Estimate]:
    """The same of several tallies, of which those of one size share a design."""
    (number,) = request.domain.numbers
    asked: dict[tuple[int, ...], _Design] = {}
    found = []
    for parts in samples:
        each = tuple(tally.n for _, tally in parts)
        if each not in asked:
            asked[each] = _design(parts, number, request.confidence, request.enrolled_of(parts))
        found.append(asked[each].estimate(parts))
    return found


def said(_: Laplace, domain: NumberDomain, bodies: NDArray[np.int64], __: int) -> NDArray[np.float64]:
    return domain.lower + bodies[:, 0].astype(np.float64) * float(domain.step)


def spread(_: Laplace, __: NumberDomain, ___: Tally, ____: int) -> None:
    """None: of reports without number a tally has sums."""


def in_words(mechanism: Laplace, domain: NumberDomain, bodies: NDArray[np.int64]) -> list[str]:
    return in_words_of(said(mechanism, domain, bodies, 0))


def worst(mechanism: Laplace, people: int, assumed: Assumed) -> tuple[float, tuple[int, ...]]:
    """Values at the bounds, half at either if nothing is known; the winsorised sums as if no report lay outside."""
    if isinstance(assumed, Values):
        mean, raw = assumed.mean, {order: assumed.moment(order) for order in (2, 4, 6)}
    else:
        mean = 0.5 if assumed is None else assumed
        two = mean * (1 - mean)
        raw = {2: two, 4: two * (1 - 3 * two), 6: two * (1 - 5 * two * (1 - two))}  # about the mean
    b2, values = mechanism.worst_variance / 2, raw[2]
    variance = values + 2 * b2
    fourth = raw[4] + 6 * values * 2 * b2 + 24 * b2**2
    sixth = raw[6] + 15 * raw[4] * 2 * b2 + 15 * values * 24 * b2**2 + 720 * b2**3
    third = sixth - 3 * variance * fourth + 2 * variance**3
    deviation = sqrt((fourth - variance**2) / people)
    sample = variance + quantile(third / people**2 / deviation**3) * deviation
    total = round(people * mean * mechanism.steps)
    squares = round((people - 1) * sample * mechanism.steps**2) + -(-(total**2) // people)
    return mean, (total, squares, *((total, 0) * len(LADDER)))


def fold(mechanism: Laplace, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    reported = bodies[:, 0]
    if len(reported) <= _FEW:
        return _fold_few(mechanism, reported.tolist())
    total = _sum(reported)
    sums = [total, _sum_of_squares(reported)]
    reaches = _reaches(mechanism)
    above = _beyond(reported[reported > mechanism.steps + int(reaches[0])], -mechanism.steps, 1, reaches)
    below = _beyond(reported[reported < -int(reaches[0])], 0, -1, reaches)
    for over, under, reach in zip(above, below, reaches.tolist(), strict=True):
        sums += [total - (over[1] - over[0] * reach) + (under[1] - under[0] * reach), over[0] + under[0]]
    return tuple(sums)


def _fold_few(mechanism: Laplace, reported: list[int]) -> tuple[int, ...]:
    """The same of a few reports, without arrays: a batch may have one report of each of thousands of tasks."""
    total, steps, sums = sum(reported), mechanism.steps, [sum(reported), sum(k * k for k in reported)]
    nearest = threshold(mechanism, LADDER[0])
    if -nearest <= min(reported) and max(reported) <= steps + nearest:
        return (*sums, *((total, 0) * len(LADDER)))
    for reach in _reaches(mechanism).tolist():
        moved = [min(max(k, -reach), steps + reach) for k in reported]
        sums += [sum(moved), sum(map(ne, moved, reported))]
    return tuple(sums)


@lru_cache(maxsize=64)
def _reaches(mechanism: Laplace) -> NDArray[np.int64]:
    return np.array([threshold(mechanism, step) for step in LADDER])


def _beyond(far: NDArray[np.int64], shift: int, sign: int, reaches: NDArray[np.int64]) -> list[tuple[int, int]]:
    """How many of the far reports k lie beyond each reach, sign·(k + shift) out, and the sum of how far they do."""
    if len(far) == 0:
        return [(0, 0)] * len(reaches)
    if max(abs(int(far.max())), abs(int(far.min()))) * len(far) >= _EXACT:
        out = [sign * (k + shift) for k in far.tolist()]
        return [(sum(k > reach for k in out), sum(k for k in out if k > reach)) for reach in reaches.tolist()]
    out_by = sign * (far + shift)
    rungs = np.searchsorted(reaches, out_by)  # how many reaches it exceeds
    counts, sums = (np.bincount(rungs, weights, minlength=len(reaches) + 1) for weights in (None, out_by))
    beyond = (column[:0:-1].cumsum()[::-1].astype(np.int64).tolist() for column in (counts, sums))
    return list(zip(*beyond, strict=True))


def _sum(reported: NDArray[np.int64]) -> int:
    """An exact sum: in 64 bits where it cannot overflow, in Python's integers where it could."""
    largest = max(abs(int(reported.max())), abs(int(reported.min())))
    if largest * len(reported) < _SAFE:
        return int(reported.sum())
    return sum(reported.tolist())


def _sum_of_squares(reported: NDArray[np.int64]) -> int:
    """An exact sum of squares: of as many at a time as cannot overflow."""
    largest = max(abs(int(reported.max())), abs(int(reported.min())), 1)
    together = _SAFE // largest**2
    if together < _FEW:
        return sum(k * k for k in reported.tolist())
    squares = reported * reported
    return sum(np.add.reduceat(squares, np.arange(0, len(squares), together)).tolist())
