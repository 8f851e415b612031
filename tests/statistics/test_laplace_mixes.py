"""The law of summed Laplace noise against a table made in arbitrary precision (`tests/tools/laplace_mixes.py`)."""

from math import exp, log, sqrt

import mpmath as mp
import numpy as np
import pytest
from scipy import integrate
from tools.laplace_mixes import Mix, mixes, read, tail_and_density

from hush_aggregator.estimate.numerics.guard import guarded
from hush_aggregator.estimate.numerics.laplace_sums import laplace_log_tail, mixed_laplace_quantile

TABLE = read()
SOME = TABLE[7::20]
ALLOWED = 1e-9


def test_the_table_holds_the_mixes_that_were_asked_for() -> None:
    assert [(mix, confidence) for mix, confidence, _ in TABLE] == list(mixes())
    assert len(TABLE) >= 2000
    ratios = [max(b for b, _ in mix) / min(b for b, _ in mix) for mix, _, _ in TABLE]
    assert max(ratios) >= 5e7 * (1 - 1e-12)
    assert {len(mix) for mix, _, _ in TABLE} == set(range(1, 9))
    assert {max(n for _, n in mix) for mix, _, _ in TABLE} >= {1, 10**9}
    assert {0.5, 1 - 1e-9} <= {confidence for _, confidence, _ in TABLE}


def test_every_quantile_of_the_table_comes_out() -> None:
    with guarded():
        found = np.array([mixed_laplace_quantile(mix, confidence) for mix, confidence, _ in TABLE])
    expected = np.array([quantile for _, _, quantile in TABLE])
    assert float(abs(found / expected - 1).max()) < ALLOWED


@pytest.mark.large
def test_a_twentieth_of_the_table_is_computed_again() -> None:
    for mix, confidence, quantile in SOME:
        tail, density = tail_and_density(mix, mp.mpf(quantile))
        off = (mp.log(tail) - mp.log((1 - mp.mpf(confidence)) / 2)) * tail / (density * quantile)
        assert abs(off) < 1e-13, (mix, confidence)


def parabola_tail(mix: Mix, h: float) -> float:
    """Wrong on purpose: along c + κy² + iy, which runs into the growth of a factor that is nearly normal."""
    largest = max(b for b, _ in mix)
    b, n, h = np.array([b / largest for b, _ in mix]), np.array([n for _, n in mix], dtype=float), h / largest
    low, high = 0.0, 1.0
    for _ in range(30):
        c = (low + high) / 2
        low, high = (c, high) if float((2 * n * b**2 * c / (1 - (b * c) ** 2)).sum()) < h + 1 / c else (low, c)
    width = 1 / sqrt(float((2 * n * b**2 * (1 + (b * c) ** 2) / (1 - (b * c) ** 2) ** 2).sum()) + 1 / c**2)
    x = np.linspace(0, 12, 300)
    y, dy = width * np.sinh(x), width * np.cosh(x)
    s = c + y**2 / (2 * c) + 1j * y
    with np.errstate(all="ignore"):
        exponent = -s * h - (n[:, None] * np.log(1 - (b[:, None] * s) ** 2)).sum(axis=0) - np.log(s)
        values = (np.exp(exponent) * (y / c + 1j)).imag * dy
        return float((values.sum() - values[0] / 2 - values[-1] / 2) * (x[1] - x[0]) / np.pi)


def test_a_path_that_bends_like_a_parabola_would_be_found() -> None:
    wrong = [
        (mix, confidence)
        for mix, confidence, quantile in SOME
        if not abs(parabola_tail(mix, quantile) / ((1 - confidence) / 2) - 1) < 1e-6
    ]
    assert len(wrong) > len(SOME) / 4
    assert parabola_tail(((1.0, 1),), log(20)) == pytest.approx(0.025, rel=1e-9)  # it was right where nothing grows


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
