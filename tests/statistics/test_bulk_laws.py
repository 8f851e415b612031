"""Two engines, one law: whole tallies of the bulk engine, and of the code that a device and an aggregator run.

Both are held to the exact joint law of all sums of a tally, enumerated from the probability table of the device: a
wrong mean, a wrong variance or a wrong correlation of two sums is another law. A verdict condemns the right law once in
10^9 seeds (`FALSE_ALARM`); seeds are fixed. Twins that are wrong in one of these ways must be condemned by as
many draws.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import cast

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from tally_laws import Sums, counted, law_of_tally, of_devices

from hush_common.domain import GRID_STEPS
from hush_common.mechanisms import (
    Channel,
    Laplace,
    Mechanism,
    Multilevel,
    RandomizedResponse,
    SubsetSelection,
    Vector,
)
from hush_common.mechanisms.parameters import shipped_at
from hush_common.rng import Rng
from hush_simulations.engines.bulk import laws
from hush_simulations.engines.bulk.draws import Counts
from hush_simulations.engines.bulk.laws import law_of

Fits = Callable[[ArrayLike, ArrayLike], bool]
Seeded = Callable[[int], Rng]
Floats = NDArray[np.float64]

ONE = Fraction(1)
TABLE = shipped_at(Fraction(2))
Indices = Sequence[int] | Sequence[tuple[int, ...]]
MECHANISMS: dict[str, tuple[Mechanism, Indices]] = {  # the first two devices have the same value
    "randomized response": (RandomizedResponse.from_epsilon(ONE), [0, 0, 1, 1, 1]),
    "two coins": (RandomizedResponse.from_coins(Fraction("1.1"), Fraction("0.5"), Fraction("0.3")), [1, 1, 0]),
    "multilevel, one bit": (Multilevel(ONE, 10, 1), [3, 3, 10]),
    "multilevel, G = 3": (Multilevel(Fraction(2), 12, 3), [5, 5, 12]),
    "table": (Channel(Fraction(2), 1 << 20, TABLE.positions, TABLE.unit, TABLE.weights), [777_777, 777_777]),
    "subset selection, w = 1": (SubsetSelection(ONE, 4, 1), [0, 0, 3]),
    "subset selection, w = 2": (SubsetSelection(ONE, 4, 2), [1, 1, 0]),
    "subset selection, w = 3 of 5": (SubsetSelection(Fraction("0.5"), 5, 3), [4, 4]),
    "vector, one of three": (Vector(ONE, 8, 3, 1, 1), [(0, 3, 8), (0, 3, 8)]),
    "vector, two of three": (Vector(Fraction(2), 8, 3, 2, 1), [(0, 3, 8), (0, 3, 8)]),
}
OF_BULK, OF_DEVICES, LEAST = 15_000, 6_000, 0.002  # tallies; the last: a cell expects 12 of those from devices
NAMES = list(MECHANISMS)


def drawn(mechanism: Mechanism, indices: Indices, trials: int, rng: np.random.Generator) -> NDArray[np.int64]:
    places, counts = np.unique(np.array(indices, dtype=np.int64), axis=0, return_counts=True)
    return law_of(mechanism).sums(mechanism, places, np.tile(counts, (trials, 1)), rng)


def at_once(name: str, trials: int, seed: int = 1) -> list[Sums]:
    return rows(drawn(*MECHANISMS[name], trials, np.random.default_rng(seed)))


def rows(sums: NDArray[np.int64]) -> list[Sums]:
    return [tuple(row) for row in sums.tolist()]


def one_by_one(name: str, trials: int) -> list[Sums]:
    mechanism, indices = MECHANISMS[name]
    every = np.tile(np.array(indices, dtype=np.int64), (trials, 1) if np.ndim(indices[0]) else trials)
    bodies = law_of(mechanism).bodies(mechanism, every, np.random.default_rng(2))
    return of_devices(mechanism, bodies.reshape(trials, len(indices), -1))


def by_devices(name: str, trials: int, rng: Rng) -> list[Sums]:
    """As the client draws and the aggregator adds up."""
    mechanism, indices = MECHANISMS[name]
    bodies = [[mechanism.perturb(index, rng) for index in indices] for _ in range(trials)]
    return of_devices(mechanism, np.array(bodies, dtype=np.int64))


@functools.cache
def exact_law(name: str) -> Mapping[Sums, float]:
    return law_of_tally(*MECHANISMS[name])


def follows(fits: Fits, name: str, tallies: list[Sums]) -> bool:
    try:
        return fits(*counted(exact_law(name), tallies, LEAST))
    except KeyError:
        return False


@pytest.mark.medium
@pytest.mark.parametrize("name", NAMES)
def test_tallies_drawn_at_once_follow_the_exact_law_of_all_their_sums(name: str, fits: Fits) -> None:
    assert follows(fits, name, at_once(name, OF_BULK))


@pytest.mark.medium
@pytest.mark.parametrize("name", NAMES)
def test_tallies_of_devices_drawn_as_arrays_follow_it(name: str, fits: Fits) -> None:
    assert follows(fits, name, one_by_one(name, OF_BULK))


@pytest.mark.medium
@pytest.mark.parametrize("name", NAMES)
def test_tallies_of_what_devices_and_an_aggregator_run_follow_it(name: str, fits: Fits, seeded: Seeded) -> None:
    assert follows(fits, name, by_devices(name, OF_DEVICES, seeded(3)))


# Twins: what is wrong with each changes no mean, and is found in no more tallies than above.


@pytest.mark.medium
@pytest.mark.parametrize("name", NAMES[::3])
def test_tallies_with_a_wrong_second_moment_are_found(name: str, fits: Fits) -> None:
    """In a quarter of them two devices of one value share their noise."""
    mechanism, indices = MECHANISMS[name]
    rng = np.random.default_rng(4)
    right = drawn(mechanism, indices, OF_BULK, rng)
    shared = 2 * drawn(mechanism, indices[:1], OF_BULK, rng)
    shared += drawn(mechanism, indices[2:], OF_BULK, rng) if len(indices) > 2 else 0
    wrong = np.where(rng.random((OF_BULK, 1)) < 0.25, shared, right)
    assert wrong.mean(axis=0) == pytest.approx(right.mean(axis=0), abs=0.03)
    assert not follows(fits, name, rows(wrong))


@pytest.mark.parametrize("name", ["multilevel, G = 3", "subset selection, w = 2", "vector, two of three"])
def test_tallies_whose_sums_are_independent_are_found(name: str, fits: Fits) -> None:
    """Each sum has its own law, exactly; only what connects them is gone."""
    right, rng = np.array(at_once(name, OF_DEVICES, 6)), np.random.default_rng(7)
    wrong = np.stack([rng.permutation(column) for column in right.T], axis=1)
    assert not follows(fits, name, rows(wrong))


@pytest.mark.medium
def test_sets_that_are_not_uniform_are_found(fits: Fits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours on a circle: every category has its right share of the sets without a truth."""

    def neighbours(free: Counts, bound: Counts, size: int, rng: np.random.Generator) -> Counts:
        things = bound.shape[1]
        starts = rng.multinomial(free, np.full(things, 1 / things))
        circle = sum(np.roll(starts, step, axis=1) for step in range(size))
        return cast("Counts", circle) + count(np.zeros_like(free), bound, size, rng)

    count = laws.count_members
    monkeypatch.setattr(laws, "count_members", neighbours)
    name = "subset selection, w = 2"
    means = np.mean(at_once(name, OF_BULK), axis=0)
    exact = exact_law(name)
    assert means == pytest.approx(np.sum([np.array(sums) * p for sums, p in exact.items()], axis=0), abs=0.02)
    assert not follows(fits, name, at_once(name, OF_BULK))


