"""`laplace`: Σk, Σk², then for each rung r of `LADDER` the winsorised sums.

These are Σ of k moved into [-t, m + t], and how many were moved, t = `threshold(mechanism, r)`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, exp, isfinite, log, sinh, sqrt
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
from hush_aggregator.estimate.units import Units
from hush_aggregator.tally import Tally
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
_Half = tuple[float, str]
"""A half-width in steps, and how it was made."""

_FASTEST = 0.95


@dataclass(frozen=True)
class _Mean:
    """A mean of reports: those of group c, n_c ≥ 1 of them, weigh w_c/n_c each, Σ w_c = 1."""

    parts: Sequence[Part]
    weights: Sequence[Fraction]

    @cached_property
    def center(self) -> Fraction:
        """In steps."""
        if len(self.parts) == 1:
            ((_, tally),) = self.parts
            return Fraction(tally.moments[0], tally.n)
        means = (Fraction(tally.moments[0], tally.n) for _, tally in self.parts)
        return sum((w * mean for w, mean in zip(self.weights, means, strict=True)), Fraction(0))

    @cached_property
    def shares(self) -> list[float]:
        if len(self.parts) == 1:
            return [1 / self.parts[0][1].n]
        return [float(weight / tally.n) for weight, (_, tally) in zip(self.weights, self.parts, strict=True)]

    @cached_property
    def scales(self) -> Scales:
        """Of the noise in it, in steps."""
        return tuple((sqrt(m.variance / 2) * a, t.n) for a, (m, t) in zip(self.shares, self.parts, strict=True))

    @cached_property
    def noise(self) -> float:
        """Variance of the noise in it."""
        return sum(2 * n * b**2 for b, n in self.scales)

    @cached_property
    def values(self) -> float:
        """Largest variance of the values in it, were they independent; in squares of the range."""
        return sum(a**2 * tally.n for a, (_, tally) in zip(self.shares, self.parts, strict=True)) / 4


def estimate_mean(
    parts: Sequence[Part], domain: NumberDomain, confidence: float, enrolled: int | None = None
) -> Estimate:
    """The mean and its error bars; this module's docstring specifies them."""
    several = len(parts) > 1
    parts = [part for part in parts if part[1].n]
    n, steps, units = sum(tally.n for _, tally in parts), parts[0][0].steps, Units.of(domain)
    plain = _Mean(parts, [Fraction(tally.n, n) for _, tally in parts])
    people = _Mean(parts, _pooling_weights(parts)) if several else plain
    sizes = tuple((mechanism, tally.n) for mechanism, tally in parts)
    many = is_many(sizes, confidence)
    reach = float(Fraction(steps + max(mechanism.window for mechanism, _ in parts), steps))
    spreads = {REPORTERS: plain.noise, POPULATION: _population_variance(people, many=many)}
    makers: dict[str, tuple[_Mean, Callable[[], _Half]]] = {
        REPORTERS: (plain, lambda: _reporters(plain, confidence, several=several)),
        POPULATION: (people, lambda: _population(people, confidence, many=many, several=several)),
        ANYTIME: (plain, lambda: (_band(sizes, confidence, values=0) / n, f"{REPORTERS}-laplace-mixture")),
        ANYTIME_POPULATION: (
            plain,
            lambda: (_band(sizes, confidence, values=steps) / n, f"{POPULATION}-laplace-hoeffding-mixture"),
        ),
    }
    if enrolled is not None and enrolled >= n:
        spreads[ENROLLED] = _enrolled_variance(plain, enrolled, many=many)
        makers[ENROLLED] = (plain, lambda: _enrolled(plain, enrolled, confidence, many=many))
    failures: dict[str, str] = {}
    found: dict[str, Interval] = {}
    methods: dict[str, str] = {}
    for target, (mean, make) in makers.items():
        made = attempt(failures, target, make, lambda made: isfinite(made[0]))
        if made is not None:
            half, methods[target] = made
            found[target] = units.interval_about(mean.center, half, half, steps)
    part = PartEstimate(
        n=n,
        mean=units.value(plain.center, steps),
        stderr={target: units.length(sqrt(variance), steps) for target, variance in spreads.items()},
        worst_case_bias=_bias(n, reach, units),
        intervals=found,
        methods=methods,
        failures=failures,
    )
    pooled = _about(people, units) if several else None
    return Estimate(n, (part,), _monitor(parts), _winsorised(parts, units), pooled)


def _pooling_weights(parts: Sequence[Part]) -> list[Fraction]:
    raw = [tally.n / (mechanism.variance + mechanism.steps**2 / 12) for mechanism, tally in parts]
    weights = [Fraction(weight / sum(raw)) for weight in raw]
    return [weight / sum(weights) for weight in weights]  # exactly 1 in sum: else the mean is biased


def _about(pooled: _Mean, units: Units) -> PooledMean:
    named = zip(pooled.weights, pooled.parts, strict=True)
    return PooledMean(
        mean=units.value(pooled.center, pooled.parts[0][0].steps),
        weights={decimal_text(mechanism.epsilon): float(weight) for weight, (mechanism, _) in named},
        assumes="the choice of an epsilon is unrelated to the value",
    )


def _reporters(mean: _Mean, confidence: float, *, several: bool) -> _Half:
    return mixed_laplace_quantile(mean.scales, confidence), "laplace-mixed-exact" if several else "laplace-exact"


