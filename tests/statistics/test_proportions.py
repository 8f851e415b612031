"""Shares: bits and categories, under one epsilon or several, over every count that can be reported."""

from collections.abc import Sequence
from fractions import Fraction
from math import comb, exp, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from single_intervals import FiniteChannel, finite, pooled_proportions

from hush import Task
from hush_aggregator import Estimate
from hush_aggregator.estimate import ANYTIME_POPULATION, ENROLLED, POPULATION, REPORTERS, estimate, proportions
from hush_aggregator.estimate.estimates import Intervals
from hush_aggregator.estimate.intervals.inversion import log_at_least
from hush_aggregator.estimate.intervals.lattice import lattices, widened
from hush_aggregator.estimate.intervals.tilted import tilted_limits
from hush_aggregator.estimate.mechanisms import fold, subset_selection
from hush_aggregator.estimate.mechanisms.subset_selection import simplex
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import CategoryDomain
from hush_common.epsilon import log_ceiling
from hush_common.mechanisms import Offers, RandomizedResponse, SubsetSelection
from hush_common.mechanisms.parameters import coin_loss_ratio
from hush_common.mechanisms.subset_selection import best_size
from hush_common.rng import SystemRng
from hush_common.task import make_task

Interval = tuple[float, float]

LN3 = log_ceiling(Fraction(3))
EPSILONS = (Fraction(1, 2), LN3, Fraction(2), Fraction(4))
NOMINAL, ALLOWED = 0.95, 1e-9  # the latter: rounding of a sum of probabilities


def coins(truth: str, yes: str) -> RandomizedResponse:
    ratio = coin_loss_ratio(Fraction(truth), Fraction(yes))
    assert ratio is not None
    return RandomizedResponse.from_coins(log_ceiling(ratio), Fraction(truth), Fraction(yes))


MECHANISMS = [RandomizedResponse.from_epsilon(epsilon) for epsilon in EPSILONS] + [
    coins("1/2", "9/10"),
    coins("4/5", "1/20"),
]


def of(mechanism: RandomizedResponse, n: int, ones: int, confidence: float = 0.95) -> Estimate:
    return proportions.estimate_alone(mechanism, Tally(n, (ones,)), confidence)


def intervals(mechanism: RandomizedResponse, n: int, target: str) -> list[Interval]:
    """The interval for each number of reported ones, 0 to n."""
    return [of(mechanism, n, ones).intervals[target] for ones in range(n + 1)]


def law_of_ones(mechanism: RandomizedResponse, n: int, j: int) -> NDArray[np.float64]:
    """P(K = 0), …, P(K = n) with j true ones, by scipy."""
    p0, p1 = (float(p) for p in mechanism.probability_of_one)
    return np.convolve(stats.binom.pmf(np.arange(j + 1), j, p1), stats.binom.pmf(np.arange(n - j + 1), n - j, p0))


def covered(given: list[Interval], truth: float) -> NDArray[np.bool_]:
    return np.array([low - ALLOWED <= truth <= high + ALLOWED for low, high in given])


def least_coverage_of_reporters(mechanism: RandomizedResponse, n: int, given: list[Interval]) -> float:
    """The smallest coverage over all numbers of true ones."""
    return min(float(law_of_ones(mechanism, n, j) @ covered(given, j / n)) for j in range(n + 1))


