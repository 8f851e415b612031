"""Bounded reports under several epsilons: numbers, and one of twenty categories. By runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from covering.asked import check, limits_of, monotone
from covering.cells import RUNS, VALUES, Array, Cell, Counts, law, shares, sizes
from covering.coins import mean
from covering.numbers import OFFERED, chosen
from covering.predicates import Bools, Runs, predicate
from single_intervals import FiniteChannel, finite

from hush import Task
from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.estimates import ENROLLED
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import NumberDomain
from hush_common.mechanisms import Offers, RandomizedResponse, SubsetSelection
from hush_common.task import make_task

__all__ = ["DOMAINS", "LABELED", "Offered", "corner", "enrolled_pooled", "holds", "pooled", "samples"]

LABELS = 20
NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
CATEGORY = {"kind": "category", "labels": [f"c{place}" for place in range(LABELS)]}
DOMAINS: dict[str, dict[str, object]] = {
    "number": {"domain": NUMBER, "mechanism": "multilevel"},
    "bit": {"domain": {"kind": "bit"}},
    "category": {"domain": CATEGORY},
}
LABELED = {
    "number": "multilevel, several ε",
    "bit": "randomized_response, several ε",
    "category": f"subset_selection, {LABELS} categories, several ε",
}
MOST_FEW, MANY = 100, 1000
SEARCHED = 300
"""Runs of the search for the worst n; what it finds is drawn anew."""
USUAL = (2, 3, 5, 10, 30, 100, 1000, 4000, 40_000)
MOST = 200_000


@dataclass(frozen=True)
class Offered:
    """A task of several epsilons, and who chose which."""

    task: Task
    split: tuple[float, ...]

    @property
    def channels(self) -> list[FiniteChannel]:
        mechanism = self.task.randomizer
        if not isinstance(mechanism, Offers):
            raise TypeError(mechanism)
        return [finite(part) for part in mechanism.parts]

    def tally(self, rows: Sequence[Sequence[int]]) -> Tally:
        """Of the counts of the outputs that occur, under each epsilon; of categories, the first one is asked about."""
        numbers: list[int] = []
        mechanism = self.task.randomizer
        if not isinstance(mechanism, Offers):
            raise TypeError(mechanism)
        for part, of, row in zip(mechanism.parts, self.channels, rows, strict=True):
            n = sum(row)
            if isinstance(part, RandomizedResponse):
                numbers += [n, row[-1]]
            elif isinstance(part, SubsetSelection):
                rest, others = n * part.size - row[-1], LABELS - 1
                numbers += [n, row[-1], *(rest // others + (place < rest % others) for place in range(others))]
            else:
                counts = [0] * len(of.positions)
                for y, count in zip(of.used, row, strict=True):
                    counts[y] = count
                numbers += [n, *counts]
        return Tally(sum(sum(row) for row in rows), tuple(numbers))

    def methods(self, n: int, confidence: float) -> Mapping[str, str]:
        counts = chosen(n, self.split)
        rows = [
            (count - count // 2, *[0] * (len(of.used) - 2), count // 2)
            for count, of in zip(counts, self.channels, strict=True)
        ]
        return estimate(self.task, self.tally(rows), confidence).parts[0].methods


def pooled(kind: str, row: str, confidence: float) -> Iterator[Cell]:
    """`kind`: number, or category."""
    offered, split = OFFERED[row]
    one = Offered(make_task({"id": "t", "epsilon": offered[-1], "offers": list(offered), **DOMAINS[kind]}), split)
    label = LABELED[kind]

    def both(n: int) -> tuple[str, ...]:
        methods = one.methods(max(n, len(split)), confidence)
        return methods[REPORTERS], methods[POPULATION]

    for n in sizes(both, MOST, USUAL):
        if n < len(split):
            continue
        methods, counts = one.methods(n, confidence), chosen(n, split)
        for name, values in VALUES.items():
            if kind != "number" and any(x not in (0.0, 1.0) for x in values):
                continue
            for target, truth, drawn in samples(one, counts, values, RUNS, [n, list(VALUES).index(name)]):
                held = holds(one, (target, methods[target]), drawn, confidence, truth)
                yield Cell(label, target, row, n, confidence, name, methods[target], float(held.mean()), exact=False)


def samples(
    one: Offered, counts: Sequence[int], values: dict[float, float], runs: int, seed: Sequence[int]
) -> Iterator[tuple[str, float, list[Array]]]:
    """Of each target the truth, and the reports under each epsilon in so many runs."""
    rng, fixed = np.random.default_rng(list(seed)), shared(counts, values)
    for target, truth, people in (
        (REPORTERS, mean(merged(fixed)), [np.tile(list(some.values()), (runs, 1)) for some in fixed]),
        (POPULATION, mean(values), [rng.multinomial(count, list(values.values()), runs) for count in counts]),
    ):
        points = [list(some) for some in fixed] if target == REPORTERS else [list(values)] * len(counts)
        drawn = [draw(of, some, at, rng) for of, some, at in zip(one.channels, people, points, strict=True)]
        yield target, truth, drawn


def corner(kind: str, pair: tuple[str, str], confidence: float) -> Iterator[Cell]:
    """Few reports under the smaller epsilon beside many under the larger: the n of the few that is worst."""
    task = make_task({"id": "t", "epsilon": pair[1], "offers": list(pair), **DOMAINS[kind]})
    one = Offered(task, (0.0, 1.0))
    worst: dict[tuple[str, str], tuple[float, int]] = {}
    for few in range(1, MOST_FEW + 1):
        for name, target, held, _ in _corner_cells(one, few, confidence, SEARCHED):
            worst[name, target] = min(worst.get((name, target), (1.0, few)), (float(held.mean()), few))
    for (name, target), (_, few) in worst.items():
        for found, about, held, method in _corner_cells(one, few, confidence, RUNS, seed=1):
            if (found, about) == (name, target):
                row = f"{pair[0]} or {pair[1]}, the worst number of the first next to {MANY}"
                coverage = float(held.mean())
                yield Cell(LABELED[kind], target, row, few + MANY, confidence, name, method, coverage, exact=False)


def _corner_cells(
    one: Offered, few: int, confidence: float, runs: int, seed: int = 0
) -> Iterator[tuple[str, str, Bools, str]]:
    whole = not isinstance(one.task.domain, NumberDomain)
    counts = (few, MANY)
    rows = [
        (count - count // 2, *[0] * (len(of.used) - 2), count // 2)
        for count, of in zip(counts, one.channels, strict=True)
    ]
    methods = estimate(one.task, one.tally(rows), confidence).parts[0].methods
    for place, (name, values) in enumerate(VALUES.items()):
        if whole and any(x not in (0.0, 1.0) for x in values):
            continue
        for target, truth, drawn in samples(one, counts, values, runs, [few, place, seed]):
            yield name, target, holds(one, (target, methods[target]), drawn, confidence, truth), methods[target]


def enrolled_pooled(kind: str, row: str, confidence: float) -> Iterator[Cell]:
    """Half of those enrolled answer, whoever they are."""
    offered, split = OFFERED[row]
    more, label = DOMAINS[kind], LABELED[kind]

    def one(n: int) -> Offered:
        document = {"id": "t", "epsilon": offered[-1], "offers": list(offered), "enrolled": 2 * n, **more}
        return Offered(make_task(document), split)

    def method(n: int) -> str:
        return one(max(n, len(split))).methods(max(n, len(split)), confidence)[ENROLLED]

    for n in sizes(method, MOST, USUAL):
        for name in ("all at the lower bound", "half at each bound"):
            rng, everyone = np.random.default_rng([n, 9]), shares(2 * n, VALUES[name])
            left, drawn = np.tile(list(everyone.values()), (RUNS, 1)), []
            for of, count in zip(one(n).channels, chosen(n, split), strict=True):
                some = np.full((RUNS, 1), count)
                if len(everyone) > 1:
                    first = rng.hypergeometric(left[:, 0], left[:, 1], count)
                    some = np.stack((first, count - first), axis=1)
                left -= some
                drawn.append(draw(of, some, list(everyone), rng))
            held = holds(one(n), (ENROLLED, method(n)), drawn, confidence, mean(everyone))
            yield Cell(label, ENROLLED, row, n, confidence, name, method(n), float(held.mean()), exact=False)


def shared(counts: Sequence[int], values: dict[float, float]) -> list[dict[float, int]]:
    """The people under each epsilon, as nearly of these values as whole people can be."""
    return [shares(count, values) for count in counts]


def merged(people: Sequence[dict[float, int]]) -> dict[float, int]:
    found: dict[float, int] = {}
    for some in people:
        for x, count in some.items():
            found[x] = found.get(x, 0) + count
    return found


def draw(of: FiniteChannel, people: Counts, values: Sequence[float], rng: np.random.Generator) -> Array:
    counts = np.zeros((len(people), len(of.used)))
    for place, value in enumerate(values):
        p = law(of, value)
        counts += rng.multinomial(people[:, place], p / p.sum())
    return counts


def holds(
    one: Offered, interval: tuple[str, str], drawn: Sequence[Array], confidence: float, truth: float
) -> Bools:  # fmt: skip
    """By the definition of the method if it is known, else by two edges among the centers."""
    target, method = interval
    runs = Runs.of(one.channels, drawn, whole=not isinstance(one.task.domain, NumberDomain))

    def published(run: int) -> tuple[float, float]:
        rows = [counts[run].astype(int).tolist() for counts in drawn]
        return limits_of(one.task, one.tally(rows), confidence, target)

    known = predicate(method, runs, confidence, runs.n / (one.task.enrolled or runs.n))
    if known is None:
        return monotone(runs.center, published, truth)
    held = known(truth)
    check(runs.center, held, published, truth, (method, runs.n, confidence))
    return held
