"""A long run says every few seconds how far it is; stopped, it counts and judges what was sent, and nothing else."""

import asyncio
import sys

import numpy as np
import pytest
from commands import without_progress

from hush import SCENARIOS, Run
from hush_simulations.display.progress import EVERY_S, progress_lines, show_progress
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import simulate


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_comes_every_few_seconds_however_often_something_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    tick = progress_lines("reports counted", 200_000, clock)
    for second in range(18):
        clock.now = 100.0 + second
        for _ in range(100):
            tick(1_000 * second)
    assert EVERY_S == 5
    printed = capsys.readouterr()
    assert printed == (
        "",
        (
            "hush: 5 000 of 200 000 reports counted (3 %), 5 s\n"
            "hush: 10 000 of 200 000 reports counted (5 %), 10 s, 3 min 10 s left\n"
            "hush: 15 000 of 200 000 reports counted (7 %), 15 s, 3 min left\n"
        ),
    )
    others = "hush: stopped: 7 of 45 cells are kept in out\n"
    assert without_progress(printed.err + others) == others  # what tests of slow machines leave out


def test_in_a_pipe_a_run_that_takes_a_moment_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with show_progress(10) as (progress, look):
        assert progress is not None
        progress(10)
    assert look is None
    assert capsys.readouterr() == ("", "")


async def test_a_run_that_is_stopped_judges_exactly_those_who_answered() -> None:
    scenario = SCENARIOS["heights"].asking(rounds=3, round_every="1d", opens="2026-01-01T00:00:00Z")
    values = tuple(scenario.population.draw(5_000, np.random.default_rng(3)))
    experiment = Experiment(scenario=scenario, values=values, engine="memory", noise_seed=1)
    stop = asyncio.Event()

    def progress(counted: int) -> None:
        if counted > 5_500:
            stop.set()

    done = Run.of(experiment, await simulate(experiment, progress, stop=stop))
    assert done.stopped
    first, second = done.rounds
    assert first.result.n == len(first.reporters) == 5_000
    assert 500 < second.result.n == len(second.reporters) < 5_000
    assert done.truth["reporters"] == pytest.approx(np.mean([values[device] for device in second.reporters]))
    assert done.lost == 0
