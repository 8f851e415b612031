"""Plans are kept: of the samples of the planned number of people, few have a longer error bar than planned.

Here a seeded slice; all of it is `-m soak`.
"""

from fractions import Fraction
from math import ceil
from statistics import NormalDist

import numpy as np
import pytest
from planned import POPULATIONS, fewest_kept, half_widths, kept, levels, longer

from hush import Task
from hush_aggregator.estimate.finite_channel import KEPT, Values
from hush_aggregator.estimate.numerics.quantiles import normal_quantile
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_simulations.planning.plan import (
    TARGETS,
    MechanismCost,
    Target,
    central,
    epsilon_for,
    error_of,
    offered,
    people_for,
    worst_shares,
)

SEED = 11
DOMAINS: dict[str, Domain] = {
    "table": NumberDomain(0.0, 1.0),
    "multilevel": NumberDomain(0.0, 1.0),
    "laplace": NumberDomain(0.0, 1.0),
    "randomized_response": BitDomain(),
    "subset_selection": CategoryDomain(tuple(map(str, range(12)))),
    "vector": VectorDomain(tuple(Coordinate(0.0, 1.0, name=str(place)) for place in range(6))),
}


def line_of(name: str, epsilon: str) -> tuple[MechanismCost, Task]:
    line = offered(DOMAINS[name])[name](Fraction(epsilon))
    assert line is not None
    assert line.task is not None
    return line, line.task


def planned(line: MechanismCost, target: Target, error: float, confidence: float) -> int:
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
    [
        *(("multilevel", epsilon) for epsilon in ("1", "2", "4", "8")),
        *(("table", epsilon) for epsilon in ("1", "2", "4")),
        ("laplace", "4"),
        ("randomized_response", "2"),
        ("subset_selection", "4"),
        ("vector", "4"),
    ],
)
def test_a_plan_is_kept_whatever_the_values_are(name: str, epsilon: str) -> None:
    check(name, epsilon, 0.05, 0.95, runs=120, others=20)


@pytest.mark.parametrize(("name", "epsilon"), [("multilevel", "4"), ("multilevel", "8"), ("table", "4")])
def test_a_plan_by_the_normal_law_alone_is_noticed(name: str, epsilon: str) -> None:
    """What hush once planned: 437 to 440 people and 388, where the interval of so few is another one."""
    line, task = line_of(name, epsilon)
    n = ceil(normal_quantile(0.95) ** 2 * (line.noise + line.spread) / 0.05**2)
    assert n in {388, 434, 440}
    halves = half_widths(task, n, 0.95, worst_shares(task), runs=120, seed=SEED)["population"]
    assert kept(halves, 0.05) < fewest_kept(120)


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize("target", TARGETS)
def test_no_more_people_are_planned_than_it_takes(name: str, target: Target) -> None:
    """Of a tenth fewer, less than 95 % of samples would do, for the people that the plan is for."""
    line, task = line_of(name, "2")
    n = int(0.9 * planned(line, target, 0.05, 0.95))
    shares = POPULATIONS["nearly all have it"](levels(task)) if name == "subset_selection" else worst_shares(task)
    assert kept(half_widths(task, n, 0.95, shares, runs=60, seed=SEED)[target], 0.05, slack=1.0) < 0.6


