"""The two intervals that bounded reports have of their own: betting at every n, and the score interval of many."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from single_intervals import betting_interval, score_interval

from hush_aggregator.estimate import POPULATION
from hush_aggregator.estimate.bounded_mean import Group
from hush_aggregator.estimate.bounded_mean import estimate as bounded
from hush_aggregator.estimate.finite_channel import FiniteChannel, finite
from hush_aggregator.estimate.numerics.quantiles import student_quantile
from hush_aggregator.estimate.units import Units
from hush_common.mechanisms import Multilevel
from hush_common.mechanisms.multilevel import best_levels

Array = NDArray[np.float64]

NOMINAL = 0.95


def channel(epsilon: str) -> FiniteChannel:
    exact = Fraction(epsilon)
    return finite(Multilevel(exact, 1 << 20, best_levels(exact)))


def some_counts(of: FiniteChannel, n: int, runs: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(n)
    weights = rng.dirichlet(np.full(len(of.nodes), 0.3), size=runs)
    laws = weights @ of.p
    return np.array([rng.multinomial(n, law / law.sum()) for law in laws])


def refused(of: FiniteChannel, counts: Array, mu: float, sign: int) -> bool:
    """Whether the averaged wealth reaches 2/alpha, as the definition has it."""
    n, a = counts.sum(), of.a if sign > 0 else -of.a
    variances = np.geomspace(of.variances[0], of.second_moment, 5)
    weights = variances**0.35 / (variances**0.35).sum()
    bets = np.minimum(np.sqrt(2 * (np.log(40) + np.log(5)) / (n * variances)), 0.9 / (sign * mu - a.min()))
    wealth = np.prod((1 + bets[:, None] * (a - sign * mu)) ** counts, axis=1)
    return bool(weights @ wealth >= 40)


@pytest.mark.parametrize("epsilon", ["2", "4", "8"])
@pytest.mark.parametrize("n", [1, 4, 60])
def test_bets_refuse_just_what_lies_outside_the_interval(epsilon: str, n: int) -> None:
    of = channel(epsilon)
    for counts in some_counts(of, n, 10):
        low, high = betting_interval([(of, tuple(counts.tolist()))], NOMINAL)
        assert of.a[0] <= low < counts @ of.a / n < high <= of.a[-1] or counts.max() == n
        for mu in np.linspace(of.a[0], of.a[-1], 41)[1:-1].tolist():
            if min(abs(mu - low), abs(mu - high)) > 1e-6:
                assert refused(of, counts, mu, 1) == (mu < low)
                assert refused(of, counts, mu, -1) == (mu > high)


def test_betting_adapts_to_values_that_hardly_differ() -> None:
    of, n = channel("4"), 500
    for node in range(len(of.nodes)):
        counts = np.rint(n * of.p[node]).astype(int)
        spread = sqrt(counts @ (of.a - counts @ of.a / n) ** 2 / (n - 1) / n)
        low, high = betting_interval([(of, tuple(counts.tolist()))], NOMINAL)
        assert 1 < (high - low) / (2 * 1.96 * spread) < 2
        by_the_largest_variance = 2 * 1.96 * sqrt(of.second_moment / n)
        assert high - low < 0.8 * by_the_largest_variance


@pytest.mark.parametrize("noise_alone", [False, True])
@pytest.mark.parametrize("epsilon", ["1.2", "4"])
def test_the_score_interval_spans_the_means_that_their_distance_allows(epsilon: str, noise_alone: bool) -> None:
    of = channel(epsilon)
    candidates = np.linspace(0, 1, 4001)
    floor = least_variance(of, candidates, noise_alone=noise_alone)
    for n in (5, 200):
        t = student_quantile(n - 1, NOMINAL)
        for counts in some_counts(of, n, 15):
            center = float(counts @ of.a / n)
            variance = float(counts @ (of.a - center) ** 2 / (n - 1))
            low, high = score_interval(of, n, center, variance, NOMINAL, sampling=float(not noise_alone))
            allowed = (candidates - center) ** 2 <= t**2 * np.maximum(np.maximum(variance, of.variances[0]), floor) / n
            assert (max(low, 0), min(high, 1)) == pytest.approx(
                (candidates[allowed].min(), candidates[allowed].max()), abs=3e-4
            )


def least_variance(of: FiniteChannel, candidates: Array, *, noise_alone: bool) -> Array:
    """Over all mixtures of two nodes with a given mean, by trying every pair."""
    second = of.noise if noise_alone else of.noise + of.nodes**2
    best = np.full(len(candidates), np.inf)
    for i, low in enumerate(of.nodes):
        for j, high in enumerate(of.nodes):
            if low < high:
                inside = (candidates >= low) & (candidates <= high)
                chord = second[i] + (second[j] - second[i]) * (candidates - low) / (high - low)
                best = np.where(inside, np.minimum(best, chord), best)
    return best if noise_alone else best - candidates**2


def test_the_switch_looks_at_public_parameters_alone() -> None:
    of = channel("4")
    many = int(12 * of.reach**2 / of.variances[0]) + 1
    for counts in ((1, 0, 0, 0, 0), (0, 0, 1, 0, 0)):
        for n, method in ((many - 2, "betting"), (many, "student-score")):
            given = bounded([Group(of, tuple(n * c for c in counts))], Units(), NOMINAL)
            assert given.methods[POPULATION] == method
