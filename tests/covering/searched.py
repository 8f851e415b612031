"""The worst cells that a search finds: values, sizes and epsilons between and beyond those of the grid."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import exp, log, sqrt

import numpy as np
from covering.cells import RUNS, Array, Cell, switches
from covering.coins import answer, covered, finite_of, laws
from covering.levels import Question, middle
from covering.vectors import coordinate
from scipy import stats
from single_intervals import FiniteChannel

from hush import Task
from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.estimates import ENROLLED
from hush_aggregator.estimate.pooled_rounds import combine
from hush_aggregator.estimate.tally import Tally
from hush_common.mechanisms import SubsetSelection
from hush_common.task import make_task

__all__ = ["BY_SEARCH", "KINDS", "SEARCHED", "STARTS", "STEPS", "Asked", "noisiest", "searched", "start"]

STARTS, STEPS = 10, 8
"""Random cells of each kind and confidence, and how many moves to where it covers less."""
TRIED = 4000
"""Runs of a step; the cell at its end is drawn anew, with `RUNS`."""
SEARCHED = {0.5: (0.5,), 0.8: (0.8, 0.9), 0.95: (0.95,), 0.99: (0.99,), 0.999: (0.999, 0.9999)}
"""The confidences that a case of the grid stands for."""
BY_SEARCH = ", by search"
LEAST, MOST_EPSILON = 0.2, 16.0
MOST, MOST_DRAWN = 100_000, 2_000
ROUNDS = 3
NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}


@dataclass(frozen=True)
class Asked:
    """One cell: which interval of which mechanism, of how many reports of which values.

    Args:
        kind: a key of `KINDS`.
        target: of the interval.
        epsilon: a decimal number.
        n: reports.
        confidence: what is claimed.
        values: and the share of people who have each.
        more: labels of a category, or how many times as many devices are enrolled.
    """

    kind: str
    target: str
    epsilon: str
    n: int
    confidence: float
    values: tuple[tuple[float, float], ...]
    more: float = 0.0

    @cached_property
    def task(self) -> Task:
        document: dict[str, object] = {"id": "t", "epsilon": self.epsilon, **KINDS[self.kind].document}
        if self.kind == "subset_selection":
            document["domain"] = {"kind": "category", "labels": [f"c{place}" for place in range(int(self.more))]}
        if self.target == ENROLLED:
            document["enrolled"] = max(int(self.n * self.more), self.n)
        return make_task(document)

    @property
    def of(self) -> FiniteChannel:
        return finite_of(self.task)

    def coverage(self, seed: int, runs: int) -> tuple[float, bool, str]:
        """The probability, whether it is exact, and the method."""
        return KINDS[self.kind].coverage(self, seed, runs)

    def margin(self, seed: int) -> float:
        coverage = self.coverage(seed, TRIED)[0]
        return (coverage - self.confidence) / sqrt(self.confidence * (1 - self.confidence) / RUNS)

    @property
    def described(self) -> str:
        shown = [f"{share:.2g} at {x:.4g}" for x, share in self.values]
        return f"all at {self.values[0][0]:.4g}" if len(shown) == 1 else ", ".join(shown)


def _coins(one: Asked, seed: int, runs: int) -> tuple[float, bool, str]:
    """Exact: two outputs."""
    del seed, runs
    known = cache(partial(_of_count, one))
    enrolled = one.task.enrolled if one.target == ENROLLED else None
    by_target = {target: (truth, window) for target, truth, window in laws(one.of, one.n, dict(one.values), enrolled)}
    truth, window = by_target[one.target]
    k = window.low + np.arange(len(window.pmf))
    center = float(window.pmf @ k)
    z = float(stats.norm.isf((1 - one.confidence) / 2))
    spread = z * sqrt(max(float(window.pmf @ (k - center) ** 2), 0.25))
    guess = center - spread, center + spread
    return covered(lambda k: known(k)[0][one.target], one.n, truth, window, guess), True, known(0)[1][one.target]


def _of_count(one: Asked, k: int) -> tuple[Mapping[str, tuple[float, float]], Mapping[str, str]]:
    mechanism, n = one.task.randomizer, one.n
    if isinstance(mechanism, SubsetSelection):
        rest, others = n * mechanism.size - k, int(one.more) - 1
        counts = (k, *(rest // others + (place < rest % others) for place in range(others)))
        part = estimate(one.task, Tally(n, counts), one.confidence).parts[0]
        return part.intervals, part.methods
    return answer(one.task, n, one.confidence, (k,) if one.kind.endswith("response") else (n - k, k))


def _levels(one: Asked, seed: int, runs: int) -> tuple[float, bool, str]:
    """By runs, or exact where there are few outcomes."""
    if len(one.of.used) == 2 and (one.target != ENROLLED or len(one.values) < 3):
        return _coins(one, seed, runs)
    method = _method(one, one.n)
    made = _Together if one.kind == "rounds together" else Question
    question = made(one.task, one.n, one.confidence, target=one.target, method=method)
    return *question.coverage(dict(one.values), seed, runs), method


def _method(one: Asked, n: int) -> str:
    return answer(one.task, n, one.confidence, middle(one.of, n).moments)[1][one.target]


class _Together(Question):
    """All reports of several rounds."""

    def published(self, row: Array) -> tuple[float, float]:
        counts, tallies = row.astype(int), []
        for left in range(ROUNDS, 0, -1):
            some = counts // left
            counts -= some
            every = [0] * len(self.of.positions)
            for y, count in zip(self.of.used, some.tolist(), strict=True):
                every[y] = count
            tallies.append(Tally(int(some.sum()), tuple(every)))
        made = combine(self.task, tallies, self.confidence)
        if made is None:
            raise LookupError("no round has a report")
        low, high = made.intervals[self.target]
        return float(low), float(high)


def _vector(one: Asked, seed: int, runs: int) -> tuple[float, bool, str]:
    rng = np.random.default_rng([one.n, seed])
    held, method = coordinate(one.task, one.n, one.confidence, dict(one.values), one.target, rng=rng, runs=runs)
    return held, False, method


@dataclass(frozen=True)
class _Kind:
    """What is searched of one mechanism."""

    document: dict[str, object]
    targets: tuple[str, ...]
    coverage: Callable[[Asked, int, int], tuple[float, bool, str]]
    whole: bool = False
    most: int = MOST


_TIMES = {"rounds": ROUNDS, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
_BOTH = (REPORTERS, POPULATION)
_THREE = {"kind": "vector", "coordinates": [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xyz"]}

KINDS: dict[str, _Kind] = {
    "randomized_response": _Kind({"domain": {"kind": "bit"}}, (*_BOTH, ENROLLED), _coins, whole=True, most=20_000),
    "subset_selection": _Kind({}, _BOTH, _coins, whole=True, most=20_000),
    "multilevel": _Kind({"domain": NUMBER, "mechanism": "multilevel"}, (*_BOTH, ENROLLED), _levels),
    "auto": _Kind({"domain": NUMBER, "mechanism": "auto"}, (*_BOTH, ENROLLED), _levels),
    "rounds together": _Kind({"domain": NUMBER, "mechanism": "multilevel", **_TIMES}, (REPORTERS,), _levels),
    "vector": _Kind({"domain": _THREE}, _BOTH, _vector, most=MOST_DRAWN),
}
"""By the name of the mechanism, or of how it is used."""


def searched(kind: str, confidence: float) -> Iterator[Cell]:
    """The cells at the end of each search, from random ones."""
    for claimed in SEARCHED[confidence]:
        for place in range(STARTS):
            rng = np.random.default_rng([list(KINDS).index(kind), round(claimed * 10**4), place])
            one = worst(start(kind, claimed, rng), rng)
            coverage, exact, method = one.coverage(2**31 + place, RUNS)
            yield Cell(
                f"{kind}{BY_SEARCH}", one.target, one.epsilon, one.n, claimed,
                one.described, method, coverage, exact,
            )  # fmt: skip


def start(kind: str, confidence: float, rng: np.random.Generator) -> Asked:
    """A random cell; half of them just past a switch from one method to another, where there is one."""
    known, target = KINDS[kind], str(rng.choice(KINDS[kind].targets))
    more = float(rng.integers(3, 40)) if kind == "subset_selection" else exp(rng.uniform(0, 3))
    n = _size(known, rng.uniform())
    one = Asked(kind, target, _epsilon(rng.uniform()), n, confidence, ((0.0, 1.0),), more)
    if kind != "vector" and rng.uniform() < 0.5:
        past = list(switches(lambda size: _named(replace(one, n=size)), known.most))[1::2]
        one = replace(one, n=int(rng.choice(past)) if past else n)
    return replace(one, values=_values(one.of, known, rng))


def _named(one: Asked) -> str:
    if KINDS[one.kind].whole or len(one.of.used) == 2:
        return _of_count(one, 0)[1][one.target]
    return _method(one, one.n)


def _size(known: _Kind, at: float) -> int:
    return round(exp(at * log(known.most)))


def _epsilon(at: float) -> str:
    return f"{LEAST * (MOST_EPSILON / LEAST) ** at:.3g}"


def _values(of: FiniteChannel, known: _Kind, rng: np.random.Generator) -> tuple[tuple[float, float], ...]:
    """Equal, noisiest, of two kinds, spread, half at each bound, or few at the upper one."""
    few = float(10 ** rng.uniform(-2.5, -0.3))
    if known.whole:
        return ((0.0, 1 - few), (1.0, few)) if rng.uniform() < 0.7 else ((float(rng.integers(2)), 1.0),)
    x = rng.uniform(size=6)
    found: list[dict[float, float]] = [
        {float(rng.choice([0.0, 1.0, *x])): 1.0},
        {noisiest(of): 1.0},
        {float(x[0]): 1 - few, float(x[1]): few},
        dict.fromkeys(x.tolist(), 1 / 6),
        {0.0: 0.5, 1.0: 0.5},
        {0.0: 1 - few, 1.0: few},
    ]
    return tuple(found[rng.integers(len(found))].items())


def noisiest(of: FiniteChannel) -> float:
    """The value whose report varies most, on a grid."""
    x = np.linspace(0, 1, 2001)
    squares = np.interp(x, of.nodes, of.p @ of.a**2) - x**2
    return float(x[squares.argmax()])


def worst(one: Asked, rng: np.random.Generator) -> Asked:
    """Move size, epsilon and values at random; keep what covers less, by the same draws."""
    seed = int(rng.integers(2**31))
    least = one.margin(seed)
    for _ in range(STEPS):
        other = _moved(one, rng)
        if (margin := other.margin(seed)) < least:
            one, least = other, margin
    return one


def _moved(one: Asked, rng: np.random.Generator) -> Asked:
    known, draw = KINDS[one.kind], rng.uniform()
    if draw < 0.4:
        return replace(one, n=min(max(round(one.n * exp(0.03 * rng.normal())), 1), known.most))
    if draw < 0.5:
        epsilon = min(max(float(one.epsilon) * exp(0.01 * rng.normal()), LEAST), MOST_EPSILON)
        return replace(one, epsilon=f"{epsilon:.3g}")
    values = [list(pair) for pair in one.values]
    place = int(rng.integers(len(values)))
    if known.whole and len(values) == 1:
        return replace(one, n=min(one.n + 1, known.most))
    if known.whole:
        values[1][1] = min(max(values[1][1] * exp(0.3 * rng.normal()), 1e-4), 0.999)
        values[0][1] = 1 - values[1][1]
    else:
        values[place][0] = min(max(values[place][0] + 0.05 * rng.normal(), 0.0), 1.0)
    moved = {x: share for x, share in values}  # noqa: C416 - lists
    return replace(one, values=tuple(moved.items())) if len(moved) == len(values) else one
