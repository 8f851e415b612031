"""Estimates of Laplace reports as a whole: the width of every interval, pooling, enrolment, hostile tasks, faults."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import exp, inf, isfinite, log, nan, sqrt
from sys import float_info
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import optimize, special, stats
from single_intervals import Units, laplace_mean_quantile

from hush import Task
from hush_aggregator import Estimate
from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, ENROLLED, POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.mechanisms import fold, laplace
from hush_aggregator.estimate.numerics.guard import FAILED, NOT_FINITE
from hush_aggregator.estimate.numerics.laplace_sums import laplace_log_tail
from hush_aggregator.estimate.numerics.quantiles import normal_quantile, student_quantile
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import GRID_STEPS, NumberDomain
from hush_common.mechanisms import Laplace
from hush_common.task import make_task

TARGETS = {REPORTERS, POPULATION, ANYTIME, ANYTIME_POPULATION}
M = GRID_STEPS


def number(epsilon: str, *, lower: float = 0.0, upper: float = 1.0, **more: Any) -> Task:  # noqa: ANN401 - fields of a task file
    domain = {"kind": "number", "lower": lower, "upper": upper}
    return make_task({"id": "t", "epsilon": epsilon, "domain": domain, **more})


def reports(rows: Sequence[tuple[int, int, int]], task: Task) -> Tally:
    """`count` reports of `value` under each offer, a third of them a tenth of the range above, a third below."""
    bodies = []
    for offer, count, value in rows:
        spread = value + (np.arange(count) % 3 - 1) * (M // 10)
        bodies.append(np.stack([np.full(count, offer), spread], axis=1).astype(np.int64))
    everything = np.concatenate(bodies)
    return fold(task.randomizer, everything if len(rows) > 1 else everything[:, 1:])


def half_widths(given: Estimate) -> dict[str, float]:
    """Less the half step for rounding; none of these intervals reaches a bound of the domain."""
    ends = given.intervals.items()
    assert all(0 < low < high < 1 for _, (low, high) in ends)
    return {target: (high - low) / 2 - 0.5 / M for target, (low, high) in ends}


def quantile(scales: Sequence[tuple[float, int]], confidence: float) -> float:
    """By bisection on the tail alone, which its own tests judge."""
    aim = log((1 - confidence) / 2)
    spread = sqrt(sum(2 * n * b * b for b, n in scales))
    found = optimize.brentq(lambda h: laplace_log_tail(tuple(scales), h)[0] - aim, 0, 40 * spread, rtol=1e-12)
    return float(found)


def band(scales: Sequence[tuple[float, int]], n: int, confidence: float, width: float) -> float:
    """Where the average of cosh reaches 1/alpha: term by term, from the law of continuous noise."""
    rates = [0.95 / max(b for b, _ in scales) * 2 ** (-k / 2) for k in range(25)]

    def above(d: float) -> float:
        logs = []
        for rate in rates:
            psi = sum(-count * log(1 - (rate * b) ** 2) for b, count in scales) + n * (rate * width) ** 2 / 8
            logs.append(np.logaddexp(rate * d, -rate * d) - log(2) - psi)
        return float(special.logsumexp(logs)) + log((1 - confidence) / 25)

    return float(optimize.brentq(above, 0, 60 * sqrt(n) * max(b for b, _ in scales) + 10 * sqrt(n), rtol=1e-12)) / n


@pytest.mark.parametrize(("n", "epsilon"), [(40, 20), (5000, 20), (2000, 2)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_every_interval_has_the_width_that_its_method_says(n: int, epsilon: int, confidence: float) -> None:
    task = number(str(epsilon), enrolled=2 * n)
    given = estimate(task, reports([(0, n, M // 2)], task), confidence)
    noise, found = [(1 / epsilon / n, n)], half_widths(given)
    assert given.all_failures == {}
    assert found.keys() == given.methods.keys() == TARGETS | {ENROLLED}
    assert given.methods[REPORTERS] == "laplace-exact"
    assert found[REPORTERS] == pytest.approx(quantile(noise, confidence), rel=1e-6)
    wide = [(1 / epsilon, n)]
    assert found[ANYTIME] == pytest.approx(band(wide, n, confidence, 0), rel=1e-6)
    assert found[ANYTIME_POPULATION] == pytest.approx(band(wide, n, confidence, 1), rel=1e-6)
    v = 2 / epsilon**2
    values = np.arange(n) % 3 - 1
    seen = max(float(values.var(ddof=1)) / 100, v)
    t, z = (float(law.isf((1 - confidence) / 2)) for law in (stats.t(n - 1), stats.norm))
    if given.methods[POPULATION] == "student-t":
        assert found[POPULATION] == pytest.approx(t * sqrt(seen / n), rel=1e-5)
        assert given.methods[ENROLLED] == "finite-student-t"
        assert found[ENROLLED] == pytest.approx(t * sqrt((seen / 2 + v / 2) / n), rel=1e-5)
        assert given.stderr[ENROLLED] == pytest.approx(sqrt((seen / 2 + v / 2) / n), rel=1e-5)
    elif given.methods[POPULATION] == "laplace-popoviciu":
        q = quantile(noise, confidence)
        assert found[POPULATION] == pytest.approx(sqrt(q**2 + z**2 / (4 * n)), rel=1e-6)
        assert given.methods[ENROLLED] == "finite-popoviciu"
        assert found[ENROLLED] == pytest.approx(sqrt(q**2 + z**2 / (4 * n) * n / (2 * n - 1)), rel=1e-6)
    else:
        assert (given.methods[POPULATION], given.methods[ENROLLED]) == ("laplace-hoeffding", "laplace-serfling")
        assert n == 40
        for target, factor in ((POPULATION, 1.0), (ENROLLED, (n + 1) / (2 * n))):
            assert found[target] == pytest.approx(tangents(noise, factor / (4 * n), confidence), rel=1e-6)
    assert found[REPORTERS] < found[ENROLLED] <= found[POPULATION] * (1 + 1e-9) < found[ANYTIME_POPULATION]
    assert given.stderr[REPORTERS] == pytest.approx(sqrt(v / n), rel=1e-9)


def tangents(noise: Sequence[tuple[float, int]], proxy: float, confidence: float) -> float:
    """The least half-width of the theorem in `sampling`, by a search of scipy's."""
    needed = log(2 / (1 - confidence))

    def half(t: float) -> float:
        tail, rate = laplace_log_tail(tuple(noise), t)
        return t + (needed + tail) / rate + rate * proxy / 2

    unit = sqrt(sum(2 * n * b * b for b, n in noise))
    return float(
        optimize.minimize_scalar(half, bounds=(-8 * unit, 8 * unit), method="bounded", options={"xatol": 1e-9}).fun
    )


