"""Estimates from discrete Laplace reports: the mean of a bounded number.

A report is k = i + Z in grid steps, i in {0, …, m} the index of the value and Z independent noise of known variance
v = 1/(2·sinh(epsilon/2m)^2). Everything here is in steps, as exact fractions where it matters, and becomes a number of
the domain once, at the end: neither a huge nor a tiny range overflows or underflows on the way.

Mean. lower + step·(Σk)/n: unbiased for both targets, exact, rounded once.

`reporters`. The error is the mean of n independent Z. Their law is that of Laplace noise of the scale b = sqrt(v/2)
up to a relative 1/m^2, so the half-width is b·h(n, confidence) with the quantile of
`quantiles.laplace_mean_quantile`: "laplace-exact" up to n = 1000, "laplace-cornish-fisher" above. No assumption about
the values, none about n. Standard error sqrt(v/n).

`population`. The reporting devices are an independent sample of a distribution on [lower, upper] (values outside are
counted as the bound they were clamped to).
- n < 100: "laplace-popoviciu". Half-width sqrt((b·h)^2 + (z·m/2)^2/n): the exact quantile of the noise, and for
  the values the largest variance that a bounded variable can have, (m/2)^2 (Popoviciu 1935). The sample
  variance is no guide there: few reports of a skewed value look alike. Standard error sqrt((v + m^2/4)/n).
- n ≥ 100: "student-t". Half-width t(n-1, confidence)·s/sqrt(n), s^2 = (nΣk^2 - (Σk)^2)/(n(n-1)) exactly, or v where
  that is larger: reports vary at least as much as their noise, so a smaller s^2 is known to be too small. (It happens
  in half of all draws if the values hardly differ; the floor can only add coverage.) Assumes that the mean of n
  reports is close to normal. Standard error s/sqrt(n).
The switch depends on n alone: choosing the shorter interval would void both.

Half a step is added to every half-width, for the values were rounded to the grid: at m = 2^20 a millionth of the
range. Then the interval is clipped to the domain, where both targets lie, so that no coverage is lost; one that lies
outside as a whole shrinks to the nearest bound (devices that do not follow the mechanism, or a rare draw).
"""

from fractions import Fraction
from math import sqrt
from sys import float_info

from hush_aggregator.estimate.quantiles import (
    LAPLACE_SUM_LIMIT,
    laplace_mean_quantile,
    normal_quantile,
    student_quantile,
)
from hush_aggregator.estimate.result import POPULATION, REPORTERS, Estimate
from hush_aggregator.tally import Tally
from hush_common.domain import NumberDomain
from hush_common.mechanisms import Laplace

__all__ = ["estimate"]

_STUDENT_FROM = 100
_ROUNDING = Fraction(1, 2)


def estimate(mechanism: Laplace, domain: NumberDomain, tally: Tally, confidence: float) -> Estimate:
    """The mean and both error bars of n ≥ 1 reports; this module's docstring specifies them."""
    center = Fraction(tally.total, tally.n)
    noise = sqrt(mechanism.variance / 2) * laplace_mean_quantile(tally.n, confidence)
    spread, half, method = _population(mechanism, tally, noise, confidence)
    return Estimate(
        n=tally.n,
        mean=_to_float(domain.value_of(center)),
        stderr={
            REPORTERS: _length(domain, sqrt(mechanism.variance / tally.n)),
            POPULATION: _length(domain, spread),
        },
        intervals={REPORTERS: _interval(domain, center, noise), POPULATION: _interval(domain, center, half)},
        methods={
            REPORTERS: "laplace-exact" if tally.n <= LAPLACE_SUM_LIMIT else "laplace-cornish-fisher",
            POPULATION: method,
        },
    )


def _population(mechanism: Laplace, tally: Tally, noise: float, confidence: float) -> tuple[float, float, str]:
    """Standard error and half-width in steps, and the method, given the half-width of the noise alone."""
    if tally.n < _STUDENT_FROM:
        bound = mechanism.steps**2 / 4
        spread = sqrt((mechanism.variance + bound) / tally.n)
        return spread, sqrt(noise**2 + normal_quantile(confidence) ** 2 * bound / tally.n), "laplace-popoviciu"
    variance = Fraction(tally.n * tally.squares - tally.total**2, tally.n * (tally.n - 1))
    spread = sqrt(max(float(variance), mechanism.variance) / tally.n)
    return spread, student_quantile(tally.n - 1, confidence) * spread, "student-t"


def _interval(domain: NumberDomain, center: Fraction, half: float) -> tuple[float, float]:
    """`center` ± (`half` + rounding), in steps, clipped to the grid, as numbers of the domain."""
    width = Fraction(half) + _ROUNDING
    low, high = (min(max(end, Fraction(0)), Fraction(domain.steps)) for end in (center - width, center + width))
    return float(domain.value_of(low)), float(domain.value_of(high))


def _length(domain: NumberDomain, steps: float) -> float:
    """A length in steps as one in the unit of the domain."""
    return _to_float(Fraction(steps) * domain.step)


def _to_float(x: Fraction) -> float:
    """The nearest float; the largest one where noise on a range near 1e308 exceeds all floats."""
    try:
        return float(x)
    except OverflowError:
        return float_info.max if x > 0 else -float_info.max