@pytest.mark.parametrize("name", ["vector, one of three", "vector, two of three"])
def test_coordinates_that_are_drawn_independently_are_found(
    name: str, fits: Fits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each coordinate is drawn by a device as often as it should be; a device may draw none, or all."""

    def alone(free: Counts, bound: Counts, size: int, rng: np.random.Generator) -> Counts:
        return rng.binomial(free[:, None], size / bound.shape[1], size=bound.shape)

    monkeypatch.setattr(laws, "count_members", alone)
    assert not follows(fits, name, at_once(name, OF_DEVICES))


# ---- laplace: sums by the law of summed noise, whole tallies against devices

FALSE_ALARM = 1e-9
SMALL, ON_A_TASKS_GRID = Laplace(Fraction(2), 8), Laplace(Fraction(1), GRID_STEPS)
LAPLACE_INDICES = [0, 100_000, 100_000, 1_000_000]


def laplace_sums(mechanism: Laplace, indices: list[int], trials: int) -> NDArray[np.int64]:
    counts = np.ones((trials, len(indices)), dtype=np.int64)
    return law_of(mechanism).sums(mechanism, np.array(indices), counts, np.random.default_rng(1))[:, 0]


def on_a_small_grid(fits: Fits, mechanism: Laplace) -> bool:
    """Three devices: the convolution of their tables."""
    law, reach = np.ones(1), 200
    for index in (0, 3, 8):
        row = [float(SMALL.probability((k,), index)) for k in range(-SMALL.window, SMALL.steps + SMALL.window + 1)]
        law = np.convolve(law, row)
    drawn = laplace_sums(mechanism, [0, 3, 8], 50_000) + 3 * SMALL.window
    drawn = drawn[(drawn >= 0) & (drawn < len(law))]
    counts = np.bincount(drawn, minlength=len(law))
    middle = 3 * SMALL.window + 11
    inside = slice(middle - reach // 4, middle + reach // 4)
    kept = np.where(law[inside] > 5e-4)[0]
    cells, shares = counts[inside][kept], law[inside][kept]
    return fits([*cells, len(drawn) - cells.sum()], [*shares, 1 - shares.sum()])


@pytest.mark.medium
def test_sums_follow_the_law_of_the_device_on_a_small_grid(fits: Fits) -> None:
    assert on_a_small_grid(fits, SMALL)
    assert not on_a_small_grid(fits, replace(SMALL, epsilon=Fraction("1.9")))


def above(s: Floats, n: int) -> Floats:
    """P(S > s) for n Laplace variables of scale 1."""
    j = np.arange(n)
    tail = stats.poisson.pmf(j, np.abs(s)[:, None]) @ stats.nbinom.cdf(n - 1 - j, n, 0.5)
    return np.where(s >= 0, tail, 1 - tail)


def on_the_grid_of_a_task(mechanism: Laplace, n: int) -> bool:
    noise = laplace_sums(mechanism, [5] * n, 20_000) - 5 * n
    return float(stats.kstest(1 - above(noise / float(ON_A_TASKS_GRID.scale), n), "uniform").pvalue) > FALSE_ALARM


@pytest.mark.medium
@pytest.mark.parametrize("n", [1, 7, 60])
def test_sums_on_the_grid_of_a_task_follow_the_law_of_laplace_variables(n: int) -> None:
    assert on_the_grid_of_a_task(ON_A_TASKS_GRID, n)
    assert not on_the_grid_of_a_task(replace(ON_A_TASKS_GRID, epsilon=Fraction("0.8")), n)


def test_a_sum_of_a_billion_noises_has_their_deviation() -> None:
    """Mean 0, variance 2n·b² to one part in 1000 of 10^6 draws; four times its deviation is 0.6 %, of these 1.2 %."""
    counts = np.full((250_000, 1), 10**9)
    noise = law_of(ON_A_TASKS_GRID).sums(
        ON_A_TASKS_GRID, np.zeros(1, dtype=np.int64), counts, np.random.default_rng(2)
    )[:, 0]
    expected = 1e9 * ON_A_TASKS_GRID.variance
    assert float(noise.var()) == pytest.approx(expected, rel=0.012)
    assert abs(float(noise.mean())) < 6 * (expected / len(noise)) ** 0.5


def of_arrays(mechanism: Laplace, trials: int) -> Floats:
    bodies = law_of(mechanism).bodies(mechanism, np.tile(LAPLACE_INDICES, trials), np.random.default_rng(3))
    return np.array(of_devices(ON_A_TASKS_GRID, bodies.reshape(trials, len(LAPLACE_INDICES), 1)), dtype=float)


def of_a_device(trials: int, rng: Rng) -> Floats:
    bodies = [[ON_A_TASKS_GRID.perturb(index, rng) for index in LAPLACE_INDICES] for _ in range(trials)]
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


@pytest.mark.medium
def test_laplace_tallies_of_arrays_are_like_those_of_devices(seeded: Seeded) -> None:
    right = of_a_device(3000, seeded(4))
    found = of_arrays(ON_A_TASKS_GRID, 12_000)
    assert alike(right, found)
    assert not alike(right, of_arrays(replace(ON_A_TASKS_GRID, epsilon=Fraction("0.8")), 12_000))
    rng = np.random.default_rng(5)
    assert not alike(right, np.stack([rng.permutation(column) for column in found.T], axis=1))
