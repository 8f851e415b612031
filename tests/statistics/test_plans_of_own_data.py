"""Plans for values that somebody has: by their own variance, which tables of probabilities give as well, and kept."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from planned import POPULATIONS, fewest_kept, half_widths, kept, levels

from hush import Task
from hush_aggregator.estimate.finite_channel import Values
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.mechanisms import Channel, Multilevel
from hush_common.mechanisms.multilevel import best_levels
from hush_common.mechanisms.parameters import shipped_at
from hush_simulations.planning.plan import (
    TARGETS,
    MechanismCost,
    PlanQuestion,
    Target,
    central,
    error_of,
    offered,
    own_values,
    people_for,
    references,
    solve,
)

SEED = 23
NUMBER = NumberDomain(0.0, 1.0)
WAYS = CategoryDomain(tuple(map(str, range(12))))
DOMAINS: dict[str, Domain] = {
    "table": NUMBER,
    "multilevel": NUMBER,
    "laplace": NUMBER,
    "randomized_response": BitDomain(),
    "subset_selection": WAYS,
}
SPREAD = ["all in the middle", "one in twenty far away", "a third above", "all at a bound"]


def of_levels(task: Task, label: str) -> Values:
    places = levels(task)
    return Values(places, POPULATIONS[label](places) / POPULATIONS[label](places).sum())


def line_of(name: str, epsilon: str, *known: Values) -> tuple[MechanismCost, Task]:
    line = offered(DOMAINS[name], known)[name](Fraction(epsilon))
    assert line is not None
    assert line.task is not None
    return line, line.task


def planned(line: MechanismCost, target: Target, error: float) -> int:
    people = people_for(line, target, error, 0.95)
    assert people is not None
    return people


@pytest.mark.large
@pytest.mark.parametrize("label", SPREAD)
@pytest.mark.parametrize(("name", "epsilon"), [*((name, "2") for name in DOMAINS), ("multilevel", "6"), ("table", "4")])
def test_a_plan_is_kept_by_people_like_those_of_the_data(name: str, epsilon: str, label: str) -> None:
    values = of_levels(line_of(name, epsilon)[1], label)
    line, task = line_of(name, epsilon, values)
    for target in TARGETS:
        n = planned(line, target, 0.05)
        halves = half_widths(task, n, 0.95, values.shares, runs=80, seed=SEED)[target]
        assert kept(halves, 0.05) >= fewest_kept(80), (target, n)


@pytest.mark.parametrize(("name", "epsilon"), [("table", "4"), ("multilevel", "6")])
def test_no_more_people_are_planned_than_the_data_ask_for(name: str, epsilon: str) -> None:
    values = of_levels(line_of(name, epsilon)[1], "spread evenly")
    line, task = line_of(name, epsilon, values)
    n = planned(line, "population", 0.05)
    assert n < 0.9 * planned(line_of(name, epsilon)[0], "population", 0.05)
    halves = half_widths(task, int(0.9 * n), 0.95, values.shares, runs=80, seed=SEED)["population"]
    assert kept(halves, 0.05, slack=1.0) < 0.6


@pytest.mark.parametrize("name", ["multilevel", "table"])
@pytest.mark.parametrize("epsilon", ["2", "4"])
def test_the_variance_of_the_data_is_that_of_the_tables_of_probabilities(name: str, epsilon: str) -> None:
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


@pytest.mark.parametrize("name", DOMAINS)
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
    with pytest.raises(TypeError, match="one column"):
        own_values(VectorDomain((Coordinate(0, 1, name="x"),)), [1.0], {}, "x")


def test_auto_is_what_a_task_would_get_whatever_the_data_are() -> None:
    data = own_values(NUMBER, [0.5] * 10, {}, "x")
    for epsilon, name in (("0.3", "multilevel"), ("4", "table")):
        question = PlanQuestion(
            domain=NUMBER, people=None, epsilon=Fraction(epsilon), error=0.05, confidence=0.95, data=data
        )
        assert solve(question).auto == {"reporters": name, "population": name}


@pytest.mark.parametrize("name", DOMAINS)
def test_what_hush_does_not_offer_is_compared_for_the_same_values(name: str) -> None:
    values = of_levels(line_of(name, "2")[1], "all in the middle")
    others = {**references(DOMAINS[name], (values,)), "trusted": central(DOMAINS[name], (values,))}
    for family in others.values():
        line = family(Fraction(2))
        assert line is not None
        assert line.spread == pytest.approx(values.moment(2))
