"""Estimates of many tallies at once are those of each tally alone."""

from dataclasses import replace

import numpy as np
import pytest

import hush
from hush_aggregator.estimate import Estimate, estimate, estimate_tallies
from hush_aggregator.tally import Tally
from hush_common.task import Task
from hush_simulations.engines.bulk.engine import draw_population
from hush_simulations.sweeps.evaluation import _cells

CLOSE = 1e-9
TRIALS = 12


def drawn(scenario: str, mechanism: str | None, people: int) -> tuple[Task, list[Tally]]:
    """Tallies of several trials, one without a report and two with other numbers of reports."""
    asked = hush.SCENARIOS[scenario]
    asked = (asked if mechanism is None else asked.asking(mechanism=mechanism)).of_size(people)
    task, found = asked.task(), []
    for seed, n, trials in ((1, people, TRIALS), (2, people + 1, 2)):
        rng, cells = np.random.default_rng(seed), _cells(task.domain, asked.population)
        found += draw_population(task, asked.population, n, (), rng, trials=trials, cells=cells).tallies(rng)
    return task, [*found, Tally()]


def figures(made: Estimate) -> list[float]:
    """Every number of an estimate, in one order."""
    found = [float(made.n)]
    for part in made.parts:
        found += [
            part.mean or 0.0,
            *part.stderr.values(),
            *part.stderr_plug_in.values(),
            *part.worst_case_bias.values(),
        ]
        found += [end for ends in part.intervals.values() for end in ends] + list(part.replacement_bias.values())
    return found


def words(made: Estimate) -> list[object]:
    return [made.monitor, *((part.name, part.unit, part.methods, part.failures) for part in made.parts)]


@pytest.mark.parametrize("people", [1, 60, 5000])
@pytest.mark.parametrize(
    ("scenario", "mechanism"),
    [("heights", "laplace"), ("heights", "multilevel"), ("heights", "table"), ("survey", None), ("commute", None)],
)
def test_each_of_many_estimates_is_the_one_of_its_tally(scenario: str, mechanism: str | None, people: int) -> None:
    task, tallies = drawn(scenario, mechanism, people)
    together = estimate_tallies(task, tallies, 0.95)
    assert len(together) == len(tallies)
    for tally, made in zip(tallies, together, strict=True):
        alone = estimate(task, tally, 0.95)
        assert words(made) == words(alone)
        np.testing.assert_allclose(figures(made), figures(alone), rtol=CLOSE, atol=CLOSE)


def test_estimates_of_enrolled_devices_are_those_of_each_tally() -> None:
    task, tallies = drawn("survey", None, 60)
    some = replace(task, enrolled=60)  # one tally has more reports than that
    for tally, made in zip(tallies, estimate_tallies(some, tallies, 0.9), strict=True):
        alone = estimate(some, tally, 0.9)
        assert words(made) == words(alone)
        np.testing.assert_allclose(figures(made), figures(alone), rtol=CLOSE, atol=CLOSE)


def test_a_tally_of_another_task_is_refused_among_others() -> None:
    task, tallies = drawn("survey", None, 60)
    with pytest.raises(ValueError, match="does not belong"):
        estimate_tallies(task, [*tallies, Tally(3, (4,))], 0.95)
