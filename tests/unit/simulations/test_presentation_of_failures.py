"""What a simulation shows when an interval, or a whole estimate, could not be made."""

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hush_aggregator import estimating
from hush_aggregator.estimate import Estimate, estimate
from hush_aggregator.tally import Tally
from hush_common.task import Task
from hush_simulations.display.figure import draw
from hush_simulations.display.progress import bands
from hush_simulations.display.table import print_table
from hush_simulations.engines.experiment import Experiment, Outcome
from hush_simulations.engines.live import simulate
from hush_simulations.results.result import document
from hush_simulations.results.score import score
from hush_simulations.scenarios.library import SCENARIOS

EVERYTHING = "everything"


def without(fact: Mapping[str, Any], target: str) -> dict[str, Any]:
    """A part of an estimate whose interval failed."""
    left = {kind: {t: ends for t, ends in fact[kind].items() if t != target} for kind in fact if "intervals" in kind}
    return {**fact, **left, "failures": {target: "not_finite"}}


def plant(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    def planted(task: Task, tally: Tally, confidence: float) -> Estimate:
        if failing == EVERYTHING and tally.n:
            raise ArithmeticError
        made = estimate(task, tally, confidence)
        facts = {"intervals": made.intervals}
        return replace(
            made,
            intervals=without(facts, failing)["intervals"],
            categories=[without(fact, failing) for fact in made.categories],
            coordinates=[without(fact, failing) for fact in made.coordinates],
            failures={failing: "not_finite"} if made.intervals else {},
        )

    monkeypatch.setattr(estimating, "estimate", planted)
    monkeypatch.setattr("hush_simulations.display.figure._DPI", 20)


async def run(name: str, rounds: int) -> tuple[dict[str, Any], Experiment, Outcome]:
    scenario = SCENARIOS[name]
    values = tuple(scenario.population.draw(12, np.random.default_rng(1)))
    choices = [number % len(scenario.task().offers) for number in range(12)] if scenario.task().offers else []
    if rounds > 1:
        scenario = scenario.asking(rounds=rounds, round_every="1d", opens="2026-01-01T00:00:00Z")
    experiment = Experiment(
        scenario=scenario, values=values, choices=choices, engine="memory", connections=2, noise_seed=1
    )
    outcome = await simulate(experiment)
    return document(experiment, outcome, 1), experiment, outcome


def table(found: dict[str, Any], outcome: Outcome) -> str:
    stream = io.StringIO()
    print_table(found, outcome, Console(file=stream, width=100))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "rounds", "failing"),
    [
        ("heights", 1, "reporters"),
        ("heights", 2, "reporters"),
        ("commute", 1, "reporters"),
        ("offices", 1, "reporters"),
        ("heights", 1, EVERYTHING),
        ("offices", 1, EVERYTHING),
    ],
)
async def test_what_is_there_is_shown_and_what_failed_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, rounds: int, failing: str
) -> None:
    plant(monkeypatch, failing)
    found, experiment, outcome = await run(name, rounds)
    text = table(found, outcome)
    draw(tmp_path / "result.png", found, experiment, outcome)
    assert bool(bands(found["result"])) == (failing == "reporters")
    assert found["result"]["n"] == 12
    if (name, rounds) == ("heights", 1):
        whole = failing == EVERYTHING
        assert ("none: it failed" in text) == whole
        assert ("estimate (not_finite)" if whole else "reporters (not_finite)") in text
        assert ("95 % interval, population" in text) != whole


async def test_a_band_that_failed_is_not_seen_live(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "anytime")
    for name in ("heights", "commute", "offices"):
        found, _, _ = await run(name, 1)
        assert bands(found["result"]) == []


async def test_joint_intervals_are_judged_where_every_category_has_them() -> None:
    found, experiment, outcome = await run("commute", 1)
    result = dict(outcome.rounds[0].result)
    result["categories"] = [without(result["categories"][0], "reporters"), *result["categories"][1:]]
    judged = score(experiment.scenario.task().domain, result, experiment.values, experiment.scenario.population.mean)
    assert judged.covered["joint"].keys() == found["covered"]["joint"].keys() - {"reporters"}
    assert "reporters" in found["covered"]["joint"]
