"""Error bars of randomized response, judged by summing over every count that can be reported."""

from fractions import Fraction
from math import comb, exp, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hush_aggregator import Estimate
from hush_aggregator.estimate import POPULATION, REPORTERS, proportions
from hush_aggregator.estimate.intervals.inversion import log_at_least
from hush_aggregator.tally import Tally
from hush_common.epsilon import log_ceiling
from hush_common.mechanisms import RandomizedResponse
from hush_common.mechanisms.parameters import coin_loss_ratio

Interval = tuple[float, float]

LN3 = log_ceiling(Fraction(3))
EPSILONS = (Fraction(1, 2), LN3, Fraction(2), Fraction(4))
ALLOWED = 1e-9  # rounding of a sum of probabilities


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
        for theta in [*np.linspace(0, 1, 101), *ends]
    )


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10, 30])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_interval_for_the_reporters_covers_every_number_of_true_ones(mechanism: RandomizedResponse, n: int) -> None:
    assert least_coverage_of_reporters(mechanism, n, intervals(mechanism, n, REPORTERS)) >= 0.95 - ALLOWED


@pytest.mark.large
@pytest.mark.parametrize("n", [1, 2, 5, 30, 100])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_interval_for_the_population_covers_every_proportion(mechanism: RandomizedResponse, n: int) -> None:
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


def test_the_noise_alone_is_too_narrow_for_the_population_and_a_normal_one_for_few_reporters() -> None:
    mechanism = RandomizedResponse.from_epsilon(Fraction(4))
    assert least_coverage_of_population(mechanism, 30, intervals(mechanism, 30, REPORTERS)) < 0.6
    assert least_coverage_of_reporters(mechanism, 10, wald(mechanism, 10, sampling=False)) < 0.94


# ---- the inversion, against fractions


def accepted(mechanism: RandomizedResponse, n: int, ones: int, tail: Fraction) -> list[int]:
    """All numbers of true ones that neither tail refuses, in fractions."""
    p0, p1 = mechanism.probability_of_one

    def probability(j: int, k: int) -> Fraction:
        true = [(i, comb(j, i) * p1**i * (1 - p1) ** (j - i)) for i in range(max(0, k - n + j), min(j, k) + 1)]
        return sum((p * comb(n - j, k - i) * p0 ** (k - i) * (1 - p0) ** (n - j - k + i) for i, p in true), Fraction(0))

    laws = [[probability(j, k) for k in range(n + 1)] for j in range(n + 1)]
    return [j for j, law in enumerate(laws) if sum(law[ones:]) > tail and sum(law[: ones + 1]) > tail]


