"""Two engines, one law of people: skewed and few values, groups, drift, dropout and non-response.

Where a device's value lies (in a dozen ranges of the grid, or which label), of which group it is and whether it answers
is counted in three ways: as the engines with devices do, as the bulk engine draws counts, and as it draws arrays. The
tables are held to each other by chi-squared, twins that are wrong in one thing are condemned by as many people; the
number of devices that drop out together is held to the exact beta-binomial law. Verdicts condemn the right law once in
10^9 seeds (10^6 for tables); seeds are fixed.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from hush import Scenario, Task
from hush_common.domain import NumberDomain
from hush_simulations.engines.bulk.cells import cells_of
from hush_simulations.engines.bulk.devices import PopulationSampler, draw_devices
from hush_simulations.engines.bulk.engine import CellCounts, draw_population
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import Attendance
from hush_simulations.scenarios.behaviour import STEADY, Dropout, Nonresponse, Panel
from hush_simulations.scenarios.population import (
    Bernoulli,
    Frequencies,
    Grouped,
    Independent,
    Lognormal,
    Mixture,
    Normal,
    Observed,
    Points,
    Population,
    Subgroup,
    zipf_numbers,
    zipf_weights,
)
from hush_simulations.scenarios.scenario import draw_people

Table = NDArray[np.int64]
Fits = Callable[[ArrayLike, ArrayLike], bool]
FALSE_ALARM = 1e-6
PEOPLE, ROUNDS, BINS = 40_000, 3, 12
LABELS = ("a", "b", "c", "d")
DOMAINS: dict[str, dict[str, object]] = {
    "number": {"kind": "number", "lower": 0.0, "upper": 60.0},
    "category": {"kind": "category", "labels": list(LABELS)},
    "bit": {"kind": "bit"},
    "vector": {"kind": "vector", "coordinates": [{"name": name, "lower": 0.0, "upper": 9.0} for name in "xy"]},
}
LOGNORMAL = Lognormal(20.0, 0.7)
TWO = Grouped(
    (
        Subgroup("day", 2.0, Mixture((Normal(1.0, 20.0, 5.0),))),
        Subgroup("night", 1.0, Mixture((Normal(1.0, 45.0, 9.0),))),
    )
)
ZIPF = Frequencies(LABELS, zipf_weights(1.5, 4))
SILENT = Nonresponse(0.6, above=25.0)
CASES: dict[str, tuple[str, Population, Panel, Population, Panel]] = {  # the last two: what is wrong
    "lognormal": ("number", LOGNORMAL, STEADY, Lognormal(20.0, 0.65), STEADY),
    "zipf": ("number", zipf_numbers(1.1, 90), STEADY, zipf_numbers(1.2, 90), STEADY),
    "zipf of labels": ("category", ZIPF, STEADY, Frequencies(LABELS, zipf_weights(1.7, 4)), STEADY),
    "drift": ("number", LOGNORMAL, Panel((6.0,)), LOGNORMAL, Panel((5.0,))),
    "drift down, of rows": (
        "number",
        Observed((3.0, 50.0, 70.0, None), resampled=True),
        Panel((-4.0,)),
        Observed((3.0, 50.0, 63.0, None), resampled=True),
        Panel((-4.0,)),
    ),
    "groups": ("number", TWO, STEADY, replace(TWO, groups=(TWO.groups[0], replace(TWO.groups[1], share=1.25))), STEADY),
    "groups of labels": (
        "category",
        Grouped((Subgroup("x", 1.0, ZIPF), Subgroup("y", 1.0, Frequencies(LABELS, (0.0, 0.0, 1.0, 3.0))))),
        Panel(nonresponse=(Nonresponse(0.5, values=("c",)), Nonresponse(0.2, group="x"))),
        Grouped((Subgroup("x", 1.0, ZIPF), Subgroup("y", 1.0, Frequencies(LABELS, (0.0, 0.0, 1.0, 3.0))))),
        Panel(nonresponse=(Nonresponse(0.5, values=("c",)), Nonresponse(0.2, group="y"))),
    ),
    "non-response of bits": (
        "bit",
        Bernoulli(0.4),
        Panel(nonresponse=(Nonresponse(0.5, values=(1,)),)),
        Bernoulli(0.4),
        Panel(nonresponse=(Nonresponse(0.45, values=(1,)),)),
    ),
    "non-response above": (
        "number", LOGNORMAL, Panel((2.0,), nonresponse=(SILENT,)),
        LOGNORMAL, Panel((2.0,), nonresponse=(replace(SILENT, above=26.0),)),
    ),
    "everything": (
        "number", TWO, Panel((-3.0,), Dropout(0.2), (replace(SILENT, above=15.0, below=22.0, group="day"),)),
        TWO, Panel((-3.0,), Dropout(0.2), (replace(SILENT, above=15.0, below=22.0, group="night"),)),
    ),
}  # fmt: skip


def scenario_of(kind: str, population: Population, panel: Panel, rounds: int = ROUNDS) -> Scenario:
    document = {"id": "people", "title": "People", "epsilon": "1", "domain": DOMAINS[kind]}
    scenario = Scenario(document, population, PEOPLE, rounds=rounds, panel=panel)
    return scenario.repeated(rounds, datetime(2030, 1, 1, tzinfo=UTC))


def place(task: Task, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """A dozen ranges, with the bounds and what is missing by themselves."""
    if not isinstance(task.domain, NumberDomain):
        return indices + 1
    steps = task.domain.steps
    inner = 3 + indices * (BINS - 4) // steps
    return np.select([indices < 0, indices == 0, indices == steps], [0, 1, 2], inner)


def tabled(task: Task, groups: int, rows: list[tuple[NDArray[np.int64], NDArray[np.int64], Table]]) -> Table:
    """Of each round: how many people are of each group and in each range; what is left answers nothing."""
    table = np.zeros((ROUNDS, groups, BINS), dtype=np.int64)
    for round_, (indices, of, counts) in enumerate(rows):
        np.add.at(table[round_], (of, place(task, indices)), counts)
    return table


def by_devices(scenario: Scenario) -> Table:
    task, people = scenario.task(), draw_people(scenario, 0, 5, seeded=True)
    experiment = Experiment(
        scenario=scenario, values=people.values, groups=people.groups, engine="memory", seed=people.seed
    )
    attendance, rows = Attendance.of(experiment, PEOPLE), []
    for round_ in range(task.rounds):
        here = sorted(set(range(PEOPLE)) - attendance.away(round_))
        read = [task.domain.read(experiment.value(device, round_), strict=False).parts[0] for device in here]
        indices = np.array([-1 if index is None else index for index in read])
        of = np.array(people.groups)[here] if people.groups else np.zeros(len(here), dtype=np.int64)
        rows.append((indices, of, np.ones(len(here), dtype=np.int64)))
    return tabled(task, max(len(scenario.groups), 1), rows)


def by_counts(scenario: Scenario) -> Table:
    task, rng = scenario.task(), np.random.default_rng(6)
    drawn, rows = draw_population(task, scenario.population, PEOPLE, (), rng, panel=scenario.panel), []
    for round_ in range(task.rounds):
        drawn.select_answering(rng, round_)
        assert isinstance(drawn, CellCounts)
        cells, counts = drawn.cells, drawn.counts[0, 0]
        of = np.zeros(len(counts), dtype=np.int64) if cells.groups is None else cells.groups
        rows.append((cells.indices.astype(np.int64), of, counts))
    return tabled(task, max(len(scenario.groups), 1), rows)


def by_arrays(scenario: Scenario) -> Table:
    task, rng, panel = scenario.task(), np.random.default_rng(7), scenario.panel
    members, answering = PopulationSampler(task.domain, scenario.population, panel).draw(0, PEOPLE, rng)
    present, rows = panel.dropout.present(task.rounds, 1, max(len(scenario.groups), 1), rng), []
    for round_ in range(task.rounds):
        here = answering & (rng.random(PEOPLE) < present[round_, 0][members.groups])
        some = members[here].shifted(panel.moved(task.domain, round_))
        rows.append((some.indices[:, 0], some.groups, np.ones(len(some.indices), dtype=np.int64)))
    return tabled(task, max(len(scenario.groups), 1), rows)


WAYS = {"counts": by_counts, "arrays": by_arrays}


def alike(some: Table, others: Table) -> bool:
    """In each round; those who did not answer are a cell of their own."""
    tails = []
    for one, other in zip(some, others, strict=True):
        table = np.stack([np.append(each.reshape(-1), PEOPLE - each.sum()) for each in (one, other)])
        table = table[:, table.sum(axis=0) > 20]
        tails.append(float(stats.chi2_contingency(table).pvalue))
    return min(tails) > FALSE_ALARM / len(tails)


@pytest.mark.large
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_people_are_where_those_of_real_devices_are_in_every_round(case: str, way: str) -> None:
    kind, population, panel, wrong, other = CASES[case]
    right = by_devices(scenario_of(kind, population, panel))
    assert alike(right, WAYS[way](scenario_of(kind, population, panel)))
    assert not alike(right, WAYS[way](scenario_of(kind, wrong, other)))


# How many drop out together.

DEVICES, TOGETHER = 40, Dropout(0.3, 0.4)


def absences(way: str, dropout: Dropout) -> NDArray[np.int64]:
    """Of each group in each of many rounds, how many answer."""
    population = Grouped((Subgroup("x", 1.0, Bernoulli(0.0)), Subgroup("y", 1.0, Bernoulli(1.0))))
    scenario = replace(scenario_of("bit", population, Panel(dropout=dropout), 1000), clients=2 * DEVICES)
    task, groups = scenario.task(), np.repeat([0, 1], DEVICES)
    if way == "devices":
        values = [0] * DEVICES + [1] * DEVICES
        experiment = Experiment(scenario=scenario, values=values, groups=groups.tolist(), engine="memory", seed=3)
        attendance = Attendance.of(experiment, 2 * DEVICES)
        away = [attendance.away(round_) for round_ in range(task.rounds)]
        return np.array([[sum(device // DEVICES == g for device in some) for g in (0, 1)] for some in away])
    people = Observed((0,) * DEVICES + (1,) * DEVICES)
    scenario = replace(scenario, population=people)
    rng = np.random.default_rng(8)
    present = dropout.present(task.rounds, 1, 2, rng)
    cells = replace(cells_of(task.domain, people), groups=groups)
    drawn = draw_population(task, people, 2 * DEVICES, (), rng, cells=cells, panel=scenario.panel, present=present)
    found = []
    for round_ in range(task.rounds):
        drawn.select_answering(rng, round_)
        assert isinstance(drawn, CellCounts)
        found.append([int((1 - drawn.counts[0, 0])[groups == group].sum()) for group in (0, 1)])
    return np.array(found)


@pytest.mark.parametrize("way", ["devices", "counts"])
def test_devices_of_a_group_drop_out_together_and_not_with_those_of_another(way: str, fits: Fits) -> None:
    both = (1 - TOGETHER.correlation) / TOGETHER.correlation
    law = stats.betabinom(DEVICES, TOGETHER.share * both, (1 - TOGETHER.share) * both)
    every = np.arange(DEVICES + 1)
    shares = np.bincount(np.minimum(every // 4, 9), law.pmf(every))
    right, alone = absences(way, TOGETHER), absences(way, replace(TOGETHER, correlation=0.0))
    for group in (0, 1):
        assert fits(np.bincount(np.minimum(right[:, group] // 4, 9)), shares)
        assert not fits(np.bincount(np.minimum(alone[:, group] // 4, 9), minlength=10), shares)
    assert abs(stats.pearsonr(right[:, 0], right[:, 1]).statistic) < 6 / np.sqrt(1000)


# What bulk makes of continuous people is exact.


@pytest.mark.large
@pytest.mark.parametrize("panel", [STEADY, Panel((4.0,)), Panel((-4.0,), nonresponse=(SILENT,))])
@pytest.mark.parametrize("population", [LOGNORMAL, Lognormal(20.0, 4.0), TWO.groups[1].people])
def test_cells_have_the_share_of_the_exact_distribution_function_and_the_mean_of_the_population(
    population: Lognormal | Mixture, panel: Panel
) -> None:
    domain = NumberDomain(0.0, 60.0)
    cells = cells_of(domain, population, panel, ROUNDS)
    assert cells.shares.sum() == pytest.approx(1, abs=1e-12)
    assert cells.shares @ cells.values == pytest.approx(population.mean, rel=1e-12)
    law = (
        stats.lognorm(population.sigma, scale=population.median)
        if isinstance(population, Lognormal)
        else stats.norm(population.parts[0].mean, population.parts[0].sd)
    )
    step = float(domain.step)
    for index in (1, 1000, 350_000, 524_288, 900_000, domain.steps - 1):
        low, high = domain.lower + (index - 0.5) * step, domain.lower + (index + 0.5) * step
        here = cells.indices == index
        assert cells.shares[here].sum() == pytest.approx(law.cdf(high) - law.cdf(low), rel=1e-4, abs=1e-16)
        assert ((low <= cells.values[here]) & (cells.values[here] <= high)).all()
    assert cells.shares @ cells.moved == pytest.approx(law.cdf(0.0) + law.sf(60.0), abs=1e-13)
    if cells.refusing is not None:
        assert cells.shares @ cells.refusing == pytest.approx(0.6 * law.sf(25.0), abs=1e-13)


def test_cells_that_drift_are_within_one_grid_point_in_every_round() -> None:
    domain, panel = NumberDomain(0.0, 60.0), Panel((7.7,))
    cells = cells_of(domain, LOGNORMAL, panel, ROUNDS)
    for round_ in range(ROUNDS):
        (by,) = panel.moved(domain, round_)
        moved = cells.at(domain, (by,))
        indices = [domain.index(float(value)).index for value in moved.values[::997]]
        assert moved.indices[::997].tolist() == indices
        assert moved.shares @ moved.moved == pytest.approx(stats.lognorm(0.7, scale=20.0, loc=by).sf(60.0), abs=1e-13)


def test_groups_of_vectors_drop_out_and_drift_as_arrays_do() -> None:
    """Means of each coordinate and group in the last round, six deviations wide."""
    people = [Independent((Mixture((Normal(1, mean, 0.5),)), Points((1.0, 2.0), (1.0, 1.0)))) for mean in (2.0, 5.0)]
    population = Grouped((Subgroup("x", 1.0, people[0]), Subgroup("y", 1.0, people[1])))
    panel = Panel((1.0, 0.5), Dropout(0.5), (Nonresponse(0.5, group="y"),))
    scenario = scenario_of("vector", population, panel)
    task = scenario.task()
    drawn = draw_devices(task, population, PEOPLE, (), 1, panel=panel, present=np.full((3, 1, 2), 0.5))
    truth = drawn.truths[-1]
    assert [group.means for group in truth.groups] == [
        pytest.approx((4.0, 2.5), abs=0.05),
        pytest.approx((7.0, 2.5), abs=0.05),
    ]
    assert abs(truth.groups[0].people - PEOPLE / 4) < 6 * np.sqrt(PEOPLE * 0.25 * 0.75)
    assert abs(truth.groups[1].people - PEOPLE / 8) < 6 * np.sqrt(PEOPLE / 8)
    assert drawn.tallies[-1].n == truth.people == sum(group.people for group in truth.groups)
