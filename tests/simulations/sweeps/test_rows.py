"""Rows of a sweep: their figures are those of the trials, theory is the law of the reports; wrong ones are caught."""

from dataclasses import replace
from functools import cache
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from hush import SweepRow
from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_simulations.sweeps.cell import CellWork
from hush_simulations.sweeps.evaluation import evaluate_cell, experiment_of, trials_of
from hush_simulations.sweeps.result import LAST, TOGETHER
from hush_simulations.sweeps.sweep import Sweep, bases_of, read_grid

ERROR = 6  # standard deviations: a false alarm in 10^9


def works(scenario: str, trials: int, **axes: list[object]) -> list[CellWork]:
    grid = read_grid({name.replace("__", "."): values for name, values in axes.items()})
    return Sweep(bases_of(scenario, grid), grid, trials, 7, 0.95).works()


@cache
def rows(scenario: str, mechanism: str | None, clients: int, trials: int = 250) -> list[SweepRow]:
    axes: dict[str, list[object]] = {"population__clients": [clients]}
    if mechanism is not None:
        axes["task__mechanism"] = [mechanism]
    (work,) = works(scenario, trials, **axes)
    return evaluate_cell(work)


CASES = [
    ("heights", "laplace"),
    ("heights", "multilevel"),
    ("heights", "table"),
    ("survey", None),
    ("commute", None),
    ("offices", None),
    ("sleep", None),
]


def is_off(row: SweepRow, theory: float) -> bool:
    """Whether an error is not of this deviation: for errors that are about normal, the rmse has one of 1/sqrt(2t)."""
    assert row.rmse is not None
    return abs(row.rmse / theory - 1) > ERROR / sqrt(2 * row.trials)


@pytest.mark.medium
@pytest.mark.parametrize(("scenario", "mechanism"), CASES)
def test_the_error_of_many_trials_is_what_theory_says(scenario: str, mechanism: str | None) -> None:
    found = [row for row in rows(scenario, mechanism, 4000) if row.theory_stderr is not None and row.scope == LAST]
    assert {row.target for row in found} == {REPORTERS, POPULATION}
    for row in found:
        assert row.theory_stderr is not None
        assert not is_off(row, row.theory_stderr), (row.part, row.target)
        assert is_off(row, 1.6 * row.theory_stderr)
        assert is_off(row, row.theory_stderr / 1.6)


@pytest.mark.medium
def test_theory_tells_the_reporters_from_the_population() -> None:
    (work,) = works("heights", 300, task__mechanism=["table"], task__epsilon=[8], population__clients=[2000])
    (one, other) = (
        next(row for row in evaluate_cell(work) if row.interval == name) for name in (REPORTERS, POPULATION)
    )
    assert one.theory_stderr is not None
    assert other.theory_stderr is not None
    assert not is_off(one, one.theory_stderr)
    assert not is_off(other, other.theory_stderr)
    assert is_off(other, one.theory_stderr)


@pytest.mark.medium
def test_each_figure_is_that_of_the_estimates_of_the_aggregator() -> None:
    (work,) = works("heights", 30, task__mechanism=["multilevel"], task__epsilon=[4], population__clients=[300])
    experiment = experiment_of(work)
    trials = list(trials_of(work, experiment))
    made = [estimate(experiment.task, trial.tallies[-1], 0.95) for trial in trials]
    row = next(row for row in evaluate_cell(work) if row.interval == REPORTERS)
    errors = [float(one.mean or 0) - float(trial.truth[0] or 0) for one, trial in zip(made, trials, strict=True)]
    ends = [one.intervals[REPORTERS] for one in made]
    held = sum(low <= float(trial.truth[0] or 0) <= high for (low, high), trial in zip(ends, trials, strict=True))
    assert row.bias == np.mean(errors)
    assert row.bias_stderr == pytest.approx(np.std(errors, ddof=1) / sqrt(30))
    assert row.rmse == pytest.approx(sqrt(np.mean(np.square(errors))))
    assert (row.covered, row.made, row.failures, row.estimates) == (held, 30, 0, 30)
    assert row.mean_width == np.mean([high - low for low, high in ends])
    assert row.method == made[0].methods[REPORTERS]


def test_an_interval_that_no_trial_has_is_a_row_with_a_reason() -> None:
    missing = next(row for row in rows("heights", "laplace", 4000) if row.interval == POPULATION)
    assert (missing.made, missing.failures, missing.coverage, missing.mean_width) == (0, 250, None, None)
    assert missing.failure
    assert missing.rmse is not None
    (work,) = works("heights", 3, population__clients=[200])
    drawn = next(row for row in evaluate_cell(replace(work, drawing="devices")) if row.interval == POPULATION)
    assert (drawn.made, drawn.failures, drawn.method) == (3, 0, "student-t")


@pytest.mark.medium
def test_lies_are_bias_and_take_coverage_away() -> None:
    honest, lying = (
        next(row for row in evaluate_cell(work) if row.interval == REPORTERS)
        for work in works("poisoned", 60, liars__share=[0.0, 0.2])
    )
    assert (honest.liars, lying.liars) == (0.0, 0.2)
    assert honest.bias is not None
    assert honest.bias_stderr is not None
    assert lying.bias is not None
    assert lying.bias_stderr is not None
    assert abs(honest.bias) < ERROR * honest.bias_stderr
    assert lying.bias > 10 * lying.bias_stderr
    assert (lying.coverage, lying.theory_stderr) == (0.0, None)
    assert (honest.coverage or 0) > 0.8


@pytest.mark.medium
def test_rounds_are_judged_individually_and_together() -> None:
    (work,) = works("heights", 200, rounds=[4], population__clients=[300])
    found = evaluate_cell(work)
    last, together = (
        next(row for row in found if row.scope == scope and row.interval == REPORTERS) for scope in (LAST, TOGETHER)
    )
    for row in (last, together):
        assert row.theory_stderr is not None
        assert not is_off(row, row.theory_stderr)
    assert is_off(last, together.theory_stderr or 0)


def test_more_trials_change_none_before_them() -> None:
    (work,) = works("survey", 25, population__clients=[50])
    tallies = [trial.tallies for trial in trials_of(work, experiment_of(work))]
    assert len(tallies) == 25
    assert len(set(tallies[:10])) > 3
    assert tallies[:10] != tallies[10:20]
    more = [trial.tallies for trial in trials_of(replace(work, trials=30), experiment_of(work))]
    assert more[:20] == tallies[:20]


def test_a_path_is_relative_to_the_file_of_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("height\n170\n181\n165\n", encoding="utf-8")
    (tmp_path / "own.toml").write_text(
        '[task]\nid = "own"\nepsilon = "1"\n[task.domain]\nkind = "number"\nlower = 120.0\nupper = 220.0\n'
        '[population]\nkind = "csv"\nfile = "people.csv"\ncolumn = "height"\n',
        encoding="utf-8",
    )
    grid = read_grid({"task.epsilon": [1, 2], "population.clients": [3, 500]})
    found = Sweep(bases_of("own.toml", grid, tmp_path / "sweep.toml"), grid, 5, 1, 0.95).works()
    assert [work.scenario.clients for work in found] == [3, 500, 3, 500]
    for work in found:
        assert {row.target for row in evaluate_cell(work) if row.made} == {REPORTERS, POPULATION}
