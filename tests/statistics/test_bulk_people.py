"""Two engines, the same people: where they are, who answers, who lies and what a broker forgets.

People of the bulk engine, as counts and as arrays, are compared with those of real devices by chi-squared in each
round. Tallies with liars and losses are held to exact moments: where everybody who tells the truth has one value, the
mean and the covariances of all sums follow from the table of the device and from what a liar forges. Verdicts condemn
the right law once in 10^6 seeds; seeds are fixed. Each case has a twin that must be condemned.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from tally_laws import of_devices
from virtual_time import in_virtual_time

import hush
from hush import Scenario, Task
from hush_aggregator.estimate.mechanisms import fold
from hush_common.domain import NumberDomain
from hush_common.mechanisms import Mechanism
from hush_common.wire import Refusal
from hush_simulations.engines.bulk import laws
from hush_simulations.engines.bulk.cells import cells_of
from hush_simulations.engines.bulk.devices import PopulationSampler, draw_devices
from hush_simulations.engines.bulk.engine import CellCounts, draw_population, draw_rounds
from hush_simulations.engines.experiment import Drawing, Experiment, Outcome, bulk_experiment
from hush_simulations.engines.live import Attendance, simulate
from hush_simulations.scenarios.behaviour import STEADY, Dropout, Faults, Liars, Nonresponse, Panel
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
    Value,
    zipf_numbers,
    zipf_weights,
)
from hush_simulations.scenarios.scenario import draw_people

Floats = NDArray[np.float64]
Table = NDArray[np.int64]
Fits = Callable[[ArrayLike, ArrayLike], bool]
FALSE_ALARM = 1e-6
PEOPLE, ROUNDS, BINS = 20_000, 3, 12
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
        Panel(nonresponse=(Nonresponse(0.4, values=(1,)),)),
    ),
    "non-response above": (
        "number", LOGNORMAL, Panel((2.0,), nonresponse=(SILENT,)),
        LOGNORMAL, Panel((2.0,), nonresponse=(replace(SILENT, above=29.0),)),
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


@pytest.mark.medium
@pytest.mark.parametrize("way", ["devices", "counts"])
def test_devices_of_one_group_drop_out_together(way: str, fits: Fits) -> None:
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


@pytest.mark.medium
@pytest.mark.parametrize("panel", [STEADY, Panel((4.0,)), Panel((-4.0,), nonresponse=(SILENT,))])
@pytest.mark.parametrize("population", [LOGNORMAL, Lognormal(20.0, 4.0), TWO.groups[1].people])
def test_cells_have_the_shares_and_the_mean_of_the_population(population: Lognormal | Mixture, panel: Panel) -> None:
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


@pytest.mark.medium
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


# ---- liars and brokers that forget

CLIENTS, SEEDS = 400, 40


@dataclass(frozen=True)
class Case:
    """A scenario of one true value, and another that liars tell."""

    name: str
    true: Value
    false: Value


TOLD = [
    Case("survey", 0, 1),
    Case("commute", "bus", "train"),
    Case("offices", (15.0, 10.0, 900.0, 60.0), (35.0, 100.0, 3000.0, 100.0)),
]
TROUBLES: dict[str, tuple[Faults, tuple[Liars, ...]]] = {
    "a value": (Faults(), (Liars(0.25, "value", 0),)),
    "a value by many identities": (Faults(), (Liars(0.05, "value", 0, reports=4),)),
    "the edge": (Faults(), (Liars(0.25, "edge"),)),
    "its own report again": (Faults(), (Liars(0.25, "replay", reports=2),)),
    "two kinds": (Faults(), (Liars(0.1, "edge", reports=2), Liars(0.2, "value", 0))),
    "a broker that forgets": (Faults(forgotten=0.3), ()),
    "links that double, delay and reorder": (Faults(twice=0.2, late=0.1, reordered=0.2), ()),
    "links that die": (Faults(lost=0.01, cut=0.01), ()),
}


def troubled(case: Case, trouble: str) -> Scenario:
    faults, liars = TROUBLES[trouble]
    told = tuple(replace(some, value=case.false) if some.lie == "value" else some for some in liars)
    people = Observed((case.true,) * CLIENTS)
    shipped = hush.SCENARIOS[case.name]
    return replace(shipped, population=people, clients=CLIENTS, faults=faults, liars=told, rounds=1)


@functools.cache
def moments(mechanism: Mechanism, index: int | tuple[int, ...]) -> tuple[Floats, Floats]:
    """Mean and covariances of what one report adds to a tally."""
    bodies = list(mechanism.outputs())
    adding = np.array(of_devices(mechanism, np.array(bodies)[:, None, :]), dtype=float)
    table = np.array([float(mechanism.probability(body, index)) for body in bodies])
    mean = table @ adding
    return mean, (adding - mean).T @ ((adding - mean) * table[:, None])


def expected(scenario: Scenario, case: Case, n: int) -> tuple[Floats, Floats]:
    """Mean and covariances of the tally, of so many reports where a broker forgets."""
    task = scenario.task()
    mechanism = task.randomizer
    assert isinstance(mechanism, Mechanism)
    true, false = (moments(mechanism, task.domain.index(value).index) for value in (case.true, case.false))
    edge = np.array(fold(mechanism, np.array([laws.law_of(mechanism).extreme_body(mechanism)])).moments, dtype=float)
    lying = [(some, some.among(CLIENTS)) for some in scenario.liars]
    honest = n - sum(count * (1 if some.lie == "replay" else some.reports) for some, count in lying)
    honest += sum(count for some, count in lying if some.lie == "replay")
    mean, spread = honest * true[0], honest * true[1]
    for some, count in lying:
        if some.lie == "value":
            mean, spread = mean + count * some.reports * false[0], spread + count * some.reports * false[1]
        if some.lie == "edge":
            mean = mean + count * some.reports * edge
    return mean, spread


def follows(scenario: Scenario, case: Case, tallies: list[tuple[int, tuple[int, ...]]]) -> bool:
    distance, freedom = 0.0, 0
    for n, sums in tallies:
        mean, spread = expected(scenario, case, n)
        values, vectors = np.linalg.eigh(spread)
        free = values > 1e-9 * values.max()
        off = vectors.T @ (np.array(sums) - mean)
        if abs(off[~free]).max(initial=0.0) > 1e-6 * n:  # what cannot vary
            return False
        distance += float((off[free] ** 2 / values[free]).sum())
        freedom += int(free.sum())
    tail = stats.chi2(freedom)
    return bool(min(tail.cdf(distance), tail.sf(distance)) > FALSE_ALARM / 2)


def reported(scenario: Scenario, case: Case, seed: int) -> Outcome:
    experiment = Experiment(
        scenario=scenario, values=[case.true] * CLIENTS, engine="memory", connections=4, noise_seed=seed, seed=seed
    )
    return in_virtual_time(simulate(experiment))


def in_bulk(scenario: Scenario, seed: int, drawing: Drawing) -> tuple[int, tuple[int, ...]]:
    (tally,) = draw_rounds(bulk_experiment(scenario, (), seed, confidence=0.95, drawing=drawing)).tallies
    return tally.n, tally.moments


def lied_less(scenario: Scenario) -> Scenario:
    return replace(scenario, liars=tuple(replace(some, share=some.share * 0.6) for some in scenario.liars))


@pytest.mark.large
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("case", [TOLD[0], TOLD[2]], ids=lambda case: case.name)
def test_tallies_of_the_bulk_engine_have_the_moments_of_the_law(case: Case, trouble: str) -> None:
    scenario = troubled(case, trouble)
    drawings: dict[Drawing, int] = {"tally": SEEDS, "devices": 10}
    for drawing, seeds in drawings.items():
        tallies = [in_bulk(scenario, seed, drawing) for seed in range(seeds)]
        assert follows(scenario, case, tallies)
        if drawing == "tally" and scenario.liars and scenario.liars[0].lie != "replay":
            assert not follows(lied_less(scenario), case, tallies)


@pytest.mark.medium
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("case", [TOLD[1]], ids=lambda case: case.name)
def test_tallies_of_real_devices_have_them_too(case: Case, trouble: str) -> None:
    scenario = troubled(case, trouble)
    outcome = reported(scenario, case, 3)
    done = outcome.rounds[0]
    tally = fold(outcome.task.randomizer, done.received.bodies)
    assert follows(scenario, case, [(tally.n, tally.moments)])
    if scenario.liars and scenario.liars[0].lie == "replay":
        assert done.result.refused == {Refusal.DUPLICATE: 2 * CLIENTS // 4}
    elif trouble in {"a value", "the edge"}:  # so many that one tally shows it
        honest = replace(scenario, liars=())
        assert not follows(honest, case, [(tally.n, tally.moments)])
    if scenario.faults.forgotten:
        assert abs(tally.n - 0.7 * CLIENTS) < 6 * (CLIENTS * 0.21) ** 0.5
    else:
        extra = sum(some.among(CLIENTS) * (some.reports - 1) for some in scenario.liars if some.lie != "replay")
        assert tally.n == CLIENTS + extra
