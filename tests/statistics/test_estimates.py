"""`estimate` as a whole, and the coverage of the error bars of Laplace reports."""

from collections.abc import Callable
from fractions import Fraction
from math import exp, inf, isfinite, nan, sqrt
from sys import float_info

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray
from single_intervals import laplace_mean_quantile

from hush import Task
from hush_aggregator import Estimate
from hush_aggregator.estimate import ANYTIME, POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.mechanisms import fold, laplace
from hush_aggregator.estimate.mechanisms.laplace import LADDER
from hush_aggregator.estimate.numerics.quantiles import normal_quantile, student_quantile
from hush_aggregator.estimate.units import Units
from hush_aggregator.tally import Tally
from hush_common.domain import GRID_STEPS, NumberDomain
from hush_common.mechanisms import Laplace
from hush_common.task import make_task

Array = NDArray[np.float64]

SIZES = (1, 2, 5, 10, 100)
EPSILONS = ("0.5", "1", "4")
DRAWS = 200_000
SIX_DEVIATIONS = 6 * sqrt(0.95 * 0.05 / DRAWS)
"""A coverage of 0.95 misses it by more in one run of 5e8."""


def task(lower: float = 120.0, upper: float = 220.0, epsilon: str = "1") -> Task:
    return make_task({"id": "t", "epsilon": epsilon, "domain": {"kind": "number", "lower": lower, "upper": upper}})


BIT_TASK = make_task({"id": "b", "epsilon": "1", "domain": {"kind": "bit"}})


def tally(reports: list[int]) -> Tally:
    return fold(task().randomizer, np.array(reports, dtype=np.int64).reshape(-1, 1))


def ones(n: int) -> Tally:
    """`n` reports of the index 1."""
    return Tally(n, (n, n) + (n, 0) * len(LADDER))


def test_no_report_gives_no_mean_and_no_bars() -> None:
    for asked in (task(), BIT_TASK):
        assert estimate(asked, Tally(), 0.95) == Estimate(0)


@pytest.mark.parametrize("confidence", [0, 1, -0.1, 95, nan, inf])
@pytest.mark.parametrize("n", [0, 3])
def test_a_confidence_outside_0_and_1_is_refused_by_its_value(confidence: float, n: int) -> None:
    with pytest.raises(ValueError, match=f"confidence is {confidence}"):
        estimate(task(), ones(n), confidence)


def test_each_target_has_its_method() -> None:
    methods = {n: estimate(task(), ones(n), 0.95).methods for n in (1, 99, 100, 1000, 1001)}
    assert {n: method[REPORTERS] for n, method in methods.items()} == {
        1: "laplace-exact",
        99: "laplace-exact",
        100: "laplace-exact",
        1000: "laplace-exact",
        1001: "laplace-exact",
    }
    assert methods[99][POPULATION] == "laplace-popoviciu"
    assert methods[100][POPULATION] == methods[1001][POPULATION] == "student-t"
    assert estimate(task(epsilon="8"), ones(15), 0.95).methods[POPULATION] == "laplace-hoeffding"
    assert estimate(task(), ones(99), 0.8).methods[POPULATION] == "laplace-hoeffding"
    assert estimate(BIT_TASK, Tally(3, (1,)), 0.95).methods == {
        REPORTERS: "binomial-inversion",
        POPULATION: "clopper-pearson",
        ANYTIME: "population-beta-mixture",
    }


def test_a_task_of_two_rounds_is_estimated_at_the_epsilon_of_one() -> None:
    document = {
        "id": "t",
        "epsilon": "2",
        "rounds": 2,
        "round_every": "1d",
        "opens": "2026-01-01T00:00:00Z",
        "domain": {"kind": "number", "lower": 120.0, "upper": 220.0},
    }
    some = tally([500_000] * 200)
    assert estimate(make_task(document), some, 0.9) == estimate(task(epsilon="1"), some, 0.9)


def test_the_mean_is_the_exact_fraction_rounded_once() -> None:
    given = estimate(task(0.1, 0.7), tally([1, 2, 2]), 0.95)
    assert given.mean == float(Fraction(0.1) + Fraction(5, 3) * (Fraction(0.7) - Fraction(0.1)) / GRID_STEPS)


def test_the_mean_is_never_clipped_and_the_intervals_always() -> None:
    given = estimate(task(), tally([-3 * GRID_STEPS, -3 * GRID_STEPS]), 0.95)
    assert given.mean == 120 - 300
    assert all(low == 120 for low, _ in given.intervals.values())
    low, high = estimate(task(epsilon="8"), tally([2 * GRID_STEPS, 3 * GRID_STEPS]), 0.95).intervals[REPORTERS]
    assert low == pytest.approx(220 - 100 / 8 * laplace_mean_quantile(2, 0.95), abs=1e-4)
    assert high == 220.0


