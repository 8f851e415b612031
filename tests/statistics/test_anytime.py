"""Bands that are watched at every report: how often they are ever wrong."""

from fractions import Fraction
from math import sqrt

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from single_intervals import mixture_deviation

from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.bounded_mean import Group
from hush_aggregator.estimate.bounded_mean import estimate as bounded
from hush_aggregator.estimate.finite_channel import RATES, finite
from hush_aggregator.estimate.intervals.anytime import symmetric_mixture_deviation
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.numerics.quantiles import beta_band
from hush_aggregator.estimate.units import Units
from hush_aggregator.tally import Tally
from hush_common.domain import GRID_STEPS
from hush_common.mechanisms import Laplace, Multilevel, RandomizedResponse, SubsetSelection
from hush_common.mechanisms.multilevel import best_levels
from hush_common.task import make_task

Array = NDArray[np.float64]

RUNS, STEPS, NOMINAL = 1200, 3000, 0.95
TIMES: Array = np.arange(1, STEPS + 1, dtype=float)
NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}


def ever(outside: NDArray[np.bool_]) -> float:
    """The share of runs (rows) that are wrong at one step or more."""
    return float(outside.any(axis=1).mean())


def laplace_half_widths() -> Array:
    rates = 0.95 * RATES
    exponents = -np.log1p(-(rates**2))
    return np.array([symmetric_mixture_deviation(rates, t * exponents, NOMINAL) / t for t in range(1, STEPS + 1)])


def laplace_errors(seed: int) -> Array:
    noise = np.random.default_rng(seed).laplace(0, 1, (RUNS, STEPS))
    return np.asarray(np.cumsum(noise, axis=1) / TIMES)


def test_the_laplace_band_is_ever_wrong_in_fewer_than_one_run_of_twenty() -> None:
    assert ever(abs(laplace_errors(1)) > laplace_half_widths()) <= 0.05


def test_a_fixed_n_interval_that_is_watched_is_wrong_in_most() -> None:
    watched = abs(laplace_errors(1)) > 1.96 * np.sqrt(2 / TIMES)
    assert ever(watched[:, 9:]) > 0.4


