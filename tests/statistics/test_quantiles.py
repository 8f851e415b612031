"""The quantiles of the error bars against exact arithmetic, numerical integration, and scipy."""

from decimal import Decimal, localcontext
from math import comb, exp, sqrt

import pytest
from scipy import integrate, stats
from single_intervals import laplace_mean_quantile

from hush_aggregator.estimate.numerics.laplace_sums import laplace_log_tail
from hush_aggregator.estimate.numerics.quantiles import normal_quantile, student_quantile

CONFIDENCES = (1e-6, 0.01, 0.5, 0.9, 0.95, 0.99, 1 - 1e-6, 1 - 1e-9)


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


def integrated_tail(n: int, s: float) -> float:
    """P(S > s) from S = G - G' with two Gamma(n) variables: no Poisson, no negative binomial."""
    far = n + 12 * sqrt(n) + 30
    value, _ = integrate.quad(
        lambda g: stats.gamma.pdf(g, n) * stats.gamma.sf(g + s, n),
        0,
        far,
        epsabs=0,
        epsrel=1e-11,
        points=[n],
        limit=200,
    )
    return float(value)


@pytest.mark.parametrize(
    ("n", "s", "tail"),
    [
        (1, 1, 0.18393972058572116),
        (5, 3, 0.15966868410162616),
        (50, 12, 0.11417545407046197),
        (400, 80, 0.0023710570069076286),
        (1000, 100, 0.012691946497112954),
    ],
)
def test_the_tail_of_a_sum_of_laplace_variables_is_exact(n: int, s: int, tail: float) -> None:
    assert exp(laplace_log_tail(((1.0, n),), s)[0]) == pytest.approx(tail, rel=1e-10)
    assert float(exact_tail(n, s)) == pytest.approx(tail, rel=1e-14)
    assert integrated_tail(n, s) == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 7, 100, 1000])
@pytest.mark.parametrize("s", [0.0, 1e-9, 30.0, 300.0])
def test_the_tail_keeps_its_digits_from_the_centre_to_one_in_a_googol(n: int, s: float) -> None:
    assert exp(laplace_log_tail(((1.0, n),), s)[0]) == pytest.approx(float(exact_tail(n, s)), rel=1e-10)


@pytest.mark.parametrize(
    ("n", "half"),
    [
        (1, 2.995732274),  # ln 20
        (2, 2.056501640),
        (3, 1.656198667),
        (5, 1.266544916),
        (10, 0.886116365),
        (20, 0.623148620),
        (30, 0.507872827),
        (50, 0.392828933),
        (100, 0.277474474),
        (1000, 0.0876614807),
    ],
)
def test_half_widths_at_95_percent_leave_one_fortieth_in_each_tail(n: int, half: float) -> None:
    assert laplace_mean_quantile(n, 0.95) == pytest.approx(half, rel=2e-9)
    assert integrated_tail(n, n * laplace_mean_quantile(n, 0.95)) == pytest.approx(0.025, rel=1e-8)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 99, 500, 1000])
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_the_laplace_quantile_inverts_the_exact_tail_at_any_confidence(n: int, confidence: float) -> None:
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


@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_the_normal_quantile_is_that_of_scipy(confidence: float) -> None:
    assert normal_quantile(confidence) == pytest.approx(stats.norm.isf((1 - confidence) / 2), rel=1e-9)


@pytest.mark.parametrize("freedom", [1, 2, 3, 10, 99, 499, 10**4, 10**6])
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_student_is_that_of_scipy(freedom: int, confidence: float) -> None:
    assert student_quantile(freedom, confidence) == pytest.approx(stats.t.isf((1 - confidence) / 2, freedom), rel=1e-9)