@pytest.mark.parametrize("reports", [[-(10**7)] * 200, [-1] * 200, [GRID_STEPS + 1] * 200, [10**9]])
def test_an_interval_at_a_bound_keeps_its_inner_arm(reports: list[int]) -> None:
    given = estimate(task(epsilon="8"), tally(reports), 0.95)
    half = 12.5 * laplace_mean_quantile(len(reports), 0.95)
    assert given.intervals[REPORTERS][1] - given.intervals[REPORTERS][0] == pytest.approx(half, rel=1e-4)


@hypothesis.given(middle=st.fractions(-3, 4), down=st.fractions(0, 2), up=st.fractions(0, 2))
def test_it_contains_what_clipping_leaves_and_is_no_shorter_than_the_arm_inside(
    middle: Fraction, down: Fraction, up: Fraction
) -> None:
    units = Units()
    low, high = units.around(middle, middle - down, middle + up)
    clipped = units.interval(middle - down, middle + up)
    assert 0 <= low <= clipped[0]
    assert clipped[1] <= high <= 1
    assert 0 <= middle <= 1 or high - low >= min(float(up if middle < 0 else down), 1) - 1e-12
    assert not 0 <= middle <= 1 or (low, high) == clipped


@hypothesis.given(
    st.fractions(-3, 4, max_denominator=10**6), st.floats(0, 5), st.floats(0, 5), st.sampled_from([1, 7, GRID_STEPS])
)
def test_an_interval_about_an_estimate_is_the_one_between_its_exact_ends(
    center: Fraction, below: float, above: float, parts: int
) -> None:
    units = Units(Fraction(-1, 3), Fraction(220), Fraction(1, 2 * GRID_STEPS))
    counted = center * parts
    low, high = (counted - Fraction(below)) / parts, (counted + Fraction(above)) / parts
    assert units.arms(counted.denominator, below, above, parts)(counted.numerator) == units.around(center, low, high)
    about = units.arms(3 * counted.denominator, below, above, parts)  # of centers in any unit, at any place
    assert about(3 * counted.numerator) == units.around(center, low, high)
    one = Fraction(1, 3 * counted.denominator * parts)
    assert about(3 * counted.numerator + 1) == units.around(center + one, low + one, high + one)


def test_the_bars_have_their_closed_forms() -> None:
    reports = [300_000 + 4_000 * (i % 250) for i in range(500)]
    given = estimate(task(epsilon="4"), tally(reports), 0.9)
    step, b = 100 / GRID_STEPS, 100 / 4
    mean, deviation = 120 + step * np.mean(reports), step * np.std(reports, ddof=1)
    half = b * laplace_mean_quantile(500, 0.9) + step / 2
    assert deviation**2 < 2 * b**2  # so that the noise is the floor
    assert given.mean == pytest.approx(mean, rel=1e-14)
    assert given.stderr == pytest.approx({REPORTERS: b * sqrt(2 / 500), POPULATION: b * sqrt(2 / 500)}, rel=1e-9)
    assert given.intervals[REPORTERS] == pytest.approx((mean - half, mean + half), rel=1e-12)


def test_spread_beyond_the_noise_is_taken_from_the_data() -> None:
    reports = [0, GRID_STEPS] * 200
    given = estimate(task(epsilon="8"), tally(reports), 0.95)
    error = 100 * float(np.std([0, 1] * 200, ddof=1)) / sqrt(400)
    half = student_quantile(399, 0.95) * error + 50 / GRID_STEPS
    assert given.stderr[POPULATION] == pytest.approx(error, rel=1e-12)
    assert given.intervals[POPULATION] == pytest.approx((170 - half, 170 + half), rel=1e-12)
    assert given.stderr[REPORTERS] < error / 2


