"""What is feasible: the figures of the planner for the mechanism that `auto` takes, at several epsilons."""

import json
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest

import hush
from hush_aggregator.estimate.finite_channel import Values
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_simulations.planning.asking import parse_error
from hush_simulations.planning.feasibility import feasibility
from hush_simulations.planning.plan import PlanQuestion, solve

AGES: Mapping[str, object] = {"kind": "number", "lower": 0, "upper": 110, "unit": "years"}


@pytest.mark.large
@pytest.mark.parametrize("epsilon", ["0.3", "1", "2", "5"])
@pytest.mark.parametrize(
    "domain", [NumberDomain(0.0, 110.0, "years"), BitDomain(), CategoryDomain.of_size(5), VectorDomain.of_size(3)]
)
def test_the_figures_are_those_of_the_plan_for_the_mechanism_of_auto(domain: Domain, epsilon: str) -> None:
    at = Fraction(epsilon)
    (line,) = feasibility(domain, people=3000, epsilons=[at], goal=0.05).lines
    error = solve(PlanQuestion(domain=domain, people=3000, epsilon=at, error=None, confidence=0.95))
    people = solve(PlanQuestion(domain=domain, people=None, epsilon=at, error=0.05, confidence=0.95))
    by_name = {one.mechanism: one.amounts for one in error.mechanisms}
    needed = {one.mechanism: one.amounts for one in people.mechanisms}
    for target in ("reporters", "population"):
        assert line.mechanism == error.auto[target]
        assert line.half_widths[target] == by_name[line.mechanism][target]
        assert line.trusted[target] == error.trusted_collector.amounts[target]
        assert line.people[target] == needed[line.mechanism][target]


def test_no_interval_is_wider_than_the_range_locally_or_with_a_trusted_collector() -> None:
    (line,) = feasibility(NumberDomain(-5.0, 5.0), people=1, epsilons=[Fraction(1, 100)]).lines
    assert set(line.half_widths.values()) | set(line.trusted.values()) == {5.0}


def test_data_count_by_their_spread_and_are_never_shown() -> None:
    values = [73.125, 73.125, 41.5, 18.75, *[30.0] * 400]
    found = hush.feasible(values, AGES, error=20)
    alone = hush.feasible(AGES, people=len(values), error=20)
    assert found.people == len(values)
    assert found.lines[-1].half_widths["population"] < 0.8 * alone.lines[-1].half_widths["population"]
    shown = [str(found), repr(found), found._repr_html_(), json.dumps(found.to_document()), str(found.columns())]
    for text in shown:
        for value in ("73.125", "41.5", "18.75"):
            assert value not in text


@pytest.mark.large
@pytest.mark.parametrize("answer", [0, 1])
def test_people_without_a_value_answer_with_any(answer: int) -> None:
    found = hush.feasible([answer] * 300 + [None] * 100, {"kind": "bit"}, missing="replace")
    (line,) = [one for one in found.lines if one.epsilon == 4]
    share = (300 * answer + 50) / 400
    sampling = 1.96 * (share * (1 - share) / 400) ** 0.5
    assert sampling < line.half_widths["population"] < 1.6 * sampling


def test_from_the_smallest_epsilon_on_the_goal_is_reached() -> None:
    found = hush.feasible({"kind": "bit"}, people=20_000, error="2%")
    line = found.reaching("population")
    assert line is not None
    widths = {one.epsilon: one.half_widths["population"] for one in found.lines}
    assert line.epsilon == min(epsilon for epsilon, width in widths.items() if width <= 0.02)
    assert f"From epsilon {line.epsilon} on, these people reach the goal" in str(found)
    none = hush.feasible({"kind": "bit"}, people=100, error="2%")
    assert none.reaching("population") is None
    assert "At none of these epsilons" in str(none)


def test_without_people_only_their_number_is_said() -> None:
    found = hush.feasible({"kind": "category", "labels": ["a", "b", "c"]}, error=0.02, epsilons=[2, 0.5])
    assert [line.epsilon for line in found.lines] == [Fraction(1, 2), 2]
    assert not any(line.half_widths or line.trusted for line in found.lines)
    assert "±" not in str(found).split("goal ± 2 points")[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"data": [1, 2]}, "domain: is missing; state the legal values from public knowledge"),
        ({}, "data: is missing; pass values and their domain, or a domain and people="),
        ({"data": {"kind": "bit"}}, "people: is missing; pass how many people answer"),
        ({"data": {"kind": "bit"}, "people": 1e6}, "people: '1000000.0' is not a whole number"),
        ({"data": {"kind": "bit"}, "people": 9, "error": 3}, "error: 3 is not the error of a share; write 3%, or 0.03"),
        ({"data": {"kind": "bit"}, "people": 9, "error": "x"}, "error: 'x' is not a positive error; write error='5%'"),
        ({"data": {"kind": "bit"}, "people": 9, "epsilons": [0]}, r"epsilon: 0 is outside \[0.000001, 50\]"),
        ({"data": {"kind": "bit"}, "people": 9, "confidence": 95}, "confidence: 95 is not between 0 and 1"),
        ({"data": [1, None], "domain": AGES}, "missing"),
        ({"data": [(1, 2)] * 3, "domain": VectorDomain.of_size(2)}, "domain: is of vectors, .* pass one and its"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_argument(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(hush.HushError, match=says) as caught:
        hush.feasible(**arguments)  # type: ignore[arg-type] # on purpose
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("5.5", 0.05), ("1e-1 %", 0.001)])
def test_an_error_is_a_share_of_the_range(text: str, share: float) -> None:
    assert parse_error(text, NumberDomain(0.0, 110.0), "error") == pytest.approx(share, rel=1e-15)


def _one_by_one(values: Values, nodes: np.ndarray) -> list[Fraction]:
    """The share of people at each node, with exact numbers."""
    found, at = [Fraction(0)] * len(nodes), [Fraction(float(node)) for node in nodes]
    for place, share in zip(values.places.tolist(), values.shares.tolist(), strict=True):
        above = next((k for k, node in enumerate(at) if k and Fraction(place) <= node), len(at) - 1)
        up = (Fraction(place) - at[above - 1]) / (at[above] - at[above - 1])
        found[above] += Fraction(share) * up
        found[above - 1] += Fraction(share) * (1 - up)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_values_are_rounded_to_the_nodes_beside_them(seed: int) -> None:
    source = np.random.default_rng(seed)
    places = source.choice([0.0, 0.25, 0.5, 1.0, *source.random(9)], size=int(source.integers(1, 40)))
    shares = source.random(len(places))
    values = Values(places, shares / shares.sum())
    for size in range(2, 9):
        nodes = np.linspace(0, 1, size)
        assert values.at(nodes) == pytest.approx([float(one) for one in _one_by_one(values, nodes)], abs=1e-14)
        assert values.at(nodes).min() >= 0
