"""Bounded reports: `multilevel`, `table`, mixed epsilons, coordinates of a vector.

Intervals cover by exact sums and are no wider than their methods say; what is published next to them; hostile input.
Coverage by runs, of many cells, is that of `test_coverage`.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from math import exp, factorial, log, prod, sqrt
from typing import Any

import numpy as np
import pytest
from covering.cells import BAR, RUNS, law
from covering.laws import outcomes
from covering.levels import Question
from covering.searched import noisiest
from numpy.typing import NDArray
from scipy import optimize, stats
from single_intervals import (
    FiniteChannel,
    Group,
    Units,
    betting_interval,
    bounded,
    chernoff,
    ends,
    finite,
    is_normal,
    rule,
)

from hush import Task
from hush_aggregator import PartEstimate
from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, POPULATION, REPORTERS, estimate, estimate_tallies
from hush_aggregator.estimate.intervals.chernoff import chernoff_rates
from hush_aggregator.estimate.intervals.student_score import enough
from hush_aggregator.estimate.mechanisms import fold, subset_selection
from hush_aggregator.estimate.numerics.guard import guarded
from hush_aggregator.estimate.tally import Tally
from hush_common.mechanisms import Multilevel, SubsetSelection
from hush_common.mechanisms.multilevel import best_levels
from hush_common.task import make_task

Array = NDArray[np.float64]
Wealth = Callable[[Array, float], float]
Limits = dict[str, tuple[Array, Array]]

NOMINAL = 0.95
ALLOWED = 1e-9

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}


def channel(epsilon: str, levels: int | None = None) -> FiniteChannel:
    exact = Fraction(epsilon)
    return finite(Multilevel(exact, 1 << 20, levels or best_levels(exact)))


COINS = [channel("0.1"), channel("1"), channel("4", 1), channel("8", 1)]
MANY = [channel("2"), channel("4"), channel("8")]

Values = tuple[tuple[float, float], ...]

VALUES: dict[str, Values] = {
    "all at the lower bound": ((0.0, 1.0),),
    "all in the middle": ((0.5, 1.0),),
    "all at the upper bound": ((1.0, 1.0),),
    "half at each bound": ((0.0, 0.5), (1.0, 0.5)),
    "a tenth at the upper bound": ((0.0, 0.9), (1.0, 0.1)),
    "spread": ((0.0, 0.2), (0.2, 0.2), (0.45, 0.2), (0.7, 0.2), (1.0, 0.2)),
}
"""Distributions: (value, probability)."""


def intervals(
    of: FiniteChannel, n: int, target: str, confidence: float = NOMINAL
) -> dict[tuple[int, ...], tuple[float, float]]:
    """The interval for every table of counts of n reports."""
    outputs = len(of.used)
    every = (c for c in product(range(n + 1), repeat=outputs - 1) if sum(c) <= n)
    tables = [(*c, n - sum(c)) for c in every]
    return {counts: bounded([Group(of, counts)], Units(), confidence).intervals[target] for counts in tables}


def chance(counts: tuple[int, ...], probabilities: Array) -> float:
    weights = [float(p) ** c / factorial(c) for c, p in zip(counts, probabilities.tolist(), strict=True)]
    return float(factorial(sum(counts)) * prod(weights))


def coverage(of: FiniteChannel, given: dict[tuple[int, ...], tuple[float, float]], values: Values) -> float:
    """The exact probability that a random sample of the values gives an interval that holds their mean."""
    mixture = np.sum([weight * law(of, value) for value, weight in values], axis=0)
    mean = sum(weight * value for value, weight in values)
    hits = [chance(c, mixture) for c, (low, high) in given.items() if low - ALLOWED <= mean <= high + ALLOWED]
    return sum(hits)


@pytest.mark.parametrize("of", COINS)
def test_two_levels_cover_the_population_whatever_the_values_are(of: FiniteChannel) -> None:
    for n in (1, 2, 5, 30):
        given = intervals(of, n, POPULATION)
        assert all(coverage(of, given, values) >= NOMINAL - ALLOWED for values in VALUES.values())


@pytest.mark.medium
@pytest.mark.parametrize("n", [1, 2, 6])
@pytest.mark.parametrize("of", [channel("2"), channel("4", 3)])
def test_more_levels_cover_the_population_at_small_n(of: FiniteChannel, n: int) -> None:
    given = intervals(of, n, POPULATION)
    assert all(coverage(of, given, values) >= NOMINAL - ALLOWED for values in VALUES.values())


def test_a_t_interval_collapses_where_they_do_not() -> None:
    """The twin: t·s/sqrt(n) of three reports of the lower bound, exactly."""
    of, n, wrong = channel("4", 3), 3, {}
    for counts in intervals(of, n, POPULATION):
        center = np.dot(counts, of.a) / n
        half = stats.t.isf(0.025, n - 1) * sqrt(np.dot(counts, (of.a - center) ** 2) / (n - 1) / n)
        wrong[counts] = center - half, center + half
    assert coverage(of, wrong, VALUES["all at the lower bound"]) < 0.5


def poisson_binomial(chances: Array) -> Array:
    result = np.ones(1)
    for p in chances.tolist():
        result = np.convolve(result, [1 - p, p])
    return result


@pytest.mark.parametrize("n", [1, 2, 20])
def test_two_levels_cover_the_reporters_even_where_they_are_unequal(n: int) -> None:
    rng = np.random.default_rng(n)
    samples = [np.zeros(n), np.ones(n), np.r_[1.0, np.zeros(n - 1)], rng.random(n), rng.integers(0, 2, n).astype(float)]
    of_coins = [(of, intervals(of, n, REPORTERS)) for of in COINS]
    for (of, given), values in product(of_coins, samples):
        ones = poisson_binomial(np.array([law(of, x)[1] for x in values.tolist()]))
        covered = [given[n - k, k][0] - ALLOWED <= values.mean() <= given[n - k, k][1] + ALLOWED for k in range(n + 1)]
        assert float(ones @ np.array(covered)) >= NOMINAL - ALLOWED


@pytest.mark.parametrize("of", [*COINS, *MANY])
def test_equal_reports_give_bars_of_some_length(of: FiniteChannel) -> None:
    for n, place in product((1, 2, 30, 100_000), range(len(of.used))):
        counts = [0] * len(of.used)
        counts[place] = n
        given = bounded([Group(of, tuple(counts))], Units(Fraction(-5), Fraction(5)), NOMINAL)
        assert all(error > 0 for error in given.stderr.values())
        assert all(-5 <= low < high <= 5 for low, high in given.intervals.values())


def test_a_table_is_estimated_by_its_positions() -> None:
    document = {"positions": [-1, 2], "unit": 1, "weights": [[2, 1], [1, 2]]}
    asked = make_task({"id": "t", "epsilon": "1", "mechanism": "table", "table": document, "domain": NUMBER})
    given = estimate(asked, Tally(5, (2, 3)), NOMINAL)
    assert given.mean == pytest.approx(4 / 5)
    assert given.methods == {
        REPORTERS: "clopper-pearson-hoeffding",
        POPULATION: "clopper-pearson",
        ANYTIME: "reporters-chernoff-mixture",
        ANYTIME_POPULATION: "population-chernoff-hoeffding-mixture",
    }
    assert given.single.worst_case_bias == pytest.approx({"1": 2 / 5, "1%": 0.02, "5%": 0.1})


# ---- honesty


def test_liars_move_a_mean_by_at_most_what_is_said() -> None:
    asked = make_task({"id": "t", "epsilon": "1", "mechanism": "multilevel", "domain": NUMBER})
    assert isinstance(asked.randomizer, Multilevel)
    given = estimate(asked, Tally(1000, (1000, 0)), NOMINAL)
    r = (exp(1) - 1) / (exp(1) + 1)
    assert given.single.worst_case_bias == pytest.approx(
        {k: f / 2 * (1 / r + 1) for k, f in (("1", 1e-3), ("1%", 0.01), ("5%", 0.05))}
    )
    moved = estimate(asked, Tally(1000, (999, 1)), NOMINAL)
    assert (moved.mean or 0) - (given.mean or 0) <= given.single.worst_case_bias["1"] * 2
    bit = make_task({"id": "b", "epsilon": "1", "domain": {"kind": "bit"}})
    assert estimate(bit, Tally(100, (40,)), NOMINAL).single.worst_case_bias["1%"] == pytest.approx(
        0.01 * exp(1) / (exp(1) - 1)
    )


def test_the_monitor_finds_noise_that_is_missing() -> None:
    bit = make_task({"id": "b", "epsilon": "1", "domain": {"kind": "bit"}})
    assert estimate(bit, Tally(99, (0,)), NOMINAL).monitor is None
    assert [estimate(bit, Tally(1000, (k,)), NOMINAL).monitor for k in (0, 300, 700, 1000)] == [
        "too_little_noise", "ok", "ok", "too_little_noise",
    ]  # fmt: skip
    number = make_task({"id": "n", "epsilon": "1", "domain": NUMBER})
    rng, m = np.random.default_rng(1), 1 << 20
    for scale, verdict in ((0.0, "too_little_noise"), (m, "ok"), (3 * m, "outliers")):
        bodies = np.rint(m / 2 + rng.laplace(0, scale, (2000, 1))).astype(np.int64)
        assert estimate(number, fold(number.randomizer, bodies), NOMINAL).monitor == verdict


def test_the_winsorised_mean_moves_few_honest_reports_and_stops_one_liar() -> None:
    number = make_task({"id": "n", "epsilon": "1", "domain": NUMBER})
    m = 1 << 20
    bodies = np.rint(m / 2 + np.random.default_rng(2).laplace(0, m, (1000, 1))).astype(np.int64)
    honest = estimate(number, fold(number.randomizer, bodies), NOMINAL).winsorised
    bodies[0] = 40 * m
    lied = estimate(number, fold(number.randomizer, bodies), NOMINAL)
    assert honest is not None
    assert lied.winsorised is not None
    assert honest.threshold == pytest.approx(7.0)
    assert honest.bias_bound == pytest.approx(exp(-7) / 2, rel=1e-5)
    assert (honest.touched, lied.winsorised.touched) == (1, 2)
    assert abs((lied.mean or 0) - honest.mean) > 3 * abs(lied.winsorised.mean - honest.mean)


@pytest.mark.parametrize("kind", ["bit", "number"])
def test_silence_widens_the_bounds_to_what_it_may_hide(kind: str) -> None:
    fields: dict[str, Any] = {"id": "t", "epsilon": "1", "domain": NUMBER if kind == "number" else {"kind": "bit"}}
    asked, known = make_task(fields), make_task({**fields, "enrolled": 400})
    bodies = np.tile([0, 1], 50).reshape(-1, 1).astype(np.int64)
    tally = fold(asked.randomizer, bodies)
    low, high = estimate(asked, tally, NOMINAL).intervals[REPORTERS]
    assert estimate(asked, tally, NOMINAL).single.manski is None
    assert estimate(known, tally, NOMINAL).single.manski == pytest.approx((low / 4, high / 4 + 3 / 4))


# ---- vectors


def test_a_coordinate_is_estimated_from_the_reports_that_drew_it() -> None:
    parts = [{"name": "x", "lower": 0.0, "upper": 10.0, "unit": "m"}, {"name": "y", "lower": -1.0, "upper": 1.0}]
    asked = make_task({"id": "v", "epsilon": "1", "domain": {"kind": "vector", "coordinates": parts}})
    given = estimate(asked, Tally(5, (2, 3, 0, 0)), NOMINAL)
    alone = bounded([Group(channel("1"), (2, 3))], Units(Fraction(0), Fraction(10)), NOMINAL)
    x, y = given.parts
    assert (x.name, x.unit, x.n) == ("x", "m", 5)
    assert x.mean == pytest.approx(alone.mean)
    assert x.intervals[POPULATION] == pytest.approx(alone.intervals[POPULATION], abs=1e-4)
    assert y == PartEstimate(name="y")


# ---- bets and scores


def test_betting_adapts_to_values_that_hardly_differ() -> None:
    of, n = channel("4"), 500
    for node in range(len(of.nodes)):
        counts = np.rint(n * of.p[node]).astype(int)
        spread = sqrt(counts @ (of.a - counts @ of.a / n) ** 2 / (n - 1) / n)
        low, high = betting_interval([(of, tuple(counts.tolist()))], NOMINAL)
        assert 1 < (high - low) / (2 * 1.96 * spread) < 2
        by_the_largest_variance = 2 * 1.96 * sqrt(of.second_moment / n)
        assert high - low < 0.8 * by_the_largest_variance


def test_the_switch_looks_at_public_parameters_alone() -> None:
    of = channel("4")
    many = int(12 * of.reach**2 / of.variances[0]) + 1
    for counts in ((1, 0, 0, 0, 0), (0, 0, 1, 0, 0)):
        for n, method in ((many - 2, "betting"), (many, "student-score")):
            given = bounded([Group(of, tuple(n * c for c in counts))], Units(), NOMINAL)
            assert given.methods[POPULATION] == method


def exponent(of: FiniteChannel, rate: float) -> float:
    """G by a fine grid of values."""
    x = np.linspace(0, 1, 4001)
    p = np.array([np.interp(x, of.nodes, column) for column in of.p.T])
    top = (rate * of.a).max()
    return float((np.log(np.exp(rate * of.a - top) @ p) + top - rate * x).max())


@pytest.mark.parametrize("n", [1, 1000])
@pytest.mark.parametrize("epsilon", ["2", "8"])
def test_chernoffs_bound_is_the_least_over_all_rates(epsilon: str, n: int) -> None:
    of = channel(epsilon)
    for side, sign in zip(chernoff(((of, n),), 0.95), (1, -1), strict=True):
        best = optimize.minimize_scalar(
            lambda u, sign=sign: (log(40) / n + exponent(of, sign * np.exp(u))) / np.exp(u),
            bounds=(-9, 9),
            method="bounded",
        )
        assert best.fun * (1 - 1e-5) <= side < best.fun * 1.005


def averaged(of: FiniteChannel, n: int, confidence: float, side: int, *, share: float = 0.5) -> Wealth:
    """The logarithm of what three bets on the noise and Chernoff's pay together, for counts at a candidate mean."""
    variances = np.geomspace(*of.variances, 3)
    stakes = np.sqrt(2 * (log(2 / (1 - confidence)) + log(6)) / (n * variances))
    rate = chernoff_rates([(((of, n),), 1 - (1 - confidence) / 2)])[0][2 if side > 0 else 3]
    noise = n * exponent(of, side * rate)

    def wealth(counts: Array, mu: float) -> float:
        gains = side * (of.a - mu)
        bets = np.minimum(stakes, 0.9 / -gains.min())
        logs = np.log1p(np.outer(bets, gains)) @ counts + log(share / 3)
        return float(np.logaddexp.reduce([*logs, log(0.5) + rate * (counts @ gains) - noise]))

    return wealth


