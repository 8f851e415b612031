"""One coordinate of a vector, of which each report drew one: by runs, grouped by how many drew it."""

from collections.abc import Iterator
from functools import cache

import numpy as np
from covering.cells import RUNS, SIZES, VALUES, Cell, law, shares
from covering.coins import finite_of, mean
from covering.predicates import Runs, predicate
from single_intervals import FiniteChannel

from hush import Task
from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.tally import Tally
from hush_common.mechanisms import Vector
from hush_common.task import make_task

__all__ = ["coordinate", "vector"]

COORDINATES = 3


def vector(epsilon: str, confidence: float, *, joint: bool) -> Iterator[Cell]:
    """Both targets: of those who answered, who drew the coordinate is random as well."""
    names = [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xyz"]
    task = make_task({"id": "t", "epsilon": epsilon, "domain": {"kind": "vector", "coordinates": names}})
    mechanism = task.randomizer
    if not isinstance(mechanism, Vector) or mechanism.sampled == mechanism.coordinates:
        return
    claimed = 1 - (1 - confidence) / COORDINATES if joint else confidence
    label = f"vector, one of {COORDINATES} coordinates" + (", each joint interval" if joint else "")

    for n in SIZES:
        for place, (name, values) in enumerate(VALUES.items()):
            rng = np.random.default_rng([n, place])
            for target in (POPULATION, REPORTERS):
                held, method = coordinate(task, n, confidence, values, target, rng=rng, joint=joint)
                yield Cell(label, target, epsilon, n, claimed, name, method, held, exact=False)


def coordinate(
    task: Task,
    n: int,
    confidence: float,
    values: dict[float, float],
    target: str,
    *,
    rng: np.random.Generator,
    joint: bool = False,
    runs: int = RUNS,
) -> tuple[float, str]:
    """How often the interval of the first coordinate holds its target, and the usual method."""
    mechanism, of = task.randomizer, finite_of(task)
    if not isinstance(mechanism, Vector):
        raise TypeError(mechanism)
    part = mechanism.sampled / mechanism.coordinates
    claimed = 1 - (1 - confidence) / mechanism.coordinates if joint else confidence

    @cache
    def method(drawn: int) -> str:
        first = estimate(task, vector_tally(mechanism, of, drawn), confidence).parts[0]
        return (first.joint_methods if joint else first.methods)[target]

    if target == POPULATION:
        truth, p = mean(values), np.asarray(sum(weight * law(of, x) for x, weight in values.items()))
        counts = rng.multinomial(rng.binomial(n, part, runs), p / p.sum())
    else:
        people = shares(n, values)
        truth, counts = mean(people), np.zeros((runs, len(of.used)), dtype=np.int64)
        for x, count in people.items():
            p = law(of, x)
            counts += rng.multinomial(rng.binomial(count, part, runs), p / p.sum())
    held = asked = 0
    drawn = counts.sum(axis=1)
    for size in np.unique(drawn[drawn > 0]).tolist():
        some = counts[drawn == size].astype(float)
        known = predicate(method(size), Runs.of([of], [some]), claimed)
        if known is None:
            raise NotImplementedError(method(size))
        held += int(known(truth).sum())
        asked += len(some)
    return held / asked, method(max(round(n * part), 1))


def vector_tally(mechanism: Vector, of: FiniteChannel, drawn: int) -> Tally:
    """`drawn` reports of the first coordinate, at the output nearest to one half, and as few others as there can be."""
    width = len(of.positions)
    counts = [0] * width * mechanism.coordinates
    place = min(range(width), key=lambda y: abs(float(of.positions[y]) - 0.5))
    n = -(-drawn * mechanism.coordinates // mechanism.sampled)
    rest = n * mechanism.sampled - drawn
    counts[place] = drawn
    for other in range(1, mechanism.coordinates):
        counts[other * width] = rest // (mechanism.coordinates - other)
        rest -= counts[other * width]
    return Tally(n, tuple(counts))
