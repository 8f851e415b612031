"""`multilevel` of more than two levels, and `table`.

Exact by enumeration where there are few outcomes, else by runs.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import comb

import numpy as np
from covering.asked import about, check, limits_of, monotone
from covering.cells import RUNS, SIZES, VALUES, Array, Cell, law, shares, sizes
from covering.coins import finite_of, mean
from covering.laws import outcomes
from covering.predicates import Bools, Runs, predicate
from scipy import stats
from single_intervals import FiniteChannel

from hush import Task
from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_aggregator.estimate.estimates import ENROLLED
from hush_aggregator.estimate.tally import Tally
from hush_common.task import make_task

__all__ = ["Question", "bounded", "enrolled_levels", "middle"]

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
MOST = 600_000
ENUMERATED = 20_000
Law = tuple[int, Array]
"""So many reports, each of this law."""


def middle(of: FiniteChannel, n: int) -> Tally:
    """n reports of the output nearest to one half."""
    counts = [0] * len(of.positions)
    counts[min(of.used, key=lambda y: abs(float(of.positions[y]) - 0.5))] = n
    return Tally(n, tuple(counts))


def bounded(mechanism: str, epsilon: str, confidence: float) -> Iterator[Cell]:
    document: dict[str, object] = {"id": "t", "epsilon": epsilon, "mechanism": mechanism, "domain": NUMBER}
    yield from _cells(document, confidence, (REPORTERS, POPULATION), None)


def enrolled_levels(mechanism: str, epsilon: str, confidence: float) -> Iterator[Cell]:
    """Half of those enrolled answer."""
    document: dict[str, object] = {"id": "t", "epsilon": epsilon, "mechanism": mechanism, "domain": NUMBER}
    yield from _cells(document, confidence, (ENROLLED,), 2)


def _cells(
    document: dict[str, object], confidence: float, targets: tuple[str, ...], times: int | None
) -> Iterator[Cell]:
    def task(n: int) -> Task:
        return make_task(document | ({"enrolled": times * n} if times else {}))

    def methods(n: int) -> Mapping[str, str]:
        return about(task(n), middle(finite_of(task(n)), n), confidence).methods

    for n in sizes(lambda n: tuple(methods(n)[target] for target in targets), MOST, SIZES):
        found = methods(n)
        for target in targets:
            question = Question(task(n), n, confidence, target=target, method=found[target])
            for place, (name, values) in enumerate(VALUES.items()):
                covered, exact = question.coverage(values, place)
                mechanism, epsilon = str(document["mechanism"]), str(document["epsilon"])
                yield Cell(mechanism, target, epsilon, n, confidence, name, found[target], covered, exact)


class Question:
    """How often one interval holds its target."""

    def __init__(self, task: Task, n: int, confidence: float, *, target: str, method: str) -> None:
        self.task, self.of, self.n = task, finite_of(task), n
        self.confidence, self.target, self.method = confidence, target, method

    def coverage(self, values: dict[float, float], seed: int, runs: int = RUNS) -> tuple[float, bool]:
        """The probability, and whether it is exact."""
        if self.target == ENROLLED:
            return self.answered(values, seed, runs), False
        truth, people = mean(values), [(self.n, self.mixed(values))]
        if self.target == REPORTERS:
            split = shares(self.n, values)
            truth, people = mean(split), [(count, law(self.of, x)) for x, count in split.items() if count]
        ways = 1
        for count, _ in people:
            ways *= comb(count + len(self.of.used) - 1, count)
        if ways <= ENUMERATED:
            return self.enumerated(people, truth), True
        return self.drawn(people, truth, seed, runs), False

    @cached_property
    def enrolled(self) -> int:
        return self.task.enrolled or 0

    def mixed(self, values: dict[float, float]) -> Array:
        return np.asarray(sum(weight * law(self.of, x) for x, weight in values.items()))

    def holds(self, counts: Array, truth: float) -> Bools:
        runs = Runs.of([self.of], [counts])
        known = predicate(self.method, runs, self.confidence, self.n / max(self.enrolled, 1))
        if known is None:
            return monotone(runs.center, lambda run: self.published(counts[run]), truth)
        held = known(truth)
        check(runs.center, held, lambda run: self.published(counts[run]), truth, (self.method, self.n, self.confidence))
        return held

    def published(self, row: Array) -> tuple[float, float]:
        counts = [0] * len(self.of.positions)
        for y, count in zip(self.of.used, row.astype(int).tolist(), strict=True):
            counts[y] = count
        return limits_of(self.task, Tally(self.n, tuple(counts)), self.confidence, self.target)

    def enumerated(self, people: list[Law], truth: float) -> float:
        counts, weights = np.zeros((1, len(self.of.used))), np.ones(1)
        for count, p in people:
            rows = outcomes(count, len(p))
            mass = stats.multinomial.pmf(rows, count, p / p.sum())
            counts = (counts[:, None, :] + rows[None, :, :]).reshape(-1, len(p))
            weights = np.multiply.outer(weights, mass).ravel()
        return float(weights @ self.holds(counts, truth))

    def drawn(self, people: list[Law], truth: float, seed: int, runs: int) -> float:
        rng = np.random.default_rng([self.n, seed, self.target == POPULATION])
        counts = np.zeros((runs, len(self.of.used)))
        for count, p in people:
            counts += rng.multinomial(count, p / p.sum(), runs)
        return float(self.holds(counts, truth).mean())

    def answered(self, values: dict[float, float], seed: int, runs: int) -> float:
        """Runs in which a random n of those enrolled answer."""
        rng, everyone = np.random.default_rng([self.n, 7, seed]), shares(self.enrolled, values)
        people = rng.multivariate_hypergeometric(list(everyone.values()), self.n, runs, method="marginals")
        counts = np.zeros((runs, len(self.of.used)))
        for place, x in enumerate(everyone):
            p = law(self.of, x)
            counts += rng.multinomial(people[:, place], p / p.sum())
        return float(self.holds(counts, mean(everyone)).mean())
