"""Quantiles and special functions under the intervals, against exact arithmetic, arbitrary precision and scipy."""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import comb, exp, factorial, log, sqrt

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, special, stats
from single_intervals import laplace_mean_quantile
from tools.laplace_mixes import Mix, read, tail_and_density

from hush_aggregator.estimate.intervals.inversion import fewest
from hush_aggregator.estimate.numerics.guard import guarded, underflow
from hush_aggregator.estimate.numerics.laplace_sums import laplace_log_tail, mixed_laplace_quantile
from hush_aggregator.estimate.numerics.quantiles import (
    beta_band,
    beta_logits,
    beta_quantile,
    clopper_pearson,
    deviance,
    expit,
    log1p_exp,
    normal_quantile,
    stirling,
    student_quantile,
)

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
ALLOWED = 1e-9

# ---- one scale of Laplace noise

SURE = (1e-6, 0.01, 0.5, 0.9, 0.95, 0.99, 1 - 1e-6, 1 - 1e-9)


def exact_tail(n: int, s: float) -> Decimal:
    """P(S > s) = P(Poisson(s) + NB(n, 1/2) ≤ n - 1), with integer binomials and 60 digits."""
    with localcontext() as context:
        context.prec = 60
        poisson, total, below, sums = (-Decimal(s)).exp(), Decimal(0), 0, []
        for i in range(n):
            below += comb(n + i - 1, i) << (n - i)
            sums.append(Decimal(below) / (1 << 2 * n))
        for j in range(n):
            total += poisson * sums[n - 1 - j]
            poisson *= Decimal(s) / (j + 1)
        return total


@pytest.mark.parametrize(
    ("n", "s", "tail"),
    [
        (1, 1, 0.18393972058572116),
        (5, 3, 0.15966868410162616),
        (50, 12, 0.11417545407046197),
        (400, 80, 0.0023710570069076286),
    ],
)
def test_the_tail_of_a_sum_of_laplace_variables_is_exact(n: int, s: int, tail: float) -> None:
    assert exp(laplace_log_tail(((1.0, n),), s)[0]) == pytest.approx(tail, rel=1e-10)
    assert float(exact_tail(n, s)) == pytest.approx(tail, rel=1e-14)


@pytest.mark.parametrize("n", [1, 7, 400])
@pytest.mark.parametrize("s", [0.0, 1e-9, 30.0, 300.0])
def test_the_tail_keeps_its_digits_from_the_centre_to_one_in_a_googol(n: int, s: float) -> None:
    assert exp(laplace_log_tail(((1.0, n),), s)[0]) == pytest.approx(float(exact_tail(n, s)), rel=1e-10)


@pytest.mark.parametrize("n", [1, 2, 10, 99, 300])
def test_the_laplace_quantile_inverts_the_exact_tail(n: int) -> None:
    for confidence in SURE:
        s = n * laplace_mean_quantile(n, confidence)
        assert float(exact_tail(n, s)) == pytest.approx((1 - confidence) / 2, rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 1000, 1001, 10**9])
def test_confidences_next_to_zero_and_one_give_finite_quantiles(n: int) -> None:
    for confidence in (5e-324, 1e-17, 1 - 2**-53):
        assert 0 <= laplace_mean_quantile(n, confidence) < 40
        assert 0 <= student_quantile(n, confidence) < 1e16


def test_a_normal_quantile_for_one_laplace_variable_would_be_found() -> None:
    wrong = normal_quantile(0.95) * sqrt(2)
    assert 2 * float(exact_tail(1, wrong)) == pytest.approx(0.0625, abs=1e-4)  # covers 93.75 %, not 95 %


def test_normal_and_student_quantiles_are_those_of_scipy() -> None:
    for confidence in SURE:
        tail = (1 - confidence) / 2
        assert normal_quantile(confidence) == pytest.approx(stats.norm.isf(tail), rel=1e-9)
        for freedom in (1, 2, 3, 10, 99, 499, 10**4, 10**6):
            assert student_quantile(freedom, confidence) == pytest.approx(stats.t.isf(tail, freedom), rel=1e-9)


# ---- mixed scales, against a table made in arbitrary precision (`tests/tools/laplace_mixes.py`)

TABLE = read()
SOME = TABLE[7::100]


@pytest.mark.medium
def test_a_sixth_of_the_quantiles_of_the_table_comes_out() -> None:
    with guarded():
        found = np.array([mixed_laplace_quantile(mix, confidence) for mix, confidence, _ in TABLE[::6]])
    expected = np.array([quantile for _, _, quantile in TABLE[::6]])
    assert float(abs(found / expected - 1).max()) < ALLOWED


