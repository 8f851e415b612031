"""Planning: known answers, the same figures as the mechanisms themselves, and inverses that invert."""

from fractions import Fraction
from math import sqrt
from operator import itemgetter
from typing import Any

import pytest

from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.mechanisms import Channel, Multilevel
from hush_common.mechanisms.multilevel import best_levels
from hush_common.mechanisms.parameters import shipped_at
from hush_common.mechanisms.registry import choose
from hush_simulations.planning.plan import (
    TARGETS,
    MechanismCost,
    PlanQuestion,
    Target,
    central,
    epsilon_for,
    error_of,
    offered,
    people_for,
    references,
    sampling_error,
    solve,
)

NUMBER = NumberDomain(0.0, 1.0)
BIT = BitDomain()
CATEGORY = CategoryDomain(tuple(map(str, range(16))))
VECTOR = VectorDomain(tuple(Coordinate(0.0, 1.0, name=str(place)) for place in range(8)))
DOMAINS = (NUMBER, BIT, CATEGORY, VECTOR)


def line(domain: Domain, name: str, epsilon: str) -> MechanismCost:
    found = (offered(domain) | references(domain))[name](Fraction(epsilon))
    assert found is not None
    return found


def trusted(domain: Domain, epsilon: str) -> MechanismCost:
    found = central(domain)(Fraction(epsilon))
    assert found is not None
    return found


def planned(
    domain: Domain,
    people: int | None,
    epsilon: Fraction | None,
    error: float | None,
    confidence: float | None,
) -> dict[str, Any]:
    question = PlanQuestion(domain=domain, people=people, epsilon=epsilon, error=error, confidence=confidence)
    return solve(question).to_document()


@pytest.mark.parametrize(
    ("epsilon", "collector", "randomized", "laplace"),
    [("0.1", 1415, 999_168, 2_000_000), ("1", 142, 9_207, 20_000)],
)
def test_the_price_of_not_trusting_the_collector_in_people(
    epsilon: str, collector: int, randomized: int, laplace: int
) -> None:
    """At a root mean square error of 0.01: sqrt(2)/(ae), e^e/((e^e-1)^2 a^2) and 2/(ae)^2, rounded up."""
    lines = (trusted(BIT, epsilon), line(BIT, "randomized_response", epsilon), line(BIT, "laplace on the bit", epsilon))
    assert [people_for(one, "reporters", 0.01, None) for one in lines] == [collector, randomized, laplace]


@pytest.mark.parametrize(
    ("name", "epsilon", "people"),
    [
        ("laplace", "0.5", 12_293),
        ("multilevel", "0.5", 6_405),
        ("laplace", "1", 3_074),
        ("multilevel", "1", 1_799),
        ("laplace", "2", 769),
        ("multilevel", "2", 385),
    ],
)
def test_people_for_five_per_cent_of_the_range_at_95_per_cent(name: str, epsilon: str, people: int) -> None:
    """What normal intervals would need, and at most 4 % more.

    hush's own know that counts are whole, and that the sum of reports lies on a lattice: they are up to 2 % longer.
    """
    planned = people_for(line(NUMBER, name, epsilon), "reporters", 0.05, 0.95)
    assert planned is not None
    assert people <= planned <= 1.04 * people


def test_one_bit_reports_vary_alike_for_every_population() -> None:
    one_bit = line(NUMBER, "multilevel", "1")
    assert one_bit.parameters == {"levels": 1}
    assert one_bit.spread == pytest.approx(0, abs=1e-12)
    assert line(NUMBER, "laplace", "1").spread == 0.25


def mechanism_at(name: str, epsilon: Fraction, steps: int) -> Channel | Multilevel:
    if name == "multilevel":
        return Multilevel(epsilon, steps, best_levels(epsilon))
    table = shipped_at(epsilon)
    return Channel(epsilon, steps, table.positions, table.unit, table.weights)


