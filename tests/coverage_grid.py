# ruff: noqa: T201 - a script that prints its progress
"""The coverage of every interval over a grid. `python tests/coverage_grid.py` writes docs/coverage.md.

By exact summation where the law of what decides is a sum of few terms: coins (bits, two levels, one category), and
Laplace noise at a fixed half-width. By `RUNS` fixed-seed runs elsewhere. Each is asked of the shipped `estimate`. The
whole grid takes an hour or two; `test_coverage_grid.py` recomputes some of its cells.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, stats

from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate import bounded as bounded_intervals
from hush_aggregator.estimate import laplace as laplace_intervals
from hush_aggregator.estimate.batches import Batches
from hush_aggregator.estimate.finite import Finite, finite
from hush_aggregator.estimate.quantiles import laplace_mean_quantile
from hush_aggregator.estimate.sample import Sample
from hush_aggregator.estimate.sampling import is_many
from hush_aggregator.estimate.span import Span
from hush_aggregator.moments import _sum_of_squares as sum_of_squares
from hush_aggregator.moments import columns, moments
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Channel, Laplace, Multilevel, Offers, SubsetSelection, Vector
from hush_common.task import Task
from hush_common.task_file import make_task

__all__ = ["CASES", "Cell", "cells"]

SIZES = (1, 2, 3, 5, 10, 30, 100, 1000)
EPSILONS = ("0.1", "0.5", "1", "2", "4", "8")
NOMINAL = 0.95
RUNS = 20_000
ALLOWED = 1e-8
NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
LABELS = 5
GRID = Span(rounding=Fraction(1, 2 << 20))

Array = NDArray[np.float64]
Counts = tuple[int, ...]
Limits = dict[str, tuple[float, float]]

VALUES: dict[str, dict[float, float]] = {
    "all at the lower bound": {0.0: 1.0},
    "all at the upper bound": {1.0: 1.0},
    "all equal, inside": {0.3: 1.0},
    "half at each bound": {0.0: 0.5, 1.0: 0.5},
    "a tenth at the upper bound": {0.0: 0.9, 1.0: 0.1},
}
"""Distributions: probability of each value."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One coverage.

    Args:
        table: which interval of which mechanism.
        row: epsilon, or several.
        n: reports.
        values: name of the distribution.
        method: what `methods` says.
        coverage: probability that the interval holds its target.
        exact: by summation, not by simulation.
    """

    table: str
    row: str
    n: int
    values: str
    method: str
    coverage: float
    exact: bool


def holds(limits: tuple[float, float], truth: float) -> bool:
    return limits[0] - ALLOWED <= truth <= limits[1] + ALLOWED


def law(of: Finite, value: float) -> Array:
    """P(y | value) of every output that occurs."""
    return np.array([np.interp(value, of.nodes, of.p[:, y]) for y in range(of.p.shape[1])])


def shares(n: int, values: dict[float, float]) -> dict[float, int]:
    """n people of these values, as nearly as whole people can be."""
    most, *others = sorted(values, key=lambda x: -values[x])
    split = {x: round(n * values[x]) for x in others}
    return {most: n - sum(split.values()), **split}


# ---- coins: exact


def coin_cells(
    table: str, epsilon: str, n: int, of: Finite, limits: Callable[[int], tuple[Limits, dict[str, str]]], *, kind: str
) -> Iterator[Cell]:
    """Two outputs: sum over all counts of the upper one. The people of `reporters` are fixed."""
    given = [limits(k) for k in range(n + 1)]
    for name, values in VALUES.items():
        if kind != "number" and any(x not in (0.0, 1.0) for x in values):
            continue
        chance = {x: float(law(of, x)[1]) for x in values}
        mean = sum(x * weight for x, weight in values.items())
        people = shares(n, values)
        fixed = sum(x * count for x, count in people.items()) / n
        for target, truth, pmf in (
            (REPORTERS, fixed, binomials([(count, chance[x]) for x, count in people.items()])),
            (POPULATION, mean, binomials([(n, sum(chance[x] * w for x, w in values.items()))])),
        ):
            hit = np.array([holds(one[0][target], truth) for one in given])
            yield Cell(f"{table}, {target}", epsilon, n, name, given[0][1][target], float(pmf @ hit), exact=True)


def binomials(coins: Sequence[tuple[int, float]]) -> Array:
    """The law of a sum of independent binomial counts."""
    pmf = np.ones(1)
    for count, p in coins:
        pmf = np.convolve(pmf, stats.binom.pmf(np.arange(count + 1), count, p))
    return np.asarray(pmf)


def bits(epsilon: str, n: int) -> Iterator[Cell]:
    task = make_task({"id": "t", "epsilon": epsilon, "domain": {"kind": "bit"}})

    def limits(k: int) -> tuple[Limits, dict[str, str]]:
        given = estimate(task, Tally(n, (k,)), NOMINAL)
        return given.intervals, given.methods

    yield from coin_cells("randomized_response", epsilon, n, finite_of(task), limits, kind="bit")


def categories(epsilon: str, n: int, *, joint: bool) -> Iterator[Cell]:
    """One category of five; each joint interval is one at 1 - alpha/5."""
    domain = {"kind": "category", "labels": list("abcde")}
    task = make_task({"id": "t", "epsilon": epsilon, "domain": domain})
    mechanism = task.randomizer
    if not isinstance(mechanism, SubsetSelection):
        raise TypeError(mechanism)
    size = mechanism.size

    def limits(k: int) -> tuple[Limits, dict[str, str]]:
        rest, others = n * size - k, LABELS - 1
        counts = (k, *(rest // others + (place < rest % others) for place in range(others)))
        given = estimate(task, Tally(n, counts), NOMINAL)
        return given.categories[0]["joint_intervals" if joint else "intervals"], given.methods

    if n > 1 or size < LABELS:
        name = "subset_selection (each joint interval, nominal 0.99)" if joint else "subset_selection"
        yield from coin_cells(name, epsilon, n, finite_of(task), limits, kind="category")


def finite_of(task: Task) -> Finite:
    mechanism = task.randomizer
    if isinstance(mechanism, Vector):
        mechanism = mechanism.part
    if isinstance(mechanism, Laplace | Offers):
        raise TypeError(mechanism)
    return finite(mechanism)


# ---- Laplace: exact below the sizes where the sample variance decides


def laplace(epsilon: str, n: int) -> Iterator[Cell]:
    task = make_task({"id": "t", "epsilon": epsilon, "domain": NUMBER})
    mechanism = task.randomizer
    if not isinstance(mechanism, Laplace):
        raise TypeError(mechanism)
    scale = sqrt(mechanism.variance / 2) / mechanism.steps
    half = scale * laplace_mean_quantile(n, NOMINAL)
    covered = 1 - 2 * tail(n, half * n / scale)
    method = estimate(task, zero(task, n), NOMINAL).methods
    yield Cell("laplace, reporters", epsilon, n, "any", method[REPORTERS], covered, exact=True)
    for name, values in VALUES.items():
        if method[POPULATION] == "student-t":
            hits = sampled(mechanism, n, values)
        else:
            wide = half_width(mechanism, zero(task, n))
            hits = convolved(scale / n, n, wide, values)
        exact = method[POPULATION] != "student-t"
        yield Cell("laplace, population", epsilon, n, name, method[POPULATION], hits, exact=exact)


def tail(n: int, x: float) -> float:
    """P(sum of n Laplace(1) > x), x ≥ 0: as the difference of two Gamma(n), integrated over one of them."""
    found, _ = integrate.quad(
        lambda y: stats.gamma.pdf(y, n) * stats.gamma.sf(x + y, n), 0, n + 40 * sqrt(n) + 40, points=[n], limit=500
    )
    return float(found)


def zero(task: Task, n: int) -> Tally:
    return moments(task.randomizer, np.zeros((n, 1), dtype=np.int64))


def half_width(mechanism: Laplace, tally: Tally) -> float:
    """Of the interval for the population, as a share of the range, before it is clipped to the domain."""
    mean = laplace_intervals._Mean([(mechanism, tally)], [Fraction(1)])
    many = is_many([(mechanism, tally.n)], NOMINAL)
    return laplace_intervals._population(mean, NOMINAL, many=many, several=False)[0] / mechanism.steps


def sampled(mechanism: Laplace, n: int, values: dict[float, float]) -> float:
    """Coverage of the population in `RUNS` runs."""
    rng = np.random.default_rng([n, round(10 * mechanism.epsilon)])
    q = -np.expm1(-1 / float(mechanism.scale))
    points, weights = np.array(list(values)), np.array(list(values.values()))
    truth, hits = float(points @ weights) * mechanism.steps, 0
    for _ in range(RUNS):
        index = np.rint(rng.choice(points, n, p=weights) * mechanism.steps).astype(np.int64)
        reports = index + rng.geometric(q, n) - rng.geometric(q, n)
        tally = Tally(n, (int(reports.sum()), sum_of_squares(reports)))
        hits += abs(tally.moments[0] / n - truth) <= half_width(mechanism, tally) * mechanism.steps
    return hits / RUNS


def convolved(scale: float, n: int, half: float, values: dict[float, float]) -> float:
    """P(|noise + mean of n values - their mean| ≤ half), for at most two values."""
    *_, last = values
    spread = max(values) - min(values)
    pmf = stats.binom.pmf(np.arange(n + 1), n, values[last]) if spread else np.ones(1)

    def below(x: float) -> float:
        beyond = tail(n, abs(x) / scale)
        return 1 - beyond if x > 0 else beyond

    total = 0.0
    for count, weight in enumerate(pmf.tolist()):
        off = (count / n - values[last]) * spread
        total += weight * (below(half - off) - below(-half - off))
    return total


# ---- everything else: simulated


def simulated(task: Task, n: int, values: dict[float, float], seed: int) -> dict[str, float]:
    """Coverage of both targets in `RUNS` runs of n people of random values."""
    rng = np.random.default_rng([seed, n])
    points, weights = np.array(list(values)), np.array(list(values.values()))
    truth = float(points @ weights)
    known: dict[Tally, Limits] = {}
    hits = {REPORTERS: 0, POPULATION: 0}
    asked = 0
    for people in rng.multinomial(n, weights, size=RUNS):
        tally = draw(task, points, people, rng)
        if tally is None:  # nobody drew the coordinate
            continue
        asked += 1
        if tally not in known:
            known[tally] = interval_of(task, tally)
        hits[REPORTERS] += holds(known[tally][REPORTERS], float(points @ people) / n)
        hits[POPULATION] += holds(known[tally][POPULATION], truth)
    return {target: count / asked for target, count in hits.items()}


def interval_of(task: Task, tally: Tally) -> Limits:
    """Both intervals; of bounded reports by the two functions behind `estimate`, which leave out all the rest."""
    mechanism = task.randomizer
    if isinstance(mechanism, Multilevel | Channel):
        sample = Sample((bounded_intervals.Group(finite(mechanism), tally.moments),))
        made = bounded_intervals._fixed(sample, NOMINAL, Batches(), sampled=False, enrolled=None)
        return {target: GRID.around(sample.center, *make()) for target, (_, make) in made.items()}
    given = estimate(task, tally, NOMINAL)
    limits: Limits = given.coordinates[0]["intervals"] if given.coordinates else given.intervals
    return limits


def draw(task: Task, points: Array, people: NDArray[np.int64], rng: np.random.Generator) -> Tally | None:
    """The tally of people of these values."""
    mechanism = task.randomizer
    if isinstance(mechanism, Offers):
        first = rng.binomial(people, 0.5)
        parts = [
            draw_single(part, points, chosen, rng)
            for part, chosen in zip(mechanism.parts, (first, people - first), strict=True)
        ]
        sums = [
            number
            for part, tally in zip(mechanism.parts, parts, strict=True)
            for number in (tally.n, *(tally.moments or (0,) * columns(part)))
        ]
        return Tally(int(people.sum()), tuple(sums))
    if isinstance(mechanism, Vector):
        drawn = rng.binomial(people, mechanism.sampled / mechanism.coordinates)
        if not drawn.any():
            return None
        here = draw_single(mechanism.part, points, drawn, rng).moments
        n, others = int(people.sum()), mechanism.coordinates - 1
        rest = n * mechanism.sampled - sum(here)  # those who drew another one: what they said does not matter
        nothing = (0,) * (len(here) - 1)
        elsewhere = [(rest // others + (place < rest % others), *nothing) for place in range(others)]
        return Tally(n, (*here, *(number for one in elsewhere for number in one)))
    return draw_single(mechanism, points, people, rng)


def draw_single(mechanism: Any, points: Array, people: NDArray[np.int64], rng: np.random.Generator) -> Tally:  # noqa: ANN401 - any single mechanism
    if isinstance(mechanism, Laplace):
        index = np.repeat(np.rint(points * mechanism.steps).astype(np.int64), people)
        q = -np.expm1(-1 / float(mechanism.scale))
        noise = rng.geometric(q, len(index)) - rng.geometric(q, len(index))
        return moments(mechanism, (index + noise)[:, None])
    of = finite(mechanism)
    counts = np.zeros(len(of.positions), dtype=np.int64)
    for value, count in zip(points, people, strict=True):
        p = law(of, float(value))
        counts[list(of.used)] += rng.multinomial(count, p / p.sum())
    return Tally(int(people.sum()), tuple(counts.tolist()))


def simulated_cells(table: str, row: str, task: Task, n: int) -> Iterator[Cell]:
    method = None
    for seed, (name, values) in enumerate(VALUES.items()):
        rng = np.random.default_rng(0)
        while method is None:
            tally = draw(task, np.array([0.5]), np.array([n]), rng)
            if tally is not None:
                given = estimate(task, tally, NOMINAL)
                method = given.coordinates[0]["methods"] if given.coordinates else given.methods
        for target, coverage in simulated(task, n, values, seed).items():
            yield Cell(f"{table}, {target}", row, n, name, method[target], coverage, exact=False)


def bounded(mechanism: str, epsilon: str, n: int) -> Iterator[Cell]:
    if mechanism == "table" and epsilon not in ("1", "2", "4"):
        return
    task = make_task({"id": "t", "epsilon": epsilon, "mechanism": mechanism, "domain": NUMBER})
    if len(finite_of(task).used) > 2:
        yield from simulated_cells(mechanism, epsilon, task, n)
        return

    def limits(k: int) -> tuple[Limits, dict[str, str]]:
        given = estimate(task, Tally(n, (n - k, k)), NOMINAL)
        return given.intervals, given.methods

    yield from coin_cells(mechanism, epsilon, n, finite_of(task), limits, kind="number")


def vector(epsilon: str, n: int) -> Iterator[Cell]:
    coordinates = [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xyz"]
    task = make_task({"id": "t", "epsilon": epsilon, "domain": {"kind": "vector", "coordinates": coordinates}})
    yield from simulated_cells("vector, one of 3 coordinates", epsilon, task, n)


def offers(mechanism: str, n: int) -> Iterator[Cell]:
    given = ["0.5", "2"]
    task = make_task({"id": "t", "epsilon": "2", "offers": given, "mechanism": mechanism, "domain": NUMBER})
    yield from simulated_cells(f"{mechanism}, several epsilons", "0.5 or 2", task, n)


CASES: dict[str, Callable[[int], Iterator[Cell]]] = {
    **{f"bits {e}": partial(bits, e) for e in EPSILONS},
    **{f"categories {e}": partial(categories, e, joint=False) for e in EPSILONS},
    **{f"joint categories {e}": partial(categories, e, joint=True) for e in EPSILONS},
    **{f"laplace {e}": partial(laplace, e) for e in EPSILONS},
    **{f"{m} {e}": partial(bounded, m, e) for m in ("multilevel", "table") for e in EPSILONS},
    **{f"vector {e}": partial(vector, e) for e in EPSILONS},
    **{f"offers {m}": partial(offers, m) for m in ("laplace", "multilevel")},
}
"""What gives the cells of one size."""


@cache
def cells(case: str, n: int) -> tuple[Cell, ...]:
    return tuple(CASES[case](n))


# ---- the document

_TOP = """# Coverage of every interval