def test_few_reports_take_the_largest_spread_that_the_bounds_allow() -> None:
    given = estimate(task(epsilon="4"), tally([GRID_STEPS // 2] * 50), 0.95)
    half = sqrt((25 * laplace_mean_quantile(50, 0.95)) ** 2 + normal_quantile(0.95) ** 2 * 100**2 / (4 * 50))
    assert given.stderr[POPULATION] == pytest.approx(sqrt((2 * 25**2 + 100**2 / 4) / 50), rel=1e-9)
    assert given.intervals[POPULATION] == pytest.approx((170 - half, 170 + half), abs=1e-4)


@pytest.mark.parametrize("reports", [[0], [GRID_STEPS], [5, 5], [-(10**12)], [7] * 99, [7] * 100, [7] * 2000])
@pytest.mark.parametrize("confidence", [1e-300, 0.5, 0.95, 1 - 2**-53])
def test_one_two_and_equal_reports_give_finite_bars_in_order(reports: list[int], confidence: float) -> None:
    given = estimate(task(), tally(reports), confidence)
    assert all(error > 0 and isfinite(error) for error in given.stderr.values())
    assert all(120 <= low <= high <= 220 for low, high in given.intervals.values())
    assert given.stderr[REPORTERS] <= given.stderr[POPULATION]


@pytest.mark.parametrize(
    ("lower", "upper"), [(-8e307, 9e307), (0.0, 5e-324), (1e16, 1e16 + 2), (-1e-300, 1e-300), (0.0, float_info.max)]
)
@pytest.mark.parametrize("epsilon", ["0.000001", "50"])
@pytest.mark.parametrize("n", [1, 500])
def test_huge_and_tiny_ranges_neither_overflow_nor_underflow(lower: float, upper: float, epsilon: str, n: int) -> None:
    asked = task(lower, upper, epsilon)
    for k in (-(10**13), 0, GRID_STEPS // 2, 10**13):
        given = estimate(asked, tally([k] * n), 0.95)
        assert given.mean is not None
        assert isfinite(given.mean)
        assert all(isfinite(error) for error in given.stderr.values())
        assert all(lower <= low <= high <= upper for low, high in given.intervals.values())


# ---- coverage for the reporters: only the noise matters, and its sum has a law that can be drawn at once


def noise_sums(mechanism: Laplace, n: int, seed: int, draws: int = DRAWS) -> Array:
    """Sums of n discrete Laplace variables: the difference of two sums of n geometric, negative binomial, ones."""
    rng, p = np.random.default_rng(seed), -np.expm1(-float(1 / mechanism.scale))
    return np.asarray(rng.negative_binomial(n, p, draws) - rng.negative_binomial(n, p, draws), dtype=float)


def half_width(mechanism: Laplace, n: int) -> float:
    """Of the interval for the reporters, in steps: `test_the_bars_have_their_closed_forms` finds it in `estimate`."""
    return sqrt(mechanism.variance / 2) * laplace_mean_quantile(n, 0.95) + 0.5


def nominal(covered: NDArray[np.bool_]) -> bool:
    return abs(float(covered.mean()) - 0.95) < SIX_DEVIATIONS


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_interval_for_the_reporters_covers_as_often_as_it_says(n: int, epsilon: str) -> None:
    mechanism = Laplace(Fraction(epsilon), GRID_STEPS)
    assert nominal(abs(noise_sums(mechanism, n, seed=50 + n) / n) <= half_width(mechanism, n))


@pytest.mark.parametrize("n", [1, 2])
def test_a_normal_interval_for_one_or_two_reports_does_not(n: int) -> None:
    mechanism = Laplace(Fraction(1), GRID_STEPS)
    half = 1.96 * sqrt(mechanism.variance / n)
    assert not nominal(abs(noise_sums(mechanism, n, seed=60) / n) <= half)


@pytest.mark.parametrize(("twice", "coverage"), [(10, 0.929), (100, 0.834)])
def test_reports_counted_twice_void_it(twice: int, coverage: float) -> None:
    mechanism, n = Laplace(Fraction(1), GRID_STEPS), 100
    repeated = 2 * noise_sums(mechanism, twice, seed=61)
    once = noise_sums(mechanism, n - twice, seed=62) if twice < n else np.zeros(DRAWS)
    covered = abs((repeated + once) / (n + twice)) <= half_width(mechanism, n + twice)
    assert not nominal(covered)
    assert float(covered.mean()) == pytest.approx(coverage, abs=0.004)


def test_reports_clipped_to_the_bounds_void_it() -> None:
    mechanism, n, draws = Laplace(Fraction(1), GRID_STEPS), 400, 1000
    noise = noise_sums(mechanism, 1, seed=63, draws=n * draws).reshape(draws, n)
    clipped = np.clip(GRID_STEPS + noise, 0, GRID_STEPS).mean(axis=1)
    honest = (GRID_STEPS + noise).mean(axis=1)
    half = half_width(mechanism, n)
    assert (abs(honest - GRID_STEPS) <= half).mean() > 0.92
    assert (abs(clipped - GRID_STEPS) <= half).mean() < 0.01


def lattice_coverage(mechanism: Laplace, n: int, offset: Fraction = Fraction(0)) -> float:
    """The exact coverage of n values that each lie `offset` steps above the grid point they were rounded to."""
    reach = 40 * int(mechanism.scale)
    z = np.arange(-reach, reach + 1)
    q = exp(-float(1 / mechanism.scale))
    law = one = (1 - q) / (1 + q) * q ** abs(z)
    for _ in range(n - 1):
        law = np.convolve(law, one)
    sums = np.arange(-n * reach, n * reach + 1)
    return float(law[abs(sums / n - float(offset)) <= half_width(mechanism, n)].sum())


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("offset", [Fraction(0), Fraction(1, 2), Fraction(-1, 2)])
def test_on_a_coarse_grid_rounding_is_covered_too(n: int, offset: Fraction) -> None:
    mechanism = Laplace(Fraction(1), 64)
    assert 0.95 <= lattice_coverage(mechanism, n, offset) < 0.955


# ---- coverage for the population, end to end: reports, tally, estimate

POPULATIONS: dict[str, tuple[float, Callable[[np.random.Generator, tuple[int, int]], NDArray[np.int64]]]] = {
    "all at the lower bound": (0, lambda _, shape: np.zeros(shape, dtype=np.int64)),
    "half at each bound": (GRID_STEPS / 2, lambda rng, shape: GRID_STEPS * rng.binomial(1, 0.5, shape)),
    "a tenth at the upper bound": (GRID_STEPS / 10, lambda rng, shape: GRID_STEPS * rng.binomial(1, 0.1, shape)),
    "uniform": (GRID_STEPS / 2, lambda rng, shape: rng.integers(0, GRID_STEPS + 1, shape)),
}
"""Mean and sampler of indices."""

RUNS = 400
"""Through the whole estimate; docs/coverage.md has 20 000 of each cell, and `test_population_intervals` exact sums."""


def simulate(population: str, n: int, epsilon: str, bars: tuple[str, str] = (REPORTERS, POPULATION)) -> Array:
    """How often `bars[0]` covered the mean of the reporters and `bars[1]` that of the population, in `RUNS` runs."""
    asked = task(epsilon=epsilon)
    mean, draw = POPULATIONS[population]
    indices = draw(np.random.default_rng([70, n]), (RUNS, n))
    noise = noise_sums(Laplace(Fraction(epsilon), GRID_STEPS), 1, seed=71 + n, draws=RUNS * n)
    reports = indices + noise.astype(np.int64).reshape(RUNS, n)
    hits = np.zeros(2)
    for row, truth in zip(reports, indices.mean(axis=1), strict=True):
        given = estimate(asked, fold(asked.randomizer, row.reshape(-1, 1)), 0.95)
        for which, target in enumerate((truth, mean)):
            low, high = given.intervals[bars[which]]
            hits[which] += low - 1e-9 <= 120 + 100 * target / GRID_STEPS <= high + 1e-9
    return hits / RUNS


@pytest.mark.medium
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("population", POPULATIONS)
def test_both_intervals_cover_their_targets_whatever_the_values_are(population: str, epsilon: str) -> None:
    covered = np.array([simulate(population, n, epsilon) for n in SIZES])
    slack = 6 * sqrt(0.95 * 0.05 / (RUNS * len(SIZES)))
    assert covered[:, 0].mean() > 0.95 - slack
    assert covered[:, 1].mean() > 0.945 - slack
    assert covered.min() > 0.943 - 6 * sqrt(0.95 * 0.05 / RUNS)


def test_the_interval_for_the_reporters_is_too_short_for_the_population() -> None:
    _, people = simulate("half at each bound", 100, "4", bars=(REPORTERS, REPORTERS))
    assert people < 0.8


# ---- unbiased


@pytest.mark.parametrize("index", [0, 1, 4])
@pytest.mark.parametrize("epsilon", ["1/2", "4"])
def test_the_mean_over_all_reports_is_the_value_at_the_ends_too(index: int, epsilon: str) -> None:
    domain = NumberDomain(-1.0, 3.0, steps=4)
    mechanism = Laplace(Fraction(epsilon), 4)
    mean = sum(
        float(mechanism.probability((k,), index))
        * (laplace.estimate_mean([(mechanism, fold(mechanism, np.array([[k]])))], domain, 0.5).mean or 0)
        for (k,) in mechanism.outputs()
    )
    assert mean == pytest.approx(-1 + index, abs=1e-12)


@pytest.mark.parametrize("epsilon", ["1/2", "1", "4"])
def test_clipping_reports_to_the_bounds_would_bias_it_by_a_tenth_of_the_range_and_more(epsilon: str) -> None:
    mechanism, steps = Laplace(Fraction(epsilon), 64), 64
    mean = sum(float(mechanism.probability((k,), steps)) * min(max(k, 0), steps) for (k,) in mechanism.outputs())
    continuous = -(1 - exp(-float(mechanism.epsilon))) / (2 * float(mechanism.epsilon))
    assert (mean - steps) / steps == pytest.approx(continuous, rel=0.01)
    assert continuous < -0.1