@pytest.mark.parametrize("name", ["multilevel", "table"])
@pytest.mark.parametrize("epsilon", ["2", "4"])
def test_the_planned_variance_is_the_largest_of_two_point_populations(name: str, epsilon: str) -> None:
    """Against a search over two-point populations on a grid, by the probability tables of the mechanisms."""
    grid = 8
    mechanism = mechanism_at(name, Fraction(epsilon), grid)

    def decoded(body: tuple[int, ...]) -> float:
        if isinstance(mechanism, Channel):
            return mechanism.positions[body[0]] / mechanism.unit
        return float(mechanism.unit_value(Fraction(body[0])))

    second = [
        sum(float(mechanism.probability(body, x)) * decoded(body) ** 2 for body in mechanism.outputs())
        for x in range(grid + 1)
    ]
    most = max(
        share * second[high] + (1 - share) * second[low] - (share * high / grid + (1 - share) * low / grid) ** 2
        for high in range(grid + 1)
        for low in range(high + 1)
        for share in (step / 50 for step in range(51))
    )
    planned = line(NUMBER, name, epsilon)
    assert most <= (planned.noise + planned.spread) * (1 + 1e-12)
    assert most > 0.98 * (planned.noise + planned.spread)
    assert planned.noise + planned.spread <= planned.noise + 0.25


@pytest.mark.large
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("confidence", [0.95, None])
def test_people_is_the_fewest_whose_error_is_small_enough(
    domain: Domain, target: Target, confidence: float | None
) -> None:
    for family in (*offered(domain).values(), *references(domain).values(), central(domain)):
        for epsilon in (Fraction(1, 10), Fraction(1), Fraction(4)):
            planned = family(epsilon)
            if planned is None:
                continue
            people = people_for(planned, target, 0.05, confidence)
            assert people is not None
            assert error_of(planned, target, people, confidence) <= 0.05 * (1 + 1e-8)
            if people > 1:
                assert error_of(planned, target, people - 1, confidence) > 0.05


@pytest.mark.medium
@pytest.mark.parametrize("domain", DOMAINS)
def test_epsilon_is_the_smallest_of_four_digits_that_will_do(domain: Domain) -> None:
    for name, family in offered(domain).items():
        epsilon = epsilon_for(family, "reporters", 2000, 0.1, 0.95)
        assert epsilon is not None
        planned = family(epsilon)
        assert planned is not None
        assert error_of(planned, "reporters", 2000, 0.95) <= 0.1 * (1 + 1e-8)
        less = family(epsilon * Fraction(19, 20)) if name != "table" else family(epsilon / 2)
        assert less is None or error_of(less, "reporters", 2000, 0.95) > 0.1


@pytest.mark.medium
def test_no_epsilon_reaches_a_target_below_the_sampling_error() -> None:
    assert sampling_error(100, 0.95) == pytest.approx(0.098, abs=1e-4)
    found = planned(domain=NUMBER, people=100, epsilon=None, error=0.09, confidence=0.95)
    assert all("population" not in one for one in found["mechanisms"])
    assert "reporters" in found["mechanisms"][-1]


@pytest.mark.medium
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("epsilon", ["0.3", "1", "2", "4"])
def test_auto_is_what_a_task_would_get(domain: Domain, epsilon: str) -> None:
    found = solve(
        PlanQuestion(domain=domain, people=None, epsilon=Fraction(epsilon), error=0.05, confidence=None)
    ).to_document()
    for target in TARGETS:
        assert found["auto"][target] == choose(domain, [Fraction(epsilon)])[0]
        relatives = {one["mechanism"]: one["relative"][target] for one in found["mechanisms"]}
        assert relatives[found["auto"][target]] == 1
        assert target == "population" or min(relatives.values()) > 0.99


def test_an_epsilon_without_a_table_has_no_line_for_it() -> None:
    found = solve(
        PlanQuestion(domain=NUMBER, people=500, epsilon=Fraction(3, 10), error=None, confidence=0.95)
    ).to_document()
    assert [one["mechanism"] for one in found["mechanisms"]] == ["multilevel", "laplace"]


