"""Bands that are watched at every report: how often they are ever wrong, and that estimates have them.

Runs of more mechanisms, at fewer looks, are cells of `tests/covering/watched.py`; those of bits are exact.
"""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from single_intervals import RATES, FiniteChannel, Group, Units, bounded, finite, mixture_deviation

from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.intervals.anytime import symmetric_mixture_deviation
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.numerics.quantiles import beta_band
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import GRID_STEPS
from hush_common.mechanisms import Laplace, Multilevel, RandomizedResponse, SubsetSelection
from hush_common.mechanisms.multilevel import best_levels
from hush_common.task import make_task

Array = NDArray[np.float64]

RUNS, STEPS, NOMINAL = 800, 1500, 0.95
TIMES: Array = np.arange(1, STEPS + 1, dtype=float)
WIDE = {"kind": "number", "lower": -1e3, "upper": 1e3}


def ever(outside: NDArray[np.bool_]) -> float:
    """The share of runs (rows) that are wrong at one step or more."""
    return float(outside.any(axis=1).mean())


def laplace_half_widths() -> Array:
    rates = 0.95 * RATES
    exponents = -np.log1p(-(rates**2))
    return np.array([symmetric_mixture_deviation(rates, t * exponents, NOMINAL) / t for t in TIMES])


def levels(epsilon: str) -> FiniteChannel:
    exact = Fraction(epsilon)
    return finite(Multilevel(exact, GRID_STEPS, best_levels(exact)))


def sides(exponents: tuple[Array, Array], rates: Array, more: Array | float = 0.0) -> list[Array]:
    """The deviation at each step above and below, of reports that all have these exponents."""
    return [np.array([mixture_deviation(rates, t * (e + more), NOMINAL) for t in TIMES]) for e in exponents]


# ---- laplace


@pytest.mark.medium
def test_the_laplace_band_is_ever_wrong_in_fewer_than_one_run_of_twenty() -> None:
    errors = np.cumsum(np.random.default_rng(1).laplace(0, 1, (RUNS, STEPS)), axis=1) / TIMES
    assert ever(abs(errors) > laplace_half_widths()) <= 0.05
    watched = abs(errors) > 1.96 * np.sqrt(2 / TIMES)  # the twin: a fixed-n interval
    assert ever(watched[:, 9:]) > 0.4


