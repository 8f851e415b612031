"""Frequencies of categories: unbiased, covered one by one and jointly, and their projection."""

from collections.abc import Sequence
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

from hush import Task
from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.estimates import Intervals
from hush_aggregator.estimate.mechanisms import fold, subset_selection
from hush_aggregator.estimate.mechanisms.subset_selection import simplex
from hush_aggregator.estimate.proportions import proportions
from hush_aggregator.tally import Tally
from hush_common.domain import CategoryDomain
from hush_common.mechanisms import Offers, SubsetSelection
from hush_common.rng import SystemRng
from hush_common.task import make_task

NOMINAL, ALLOWED = 0.95, 1e-9


def task(count: int = 4, epsilon: str = "1", **fields: object) -> Task:
    labels = [f"label {k}" for k in range(count)]
    return make_task({"id": "c", "epsilon": epsilon, "domain": {"kind": "category", "labels": labels}, **fields})


def frequencies(asked: Task, tally: Tally) -> list[float]:
    return [fact.mean or 0.0 for fact in estimate(asked, tally, NOMINAL).parts]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_frequency_is_unbiased_and_they_sum_to_one(size: int) -> None:
    asked = task(size=size)
    mechanism = asked.randomizer
    assert isinstance(mechanism, SubsetSelection)
    for truth in range(4):
        mean = np.zeros(4)
        for body in mechanism.outputs():
            given = frequencies(asked, fold(mechanism, np.array([body])))
            assert sum(given) == pytest.approx(1)
            mean += float(mechanism.probability(body, truth)) * np.array(given)
        assert mean == pytest.approx(np.eye(4)[truth], abs=1e-12)


def test_the_support_count_of_a_category_is_that_of_a_coin() -> None:
    mechanism = SubsetSelection(Fraction(1), 5, 2)
    q, p = mechanism.support
    bodies = list(mechanism.outputs())
    chances = [float(mechanism.probability(body, 0)) for body in bodies]
    for category, expected in ((0, p), (3, q)):
        named = [body[0] >> category & 1 for body in bodies]
        assert float(np.dot(named, chances)) == pytest.approx(float(expected))


def three(counts: Sequence[int]) -> Tally:
    return Tally(sum(counts), tuple(counts))


@pytest.mark.parametrize("n", [1, 3, 10])
@pytest.mark.parametrize("epsilon", ["0.5", "2", "8"])
def test_joint_intervals_cover_all_categories_at_once_and_single_ones_each(n: int, epsilon: str) -> None:
    asked = task(3, epsilon, size=1)
    assert isinstance(asked.randomizer, SubsetSelection)
    assert isinstance(asked.domain, CategoryDomain)
    q, p = (float(x) for x in asked.randomizer.support)
    tables = [(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)]
    given = {
        counts: subset_selection.estimate_frequencies(
            [(asked.randomizer, three(counts))], asked.domain.labels, NOMINAL
        ).parts
        for counts in tables
    }
    for truth in ((1, 0, 0), (0.5, 0.5, 0), (0.1, 0.2, 0.7)):
        law = q + np.array(truth) * (p - q)
        jointly, singly = 0.0, np.zeros(3)
        for a, b, c in tables:
            ways = np.prod([n - k for k in range(a)]) / np.prod(range(1, a + 1)) if a else 1.0
            ways *= np.prod([n - a - k for k in range(b)]) / np.prod(range(1, b + 1)) if b else 1.0
            weight = float(ways * law[0] ** a * law[1] ** b * law[2] ** c)

            def held(found: list[Intervals], of: Sequence[float] = truth) -> list[bool]:
                ends = [intervals[POPULATION] for intervals in found]
                return [low - ALLOWED <= f <= high + ALLOWED for (low, high), f in zip(ends, of, strict=True)]

            jointly += weight * all(held([one.joint_intervals for one in given[a, b, c]]))
            singly += weight * np.array(held([one.intervals for one in given[a, b, c]]))
        assert jointly >= NOMINAL - ALLOWED
        assert singly.min() >= NOMINAL - ALLOWED


@pytest.mark.medium
@pytest.mark.parametrize(("count", "n"), [(3, 20), (40, 20), (40, 1000), (150, 1000)])
def test_the_reporters_are_covered_at_every_size(count: int, n: int) -> None:
    asked = task(count, "2")
    assert isinstance(asked.randomizer, SubsetSelection)
    q, p = (float(x) for x in asked.randomizer.support)
    rng, runs, held = np.random.default_rng(6), 400, 0
    truths = np.zeros(count, dtype=np.int64)
    truths[0], truths[1] = n // 5, n - n // 5
    named, often = np.unique(
        rng.binomial(truths[0], p, runs) + rng.binomial(n - truths[0], q, runs), return_counts=True
    )
    for k, times in zip(named.tolist(), often.tolist(), strict=True):
        given = proportions(asked.randomizer.support, n, [k] * count, [NOMINAL])
        low, high = given.intervals[0][0][REPORTERS]
        held += times * (low - ALLOWED <= truths[0] / n <= high + ALLOWED)
    assert given.methods[REPORTERS] == ("binomial-inversion" if count <= 128 else "clopper-pearson-hoeffding")
    assert held / runs > NOMINAL - 4 * sqrt(0.0475 / runs)


def test_the_bars_for_all_are_wider_than_for_one() -> None:
    given = estimate(task(), Tally(100, (40, 30, 20, 10)), NOMINAL)
    for fact in given.parts:
        assert fact.stderr.keys() == fact.stderr_plug_in.keys() == {REPORTERS, POPULATION}
        assert (fact.manski, fact.failures) == (None, {})
        for target in (REPORTERS, POPULATION):
            low, high = fact.intervals[target]
            wide_low, wide_high = fact.joint_intervals[target]
            assert wide_low <= low <= high <= wide_high
            assert wide_high - wide_low > high - low
    assert given.mean is None
    assert given.monitor == "ok"


def test_the_projection_is_the_nearest_point_of_the_simplex() -> None:
    assert simplex([0.5, 0.3, 0.2]) == pytest.approx([0.5, 0.3, 0.2])
    assert simplex([1.2, -0.1, -0.1]) == pytest.approx([1, 0, 0])
    given = np.array(simplex([0.9, 0.4, -0.3, 0.0]))
    assert given == pytest.approx([0.75, 0.25, 0, 0])
    rng = np.random.default_rng(7)
    others = rng.dirichlet(np.ones(4), 10_000)
    target = np.array([0.9, 0.4, -0.3, 0.0])
    assert ((others - target) ** 2).sum(axis=1).min() >= ((given - target) ** 2).sum()


def test_categories_of_several_epsilons_are_pooled_and_stay_unbiased() -> None:
    asked = task(5, "2", offers=["0.5", "2"])
    assert isinstance(asked.randomizer, Offers)
    rng = SystemRng()
    total = np.zeros(5)
    for _ in range(60):
        bodies = [asked.perturb(asked.domain.index("label 1"), rng, k % 2) for k in range(40)]
        total += frequencies(asked, fold(asked.randomizer, np.array(bodies, dtype=np.int64)))
    assert total.sum() / 60 == pytest.approx(1)
    assert total / 60 == pytest.approx([0, 1, 0, 0, 0], abs=6 * 0.5 / sqrt(60))


def test_silent_devices_may_all_be_of_one_category() -> None:
    given = estimate(task(enrolled=200), Tally(100, (40, 30, 20, 10)), NOMINAL)
    for fact in given.parts:
        low, high = fact.intervals[REPORTERS]
        assert fact.manski == pytest.approx((low / 2, high / 2 + 0.5))
