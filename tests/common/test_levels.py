"""The levels of least worst-case variance: the closed form against every cell, and the choice against every G."""

from fractions import Fraction

import numpy as np
import pytest

from hush_common.epsilon import WEIGHT_OF_TRUTH, weight_of_lie
from hush_common.mechanisms import Multilevel
from hush_common.mechanisms.multilevel import MOST_LEVELS, best_levels

EPSILONS = [Fraction(tenths, 10) for tenths in (*range(1, 60, 3), *range(60, 200, 20), 250, 300, 400, 500)]
EPSILONS += [Fraction(1, 10**6), Fraction("1.098612"), Fraction("1.098613")]


def by_cells(r: Fraction, levels: int) -> Fraction:
    """The largest variance of a decoded report, from the parabola of every cell at its vertex or nearer end."""
    second = Fraction(2 * levels + 1, 6 * levels)

    def peak(cell: int) -> Fraction:
        low, high = Fraction(cell, levels), Fraction(cell + 1, levels)
        x = min(max(((low + high) / 2 - (1 - r) / 2) / r, low), high)
        rounding = (x - low) * (high - x)
        return r * (x * x + rounding) + (1 - r) * second - (r * x + (1 - r) / 2) ** 2

    return max(peak(cell) for cell in range(levels)) / r**2


@pytest.mark.parametrize("levels", [1, 2, 3, 5, 8, 33])
def test_the_worst_variance_is_that_of_the_worst_cell(levels: int) -> None:
    for epsilon in ("0.000001", "0.1", "0.6931", "1", "1.0986", "1.7", "3", "5.5", "8", "14", "50"):
        mechanism = Multilevel(Fraction(epsilon), 1 << 20, levels)
        assert mechanism.worst_variance == pytest.approx(float(by_cells(mechanism.contrast, levels)), rel=1e-12)


def choice_by_cells(epsilon: Fraction, most: int = MOST_LEVELS) -> int:
    """The best of all G, from every cell of each, in floating point."""
    odds, worst = WEIGHT_OF_TRUTH / weight_of_lie(epsilon), []
    for levels in range(1, most + 1):
        r, cells = (odds - 1) / (odds + levels), np.arange(levels)
        x = np.clip(((2 * cells + 1) / (2 * levels) - (1 - r) / 2) / r, cells / levels, (cells + 1) / levels)
        f = x * levels - cells
        moment = r * (x * x + f * (1 - f) / levels**2) + (1 - r) * (2 * levels + 1) / (6 * levels)
        worst.append(float((moment - (r * x + (1 - r) / 2) ** 2).max()) / r**2)
    return next(levels for levels, one in enumerate(worst, 1) if one <= min(worst) * (1 + 1e-12))


def test_the_chosen_levels_are_the_best_of_the_first_fifty() -> None:
    for epsilon in EPSILONS[:24:2]:
        assert best_levels(epsilon) == choice_by_cells(epsilon, 50)


@pytest.mark.large
def test_the_chosen_levels_are_the_best_of_all() -> None:
    for epsilon in EPSILONS:
        assert best_levels(epsilon) == choice_by_cells(epsilon)
