"""Laplace noise in bulk: the sum of the reports at once, and whole tallies of devices drawn as arrays.

Sums are held to the exact law of discrete Laplace noise on a small grid, and on that of a task to the law of a sum of
Laplace variables, P(S > s) = P(Poisson(s) + NB(n, 1/2) ≤ n - 1). Whole tallies are compared with those of the code that
a device and an aggregator run, sum by sum, in pairs, and in how many reports lie beyond the first reaches jointly.
Verdicts condemn the right law once in 10^9 seeds; seeds are fixed. Each has a twin that it must condemn.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from tally_laws import of_devices

from hush_common.domain import GRID_STEPS
from hush_common.mechanisms import Laplace
from hush_common.rng import Rng
from hush_simulations.engines.bulk import laws
from hush_simulations.engines.bulk.laws import law_of

Fits = Callable[[ArrayLike, ArrayLike], bool]
Seeded = Callable[[int], Rng]
Floats = NDArray[np.float64]

FALSE_ALARM = 1e-9
SMALL, ON_A_TASKS_GRID = Laplace(Fraction(2), 8), Laplace(Fraction(1), GRID_STEPS)
INDICES = [0, 100_000, 100_000, 1_000_000]


def sums(mechanism: Laplace, indices: list[int], trials: int) -> NDArray[np.int64]:
    counts = np.ones((trials, len(indices)), dtype=np.int64)
    return law_of(mechanism).sums(mechanism, np.array(indices), counts, np.random.default_rng(1))[:, 0]


def on_a_small_grid(fits: Fits, mechanism: Laplace) -> bool:
    """Three devices: the convolution of their tables."""
    law, reach = np.ones(1), 200
    for index in (0, 3, 8):
        row = [float(SMALL.probability((k,), index)) for k in range(-SMALL.window, SMALL.steps + SMALL.window + 1)]
        law = np.convolve(law, row)
    drawn = sums(mechanism, [0, 3, 8], 50_000) + 3 * SMALL.window
    drawn = drawn[(drawn >= 0) & (drawn < len(law))]
    counts = np.bincount(drawn, minlength=len(law))
    middle = 3 * SMALL.window + 11
    inside = slice(middle - reach // 4, middle + reach // 4)
    kept = np.where(law[inside] > 5e-4)[0]
    cells, shares = counts[inside][kept], law[inside][kept]
    return fits([*cells, len(drawn) - cells.sum()], [*shares, 1 - shares.sum()])


def test_sums_follow_the_law_of_the_device_on_a_small_grid(fits: Fits) -> None:
    assert on_a_small_grid(fits, SMALL)
    assert not on_a_small_grid(fits, replace(SMALL, epsilon=Fraction("1.9")))


def above(s: Floats, n: int) -> Floats:
    """P(S > s) for n Laplace variables of scale 1."""
    j = np.arange(n)
    tail = stats.poisson.pmf(j, np.abs(s)[:, None]) @ stats.nbinom.cdf(n - 1 - j, n, 0.5)
    return np.where(s >= 0, tail, 1 - tail)


def on_the_grid_of_a_task(mechanism: Laplace, n: int) -> bool:
    noise = sums(mechanism, [5] * n, 20_000) - 5 * n
    return float(stats.kstest(1 - above(noise / float(ON_A_TASKS_GRID.scale), n), "uniform").pvalue) > FALSE_ALARM


@pytest.mark.parametrize("n", [1, 7, 60])
def test_sums_on_the_grid_of_a_task_follow_the_law_of_laplace_variables(n: int) -> None:
    assert on_the_grid_of_a_task(ON_A_TASKS_GRID, n)
    assert not on_the_grid_of_a_task(replace(ON_A_TASKS_GRID, epsilon=Fraction("0.8")), n)


@pytest.mark.parametrize("n", [1, 7, 60])
def test_so_they_do_where_a_normal_number_stands_for_a_poisson_one(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "_LARGE_MEAN", 0.0)
    assert on_the_grid_of_a_task(ON_A_TASKS_GRID, n)


def test_a_sum_of_a_billion_noises_has_their_deviation() -> None:
    """Mean 0, variance 2n·b² to one part in 1000 of 10^6 draws; four times its deviation is 0.6 %."""
    counts = np.full((1_000_000, 1), 10**9)
    noise = law_of(ON_A_TASKS_GRID).sums(
        ON_A_TASKS_GRID, np.zeros(1, dtype=np.int64), counts, np.random.default_rng(2)
    )[:, 0]
    expected = 1e9 * ON_A_TASKS_GRID.variance
    assert float(noise.var()) == pytest.approx(expected, rel=0.006)
    assert abs(float(noise.mean())) < 6 * (expected / len(noise)) ** 0.5


def of_arrays(mechanism: Laplace, trials: int) -> Floats:
    bodies = law_of(mechanism).bodies(mechanism, np.tile(INDICES, trials), np.random.default_rng(3))
    return np.array(of_devices(ON_A_TASKS_GRID, bodies.reshape(trials, len(INDICES), 1)), dtype=float)


def of_a_device(trials: int, rng: Rng) -> Floats:
    bodies = [[ON_A_TASKS_GRID.perturb(index, rng) for index in INDICES] for _ in range(trials)]
    return np.array(of_devices(ON_A_TASKS_GRID, np.array(bodies)), dtype=float)


def alike(some: Floats, others: Floats) -> bool:
    """Sums of the tally one by one, in pairs, and jointly how many reports lie beyond three reaches."""
    columns, beyond = [0, 1, 2, 4, 6], [3, 5, 7]
    scale = others[:, columns].std(axis=0)
    scaled = [found[:, columns] / scale for found in (some, others)]
    pairs = combinations(range(len(columns)), 2)
    views = [*(np.eye(len(columns))), *(np.eye(len(columns))[a] - np.eye(len(columns))[b] for a, b in pairs)]
    if any(stats.ks_2samp(scaled[0] @ view, scaled[1] @ view).pvalue <= FALSE_ALARM / 20 for view in views):
        return False
    joint = [found[:, beyond] @ [25, 5, 1] for found in (some, others)]
    table = np.array([np.bincount(one.astype(int), minlength=125) for one in joint])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 40]).pvalue) > FALSE_ALARM


@pytest.mark.large
def test_tallies_of_devices_drawn_as_arrays_are_like_those_of_what_devices_and_an_aggregator_run(
    seeded: Seeded,
) -> None:
    right = of_a_device(3000, seeded(4))
    found = of_arrays(ON_A_TASKS_GRID, 12_000)
    assert alike(right, found)
    assert not alike(right, of_arrays(replace(ON_A_TASKS_GRID, epsilon=Fraction("0.8")), 12_000))
    rng = np.random.default_rng(5)
    assert not alike(right, np.stack([rng.permutation(column) for column in found.T], axis=1))
