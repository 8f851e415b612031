"""Bits and categories under several epsilons, and what a known number of enrolled devices adds."""

from fractions import Fraction
from math import exp, log, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hush_aggregator.estimate import ANYTIME_POPULATION, ENROLLED, POPULATION, REPORTERS, estimate, proportions
from hush_aggregator.estimate.finite_channel import FiniteChannel, finite
from hush_aggregator.estimate.intervals.student_score import enough
from hush_aggregator.estimate.intervals.tilted import tilted_limits
from hush_aggregator.estimate.numerics.guard import guarded
from hush_aggregator.estimate.proportions import pooled_proportions
from hush_aggregator.tally import Tally
from hush_common.mechanisms import RandomizedResponse, SubsetSelection
from hush_common.mechanisms.subset_selection import best_size
from hush_common.task import make_task

Array = NDArray[np.float64]

RUNS = 20_000
ALLOWED = 1e-9


def coin(epsilon: float) -> FiniteChannel:
    return finite(RandomizedResponse.from_epsilon(Fraction(str(epsilon))))


def category(epsilon: float, k: int) -> FiniteChannel:
    exact = Fraction(str(epsilon))
    return finite(SubsetSelection(exact, k, best_size(exact, k)))


def drawn(of: FiniteChannel, n: int, share: float | None, j: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Reported yes of n people: of j who have the trait, or each has it with probability `share`."""
    (q, p) = of.p[:, 1]
    if share is not None:
        return rng.binomial(n, q + share * (p - q), RUNS)
    return np.asarray(rng.binomial(j, p, RUNS) + rng.binomial(n - j, q, RUNS))


def coverage(
    channels: list[FiniteChannel], sizes: list[int], truth: list[int], confidence: float
) -> tuple[dict[str, float], dict[str, str]]:
    """Share of runs in which the interval holds its target; `truth` has the trait in each group."""
    rng = np.random.default_rng([*sizes, *truth])
    mean = sum(truth) / sum(sizes)
    found: dict[str, float] = {}
    for target, share in ((REPORTERS, None), (POPULATION, mean)):
        parts = [(of, n, drawn(of, n, share, j, rng)) for of, n, j in zip(channels, sizes, truth, strict=True)]
        each, which = np.unique(np.stack([yes for _, _, yes in parts]), axis=1, return_inverse=True)
        with guarded():
            given = pooled_proportions(
                [(of, n, row.tolist()) for (of, n, _), row in zip(parts, each, strict=True)], [confidence]
            )
        assert not given.failures
        ends = np.array([one[target] for one in given.intervals[0]])[which.ravel()]
        found[target] = float(((ends[:, 0] <= mean + ALLOWED) & (ends[:, 1] >= mean - ALLOWED)).mean())
    return found, given.methods


CORNERS = {
    "nobody, 4 and 8 of 1024, lopsided": ([category(4, 1024), category(8, 1024)], [500, 40_000], [0, 0]),
    "few, 3 and 4 of 64": ([category(3, 64), category(4, 64)], [400, 400], [20, 20]),
    "few, all under the smaller epsilon": ([category(3, 64), category(4, 64)], [400, 400], [40, 0]),
    "ratio 80, three against many": ([coin(0.1), coin(8)], [3, 300], [1, 30]),
    "ratio 100": ([coin(0.16), coin(16)], [50, 50], [0, 1]),
    "many": ([coin(0.5), coin(2)], [3000, 3000], [1500, 0]),
}


@pytest.mark.large
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99, 1 - 0.05 / 1024])
@pytest.mark.parametrize("corner", CORNERS)
def test_under_several_epsilons_no_confidence_is_missed(corner: str, confidence: float) -> None:
    found, _ = coverage(*CORNERS[corner], confidence)
    slack = 4 * sqrt(confidence * (1 - confidence) / RUNS)
    assert min(found.values()) >= confidence - slack, found


def test_student_t_without_regard_to_the_confidence_would_be_found() -> None:
    """What hush did: t·s/sqrt(N) from 12·reach² on, at 1 - .05/64 for a category that few have."""
    channels, sizes, truth = CORNERS["few, 3 and 4 of 64"]
    rng = np.random.default_rng(1)
    total, squares = np.zeros(RUNS), np.zeros(RUNS)
    for of, n, j in zip(channels, sizes, truth, strict=True):
        yes = drawn(of, n, j / n, j, rng)
        total += (n - yes) * of.a[0] + yes * of.a[1]
        squares += (n - yes) * of.a[0] ** 2 + yes * of.a[1] ** 2
    n = sum(sizes)
    variance = squares / n - (total / n) ** 2
    confidence = 1 - 0.05 / 64
    missed = np.abs(total / n - 0.05) > stats.t.ppf((1 + confidence) / 2, n - 1) * np.sqrt(variance / n)
    assert missed.mean() > 2 * (1 - confidence)
    assert (
        sum(size * of.variances[0] for of, size in zip(channels, sizes, strict=True))
        < enough(confidence) * max(of.reach for of in channels) ** 2
    )


def test_the_limit_is_where_the_bound_of_the_docstring_reaches_half_of_alpha() -> None:
    """One group, so that v, r and the transform are those of a binomial count; the best rate by a fine grid."""
    of, n, center, confidence = coin(1), 400, 0.3, 0.95
    (q, p), w = of.p[:, 1], of.a[1] - of.a[0]
    rates = np.geomspace(0.005, 3, 20_000)

    def bound(mu: float) -> float:
        none, all_ = np.log1p(q * np.expm1(rates * w)), np.log1p(p * np.expm1(rates * w))
        exponent = n * ((1 - mu) * none + mu * all_ + rates * of.a[0] - rates * center)
        tilted = [c * np.exp(rates * w) / (1 + c * np.expm1(rates * w)) for c in (q, p)]
        least = np.minimum(*(c * (1 - c) for c in tilted))
        most = np.where((tilted[0] < 0.5) & (tilted[1] > 0.5), 0.25, np.maximum(*(c * (1 - c) for c in tilted)))
        third = w * (1 - 2 * least)
        ratio = np.maximum(third / np.sqrt(n * w**2 * least), third / np.sqrt(n * w**2 * most))
        factor = 1 / (rates * np.sqrt(2 * np.pi * n * w**2 * least)) + 1.12 * ratio
        return float((exponent + np.minimum(np.log(factor), 0)).min())

    low = float(tilted_limits([(of, n)], np.array([center]), [confidence], whole=True)[0][0, 0])
    assert bound(low - 0.002) < log(0.025) < bound(low + 0.002)


@pytest.mark.parametrize(("n", "most"), [(100, 1.25), (1000, 1.10), (10_000, 1.06)])
@pytest.mark.parametrize("target", [REPORTERS, POPULATION])
def test_it_is_little_wider_than_a_normal_interval_with_known_variance(n: int, most: float, target: str) -> None:
    channels, halves = [coin(0.5), coin(2)], [n // 2, n // 2]
    low, high = tilted_limits(
        list(zip(channels, halves, strict=True)), np.array([0.4]), [0.95], whole=target == REPORTERS
    )
    noise = sum(size * of.noise[0] for of, size in zip(channels, halves, strict=True)) / n**2
    normal = 1.96 * sqrt(noise + (0.24 / n if target == POPULATION else 0))
    assert 1.03 < float(high[0, 0] - low[0, 0]) / (2 * normal) < most


# ---- enrolled


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
@pytest.mark.parametrize(("epsilon", "n", "enrolled"), [(1, 30, 40), (1, 400, 500), (4, 60, 61), (4, 2000, 3000)])
def test_a_random_subset_of_those_enrolled_covers_their_mean(
    epsilon: int, n: int, enrolled: int, confidence: float
) -> None:
    mechanism = RandomizedResponse.from_epsilon(Fraction(epsilon))
    q, p = (float(one) for one in mechanism.probability_of_one)
    rng = np.random.default_rng(4)
    for share in (0.0, 0.1, 0.5):
        having = round(share * enrolled)
        j = rng.hypergeometric(having, enrolled - having, n, RUNS)
        counts, which = np.unique(rng.binomial(j, p) + rng.binomial(n - j, q), return_inverse=True)
        given = proportions.proportions(
            mechanism.probability_of_one, n, counts.tolist(), [confidence], enrolled=enrolled
        )
        ends = np.array([one[ENROLLED] for one in given.intervals[0]])[which]
        held = (ends[:, 0] <= having / enrolled + ALLOWED) & (ends[:, 1] >= having / enrolled - ALLOWED)
        assert held.mean() >= confidence - 4 * sqrt(confidence * (1 - confidence) / RUNS)


def test_the_enrolled_lie_between_the_reporters_and_the_population() -> None:
    task = make_task({"id": "b", "epsilon": "4", "domain": {"kind": "bit"}, "enrolled": 1250})
    given = estimate(task, Tally(1000, (400,)), 0.95)
    assert given.methods[ENROLLED] == "score-enrolled"
    width = {target: high - low for target, (low, high) in given.intervals.items()}
    assert width[REPORTERS] < width[ENROLLED] < 0.7 * width[POPULATION]
    assert (
        given.single.stderr_plug_in[REPORTERS]
        < given.single.stderr_plug_in[ENROLLED]
        < given.single.stderr_plug_in[POPULATION]
    )
    f = given.mean or 0.0
    noise = exp(4) / (exp(4) - 1) ** 2
    expected = 2 * 1.95996 * sqrt((noise + f * (1 - f) * 250 / 1249) / 1000)
    expected += (exp(4) + 1) / (exp(4) - 1) / 1000  # half a report on either side
    assert width[ENROLLED] == pytest.approx(expected, rel=0.01)
    everyone = estimate(
        make_task({"id": "b", "epsilon": "4", "domain": {"kind": "bit"}, "enrolled": 1000}), Tally(1000, (400,)), 0.95
    )
    assert everyone.intervals[ENROLLED] == everyone.intervals[REPORTERS]
    more = estimate(
        make_task({"id": "b", "epsilon": "4", "domain": {"kind": "bit"}, "enrolled": 999}), Tally(1000, (400,)), 0.95
    )
    assert ENROLLED not in more.intervals


# ---- standard errors


def test_a_category_that_nobody_has_gets_its_own_error_and_no_wider_bar_above_ten_thousand() -> None:
    of = category(4, 20)
    support = (of.rows[0][1], of.rows[1][1])
    q, p = (float(one) for one in support)
    upper = []
    for n in (10_000, 10_001):
        given = proportions.proportions(support, n, [round(n * q)] * 20, [0.95])
        upper.append(given.intervals[0][0][REPORTERS][1])
        true = sqrt(q * (1 - q) / n) / (p - q)
        assert given.stderr[0][REPORTERS] == pytest.approx(true, rel=0.02)
        assert sqrt(p * (1 - p) / n) / (p - q) > 3 * true  # of somebody who has it
    assert upper == pytest.approx([0.0032, 0.0032], abs=2e-5)


def test_the_standard_error_of_a_rare_category_is_the_spread_of_its_frequency() -> None:
    """At epsilon 8 of 1024 categories, of which nobody has this one; the bound over all values is 28 times as large."""
    mechanism = make_task(
        {"id": "c", "epsilon": "8", "domain": {"kind": "category", "labels": [f"c{c}" for c in range(1024)]}}
    ).randomizer
    assert isinstance(mechanism, SubsetSelection)
    q, p = map(float, mechanism.support)
    n, rng = 10_000, np.random.default_rng(9)
    for holders in (0, 50, 5000):
        counts = rng.binomial(n - holders, q, 4000) + rng.binomial(holders, p, 4000)
        given = proportions.proportions(mechanism.support, n, counts.tolist(), [0.95])
        errors, spread = [one[REPORTERS] for one in given.stderr], np.std(given.mean, ddof=1)
        assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(spread, rel=0.06), "5 standard errors"
        bound = sqrt(max(q * (1 - q), p * (1 - p)) / n) / (p - q)
        assert bool(bound > 20 * spread) is (holders == 0)


def test_a_band_for_the_population_is_wider_by_the_spread_of_the_values_alone() -> None:
    task = make_task({"id": "b", "epsilon": "2", "offers": ["1", "2"], "domain": {"kind": "bit"}})
    given = estimate(task, Tally(400, (200, 100, 200, 100)), 0.95)
    assert given.methods[ANYTIME_POPULATION] == "population-chernoff-hoeffding-mixture"
    inner, outer = given.intervals["anytime"], given.intervals[ANYTIME_POPULATION]
    assert outer[0] < inner[0] < inner[1] < outer[1]
    assert outer[1] - outer[0] < 1.2 * (inner[1] - inner[0])
