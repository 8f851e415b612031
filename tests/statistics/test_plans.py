"""A plan is kept: of the people that it asks for, intervals are as short as planned in at least 95 % of samples.

Here a seeded slice; all of it is `-m soak`. Plans for values that somebody has are kept by people like those.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from math import ceil, sqrt
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray
from single_intervals import Values

from hush import Task
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.finite_channel import KEPT, FiniteChannel, finite
from hush_aggregator.estimate.mechanisms import columns
from hush_aggregator.estimate.numerics.quantiles import normal_quantile
from hush_aggregator.estimate.proportions import proportions
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.mechanisms import Channel, Laplace, Multilevel, Offers, RandomizedResponse, SubsetSelection, Vector
from hush_common.mechanisms.multilevel import best_levels
from hush_common.mechanisms.parameters import shipped_at
from hush_simulations.planning.plan import (
    TARGETS,
    TOLERANCE,
    MechanismCost,
    PlanQuestion,
    Target,
    central,
    epsilon_for,
    error_of,
    offered,
    own_values,
    people_for,
    references,
    solve,
    worst_shares,
)

Array = NDArray[np.float64]

POPULATIONS: dict[str, Callable[[Array], Array]] = {
    "half at either bound": lambda x: np.where((x == 0) | (x == 1), 0.5, 0.0),
    "spread evenly": lambda x: np.full(len(x), 1 / len(x)),
    "all in the middle": lambda x: np.where(np.abs(x - 0.5) == np.abs(x - 0.5).min(), 1.0, 0.0),
    "all at a bound": lambda x: np.where(x == 0, 1.0, 0.0),
    "one in twenty far away": lambda x: np.where(x == 1, 0.05, np.where(x == 0, 0.95, 0.0)),
    "a third above": lambda x: np.where(x == 1, 1 / 3, np.where(x == 0, 2 / 3, 0.0)),
    "nearly all have it": lambda x: np.where(x == 1, 0.93, np.where(x == 0, 0.07, 0.0)),
}
"""Shares of the levels of a mechanism, given their positions on the unit interval."""


def half_widths(task: Task, n: int, confidence: float, shares: Array, *, runs: int, seed: int) -> dict[str, Array]:
    """Half the length of the intervals of `runs` samples of n people, by target.

    Args:
        task: of the unit interval.
        n: reports.
        confidence: of the intervals.
        shares: of the people at each level, see `levels`.
        runs: how many samples.
        seed: of the draws.
    """

    @cache
    def lengths(sums: tuple[int, ...]) -> dict[str, float]:
        result = estimate(task, Tally(n, sums), confidence)
        intervals = result.parts[0].intervals
        return {target: (intervals[target][1] - intervals[target][0]) / 2 for target in ("reporters", "population")}

    found = [lengths(sums) for sums in _samples(task, n, shares / shares.sum(), runs, np.random.default_rng(seed))]
    return {target: np.array([one[target] for one in found]) for target in ("reporters", "population")}


def longer(task: Task, n: int, confidence: float, target: str, *, share: float, error: float) -> float:
    """The probability that the interval of a share is longer than planned by more than `TOLERANCE`, of every count.

    The larger one of two laws: n people drawn from a population of which this share has it, and n of whom it has it.
    """
    no, yes = map(float, _channel(task).of_yes)
    counts, alike = list(range(n + 1)), len(task.domain.parts)
    made = proportions(_channel(task).of_yes, n, counts, [confidence], alike=alike).intervals[0]
    halves = np.array([(high - low) / 2 for low, high in (one[target] for one in made)])
    who = round(n * share)
    laws = [no + share * (yes - no)] * n, [no] * (n - who) + [yes] * who
    return max(float(_of_coins(law)[halves > (1 + TOLERANCE) * error].sum()) for law in laws)


def _of_coins(chances: list[float]) -> Array:
    """The law of the sum, one coin after the other."""
    law = np.ones(1)
    for chance in chances:
        law = np.convolve(law, (1 - chance, chance))
    return law


def levels(task: Task) -> Array:
    """The positions between which a mechanism rounds at random; of Laplace noise the bounds and the middle."""
    return np.linspace(0, 1, 3) if isinstance(task.randomizer, Laplace) else _channel(task).nodes


def kept(halves: Array, error: float, slack: float = 1 + TOLERANCE) -> float:
    """In which share of the samples an error bar was as short as planned."""
    return float((halves <= slack * error).mean())


def fewest_kept(runs: int) -> float:
    """The share of samples kept below which a plan that keeps `KEPT` of them falls in one of 10^9 tests (Bernstein)."""
    t = np.log(1e9) / runs
    return KEPT - float(t / 3 + np.sqrt(t**2 / 9 + 2 * KEPT * (1 - KEPT) * t))


def _channel(task: Task) -> FiniteChannel:
    mechanism = task.randomizer
    assert not isinstance(mechanism, Offers)
    return finite(mechanism.part if isinstance(mechanism, Vector) else mechanism)


def _samples(task: Task, n: int, shares: Array, runs: int, rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
    mechanism = task.randomizer
    if isinstance(mechanism, Laplace):
        yield from (_laplace(mechanism, n, shares, rng) for _ in range(runs))
        return
    channel = _channel(task)
    law = shares @ channel.p
    drawn = np.full(runs, n)
    if isinstance(mechanism, Vector):
        drawn = rng.binomial(n, mechanism.sampled / mechanism.coordinates, runs)
    for counts, own in zip(rng.multinomial(drawn, law / law.sum()).tolist(), drawn.tolist(), strict=True):
        if isinstance(mechanism, Vector):
            rest = [0] * (columns(mechanism) - len(counts))
            if rest:
                rest[0] = n * mechanism.sampled - own
            yield (*counts, *rest)
        elif isinstance(mechanism, RandomizedResponse):
            yield (counts[-1],)
        elif isinstance(mechanism, SubsetSelection):
            each, more = divmod(n * mechanism.size - counts[-1], mechanism.categories - 1)
            yield (counts[-1], *(each + (place < more) for place in range(mechanism.categories - 1)))
        else:
            yield tuple(dict(zip(channel.used, counts, strict=True)).get(y, 0) for y in range(columns(mechanism)))


def _laplace(mechanism: Laplace, n: int, shares: Array, rng: np.random.Generator) -> tuple[int, ...]:
    """At 2^20 steps the discrete law is the continuous one to 1e-12."""
    values = rng.choice(np.linspace(0, mechanism.steps, 3), n, p=shares)
    reports = np.rint(values + rng.laplace(0, float(mechanism.scale), n))
    total = int(reports.sum())
    return (total, int((reports**2).sum()), *((total, 0) * ((columns(mechanism) - 2) // 2)))


ENOUGH = 0.95
SEED = 11
DOMAINS: dict[str, Domain] = {
    "table": NumberDomain(0.0, 1.0),
    "multilevel": NumberDomain(0.0, 1.0),
    "laplace": NumberDomain(0.0, 1.0),
    "randomized_response": BitDomain(),
    "subset_selection": CategoryDomain(tuple(map(str, range(12)))),
    "vector": VectorDomain(tuple(Coordinate(0.0, 1.0, name=str(place)) for place in range(6))),
}


NUMBER = NumberDomain(0.0, 1.0)
WAYS = CategoryDomain(tuple(map(str, range(12))))


def line_of(name: str, epsilon: str, *known: Values) -> tuple[MechanismCost, Task]:
    line = offered(DOMAINS[name], known)[name](Fraction(epsilon))
    assert line is not None
    assert line.task is not None
    return line, line.task


def planned(line: MechanismCost, target: Target, error: float, confidence: float = 0.95) -> int:
    people = people_for(line, target, error, confidence)
    assert people is not None
    return people


def check(name: str, epsilon: str, error: float, confidence: float, *, runs: int, others: int) -> None:
    line, task = line_of(name, epsilon)
    for target in TARGETS:
        n = planned(line, target, error, confidence)
        worst = half_widths(task, n, confidence, worst_shares(task), runs=runs, seed=SEED)[target]
        assert kept(worst, error) >= fewest_kept(runs), (name, epsilon, error, confidence, target, n)
        for label, make in POPULATIONS.items():
            halves = half_widths(task, n, confidence, make(levels(task)), runs=others, seed=SEED)[target]
            assert kept(halves, error) >= fewest_kept(others), (name, epsilon, error, confidence, target, n, label)


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "epsilon"),
    [("multilevel", "4"), ("table", "2"), ("laplace", "4"), ("subset_selection", "4"), ("vector", "4")],
)
def test_a_plan_is_kept_whatever_the_values_are(name: str, epsilon: str) -> None:
    check(name, epsilon, 0.05, 0.95, runs=100, others=10)


@pytest.mark.medium
def test_a_plan_by_the_normal_law_alone_is_found() -> None:
    """The interval of so few is another one."""
    line, task = line_of("multilevel", "8")
    n = ceil(normal_quantile(0.95) ** 2 * (line.noise + line.spread) / 0.05**2)
    halves = half_widths(task, n, 0.95, worst_shares(task), runs=120, seed=SEED)["population"]
    assert kept(halves, 0.05) < fewest_kept(120)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["table", "laplace", "subset_selection", "vector"])
@pytest.mark.parametrize("target", TARGETS)
def test_no_more_people_are_planned_than_it_takes(name: str, target: Target) -> None:
    """Of a tenth fewer, less than 95 % of samples would do, for the people that the plan is for."""
    line, task = line_of(name, "2")
    n = int(0.9 * planned(line, target, 0.05, 0.95))
    shares = POPULATIONS["nearly all have it"](levels(task)) if name == "subset_selection" else worst_shares(task)
    assert kept(half_widths(task, n, 0.95, shares, runs=60, seed=SEED)[target], 0.05, slack=1.0) < 0.6


SHARES = (0, 0.004, 0.03, 0.2, 0.35, 0.5, 0.61, 0.9, 1)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "epsilon", "error", "confidence"),
    [("randomized_response", "3", 0.03, 0.95), ("subset_selection", "3", 0.05, 0.5)],
)
@pytest.mark.parametrize("target", TARGETS)
def test_a_plan_of_a_share_is_kept_by_the_exact_law_of_the_count(
    name: str, epsilon: str, error: float, confidence: float, target: Target
) -> None:
    line, task = line_of(name, epsilon)
    n = planned(line, target, error, confidence)
    for share in SHARES:
        assert longer(task, n, confidence, target, share=share, error=error) <= 1 - ENOUGH, (n, share)


@pytest.mark.parametrize(
    ("epsilon", "error", "confidence", "n", "share"), [("3", 0.03, 0.95, 234, 0.5), ("0.5", 0.03, 0.5, 2084, 0.0)]
)
def test_a_plan_by_one_tally_alone_is_found(
    epsilon: str, error: float, confidence: float, n: int, share: float
) -> None:
    """The ends are whole counts, and other tallies have one more in the interval."""
    _, task = line_of("randomized_response", epsilon)
    assert longer(task, n, confidence, "reporters", share=share, error=error) > 1 - ENOUGH


def all_people(name: str, epsilon: str, confidence: float, target: Target, most: int) -> dict[int, float]:
    line, _ = line_of(name, epsilon)
    return {n: error_of(line, target, n, confidence) for n in range(2, most)}


SWITCHES: list[tuple[str, str, float, Target, int]] = [
    ("laplace", "1", 0.95, "population", 76),
    ("randomized_response", "3", 0.9, "reporters", 75),
]
"""With more people than these the interval is longer at first: its method changes, or one more count is in it."""


@pytest.mark.medium
@pytest.mark.parametrize(("name", "epsilon", "confidence", "target", "n"), SWITCHES)
def test_more_people_than_planned_get_no_longer_interval(
    name: str, epsilon: str, confidence: float, target: Target, n: int
) -> None:
    found = all_people(name, epsilon, confidence, target, 3 * n)
    error = found[n] * 1.001
    people = planned(line_of(name, epsilon)[0], target, error, confidence)
    assert people == 1 + max(one for one, half in found.items() if half > error)


@pytest.mark.parametrize(("name", "epsilon", "confidence", "target", "n"), SWITCHES)
def test_a_plan_for_one_number_of_people_alone_is_found(
    name: str, epsilon: str, confidence: float, target: Target, n: int
) -> None:
    """The fewest people whose interval is short enough: of some more it is not."""
    line, _ = line_of(name, epsilon)
    error = error_of(line, target, n, confidence) * 1.001
    assert any(error_of(line, target, more, confidence) > error for more in range(n + 1, n + n // 2))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "people", "target", "error", "confidence"),
    [
        ("table", 60, "population", 0.1, 0.5),
        ("subset_selection", 3000, "population", 0.05, 0.95),
    ],
)
def test_no_smaller_epsilon_reaches_the_error(
    name: str, people: int, target: Target, error: float, confidence: float
) -> None:
    """Where a larger one gives a longer interval, the search may not begin beyond it."""
    family = offered(DOMAINS[name])[name]
    found = epsilon_for(family, target, people, error, confidence)
    assert found is not None
    for step in range(1, 40, 2):
        line = family(found * Fraction(96, 100) ** step)
        assert line is None or error_of(line, target, people, confidence) > error, float(found)


@pytest.mark.parametrize(("epsilon", "confidence"), [("0.05", 0.95), ("1", 0.999)])
def test_a_trusted_collectors_error_is_a_quantile_of_noise_and_sampling(epsilon: str, confidence: float) -> None:
    """By a sum over the law of the noise; deviations in quadrature are another number."""
    line = central(BitDomain())(Fraction(epsilon))
    assert line is not None
    scale, deviation = 1 / float(Fraction(epsilon)) / 400, 0.5 / 20
    noise = -np.log((np.arange(20_000) + 0.5) / 20_000) * scale
    normal = NormalDist(0, deviation)

    def beyond(t: float) -> float:
        return float(np.mean([1 - normal.cdf(t - one) + normal.cdf(-t - one) for one in noise.tolist()]))

    assert beyond(error_of(line, "population", 400, confidence)) == pytest.approx(1 - confidence, rel=2e-3)
    squares = (scale * np.log(1 - confidence)) ** 2 + (deviation * normal_quantile(confidence)) ** 2
    if epsilon == "0.05":
        assert beyond(float(np.sqrt(squares))) != pytest.approx(1 - confidence, rel=2e-2)


@pytest.mark.parametrize("width", [1e-12, 1e-60, 1e-150])
def test_a_trusted_collectors_error_is_noise_where_values_hardly_vary(width: float) -> None:
    values = Values(np.array([0.0, width]), np.array([0.5, 0.5]))
    line = central(NumberDomain(0.0, 1.0), (values,))(Fraction(1))
    assert line is not None
    assert error_of(line, "population", 400, 0.95) == pytest.approx(-np.log(0.05) / 400, rel=1e-9)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("confidence", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("name", DOMAINS)
def test_every_plan_is_kept_in_twenty_thousand_samples(name: str, confidence: float) -> None:
    for epsilon in ("1", "2", "4", "8"):
        if offered(DOMAINS[name])[name](Fraction(epsilon)) is not None:
            check(name, epsilon, 0.05, confidence, runs=20_000, others=2_000)


# ---- values that somebody has

OWN = [name for name in DOMAINS if name != "vector"]
SPREAD = ["all in the middle", "one in twenty far away"]


def of_levels(task: Task, label: str) -> Values:
    places = levels(task)
    return Values(places, POPULATIONS[label](places) / POPULATIONS[label](places).sum())


@pytest.mark.large
@pytest.mark.parametrize("label", SPREAD)
@pytest.mark.parametrize(("name", "epsilon"), [("multilevel", "6"), ("table", "4"), ("subset_selection", "2")])
def test_a_plan_is_kept_by_people_like_those_of_the_data(name: str, epsilon: str, label: str) -> None:
    values = of_levels(line_of(name, epsilon)[1], label)
    line, task = line_of(name, epsilon, values)
    for target in TARGETS:
        n = planned(line, target, 0.05)
        halves = half_widths(task, n, 0.95, values.shares, runs=80, seed=23)[target]
        assert kept(halves, 0.05) >= fewest_kept(80), (target, n)


@pytest.mark.medium
@pytest.mark.parametrize(("name", "epsilon"), [("table", "4"), ("multilevel", "6")])
def test_no_more_people_are_planned_than_the_data_ask_for(name: str, epsilon: str) -> None:
    values = of_levels(line_of(name, epsilon)[1], "spread evenly")
    line, task = line_of(name, epsilon, values)
    n = planned(line, "population", 0.05)
    assert n < 0.9 * planned(line_of(name, epsilon)[0], "population", 0.05)
    halves = half_widths(task, int(0.9 * n), 0.95, values.shares, runs=80, seed=23)["population"]
    assert kept(halves, 0.05, slack=1.0) < 0.6


@pytest.mark.parametrize(("name", "epsilon"), [("multilevel", "2"), ("table", "4")])
def test_the_variance_of_the_data_is_that_of_the_tables(name: str, epsilon: str) -> None:
    """People at each of nine values; every report of each of them, with its probability."""
    grid, share = 8, np.array([4, 0, 1, 0, 0, 2, 0, 2, 1]) / 10
    mechanism = mechanism_at(name, Fraction(epsilon), grid)

    def decoded(body: tuple[int, ...]) -> float:
        if isinstance(mechanism, Channel):
            return mechanism.positions[body[0]] / mechanism.unit
        return float(mechanism.unit_value(Fraction(body[0])))

    moments = [
        [
            sum(float(mechanism.probability(body, x)) * decoded(body) ** k for body in mechanism.outputs())
            for x in range(9)
        ]
        for k in (1, 2)
    ]
    means, squares = map(np.array, moments)
    noise, total = share @ (squares - means**2), share @ squares - (share @ means) ** 2
    line, _ = line_of(name, epsilon, Values(np.linspace(0, 1, 9), share))
    assert line.noise == pytest.approx(noise, rel=1e-9)
    assert line.noise + line.spread == pytest.approx(total, rel=1e-9)
    worst, _ = line_of(name, epsilon)
    assert total < worst.noise + worst.spread


def mechanism_at(name: str, epsilon: Fraction, steps: int) -> Channel | Multilevel:
    if name == "multilevel":
        return Multilevel(epsilon, steps, best_levels(epsilon))
    table = shipped_at(epsilon)
    return Channel(epsilon, steps, table.positions, table.unit, table.weights)


def test_laplace_adds_the_variance_of_the_data_and_nothing_else() -> None:
    values = [20.0, 30.0, 70.0]
    data = own_values(NumberDomain(0.0, 100.0), values, {}, "age")
    assert data.deviation == pytest.approx(float(np.std(values)))
    question = {"domain": NumberDomain(0.0, 100.0), "people": 400, "epsilon": Fraction(1), "error": None}
    found = solve(PlanQuestion(**question, confidence=None, data=data)).to_document()  # type: ignore[arg-type]
    laplace = next(line for line in found["mechanisms"] if line["mechanism"] == "laplace")
    assert laplace["reporters"] == pytest.approx(100 * sqrt(2 / 400))
    assert laplace["population"] == pytest.approx(100 * sqrt((2 + np.var(values) / 1e4) / 400))
    trusted = found["trusted_collector"]["population"]
    assert trusted == pytest.approx(100 * sqrt(2 / 400**2 + np.var(values) / 1e4 / 400), rel=1e-6)
    assert (found["values"], found["data"]["column"]) == ("of the data", "age")


@pytest.mark.parametrize("name", OWN)
def test_no_values_need_more_than_the_worst_ones(name: str) -> None:
    line, task = line_of(name, "2")
    for label in POPULATIONS:
        known, _ = line_of(name, "2", of_levels(task, label))
        for target in TARGETS:
            assert error_of(known, target, 3000, None) <= error_of(line, target, 3000, None) * (1 + 1e-9)
            assert error_of(known, target, 3000, 0.95) <= error_of(line, target, 3000, 0.95) * 1.02


def test_of_categories_the_ones_whose_shares_vary_most_count() -> None:
    data = own_values(WAYS, ["0"] * 8 + ["1"] * 2, {}, "way")
    assert [round(values.mean, 3) for values in data.known] == [0.8, 0.2, *[0.0] * 10]
    line = offered(WAYS, data.known)["subset_selection"](Fraction(4))
    assert line is not None
    for values in data.known:
        (alone,) = [offered(WAYS, (values,))["subset_selection"](Fraction(4))]
        assert alone is not None
        for target in TARGETS:
            assert error_of(alone, target, 500, 0.95) <= error_of(line, target, 500, 0.95) * (1 + 1e-9)
    assert data.deviation is None


def test_who_has_no_value_answers_with_any_and_counts_so() -> None:
    half = own_values(NUMBER, [0.5, None], {}, "x").known[0]
    assert half.mean == pytest.approx(0.5)
    assert half.moment(2) == pytest.approx(1 / 24, rel=0.01)  # of a uniform law 1/12, for half of them
    assert own_values(BitDomain(), [1, None], {}, "q").known[0].mean == 0.75
    assert own_values(WAYS, ["3", None], {}, "w").known[3].mean == pytest.approx(0.5 + 0.5 / 12)
    assert own_values(NUMBER, [5.0, -2.0, 0.25], {}, "x").known[0].mean == pytest.approx(1.25 / 3)  # moved inside
    with pytest.raises(TypeError, match="column"):
        own_values(VectorDomain((Coordinate(0, 1, name="x"),)), [1.0], {}, "x")


@pytest.mark.medium
def test_auto_is_what_a_task_would_get_whatever_the_data_are() -> None:
    data = own_values(NUMBER, [0.5] * 10, {}, "x")
    for epsilon, name in (("0.3", "multilevel"), ("4", "table")):
        question = PlanQuestion(
            domain=NUMBER, people=None, epsilon=Fraction(epsilon), error=0.05, confidence=0.95, data=data
        )
        assert solve(question).auto == {"reporters": name, "population": name}


@pytest.mark.parametrize("name", OWN)
def test_what_hush_does_not_offer_is_compared_for_the_same_values(name: str) -> None:
    values = of_levels(line_of(name, "2")[1], "all in the middle")
    others = {**references(DOMAINS[name], (values,)), "trusted": central(DOMAINS[name], (values,))}
    for family in others.values():
        line = family(Fraction(2))
        assert line is not None
        assert line.spread == pytest.approx(values.moment(2))