def least_coverage_of_population(mechanism: RandomizedResponse, n: int, given: list[Interval]) -> float:
    """The smallest coverage over proportions: a grid, and both sides of every end of an interval."""
    p0, p1 = (float(p) for p in mechanism.probability_of_one)
    ends = [min(max(end + shift, 0), 1) for pair in given for end in pair for shift in (-1e-7, 1e-7)]
    ks = np.arange(n + 1)
    return min(
        float(stats.binom.pmf(ks, n, p0 + theta * (p1 - p0)) @ covered(given, theta))
        for theta in [*np.linspace(0, 1, 41), *ends]
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_interval_for_the_reporters_covers_every_number_of_true_ones(mechanism: RandomizedResponse) -> None:
    for n in (1, 2, 5, 20):
        assert least_coverage_of_reporters(mechanism, n, intervals(mechanism, n, REPORTERS)) >= 0.95 - ALLOWED


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_interval_for_the_population_covers_every_proportion(mechanism: RandomizedResponse) -> None:
    for n in (1, 2, 5, 12):
        assert least_coverage_of_population(mechanism, n, intervals(mechanism, n, POPULATION)) >= 0.95 - ALLOWED


def wald(mechanism: RandomizedResponse, n: int, *, sampling: bool) -> list[Interval]:
    """Wrong on purpose: a normal interval around the estimate, with the estimated variance or the noise alone."""
    p0, p1 = (float(p) for p in mechanism.probability_of_one)
    given = []
    for ones in range(n + 1):
        variance = ones / n * (1 - ones / n) if sampling else p0 * (1 - p0)
        half, mean = 1.96 * sqrt(variance / n) / (p1 - p0), (ones / n - p0) / (p1 - p0)
        given.append((mean - half, mean + half))
    return given


@pytest.mark.parametrize(("epsilon", "least"), [("1/2", 0.819), ("2", 0.456), ("4", 0.087)])
def test_a_normal_interval_for_five_bits_fails_the_same_judge(epsilon: str, least: float) -> None:
    mechanism = RandomizedResponse.from_epsilon(Fraction(epsilon))
    assert least_coverage_of_population(mechanism, 5, wald(mechanism, 5, sampling=True)) == pytest.approx(
        least, abs=0.001
    )


# ---- the inversion, against fractions


def accepted(mechanism: RandomizedResponse, n: int, ones: int, tail: Fraction) -> list[int]:
    """All numbers of true ones that neither tail refuses, in fractions."""
    p0, p1 = mechanism.probability_of_one

    def probability(j: int, k: int) -> Fraction:
        true = [(i, comb(j, i) * p1**i * (1 - p1) ** (j - i)) for i in range(max(0, k - n + j), min(j, k) + 1)]
        return sum((p * comb(n - j, k - i) * p0 ** (k - i) * (1 - p0) ** (n - j - k + i) for i, p in true), Fraction(0))

    laws = [[probability(j, k) for k in range(n + 1)] for j in range(n + 1)]
    return [j for j, law in enumerate(laws) if sum(law[ones:]) > tail and sum(law[: ones + 1]) > tail]


@pytest.mark.parametrize("confidence", [0.13, 0.95, 0.999])
@pytest.mark.parametrize("mechanism", [coins("1/2", "1/2"), coins("1/2", "9/10"), coins("9/10", "1/3")])
def test_bisection_finds_the_ends_of_the_set_of_accepted_numbers(
    mechanism: RandomizedResponse, confidence: float
) -> None:
    for n, ones in ((size, count) for size in (1, 2, 5) for count in range(size + 1)):
        among = accepted(mechanism, n, ones, Fraction((1 - confidence) / 2))
        mean = of(mechanism, n, ones).mean or 0.0
        nearest = min(max(round(mean), 0), 1)
        low, high = (among[0] / n, among[-1] / n) if among else (nearest, nearest)
        assert among == list(range(round(low * n), round(high * n) + 1)) or not among
        kept = of(mechanism, n, ones, confidence).intervals[REPORTERS]
        assert kept == pytest.approx((max(low - max(mean - 1, 0), 0), min(high - min(mean, 0), 1)), abs=1e-12)


def test_a_tail_of_exactly_half_of_alpha_is_not_refused() -> None:
    mechanism = coins("1/2", "1/2")  # P(K ≤ 0 | one true one) = 1/4, of which floats know only so many digits
    assert of(mechanism, 1, 0, 0.5).intervals[REPORTERS] == (0.0, 1.0)


def test_an_interval_reaches_inwards_where_no_number_is_accepted() -> None:
    mechanism = coins("1/2", "1/2")
    assert not accepted(mechanism, 20, 20, Fraction(1, 40))
    assert of(mechanism, 20, 20).mean == 1.5
    assert of(mechanism, 20, 20).intervals[REPORTERS] == (0.5, 1.0)
    assert not accepted(mechanism, 20, 0, Fraction(1, 40))
    assert of(mechanism, 20, 0).intervals[REPORTERS] == (0.0, 0.5)


@pytest.mark.medium
def test_no_honest_run_ends_in_an_interval_of_no_width() -> None:
    mechanism, n = RandomizedResponse.from_epsilon(Fraction(1)), 100
    for k in range(n + 1):
        assert all(low < high for low, high in of(mechanism, n, k).intervals.values())


def rows(mechanism: RandomizedResponse) -> NDArray[np.float64]:
    """One row of probabilities, as `binomial` takes them."""
    p0, p1 = mechanism.probability_of_one
    return np.array([[float(p)] for p in (p0, p1, 1 - p0, 1 - p1)])


@pytest.mark.parametrize(("n", "j"), [(1, 0), (7, 7), (2000, 700), (10_000, 9990)])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_tail_of_thousands_of_bits_is_that_of_scipy(mechanism: RandomizedResponse, n: int, j: int) -> None:
    law = law_of_ones(mechanism, n, j)
    tails = np.cumsum(law[::-1])[::-1]
    counts = np.flatnonzero((tails > 1e-12) & (tails < 0.9) & (np.arange(n + 1) > 0))[::7]
    found, _ = log_at_least(n, counts, np.full(len(counts), j), np.repeat(rows(mechanism), len(counts), axis=1))
    assert np.exp(found) == pytest.approx(tails[counts], rel=1e-9)


@pytest.mark.parametrize("n", [10**6, 10**9])
@pytest.mark.parametrize("p0", [1e-7, 0.01, 0.27])
def test_the_tail_of_a_billion_bits_is_the_binomial_one(n: int, p0: float) -> None:
    for z in (0, 1, 3, 6):
        count = int(n * p0 + z * sqrt(n * p0 * (1 - p0))) + 1
        row = np.array([[p0], [0.9], [1 - p0], [0.1]])
        found, _ = log_at_least(n, np.array([count]), np.array([0]), row)
        assert exp(found[0]) == pytest.approx(stats.binom.sf(count - 1, n, p0), rel=1e-9)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(8)])
