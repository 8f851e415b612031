"""Intervals that are too wide would cover as well: what each is, made of other means; and hostile input."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from fractions import Fraction
from itertools import product
from math import exp, log, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats
from single_intervals import band, betting_interval, chernoff, ends

from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.bounded_mean import Group, rule
from hush_aggregator.estimate.bounded_mean import estimate as bounded
from hush_aggregator.estimate.diagnostics import OK, OUTLIERS, TOO_LITTLE_NOISE, variance_monitor
from hush_aggregator.estimate.finite_channel import RATES, FiniteChannel, finite
from hush_aggregator.estimate.intervals.chernoff import chernoff_rates
from hush_aggregator.estimate.intervals.student_score import enough
from hush_aggregator.estimate.mechanisms import subset_selection
from hush_aggregator.estimate.numerics.guard import guarded
from hush_aggregator.estimate.units import Units
from hush_aggregator.intake import Block, DecodedBatch, admit
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Multilevel, SubsetSelection
from hush_common.mechanisms.multilevel import best_levels
from hush_common.task import make_task
from hush_common.wire import Refusal

Array = NDArray[np.float64]
Wealth = Callable[[Array, float], float]


def multilevel(epsilon: str) -> Multilevel:
    exact = Fraction(epsilon)
    return Multilevel(exact, 1 << 20, best_levels(exact))


def channel(epsilon: str) -> FiniteChannel:
    return finite(multilevel(epsilon))


def exponent(of: FiniteChannel, rate: float) -> float:
    """G by a fine grid of values."""
    x = np.linspace(0, 1, 4001)
    p = np.array([np.interp(x, of.nodes, column) for column in of.p.T])
    top = (rate * of.a).max()
    return float((np.log(np.exp(rate * of.a - top) @ p) + top - rate * x).max())


@pytest.mark.parametrize("n", [1, 30, 1000])
@pytest.mark.parametrize("epsilon", ["1", "2", "8"])
def test_chernoffs_bound_is_the_least_over_all_rates(epsilon: str, n: int) -> None:
    of = channel(epsilon)
    for side, sign in zip(chernoff(((of, n),), 0.95), (1, -1), strict=True):
        best = optimize.minimize_scalar(
            lambda u, sign=sign: (log(40) / n + exponent(of, sign * np.exp(u))) / np.exp(u),
            bounds=(-9, 9),
            method="bounded",
        )
        assert best.fun * (1 - 1e-5) <= side < best.fun * 1.005


@pytest.mark.parametrize("sampling", [False, True])
@pytest.mark.parametrize("n", [1, 200, 10**6])
def test_a_band_ends_where_an_independent_root_is(n: int, sampling: bool) -> None:
    of = channel("2")
    rates = 4 / of.reach * 2.0 ** (-np.arange(25) / 2)
    assert rates == pytest.approx(of.fastest * RATES)
    for side, sign in zip(band(((of, n),), 0.95, sampling=sampling), (1, -1), strict=True):
        psi = n * (np.array([exponent(of, sign * rate) for rate in rates]) + sampling * rates**2 / 8)

        def excess(d: float, psi: "np.ndarray[tuple[int], np.dtype[np.float64]]" = psi) -> float:
            logs = rates * d - psi
            return float(logs.max() + np.log(np.exp(logs - logs.max()).mean()) - log(40))

        root = optimize.brentq(excess, 0, 1e7, xtol=1e-12, rtol=1e-14)
        assert side == pytest.approx(root / n, rel=1e-6)


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
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_the_reporters_get_the_means_that_bets_on_the_noise_and_chernoffs_together_keep(
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


@pytest.mark.parametrize("values", [(0.0,) * 5, (0.5,) * 5, (0.2,) * 5, (0, 0, 0, 1, 1), (0, 0.25, 0.5, 0.6, 1)])
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


MIDDLING = [
    ("2", 56), ("2", 142), ("3", 14), ("3", 56), ("4", 6), ("4", 22), ("4", 200), ("4", 1000), ("5", 22), ("6", 22),
    ("6", 300), ("8", 142), ("8", 3000),
]  # fmt: skip


@pytest.mark.large
@pytest.mark.parametrize(("epsilon", "n"), MIDDLING)
def test_the_reporters_interval_is_hardly_wider_than_that_of_the_population_and_never_than_two_methods_apart(
    epsilon: str, n: int
) -> None:
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


ALIKE = [
    ("2", 30, 0.95), ("2", 10, 0.95), ("2", 3, 0.5), ("1.2", 30, 0.95), ("1.2", 10, 0.5), ("4", 3, 0.95),
    ("6", 10, 0.95), ("8", 10, 0.95), ("8", 100, 0.95), ("16", 10, 0.5), ("16", 1000, 0.95), ("16", 10_000, 0.999),
]  # fmt: skip


@pytest.mark.parametrize(("epsilon", "n", "confidence"), ALIKE)
def test_the_interval_for_the_reporters_is_not_wider_where_one_method_is_taken_whole(
    epsilon: str, n: int, confidence: float
) -> None:
    """All reports at one level, at the worst one, at both ends, and as the values at each node give on average."""
    of = channel(epsilon)
    assert rule(((of, n),), confidence) in {"betting", "chernoff"}
    rows = [n * np.eye(len(of.used))[place] for place in {0, len(of.used) // 2, len(of.used) - 1}]
    rows += [np.rint(n * law) for law in (of.p[0], of.p[len(of.p) // 2], (of.p[0] + of.p[-1]) / 2)]
    for row in rows:
        row[row.argmax()] += n - row.sum()
        given = bounded([Group(of, tuple(row.astype(int).tolist()))], Units(Fraction(-9), Fraction(9)), confidence)
        width = {target: high - low for target, (low, high) in given.intervals.items()}
        assert width[REPORTERS] <= width[POPULATION]


def test_two_methods_at_half_of_alpha_were_wider_where_all_reports_are_at_one_level() -> None:
    """The twin of the test above: what the reporters had at epsilon 2 for 30 reports of the middle level."""
    of, counts = channel("2"), (0, 30, 0)
    low, high = betting_interval([(of, counts)], 0.975)
    given = bounded([Group(of, counts)], Units(), 0.95)
    assert high - low > 1.1 * (given.intervals[POPULATION][1] - given.intervals[POPULATION][0])
    assert given.intervals[REPORTERS] == given.intervals[POPULATION]


def test_the_switch_to_a_normal_law_knows_the_confidence() -> None:
    of = channel("2")
    methods = [bounded([Group(of, (100, 100, 100))], Units(), one).methods[POPULATION] for one in (0.5, 0.95, 0.999)]
    assert methods == ["student-score", "student-score", "betting"]
    assert [enough(one) for one in (0.5, 0.95)] == pytest.approx([12, 12], rel=1e-4)
    assert enough(0.999) == pytest.approx(12 * (3.29053 / 1.96) ** 6, rel=1e-5)


def test_the_score_interval_of_one_report_more_than_enough_is_capped_for_the_reporters() -> None:
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


# ---- vectors


def test_the_intervals_of_a_vector_hold_jointly_at_the_confidence_they_share() -> None:
    parts = [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xyz"]
    asked = make_task({"id": "v", "epsilon": "1", "domain": {"kind": "vector", "coordinates": parts}})
    given = estimate(asked, Tally(900, (200, 100, 150, 150, 50, 250)), 0.95)
    for fact in given.parts:
        alone = estimate(asked, Tally(900, (200, 100, 150, 150, 50, 250)), 1 - 0.05 / 3).parts
        same = next(one for one in alone if one.name == fact.name)
        assert fact.joint_intervals == {target: pytest.approx(pair) for target, pair in same.intervals.items()}
        assert fact.joint_methods == fact.methods


# ---- honesty


def test_the_monitor_of_a_variance_allows_four_of_its_deviations() -> None:
    n, noise = 500, 2.0
    slack = 4 * sqrt(5 / n)
    cases = {1 - slack * 1.01: TOO_LITTLE_NOISE, 1 - slack * 0.99: OK}
    assert {ratio: variance_monitor(n, ratio * noise, noise, 0.0) for ratio in cases} == cases
    cases = {1 + slack * 0.99: OK, 1 + slack * 1.01: OUTLIERS}
    assert {ratio: variance_monitor(n, ratio * noise, noise, 0.0) for ratio in cases} == cases


def test_categories_under_several_epsilons_are_moved_by_the_farthest_report() -> None:
    weak, strong = (SubsetSelection(Fraction(epsilon), 3, 1) for epsilon in ("0.5", "4"))
    for parts in ([weak, strong], [strong, weak]):
        found = subset_selection.estimate_frequencies([(one, Tally(60, (20, 20, 20))) for one in parts], "abc", 0.95)
        assert found.parts[0].worst_case_bias["1"] == pytest.approx(finite(weak).reach / 120)


def test_bits_of_categories_that_do_not_exist_are_refused_before_they_are_counted() -> None:
    mechanism = SubsetSelection(Fraction(1), 40, 2)
    assert mechanism.admits((0b11, 0))
    assert mechanism.admits((1, 1 << 7))
    assert not mechanism.admits((1, 1 << 8))
    labels = [f"label {k}" for k in range(40)]
    task = make_task({"id": "c", "epsilon": "1", "size": 2, "domain": {"kind": "category", "labels": labels}})
    ids = np.array([b"0" * 16, b"1" * 16], dtype="V16")
    bodies = np.array([[1, 1 << 7], [1, 1 << 8]], dtype=np.int64)
    block = Block(task.id, None, task.report_digest, 0, ids, bodies)
    judged = admit(DecodedBatch([block], Counter()), {task.id: task}, datetime.now(UTC))
    assert judged.refused == {(task.id, Refusal.OUT_OF_RANGE): 1}
    assert [accepted.bodies.tolist() for accepted in judged.accepted] == [[[1, 1 << 7]]]


# ---- hostile input


@pytest.mark.parametrize("confidence", [0.5, 0.95, 1 - 1e-9])
@pytest.mark.parametrize("n", [1, 100, 10**9])
@pytest.mark.parametrize("epsilons", [("0.000001",), ("50",), ("0.000001", "50"), ("1", "8")])
def test_hostile_sizes_and_epsilons_fail_no_interval(epsilons: tuple[str, ...], n: int, confidence: float) -> None:
    domains: list[dict[str, object]] = [
        {"kind": "bit"},
        {"kind": "number", "lower": -8e307, "upper": 8e307},
        {"kind": "category", "labels": [f"label {k}" for k in range(40)]},
    ]
    for domain in domains:
        mechanism = {"mechanism": "multilevel"} if domain["kind"] == "number" else {}
        offers = {"offers": list(epsilons)} if len(epsilons) > 1 else {}
        task = make_task({"id": "t", "epsilon": epsilons[-1], "domain": domain, **mechanism, **offers})
        with guarded():
            given = estimate(task, equal_reports(task.randomizer, n), confidence)
        assert not given.all_failures
        for found in (given.intervals, *(fact.joint_intervals for fact in given.parts)):
            for target, (low, high) in found.items():
                assert low < high or (target == REPORTERS and epsilons == ("50",)), "nobody lies at epsilon 50"


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
