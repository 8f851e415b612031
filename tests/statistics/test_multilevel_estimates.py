"""Error bars of bounded reports: `multilevel`, `table`, mixed epsilons, coordinates of a vector."""

from fractions import Fraction
from itertools import product
from math import exp, factorial, prod, sqrt
from typing import Any

import numpy as np
import pytest
from covering.cells import law
from numpy.typing import NDArray
from single_intervals import chernoff, ends

from hush import Task
from hush_aggregator import PartEstimate
from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.bounded_mean import Batches, Group, is_normal, rule
from hush_aggregator.estimate.bounded_mean import estimate as bounded
from hush_aggregator.estimate.finite_channel import FiniteChannel, finite
from hush_aggregator.estimate.intervals.betting import betting_limits
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.numerics.laplace_sums import mixed_laplace_quantile
from hush_aggregator.estimate.units import Units
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Multilevel, Offers, RandomizedResponse
from hush_common.mechanisms.multilevel import best_levels
from hush_common.rng import SystemRng
from hush_common.task import make_task

Array = NDArray[np.float64]

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


@pytest.mark.parametrize("n", [1, 2, 5, 30, 100])
@pytest.mark.parametrize("of", COINS)
def test_two_levels_cover_the_population_whatever_the_values_are(of: FiniteChannel, n: int) -> None:
    given = intervals(of, n, POPULATION)
    assert all(coverage(of, given, values) >= NOMINAL - ALLOWED for values in VALUES.values())


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("of", [channel("2"), channel("4", 3)])
def test_more_levels_cover_the_population_at_small_n(of: FiniteChannel, n: int) -> None:
    given = intervals(of, n, POPULATION)
    assert all(coverage(of, given, values) >= NOMINAL - ALLOWED for values in VALUES.values())


def poisson_binomial(chances: Array) -> Array:
    result = np.ones(1)
    for p in chances.tolist():
        result = np.convolve(result, [1 - p, p])
    return result


@pytest.mark.parametrize("n", [1, 2, 5, 30])
@pytest.mark.parametrize("of", COINS)
def test_two_levels_cover_the_reporters_even_where_they_are_unequal(of: FiniteChannel, n: int) -> None:
    given = intervals(of, n, REPORTERS)
    rng = np.random.default_rng(n)
    samples = [np.zeros(n), np.ones(n), np.r_[1.0, np.zeros(n - 1)], rng.random(n), rng.integers(0, 2, n).astype(float)]
    for values in samples:
        ones = poisson_binomial(np.array([law(of, x)[1] for x in values.tolist()]))
        covered = [given[n - k, k][0] - ALLOWED <= values.mean() <= given[n - k, k][1] + ALLOWED for k in range(n + 1)]
        assert float(ones @ np.array(covered)) >= NOMINAL - ALLOWED