@pytest.mark.medium
def test_some_of_the_table_is_computed_again() -> None:
    for mix, confidence, quantile in SOME:
        tail, density = tail_and_density(mix, mpmath.mpf(quantile))
        off = (mpmath.log(tail) - mpmath.log((1 - mpmath.mpf(confidence)) / 2)) * tail / (density * quantile)
        assert abs(off) < 1e-13, (mix, confidence)


@pytest.mark.parametrize(
    ("mix", "quantile"),
    [
        (((1.0, 1), (1 / 8, 192)), 5.567101),
        (((1.0, 1), (1 / 10, 110)), 4.071780),
        (((1.0, 1), (1 / 40, 1600)), 3.977447),
    ],
)
def test_one_noisy_report_among_many_that_are_not(mix: Mix, quantile: float) -> None:
    assert mixed_laplace_quantile(mix, 0.95) == pytest.approx(quantile, abs=5e-7)


def test_two_scales_have_the_closed_tail() -> None:
    a, b, h = 1.0, 0.25, 1.5  # partial fractions of 1/((1 - a²s²)(1 - b²s²))
    tail = (a**2 * exp(-h / a) - b**2 * exp(-h / b)) / (2 * (a**2 - b**2))
    density = (a * exp(-h / a) - b * exp(-h / b)) / (2 * (a**2 - b**2))
    for scale in (1e-300, 1.0, 1e300):  # in any unit
        log_tail, hazard = laplace_log_tail(((a * scale, 1), (b * scale, 1)), h * scale)
        assert exp(log_tail) == pytest.approx(tail, rel=1e-11)
        assert hazard == pytest.approx(density / tail / scale, rel=1e-11)
        beyond, rate = laplace_log_tail(((a * scale, 1), (b * scale, 1)), -h * scale)
        assert exp(beyond) == pytest.approx(1 - tail, rel=1e-11)
        assert rate == pytest.approx(density / (1 - tail) / scale, rel=1e-11)


@pytest.mark.parametrize("mix", [((1.0, 1),), ((1.0, 2), (0.3, 5)), ((1.0, 1), (1e-3, 10**6))])
def test_the_tail_is_one_half_at_0_and_the_integral_of_its_density(mix: Mix) -> None:
    assert laplace_log_tail(mix, 0.0)[0] == pytest.approx(log(0.5), abs=1e-12)
    law = [exp(sum(laplace_log_tail(mix, x)[:1])) * laplace_log_tail(mix, x)[1] for x in (0.5, 0.5 + 1e-5)]
    between = exp(laplace_log_tail(mix, 0.5)[0]) - exp(laplace_log_tail(mix, 0.5 + 1e-5)[0])
    assert between == pytest.approx(1e-5 * sum(law) / 2, rel=1e-6)
    whole, _ = integrate.quad(
        lambda x: exp(laplace_log_tail(mix, x)[0]) * laplace_log_tail(mix, x)[1], 0, 60, limit=200
    )
    assert whole == pytest.approx(0.5, rel=1e-7)


# ---- special functions

SHAPES = (0.5, 1.0, 7.0, 1500.0)
BETA_TAILS = (0.5, 0.3, 0.01, 1e-9, 1e-60)


@pytest.mark.medium
@pytest.mark.parametrize("a", SHAPES)
def test_a_beta_quantile_has_ten_digits_in_either_tail(a: float) -> None:
    with mpmath.workdps(40):
        for b, tail in product(SHAPES, BETA_TAILS):
            allowed = 1e-9 if min(a, b) < 1 else 1e-11
            (logit,) = beta_logits(tail, a, b).tolist()
            x = 1 / (1 + mpmath.exp(-mpmath.mpf(logit)))
            density = x**a * (1 - x) ** b / mpmath.beta(a, b)  # by the logit
            missed = mpmath.betainc(a, b, 0, x, regularized=True) - tail
            # one unit of the last place of the logit is not a fault of the method
            assert abs(missed) < allowed * tail + density * abs(logit) * 1e-15, (b, tail)
            assert beta_quantile(tail, a, b) == pytest.approx(float(x), rel=1e-12)
            if tail > 1e-12:
                mirrored = float(expit(-beta_logits(tail, b, a))[0])
                assert beta_quantile(1 - tail, a, b) == pytest.approx(mirrored, rel=1e-6)