def test_everyone_enrolled_has_answered_and_only_the_noise_is_left() -> None:
    for n in (5, 5000):
        task = number("20", enrolled=n)
        given = estimate(task, reports([(0, n, M // 2)], task), 0.95)
        if n == 5:
            assert given.intervals[ENROLLED] == given.intervals[REPORTERS]
        assert given.stderr[ENROLLED] == pytest.approx(given.stderr[REPORTERS], rel=1e-9)
        (low, high), (lower, upper) = given.intervals[ENROLLED], given.intervals[REPORTERS]
        assert high - low == pytest.approx(upper - lower, rel=2e-3)
    more = estimate(number("20", enrolled=4), reports([(0, 5, M // 2)], number("20")), 0.95)
    assert ENROLLED not in {**more.intervals, **more.stderr, **more.methods, **more.failures}


def test_two_epsilons_are_pooled_by_public_weights() -> None:
    task = number("20", offers=["5", "20"], enrolled=3000)
    given = estimate(task, reports([(0, 1200, M // 4), (1, 600, 3 * M // 4)], task), 0.95)
    raw = [1200 / (2 / 25 + 1 / 12), 600 / (2 / 400 + 1 / 12)]
    weights = [share / sum(raw) for share in raw]
    pooled, v = weights[0] / 4 + weights[1] * 3 / 4, [2 / 25, 2 / 400]
    assert given.pooled is not None
    assert given.pooled.mean == pytest.approx(pooled, abs=1e-4)
    assert given.pooled.weights == pytest.approx({"5": weights[0], "20": weights[1]}, rel=1e-6)
    assert given.mean == pytest.approx((1200 / 4 + 600 * 3 / 4) / 1800, abs=1e-4)
    low, high = given.intervals[POPULATION]
    assert (low + high) / 2 == pytest.approx(pooled, abs=1e-4)
    found = half_widths(given)
    noise = [(1 / 5 / 1800, 1200), (1 / 20 / 1800, 600)]
    assert found[REPORTERS] == pytest.approx(quantile(noise, 0.95), rel=1e-6)
    wide = [(1 / 5, 1200), (1 / 20, 600)]
    assert found[ANYTIME] == pytest.approx(band(wide, 1800, 0.95, 0), rel=1e-6)
    assert found[ANYTIME_POPULATION] == pytest.approx(band(wide, 1800, 0.95, 1), rel=1e-6)
    assert given.methods[POPULATION] == "pooled-popoviciu"  # 5.9·20^2 reports and more are needed
    mixed = [(weights[0] / 1200 / 5, 1200), (weights[1] / 600 / 20, 600)]
    spread = (weights[0] ** 2 / 1200 + weights[1] ** 2 / 600) / 4
    z = float(stats.norm.isf(0.025))
    assert found[POPULATION] == pytest.approx(sqrt(quantile(mixed, 0.95) ** 2 + z**2 * spread), rel=1e-6)
    variance = sum(w**2 * x / n for w, x, n in zip(weights, v, (1200, 600), strict=True)) + spread
    assert given.stderr[POPULATION] == pytest.approx(sqrt(variance), rel=1e-6)
    half = sqrt(quantile(noise, 0.95) ** 2 + z**2 / (4 * 1800) * 1200 / 2999)
    assert found[ENROLLED] == pytest.approx(half, rel=1e-6)
    few = estimate(task, reports([(0, 2, M // 4), (1, 2, 3 * M // 4)], task), 0.5)
    assert (few.methods[POPULATION], few.methods[ENROLLED]) == ("pooled-hoeffding", "laplace-serfling")


def test_many_reports_under_two_epsilons_have_students_width() -> None:
    task = number("4", offers=["2", "4"], enrolled=12_000)
    given = estimate(task, reports([(0, 3000, M // 2), (1, 1500, M // 2)], task), 0.95)
    raw = [3000 / (2 / 4 + 1 / 12), 1500 / (2 / 16 + 1 / 12)]
    weights = [share / sum(raw) for share in raw]
    spread = sum(
        w**2 * v / n for w, v, n in zip(weights, (2 / 4, 2 / 16), (3000, 1500), strict=True)
    )  # noise is the floor
    assert given.methods[POPULATION] == "pooled-student-t"
    assert half_widths(given)[POPULATION] == pytest.approx(float(stats.t.isf(0.025, 1499)) * sqrt(spread), rel=1e-6)
    mean = (3000 * 2 / 4 + 1500 * 2 / 16) / 4500**2
    assert given.methods[ENROLLED] == "finite-student-t"
    assert half_widths(given)[ENROLLED] == pytest.approx(float(stats.t.isf(0.025, 4499)) * sqrt(mean), rel=1e-6)


def test_one_noisy_report_among_192_gives_the_exact_interval() -> None:
    task = number("4", offers=["0.5", "4"], lower=0.0, upper=1000.0)
    given = estimate(task, reports([(0, 1, M // 2), (1, 192, M // 2)], task), 0.95)
    low, high = given.intervals[REPORTERS]
    assert (high - low) / 2 - 500 / M == pytest.approx(2000 * 5.567101249 / 193, rel=1e-7)
    assert given.methods[REPORTERS] == "laplace-mixed-exact"


# ---- hostile tasks, under the guard


def crowd(n: int, k: int) -> Tally:
    """n equal reports."""
    rest = [entry for _ in laplace.LADDER for entry in (n * min(max(k, 0), M), 0 if 0 <= k <= M else n)]
    return Tally(n, (n * k, n * k * k, *rest))


@pytest.mark.parametrize(("lower", "upper"), [(-8e307, 9e307), (0.0, 5e-324), (1e16, 1e16 + 2)])
def test_no_interval_of_a_hostile_task_is_missing(lower: float, upper: float) -> None:
    for n, epsilon, confidence in product((1, 99, 10**9), ("0.000001", "50"), (1e-300, 1 - 2**-53)):
        task = number(epsilon, lower=lower, upper=upper, enrolled=10**9)
        given = estimate(task, crowd(n, M // 3), confidence)
        assert given.all_failures == {}
        assert given.intervals.keys() == TARGETS | {ENROLLED}
        assert all(lower <= low <= high <= upper for low, high in given.intervals.values())
        two = number("50", offers=["0.000001", "50"], lower=lower, upper=upper)
        sums = (n, *crowd(n, M // 3).moments, 1, *crowd(1, -M).moments)
        mixed = estimate(two, Tally(n + 1, sums), confidence)
        assert mixed.failures == {}
        assert mixed.intervals.keys() == TARGETS


def test_a_million_rounds_at_epsilon_50_divide_by_nothing() -> None:
    rounds: dict[str, Any] = {"rounds": 10**6, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
    for n in (1, 100, 10**9):
        assert estimate(number("50", **rounds), crowd(n, M // 2), 0.95).all_failures == {}


def test_liars_of_a_huge_range_are_bounded_by_a_share_of_their_reach() -> None:
    given = estimate(number("50", upper=float_info.max), crowd(1000, M // 2), 0.95)
    reach = 1 + 40 / 50
    assert given.single.worst_case_bias["1"] / float_info.max == pytest.approx(reach / 1000, rel=1e-6)


# ---- faults


MADE_BY = {
    "mixed_laplace_quantile": {REPORTERS},
    "noise_and_sampling": {POPULATION, ENROLLED},
    "symmetric_mixture_deviation": {ANYTIME, ANYTIME_POPULATION},
}


@pytest.mark.parametrize(
    ("made_by", "fault"),
    [
        *product(MADE_BY, ("raises", "divides by zero")),
        *product(("mixed_laplace_quantile", "noise_and_sampling"), ("is NaN",)),
    ],
)
def test_an_interval_that_fails_is_named_and_all_else_stays(
    made_by: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, n, missing = number("2", enrolled=500), 20 + list(MADE_BY).index(made_by) + 4 * len(fault), MADE_BY[made_by]

    def broken(*_: object, **__: object) -> Any:  # noqa: ANN401 - as what it stands for
        if fault == "raises":
            raise LookupError("planted")
        if fault == "divides by zero":
            return np.float64(1) / np.float64(0)
        return (nan, "planted") if made_by == "noise_and_sampling" else nan

    with monkeypatch.context() as patch:
        patch.setattr(laplace, made_by, broken)
        given = estimate(task, crowd(n, M // 2), 0.95)
    sound = estimate(task, crowd(n, M // 2), 0.95)
    assert given.all_failures == dict.fromkeys(missing, FAILED if fault == "raises" else NOT_FINITE)
    assert (given.n, given.mean, given.stderr) == (sound.n, sound.mean, sound.stderr)
    left = {target: ends for target, ends in sound.intervals.items() if target not in missing}
    assert given.intervals == left
    assert given.methods.keys() == left.keys()
    assert (given.single.manski is None) == (REPORTERS in missing)


# ---- the bars of a mean


def task(lower: float = 120.0, upper: float = 220.0, epsilon: str = "1") -> Task:
    return make_task({"id": "t", "epsilon": epsilon, "domain": {"kind": "number", "lower": lower, "upper": upper}})


BIT_TASK = make_task({"id": "b", "epsilon": "1", "domain": {"kind": "bit"}})


def tally(given: list[int]) -> Tally:
    return fold(task().randomizer, np.array(given, dtype=np.int64).reshape(-1, 1))


def ones(n: int) -> Tally:
    """`n` reports of the index 1."""
    return Tally(n, (n, n) + (n, 0) * len(laplace.LADDER))


def test_no_report_gives_no_mean_and_no_bars() -> None:
    for asked in (task(), BIT_TASK):
        assert estimate(asked, Tally(), 0.95) == Estimate(0)


@pytest.mark.parametrize("n", [0, 3])
def test_a_confidence_outside_0_and_1_is_refused_by_its_value(n: int) -> None:
    for confidence in (0, 1, -0.1, 95, nan, inf):
        with pytest.raises(ValueError, match=f"confidence.* {confidence}"):
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


def test_an_interval_at_a_bound_keeps_its_inner_arm() -> None:
    for some in ([-(10**7)] * 200, [-1] * 200, [GRID_STEPS + 1] * 200, [10**9]):
        low, high = estimate(task(epsilon="8"), tally(some), 0.95).intervals[REPORTERS]
        assert high - low == pytest.approx(12.5 * laplace_mean_quantile(len(some), 0.95), rel=1e-4)


@pytest.mark.medium
@hypothesis.settings(max_examples=40)
@hypothesis.given(middle=st.fractions(-3, 4), down=st.fractions(0, 2), up=st.fractions(0, 2))
def test_a_moved_interval_keeps_its_inner_arm_and_what_clipping_leaves(
    middle: Fraction, down: Fraction, up: Fraction
) -> None:
    units = Units()
    low, high = units.around(middle, middle - down, middle + up)
    clipped = units.interval(middle - down, middle + up)
    assert 0 <= low <= clipped[0]
    assert clipped[1] <= high <= 1
    assert 0 <= middle <= 1 or high - low >= min(float(up if middle < 0 else down), 1) - 1e-12
    assert not 0 <= middle <= 1 or (low, high) == clipped


@pytest.mark.medium
@hypothesis.settings(max_examples=40)
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


@pytest.mark.parametrize("confidence", [1e-300, 0.5, 1 - 2**-53])
def test_one_two_and_equal_reports_give_finite_bars_in_order(confidence: float) -> None:
    for some in ([0], [GRID_STEPS], [5, 5], [-(10**12)], [7] * 99, [7] * 100):
        given = estimate(task(), tally(some), confidence)
        assert all(error > 0 and isfinite(error) for error in given.stderr.values())
        assert all(120 <= low <= high <= 220 for low, high in given.intervals.values())
        assert given.stderr[REPORTERS] <= given.stderr[POPULATION]


def lattice_coverage(mechanism: Laplace, n: int, offset: Fraction = Fraction(0)) -> float:
    """The exact coverage of n values that each lie `offset` steps above the grid point they were rounded to."""
    reach = 40 * int(mechanism.scale)
    z = np.arange(-reach, reach + 1)
    q = exp(-float(1 / mechanism.scale))
    law = one = (1 - q) / (1 + q) * q ** abs(z)
    for _ in range(n - 1):
        law = np.convolve(law, one)
    sums = np.arange(-n * reach, n * reach + 1)
    half = sqrt(mechanism.variance / 2) * laplace_mean_quantile(n, 0.95) + 0.5
    return float(law[abs(sums / n - float(offset)) <= half].sum())


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("offset", [Fraction(0), Fraction(1, 2), Fraction(-1, 2)])
def test_on_a_coarse_grid_rounding_is_covered_too(n: int, offset: Fraction) -> None:
    mechanism = Laplace(Fraction(1), 64)
    assert 0.95 <= lattice_coverage(mechanism, n, offset) < 0.955


# ---- unbiased


@pytest.mark.parametrize("index", [0, 1, 4])
def test_the_mean_over_all_reports_is_the_value_at_the_ends_too(index: int) -> None:
    domain = NumberDomain(-1.0, 3.0, steps=4)
    mechanism = Laplace(Fraction(4), 4)
    mean = sum(
        float(mechanism.probability((k,), index))
        * (laplace.estimate_mean([(mechanism, fold(mechanism, np.array([[k]])))], domain, 0.5).mean or 0)
        for (k,) in mechanism.outputs()
    )
    assert mean == pytest.approx(-1 + index, abs=1e-12)


def test_clipping_reports_to_the_bounds_would_bias_the_mean() -> None:
    mechanism, steps = Laplace(Fraction(4), 64), 64
    mean = sum(float(mechanism.probability((k,), steps)) * min(max(k, 0), steps) for (k,) in mechanism.outputs())
    continuous = -(1 - exp(-4)) / 8
    assert (mean - steps) / steps == pytest.approx(continuous, rel=0.01)
    assert continuous < -0.1