@pytest.mark.medium
def test_the_laplace_band_of_an_estimate_is_that_band() -> None:
    asked = make_task({"id": "t", "epsilon": "2", "domain": WIDE})
    half = laplace_half_widths()
    for n in (200, STEPS):
        given = estimate(asked, fold(asked.randomizer, np.full((n, 1), GRID_STEPS // 2)), NOMINAL)
        low, high = given.intervals[ANYTIME]
        assert (high - low) / 2 == pytest.approx(1e3 * half[n - 1], rel=1e-4)
        assert given.methods[ANYTIME] == "reporters-laplace-mixture"
        fixed = given.intervals[REPORTERS]
        assert low < fixed[0] < fixed[1] < high


@pytest.mark.medium
def test_the_band_for_the_population_counts_the_values_too() -> None:
    epsilon, rng = 8.0, np.random.default_rng(7)
    people = rng.random((RUNS, STEPS)) < 0.5  # half at each bound: the sampling error is largest
    errors = abs(np.cumsum(people - 0.5 + rng.laplace(0, 1 / epsilon, (RUNS, STEPS)), axis=1))
    rates = 0.95 * epsilon * RATES
    noise = -np.log1p(-((rates / epsilon) ** 2))
    half = np.array([symmetric_mixture_deviation(rates, t * (noise + rates**2 / 8), NOMINAL) for t in TIMES])
    assert ever(errors > half) <= 0.05
    wrong = np.array([symmetric_mixture_deviation(rates, t * (noise + rates**2 / 80), NOMINAL) for t in TIMES])
    assert ever(errors > wrong) > 0.05  # planted wrong: a tenth of what the values may add
    asked = make_task({"id": "t", "epsilon": "8", "domain": WIDE})
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
    assert float(1 / Laplace(Fraction(7, 10) * 4, 4).scale) == pytest.approx(h)


# ---- bounded reports


def test_the_band_of_levels_is_that_of_their_exponents() -> None:
    of, counts = levels("4"), (100, 50, 40, 30, 80)
    n, rates = sum(counts), of.fastest * RATES
    above, below = (mixture_deviation(rates, n * one, NOMINAL) for one in of.mixture_exponents(of.fastest))
    given = bounded([Group(of, counts)], Units(Fraction(-9), Fraction(9)), NOMINAL)
    assert given.mean is not None
    assert given.intervals[ANYTIME] == pytest.approx((given.mean - 18 * above / n, given.mean + 18 * below / n))


@pytest.mark.medium
def test_reports_of_several_epsilons_add_their_exponents() -> None:
    mechanisms = [Multilevel(Fraction(1), GRID_STEPS, 1), Multilevel(Fraction(4), GRID_STEPS, 4)]
    channels = [finite(mechanism) for mechanism in mechanisms]
    rng, errors = np.random.default_rng(5), np.zeros((RUNS, STEPS))
    for offer, of in enumerate(channels):  # values 0, each epsilon in turn
        errors[:, offer::2] = rng.choice(of.a, p=of.p[0] / of.p[0].sum(), size=(RUNS, STEPS // 2))
    fastest = min(of.fastest for of in channels)
    pairs = [of.mixture_exponents(fastest) for of in channels]
    counts, bands = [(TIMES + 1) // 2, TIMES // 2], []
    for side in (0, 1):
        exponents = sum(count[:, None] * pair[side] for count, pair in zip(counts, pairs, strict=True))
        bands.append(np.array([mixture_deviation(fastest * RATES, row, NOMINAL) for row in np.asarray(exponents)]))
    total = np.cumsum(errors, axis=1)
    assert ever((total > bands[0]) | (-total > bands[1])) <= 0.05
    narrow = sides(pairs[1], fastest * RATES)  # planted wrong: as if all had chosen the least noise
    assert ever((total > narrow[0]) | (-total > narrow[1])) > 0.3
    groups = [Group(channels[0], (375, 375)), Group(channels[1], (150,) * 5)]
    given = bounded(groups, Units(Fraction(-9), Fraction(9)), NOMINAL)
    assert given.mean is not None
    assert given.intervals[ANYTIME][1] - given.mean == pytest.approx(18 * bands[1][1499] / 1500)


@pytest.mark.medium
def test_the_band_of_a_coordinate_counts_who_was_drawn() -> None:
    of, rng = levels("4"), np.random.default_rng(6)
    top = rng.random((RUNS, STEPS)) < 0.5  # half the people at each bound: the sampling error is largest
    ends = [rng.choice(of.a, p=of.p[row] / of.p[row].sum(), size=(RUNS, STEPS)) for row in (0, -1)]
    errors = np.cumsum(np.where(top, ends[1], ends[0]) - 0.5, axis=1)
    rates, exponents = of.fastest * RATES, of.mixture_exponents(of.fastest)
    above, below = sides(exponents, rates, rates**2 / 8)
    assert ever((errors > above) | (-errors > below)) <= 0.05
    above, below = sides(exponents, rates)
    assert ever((errors > above) | (-errors > below)) > 0.05  # planted wrong: forgets who was drawn
    parts = [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xy"]
    asked = make_task({"id": "v", "epsilon": "4", "domain": {"kind": "vector", "coordinates": parts}})
    first = estimate(asked, Tally(2000, (200, 200, 200, 200, 200, 0, 0, 0, 0, 1000)), NOMINAL).parts[0]
    assert first.methods[ANYTIME] == "population-chernoff-hoeffding-mixture"
    assert first.intervals[ANYTIME][0] < first.intervals[POPULATION][0]


# ---- shares


def test_the_band_of_a_proportion_is_the_beta_band() -> None:
    asked = make_task({"id": "b", "epsilon": "1", "domain": {"kind": "bit"}})
    assert isinstance(asked.randomizer, RandomizedResponse)
    given = estimate(asked, Tally(100, (50,)), NOMINAL)
    p0, p1 = (float(p) for p in asked.randomizer.probability_of_one)
    low, high = (float(end[0, 0]) for end in beta_band(100, np.array([50]), [1 - NOMINAL]))
    assert (high - low) / 2 == pytest.approx(0.1617, abs=1e-4)
    assert given.intervals[ANYTIME] == pytest.approx(((low - p0) / (p1 - p0), (high - p0) / (p1 - p0)))
    assert given.methods[ANYTIME] == "population-beta-mixture"


def test_the_joint_band_of_categories_is_the_beta_band_of_a_third_of_alpha() -> None:
    asked = make_task({"id": "c", "epsilon": "2", "domain": {"kind": "category", "labels": ["a", "b", "c"]}})
    assert isinstance(asked.randomizer, SubsetSelection)
    q, p = (float(x) for x in asked.randomizer.support)
    counts = [700, 450, 350]
    given = estimate(asked, Tally(1500, tuple(counts)), NOMINAL)
    (low,), (high,) = beta_band(1500, np.array(counts), [(1 - NOMINAL) / 3])
    expected = np.clip(np.stack([(low - q) / (p - q), (high - q) / (p - q)], axis=1), 0, 1)
    assert np.array([fact.joint_intervals[ANYTIME] for fact in given.parts]) == pytest.approx(expected, abs=1e-9)