def test_the_error_of_stirlings_formula_has_sixteen_digits() -> None:
    z = np.array([0.1, 0.5, 1.0, 3.3, 15.9, 16.0, 16.5, 20.0, 60.0, 1e3, 1e8])
    with mpmath.workdps(40):
        for at, error in zip(z.tolist(), stirling(z).tolist(), strict=True):
            exact = mpmath.loggamma(at) - (at - mpmath.mpf(1) / 2) * mpmath.log(at) + at - mpmath.log(2 * mpmath.pi) / 2
            assert abs(error - exact) < (1.5e-16 if at >= 16 else 5e-14)


def test_logits_keep_their_digits_from_end_to_end() -> None:
    for u in (-800.0, -745.0, -40.0, -1.0, -1e-9, 0.0, 1e-9, 1.0, 40.0, 800.0):
        with mpmath.workdps(400):
            exact = mpmath.log1p(mpmath.exp(mpmath.mpf(u)))
            share = 1 / (1 + mpmath.exp(-mpmath.mpf(u)))
        assert log1p_exp(np.array([u]))[0] == pytest.approx(float(exact), rel=1e-15, abs=1e-320)
        assert expit(np.array([u]))[0] == pytest.approx(float(share), rel=1e-13, abs=1e-320)


def test_a_deviance_keeps_its_digits_near_its_zero_and_far_from_it() -> None:
    for a, b in ((0.0, 5.0), (5.0, 0.0), (1.0, 1.0), (3.0, 40.0), (1e6, 3e6), (2e8, 8e8)):
        middle = float(mpmath.log(a / b)) if a and b else 0.0
        for away in (-30.0, -0.7, -1e-3, -1e-6, 1e-6, 1e-3, 0.7, 30.0):
            u = middle + away
            log_x, log_y = -log1p_exp(np.array([-u])), -log1p_exp(np.array([u]))
            (given,) = deviance(log_x, log_y, np.array([a]), np.array([b])).tolist()
            with mpmath.workdps(60):
                x = 1 / (1 + mpmath.exp(-mpmath.mpf(u)))
                exact = mpmath.fsum(k * mpmath.log(k / (y * (a + b))) for k, y in ((a, x), (b, 1 - x)) if k)
                slope = abs(a - x * (a + b))  # what one unit in the last place of the logit changes
            assert abs(given - exact) < 1e-13 * exact + 1e-15 * slope * max(abs(u), 1), (a, b, away)


# ---- limits of many counts at once

CONFIDENCES = (1e-300, 1e-9, 0.5, 0.95, 1 - 0.05 / 1024, 1 - 1e-9, 1 - 2**-53)
TAILS = [(1 - confidence) / 2 for confidence in CONFIDENCES]
SIZES = (1, 3, 10, 1000, 10**7)


