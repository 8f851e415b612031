"""The functions under the intervals, to the digits that their docstrings promise, against arbitrary precision."""

from itertools import product

import mpmath
import numpy as np
import pytest

from hush_aggregator.estimate.numerics.quantiles import (
    beta_logits,
    beta_quantile,
    deviance,
    expit,
    log1p_exp,
    stirling,
)

SHAPES = (0.5, 1.0, 2.0, 7.0, 40.0, 1500.0)
TAILS = (0.5, 0.3, 0.01, 1e-9, 1e-60)


@pytest.mark.parametrize("a", SHAPES)
def test_a_beta_quantile_has_ten_digits_in_either_tail(a: float) -> None:
    with mpmath.workdps(40):
        for b, tail in product(SHAPES, TAILS):
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


def test_many_beta_quantiles_at_once_are_those_of_each() -> None:
    a, b = np.linspace(0.5, 900, 700), np.linspace(800, 1, 700)
    at_once = beta_logits(0.025, a, b)
    for place in (0, 255, 256, 511, 512, 699):
        assert at_once[place] == pytest.approx(beta_logits(0.025, a[place], b[place])[0], rel=1e-13)


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
