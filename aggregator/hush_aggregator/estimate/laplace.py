"""Estimates from discrete Laplace reports: the mean of a bounded number, under one epsilon or several.

A report is k = i + Z in grid steps, i in {0, …, m} the index of the value and Z independent noise of known variance
v = 1/(2·sinh(epsilon/2m)^2). Everything here is in steps, as exact fractions where it matters, and becomes a number of
the domain once, at the end: neither a huge nor a tiny range overflows or underflows on the way.

Mean. lower + step·(Σk)/n: unbiased for both targets, exact, rounded once. With several epsilons too: every person
weighs the same, because the mean of *those who answered* allows no other weights, and because it stays unbiased even
if the choice of an epsilon has to do with the value.

`reporters`. The error is the mean of n independent Z. Their law is that of Laplace noise of the scale b = sqrt(v/2)
up to a relative 1/m^2, so the half-width is b·h(n, confidence) with the quantile of
`quantiles.laplace_mean_quantile`: "laplace-exact" up to n = 1000, "laplace-cornish-fisher" above. No assumption about
the values, none about n. Standard error sqrt(v/n). With several epsilons the scales are mixed:
`mixed.mixed_laplace_quantile` inverts the characteristic function, "laplace-mixed-exact", where n_eff = (Σ n_c
b_c^2)^2/(Σ n_c b_c^4) is below 20, and takes Cornish-Fisher with the fourth cumulant above.

`population`. The reporting devices are an independent sample of a distribution on [lower, upper] (values outside are
counted as the bound they were clamped to).
- n < 100 or n < 3·epsilon^2 (that is n·v < 6·m^2): "laplace-popoviciu". Half-width sqrt((b·h)^2 + (z·m/2)^2/n): the
  exact quantile of the noise, and for the values the largest variance that a bounded variable can have, (m/2)^2
  (Popoviciu 1935). The sample variance is no guide there: few reports of a skewed value look alike. Standard error
  sqrt((v + m^2/4)/n).
- Above: "student-t". Half-width t(n-1, confidence)·s/sqrt(n), s^2 = (nΣk^2 - (Σk)^2)/(n(n-1)) exactly, or v where
  that is larger: reports vary at least as much as their noise, so a smaller s^2 is known to be too small. (It happens
  in half of all draws if the values hardly differ; the floor can only add coverage.) Assumes that the mean of n
  reports is close to normal: no values give a report a squared skewness above 4m^2/(27v), and the rule leaves at most
  1/40 of it in the mean. Standard error s/sqrt(n).
- Several epsilons: around the mean of weights proportional to n_c/(v_c + m^2/12): inverse variances, were values
  spread evenly; public, so that the weights never look at the data. "pooled-student-t" where every epsilon has as
  many reports as that (the sample variance of each, degrees of freedom those of the smallest), else
  "pooled-popoviciu". It answers for the population only if the choice of an epsilon is unrelated to the value.
  `pooled` holds that mean and says so.
The switch depends on n and epsilon alone: choosing the shorter interval would void both.

`anytime`. "reporters-laplace-mixture" of `anytime`, with the exact exponent of discrete Laplace noise,
psi(l) = -log(1 - (sinh(l/2)/sinh(h/2))^2), h = epsilon/m, l < h.

Beside them: the winsorised mean, its threshold the smallest rung of `moments.LADDER` that is at least ln n scales.
Honest noise loses at most e^(-t·h)/(2·sinh h) steps by it.

Half a step is added to every half-width, for the values were rounded to the grid: at m = 2^20 a millionth of the
range. Then the interval is clipped to the domain, where both targets lie, so that no coverage is lost; around an
estimate outside the domain it keeps the length of its inner arm (`Span.around`).
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import exp, sinh, sqrt
from typing import Any

import numpy as np

from hush_aggregator.estimate.anytime import RATES, mixture_deviation
from hush_aggregator.estimate.honesty import variance_monitor, worst_case_bias, worst_verdict
from hush_aggregator.estimate.mixed import mixed_laplace_quantile
from hush_aggregator.estimate.quantiles import (
    LAPLACE_SUM_LIMIT,
    laplace_mean_quantile,
    normal_quantile,
    student_quantile,
)
from hush_aggregator.estimate.result import ANYTIME, POPULATION, REPORTERS, Estimate
from hush_aggregator.estimate.span import Span
from hush_aggregator.moments import rung, threshold
from hush_aggregator.tally import Tally
from hush_common.domain import NumberDomain
from hush_common.epsilon import decimal_text
from hush_common.mechanisms import Laplace

__all__ = ["Part", "estimate", "estimate_offers"]

Part = tuple[Laplace, Tally]

_STUDENT_FROM = 100
_NOISE_FROM = 3
_FASTEST = 0.95


def estimate(mechanism: Laplace, domain: NumberDomain, tally: Tally, confidence: float) -> Estimate:
    """The mean and its error bars of n ≥ 1 reports; this module's docstring specifies them."""
    noise = sqrt(mechanism.variance / 2) * laplace_mean_quantile(tally.n, confidence)
    spread, half, method = _population(mechanism, tally, noise, confidence)
    return _result(
        [(mechanism, tally)],
        domain,
        confidence,
        reporters=(noise, "laplace-exact" if tally.n <= LAPLACE_SUM_LIMIT else "laplace-cornish-fisher"),
        population=(Fraction(tally.moments[0], tally.n), half, method),
        spread=spread,
    )


