"""One coordinate of a vector, of which each report drew one: by runs, grouped by how many drew it."""

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
from covering.cells import RUNS, SIZES, VALUES, Cell, law, shares
from covering.coins import finite_of, mean
from covering.predicates import Runs, predicate

from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.finite_channel import FiniteChannel
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Vector
from hush_common.task import make_task

__all__ = ["vector"]

COORDINATES = 3


def vector(epsilon: str, confidence: float, *, joint: bool) -> Iterator[Cell]:
    """Both targets: of those who answered, who drew the coordinate is random as well."""
    names = [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xyz"]
    task = make_task({"id": "t", "epsilon": epsilon, "domain": {"kind": "vector", "coordinates": names}})
    mechanism, of = task.randomizer, finite_of(task)
    if not isinstance(mechanism, Vector) or mechanism.sampled == mechanism.coordinates:
        return
    part = mechanism.sampled / mechanism.coordinates
    claimed = 1 - (1 - confidence) / COORDINATES if joint else confidence
    label = f"vector, one of {COORDINATES} coordinates" + (", each joint interval" if joint else "")

    @cache
    def methods(drawn: int) -> Mapping[str, str]:
        first = estimate(task, vector_tally(mechanism, of, drawn), confidence).parts[0]
        return first.joint_methods if joint else first.methods

    for n in SIZES:
        for name, values in VALUES.items():
            rng = np.random.default_rng([n, list(VALUES).index(name)])
            mixed = np.asarray(sum(weight * law(of, x) for x, weight in values.items()))
            everyone = rng.multinomial(rng.binomial(n, part, RUNS), mixed / mixed.sum())
            fixed = np.zeros_like(everyone)
            for x, count in shares(n, values).items():
                p = law(of, x)
                fixed += rng.multinomial(rng.binomial(count, part, RUNS), p / p.sum())
            for target, truth, counts in (
                (REPORTERS, mean(shares(n, values)), fixed),
                (POPULATION, mean(values), everyone),
            ):
                held = asked = 0
                drawn = counts.sum(axis=1)
                for size in np.unique(drawn[drawn > 0]).tolist():
                    some = counts[drawn == size].astype(float)
                    known = predicate(methods(size)[target], Runs.of([of], [some]), claimed)
                    if known is None:
                        raise NotImplementedError(methods(size)[target])
                    held += int(known(truth).sum())
                    asked += len(some)
                usual = methods(max(round(n * part), 1))[target]
                yield Cell(label, target, epsilon, n, claimed, name, usual, held / asked, exact=False)


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
