"""Laplace reports: exact where the width is fixed, by runs where the sample variance decides it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import sqrt

import numpy as np
from covering.asked import about, arms, holding
from covering.cells import RUNS, SLACK, VALUES, Array, Cell, shares, sizes
from covering.coins import mean
from covering.laws import mixed_below
from scipy import stats

from hush import Task
from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_aggregator.estimate.estimates import ENROLLED
from hush_aggregator.estimate.mechanisms import columns
from hush_aggregator.estimate.tally import Tally
from hush_common.mechanisms import Laplace, Offers
from hush_common.task import make_task

__all__ = [
    "OFFERED",
    "chosen",
    "drawn",
    "enrolled_laplace",
    "flat",
    "laplace",
    "laplace_offers",
    "mean_of",
    "scale_of",
    "single",
    "within",
]

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
MOST = 40_000
ROWS = 4_000_000
CHECKED = 3
CLOSE = 1e-6


def single(task: Task) -> Laplace:
    if not isinstance(task.randomizer, Laplace):
        raise TypeError(task.randomizer)
    return task.randomizer


def scale_of(mechanism: Laplace) -> float:
    """b, as a share of the range."""
    return sqrt(mechanism.variance / 2) / mechanism.steps


def flat(task: Task, n: int) -> Tally:
    """n reports of 0."""
    return Tally(n, (0,) * columns(task.randomizer))


def laplace(epsilon: str, confidence: float) -> Iterator[Cell]:
    task = make_task({"id": "t", "epsilon": epsilon, "domain": NUMBER})

    def methods(n: int) -> Mapping[str, str]:
        return about(task, flat(task, n), confidence).methods

    for n in sizes(lambda n: (methods(n)[REPORTERS], methods(n)[POPULATION]), MOST):
        scale, method = scale_of(single(task)), methods(n)
        below, above = arms(task, flat(task, n), confidence, REPORTERS)
        covered = within([(scale / n, n)], below, above, np.zeros(1), np.ones(1))
        yield Cell("laplace", REPORTERS, epsilon, n, confidence, "any", method[REPORTERS], covered, exact=True)
        for name, values in VALUES.items():
            exact = "student" not in method[POPULATION]
            if exact:
                ends = arms(task, flat(task, n), confidence, POPULATION)
                covered = within([(scale / n, n)], *ends, *mean_of(n, values))
            else:
                covered = sampled(task, n, confidence, name, POPULATION)
            yield Cell("laplace", POPULATION, epsilon, n, confidence, name, method[POPULATION], covered, exact=exact)


def within(scales: Sequence[tuple[float, int]], below: float, above: float, off: Array, weights: Array) -> float:
    """P(-above ≤ noise + off ≤ below): the error of an estimate, where `off` is that of the people."""
    some = weights > 1e-14
    off, weights = off[some], weights[some]
    cdf = mixed_below(scales, np.concatenate((below - off, -above - off)))
    return float(weights @ (cdf[: len(off)] - cdf[len(off) :]))


def mean_of(n: int, values: dict[float, float]) -> tuple[Array, Array]:
    """The mean of n values less its expectation: where it may lie, with which probability."""
    if len(values) == 1:
        return np.zeros(1), np.ones(1)
    low, high = sorted(values)
    k = np.arange(n + 1)
    return (k / n - values[high]) * (high - low), stats.binom.pmf(k, n, values[high])


def people_of(n: int, *, enrolled: bool) -> dict[str, Array]:
    """How many of n hold the upper of two values, in `RUNS` runs: of a population, or of twice as many enrolled."""
    rng, found = np.random.default_rng([n, 20, enrolled]), {}
    for name, values in VALUES.items():
        if len(values) > 1:
            share = values[max(values)]
            upper = shares(2 * n, values)[max(values)]
            drawn = rng.hypergeometric(upper, 2 * n - upper, n, RUNS) if enrolled else rng.binomial(n, share, RUNS)
            found[name] = drawn.astype(float)
    return found


@lru_cache(maxsize=16)
def noise_sums(n: int, *, enrolled: bool) -> dict[str, tuple[Array, Array, Array]]:
    """For each distribution: Σ of noise of scale 1, Σ of its squares, and Σ over those at the upper of two values."""
    rng = np.random.default_rng([n, 21])
    total, squares = np.empty(RUNS), np.empty(RUNS)
    people = people_of(n, enrolled=enrolled)
    part = {name: np.empty(RUNS) for name in people}
    step = max(ROWS // n, 1)
    for start in range(0, RUNS, step):
        rows = slice(start, min(start + step, RUNS))
        noise = rng.laplace(size=(rows.stop - start, n))
        total[rows], squares[rows] = noise.sum(axis=1), np.einsum("ij,ij->i", noise, noise)
        running = np.cumsum(noise, axis=1)
        for name, count in people.items():
            here = count[rows].astype(np.int64)
            part[name][rows] = np.where(here > 0, running[np.arange(len(here)), np.maximum(here, 1) - 1], 0.0)
    return {name: (total, squares, part[name]) for name in people} | {"": (total, squares, np.zeros(RUNS))}


def drawn(n: int, name: str, scale: float, *, enrolled: bool = False) -> tuple[Array, Array]:
    """The mean of n reports, and their sample variance, in `RUNS` runs."""
    values = VALUES[name]
    low, high = min(values), max(values)
    total, squares, part = noise_sums(n, enrolled=enrolled)[name if len(values) > 1 else ""]
    people = people_of(n, enrolled=enrolled).get(name, np.zeros(RUNS))
    sums = n * low + (high - low) * people + scale * total
    cross = low * total + (high - low) * part
    second = n * low**2 + (high**2 - low**2) * people + 2 * scale * cross + scale**2 * squares
    return sums / n, (second - sums**2 / n) / (n - 1)


def sampled(task: Task, n: int, confidence: float, name: str, target: str) -> float:
    """Coverage in `RUNS` runs: Student's interval, held against what is published for some of them."""
    mechanism, values = single(task), VALUES[name]
    enrolled = target == ENROLLED
    truth = mean(shares(2 * n, values) if enrolled else values)
    center, variance = drawn(n, name, scale_of(mechanism), enrolled=enrolled)
    floor = mechanism.variance / mechanism.steps**2
    square = np.maximum(variance, floor)
    if enrolled:  # half of them answered: only the other half's values are uncertain
        square = (square + floor) / 2
    half = stats.t.isf((1 - confidence) / 2, n - 1) * np.sqrt(square / n)
    held = holding(center, center - half, center + half, truth)
    for run in np.argsort(np.abs(np.abs(center - truth) / half - 1))[:CHECKED].tolist():
        total = round(float(center[run]) * n * mechanism.steps)
        squares = round((float(variance[run]) * (n - 1) + n * float(center[run]) ** 2) * mechanism.steps**2)
        tally = Tally(n, (total, squares, *(0,) * (columns(mechanism) - 2)))
        low, high = about(task, tally, confidence).intervals[target]
        if abs(low - (center[run] - half[run])) + abs(high - (center[run] + half[run])) > CLOSE * half[run] + SLACK:
            raise AssertionError((task.epsilon, n, confidence, low, high, center[run], half[run]))
    return float(held.mean())