def _population(mean: _Mean, confidence: float, *, many: bool, several: bool) -> _Half:
    if many:
        freedom = min(tally.n for _, tally in mean.parts) - 1
        half = student_quantile(freedom, confidence) * sqrt(_population_variance(mean, many=True))
        return half, "pooled-student-t" if several else "student-t"
    steps = mean.parts[0][0].steps
    spread = mean.values * steps**2
    half, how = noise_and_sampling(mean.scales, (spread, spread), max(mean.shares) * steps, confidence)
    return half, f"{'pooled' if several else 'laplace'}-{how}"


def _population_variance(mean: _Mean, *, many: bool) -> float:
    if not many:
        return mean.noise + mean.values * mean.parts[0][0].steps ** 2
    return sum(
        share**2 * tally.n * max(_sample_variance([tally]), mechanism.variance)
        for share, (mechanism, tally) in zip(mean.shares, mean.parts, strict=True)
    )


def _enrolled(mean: _Mean, enrolled: int, confidence: float, *, many: bool) -> _Half:
    n, steps = sum(tally.n for _, tally in mean.parts), mean.parts[0][0].steps
    if many:
        half = student_quantile(n - 1, confidence) * sqrt(_enrolled_variance(mean, enrolled, many=True))
        return half, "finite-student-t"
    proxy, variance = (steps**2 * spread for spread in finite_spread(n, enrolled))
    half, how = noise_and_sampling(mean.scales, (proxy, variance), steps / n, confidence)
    return half, "laplace-serfling" if how == HOEFFDING else f"finite-{how}"


def _enrolled_variance(mean: _Mean, enrolled: int, *, many: bool) -> float:
    n = sum(tally.n for _, tally in mean.parts)
    if not many:
        return mean.noise + finite_spread(n, enrolled)[1] * mean.parts[0][0].steps ** 2
    seen = max(_sample_variance([tally for _, tally in mean.parts]) / n, mean.noise)
    return seen * (1 - n / enrolled) + mean.noise * n / enrolled


@lru_cache(maxsize=64)
def _bias(n: int, reach: float, units: Units) -> dict[str, float]:
    return {lies: units.length(share) for lies, share in worst_case_bias(n, reach).items()}


def _sample_variance(tallies: Sequence[Tally]) -> float:
    n, total, squares = (sum(column) for column in zip(*((t.n, *t.moments[:2]) for t in tallies), strict=True))
    return _variance_of(n, total, squares)


@lru_cache(maxsize=64)  # the monitor and the intervals ask for the same one
def _variance_of(n: int, total: int, squares: int) -> float:
    return (n * squares - total**2) / (n * (n - 1))  # of integers: rounded once, as a fraction is


@lru_cache(maxsize=64)
def _band(sizes: tuple[tuple[Laplace, int], ...], confidence: float, *, values: int) -> float:
    """How far the sum of noise, and of values in a range of `values` less their mean, stays from 0 at all times."""
    unit = float(max(mechanism.scale for mechanism, _ in sizes))
    rates = _FASTEST * RATES  # in units of 1/scale of the least epsilon
    exponents = sum(n for _, n in sizes) * (rates * (values / unit)) ** 2 / 8
    for mechanism, n in sizes:
        h = float(1 / mechanism.scale)
        ratio = np.sinh(rates / unit / 2) / sinh(h / 2)
        exponents = exponents - n * np.log1p(-(ratio**2))
    return symmetric_mixture_deviation(rates, exponents, confidence) * unit


def _monitor(parts: Sequence[Part]) -> str | None:
    return worst_verdict(
        variance_monitor(tally.n, _sample_variance([tally]), mechanism.variance, mechanism.steps)
        for mechanism, tally in parts
        if tally.n > 1
    )


def _winsorised(parts: Sequence[Part], units: Units) -> WinsorisedMean:
    """The mean with reports moved to at most ln n noise scales beyond the grid; how many; what honest noise loses."""
    n, steps = sum(tally.n for _, tally in parts), parts[0][0].steps
    step = rung(n)
    total, touched, loss, reach = 0, 0, 0.0, 0
    for mechanism, tally in parts:
        h, beyond = float(1 / mechanism.scale), threshold(mechanism, step)
        total += tally.moments[2 * step]
        touched += tally.moments[2 * step + 1]
        loss += tally.n / n * exp(-beyond * h) / (2 * sinh(h))
        reach = max(reach, beyond)
    return WinsorisedMean(
        mean=units.value(Fraction(total), n * steps),
        touched=touched,
        threshold=units.length(reach, steps),
        bias_bound=units.length(loss, steps),
    )


_SAFE = 1 << 62
_FEW = 8
_EXACT = 1 << 53  # floats below it are exact integers


def columns(_: Laplace) -> int:
    return 2 + 2 * len(LADDER)


def possible(_: Laplace, tally: Tally) -> bool:
    sums = tally.moments
    return tally.n * sums[1] >= sums[0] ** 2 and all(0 <= moved <= tally.n for moved in sums[3::2])


def estimate(parts: Sequence[tuple[Laplace, Tally]], request: EstimateRequest) -> Estimate:
    (number,) = request.domain.numbers
    return estimate_mean(parts, number, request.confidence, request.enrolled_of(parts))


def said(_: Laplace, domain: NumberDomain, bodies: NDArray[np.int64], __: int) -> NDArray[np.float64]:
    return domain.lower + bodies[:, 0].astype(np.float64) * float(domain.step)


def spread(_: Laplace, __: NumberDomain, ___: Tally, ____: int) -> None:
    """None: of reports without number a tally has sums."""


def in_words(mechanism: Laplace, domain: NumberDomain, bodies: NDArray[np.int64]) -> list[str]:
    return in_words_of(said(mechanism, domain, bodies, 0))


def worst(mechanism: Laplace, people: int, assumed: Assumed, _: int) -> tuple[float, tuple[int, ...]]:
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