@pytest.mark.large
@pytest.mark.parametrize("confidence", [0.13, 0.47, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("mechanism", [coins("1/2", "1/2"), coins("1/2", "9/10"), coins("9/10", "1/3")])
def test_bisection_finds_the_ends_of_the_set_of_accepted_numbers(
    mechanism: RandomizedResponse, confidence: float
) -> None:
    for n, ones in ((size, count) for size in (1, 2, 3, 8) for count in range(size + 1)):
        among = accepted(mechanism, n, ones, Fraction((1 - confidence) / 2))
        ends = proportions._invert(mechanism.probability_of_one, n, np.array([ones]), [(1 - confidence) / 2])
        low, high = (float(end[0, 0]) for end in ends)
        if among:
            assert among == list(range(among[0], among[-1] + 1))
            assert (low, high) == (among[0] / n, among[-1] / n)
        else:
            assert (low, high) in {(0.0, 0.0), (1.0, 1.0)}
        mean = of(mechanism, n, ones).mean or 0.0
        kept = of(mechanism, n, ones, confidence).intervals[REPORTERS]
        assert kept == pytest.approx((max(low - max(mean - 1, 0), 0), min(high - min(mean, 0), 1)), abs=1e-12)


def test_a_tail_of_exactly_half_of_alpha_is_not_refused() -> None:
    mechanism = coins("1/2", "1/2")  # P(K ≤ 0 | one true one) = 1/4, of which floats know only so many digits
    assert of(mechanism, 1, 0, 0.5).intervals[REPORTERS] == (0.0, 1.0)


def test_where_no_number_is_accepted_the_interval_reaches_inwards_as_far_as_the_mean_lies_outside() -> None:
    mechanism = coins("1/2", "1/2")
    assert not accepted(mechanism, 20, 20, Fraction(1, 40))
    assert of(mechanism, 20, 20).mean == 1.5
    assert of(mechanism, 20, 20).intervals[REPORTERS] == (0.5, 1.0)
    assert not accepted(mechanism, 20, 0, Fraction(1, 40))
    assert of(mechanism, 20, 0).intervals[REPORTERS] == (0.0, 0.5)


def test_no_honest_run_ends_in_an_interval_of_no_width() -> None:
    mechanism, n = RandomizedResponse.from_epsilon(Fraction(1)), 100
    law = law_of_ones(mechanism, n, 0)
    _, high = proportions._invert(mechanism.probability_of_one, n, np.arange(n + 1), [0.025])
    assert float(law @ (high[0] == 0)) == pytest.approx(0.026, abs=5e-4), "what clipping alone would leave at (0, 0)"
    for k in range(n + 1):
        assert all(low < high for low, high in of(mechanism, n, k).intervals.values())


def rows(mechanism: RandomizedResponse) -> NDArray[np.float64]:
    """One row of probabilities, as `binomial` takes them."""
    p0, p1 = mechanism.probability_of_one
    return np.array([[float(p)] for p in (p0, p1, 1 - p0, 1 - p1)])


@pytest.mark.parametrize(("n", "j"), [(1, 0), (7, 7), (2000, 0), (2000, 700), (10_000, 9990)])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_tail_of_thousands_of_bits_is_that_of_scipy(mechanism: RandomizedResponse, n: int, j: int) -> None:
    law = law_of_ones(mechanism, n, j)
    tails = np.cumsum(law[::-1])[::-1]
    counts = np.flatnonzero((tails > 1e-12) & (tails < 0.9) & (np.arange(n + 1) > 0))[::7]
    found, _ = log_at_least(n, counts, np.full(len(counts), j), np.repeat(rows(mechanism), len(counts), axis=1))
    assert np.exp(found) == pytest.approx(tails[counts], rel=1e-9)


@pytest.mark.parametrize("n", [10**6, 10**9])
@pytest.mark.parametrize("p0", [1e-7, 0.01, 0.27])
def test_the_tail_of_a_billion_bits_is_the_binomial_one_where_nobody_has_the_trait(n: int, p0: float) -> None:
    for z in (0, 1, 3, 6):
        count = int(n * p0 + z * sqrt(n * p0 * (1 - p0))) + 1
        row = np.array([[p0], [0.9], [1 - p0], [0.1]])
        found, _ = log_at_least(n, np.array([count]), np.array([0]), row)
        assert exp(found[0]) == pytest.approx(stats.binom.sf(count - 1, n, p0), rel=1e-9)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(4), Fraction(8), Fraction(16)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999, 0.999999])
