"""Liars and brokers that forget: whole tallies of real devices and of the bulk engine, held to the same exact moments.

Everybody who tells the truth has one value, so that the mean and the covariances of all sums of a tally follow from the
probability table of the device and the report that a liar forges. The distance of tallies from that mean, by those
covariances, is chi-squared: too large where a mean or a correlation is wrong or they vary too much, too small where too
little. Verdicts condemn the right law once in 10^6 seeds; seeds are fixed. A share of liars that is off is seen.
"""

import functools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tally_laws import of_devices
from virtual_time import in_virtual_time

import hush
from hush import Scenario
from hush_aggregator.estimate.mechanisms import fold
from hush_common.mechanisms import Mechanism
from hush_common.wire import Refusal
from hush_simulations.engines.bulk.engine import draw_rounds
from hush_simulations.engines.bulk.laws import law_of
from hush_simulations.engines.experiment import Drawing, Experiment, Outcome, bulk_experiment
from hush_simulations.engines.live import simulate
from hush_simulations.scenarios.behaviour import Faults, Liars
from hush_simulations.scenarios.population import Observed, Value

Floats = NDArray[np.float64]
FALSE_ALARM = 1e-6
CLIENTS, SEEDS = 400, 60


@dataclass(frozen=True)
class Case:
    """A scenario of one true value, and another that liars tell."""

    name: str
    true: Value
    false: Value


CASES = [
    Case("survey", 0, 1),
    Case("commute", "bus", "train"),
    Case("poisoned", 5.0, 20.0),
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


def scenario_of(case: Case, trouble: str) -> Scenario:
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
    edge = np.array(fold(mechanism, np.array([law_of(mechanism).extreme_body(mechanism)])).moments, dtype=float)
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


def by_devices(scenario: Scenario, case: Case, seed: int) -> Outcome:
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
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tallies_of_the_bulk_engine_have_the_moments_of_the_law(case: Case, trouble: str) -> None:
    scenario = scenario_of(case, trouble)
    drawings: dict[Drawing, int] = {"tally": SEEDS, "devices": 10}
    for drawing, seeds in drawings.items():
        tallies = [in_bulk(scenario, seed, drawing) for seed in range(seeds)]
        assert follows(scenario, case, tallies)
        if drawing == "tally" and scenario.liars and scenario.liars[0].lie != "replay":
            assert not follows(lied_less(scenario), case, tallies)


@pytest.mark.large
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("case", [CASES[1], CASES[2]], ids=lambda case: case.name)
def test_tallies_of_real_devices_have_them_too(case: Case, trouble: str) -> None:
    scenario = scenario_of(case, trouble)
    outcome = by_devices(scenario, case, 3)
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
