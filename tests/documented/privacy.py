# ruff: noqa: E501, RUF001 - sentences of the document
"""Sections 1, 2, 10, 11 and 13: what a report says, liars, silence, the sampler."""

from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from math import ceil, exp, log, sqrt

import numpy as np
from documented.figures import computed, given, on_section, percent
from scipy import stats

from hush_aggregator.estimate.diagnostics import OK, variance_monitor, worst_case_bias
from hush_common.domain import GRID_STEPS
from hush_common.epsilon import WEIGHT_OF_TRUTH, weight_of_lie
from hush_common.mechanisms import Laplace

LOSSES = {"0.1": 0.1, "0.5": 0.5, "1": 1.0, "ln 3": log(3), "2": 2.0, "4": 4.0}


def sure(epsilon: float) -> float:
    """The posterior of an observer who was 50/50."""
    return exp(epsilon) / (1 + exp(epsilon))


@on_section("1")
def table() -> Iterator[str]:
    people = 500
    row = " | ".join(given(name) for name in LOSSES)
    even = f"{given(50)}/{given(50)}"
    yield f"an observer who was {even} between two of your values is at most e^ε/(1 + e^ε) sure after seeing your report."
    yield (
        f"| ε | {row} | |---|---|---|---|---|---|---| | at most sure | "
        + " | ".join(percent(ceil(1000 * sure(epsilon) - 1e-9) / 1000, 1) for epsilon in LOSSES.values())  # a promise
        + f" | | error of a mean of {given(people)} numbers (rms, share of R) | "
        + " | ".join(computed(sqrt(2 / people) / epsilon, ".3f") for epsilon in LOSSES.values())
        + " |"
    )


@on_section("0")
def notation() -> Iterator[str]:
    yield f"m = 2^{computed(GRID_STEPS.bit_length() - 1)} grid steps;"


@on_section("10")
def liars() -> Iterator[str]:
    shares = worst_case_bias(100, 1.0)
    one, five = (name.removesuffix("%") for name in list(shares)[1:])
    yield f"how far one false report, or {computed(one)} % or {computed(five)} % of the reports, can move the mean"
    window = Laplace(Fraction(1), GRID_STEPS).window / GRID_STEPS
    yield f"and R + {computed(window, '.0f')}b for Laplace, whose window is wide."
    fourth, second = float(stats.laplace.moment(4)), float(stats.laplace.var())
    yield (
        f"s² must be between v and v + R²/4, to within four of its standard deviations "
        f"v·√({computed(fourth / second**2 - 1, '.0f')}/n)."
    )
    start = next(n for n in range(2, 10_000) if variance_monitor(n, 1.0, 1.0, 0.0) is not None)
    yield f"**Monitor**, from {computed(start)} reports on."


def escapes(share: float, n: int, epsilon: float, values: tuple[float, ...], runs: int = 4000) -> float:
    """The share of runs in which the monitor is content although a share of the devices adds no noise."""
    rng = np.random.default_rng(10)
    noisy = n - round(share * n)
    reports = rng.choice(values, (runs, n))
    reports[:, :noisy] += rng.laplace(0, 1 / epsilon, (runs, noisy))
    content = [variance_monitor(n, float(s), 2 / epsilon**2, 1.0) == OK for s in reports.var(axis=1, ddof=1)]
    return float(np.mean(content))


@on_section("10")
def monitor() -> Iterator[str]:
    share, n = 0.28, 1000
    equal, apart = (escapes(share, n, 1.0, values) for values in ((0.5,), (0.0, 1.0)))
    yield (
        f"if {given(100 * share, '.0f')} % of {given(n)} devices add no noise, it reports no problem in {percent(equal)} of runs "
        f"where all values are equal, and at ε = {given(1)} in {percent(apart)} of runs where half of the values lie at "
        f"each bound."
    )


@on_section("13")
def sampler() -> Iterator[str]:
    epsilon = 0.1
    yield f"At ε = {given(epsilon)}, where nobody should be more than {percent(sure(epsilon), 1)} sure, one report names"
    bits = WEIGHT_OF_TRUTH.bit_length() - 1
    with localcontext(prec=60):
        least = Decimal(2) ** bits * Decimal(-1).exp()
        assert 0 < weight_of_lie(Fraction(1)) - least <= 1
    yield f"is ⌊2^{computed(bits)}·e^(−ε)⌋ + 1 over a common total"
