"""The judge on trial: the right law passes, a slightly wrong one and a too perfect one do not."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import ArrayLike

Fits = Callable[[ArrayLike, ArrayLike], bool]

LAW = np.array([0.4, 0.3, 0.2, 0.1])


@pytest.mark.large
def test_counts_drawn_from_the_law_fit_it(fits: Fits) -> None:
    rng = np.random.default_rng(1)
    assert all(fits(rng.multinomial(10_000, LAW), LAW) for _ in range(2000))


@pytest.mark.parametrize("shift", [0.05, -0.05])
def test_counts_of_a_law_that_is_wrong_by_a_twentieth_in_two_cells_do_not(fits: Fits, shift: float) -> None:
    rng = np.random.default_rng(2)
    wrong = LAW + shift * np.array([1, 0, 0, -1])
    assert not any(fits(rng.multinomial(10_000, wrong), LAW) for _ in range(100))


def test_counts_that_agree_too_well_to_be_random_do_not_fit(fits: Fits) -> None:
    cells = np.full(64, 1 / 64)
    assert not fits(np.full(64, 1000), cells)


def test_a_law_that_does_not_sum_to_one_is_no_law(fits: Fits) -> None:
    with pytest.raises(ValueError, match="no chi-squared test"):
        fits([400, 300, 200, 100], [0.4, 0.3, 0.2, 0.09])


def test_cells_that_expect_next_to_nothing_are_refused(fits: Fits) -> None:
    with pytest.raises(ValueError, match="least"):
        fits([90, 9, 1, 0], [0.9, 0.09, 0.009, 0.001])
