"""The error bars of a sweep's root mean square error cover as often as they say, with few trials and with many."""

from collections.abc import Callable
from math import exp, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hush_simulations.sweeps.evaluation import _bars_of_rms, _chi_square_ends

pytestmark = pytest.mark.medium

RUNS = 2000
LEAST = stats.binom.ppf(1e-9, RUNS, 0.95) / RUNS
"""A share of runs below it would be seen once in 10^9, if bars covered in 95 %."""

Bars = Callable[[NDArray[np.float64]], tuple[float, float]]


def coverage(bars: Bars, errors: NDArray[np.float64], rms: float) -> float:
    """In what share of the rows, each the trials of one run, the bars cover."""
    ends = [bars(row**2) for row in errors]
    return float(np.mean([low <= rms <= high for low, high in ends]))


def by_the_logarithm(squares: NDArray[np.float64]) -> tuple[float, float]:
    """The planted twin: the delta method, right for many trials alone."""
    mean = float(squares.mean())
    factor = exp(1.96 * float(squares.std(ddof=1)) / sqrt(len(squares)) / (2 * mean))
    return sqrt(mean) / factor, sqrt(mean) * factor


@pytest.mark.large
@pytest.mark.parametrize("trials", [2, 5, 20, 50, 200])
@pytest.mark.parametrize("bias", [0.0, 2.0])
def test_the_bars_cover_whatever_the_number_of_trials(trials: int, bias: float) -> None:
    errors = bias + np.random.default_rng([21, trials]).normal(size=(RUNS, trials))
    assert coverage(_bars_of_rms, errors, sqrt(1 + bias**2)) >= LEAST


@pytest.mark.parametrize(("trials", "most"), [(5, 0.85), (20, 0.92)])
def test_the_delta_method_covers_too_seldom_with_few_trials(trials: int, most: float) -> None:
    errors = np.random.default_rng([21, trials]).normal(size=(RUNS, trials))
    assert coverage(by_the_logarithm, errors, 1.0) < min(LEAST, most)


def test_the_bars_are_no_wider_than_normal_errors_justify() -> None:
    errors = np.random.default_rng(22).normal(size=(RUNS, 200))
    widths = [high / low for low, high in map(_bars_of_rms, errors**2)]
    assert np.median(widths) < 1.03 * sqrt(stats.chi2.ppf(0.975, 200) / stats.chi2.ppf(0.025, 200))


@pytest.mark.parametrize("degrees", [2, 2.5, 5, 20, 200, 10_000])
def test_the_quantiles_are_those_of_chi_squared(degrees: float) -> None:
    assert _chi_square_ends(degrees) == pytest.approx(stats.chi2.ppf([0.025, 0.975], degrees), rel=1e-6)


def test_errors_that_are_all_alike_have_bars_and_no_errors_have_none() -> None:
    low, high = _bars_of_rms(np.ones(5))
    assert low < 1 < high
    assert _bars_of_rms(np.zeros(5)) == (0, 0)
