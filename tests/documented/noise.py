# ruff: noqa: E501, RUF001 - sentences of the document
"""Sections 3, 6 and 9: Laplace noise, under one epsilon or several, and the band that may be watched."""

import csv
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from math import ceil, exp, floor, log10, sqrt
from pathlib import Path

import numpy as np
from covering.asked import about, arms
from covering.cells import switches
from covering.laws import laplace_below
from covering.numbers import drawn, flat, mean_of, scale_of, single, within
from documented.figures import computed, given, on_section, percent
from scipy import optimize, stats

from hush import Task
from hush_aggregator.estimate import ANYTIME, POPULATION, REPORTERS
from hush_aggregator.estimate.estimates import ANYTIME_POPULATION
from hush_aggregator.estimate.finite_channel import RATES
from hush_common.domain import GRID_STEPS
from hush_common.mechanisms import Laplace
from hush_common.task import make_task

__all__ = ["NOMINAL", "first_of", "numbers", "quantile", "raised"]

NOMINAL = 0.95
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MIXES = Path(__file__).parents[1] / "tools" / "laplace_mixes.csv"


def raised(exponent: int) -> str:
    return str(exponent).translate(SUPERSCRIPTS)


@cache
def numbers(epsilon: str) -> Task:
    return make_task({"id": "t", "epsilon": epsilon, "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})


@cache
def quantile(n: int, confidence: float = NOMINAL) -> float:
    """The half-width of `reporters` in units of b, as published; it leaves what it should by an independent law."""
    task = numbers("1")
    half = arms(task, flat(task, n), confidence, REPORTERS)[0] / scale_of(single(task))
    beyond = float(laplace_below(n, np.array([-half * n]))[0])
    assert abs(2 * beyond / (1 - confidence) - 1) < 1e-5
    return half


@cache
def first_of(method: str, epsilon: str, confidence: float, target: str = POPULATION, most: int = 5000) -> int:
    """The first n at which a method is used, after another one."""
    task = numbers(epsilon)

    def methods(n: int) -> str:
        return about(task, flat(task, n), confidence).methods[target]

    return next(n for n in switches(methods, most) if methods(n) == method and methods(n - 1) != method)


@on_section("3")
def mechanism() -> Iterator[str]:
    one = Laplace(Fraction(1), GRID_STEPS)
    scales = one.window / GRID_STEPS
    outside = exp(-scales)
    power = floor(log10(outside))
    yield (
        f"confined to a window of {computed(scales, '.0f')} noise scales beyond the grid (post-processing; an honest "
        f"report meets it with probability {computed(outside / 10**power, '.0f')}·10{computed(raised(power))})."
    )
    coarsest = Laplace(Fraction(50), GRID_STEPS)
    lacking = 1 - coarsest.variance / (2 * (GRID_STEPS / 50) ** 2)
    assert round(lacking * 1e10) == 2
    yield f"which is 2b² but for two parts in 10{computed(raised(-floor(log10(lacking))))} at most."
    yield f"Rounding to the grid moves a value by at most R/2{computed(raised(GRID_STEPS.bit_length()))}."


@on_section("3")
def rules() -> Iterator[str]:
    """The switches, found by asking which method is used."""
    task = numbers("8")
    bound = next(
        c / 100
        for c in range(50, 100)
        if about(task, flat(task, 20), c / 100).methods[POPULATION] == "laplace-popoviciu"
    )
    share = 16**2 / first_of("laplace-popoviciu", "16", NOMINAL)
    noise = 2 / share
    assert noise == 0.5
    yield f"population, confidence ≥ {computed(bound)} and n·v ≥ R²/{computed(1 / noise, '.0f')} (n ≥ ε²/{computed(share, '.0f')}), below `student-t`"
    least, factor = first_of("student-t", "1", 0.8), first_of("student-t", "16", 0.8) / 16**2
    yield f"population, n ≥ {computed(least)}, n ≥ {computed(factor, '.0f')}ε², and n as large as below"
    skewness = 1 / skewness_bound()
    left = 4 * 4 * skewness / 27
    yield f"no values give a report a squared skewness γ² above {computed(left, '.0f')}R²/({computed(4 * skewness, '.0f')}v)."
    starts = [first_of("student-t", "8", confidence) for confidence in (0.95, 0.99)]
    yield (
        f"at ε = {given(8)} from n = {computed(starts[0])} on at {given(95)} %, from {computed(starts[1])} on at {given(99)} %. "
        f"The condition n ≥ {computed(factor, '.0f')}ε² leaves at most 1/{computed(floor(2 * factor * skewness), '.0f')} of γ² in the mean."
    )


def skewness_bound() -> float:
    """max over w = p(1 - p) of (third moment)²/(variance of a report)³, times v/R², where v is far below R²."""
    v = 1e-6
    found = optimize.minimize_scalar(
        lambda w: -(w**2) * (1 - 4 * w) / (w + v) ** 3, bounds=(0, 10 * v), method="bounded", options={"xatol": 1e-12}
    )
    return float(-found.fun * v)


@on_section("3")
def edgeworth() -> Iterator[str]:
    """What Student's interval loses at the last n where it is not used, by the formula of the page."""
    losses = []
    for epsilon, confidence in (("8", 0.95), ("8", 0.99), ("16", 0.95)):
        n, z = first_of("student-t", epsilon, confidence, most=40_000), float(stats.norm.isf((1 - confidence) / 2))
        squared = 4 * float(epsilon) ** 2 / (27 * 2)
        loss = 2 * stats.norm.pdf(z) * z * (z**4 + 2 * z**2 - 3) * squared / 18
        losses += [(1 - confidence) * (n - 1) / loss, (1 - confidence) * n / loss]
    (share,) = {floor(max(losses[::2])) + 1, ceil(min(losses[1::2])) - (min(losses[1::2]) > floor(min(losses[1::2])))}
    yield f"so large that this is at most α/{computed(share)}:"


@on_section("3")
def halves() -> Iterator[str]:
    with MIXES.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    most = max(int(part.split("*")[1]) for row in rows for part in row["mix"].split(";" if ";" in row["mix"] else "+"))
    highest = max(float(row["confidence"]) for row in rows)
    shown = ((1, 6), (2, 6), (5, 6), (10, 6), (100, 6), (1000, 7))
    texts = [f"{computed(quantile(n), f'.{digits}f')} ({given(n)})" for n, digits in shown]
    texts[0] = f"{computed(quantile(1), '.6f')} (n = {given(1)}, which is ln {computed(exp(quantile(1)), '.0f')})"
    yield (
        f"with a table of {computed(len(rows))} mixes made in arbitrary precision (`tests/tools/laplace_mixes.py`): n to "
        f"10{computed(raised(round(log10(most))))}, confidence to 1 − 10{computed(raised(round(log10(1 - highest))))}, no "
        f"relative error above 10⁻⁹. At {given(95)} % it gives h = {', '.join(texts)}."
    )
    yield f"The normal value {given(1.96)}·√(2/n) would cover {percent(1 - exp(-1.96 * sqrt(2)), 2)} at n = {given(1)}."


def popoviciu(epsilon: float, n: int, confidence: float) -> float:
    """The half-width of that form, whether it is used or not, in units of R."""
    z = float(stats.norm.isf((1 - confidence) / 2))
    return sqrt((quantile(n, confidence) / epsilon) ** 2 + z**2 / (4 * n))


def lacking(epsilon: float, n: int, confidence: float, share: float) -> float:
    """By how much that form covers less than it says, if so many people are at one bound and the others at the other."""
    half = popoviciu(epsilon, n, confidence)
    return confidence - within([(1 / epsilon / n, n)], half, half, *mean_of(n, {0.0: 1 - share, 1.0: share}))


@on_section("3")
def population() -> Iterator[str]:
    worst = max(lacking(e, max(1, ceil(e * e / 4)) + more, 0.9, 0.5) for e in (1, 2, 4, 5, 6, 8) for more in (0, 1))
    yield f"it covers as often as stated, to within {computed(ceil(10_000 * worst) / 10_000, '.4f')} (exact sums, confidence {given(0.9)} to {given(0.999)}, ε ≤ {given(50)}, all shares of people at two bounds)"
    one = 0.5 - lacking(8, 1, 0.5, 0.5)
    yield f"at ε = {given(8)} a single report covers {percent(one, 1)} at confidence {given(0.5)}."
    n, task = 5, numbers("8")
    assert about(task, flat(task, n), NOMINAL).methods[POPULATION] == "laplace-hoeffding"
    half = arms(task, flat(task, n), NOMINAL, POPULATION)[0]
    yield (
        f"Under ε = {given(8)} at n = {given(n)} and {given(95)} % it gives {computed(half, '.3f')} R where Popoviciu's "
        f"form would give {computed(popoviciu(8, n, NOMINAL), '.3f')} R."
    )
    center, variance = drawn(100, "all equal, inside", 10.0)
    half_widths = stats.t.isf((1 - NOMINAL) / 2, 99) * np.sqrt(np.maximum(variance, 2 * 10.0**2) / 100)
    floored = float((np.abs(center - 0.3) <= half_widths).mean())
    yield f"can only add coverage (measured: {computed(floored, '.2f')} instead of {given(NOMINAL)} where the noise dominates)"


@on_section("3")
def clipping() -> Iterator[str]:
    lost = [
        f"{computed((1 - exp(-e)) / (2 * e), '.2f')} R at {'ε = ' * (e == 0.5)}{given(f'{e:g}')}" for e in (0.5, 1, 4)
    ]
    yield f"moves the mean of people at a bound by −R(1 − e^(−ε))/(2ε): {', '.join(lost)}."
    z = stats.norm.isf(0.025)
    tenth, all_ = (((1 + 3 * m) / (1 + m)) for m in (0.1, 1.0))
    covers = [2 * stats.norm.cdf(z / sqrt(more)) - 1 for more in (tenth, all_)]
    yield (
        f"the variance is {computed(tenth, '.2f')} times what the formula says and the {given(95)} % interval covers "
        f"{percent(covers[0], 1)}; if all are, {percent(covers[1], 1)}."
    )


@on_section("9")
def band() -> Iterator[str]:
    task = numbers("1")
    sizes = (10, 100, 1000, 10_000)
    half = {n: arms(task, flat(task, n), NOMINAL, ANYTIME)[0] / scale_of(single(task)) for n in sizes}
    texts = ", ".join(computed(half[n], f".{3 - floor(log10(half[n]))}f") for n in sizes)
    ratios = {round(half[n] / quantile(n), 1) for n in sizes[1:]}
    assert ratios == {1.8}
    yield (
        f"At n = {given(10)}, {given(100)}, {given(1000)}, 10{given(raised(4))} the Laplace sequence is {texts} b wide on either side: "
        f"about {computed(ratios.pop())} times the fixed-n interval."
    )
    n, wider = 1000, {}
    for epsilon in ("1", "4"):
        task = numbers(epsilon)
        wider[epsilon] = (
            arms(task, flat(task, n), NOMINAL, ANYTIME_POPULATION)[0] / arms(task, flat(task, n), NOMINAL, ANYTIME)[0]
        )
    yield (
        f"That of the population is {computed(wider['1'], '.2f')} times as wide at ε = {given(1)} (n = {given(n)}), "
        f"{computed(wider['4'], '.2f')} times at ε = {given(4)}."
    )
    yield f"Σ_k cosh(l_k·D)·e^(−Σψ(l_k))/{computed(len(RATES))} < 1/α,"
    yield f"Σ_k e^(l_k·D − ΣG(l_k))/{computed(len(RATES))} < 2/α on either side"


@on_section("9")
def watched() -> Iterator[str]:
    runs, last, allowed = 2000, 3000, 1 - NOMINAL
    times = np.arange(1, last + 1)
    means = np.cumsum(np.random.default_rng(1).laplace(0, 1, (runs, last)), axis=1) / times
    task = numbers("1")
    looks = sorted({*range(1, 101), *range(100, last + 1, 25)})
    some = [arms(task, flat(task, n), NOMINAL, ANYTIME)[0] / scale_of(single(task)) for n in looks]
    wide = np.exp(np.interp(np.log(times), np.log(looks), np.log(some)))
    ever = float((np.abs(means) > wide).any(axis=1).mean())
    fixed = float((np.abs(means) > stats.norm.isf(allowed / 2) * np.sqrt(2 / times))[:, 9:].any(axis=1).mean())
    assert ever < allowed
    assert 0.4 < fixed < 0.6
    yield (
        f"In {given(runs)} runs watched at every step to n = {given(last)}, fewer than {computed(100 * allowed, '.0f')} % "
        f"were ever wrong; a fixed-n interval that is watched is wrong in about half of all runs."
    )