def counts_of(n: int) -> Counts:
    """None, all, and some between, many of them small."""
    some = {0, 1, 2, 3, 7, 15, 16, 17, n // 1000, n // 100, n // 3, n // 2, n - 2, n - 1, n}
    return np.array(sorted(k for k in some if 0 <= k <= n))


def scipy_limits(n: int, counts: Counts, tail: float) -> tuple[Array, Array]:
    """Clopper and Pearson's, each end from the tail that keeps its digits."""
    low = np.where(counts > 0, special.betaincinv(np.maximum(counts, 1), n - counts + 1, tail), 0.0)
    high = np.where(counts < n, special.betainccinv(counts + 1, np.maximum(n - counts, 1), tail), 1.0)
    return low, high


def agree(given: Array, expected: Array) -> bool:
    return bool((np.abs(given - expected) <= ALLOWED * expected).all())


@pytest.mark.parametrize("n", SIZES)
def test_limits_of_all_counts_and_confidences_at_once_are_those_of_scipy(n: int) -> None:
    counts = counts_of(n)
    lows, highs = clopper_pearson(n, counts, TAILS)
    for low, high, tail in zip(lows, highs, TAILS, strict=True):
        exact = scipy_limits(n, counts, tail)
        assert agree(low, exact[0])
        assert agree(high, exact[1])
        assert (low <= exact[0] * (1 + ALLOWED)).all(), "no narrower than exact"
        assert (high >= exact[1] * (1 - ALLOWED)).all(), "no narrower than exact"


def test_limits_of_many_counts_are_those_of_each_alone() -> None:
    counts = np.random.default_rng(1).integers(0, 10_002, 700)
    tails = [0.025, 0.025 / 1024]
    lows, highs = clopper_pearson(10_001, counts, tails)
    bands = beta_band(10_001, counts, tails)
    for place in (0, 255, 256, 511, 512, 699):
        alone = counts[place : place + 1]
        low, high = clopper_pearson(10_001, alone, tails)
        band = beta_band(10_001, alone, tails)
        assert lows[:, place] == pytest.approx(low[:, 0], rel=1e-12)
        assert highs[:, place] == pytest.approx(high[:, 0], rel=1e-12)
        assert bands[0][:, place] == pytest.approx(band[0][:, 0], rel=1e-12)
        assert bands[1][:, place] == pytest.approx(band[1][:, 0], rel=1e-12)


def test_a_beta_quantile_has_a_closed_form_where_one_shape_is_one() -> None:
    b = np.array([0.5, 1.0, 3.0, 1e3, 1e8])
    for tail in TAILS:
        found = expit(beta_logits(tail, 1.0, b))
        assert found == pytest.approx(-np.expm1(np.log1p(-tail) / b), rel=1e-10)


# ---- the band that may be watched


def exact_ratio(n: int, ones: int, c: float) -> Decimal:
    """The logarithm of the mixture's likelihood ratio at c: (2K)!(2M)!/(4^n K! M! n! c^K (1-c)^M), M = n - K."""
    others = n - ones
    mixed = Fraction(
        factorial(2 * ones) * factorial(2 * others), 4**n * factorial(ones) * factorial(others) * factorial(n)
    )
    with localcontext() as context:
        context.prec = 60
        ratio = (Decimal(mixed.numerator) / Decimal(mixed.denominator)).ln()
        ratio -= ones * Decimal(c).ln() if ones else 0
        return ratio - (others * (1 - Decimal(c)).ln() if others else 0)


@pytest.mark.parametrize("n", [1, 2, 5, 60, 800])
def test_the_band_ends_where_the_likelihood_ratio_reaches_one_in_alpha(n: int) -> None:
    counts, alphas = counts_of(n), [1 - 1e-9, 0.5, 0.05, 0.05 / 1024, 2**-53]
    lows, highs = beta_band(n, counts, alphas)
    for low, high, alpha in zip(lows, highs, alphas, strict=True):
        needed = Decimal(-log(alpha))
        for k, lower in zip(counts.tolist(), low.tolist(), strict=True):
            assert k == 0 or exact_ratio(n, k, lower * (1 - ALLOWED)) > needed > exact_ratio(
                n, k, lower * (1 + ALLOWED)
            )
        assert high == pytest.approx(1 - beta_band(n, n - counts, [alpha])[0][0], abs=1e-15)
    assert lows[0, 0] == 0
    assert highs[0, -1] == 1


@pytest.mark.parametrize("n", [10**4, 10**7])
def test_the_band_of_many_reports_has_the_likelihood_ratio_of_scipy(n: int) -> None:
    counts = counts_of(n // 3)[1:]
    for ends in beta_band(n, counts, [0.05]):
        c = ends[0]
        ratio = special.betaln(counts + 0.5, n - counts + 0.5) - log(np.pi)
        ratio -= special.xlogy(counts, c) + special.xlog1py(n - counts, -c)
        assert ratio == pytest.approx(log(20), abs=1e-14 * n + 1e-9)


# ---- the inversion for reporters


def rows(q: float, p: float, count: int) -> Array:
    return np.repeat([[q], [p], [1 - q], [1 - p]], count, axis=1)


@pytest.mark.parametrize("n", [1, 7, 25])
@pytest.mark.parametrize(("q", "p"), [(0.27, 0.73), (0.499, 0.501), (1e-6, 0.5), (0.3, 1 - 1e-9)])
def test_the_fewest_true_ones_are_found_for_all_counts_at_once(n: int, q: float, p: float) -> None:
    ones, zeros = (
        [np.array([stats.binom.pmf(i, size, chance) for i in range(size + 1)]) for size in range(n + 1)]
        for chance in (p, q)
    )
    laws = [np.convolve(ones[j], zeros[n - j]) for j in range(n + 1)]
    counts = np.tile(np.arange(n + 1), 4)
    tails: Array = np.repeat([1e-12, 1e-3, 0.025, 0.49], n + 1)
    found = fewest(n, counts, rows(q, p, len(counts)), tails)
    for count, tail, least in zip(counts, tails, found, strict=True):
        enough = [law[count:].sum() > tail for law in laws[:n]]
        assert least == (enough.index(True) if any(enough) else n)


def test_an_underflow_without_a_listed_reason_is_an_error_of_hush() -> None:
    with pytest.raises(LookupError, match="somewhere"), underflow("somewhere"):
        pass
