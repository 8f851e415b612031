"""The values for which a normal interval covers least: searched for, and those that an earlier rule missed."""

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
from covering import levels
from covering.cells import BAR, RUNS, Array, law
from covering.laws import outcomes
from covering.levels import Question
from covering.predicates import Runs, predicate
from covering.searched import KINDS, noisiest, searched, start, worst
from scipy import stats

from hush import Task
from hush_aggregator.estimate import POPULATION, REPORTERS, estimate, estimate_tallies
from hush_aggregator.estimate.bounded_mean import is_normal
from hush_aggregator.estimate.finite_channel import FiniteChannel, finite
from hush_aggregator.tally import Tally
from hush_common.task import make_task

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
CLOSE = 1e-9
Limits = dict[str, tuple[Array, Array]]


def number(mechanism: str, epsilon: str) -> Task:
    return make_task({"id": "t", "epsilon": epsilon, "domain": NUMBER, "mechanism": mechanism})


def first_normal(of: FiniteChannel, confidence: float) -> int:
    return next(n for n in range(2, 10**6) if is_normal(((of, n),), confidence))


def standard_errors(coverage: float, confidence: float) -> float:
    return (coverage - confidence) / sqrt(confidence * (1 - confidence) / RUNS)


def student_capped(of: FiniteChannel, counts: Array, confidence: float) -> tuple[Array, Array]:
    """What is wrong: a sum that is taken for smooth, and the smaller of the sample variance and the largest noise."""
    n = counts[0].sum()
    center = counts @ of.a / n
    variance = np.clip((counts @ of.a**2 - n * center**2) / (n - 1), *of.variances)
    half = stats.t.isf((1 - confidence) / 2, n - 1) * np.sqrt(variance / n)
    return center - half, center + half


def least_coverage(ends: Callable[[Array], Limits], of: FiniteChannel, n: int) -> dict[str, float]:
    """Of each interval, where all devices hold one value: exactly, at the worst of some values near the noisiest."""
    counts = outcomes(n, len(of.used))
    found: dict[str, float] = {}
    intervals = ends(counts)
    for x in np.clip(noisiest(of) + np.linspace(-0.1, 0.1, 21), 0, 1):
        weights = stats.multinomial.pmf(counts, n, law(of, x) / law(of, x).sum())
        for name, (low, high) in intervals.items():
            covered = float(weights[(low - CLOSE <= x) & (x <= high + CLOSE)].sum())
            found[name] = min(found.get(name, 1.0), covered)
    return found


@pytest.mark.parametrize(
    ("epsilon", "confidence", "more"),
    [
        ("1.3", 0.5, 3),
        pytest.param("1.24", 0.8, 1, marks=pytest.mark.large),
        pytest.param("1.43", 0.8, 5, marks=pytest.mark.large),
        pytest.param("1.7", 0.5, 1, marks=pytest.mark.large),
    ],
)
def test_values_of_the_largest_noise_are_covered_exactly(epsilon: str, confidence: float, more: int) -> None:
    task = number("multilevel", epsilon)
    of = finite(task.randomizer)
    n = first_normal(of, confidence) + more

    def intervals(counts: Array) -> Limits:
        tallies = [Tally(n, tuple(row)) for row in counts.astype(int).tolist()]
        given = [one.parts[0].intervals for one in estimate_tallies(task, tallies, confidence)]
        shipped = {
            target: (np.array([one[target][0] for one in given]), np.array([one[target][1] for one in given]))
            for target in (REPORTERS, POPULATION)
        }
        return shipped | {"wrong": student_capped(of, counts, confidence)}

    found = least_coverage(intervals, of, n)
    assert standard_errors(found["wrong"], confidence) < BAR
    for target in (REPORTERS, POPULATION):
        assert found[target] >= confidence, target


def held(task: Task, counts: Array, confidence: float, target: str, truth: float) -> float:
    """By the rule of the product, and checked against what it publishes for the runs at the edge."""
    method = estimate(task, Tally(int(counts[0].sum()), _every(task, counts[0])), confidence).methods[target]
    question = Question(task, int(counts[0].sum()), confidence, target=target, method=method)
    return float(question.holds(counts, truth).mean())


def _every(task: Task, row: Array) -> tuple[int, ...]:
    of = finite(task.randomizer)
    counts = [0] * len(of.positions)
    for y, count in zip(of.used, row.astype(int).tolist(), strict=True):
        counts[y] = count
    return tuple(counts)


def test_a_table_whose_outputs_lie_in_two_clusters_is_corrected_for_the_distance_between_them() -> None:
    task, confidence, n, x = number("table", "0.34"), 0.5, 26, 0.5
    of = finite(task.randomizer)
    assert of.near_steps[0] > 20 * of.step
    counts = np.random.default_rng(1).multinomial(n, law(of, x) / law(of, x).sum(), 2 * RUNS).astype(float)
    low, high = student_capped(of, counts, confidence)
    assert standard_errors(float(((low <= x) & (x <= high)).mean()), confidence) < BAR
    assert held(task, counts, confidence, REPORTERS, x) >= confidence


def test_reports_of_a_few_people_at_one_bound_are_skew_and_the_population_is_covered() -> None:
    task, confidence, n, few = number("table", "6.9"), 0.95, 3700, 0.0056
    of = finite(task.randomizer)
    p = (1 - few) * law(of, 0.0) + few * law(of, 1.0)
    counts = np.random.default_rng(2).multinomial(n, p / p.sum(), 4 * RUNS).astype(float)
    center = counts @ of.a / n
    half = stats.t.isf(0.025, n - 1) * np.sqrt((counts @ of.a**2 - n * center**2) / (n - 1) / n)
    assert standard_errors(float((np.abs(center - few) <= half).mean()), confidence) < -3
    assert standard_errors(held(task, counts, confidence, POPULATION, few), confidence) > -2


@pytest.mark.large
def test_a_search_ends_where_intervals_cover_and_finds_those_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded few of the search of docs/coverage.md, and the same for intervals of a lower confidence."""

    def bolder(method: str, runs: Runs, confidence: float, answered: float = 0.0) -> object:
        return predicate(method, runs, confidence - 0.012, answered)

    def least() -> float:
        rng = np.random.default_rng(5)
        begun = [start("auto", 0.95, rng) for _ in range(3)]
        return min(worst(one, rng).margin(9) for one in begun)

    assert least() > BAR
    monkeypatch.setattr(levels, "predicate", bolder)
    monkeypatch.setattr(levels, "check", lambda *_: None)
    assert least() < BAR


@pytest.mark.large
@pytest.mark.parametrize("kind", KINDS)
def test_cells_that_a_search_finds_cover(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covering.searched.STARTS", 2)
    for cell in searched(kind, 0.8):
        assert cell.margin > BAR, cell
