"""Estimates of many tallies at once are those of each tally alone."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import hush
from hush import Task
from hush_aggregator import Estimate
from hush_aggregator.estimate import estimate, estimate_tallies
from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.numerics.quantiles import clopper_pearson_shares
from hush_aggregator.estimate.tally import Tally
from hush_common.task import make_task
from hush_simulations.engines.bulk.engine import draw_population

CLOSE = 1e-9


def drawn(scenario: str, mechanism: str | None, people: int) -> tuple[Task, list[Tally]]:
    """Tallies of several trials, one without a report and two with other numbers of reports."""
    asked = hush.SCENARIOS[scenario]
    asked = (asked if mechanism is None else asked.asking(mechanism=mechanism)).of_size(people)
    task, found = asked.task(), list[Tally]()
    for seed, n, trials in ((1, people, 6), (2, people + 1, 2)):
        rng = np.random.default_rng(seed)
        found += draw_population(task, asked.population, n, (), rng, trials=trials).tallies(rng)
    return task, [*found, Tally()]


def figures(made: Estimate) -> list[float]:
    """Every number of an estimate, in one order."""
    found = [float(made.n)]
    for part in made.parts:
        facts = (part.stderr, part.stderr_plug_in, part.worst_case_bias, part.replacement_bias)
        found += [part.mean or 0.0, *(number for fact in facts for number in fact.values())]
        found += [end for ends in part.intervals.values() for end in ends]
    return found


def words(made: Estimate) -> list[object]:
    return [made.monitor, *((part.name, part.unit, part.methods, part.failures) for part in made.parts)]


def assert_same(together: list[Estimate], task: Task, tallies: list[Tally], confidence: float) -> None:
    assert len(together) == len(tallies)
    for tally, made in zip(tallies, together, strict=True):
        alone = estimate(task, tally, confidence)
        assert words(made) == words(alone)
        np.testing.assert_allclose(figures(made), figures(alone), rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("people", [1, 60, pytest.param(5000, marks=pytest.mark.medium)])
@pytest.mark.parametrize(
    ("scenario", "mechanism"),
    [("heights", "laplace"), ("heights", "multilevel"), ("heights", "table"), ("survey", None), ("commute", None)],
)
def test_each_of_many_estimates_is_the_one_of_its_tally(scenario: str, mechanism: str | None, people: int) -> None:
    task, tallies = drawn(scenario, mechanism, people)
    assert_same(estimate_tallies(task, tallies, 0.95), task, tallies, 0.95)


def test_estimates_of_enrolled_devices_are_those_of_each_tally() -> None:
    task, tallies = drawn("survey", None, 60)
    some = replace(task, enrolled=60)  # two tallies have more reports than that
    assert_same(estimate_tallies(some, tallies, 0.9), some, tallies, 0.9)


def test_a_tally_of_another_task_is_refused_among_others() -> None:
    task, tallies = drawn("survey", None, 60)
    with pytest.raises(ValueError, match="tally"):
        estimate_tallies(task, [*tallies, Tally(3, (4,))], 0.95)


@pytest.mark.parametrize(("n", "k"), [(300, 150), (4000, 1700)])
def test_the_limits_of_a_coin_are_exact_fractions_of_its_shares(n: int, k: int) -> None:
    task = hush.SCENARIOS["heights"].asking(mechanism="multilevel", epsilon="0.7").task()
    channel = finite(task.randomizer)
    no, yes = channel.rows[0][channel.used[1]], channel.rows[-1][channel.used[1]]
    bodies = np.array([(1,)] * k + [(0,)] * (n - k), dtype=np.int64)
    made = estimate(task, fold(task.randomizer, bodies), 0.95)
    ((lowest, highest),) = clopper_pearson_shares([(n, k, 0.95)])
    least, most = Fraction(lowest), Fraction(highest)
    apart = min(least, Fraction(k - 1, n)), max(most, Fraction(k + 1, n))
    lower, upper = task.domain.parts[0].lower, task.domain.parts[0].upper
    for target, ends in (("population", (least, most)), ("reporters", apart)):
        step = (upper - lower) / 2**21  # by so much a value may have moved to the grid
        low, high = [lower + float((end - no) / (yes - no)) * (upper - lower) for end in ends]
        exact = [low - step, high + step]
        assert made.intervals[target] == pytest.approx(exact, rel=1e-12)
        assert lower < exact[0] < exact[1] < upper


def noise(confidence: float, counts: Mapping[float, int]) -> float:
    """How large a sum of Laplace noise is at most, so surely: by inverting its characteristic function (Gil-Pelaez)."""
    from scipy.integrate import quad  # noqa: PLC0415 - of this test alone
    from scipy.optimize import brentq  # noqa: PLC0415 - as above

    def transform(t: float) -> float:
        return float(np.prod([(1 + (t / epsilon) ** 2) ** -float(count) for epsilon, count in counts.items()]))

    def inside(x: float) -> float:
        turns = [k * np.pi / x for k in range(1, int(3 * x / np.pi) + 1)]
        return 2 / np.pi * float(quad(lambda t: np.sin(t * x) / t * transform(t), 0, 3, points=turns, limit=500)[0])

    return float(brentq(lambda x: inside(x) - confidence, 1, 200, xtol=1e-11))


@pytest.mark.medium
def test_one_device_of_great_noise_among_many_leaves_an_exact_interval() -> None:
    number = {"kind": "number", "lower": 0.0, "upper": 1000.0}
    task = make_task({"id": "mixed", "epsilon": "4", "offers": ["0.1", "4"], "domain": number})
    n = 1001
    bodies = np.array([(0, 1 << 19)] + [(1, 1 << 19)] * (n - 1), dtype=np.int64)
    made = estimate(task, fold(task.randomizer, bodies), 0.95)
    half = 1000 * noise(0.95, {0.1: 1, 4.0: n - 1}) / n + 1000 / 2**21
    assert made.single.methods["reporters"] == "laplace-mixed-exact"
    assert made.intervals["reporters"] == pytest.approx([500 - half, 500 + half], rel=1e-7)
