"""The error bars of a sweep's root mean square error cover as often as they say, with few trials and with many."""

from collections.abc import Callable
from math import exp, sqrt
from pathlib import Path

import pytest
from scipy import stats

import hush
from hush import SweepRow

pytestmark = pytest.mark.medium

CELLS = 200
LEAST = stats.binom.ppf(1e-9, CELLS, 0.95) / CELLS
"""A share of cells below it would be seen once in 10^9, if bars covered in 95 %."""


def rows(trials: int, out: Path) -> list[SweepRow]:
    """The reporters' rows of cells that are alike but for a hair of epsilon."""
    grid = {"task.epsilon": [1 + cell / 1e5 for cell in range(CELLS)], "population.clients": [200]}
    found = hush.sweep(grid, out=out, scenario="survey", trials=trials, seed=7).rows
    return [row for row in found if row.interval == "reporters"]


def covering(found: list[SweepRow], ends: Callable[[SweepRow], tuple[float, float]]) -> float:
    held = [low <= (row.theory_stderr or 0) <= high for row in found for low, high in [ends(row)]]
    assert len(held) == CELLS
    return sum(held) / CELLS


def published(row: SweepRow) -> tuple[float, float]:
    return row.rmse_lower or 0, row.rmse_upper or 0


def by_the_logarithm(row: SweepRow) -> tuple[float, float]:
    """The planted twin: half of the degrees are forgotten."""
    factor = exp(1.96 / sqrt(2 * row.trials) / 2)
    return (row.rmse or 0) / factor, (row.rmse or 0) * factor


@pytest.mark.large
@pytest.mark.parametrize("trials", [2, 50])
def test_the_bars_cover_whatever_the_number_of_trials(trials: int, tmp_path: Path) -> None:
    found = rows(trials, tmp_path)
    assert covering(found, published) >= LEAST
    assert covering(found, by_the_logarithm) < LEAST
    if trials == 50:  # and they are no wider than chi-squared justifies
        widths = sorted((row.rmse_upper or 0) / (row.rmse_lower or 1) for row in found)
        low, high = (float(stats.chi2.ppf(tail, trials)) for tail in (0.025, 0.975))
        assert widths[CELLS // 2] == pytest.approx(sqrt(high / low), rel=0.05)
