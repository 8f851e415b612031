"""Bands that may be watched: P(never wrong) over many looks, and not at one n."""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from covering.asked import about, arms, limits_of
from covering.cells import RUNS, SLACK, VALUES, Array, Cell, law
from covering.coins import finite_of, mean
from covering.levels import middle
from covering.numbers import flat, scale_of, single
from scipy import stats
from single_intervals import FiniteChannel

from hush import Task
from hush_aggregator.estimate import ANYTIME
from hush_aggregator.estimate.estimates import ANYTIME_POPULATION
from hush_aggregator.estimate.numerics.quantiles import beta_band
from hush_aggregator.estimate.tally import Tally
from hush_common.task import make_task

__all__ = ["LOOKS", "watched_bits", "watched_laplace", "watched_levels"]

LOOKS = (*range(1, 101), *range(110, 1001, 10))
NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
BLOCK = 2000
CLOSE = 1e-7


def watched_bits(epsilon: str, confidence: float) -> Iterator[Cell]:
    """Exact: the law of the count among the paths that were right at every look so far."""
    task = make_task({"id": "t", "epsilon": epsilon, "domain": {"kind": "bit"}})
    of = finite_of(task)
    bands = {n: counts_held(task, of, n, confidence) for n in LOOKS}
    for name, values in VALUES.items():
        if any(x not in (0.0, 1.0) for x in values):
            continue
        truth = sum(x * weight for x, weight in values.items())
        p = float(of.p[0, 1] + truth * (of.p[1, 1] - of.p[0, 1]))
        alive, last = np.ones(1), 0
        for n in LOOKS:
            alive = np.convolve(alive, stats.binom.pmf(np.arange(n - last + 1), n - last, p))
            low, high = bands[n]
            held = np.flatnonzero((low - SLACK <= p) & (p <= high + SLACK))
            least, most = int(held[0]), int(held[-1])
            alive[:least], alive[most + 1 :], last = 0, 0, n
        method = "population-beta-mixture"
        yield Cell(
            "randomized_response", ANYTIME, epsilon, last, confidence, name, method, float(alive.sum()), exact=True
        )


def counts_held(task: Task, of: FiniteChannel, n: int, confidence: float) -> tuple[Array, Array]:
    """The band of the share of reported ones for every count, held against what is published for three of them."""
    low, high = (ends[0] for ends in beta_band(n, np.arange(n + 1), [1 - confidence]))
    none, all_ = float(of.p[0, 1]), float(of.p[1, 1])
    for k in {0, n // 3, n // 2}:
        given = limits_of(task, Tally(n, (k,)), confidence, ANYTIME)
        mine = tuple(float(np.clip((end[k] - none) / (all_ - none), 0, 1)) for end in (low, high))
        if max(abs(one - other) for one, other in zip(given, mine, strict=True)) > CLOSE and 0 < mine[0] < mine[1] < 1:
            raise AssertionError((n, k, given, mine))
    return low, high


def widths(task: Task, of: Callable[[int], Tally], confidence: float, target: str) -> Array:
    """How far the band lies below and above the estimate, at each look."""
    return np.array([arms(task, of(n), confidence, target) for n in LOOKS])


def never_wrong(errors: Array, band: Array) -> float:
    return float(((errors <= band[:, 0]) & (-errors <= band[:, 1])).all(axis=1).mean())


BANDS = (ANYTIME, ANYTIME_POPULATION)


def _banded(mechanism: str, epsilon: str, confidence: float, errors: dict[str, dict[str, Array]]) -> Iterator[Cell]:
    """Both bands of numbers, whose widths do not depend on the reports."""
    task = number(mechanism, epsilon)

    def tally(n: int) -> Tally:
        return flat(task, n) if mechanism == "laplace" else middle(finite_of(task), n)

    methods = about(task, tally(2), confidence).methods
    for target in BANDS:
        band = widths(task, tally, confidence, target)
        for name, found in errors.items():
            covered = never_wrong(found[target], band)
            yield Cell(mechanism, target, epsilon, LOOKS[-1], confidence, name, methods[target], covered, exact=False)


def number(mechanism: str, epsilon: str) -> Task:
    return make_task({"id": "t", "epsilon": epsilon, "mechanism": mechanism, "domain": NUMBER})


def watched_laplace(epsilon: str, confidence: float) -> Iterator[Cell]:
    scale = scale_of(single(number("laplace", epsilon)))
    some = {
        name: {target: noise * scale + values * (target != ANYTIME) for target in BANDS}
        for name, (noise, values) in laplace_paths().items()
    }
    yield from _banded("laplace", epsilon, confidence, some)


def watched_levels(epsilon: str, confidence: float) -> Iterator[Cell]:
    yield from _banded("multilevel", epsilon, confidence, level_paths(epsilon))


def paths(draw: Callable[[], tuple[Array, ...]]) -> tuple[Array, ...]:
    """Running means at each look of what is drawn in blocks of runs."""
    ends, blocks = np.array(LOOKS) - 1, []
    for _ in range(RUNS // BLOCK):
        drawn = draw()
        blocks.append([np.cumsum(one, axis=1)[:, ends] / np.array(LOOKS) for one in drawn])
    return tuple(np.concatenate(some) for some in zip(*blocks, strict=True))


def people(rng: np.random.Generator, values: dict[float, float]) -> Array:
    return rng.choice(np.array(list(values)), size=(BLOCK, LOOKS[-1]), p=list(values.values()))


@cache
def laplace_paths() -> dict[str, tuple[Array, Array]]:
    """The noise, of scale 1, and the values less their mean."""
    found = {}
    for place, name in enumerate(("all equal, inside", "half at each bound")):
        rng, values = np.random.default_rng([31, place]), VALUES[name]

        def draw(rng: np.random.Generator = rng, values: dict[float, float] = values) -> tuple[Array, Array]:
            return rng.laplace(size=(BLOCK, LOOKS[-1])), people(rng, values) - mean(values)

        noise, sampling = paths(draw)
        found[name] = noise, sampling
    return found


@cache
def level_paths(epsilon: str) -> dict[str, dict[str, Array]]:
    """The reports less the values, and less the mean of the population."""
    of, found = finite_of(number("multilevel", epsilon)), {}
    for place, name in enumerate(("all at the lower bound", "all equal, inside", "half at each bound")):
        rng, values = np.random.default_rng([32, place]), VALUES[name]
        edges = {x: np.cumsum(law(of, x))[:-1] for x in values}

        def draw(
            rng: np.random.Generator = rng, values: dict[float, float] = values, edges: dict[float, Array] = edges
        ) -> tuple[Array, Array]:
            who = people(rng, values)
            uniform, output = rng.random(who.shape), np.zeros(who.shape, dtype=np.int64)
            for x, edge in edges.items():
                output = np.where(who == x, np.searchsorted(edge, uniform), output)
            return of.a[output] - who, of.a[output] - mean(values)

        found[name] = dict(zip(BANDS, paths(draw), strict=True))
    return found