@pytest.mark.parametrize(
    ("epsilon", "n", "confidence"), [("2", 100, 0.95), ("4", 6, 0.95), ("4", 30, 0.5), ("8", 900, 0.999)]
)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_reporters_get_the_means_that_both_kinds_of_bets_keep(
    epsilon: str, n: int, confidence: float, share: float
) -> None:
    """With `share` of the people at either bound, and the others in the middle."""
    of = channel(epsilon)
    counts = np.rint(n * (share * (of.p[0] + of.p[-1]) + (1 - 2 * share) * of.p[len(of.nodes) // 2]))
    counts[counts.argmax()] += n - counts.sum()
    given = ends([Group(of, tuple(counts.astype(int).tolist()))], confidence, REPORTERS)
    assert rule(((of, n),), confidence) == "chernoff-betting"
    center = float(counts @ of.a / n)
    for side, end, least in ((1, given[0], of.a[0]), (-1, given[1], of.a[-1])):
        wealth = averaged(of, n, confidence, side)
        root = optimize.brentq(
            lambda mu, wealth=wealth: wealth(counts, mu) - log(2 / (1 - confidence)), least + side * 1e-7, center
        )
        assert end == pytest.approx(root, abs=1e-6)


@pytest.mark.parametrize("values", [(0.0,) * 5, (0.2,) * 5, (0, 0.25, 0.5, 0.6, 1)])
@pytest.mark.parametrize("side", [1, -1])
def test_bets_on_the_noise_and_chernoffs_pay_one_on_average_at_most(values: tuple[float, ...], side: int) -> None:
    """Exactly, over all reports of five people; were the bets not halved, they would pay more."""
    of = channel("2")
    laws = np.array([[np.interp(x, of.nodes, column) for column in of.p.T] for x in values])
    paid = {}
    for share in (0.5, 1.0):
        wealth = averaged(of, 5, 0.95, side, share=share)
        paid[share] = sum(
            laws[range(5), outputs].prod()
            * exp(wealth(np.bincount(outputs, minlength=3).astype(float), float(np.mean(values))))
            for outputs in product(range(3), repeat=5)
        )
    assert paid[0.5] <= 1 + 1e-12
    assert bool(paid[1.0] > 1) is (len(set(values)) == 1)


def likely(of: FiniteChannel, n: int) -> Iterator[tuple[int, ...]]:
    """Tallies of people at one node, at two, at both bounds, and spread; drawn, and as they are on average."""
    rng, middle = np.random.default_rng(n), len(of.p) // 2
    laws = [of.p[0], of.p[middle], (of.p[middle] + of.p[middle - 1]) / 2, (of.p[0] + of.p[-1]) / 2, of.p.mean(axis=0)]
    laws.append(0.95 * of.p[0] + 0.05 * of.p[-1])
    for one in laws:
        yield from map(tuple, rng.multinomial(n, one / one.sum(), size=20).tolist())


MIDDLING = [("2", 56), ("4", 200), ("6", 22), ("8", 142)]


@pytest.mark.medium
@pytest.mark.parametrize(("epsilon", "n"), MIDDLING)
def test_the_reporters_interval_is_hardly_wider_than_the_population_one(epsilon: str, n: int) -> None:
    """Betting and Chernoff's bound, each at half of alpha, were up to 1.18 times as wide as that of the population."""
    of, sure = channel(epsilon), 0.975
    above, below = chernoff(((of, n),), sure)
    assert rule(((of, n),), 0.95) == "chernoff-betting"
    widest = 0.0
    for counts in likely(of, n):
        sizes, center = [Group(of, counts)], float(np.dot(counts, of.a) / n)
        width = {target: np.diff(ends(sizes, 0.95, target))[0] for target in (REPORTERS, POPULATION)}
        low, high = betting_interval([(of, counts)], sure)
        assert width[REPORTERS] <= 1.0005 * (min(high, center + below) - max(low, center - above))
        widest = max(widest, width[REPORTERS] / width[POPULATION])
    assert widest <= (1 if float(epsilon) >= 6 else 1.1)


def test_the_switch_to_a_normal_law_knows_the_confidence() -> None:
    of = channel("2")
    methods = [bounded([Group(of, (100, 100, 100))], Units(), one).methods[POPULATION] for one in (0.5, 0.95, 0.999)]
    assert methods == ["student-score", "student-score", "betting"]
    assert [enough(one) for one in (0.5, 0.95)] == pytest.approx([12, 12], rel=1e-4)
    assert enough(0.999) == pytest.approx(12 * (3.29053 / 1.96) ** 6, rel=1e-5)


def test_the_score_interval_is_capped_for_the_reporters() -> None:
    of, n = channel("2"), 4000
    half = tuple(np.rint(n * (of.p[0] + of.p[-1]) / 2).astype(int).tolist())
    given = bounded([Group(of, half)], Units(), 0.95)
    assert given.methods == {
        REPORTERS: "student-score-capped",
        POPULATION: "student-score",
        ANYTIME: "reporters-chernoff-mixture",
        ANYTIME_POPULATION: "population-chernoff-hoeffding-mixture",
    }
    for target, variance in (
        (REPORTERS, of.variances[1]),
        (POPULATION, float(np.array(half) @ (of.a - 0.5) ** 2) / (n - 1)),
    ):
        low, high = given.intervals[target]
        smooth = stats.t.ppf(0.975, n - 1) * sqrt(variance / n)
        assert smooth <= (high - low) / 2 <= smooth + of.step / n  # its ends are moved to points of the lattice


def test_two_outputs_of_many_nodes_are_mapped_by_the_last_one() -> None:
    third = Fraction(1, 3)
    rows = ((Fraction(3, 4), Fraction(1, 4)), (Fraction(1, 2), Fraction(1, 2)), (Fraction(1, 4), Fraction(3, 4)))
    of = FiniteChannel((Fraction(-1, 2), Fraction(3, 2)), rows)
    low, high = ends([Group(of, (200, 100))], 0.95, POPULATION)
    exact = stats.binomtest(100, 300).proportion_ci(0.95, "exact")
    assert (low, high) == pytest.approx((2 * exact.low - 0.5, 2 * exact.high - 0.5), abs=1e-9)
    assert low < 2 * third - Fraction(1, 2) < high


def test_categories_of_several_epsilons_are_moved_by_the_farthest_report() -> None:
    weak, strong = (SubsetSelection(Fraction(epsilon), 3, 1) for epsilon in ("0.5", "4"))
    for parts in ([weak, strong], [strong, weak]):
        found = subset_selection.estimate_frequencies([(one, Tally(60, (20, 20, 20))) for one in parts], "abc", 0.95)
        assert found.parts[0].worst_case_bias["1"] == pytest.approx(finite(weak).reach / 120)


# ---- hostile input


@pytest.mark.parametrize("epsilons", [("0.000001",), ("0.000001", "50"), ("1", "8")])
def test_hostile_sizes_and_epsilons_fail_no_interval(epsilons: tuple[str, ...]) -> None:
    domains: list[dict[str, object]] = [
        {"kind": "bit"},
        {"kind": "number", "lower": -8e307, "upper": 8e307},
        {"kind": "category", "labels": [f"label {k}" for k in range(40)]},
    ]
    for domain, n, confidence in product(domains, (1, 10**9), (0.5, 1 - 1e-9)):
        mechanism = {"mechanism": "multilevel"} if domain["kind"] == "number" else {}
        offers = {"offers": list(epsilons)} if len(epsilons) > 1 else {}
        task = make_task({"id": "t", "epsilon": epsilons[-1], "domain": domain, **mechanism, **offers})
        with guarded():
            given = estimate(task, equal_reports(task.randomizer, n), confidence)
        assert not given.all_failures
        for found in (given.intervals, *(fact.joint_intervals for fact in given.parts)):
            for target, (low, high) in found.items():
                assert low < high, target


def equal_reports(randomizer: object, n: int) -> Tally:
    """Everybody says the same."""
    parts = getattr(randomizer, "parts", None)
    if parts is not None:
        tallies = [equal_reports(part, n) for part in parts]
        return Tally(n * len(parts), tuple(number for one in tallies for number in (one.n, *one.moments)))
    if isinstance(randomizer, Multilevel):
        return Tally(n, (n, *[0] * randomizer.levels))
    if isinstance(randomizer, SubsetSelection):
        return Tally(n, (*[n] * randomizer.size, *[0] * (randomizer.categories - randomizer.size)))
    return Tally(n, (0,))


# ---- values for which an earlier rule covered less


def number(mechanism: str, epsilon: str) -> Task:
    return make_task({"id": "t", "epsilon": epsilon, "domain": NUMBER, "mechanism": mechanism})


def first_normal(of: FiniteChannel, confidence: float) -> int:
    return next(n for n in range(2, 10**6) if is_normal(((of, n),), confidence))


def standard_errors(coverage: float, confidence: float) -> float:
    return (coverage - confidence) / sqrt(confidence * (1 - confidence) / RUNS)


def student_capped(of: FiniteChannel, counts: Array, confidence: float) -> tuple[Array, Array]:
    """What is wrong: a sum that is taken for smooth, and the smaller of the sample variance and the largest noise."""
    n = counts[0].sum()
    center = counts @ of.a / n
    variance = np.clip((counts @ of.a**2 - n * center**2) / (n - 1), *of.variances)
    half = stats.t.isf((1 - confidence) / 2, n - 1) * np.sqrt(variance / n)
    return center - half, center + half


def least_coverage(ends: Callable[[Array], Limits], of: FiniteChannel, n: int) -> dict[str, float]:
    """Of each interval, where all devices hold one value: exactly, at the worst of some values near the noisiest."""
    counts = outcomes(n, len(of.used))
    found: dict[str, float] = {}
    intervals = ends(counts)
    for x in np.clip(noisiest(of) + np.linspace(-0.1, 0.1, 21), 0, 1):
        weights = stats.multinomial.pmf(counts, n, law(of, x) / law(of, x).sum())
        for name, (low, high) in intervals.items():
            covered = float(weights[(low - ALLOWED <= x) & (x <= high + ALLOWED)].sum())
            found[name] = min(found.get(name, 1.0), covered)
    return found


@pytest.mark.medium
@pytest.mark.parametrize(("epsilon", "confidence", "more"), [("1.3", 0.5, 3), ("1.24", 0.8, 1)])
def test_values_of_the_largest_noise_are_covered_exactly(epsilon: str, confidence: float, more: int) -> None:
    task = number("multilevel", epsilon)
    of = finite(task.randomizer)
    n = first_normal(of, confidence) + more

    def intervals(counts: Array) -> Limits:
        tallies = [Tally(n, tuple(row)) for row in counts.astype(int).tolist()]
        given = [one.parts[0].intervals for one in estimate_tallies(task, tallies, confidence)]
        shipped = {
            target: (np.array([one[target][0] for one in given]), np.array([one[target][1] for one in given]))
            for target in (REPORTERS, POPULATION)
        }
        return shipped | {"wrong": student_capped(of, counts, confidence)}

    found = least_coverage(intervals, of, n)
    assert standard_errors(found["wrong"], confidence) < BAR
    for target in (REPORTERS, POPULATION):
        assert found[target] >= confidence, target


def held(task: Task, counts: Array, confidence: float, target: str, truth: float) -> float:
    """By the rule of the product, and checked against what it publishes for the runs at the edge."""
    method = estimate(task, Tally(int(counts[0].sum()), _every(task, counts[0])), confidence).methods[target]
    question = Question(task, int(counts[0].sum()), confidence, target=target, method=method)
    return float(question.holds(counts, truth).mean())


def _every(task: Task, row: Array) -> tuple[int, ...]:
    of = finite(task.randomizer)
    counts = [0] * len(of.positions)
    for y, count in zip(of.used, row.astype(int).tolist(), strict=True):
        counts[y] = count
    return tuple(counts)


def test_a_table_of_two_clusters_is_corrected_for_their_distance() -> None:
    task, confidence, n, x = number("table", "0.34"), 0.5, 26, 0.5
    of = finite(task.randomizer)
    assert of.near_steps[0] > 20 * of.step
    counts = np.random.default_rng(1).multinomial(n, law(of, x) / law(of, x).sum(), 2 * RUNS).astype(float)
    low, high = student_capped(of, counts, confidence)
    assert standard_errors(float(((low <= x) & (x <= high)).mean()), confidence) < BAR
    assert held(task, counts, confidence, REPORTERS, x) >= confidence


@pytest.mark.medium
def test_skew_reports_of_a_few_people_at_one_bound_are_covered() -> None:
    task, confidence, n, few = number("table", "6.9"), 0.95, 3700, 0.0056
    of = finite(task.randomizer)
    p = (1 - few) * law(of, 0.0) + few * law(of, 1.0)
    counts = np.random.default_rng(2).multinomial(n, p / p.sum(), 4 * RUNS).astype(float)
    center = counts @ of.a / n
    half = stats.t.isf(0.025, n - 1) * np.sqrt((counts @ of.a**2 - n * center**2) / (n - 1) / n)
    assert standard_errors(float((np.abs(center - few) <= half).mean()), confidence) < -3
    assert standard_errors(held(task, counts, confidence, POPULATION, few), confidence) > -2