def test_errors_are_in_the_unit_of_the_value() -> None:
    asked = NumberDomain(120.0, 220.0, "cm")
    found = planned(domain=asked, people=500, epsilon=Fraction(1), error=None, confidence=None)
    laplace = next(one for one in found["mechanisms"] if one["mechanism"] == "laplace")
    assert laplace["reporters"] == pytest.approx(100 * sqrt(2 / 500))
    assert laplace["population"] == pytest.approx(100 * sqrt(2.25 / 500))
    assert found["error_is"] == "root mean square"
    assert "confidence" not in found


def test_the_price_of_no_trust_is_a_number_of_people() -> None:
    found = solve(
        PlanQuestion(domain=BIT, people=None, epsilon=Fraction(1, 10), error=0.01, confidence=None)
    ).to_document()
    assert found["trusted_collector"]["reporters"] == 1415
    collector, randomized = found["trusted_collector"], found["mechanisms"][0]
    assert found["price_of_no_trust"] == {
        "reporters": pytest.approx(999_168 / 1415),
        "population": pytest.approx(randomized["population"] / collector["population"]),
    }


def test_an_error_bar_that_is_a_point_has_no_price() -> None:
    """At so large an epsilon 300 answers of yes or no are known: nothing is a multiple of that."""
    found = planned(domain=BIT, people=300, epsilon=Fraction(15), error=None, confidence=0.95)
    (line,) = found["mechanisms"]
    assert line["reporters"] == 0
    assert found["auto"] == {"reporters": "randomized_response", "population": "randomized_response"}
    for one in (line, *found["for_comparison"], found["trusted_collector"]):
        assert "reporters" not in one["relative"]
    assert "reporters" not in found["price_of_no_trust"]


def ranks(found: dict[str, Any]) -> dict[Target, list[str]]:
    """The mechanisms by what each needs, for each target."""
    lines = found["mechanisms"]
    return {
        target: [one["mechanism"] for one in sorted((one for one in lines if target in one), key=itemgetter(target))]
        for target in TARGETS
    }


@pytest.mark.medium
@pytest.mark.parametrize("epsilon", ["0.5", "2", "6", "12"])
@pytest.mark.parametrize("confidence", [0.95, None])
def test_each_target_is_ranked_by_its_own_figures(epsilon: str, confidence: float | None) -> None:
    found = planned(domain=NUMBER, people=None, epsilon=Fraction(epsilon), error=0.02, confidence=confidence)
    chosen = next(one for one in found["mechanisms"] if one["mechanism"] == found["auto"]["reporters"])
    for target in TARGETS:
        assert found["cheapest"][target] == ranks(found)[target][0]
        for one in (*found["mechanisms"], *found["for_comparison"], found["trusted_collector"]):
            assert one["relative"][target] == one[target] / chosen[target]
        price = chosen[target] / found["trusted_collector"][target]
        assert found["price_of_no_trust"][target] == pytest.approx(price, rel=1e-12)


def test_a_ranking_for_one_target_is_not_one_for_both() -> None:
    """One-bit reports vary no more for the sampling; those of a table do."""
    found = planned(domain=NUMBER, people=None, epsilon=Fraction(1), error=0.05, confidence=None)
    assert ranks(found) == {
        "reporters": ["table", "multilevel", "laplace"],
        "population": ["multilevel", "table", "laplace"],
    }
    assert found["cheapest"] == {"reporters": "table", "population": "multilevel"}
    assert found["auto"] == {"reporters": "table", "population": "table"}


@pytest.mark.medium
def test_a_mechanism_is_compared_at_the_epsilon_where_auto_means_it() -> None:
    """Multilevel suffices at an epsilon at which auto means a table, and no table does."""
    found = planned(domain=NUMBER, people=300, epsilon=None, error=0.01, confidence=0.95)
    (line, _) = found["mechanisms"]
    assert found["auto"] == {"reporters": "multilevel"}
    assert line["relative"]["reporters"] < 1
    assert choose(NUMBER, [Fraction(line["reporters"])])[0] == "table"
    assert choose(NUMBER, [Fraction(line["reporters"]) / Fraction(line["relative"]["reporters"])])[0] == "multilevel"