def enrolled_laplace(epsilon: str, confidence: float) -> Iterator[Cell]:
    """Half of those enrolled answer."""
    document = {"id": "t", "epsilon": epsilon, "domain": NUMBER}

    def task(n: int) -> Task:
        return make_task(document | {"enrolled": 2 * n})

    def method(n: int) -> str:
        return about(task(n), flat(task(n), n), confidence).methods[ENROLLED]

    for n in sizes(method, MOST):
        for name, values in VALUES.items():
            exact = "student" not in method(n)
            if exact:
                scale, ends = scale_of(single(task(n))), arms(task(n), flat(task(n), n), confidence, ENROLLED)
                covered = within([(scale / n, n)], *ends, *mean_of_answers(n, values))
            else:
                covered = sampled(task(n), n, confidence, name, ENROLLED)
            yield Cell("laplace", ENROLLED, epsilon, n, confidence, name, method(n), covered, exact=exact)


def mean_of_answers(n: int, values: dict[float, float]) -> tuple[Array, Array]:
    """The mean of a random n of 2n values less the mean of all: where it may lie, with which probability."""
    if len(values) == 1:
        return np.zeros(1), np.ones(1)
    low, high = sorted(values)
    upper = shares(2 * n, values)[high]
    k = np.arange(n + 1)
    return (k / n - upper / (2 * n)) * (high - low), stats.hypergeom.pmf(k, 2 * n, upper, n)


OFFERED: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "0.5 or 2, half of each": (("0.5", "2"), (0.5, 0.5)),
    "0.04 or 4, half of each": (("0.04", "4"), (0.5, 0.5)),
    "0.04 or 4, one of the first": (("0.04", "4"), (0.0, 1.0)),
    "0.04 or 4, one of the second": (("0.04", "4"), (1.0, 0.0)),
    "0.5 or 4, one of the first": (("0.5", "4"), (0.0, 1.0)),
    "0.1 or 1 or 8, a tenth, a tenth": (("0.1", "1", "8"), (0.1, 0.1, 0.8)),
}
"""Who chose which: shares of all reports; 0 stands for a single one."""


def chosen(n: int, split: tuple[float, ...]) -> tuple[int, ...]:
    """How many reports each epsilon has, at least one where there are enough."""
    counts = [max(round(n * share), 1) for share in split]
    place = counts.index(max(counts))
    counts[place] = max(n - sum(counts) + counts[place], 0)
    return tuple(counts)