def draw(of: FiniteChannel, values: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """Outputs for values of any shape: round at random to a node, then draw from its row."""
    cells = len(of.nodes) - 1
    node = np.floor(values * cells)
    node = (node + (rng.random(values.shape) < values * cells - node)).astype(np.int64)
    cumulative = np.cumsum(of.p, axis=1)
    return np.asarray((rng.random(values.shape)[..., None] > cumulative[node][..., :-1]).sum(axis=-1))


def betting(of: FiniteChannel, counts: NDArray[np.int64], confidence: float) -> tuple[Array, Array]:
    low, high = np.array(betting_limits([(((of, tuple(row)),), confidence) for row in counts.tolist()])).T
    return low, high


def all_ends(of: FiniteChannel, counts: NDArray[np.int64], target: str) -> tuple[Array, Array]:
    """`ends` of every sample; where the rule takes betting, all at once (one of them as it is, to hold them equal)."""
    first = ends([Group(of, tuple(counts[0].tolist()))], NOMINAL, target)
    n, center = int(counts[0].sum()), counts @ of.a / counts[0].sum()
    if is_normal(((of, n),), NOMINAL):
        low, high = np.array([ends([Group(of, tuple(row))], NOMINAL, target) for row in counts.tolist()]).T
    elif target == POPULATION or (which := rule(((of, n),), NOMINAL)) == "betting":
        low, high = betting(of, counts, NOMINAL)
    elif which == "chernoff":
        above, below = chernoff(((of, n),), NOMINAL)
        low, high = center - above, center + below
    else:
        asked, batches = [((of, tuple(row)),) for row in counts.tolist()], Batches()
        answers = [batches.chernoff_betting.ask((one, NOMINAL)) for one in asked]
        low, high = np.array([answer() for answer in answers]).T
    assert (low[0], high[0]) == pytest.approx(first, abs=1e-9)
    return low, high


def simulated(of: FiniteChannel, values: Values, n: int, runs: int = 2000) -> tuple[float, float]:
    """Coverage of the reporters' and the population's mean in fixed-seed runs."""
    rng = np.random.default_rng([n, len(of.used)])
    points, weights = np.array(values).T
    x = rng.choice(points, p=weights, size=(runs, n))
    outputs = draw(of, x, rng)
    counts = np.array([np.bincount(row, minlength=len(of.used)) for row in outputs])
    each, which = np.unique(counts, axis=0, return_inverse=True)
    hits = []
    for target, truth in ((REPORTERS, x.mean(axis=1)), (POPULATION, float(points @ weights))):
        low, high = all_ends(of, each, target)
        low, high = low[which.ravel()], high[which.ravel()]
        hits.append(float(((low - ALLOWED <= truth) & (truth <= high + ALLOWED)).mean()))
    return hits[0], hits[1]


@pytest.mark.large
@pytest.mark.parametrize("n", [3, 30, 300])
@pytest.mark.parametrize("of", MANY)
def test_more_levels_cover_both_targets_at_any_n(of: FiniteChannel, n: int) -> None:
    slack = 4 * sqrt(NOMINAL * (1 - NOMINAL) / 2000)
    for values in VALUES.values():
        assert min(simulated(of, values, n)) > 0.945 - slack


@pytest.mark.medium
def test_a_t_interval_collapses_where_they_do_not() -> None:
    of = channel("4")
    values = np.zeros((2000, 3))
    outputs = draw(of, values, np.random.default_rng(3))
    a = of.a[outputs]
    half = 4.303 * a.std(axis=1, ddof=1) / sqrt(3)
    assert (abs(a.mean(axis=1)) <= half).mean() < 0.5
    assert simulated(of, VALUES["all at the lower bound"], 3)[1] >= NOMINAL


@pytest.mark.parametrize("of", [*COINS, *MANY])
@pytest.mark.parametrize("n", [1, 2, 30, 100, 100_000])
def test_equal_reports_give_bars_of_some_length(of: FiniteChannel, n: int) -> None:
    for place in range(len(of.used)):
        counts = [0] * len(of.used)
        counts[place] = n
        given = bounded([Group(of, tuple(counts))], Units(Fraction(-5), Fraction(5)), NOMINAL)
        assert all(error > 0 for error in given.stderr.values())
        assert all(-5 <= low < high <= 5 for low, high in given.intervals.values())


@pytest.mark.parametrize("of", [*COINS, *MANY])
def test_exponents_and_variances_are_those_of_a_fine_grid(of: FiniteChannel) -> None:
    x = np.linspace(0, 1, 20_001)
    p = np.array([np.interp(x, of.nodes, of.p[:, y]) for y in range(of.p.shape[1])])
    variance = (of.a**2) @ p - x**2
    assert of.variances == pytest.approx((variance.min(), variance.max()), rel=1e-6)
    for rate in (-3.0, -0.1, 0.01, 0.7, 5.0):
        expected = (np.log(np.exp(rate * of.a) @ p) - rate * x).max()
        assert float(of.noise_exponent(np.array([rate]))[0]) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_the_mean_is_unbiased_at_every_index(levels: int) -> None:
    mechanism = Multilevel(Fraction(2), 10, levels)
    for index in range(11):
        mean = sum(
            Fraction(mechanism.probability(body, index)) * mechanism.unit_value(Fraction(body[0]))
            for body in mechanism.outputs()
        )
        assert float(mean) == pytest.approx(index / 10, abs=1e-12)


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


# ---- several epsilons


def offers(mechanism: str, domain: dict[str, object] = NUMBER, epsilons: tuple[str, str] = ("0.5", "2")) -> Task:
    return make_task(
        {"id": "t", "epsilon": epsilons[1], "offers": list(epsilons), "mechanism": mechanism, "domain": domain}
    )


@pytest.mark.medium
def test_pooled_laplace_covers_both_targets_and_weighs_people_alike() -> None:
    asked = offers("laplace")
    assert isinstance(asked.randomizer, Offers)
    rng, runs, m = np.random.default_rng(9), 1500, 1 << 20
    exact = mixed_laplace_quantile(((1 / 0.5 / 12, 9), (1 / 2 / 12, 3)), NOMINAL)
    hits = np.zeros(3)
    for _ in range(runs):
        index = rng.integers(0, 2, 12) * m
        scale = np.where(np.arange(12) < 9, m / 0.5, m / 2)
        bodies = np.stack([np.arange(12) >= 9, index + np.rint(rng.laplace(0, scale))], axis=1).astype(np.int64)
        given = estimate(asked, fold(asked.randomizer, bodies), NOMINAL)
        hits[0] += abs((given.mean or 0) - index.mean() / m) <= exact  # at a bound the interval keeps its inner arm
        low, high = given.intervals[POPULATION]
        hits[1] += low <= 0.5 <= high
        half = 1.96 * sqrt(2 * (9 * 0.5**2) / 144)  # planted wrong: the scale of the dearest offer for all
        hits[2] += abs((given.mean or 0) - index.mean() / m) <= half
    slack = 4 * sqrt(NOMINAL * (1 - NOMINAL) / runs)
    assert given.methods[REPORTERS] == "laplace-mixed-exact"
    assert given.mean == pytest.approx(bodies[:, 1].mean() / m)
    assert abs(hits[0] / runs - NOMINAL) < slack
    assert hits[1] / runs > 0.945 - slack
    assert hits[2] / runs < 0.6
    assert given.pooled is not None
    assert given.pooled.weights["2"] > 0.5


@pytest.mark.large
@pytest.mark.parametrize("mechanism", ["multilevel", "randomized_response"])
def test_pooled_bounded_reports_cover_both_targets(mechanism: str) -> None:
    asked = offers(mechanism, NUMBER if mechanism == "multilevel" else {"kind": "bit"})
    assert isinstance(asked.randomizer, Offers)
    channels = [finite(part) for part in asked.randomizer.parts]
    rng, runs = np.random.default_rng(10), 500
    for n in (4, 200):
        hits = np.zeros(2)
        for _ in range(runs):
            x = (rng.random(n) < 0.1).astype(float)
            chosen = np.arange(n) % 2
            groups = []
            for offer, of in enumerate(channels):
                outputs = draw(of, x[chosen == offer], rng)
                groups.append(Group(of, tuple(np.bincount(outputs, minlength=len(of.used)).tolist())))
            for place, (target, truth) in enumerate(((REPORTERS, x.mean()), (POPULATION, 0.1))):
                low, high = ends(groups, NOMINAL, target)
                hits[place] += low - ALLOWED <= truth <= high + ALLOWED
        assert hits.min() / runs > 0.945 - 4 * sqrt(0.0475 / runs)


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
    assert isinstance(bit.randomizer, RandomizedResponse)
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


@pytest.mark.large
def test_coordinates_of_few_devices_are_covered_for_those_who_reported() -> None:
    of, rng, runs, n = channel("1"), np.random.default_rng(11), 2000, 12
    x = np.array([1.0] * 2 + [0.0] * 10)
    covered = 0
    for _ in range(runs):
        drawn = rng.random(n) < 0.5
        if not drawn.any():
            covered += 1
            continue
        counts = tuple(np.bincount(draw(of, x[drawn], rng), minlength=2).tolist())
        low, high = bounded([Group(of, counts)], Units(), NOMINAL, sampled=True).intervals[REPORTERS]
        covered += bool(low <= x.mean() <= high)
    assert covered / runs > NOMINAL - 4 * sqrt(0.0475 / runs)


@pytest.mark.medium
def test_many_reports_cover_both_targets_by_the_score_interval() -> None:
    of = channel("2")
    assert bounded([Group(of, (200, 200, 200))], Units(), NOMINAL).methods[POPULATION] == "student-score"
    for name in ("all at the lower bound", "half at each bound", "a tenth at the upper bound"):
        assert min(simulated(of, VALUES[name], 600)) > 0.945 - 4 * sqrt(0.0475 / 2000)


# ---- bad input


EXTREME: dict[str, dict[str, object]] = {
    "laplace": {"domain": NUMBER},
    "multilevel": {"domain": NUMBER, "mechanism": "multilevel"},
    "bit": {"domain": {"kind": "bit"}},
    "category": {"domain": {"kind": "category", "labels": ["a", "b", "c"]}},
    "vector": {"domain": {"kind": "vector", "coordinates": [{"name": "x", "lower": 0.0, "upper": 1.0}]}},
}


@pytest.mark.medium
@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("epsilons", [["0.000001"], ["50"], ["0.000001", "50"]])
@pytest.mark.parametrize("confidence", [1e-300, 0.95, 1 - 2**-53])
def test_the_ends_of_epsilon_and_confidence_give_finite_bars_in_order(
    name: str, epsilons: list[str], confidence: float
) -> None:
    fields: dict[str, object] = {"id": "t", "epsilon": epsilons[-1], **EXTREME[name]}
    asked = make_task(fields if len(epsilons) == 1 else {**fields, "offers": epsilons})
    value = {"bit": True, "category": "b", "vector": [0.3]}.get(name, 0.3)
    index, rng = asked.domain.index(value), SystemRng()
    for n in (1, 2, 300):
        bodies = [asked.perturb(index, rng, k % len(epsilons)) for k in range(n)]
        given = estimate(asked, fold(asked.randomizer, np.array(bodies, dtype=np.int64)), confidence)
        results = given.parts or given.parts or (given,)
        for fact in results:
            assert all(np.isfinite(error) and error > 0 for error in fact.stderr.values())
            assert all(0 <= low <= high <= 1 for low, high in fact.intervals.values())
