"""The bulk engine from Python: a seed repeats a run, and results are next to the truth of the people that it drew."""

import json
from collections.abc import Mapping

import numpy as np
import pytest

import hush
from hush import Scenario, Task
from hush_common.errors import OptionError
from hush_simulations.engines.bulk.cells import cells_of
from hush_simulations.engines.bulk.devices import draw_devices
from hush_simulations.engines.bulk.draws import SimulatedRounds
from hush_simulations.engines.bulk.engine import draw_population
from hush_simulations.engines.experiment import Drawing
from hush_simulations.scenarios.population import Observed, Population
from hush_simulations.scenarios.scenario import scenario_of_data

SCENARIOS: Mapping[str, Scenario] = {
    name: one
    for name, one in hush.SCENARIOS.items()
    if not one.faults and not one.liars and not one.panel and one.rounds == 1
}


def shares_of(task: Task) -> tuple[float, ...]:
    return (1 / len(task.offers),) * len(task.offers) if task.offers else ()


def devices(scenario: Scenario, clients: int) -> SimulatedRounds:
    task = scenario.task()
    return draw_devices(task, scenario.population, clients, shares_of(task), 7)


@pytest.mark.medium
@pytest.mark.parametrize("drawing", ["tally", "devices"])
@pytest.mark.parametrize("name", ["survey", "sleep", pytest.param("offices", marks=pytest.mark.large)])
def test_a_seed_repeats_a_run_and_another_gives_another(name: str, drawing: Drawing) -> None:
    first, again, other = (
        hush.simulate(name, engine="bulk", draw=drawing, clients=300, seed=seed).to_document() for seed in (5, 5, 6)
    )
    for document in (first, again, other):
        del document["elapsed_s"], document["reports_per_s"], document["result"]["updated_at"], document["seed"]
    assert first == again != other
    assert first["drawn"] == drawing


