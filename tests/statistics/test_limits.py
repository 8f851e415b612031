"""Limits of many counts at once, against scipy, exact sums, and the same limits one by one."""

from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb, factorial, log, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from hush_aggregator.estimate.intervals.inversion import fewest
from hush_aggregator.estimate.numerics.quantiles import beta_band, beta_logits, beta_quantile, clopper_pearson, expit
from hush_aggregator.estimate.proportions import proportions
from hush_common.mechanisms import SubsetSelection

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

CONFIDENCES = (1e-300, 1e-9, 0.5, 0.95, 1 - 0.05 / 1024, 1 - 1e-9, 1 - 2**-53)
TAILS = [(1 - confidence) / 2 for confidence in CONFIDENCES]
SIZES = (1, 2, 3, 10, 1000, 10**5, 10**7)
ALLOWED = 1e-9


def counts_of(n: int) -> Counts:
    """None, all, and some between, many of them small."""
    some = {0, 1, 2, 3, 7, 15, 16, 17, n // 1000, n // 100, n // 3, n // 2, n - 2, n - 1, n}
    return np.array(sorted(k for k in some if 0 <= k <= n))


def scipy_limits(n: int, counts: Counts, tail: float) -> tuple[Array, Array]:
    """Clopper and Pearson's, each end from the tail that keeps its digits."""
    low = np.where(counts > 0, special.betaincinv(np.maximum(counts, 1), n - counts + 1, tail), 0.0)
    high = np.where(counts < n, special.betainccinv(counts + 1, np.maximum(n - counts, 1), tail), 1.0)
    return low, high


def agree(given: Array, expected: Array) -> bool:
    return bool((np.abs(given - expected) <= ALLOWED * expected).all())


@pytest.mark.parametrize("n", SIZES)
def test_limits_of_all_counts_and_confidences_at_once_are_those_of_scipy(n: int) -> None:
    counts = counts_of(n)
    lows, highs = clopper_pearson(n, counts, TAILS)
    for low, high, tail in zip(lows, highs, TAILS, strict=True):
        exact = scipy_limits(n, counts, tail)
        assert agree(low, exact[0])
        assert agree(high, exact[1])
        assert (low <= exact[0] * (1 + ALLOWED)).all(), "no narrower than exact"
        assert (high >= exact[1] * (1 - ALLOWED)).all(), "no narrower than exact"


def wald_limits(n: int, counts: Counts, tail: float) -> tuple[Array, Array]:
    """Wrong on purpose: Agresti and Coull's (1998) normal limits."""
    z = float(stats.norm.isf(tail))
    share = (counts + z * z / 2) / (n + z * z)
    half = z * np.sqrt(share * (1 - share) / (n + z * z))
    return share - half, share + half


@pytest.mark.parametrize("n", SIZES)
def test_normal_limits_would_be_found(n: int) -> None:
    for wrong, exact in zip(wald_limits(n, counts_of(n), 0.025), scipy_limits(n, counts_of(n), 0.025), strict=True):
        assert not agree(wrong, exact)


def test_an_array_longer_than_a_block_gives_what_each_of_its_places_gives_alone() -> None:
    counts = np.random.default_rng(1).integers(0, 10_002, 700)
    tails = [0.025, 0.025 / 1024]
    lows, highs = clopper_pearson(10_001, counts, tails)
    bands = beta_band(10_001, counts, tails)
    for place in (0, 255, 256, 511, 512, 699):
        alone = counts[place : place + 1]
        low, high = clopper_pearson(10_001, alone, tails)
        band = beta_band(10_001, alone, tails)
        assert lows[:, place] == pytest.approx(low[:, 0], rel=1e-12)
        assert highs[:, place] == pytest.approx(high[:, 0], rel=1e-12)
        assert bands[0][:, place] == pytest.approx(band[0][:, 0], rel=1e-12)
        assert bands[1][:, place] == pytest.approx(band[1][:, 0], rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 10, 500, 10**4, 10**6, 10**8])
