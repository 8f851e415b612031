"""Estimates from discrete Laplace reports: the mean of a bounded number, under one epsilon or several.

A report is k = i + Z in grid steps, i in {0, …, m} the index of the value and Z independent noise of known variance
v = 1/(2·sinh(epsilon/2m)^2). Everything here is in steps, as exact fractions where it matters, and becomes a number of
the domain once, at the end: neither a huge nor a tiny range overflows or underflows on the way.

Mean. lower + step·(Σk)/n: unbiased for every target, exact, rounded once. With several epsilons too: every person
weighs the same, because the mean of *those who answered* allows no other weights, and because it stays unbiased even
if the choice of an epsilon has to do with the value.

`reporters`. The error is the mean of n independent Z. Their law is that of Laplace noise of the scale b = sqrt(v/2) up
to a relative 1/m^2, so the half-width is the exact quantile of a sum of Laplace variables (`mixed`): "laplace-exact",
with several epsilons "laplace-mixed-exact". No assumption about the values, none about n. Standard error sqrt(v/n).

`population`. The reporting devices are an independent sample of a distribution on [lower, upper] (values outside are
counted as the bound they were clamped to). `sampling` has the theorems and the rules, which look at n, epsilon and
confidence alone: choosing the shorter interval would void both.
- "student-t" where the mean of the reports is close to normal: half-width t(n-1, confidence)·s/sqrt(n), s^2 = (nΣk^2 -
  (Σk)^2)/(n(n-1)) exactly, or v where that is larger: reports vary at least as much as their noise, so a smaller s^2
  is known to be too small. (It happens in half of all draws if the values hardly differ; the floor can only add
  coverage.) Standard error s/sqrt(n).
- Below, "laplace-popoviciu" or "laplace-hoeffding": the exact law of the noise, and for the values the most that the
  bounds allow. The sample variance is no guide there: few reports of a skewed value look alike. Standard error
  sqrt((v + m^2/4)/n).
- Several epsilons: "pooled-student-t", "pooled-popoviciu", "pooled-hoeffding" around the mean of weights proportional
  to n_c/(v_c + m^2/12): inverse variances, were values spread evenly; public, so that the weights never look at the
  data. (The sample variance of each, degrees of freedom those of the smallest.) It answers for the population only if
  the choice of an epsilon is unrelated to the value. `pooled` holds that mean and says so.

`enrolled`, where the task says how many devices N ≥ n were asked: the mean of all of them, if those that answered are
a random subset. Around the plain mean, so that the choice of an epsilon may have to do with the value.
"finite-student-t": s^2 estimates noise and values together, and of the values only the part 1 - n/N is uncertain, so
the variance of the mean is (s^2·(1 - n/N) + v·n/N)/n. "finite-popoviciu" and "laplace-serfling" below. At n = N
nothing but the noise is left.

`anytime`, "reporters-laplace-mixture", and `anytime_population`, "population-laplace-hoeffding-mixture" (`anytime`),
with the exact exponent of discrete Laplace noise, psi(l) = -log(1 - (sinh(l/2)/sinh(h/2))^2), h = epsilon/m, l < h.

Beside them: the winsorised mean, its threshold the smallest rung of `ladder.LADDER` that is at least ln n scales.
Honest noise loses at most e^(-t·h)/(2·sinh h) steps by it.

Half a step is added to every half-width, for the values were rounded to the grid: at m = 2^20 a millionth of the
range. Then the interval is clipped to the domain, where all targets lie, so that no coverage is lost; around an
estimate outside the domain it keeps the length of its inner arm (`Units.around`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import exp, sinh, sqrt

import numpy as np

from hush_aggregator.estimate.diagnostics import variance_monitor, worst_case_bias, worst_verdict
from hush_aggregator.estimate.estimates import (
    ANYTIME,
    ANYTIME_POPULATION,
    ENROLLED,
    POPULATION,
    REPORTERS,
    Estimate,
    Interval,
    PooledMean,
    WinsorisedMean,
)
from hush_aggregator.estimate.intervals.anytime import symmetric_mixture_deviation
from hush_aggregator.estimate.intervals.sampling import HOEFFDING, finite_spread, is_many, noise_and_sampling
from hush_aggregator.estimate.ladder import rung, threshold
from hush_aggregator.estimate.numerics.guard import attempt
from hush_aggregator.estimate.numerics.laplace_sums import Scales, mixed_laplace_quantile
from hush_aggregator.estimate.numerics.quantiles import student_quantile
from hush_aggregator.estimate.numerics.rates import RATES
from hush_aggregator.estimate.units import Units
from hush_aggregator.tally import Tally
from hush_common.domain import NumberDomain
from hush_common.epsilon import decimal_text
from hush_common.mechanisms import Laplace

__all__ = ["Part", "estimate"]

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
        means = (Fraction(tally.moments[0], tally.n) for _, tally in self.parts)
        return sum((w * mean for w, mean in zip(self.weights, means, strict=True)), Fraction(0))

    @cached_property
    def shares(self) -> list[float]:
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


def estimate(parts: Sequence[Part], domain: NumberDomain, confidence: float, enrolled: int | None = None) -> Estimate:
    """The mean and its error bars; this module's docstring specifies them.

    Args:
        parts: mechanism and tally of each epsilon that the task offers; at least one has a report.
        domain: what a step is.
        confidence: of each interval.
        enrolled: devices asked, if that is known.
    """
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
        made = attempt(failures, target, make, lambda made: made[0])
        if made is not None:
            ends = ((mean.center - Fraction(made[0])) / steps, (mean.center + Fraction(made[0])) / steps)
            found[target] = units.around(mean.center / steps, *ends)
            methods[target] = made[1]
    return Estimate(
        n=n,
        mean=units.value(plain.center / steps),
        stderr={target: units.length(Fraction(sqrt(variance)) / steps) for target, variance in spreads.items()},
        worst_case_bias={lies: units.length(share) for lies, share in worst_case_bias(n, reach).items()},
        monitor=_monitor(parts),
        winsorised=_winsorised(parts, units),
        pooled=_about(people, units) if several else None,
        intervals=found,
        methods=methods,
        failures=failures,
    )


def _pooling_weights(parts: Sequence[Part]) -> list[Fraction]:
    raw = [tally.n / (mechanism.variance + mechanism.steps**2 / 12) for mechanism, tally in parts]
    weights = [Fraction(weight / sum(raw)) for weight in raw]
    return [weight / sum(weights) for weight in weights]  # exactly 1 in sum: else the mean is biased


def _about(pooled: _Mean, units: Units) -> PooledMean:
    named = zip(pooled.weights, pooled.parts, strict=True)
    return PooledMean(
        mean=units.value(pooled.center / pooled.parts[0][0].steps),
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


def _sample_variance(tallies: Sequence[Tally]) -> float:
    n, total, squares = (sum(column) for column in zip(*((t.n, *t.moments[:2]) for t in tallies), strict=True))
    return float(Fraction(n * squares - total**2, n * (n - 1)))


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
        mean=units.value(Fraction(total, n * steps)),
        touched=touched,
        threshold=units.length(Fraction(reach, steps)),
        bias_bound=units.length(Fraction(loss) / steps),
    )