@pytest.mark.parametrize("confidence", [0.5, 0.999, 0.999999])
def test_ten_thousand_reports_cover_rare_traits_by_the_exact_sum(confidence: float, epsilon: Fraction) -> None:
    mechanism, n = RandomizedResponse.from_epsilon(epsilon), 10_001
    for j in (0, 3, n // 2):
        law = law_of_ones(mechanism, n, j)
        likely = np.flatnonzero(law > 1e-12)
        given = proportions.proportions(mechanism.probability_of_one, n, likely.tolist(), [confidence])
        held = covered([one[REPORTERS] for one in given.intervals[0]], j / n)
        assert of(mechanism, n, int(likely[0])).methods[REPORTERS] == "binomial-inversion"
        assert float(law[likely] @ held) >= confidence - 1e-9
        if epsilon == 8 and confidence == 0.999 and j == 0:  # the twin: a normal interval
            p0 = float(mechanism.probability_of_one[0])
            normal = np.abs(likely / n - p0) <= 3.2905 * sqrt(p0 * (1 - p0) / n) + 0.5 / n
            assert float(law[likely] @ normal) < 0.9976


# ---- Clopper and Pearson, mean, standard errors


@pytest.mark.parametrize("confidence", [1e-9, 0.95, 1 - 1e-9])
@pytest.mark.parametrize("mechanism", MECHANISMS[1:5:3])
def test_clopper_and_pearson_is_that_of_scipy(mechanism: RandomizedResponse, confidence: float) -> None:
    p0, p1 = (float(p) for p in mechanism.probability_of_one)
    for n, ones in [(1, 0), (1, 1), (10, 3), (500, 200), (500, 0), (10**6, 400_000)]:
        exact = stats.binomtest(ones, n).proportion_ci(confidence, "exact")
        mean = (ones / n - p0) / (p1 - p0)
        low, high = ((lam - p0) / (p1 - p0) for lam in (exact.low, exact.high))
        expected = np.clip([low - max(mean - 1, 0), high - min(mean, 0)], 0, 1)
        assert of(mechanism, n, ones, confidence).intervals[POPULATION] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_mean_is_unbiased_at_every_number_of_true_ones(mechanism: RandomizedResponse) -> None:
    n = 12
    means = np.array([of(mechanism, n, ones).mean for ones in range(n + 1)], dtype=float)
    clipped = np.clip(means, 0, 1)
    for j in range(n + 1):
        assert law_of_ones(mechanism, n, j) @ means == pytest.approx(j / n, abs=1e-12)
    assert law_of_ones(mechanism, n, n) @ clipped < 1 - 1e-4, "clipping the estimate would bias it"


def test_the_mean_is_rounded_once() -> None:
    assert of(coins("1/2", "1/2"), 3, 1).mean == 1 / 6
    assert of(coins("1/2", "1/2"), 10**15, 10**15 // 4 + 1).mean == 2e-15


@pytest.mark.parametrize("mechanism", MECHANISMS[4:])
def test_the_standard_error_of_unequal_coins_is_that_of_the_estimate(
    mechanism: RandomizedResponse,
) -> None:
    means = np.array([of(mechanism, 10, k).mean for k in range(11)], dtype=float)
    deviations = [sqrt(law_of_ones(mechanism, 10, j) @ (means - j / 10) ** 2) for j in range(11)]
    errors = [of(mechanism, 10, k).stderr[REPORTERS] for k in range(11)]
    squares = np.interp(means, np.arange(11) / 10, np.square(deviations))  # linear in the share, and clipped
    assert errors == pytest.approx(np.sqrt(squares).tolist(), rel=1e-9)
    assert (errors[0], errors[10]) == pytest.approx((deviations[0], deviations[10]), rel=1e-9)
    assert min(deviations) < 0.99 * max(deviations)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_reports_that_are_all_equal_still_have_an_error(mechanism: RandomizedResponse) -> None:
    for n, ones, confidence in ((1, 0, 1e-300), (1, 1, 0.5), (50, 0, 0.95), (10**9, 10**9, 1 - 2**-53)):
        given = of(mechanism, n, ones, confidence)
        assert all(error > 0 for error in given.stderr.values())
        assert all(0 <= low <= high <= 1 for low, high in given.intervals.values())


# ---- categories


def task(count: int = 4, epsilon: str = "1", **fields: object) -> Task:
    labels = [f"label {k}" for k in range(count)]
    return make_task({"id": "c", "epsilon": epsilon, "domain": {"kind": "category", "labels": labels}, **fields})


def frequencies(asked: Task, tally: Tally) -> list[float]:
    return [fact.mean or 0.0 for fact in estimate(asked, tally, NOMINAL).parts]


@pytest.mark.medium
def test_every_frequency_is_unbiased_and_they_sum_to_one() -> None:
    asked = task(size=2)
    mechanism = asked.randomizer
    assert isinstance(mechanism, SubsetSelection)
    for truth in range(4):
        mean = np.zeros(4)
        for body in mechanism.outputs():
            given = frequencies(asked, fold(mechanism, np.array([body])))
            assert sum(given) == pytest.approx(1)
            mean += float(mechanism.probability(body, truth)) * np.array(given)
        assert mean == pytest.approx(np.eye(4)[truth], abs=1e-12)


def three(counts: Sequence[int]) -> Tally:
    return Tally(sum(counts), tuple(counts))


@pytest.mark.medium
@pytest.mark.parametrize(("n", "epsilon"), [(1, "8"), (3, "0.5"), (7, "2")])
def test_joint_intervals_cover_all_categories_and_single_ones_each(n: int, epsilon: str) -> None:
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
    others = np.random.default_rng(7).dirichlet(np.ones(4), 10_000)
    target = np.array([0.9, 0.4, -0.3, 0.0])
    assert ((others - target) ** 2).sum(axis=1).min() >= ((given - target) ** 2).sum()


@pytest.mark.medium
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


@pytest.mark.parametrize(("n", "categories"), [(9, 40), (900, 3), (20_000, 40)])
def test_every_category_gets_what_it_would_get_alone(n: int, categories: int) -> None:
    support = SubsetSelection(Fraction(1), categories, max(categories // 4, 1)).support
    counts = np.random.default_rng(2).binomial(n, float(support[0]), categories).tolist()
    confidences = (0.95, 1 - 0.05 / categories)
    together = proportions.proportions(support, n, counts, confidences)
    for place in (0, categories // 2, categories - 1):
        alike = [counts[place]] * categories  # one count, asked as often: the methods are the same
        for at, confidence in enumerate(confidences):
            alone = proportions.proportions(support, n, alike, [confidence])
            for target, ends in together.intervals[at][place].items():
                assert ends == pytest.approx(alone.intervals[0][0][target], rel=1e-12, abs=1e-15)
            assert together.stderr[place] == pytest.approx(alone.stderr[0])
            assert together.mean[place] == alone.mean[0]


def test_a_frequency_is_an_exact_fraction_rounded_once() -> None:
    support = SubsetSelection(Fraction(1), 1024, 275).support
    counts, n = [0, 1, 275, 999, 1000], 1000
    exact = [float((Fraction(k, n) - support[0]) / (support[1] - support[0])) for k in counts]
    assert proportions.proportions(support, n, counts, [0.95]).mean == exact


def test_the_population_error_keeps_its_digits_at_a_large_epsilon() -> None:
    support = SubsetSelection(Fraction(50), 3, 1).support  # 1 - p is 4e-22, which 1 less a float of p is not
    given = proportions.proportions(support, 100, [100], [0.95]).stderr[0]["population"]
    p = support[1]
    assert given == pytest.approx(sqrt(p * (1 - p) / 100) / float(p - support[0]), rel=1e-12)


# ---- several epsilons, and those enrolled


def coin(epsilon: float) -> FiniteChannel:
    return finite(RandomizedResponse.from_epsilon(Fraction(str(epsilon))))


def category(epsilon: float, k: int) -> FiniteChannel:
    exact = Fraction(str(epsilon))
    return finite(SubsetSelection(exact, k, best_size(exact, k)))


@pytest.mark.parametrize(("n", "most"), [(100, 1.25), (1000, 1.10), (10_000, 1.06)])
@pytest.mark.parametrize("target", [REPORTERS, POPULATION])
def test_the_tilted_limit_is_little_wider_than_a_normal_one(n: int, most: float, target: str) -> None:
    channels, halves = [coin(0.5), coin(2)], [n // 2, n // 2]
    low, high = tilted_limits(
        list(zip(channels, halves, strict=True)), np.array([0.4]), [0.95], whole=target == REPORTERS
    )
    noise = sum(size * of.noise[0] for of, size in zip(channels, halves, strict=True)) / n**2
    normal = 1.96 * sqrt(noise + (0.24 / n if target == POPULATION else 0))
    assert 1.03 < float(high[0, 0] - low[0, 0]) / (2 * normal) < most


# ---- enrolled


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


def test_a_category_that_nobody_has_gets_its_own_error() -> None:
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


def test_the_error_of_a_rare_category_is_the_spread_of_its_frequency() -> None:
    """At epsilon 8 of 1024 categories, of which nobody has this one; the bound over all values is 28 times as large."""
    mechanism = make_task(
        {"id": "c", "epsilon": "8", "domain": {"kind": "category", "labels": [f"c{c}" for c in range(1024)]}}
    ).randomizer
    assert isinstance(mechanism, SubsetSelection)
    q, p = map(float, mechanism.support)
    n, rng = 10_000, np.random.default_rng(9)
    for holders in (0, 5000):
        counts = rng.binomial(n - holders, q, 4000) + rng.binomial(holders, p, 4000)
        given = proportions.proportions(mechanism.support, n, counts.tolist(), [0.95])
        errors, spread = [one[REPORTERS] for one in given.stderr], np.std(given.mean, ddof=1)
        assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(spread, rel=0.06), "5 standard errors"
        bound = sqrt(max(q * (1 - q), p * (1 - p)) / n) / (p - q)
        assert bool(bound > 20 * spread) is (holders == 0)


def test_a_band_for_the_population_is_wider_by_the_spread_of_values() -> None:
    task = make_task({"id": "b", "epsilon": "2", "offers": ["1", "2"], "domain": {"kind": "bit"}})
    given = estimate(task, Tally(400, (200, 100, 200, 100)), 0.95)
    assert given.methods[ANYTIME_POPULATION] == "population-chernoff-hoeffding-mixture"
    inner, outer = given.intervals["anytime"], given.intervals[ANYTIME_POPULATION]
    assert outer[0] < inner[0] < inner[1] < outer[1]
    assert outer[1] - outer[0] < 1.2 * (inner[1] - inner[0])


# ---- errors and half-widths, by independent computations

TARGETS = (REPORTERS, POPULATION, ENROLLED)
# One of two coins, so that its noise is not the same for yes and no.
LOPSIDED = RandomizedResponse.from_coins(Fraction(2), Fraction(1, 2), Fraction(3, 10))
OPTIMAL = RandomizedResponse.from_epsilon(Fraction(2))


def chances(of: FiniteChannel) -> tuple[float, float]:
    """Of a reported yes, where it is false and where it is true."""
    return float(of.rows[0][1]), float(of.rows[1][1])


@pytest.mark.parametrize("many", [1, 40])
def test_pooled_questions_have_the_errors_of_their_reports(many: int) -> None:
    """The shares lie on both sides of what is possible."""
    parts = [
        (finite(LOPSIDED), 40 * many, [0, 12 * many, 40 * many]),
        (finite(OPTIMAL), 60 * many, [60 * many, 20 * many, 31 * many]),
    ]
    n, asked = 100 * many, 250 * many
    left = (asked - n) / (asked - 1) / n
    given = pooled_proportions(parts, [0.95], enrolled=asked)
    assert not given.failures
    for place in range(3):
        people = none = all_ = largest = smallest = mean = 0.0
        reports: list[float] = []
        for of, size, yes in parts:
            q, p = chances(of)
            w, share, weight = 1 / (p - q), min(max(yes[place] / size, q), p), size / n**2
            people += weight * share * (1 - share) * w**2
            variances = q * (1 - q) * w**2, p * (1 - p) * w**2
            none, all_ = none + weight * variances[0], all_ + weight * variances[1]
            largest, smallest = largest + weight * max(variances), smallest + weight * min(variances)
            reports += [-q * w] * (size - yes[place]) + [(1 - q) * w] * yes[place]
        mean = float(np.mean(reports))
        assert given.mean[place] == pytest.approx(mean)
        held = min(max(mean, 0), 1)
        noise, spread = none + held * (all_ - none), held * (1 - held)
        errors = sqrt(noise), sqrt(people), sqrt(noise + spread * left)
        assert given.stderr[place] == pytest.approx(dict(zip(TARGETS, errors, strict=True)))
        errors = sqrt(noise), sqrt(noise + spread / n), sqrt(noise + spread * left)
        assert given.stderr_plug_in[place] == pytest.approx(dict(zip(TARGETS, errors, strict=True)))
        if many == 1:
            continue
        sample = max(float(np.var(reports, ddof=1)) / n, smallest)
        beyond = max(sample - largest, 0)
        t, seen = stats.t.ppf(0.975, n - 1), [np.array([[size - yes[place], yes[place]]]) for _, size, yes in parts]
        for target, square, answered in zip(
            TARGETS, (sample - beyond, sample, sample - n / asked * beyond), (1.0, 0.0, n / asked), strict=True
        ):
            smooth, sizes = t * sqrt(square) * n, tuple((of, size) for of, size, _ in parts)
            found = lattices(sizes, smooth, seen=lambda counts=seen: counts, answered=answered)  # type: ignore[misc]
            half, outside = float(widened(np.array([smooth]), t, found)[0]) / n, mean - held
            assert half == pytest.approx(t * sqrt(square), rel=1e-3)
            low, high = mean - half - max(outside, 0), mean + half - min(outside, 0)
            assert given.intervals[0][place][target] == pytest.approx((max(low, 0), min(high, 1)), rel=1e-9)


@pytest.mark.parametrize("mechanism", [LOPSIDED, OPTIMAL])
@pytest.mark.parametrize("ones", [0, 31, 62, 200])
def test_errors_of_a_bit_are_those_of_its_reports(mechanism: RandomizedResponse, ones: int) -> None:
    n, asked = 200, 300
    q, p = chances(finite(mechanism))
    w, left = 1 / (p - q), (asked - n) / (asked - 1) / n
    given = proportions.estimate_alone(mechanism, Tally(n, (ones,)), 0.95, enrolled=asked)
    mean, share = (ones / n - q) * w, min(max(ones / n, q), p)
    people = share * (1 - share) * w**2 / n
    assert given.mean == pytest.approx(mean, abs=1e-12)
    held = min(max(mean, 0), 1)
    noise = (q * (1 - q) + held * (p * (1 - p) - q * (1 - q))) * w**2 / n
    errors = sqrt(noise), sqrt(people), sqrt(noise + held * (1 - held) * left)
    assert given.stderr == pytest.approx(dict(zip(TARGETS, errors, strict=True)))
    assert given.single.stderr_plug_in == pytest.approx(dict(zip(TARGETS, errors, strict=True)))


def test_many_questions_at_once_have_nearly_the_limits_of_each() -> None:
    sizes = [(finite(RandomizedResponse.from_epsilon(Fraction(epsilon))), 500) for epsilon in ("1/2", "2")]
    centers = np.linspace(-0.05, 1.05, 89)
    for whole in (False, True):
        low, high = tilted_limits(sizes, centers, [0.95], whole=whole)
        for place in (0, 5, 20, 44, 70, 88):
            alone = tilted_limits(sizes, centers[place : place + 1], [0.95], whole=whole)
            width = float(alone[1][0, 0] - alone[0][0, 0])
            assert low[0, place] == pytest.approx(alone[0][0, 0], abs=width * 1e-3)
            assert high[0, place] == pytest.approx(alone[1][0, 0], abs=width * 1e-3)