Written by `python tests/coverage_grid.py`; `tests/statistics/test_coverage_grid.py` recomputes some cells
and checks the bars. Nominal coverage 0.95. Each number is the *least* over five distributions of values on [0, 1]: all
at the lower bound, all at the upper bound, all equal at 0.3, half at each bound, a tenth at the upper bound (bits and
categories: those of the five that they can have). A number without a mark is exact, by summation over everything that
can be reported. A number with * is the share among {runs} fixed-seed runs: deviation 0.0015 where the coverage is
0.95. The letter is the method, as `methods` names it:

{key}

"""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def document(everything: Sequence[Cell]) -> str:
    names = sorted({cell.method for cell in everything})
    letter = dict(zip(names, _LETTERS, strict=False))
    parts = [_TOP.format(runs=f"{RUNS:,}".replace(",", " "), key=" · ".join(f"{letter[m]} `{m}`" for m in names))]
    for table in dict.fromkeys(cell.table for cell in everything):
        mine = [cell for cell in everything if cell.table == table]
        parts += [f"## {table}\n\n| ε | n = " + " | ".join(map(str, SIZES)) + " |\n|---" + "|---" * len(SIZES) + "|\n"]
        for row in dict.fromkeys(cell.row for cell in mine):
            texts = [_text([cell for cell in mine if cell.row == row and cell.n == n], letter) for n in SIZES]
            parts.append(f"| {row} | " + " | ".join(texts) + " |\n")
        parts.append("\n")
    return "".join(parts).rstrip() + "\n"


def _text(found: Sequence[Cell], letter: dict[str, str]) -> str:
    if not found:
        return ""
    least = min(found, key=lambda cell: cell.coverage)
    shown = int((least.coverage + ALLOWED) * 10_000) / 10_000  # towards 0: a bar must not be met by rounding
    return f"{shown:.4f}{'' if least.exact else '*'} {letter[least.method]}"


def main(cases: Sequence[str]) -> None:
    """Compute the given cases (all, if none) and print them; all together become the document."""
    asked = [(case, n) for case in cases or CASES for n in SIZES]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        everything: list[Cell] = []
        for (case, n), found in zip(asked, pool.map(cells, *zip(*asked, strict=True)), strict=True):
            everything += found
            if found:
                print(case, n, f"{min(cell.coverage for cell in found):.4f}", flush=True)
    if not cases:
        root = Path(__file__).resolve().parents[1]
        (root / "docs" / "coverage.md").write_text(document(everything), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