def estimate_offers(parts: Sequence[Part], domain: NumberDomain, confidence: float) -> Estimate:
    """The same from reports under several epsilons, of which at least one is there."""
    parts = [part for part in parts if part[1].n]
    n = sum(tally.n for _, tally in parts)
    scales = tuple((sqrt(mechanism.variance / 2) / n, tally.n) for mechanism, tally in parts)
    noise, exact = mixed_laplace_quantile(scales, confidence)
    steps = parts[0][0].steps
    raw = [tally.n / (mechanism.variance + steps**2 / 12) for mechanism, tally in parts]
    weights = [Fraction(weight / sum(raw)) for weight in raw]
    weights = [weight / sum(weights) for weight in weights]  # exactly 1 in sum: else the mean is biased
    pooled = sum((w * Fraction(t.moments[0], t.n) for w, (_, t) in zip(weights, parts, strict=True)), Fraction(0))
    shares = [float(weight) / tally.n for weight, (_, tally) in zip(weights, parts, strict=True)]
    spread, half, pooled_method = _pooled(parts, shares, confidence)
    method = "laplace-mixed-exact" if exact else "laplace-mixed-cornish-fisher"
    result = _result(
        parts,
        domain,
        confidence,
        reporters=(noise, method),
        population=(pooled, half, pooled_method),
        spread=spread,
    )
    weight_of = {decimal_text(m.epsilon): float(w) for w, (m, _) in zip(weights, parts, strict=True)}
    about: dict[str, Any] = {
        "mean": Span.of(domain).value(pooled / steps),
        "weights": weight_of,
        "assumes": "the choice of an epsilon is unrelated to the value",
    }
    return replace(result, pooled=about)


def _pooled(parts: Sequence[Part], shares: Sequence[float], confidence: float) -> tuple[float, float, str]:
    """Standard error and half-width in steps of Σ shares·reports for the population, and the method."""
    fewest = min(tally.n for _, tally in parts)
    if all(_is_many(mechanism, tally.n) for mechanism, tally in parts):
        squares = [
            share**2 * t.n * max(_sample_variance(t), m.variance) for share, (m, t) in zip(shares, parts, strict=True)
        ]
        spread = sqrt(sum(squares))
        return spread, student_quantile(fewest - 1, confidence) * spread, "pooled-student-t"
    mixed = tuple((sqrt(m.variance / 2) * share, t.n) for share, (m, t) in zip(shares, parts, strict=True))
    values = sum(share**2 * t.n for share, (_, t) in zip(shares, parts, strict=True)) * parts[0][0].steps ** 2 / 4
    half = sqrt(mixed_laplace_quantile(mixed, confidence)[0] ** 2 + normal_quantile(confidence) ** 2 * values)
    return sqrt(sum(2 * scale**2 * count for scale, count in mixed) + values), half, "pooled-popoviciu"