SHARES = (0, 0.004, 0.03, 0.2, 0.35, 0.5, 0.61, 0.9, 1)


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "epsilon", "error", "confidence"),
    [
        ("randomized_response", "3", 0.03, 0.95),
        ("randomized_response", "2.2", 0.04, 0.8),
        ("randomized_response", "0.7", 0.05, 0.5),
        ("subset_selection", "3", 0.05, 0.5),
        ("subset_selection", "4", 0.05, 0.95),
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_a_plan_of_a_share_is_kept_by_the_exact_law_of_the_count(
    name: str, epsilon: str, error: float, confidence: float, target: Target
) -> None:
    line, task = line_of(name, epsilon)
    n = planned(line, target, error, confidence)
    for share in SHARES:
        assert longer(task, n, confidence, target, share=share, error=error) <= 1 - KEPT, (n, share)


@pytest.mark.parametrize(
    ("epsilon", "error", "confidence", "n", "share"), [("3", 0.03, 0.95, 234, 0.5), ("0.5", 0.03, 0.5, 2084, 0.0)]
)
def test_a_plan_by_one_tally_alone_is_noticed(
    epsilon: str, error: float, confidence: float, n: int, share: float
) -> None:
    """What hush once planned for bits: the ends are whole counts, and other tallies have one more in the interval."""
    _, task = line_of("randomized_response", epsilon)
    assert longer(task, n, confidence, "reporters", share=share, error=error) > 1 - KEPT


def all_people(name: str, epsilon: str, confidence: float, target: Target, most: int) -> dict[int, float]:
    line, _ = line_of(name, epsilon)
    return {n: error_of(line, target, n, confidence) for n in range(2, most)}


SWITCHES: list[tuple[str, str, float, Target, int]] = [
    ("table", "2", 0.95, "reporters", 44),
    ("laplace", "1", 0.95, "population", 76),
    ("multilevel", "8", 0.95, "reporters", 120),
    ("randomized_response", "3", 0.9, "reporters", 75),
]
"""With more people than these the interval is longer at first: its method changes, or one more count is in it."""


@pytest.mark.large
@pytest.mark.parametrize(("name", "epsilon", "confidence", "target", "n"), SWITCHES)
def test_more_people_than_planned_get_no_longer_interval(
    name: str, epsilon: str, confidence: float, target: Target, n: int
) -> None:
    found = all_people(name, epsilon, confidence, target, 3 * n)
    error = found[n] * 1.001
    people = planned(line_of(name, epsilon)[0], target, error, confidence)
    assert people == 1 + max(one for one, half in found.items() if half > error)


@pytest.mark.parametrize(("name", "epsilon", "confidence", "target", "n"), SWITCHES)
def test_a_plan_for_one_number_of_people_alone_is_noticed(
    name: str, epsilon: str, confidence: float, target: Target, n: int
) -> None:
    """The fewest people whose interval is short enough, as hush once planned: of some more it is not."""
    line, _ = line_of(name, epsilon)
    error = error_of(line, target, n, confidence) * 1.001
    assert any(error_of(line, target, more, confidence) > error for more in range(n + 1, n + n // 2))


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "people", "target", "error", "confidence"),
    [
        ("multilevel", 400, "reporters", 0.0354, 0.95),
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
    for step in range(1, 40):
        line = family(found * Fraction(96, 100) ** step)
        assert line is None or error_of(line, target, people, confidence) > error, float(found)


@pytest.mark.parametrize(("epsilon", "confidence"), [("0.05", 0.95), ("1", 0.5), ("1", 0.999), ("9", 0.95)])
def test_the_error_of_a_trusted_collector_is_the_quantile_of_noise_and_sampling_together(
    epsilon: str, confidence: float
) -> None:
    """By a sum over the law of the noise; deviations in quadrature, as hush once had them, are another number."""
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
def test_the_error_of_a_trusted_collector_is_that_of_the_noise_where_values_hardly_vary(width: float) -> None:
    values = Values(np.array([0.0, width]), np.array([0.5, 0.5]))
    line = central(NumberDomain(0.0, 1.0), (values,))(Fraction(1))
    assert line is not None
    assert error_of(line, "population", 400, 0.95) == pytest.approx(-np.log(0.05) / 400, rel=1e-9)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("epsilon", ["1", "2", "4", "8"])
@pytest.mark.parametrize("name", DOMAINS)
def test_every_plan_is_kept_in_twenty_thousand_samples(name: str, epsilon: str, confidence: float) -> None:
    if name == "table" and offered(DOMAINS[name])[name](Fraction(epsilon)) is None:
        pytest.skip("no table is shipped for it")
    check(name, epsilon, 0.05, confidence, runs=20_000, others=2_000)