@pytest.mark.parametrize("n", [10_000, 10_001])
def test_nobody_with_the_trait_is_covered_by_the_exact_sum_at_every_confidence(
    n: int, confidence: float, epsilon: Fraction
) -> None:
    mechanism = RandomizedResponse.from_epsilon(epsilon)
    for j in (0, 3, n // 2):
        law = law_of_ones(mechanism, n, j)
        likely = np.flatnonzero(law > 1e-12)
        ends = proportions._invert(mechanism.probability_of_one, n, likely, [(1 - confidence) / 2])
        held = covered([(low, high) for low, high in zip(ends[0][0], ends[1][0], strict=True)], j / n)
        assert of(mechanism, n, int(likely[0])).methods[REPORTERS] == "binomial-inversion"
        assert float(law[likely] @ held) >= confidence - 1e-9
        if epsilon == 8 and confidence == 0.999 and j == 0:  # what hush did above 10 000 reports until 1.0
            p0 = float(mechanism.probability_of_one[0])
            normal = np.abs(likely / n - p0) <= 3.2905 * sqrt(p0 * (1 - p0) / n) + 0.5 / n
            assert float(law[likely] @ normal) < 0.9976


@pytest.mark.parametrize("mechanism", [RandomizedResponse.from_epsilon(Fraction(1)), coins("1/2", "9/10")])
def test_the_ends_at_ten_thousand_reports_are_the_exact_ones(mechanism: RandomizedResponse) -> None:
    n, count = 10_001, 5200
    low, high = of(mechanism, n, count).intervals[REPORTERS]
    for j, inside in ((round(low * n) - 1, False), (round(low * n), True), (round(high * n), True)):
        law = law_of_ones(mechanism, n, j)
        assert (min(law[count:].sum(), law[: count + 1].sum()) > 0.025) == inside
    assert law_of_ones(mechanism, n, round(high * n) + 1)[: count + 1].sum() <= 0.025


# ---- Clopper and Pearson, mean, standard errors


@pytest.mark.parametrize("confidence", [1e-9, 0.5, 0.95, 1 - 1e-9])
@pytest.mark.parametrize("mechanism", MECHANISMS)
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


@pytest.mark.parametrize("mechanism", MECHANISMS[:4])
@pytest.mark.parametrize("j", [0, 4, 10])
def test_the_standard_error_for_the_reporters_is_the_deviation_of_the_mean(
    mechanism: RandomizedResponse, j: int
) -> None:
    law, means = law_of_ones(mechanism, 10, j), [of(mechanism, 10, k).mean for k in range(11)]
    deviation = sqrt(law @ (np.array(means, dtype=float) - j / 10) ** 2)
    assert of(mechanism, 10, j).stderr[REPORTERS] == pytest.approx(deviation, rel=1e-9)


@pytest.mark.parametrize("mechanism", MECHANISMS[4:])
def test_with_coins_that_treat_the_bits_differently_it_is_that_of_the_estimated_share(
    mechanism: RandomizedResponse,
) -> None:
    means = np.array([of(mechanism, 10, k).mean for k in range(11)], dtype=float)
    deviations = [sqrt(law_of_ones(mechanism, 10, j) @ (means - j / 10) ** 2) for j in range(11)]
    errors = [of(mechanism, 10, k).stderr[REPORTERS] for k in range(11)]
    squares = np.interp(means, np.arange(11) / 10, np.square(deviations))  # linear in the share, and clipped
    assert errors == pytest.approx(np.sqrt(squares).tolist(), rel=1e-9)
    assert (errors[0], errors[10]) == pytest.approx((deviations[0], deviations[10]), rel=1e-9)
    assert min(deviations) < 0.99 * max(deviations)


def test_the_standard_errors_have_their_closed_forms() -> None:
    given = of(RandomizedResponse.from_epsilon(Fraction(2)), 400, 200)
    noise = exp(2) / (exp(2) - 1) ** 2
    assert noise == pytest.approx(0.181015, rel=1e-5)
    assert given.stderr[REPORTERS] == pytest.approx(sqrt(noise / 400), rel=1e-12)
    assert given.stderr[POPULATION] == pytest.approx(sqrt((noise + 0.25) / 400), rel=1e-12)


@pytest.mark.parametrize(("n", "ones"), [(1, 0), (1, 1), (2, 2), (50, 0), (10**6, 10**6)])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_reports_that_are_all_equal_still_have_an_error(mechanism: RandomizedResponse, n: int, ones: int) -> None:
    given = of(mechanism, n, ones)
    assert all(error > 0 for error in given.stderr.values())
    assert all(0 <= low <= high <= 1 for low, high in given.intervals.values())


@pytest.mark.parametrize("confidence", [1e-300, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("n", [1, 100, 20_000, 10**9])
def test_any_confidence_gives_an_interval(confidence: float, n: int) -> None:
    given = of(RandomizedResponse.from_epsilon(Fraction(1)), n, n // 2, confidence)
    assert all(0 <= low <= high <= 1 for low, high in given.intervals.values())