def laplace_offers(row: str, confidence: float) -> Iterator[Cell]:
    offered, split = OFFERED[row]
    task = make_task(
        {"id": "t", "epsilon": offered[-1], "offers": list(offered), "mechanism": "laplace", "domain": NUMBER}
    )
    mechanism = task.randomizer
    if not isinstance(mechanism, Offers):
        raise TypeError(mechanism)
    parts = [part for part in mechanism.parts if isinstance(part, Laplace)]

    def tally(counts: Sequence[int]) -> Tally:
        return Tally(
            sum(counts), tuple(x for c, part in zip(counts, parts, strict=True) for x in (c, *[0] * columns(part)))
        )

    def methods(n: int) -> Mapping[str, str]:
        return about(task, tally(chosen(n, split)), confidence).methods

    usual = [n for n in (2, 3, 5, 10, 30, 100, 193, 1001, 3000) if n >= len(split)]
    for n in sizes(lambda n: (methods(max(n, 3))[REPORTERS], methods(max(n, 3))[POPULATION]), MOST, usual):
        if n < len(split):
            continue
        counts = chosen(n, split)
        given = about(task, tally(counts), confidence)
        noise = [(scale_of(part) / n, count) for part, count in zip(parts, counts, strict=True)]
        ends = arms(task, tally(counts), confidence, REPORTERS)
        covered = within(noise, *ends, np.zeros(1), np.ones(1))
        yield Cell(
            "laplace, several ε", REPORTERS, row, n, confidence, "any", given.methods[REPORTERS], covered, exact=True
        )
        yield from pooled(task, row, counts, confidence, parts)


def pooled(
    task: Task, row: str, counts: tuple[int, ...], confidence: float, parts: Sequence[Laplace]
) -> Iterator[Cell]:
    n = sum(counts)
    numbers = tuple(x for c, part in zip(counts, parts, strict=True) for x in (c, *[0] * columns(part)))
    given = about(task, Tally(n, numbers), confidence)
    method = given.methods[POPULATION]
    named = given.pooled.weights if given.pooled else {}
    weights = {epsilon: named.get(epsilon, 0.0) for epsilon in task_epsilons(parts)}
    share = [weights[epsilon] for epsilon in task_epsilons(parts)]
    scales = [(scale_of(part) * w / c, c) for part, w, c in zip(parts, share, counts, strict=True) if c]
    for name, values in VALUES.items():
        if "student" in method:
            covered = pooled_runs(counts, share, parts, values, confidence, name)
        else:
            ends = arms(task, Tally(n, numbers), confidence, POPULATION)
            covered = within(scales, *ends, *mixed_mean(counts, share, values))
        yield Cell(
            "laplace, several ε", POPULATION, row, n, confidence, name, method, covered, exact="student" not in method
        )


def task_epsilons(parts: Sequence[Laplace]) -> list[str]:
    return [f"{float(part.epsilon):g}" for part in parts]


def mixed_mean(counts: Sequence[int], share: Sequence[float], values: dict[float, float]) -> tuple[Array, Array]:
    """The weighted mean of the people of each epsilon, less its expectation."""
    off, weights = np.zeros(1), np.ones(1)
    for count, w in zip(counts, share, strict=True):
        if count:
            here, pmf = mean_of(count, values)
            likely = pmf > 1e-12
            off = np.add.outer(off, w * here[likely]).ravel()
            weights = np.multiply.outer(weights, pmf[likely]).ravel()
    if len(off) > 4000:
        edges = np.linspace(off.min(), off.max(), 4001)
        place = np.clip(np.digitize(off, edges) - 1, 0, 3999)
        mass = np.bincount(place, weights, 4000).astype(float)
        center = np.bincount(place, weights * off, 4000) / np.where(mass > 0, mass, 1)
        off, weights = np.asarray(center, dtype=float), mass
    return off, weights


def pooled_runs(  # noqa: PLR0917 - as they were found
    counts: Sequence[int], share: Sequence[float], parts: Sequence[Laplace], values: dict[float, float],
    confidence: float, name: str,
) -> float:  # fmt: skip
    """Coverage of the pooled Student interval in `RUNS` runs."""
    truth = mean(values)
    center, spread = np.zeros(RUNS), np.zeros(RUNS)
    order = np.random.default_rng(sum(counts)).permutation(RUNS)
    for place, (count, w, part) in enumerate(zip(counts, share, parts, strict=True)):
        found, variance = drawn(count, name, scale_of(part))
        if place:  # another order of the same runs: independent of the first
            found, variance = found[order], variance[order]
            order = order[order]
        center += w * found
        spread += w**2 * np.maximum(variance, part.variance / part.steps**2) / count
    half = stats.t.isf((1 - confidence) / 2, min(counts) - 1) * np.sqrt(spread)
    return float(holding(center, center - half, center + half, truth).mean())