@pytest.mark.parametrize("probability", [5e-10, 0.005, 0.025, 0.25, 0.4999, 0.7, 1 - 1e-12])
def test_the_beta_quantile_is_that_of_scipy(n: int, probability: float) -> None:
    for k in sorted({1, 1 + n // 100, 1 + n // 3, (n + 1) // 2, n}):
        expected = special.betaincinv(k, n - k + 1, probability)
        assert beta_quantile(probability, k, n - k + 1) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("n", [1, 4, 20])
@pytest.mark.parametrize("probability", [1e-9, 0.025, 0.4])
def test_the_beta_quantile_inverts_the_sum_of_binomial_probabilities(n: int, probability: float) -> None:
    for k in range(1, n + 1):
        x = beta_quantile(probability, k, n - k + 1)
        at_least = sum(comb(n, i) * x**i * (1 - x) ** (n - i) for i in range(k, n + 1))
        assert at_least == pytest.approx(probability, rel=1e-9)


def test_a_beta_quantile_has_a_closed_form_where_one_shape_is_one() -> None:
    b = np.array([0.5, 1.0, 3.0, 1e3, 1e8])
    for tail in TAILS:
        found = expit(beta_logits(tail, 1.0, b))
        assert found == pytest.approx(-np.expm1(np.log1p(-tail) / b), rel=1e-10)


# ---- the band that may be watched


def exact_ratio(n: int, ones: int, c: float) -> Decimal:
    """The logarithm of the mixture's likelihood ratio at c: (2K)!(2M)!/(4^n K! M! n! c^K (1-c)^M), M = n - K."""
    others = n - ones
    mixed = Fraction(
        factorial(2 * ones) * factorial(2 * others), 4**n * factorial(ones) * factorial(others) * factorial(n)
    )
    with localcontext() as context:
        context.prec = 60
        ratio = (Decimal(mixed.numerator) / Decimal(mixed.denominator)).ln()
        ratio -= ones * Decimal(c).ln() if ones else 0
        return ratio - (others * (1 - Decimal(c)).ln() if others else 0)


@pytest.mark.parametrize("n", [1, 2, 5, 60, 800])
def test_the_band_ends_where_the_likelihood_ratio_reaches_one_in_alpha(n: int) -> None:
    counts, alphas = counts_of(n), [1 - 1e-9, 0.5, 0.05, 0.05 / 1024, 2**-53]
    lows, highs = beta_band(n, counts, alphas)
    for low, high, alpha in zip(lows, highs, alphas, strict=True):
        needed = Decimal(-log(alpha))
        for k, lower in zip(counts.tolist(), low.tolist(), strict=True):
            assert k == 0 or exact_ratio(n, k, lower * (1 - ALLOWED)) > needed > exact_ratio(
                n, k, lower * (1 + ALLOWED)
            )
        assert high == pytest.approx(1 - beta_band(n, n - counts, [alpha])[0][0], abs=1e-15)
    assert lows[0, 0] == 0
    assert highs[0, -1] == 1


@pytest.mark.parametrize("n", [10**4, 10**7])
def test_the_band_of_many_reports_has_the_likelihood_ratio_of_scipy(n: int) -> None:
    counts = counts_of(n // 3)[1:]
    for ends in beta_band(n, counts, [0.05]):
        c = ends[0]
        ratio = special.betaln(counts + 0.5, n - counts + 0.5) - log(np.pi)
        ratio -= special.xlogy(counts, c) + special.xlog1py(n - counts, -c)
        assert ratio == pytest.approx(log(20), abs=1e-14 * n + 1e-9)


# ---- the inversion for reporters


def rows(q: float, p: float, count: int) -> Array:
    return np.repeat([[q], [p], [1 - q], [1 - p]], count, axis=1)


@pytest.mark.large
@pytest.mark.parametrize("n", [1, 7, 60])
@pytest.mark.parametrize(("q", "p"), [(0.27, 0.73), (0.499, 0.501), (1e-6, 0.5), (0.3, 1 - 1e-9)])
def test_the_fewest_true_ones_are_found_for_all_counts_and_tails_at_once(n: int, q: float, p: float) -> None:
    ones, zeros = (
        [np.array([stats.binom.pmf(i, size, chance) for i in range(size + 1)]) for size in range(n + 1)]
        for chance in (p, q)
    )
    laws = [np.convolve(ones[j], zeros[n - j]) for j in range(n + 1)]
    counts = np.tile(np.arange(n + 1), 4)
    tails: Array = np.repeat([1e-12, 1e-3, 0.025, 0.49], n + 1)
    found = fewest(n, counts, rows(q, p, len(counts)), tails)
    for count, tail, least in zip(counts, tails, found, strict=True):
        enough = [law[count:].sum() > tail for law in laws[:n]]
        assert least == (enough.index(True) if any(enough) else n)


@pytest.mark.parametrize(("n", "categories"), [(9, 40), (150, 60), (900, 3), (9_000, 40), (20_000, 40)])
def test_every_category_gets_what_it_would_get_alone_at_that_size(n: int, categories: int) -> None:
    support = SubsetSelection(Fraction(1), categories, max(categories // 4, 1)).support
    counts = np.random.default_rng(2).binomial(n, float(support[0]), categories).tolist()
    confidences = (0.95, 1 - 0.05 / categories)
    together = proportions(support, n, counts, confidences)
    for place in (0, categories // 2, categories - 1):
        alike = [counts[place]] * categories  # one count, asked as often: the methods are the same
        for at, confidence in enumerate(confidences):
            alone = proportions(support, n, alike, [confidence])
            for target, ends in together.intervals[at][place].items():
                assert ends == pytest.approx(alone.intervals[0][0][target], rel=1e-12, abs=1e-15)
            assert together.stderr[place] == pytest.approx(alone.stderr[0])
            assert together.mean[place] == alone.mean[0]


def test_a_frequency_is_an_exact_fraction_rounded_once() -> None:
    support = SubsetSelection(Fraction(1), 1024, 275).support
    counts, n = [0, 1, 275, 999, 1000], 1000
    exact = [float((Fraction(k, n) - support[0]) / (support[1] - support[0])) for k in counts]
    assert proportions(support, n, counts, [0.95]).mean == exact


def test_the_standard_error_for_the_population_keeps_its_digits_at_a_large_epsilon() -> None:
    support = SubsetSelection(Fraction(50), 3, 1).support  # 1 - p is 4e-22, which 1 less a float of p is not
    given = proportions(support, 100, [100], [0.95]).stderr[0]["population"]
    p = support[1]
    assert given == pytest.approx(sqrt(p * (1 - p) / 100) / float(p - support[0]), rel=1e-12)