@pytest.mark.large
@pytest.mark.parametrize("drawing", ["tally", "devices"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_intervals_of_many_devices_hold_the_truth_of_those_drawn(name: str, drawing: Drawing) -> None:
    """At confidence 1 - 10^-6; `offices` moves values to the bounds, which no interval of so many knows of."""
    clients = 20_000 if name == "offices" else 200_000
    run = hush.simulate(name, engine="bulk", draw=drawing, clients=clients, seed=11, confidence=0.999999)
    assert run.accepted == clients
    assert run.covered
    assert all(run.covered.values())
    json.dumps(run.to_document(), allow_nan=False)


def test_a_billion_devices_are_a_matter_of_counts() -> None:
    run = hush.simulate("commute", engine="bulk", clients=10**9, seed=1, confidence=0.999999)
    assert (run.accepted, run.clients, run.drawing) == (10**9, 10**9, "tally")
    assert all(run.covered.values())


@pytest.mark.medium
def test_a_tally_has_no_figure_that_needs_each_report() -> None:
    run = hush.simulate("heights", engine="bulk", draw="tally", clients=10**6, seed=1)
    assert set(run.result.intervals) == {"reporters", "anytime", "anytime_population"}
    assert set(run.result.failures) == {"population", "monitor", "winsorised"}
    document = run.to_document()["result"]
    assert not {"monitor", "winsorised"} & document.keys()
    full = hush.simulate("heights", engine="bulk", draw="devices", clients=10**6, seed=1)
    assert not full.result.failures
    assert full.result.estimate.methods["reporters"] == run.result.estimate.methods["reporters"]


@pytest.mark.medium
def test_few_people_keep_the_interval_without_a_sample_variance() -> None:
    run = hush.simulate("heights", engine="bulk", draw="tally", clients=50, seed=1)
    assert run.result.estimate.methods["population"] == "laplace-popoviciu"
    assert set(run.result.failures) == {"monitor", "winsorised"}


TOLD: dict[str, tuple[Mapping[str, object], list[object]]] = {
    "numbers": ({"kind": "number", "lower": 0.0, "upper": 10.0}, [1.0, 12.0, None, -3.0, 5.5]),
    "bits": ({"kind": "bit"}, [1, 0, None, 1]),
    "categories": ({"kind": "category", "labels": ["a", "b", "c"]}, ["a", None, "c", "c"]),
    "vectors": (
        {"kind": "vector", "coordinates": [{"name": name, "lower": 0.0, "upper": 1.0} for name in "ab"]},
        [(0.5, None), (0.25, 2.0), (1.0, 0.5)],
    ),
}


@pytest.mark.medium
@pytest.mark.parametrize("kind", TOLD)
def test_own_values_have_the_same_truth_on_both_engines(kind: str) -> None:
    domain, data = TOLD[kind]
    runs = [
        hush.simulate(data=data, domain=domain, missing="replace", engine=engine, draw=draw, seed=1)
        for engine, draw in (("memory", None), ("bulk", "tally"), ("bulk", "devices"))
    ]
    assert runs[0].score.truth == runs[1].score.truth == runs[2].score.truth
    parts = [{name: part.truth for name, part in run.score.parts.items()} for run in runs]
    assert parts[0] == parts[1] == parts[2]
    assert runs[0].clamped == runs[1].clamped == runs[2].clamped
    assert [run.accepted for run in runs] == [len(data)] * 3


def test_rounds_have_fresh_noise_and_sticky_rounds_the_same_answers() -> None:
    for drawing in ("tally", "devices"):
        run = hush.simulate("survey", engine="bulk", draw=drawing, rounds=3, clients=1000, seed=3)
        tallies = {done.result.mean for done in run.rounds}
        assert len(tallies) == 3
        assert len({done.score.truth["reporters"] for done in run.rounds}) == 1
        sticky = SCENARIOS["survey"].asking(repeat="sticky")
        run = hush.simulate(sticky, engine="bulk", draw=drawing, rounds=4, clients=1000, seed=3)
        assert len({done.result.mean for done in run.rounds}) == 1


def test_vectors_in_several_rounds_are_drawn_by_device() -> None:
    run = hush.simulate("offices", engine="bulk", rounds=2, clients=1000, seed=3)
    assert run.drawing == "devices"
    with pytest.raises(OptionError, match=r"^draw: "):
        hush.simulate("offices", engine="bulk", draw="tally", rounds=2, clients=1000)


def test_choices_of_an_epsilon_follow_their_shares() -> None:
    for drawing in ("tally", "devices"):
        run = hush.simulate("sleep", engine="bulk", draw=drawing, clients=30_000, seed=3)
        taken = np.array(list(run.chosen.values()))
        assert taken.sum() == 30_000
        assert abs(taken - 10_000).max() < 600  # seven deviations


@pytest.mark.parametrize(
    "name", ["survey", "sleep", "commute", "heights", pytest.param("offices", marks=pytest.mark.medium)]
)
def test_all_trials_of_a_sweep_are_drawn_at_once(name: str) -> None:
    scenario = SCENARIOS[name]
    task, rng = scenario.task(), np.random.default_rng(1)
    groups = draw_population(task, scenario.population, 400, shares_of(task), rng, trials=50)
    tallies = groups.tallies(rng)
    truths = groups.truths()
    assert [tally.n for tally in tallies] == [400] * 50
    assert len(set(tallies)) > 25
    assert truths.sums.shape == truths.known.shape
    assert truths.sums.shape[0] == 50


def test_observed_people_answer_once_or_are_drawn_again() -> None:
    people: Population = Observed((1, 0, 1, 1), resampled=False)
    scenario = Scenario(SCENARIOS["survey"].document, people, 4)
    assert devices(scenario, 4).truth == (0.75,)
    again = devices(scenario.of_size(100_000), 100_000)
    assert again.truth[0] == pytest.approx(0.75, abs=0.01)


@pytest.mark.medium
def test_the_order_of_rows_does_not_change_the_tally() -> None:
    rows = tuple(float(100 * (place * 7919 % 20_011 < 10_000)) for place in range(20_011))
    domain = {"kind": "number", "lower": 0, "upper": 100}
    scenario = scenario_of_data(Observed(rows), domain).asking(mechanism="multilevel", epsilon="8")
    task, rng = scenario.task(), np.random.default_rng(1)
    people = scenario.of_size(10**6).population
    (tally,) = draw_population(task, people, 10**6, (), rng).tallies(rng)
    between = np.array(tally.moments[1:-1])  # nobody has these levels: each is reported as often as any other
    assert abs(between - between.mean()).max() < 7 * between.mean() ** 0.5
    assert abs(np.diff(cells_of(task.domain, people).coarse(64).values)).max() > 90
