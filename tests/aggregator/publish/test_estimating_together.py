"""Estimates of many tallies at once are those of each tally alone."""

from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest

import hush
from hush import Task
from hush_aggregator import Estimate, PartEstimate
from hush_aggregator.estimate import POPULATION, REPORTERS, _with_bounds_of_bias, estimate, estimate_tallies
from hush_aggregator.estimate.bounded_mean import Batches, Group, Sample, _coin
from hush_aggregator.estimate.diagnostics import replacement_bias
from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.estimate.numerics.quantiles import clopper_pearson_shares
from hush_aggregator.tally import Tally
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


def test_bounds_of_bias_leave_every_other_field_as_it_is() -> None:
    task = hush.SCENARIOS["heights"].task()
    every = {one.name: one.name for one in fields(PartEstimate)}
    part = PartEstimate(**{**every, "n": 5, "intervals": {}})  # type: ignore[arg-type]
    made = Estimate(**{**{one.name: one.name for one in fields(Estimate)}, "parts": (part,)})  # type: ignore[arg-type]
    (found,) = _with_bounds_of_bias([made], task)
    bias = replacement_bias(task.domain.parts[0])
    assert found == replace(made, parts=(replace(part, unit="cm", replacement_bias=bias, manski=None),))


@pytest.mark.parametrize("n", [1, 7, 300])
def test_the_limits_of_a_coin_are_exact_fractions_of_its_shares(n: int) -> None:
    channel = finite(hush.SCENARIOS["heights"].asking(mechanism="multilevel", epsilon="0.7").task().randomizer)
    no, yes = channel.rows[0][channel.used[1]], channel.rows[-1][channel.used[1]]
    methods = _coin(channel, n, 0.95, Batches())
    for k in {0, n // 3, n}:
        sample = Sample([Group(channel, (n - k, k) if channel.used[1] else (k, n - k))])
        ((low, high),) = clopper_pearson_shares([(n, k, 0.95)])
        least, most = Fraction(low), Fraction(high)
        apart = min(least, Fraction(k - 1, n)), max(most, Fraction(k + 1, n))
        for target, ends in ((POPULATION, (least, most)), (REPORTERS, apart)):
            assert methods[target][1](sample)() == tuple((end - no) / (yes - no) for end in ends)