def _result(
    parts: Sequence[Part],
    domain: NumberDomain,
    confidence: float,
    *,
    reporters: tuple[float, str],
    population: tuple[Fraction, float, str],
    spread: float,
) -> Estimate:
    """Everything in steps, as numbers of the domain.

    Args:
        parts: mechanisms and their tallies.
        domain: the domain.
        confidence: of the intervals.
        reporters: half-width and method.
        population: center, half-width and method.
        spread: standard error for the population.
    """
    n, steps, span = sum(tally.n for _, tally in parts), parts[0][0].steps, Span.of(domain)
    center = Fraction(sum(tally.moments[0] for _, tally in parts), n)
    variance = sum(mechanism.variance * tally.n for mechanism, tally in parts)
    window = max(mechanism.window for mechanism, _ in parts)

    def interval(middle: Fraction, half: float) -> tuple[float, float]:
        return span.around(middle / steps, (middle - Fraction(half)) / steps, (middle + Fraction(half)) / steps)

    return Estimate(
        n=n,
        mean=span.value(center / steps),
        stderr={
            REPORTERS: span.length(Fraction(sqrt(variance) / n) / steps),
            POPULATION: span.length(Fraction(spread) / steps),
        },
        intervals={
            REPORTERS: interval(center, reporters[0]),
            POPULATION: interval(population[0], population[1]),
            ANYTIME: interval(center, _band(parts, confidence) / n),
        },
        methods={REPORTERS: reporters[1], POPULATION: population[2], ANYTIME: f"{REPORTERS}-laplace-mixture"},
        worst_case_bias=worst_case_bias(n, span.length(Fraction(steps + window, steps))),
        monitor=_monitor(parts),
        winsorised=_winsorised(parts, span),
    )


def _population(mechanism: Laplace, tally: Tally, noise: float, confidence: float) -> tuple[float, float, str]:
    """Standard error and half-width in steps, and the method, given the half-width of the noise alone."""
    if not _is_many(mechanism, tally.n):
        bound = mechanism.steps**2 / 4
        spread = sqrt((mechanism.variance + bound) / tally.n)
        return spread, sqrt(noise**2 + normal_quantile(confidence) ** 2 * bound / tally.n), "laplace-popoviciu"
    spread = sqrt(max(_sample_variance(tally), mechanism.variance) / tally.n)
    return spread, student_quantile(tally.n - 1, confidence) * spread, "student-t"


def _is_many(mechanism: Laplace, n: int) -> bool:
    """Whether the mean of n reports is close to normal, whatever the values are."""
    return n >= _STUDENT_FROM and n >= _NOISE_FROM * mechanism.epsilon**2


def _sample_variance(tally: Tally) -> float:
    total, squares = tally.moments[:2]
    return float(Fraction(tally.n * squares - total**2, tally.n * (tally.n - 1)))


def _band(parts: Sequence[Part], confidence: float) -> float:
    """How far the *summed* noise stays from 0 at all times, in steps."""
    unit = max(mechanism.scale for mechanism, _ in parts)
    rates = _FASTEST * RATES  # in units of 1/scale of the least epsilon
    exponents = np.zeros(len(rates))
    for mechanism, tally in parts:
        h = float(1 / mechanism.scale)
        ratio = np.sinh(rates / float(unit) / 2) / sinh(h / 2)
        exponents -= tally.n * np.log1p(-(ratio**2))
    return mixture_deviation(rates, exponents, confidence) * float(unit)


def _monitor(parts: Sequence[Part]) -> str | None:
    return worst_verdict(
        variance_monitor(tally.n, _sample_variance(tally), mechanism.variance, mechanism.steps)
        for mechanism, tally in parts
        if tally.n > 1
    )


def _winsorised(parts: Sequence[Part], span: Span) -> dict[str, float]:
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
    return {
        "mean": span.value(Fraction(total, n * steps)),
        "touched": touched,
        "threshold": span.length(Fraction(reach, steps)),
        "bias_bound": span.length(Fraction(loss) / steps),
    }
