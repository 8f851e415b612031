"""What a simulation shows when an interval, or a whole estimate, could not be made."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rendered import rendered

from hush import SCENARIOS, Run, Task
from hush_aggregator import Estimate, PartEstimate, estimation
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.estimates import Intervals
from hush_aggregator.tally import Tally
from hush_simulations.display.progress import estimates_so_far
from hush_simulations.display.run_figure import picture_of
from hush_simulations.display.style import write_picture
from hush_simulations.display.table import run_blocks
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import simulate
from hush_simulations.results.run import score

EVERYTHING = "everything"


def left(intervals: Intervals, target: str) -> Intervals:
    return {name: ends for name, ends in intervals.items() if name != target}


def without(part: PartEstimate, target: str) -> PartEstimate:
    """A part of an estimate whose interval failed."""
    return replace(
        part,
        intervals=left(part.intervals, target),
        joint_intervals=left(part.joint_intervals, target),
        failures={target: "not_finite"},
    )


def plant(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    def planted(task: Task, tally: Tally, confidence: float) -> Estimate:
        if failing == EVERYTHING and tally.n:
            raise ArithmeticError
        made = estimate(task, tally, confidence)
        return replace(made, parts=tuple(without(one, failing) for one in made.parts))

    monkeypatch.setattr(estimation, "estimate", planted)
    monkeypatch.setattr("hush_simulations.display.style.DPI", 20)


async def run(name: str, rounds: int) -> Run:
    scenario = SCENARIOS[name]
    values = tuple(scenario.population.draw(12, np.random.default_rng(1)))
    choices = [number % len(scenario.task().offers) for number in range(12)] if scenario.task().offers else []
    if rounds > 1:
        scenario = scenario.asking(rounds=rounds, round_every="1d", opens="2026-01-01T00:00:00Z")
    experiment = Experiment(
        scenario=scenario, values=values, choices=choices, engine="memory", connections=2, noise_seed=1
    )
    return Run.of(experiment, await simulate(experiment))


def table(done: Run) -> str:
    return rendered(run_blocks(done))


@pytest.mark.large
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
    done = await run(name, rounds)
    text = table(done)
    assert len(write_picture(picture_of(done), tmp_path, "result")) == 2
    assert bool(estimates_so_far(done.result)) == (failing == "reporters")
    assert done.result.n == 12
    if (name, rounds) == ("heights", 1):
        whole = failing == EVERYTHING
        assert ("none: it failed" in text) == whole
        assert ("estimate (not_finite)" if whole else "reporters (not_finite)") in text
        assert ("95 % interval, population" in text) != whole


async def test_a_band_that_failed_is_not_seen_live(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "anytime")
    for name in ("heights", "commute", "offices"):
        assert estimates_so_far((await run(name, 1)).result) == []


async def test_joint_intervals_are_judged_where_every_category_has_them() -> None:
    done = await run("commute", 1)
    made = done.result.estimate
    partly = replace(made, parts=(without(made.parts[0], "reporters"), *made.parts[1:]))
    mean = done.experiment.scenario.population.mean
    judged = score(done.task.domain, partly, done.experiment.values, mean)
    assert judged.joint.keys() == done.score.joint.keys() - {"reporters"}
    assert "reporters" in done.score.joint