def test_the_laplace_band_of_an_estimate_is_that_band() -> None:
    asked = make_task({"id": "t", "epsilon": "2", "domain": {"kind": "number", "lower": -1e3, "upper": 1e3}})
    half = laplace_half_widths()
    for n in (200, 3000):
        given = estimate(asked, fold(asked.randomizer, np.full((n, 1), GRID_STEPS // 2)), NOMINAL)
        low, high = given.intervals[ANYTIME]
        assert (high - low) / 2 == pytest.approx(1e3 * half[n - 1], rel=1e-4)
        assert given.methods[ANYTIME] == "reporters-laplace-mixture"
        fixed = given.intervals[REPORTERS]
        assert low < fixed[0] < fixed[1] < high


@pytest.mark.parametrize("confidence", [1e-300, 1e-9, 0.5, 0.95, 1 - 1e-9, 1 - 2**-53])
@pytest.mark.parametrize("t", [1, 30, 10**4, 10**9])
def test_a_band_ends_where_its_mixture_reaches_what_it_may(t: int, confidence: float) -> None:
    rates = 0.95 * RATES
    exponents = t * (-np.log1p(-(rates**2)) + rates**2 / 50)

    def mixture(d: mp.mpf, *, both: bool) -> mp.mpf:
        terms = [
            (mp.cosh(rate * d) if both else mp.exp(rate * d)) * mp.exp(-psi)
            for rate, psi in zip(rates.tolist(), exponents.tolist(), strict=True)
        ]
        return mp.log(mp.fsum(terms) / 25)

    for both, found, reached in (
        (True, symmetric_mixture_deviation(rates, exponents, confidence), 1),
        (False, mixture_deviation(rates, exponents, confidence), 2),
    ):
        needed = mp.log(reached) - mp.log(1 - confidence)
        assert mixture(found * (1 + 1e-7) + 1e-12, both=both) > needed - 1e-12  # as exact as alpha near 1 lets it be
        assert confidence < 1e-9 or mixture(found * (1 - 1e-7), both=both) < needed


def test_the_grid_of_rates_halves_twelve_times() -> None:
    assert pytest.approx([2 ** (-k / 2) for k in range(25)]) == RATES


def test_two_sides_at_once_are_a_little_shorter_than_two_bands() -> None:
    rates = 0.95 * RATES
    for t in (1, 100, 10**4):
        exponents = -t * np.log1p(-(rates**2))
        ratio = symmetric_mixture_deviation(rates, exponents, NOMINAL) / mixture_deviation(rates, exponents, NOMINAL)
        assert 0.995 < ratio < 1


def test_the_band_for_the_population_is_ever_wrong_in_fewer_than_one_run_of_twenty() -> None:
    epsilon, rng = 8.0, np.random.default_rng(7)
    people = rng.random((RUNS, STEPS)) < 0.5  # half at each bound: the sampling error is largest
    errors = abs(np.cumsum(people - 0.5 + rng.laplace(0, 1 / epsilon, (RUNS, STEPS)), axis=1))
    rates = 0.95 * epsilon * RATES
    noise = -np.log1p(-((rates / epsilon) ** 2))
    half = np.array([symmetric_mixture_deviation(rates, t * (noise + rates**2 / 8), NOMINAL) for t in TIMES])
    assert ever(errors > half) <= 0.05
    wrong = np.array([symmetric_mixture_deviation(rates, t * (noise + rates**2 / 80), NOMINAL) for t in TIMES])
    assert ever(errors > wrong) > 0.05  # planted wrong: a tenth of what the values may add
    asked = make_task({"id": "t", "epsilon": "8", "domain": {"kind": "number", "lower": -1e3, "upper": 1e3}})
    given = estimate(asked, fold(asked.randomizer, np.full((STEPS, 1), GRID_STEPS // 2)), NOMINAL)
    low, high = given.intervals[ANYTIME_POPULATION]
    assert (high - low) / 2 == pytest.approx(2e3 * half[-1] / STEPS, rel=1e-4)
    assert given.methods[ANYTIME_POPULATION] == "population-laplace-hoeffding-mixture"


def test_the_exponent_of_discrete_noise_is_the_logarithm_of_its_transform() -> None:
    h, rates = 0.7, 0.95 * 0.7 * RATES  # a coarse grid, where discrete and continuous differ
    z = np.arange(-800, 801)
    law = np.tanh(h / 2) * np.exp(-h * abs(z))
    expected = np.array([np.log(law @ np.exp(rate * z)) for rate in rates])
    assert -np.log1p(-((np.sinh(rates / 2) / np.sinh(h / 2)) ** 2)) == pytest.approx(expected, rel=1e-6)
    mechanism = Laplace(Fraction(7, 10) * 4, 4)
    assert float(1 / mechanism.scale) == pytest.approx(h)


@pytest.mark.large
@pytest.mark.parametrize("epsilon", ["1", "2", "4"])
@pytest.mark.parametrize("values", ["all at the lower bound", "spread"])
def test_the_band_of_levels_is_ever_wrong_in_fewer_than_one_run_of_twenty(epsilon: str, values: str) -> None:
    exact = Fraction(epsilon)
    of = finite(Multilevel(exact, GRID_STEPS, best_levels(exact)))
    rng = np.random.default_rng(2)
    nodes = np.zeros((RUNS, STEPS), dtype=np.int64)
    if values == "spread":
        nodes = rng.integers(0, len(of.nodes), (RUNS, STEPS))
    cumulative = np.cumsum(of.p, axis=1)
    draws = rng.random((RUNS, STEPS))
    outputs = sum((draws > cumulative[nodes, y]).astype(np.int64) for y in range(len(of.used) - 1))
    errors = np.cumsum(of.a[outputs] - of.nodes[nodes], axis=1)
    above, below = of.mixture_exponents(of.fastest)
    rates = of.fastest * RATES
    high = np.array([mixture_deviation(rates, t * above, NOMINAL) for t in range(1, STEPS + 1)])
    low = np.array([mixture_deviation(rates, t * below, NOMINAL) for t in range(1, STEPS + 1)])
    assert ever((errors > high) | (-errors > low)) <= 0.05
    counts = tuple(np.bincount(outputs[0], minlength=len(of.used)).tolist())
    given = bounded([Group(of, counts)], Units(), NOMINAL)
    mean = given.mean or 0
    ends = mean - high[-1] / STEPS - max(mean - 1, 0), mean + low[-1] / STEPS - min(mean, 0)
    assert given.intervals[ANYTIME] == pytest.approx((max(ends[0], 0), min(ends[1], 1)))


def beta_outside(ones: NDArray[np.int64], probability: float, confidence: float = NOMINAL) -> NDArray[np.bool_]:
    """Whether the band at each step misses the probability: from the fewest and the most ones whose band holds it."""
    least, most = held(probability, confidence)
    return np.asarray((ones < least) | (ones > most))


def held(probability: float, confidence: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """At each step: the band moves up with the count, and the counts it admits move up with time."""
    least, most = np.zeros(STEPS, dtype=np.int64), np.zeros(STEPS, dtype=np.int64)
    low = high = 0
    for t in range(1, STEPS + 1):
        counts = np.arange(low, min(high + 1, t) + 1)
        (lower,), (upper,) = beta_band(t, counts, [1 - confidence])
        low, high = low + int((upper < probability).sum()), low + int((lower <= probability).sum()) - 1
        least[t - 1], most[t - 1] = low, high
    return least, most


@pytest.mark.large
@pytest.mark.parametrize("probability", [0.5, 0.27])
def test_the_beta_band_is_ever_wrong_in_fewer_than_one_run_of_twenty(probability: float) -> None:
    ones = np.cumsum(np.random.default_rng(3).random((RUNS, STEPS)) < probability, axis=1, dtype=np.int64)
    assert ever(beta_outside(ones, probability)) <= 0.05
    wald = 1.96 * np.sqrt(probability * (1 - probability) / TIMES)
    assert ever(abs(ones / TIMES - probability)[:, 9:] > wald[9:]) > 0.3


def test_the_band_of_a_proportion_is_the_beta_band() -> None:
    asked = make_task({"id": "b", "epsilon": "1", "domain": {"kind": "bit"}})
    assert isinstance(asked.randomizer, RandomizedResponse)
    given = estimate(asked, Tally(100, (50,)), NOMINAL)
    p0, p1 = (float(p) for p in asked.randomizer.probability_of_one)
    low, high = (float(end[0, 0]) for end in beta_band(100, np.array([50]), [1 - NOMINAL]))
    assert (high - low) / 2 == pytest.approx(0.1617, abs=1e-4)
    assert given.intervals[ANYTIME] == pytest.approx(((low - p0) / (p1 - p0), (high - p0) / (p1 - p0)))
    assert given.methods[ANYTIME] == "population-beta-mixture"


@pytest.mark.large
def test_the_joint_band_of_categories_is_wrong_for_none_of_them_in_nineteen_runs_of_twenty() -> None:
    asked = make_task({"id": "c", "epsilon": "2", "domain": {"kind": "category", "labels": ["a", "b", "c"]}})
    assert isinstance(asked.randomizer, SubsetSelection)
    assert asked.randomizer.size == 1
    q, p = (float(x) for x in asked.randomizer.support)
    chances = q + np.array([0.7, 0.2, 0.1]) * (p - q)
    joint = 1 - (1 - NOMINAL) / 3
    named = np.random.default_rng(4).choice(3, p=chances, size=(RUNS, STEPS))
    ones = [np.cumsum(named == place, axis=1) for place in range(3)]
    outside = [beta_outside(mine, float(chance), joint) for mine, chance in zip(ones, chances, strict=True)]
    assert ever(outside[0] | outside[1] | outside[2]) <= 0.05
    error = [abs(mine / TIMES - chance) for mine, chance in zip(ones, chances, strict=True)]
    fixed = [2.39 * np.sqrt(chance * (1 - chance) / TIMES) for chance in chances]  # 1 - 0.05/3, for one look
    watched = [(one > half)[:, 9:] for one, half in zip(error, fixed, strict=True)]
    assert ever(watched[0] | watched[1] | watched[2]) > 0.3
    counts = [int(mine[0, -1]) for mine in ones]
    given = estimate(asked, Tally(STEPS, tuple(counts)), NOMINAL)
    (low,), (high,) = beta_band(STEPS, np.array(counts), [1 - joint])
    expected = np.stack([(low - q) / (p - q), (high - q) / (p - q)], axis=1)
    found = np.array([fact.joint_intervals[ANYTIME] for fact in given.parts])
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.large
def test_reports_of_several_epsilons_add_their_exponents() -> None:
    mechanisms = [Multilevel(Fraction(1), GRID_STEPS, 1), Multilevel(Fraction(4), GRID_STEPS, 4)]
    channels = [finite(mechanism) for mechanism in mechanisms]
    rng = np.random.default_rng(5)
    errors = np.zeros((RUNS, STEPS))
    for offer, of in enumerate(channels):  # values 0, each epsilon in turn
        errors[:, offer::2] = rng.choice(of.a, p=of.p[0] / of.p[0].sum(), size=(RUNS, STEPS // 2))
    fastest = min(of.fastest for of in channels)
    pairs = [of.mixture_exponents(fastest) for of in channels]
    counts = [(TIMES + 1) // 2, TIMES // 2]
    bands = []
    for side in (0, 1):
        exponents = sum(count[:, None] * pair[side] for count, pair in zip(counts, pairs, strict=True))
        bands.append(np.array([mixture_deviation(fastest * RATES, row, NOMINAL) for row in np.asarray(exponents)]))
    total = np.cumsum(errors, axis=1)
    assert ever((total > bands[0]) | (-total > bands[1])) <= 0.05
    dearest = channels[1].mixture_exponents(fastest)  # planted wrong: as if all had chosen the least noise
    narrow = [np.array([mixture_deviation(fastest * RATES, t * e, NOMINAL) for t in TIMES]) for e in dearest]
    assert ever((total > narrow[0]) | (-total > narrow[1])) > 0.3
    groups = [Group(channels[0], (500, 500)), Group(channels[1], (200,) * 5)]
    given = bounded(groups, Units(Fraction(-9), Fraction(9)), NOMINAL)
    assert given.mean is not None
    assert given.intervals[ANYTIME][1] - given.mean == pytest.approx(18 * bands[1][1999] / 2000)


@pytest.mark.large
def test_the_band_of_a_drawn_coordinate_is_ever_wrong_in_fewer_than_one_run_of_twenty() -> None:
    of = finite(Multilevel(Fraction(4), GRID_STEPS, best_levels(Fraction(4))))
    rng = np.random.default_rng(6)
    top = rng.random((RUNS, STEPS)) < 0.5  # half the people at each bound: the sampling error is largest
    ends = [rng.choice(of.a, p=of.p[row] / of.p[row].sum(), size=(RUNS, STEPS)) for row in (0, -1)]
    errors = np.cumsum(np.where(top, ends[1], ends[0]) - 0.5, axis=1)
    rates = of.fastest * RATES
    sides = [
        np.array([mixture_deviation(rates, t * (exponents + rates**2 / 8), NOMINAL) for t in range(1, STEPS + 1)])
        for exponents in of.mixture_exponents(of.fastest)
    ]
    assert ever((errors > sides[0]) | (-errors > sides[1])) <= 0.05
    noise_alone = [
        np.array([mixture_deviation(rates, t * e, NOMINAL) for t in range(1, STEPS + 1)])
        for e in of.mixture_exponents(of.fastest)
    ]
    assert ever((errors > noise_alone[0]) | (-errors > noise_alone[1])) > 0.05  # planted wrong: forgets who was drawn


def test_a_coordinate_has_a_band_for_the_population() -> None:
    parts = [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xy"]
    asked = make_task({"id": "v", "epsilon": "4", "domain": {"kind": "vector", "coordinates": parts}})
    given = estimate(asked, Tally(2000, (200, 200, 200, 200, 200, 0, 0, 0, 0, 1000)), NOMINAL)
    first = given.parts[0]
    assert first.methods[ANYTIME] == "population-chernoff-hoeffding-mixture"
    assert first.intervals[ANYTIME][0] < first.intervals[POPULATION][0]
    assert sqrt(first.n) > 1
