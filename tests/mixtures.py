"""Random mixtures of epsilons, and how often the intervals of bounded reports hold there, before any clipping."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from covering.cells import SLACK, Array
from covering.pooled import DOMAINS, Offered, holds
from covering.predicates import Bools, Runs, student_halves
from scipy import stats

from hush_aggregator.estimate import REPORTERS, estimate
from hush_common.task import make_task

__all__ = ["CELLS", "RUNS", "Mixture", "Seen", "exact", "look", "mixture", "people", "standard_errors"]

CELLS = 400
RUNS = 4000
_MOST_EPSILON = 16.0
_CONFIDENCES = (0.5, 0.8, 0.95, 0.99, 0.999, 0.9999)
_ENDS = ({0.0: 1.0}, {1.0: 1.0}, {0.0: 0.5, 1.0: 0.5}, {0.0: 0.9, 1.0: 0.1})
_BETWEEN = ({0.5: 1.0}, {0.3: 1.0}, {0.25: 0.5, 0.75: 0.5}, {0.0: 0.25, 0.37: 0.5, 1.0: 0.25})

Values = dict[float, float]


@dataclass(frozen=True)
class Mixture:
    """Reports under several epsilons.

    Args:
        kind: number, bit or category.
        epsilons: ascending.
        sizes: reports under each.
        common: the distribution of the values in the population.
        each: the values of the reporters under each epsilon.
        confidence: of the intervals.
    """

    kind: str
    epsilons: tuple[str, ...]
    sizes: tuple[int, ...]
    common: Values
    each: tuple[Values, ...]
    confidence: float

    @cached_property
    def offered(self) -> Offered:
        task = make_task({"id": "t", "epsilon": self.epsilons[-1], "offers": list(self.epsilons), **DOMAINS[self.kind]})
        return Offered(task, ())

    @property
    def whole(self) -> bool:
        return self.kind != "number"

    @cached_property
    def methods(self) -> dict[str, str]:
        rows = [
            (size - size // 2, *[0] * (len(of.used) - 2), size // 2)
            for size, of in zip(self.sizes, self.offered.channels, strict=True)
        ]
        return dict(estimate(self.offered.task, self.offered.tally(rows), self.confidence).parts[0].methods)


@dataclass(frozen=True)
class Seen:
    """What the runs of one cell gave.

    Args:
        coverage: of the interval.
        uncorrected: of the interval that takes the sum for a smooth one.
        ratio: mean width over that of the uncorrected one.
    """

    coverage: float
    uncorrected: float
    ratio: float


def mixture(place: int) -> Mixture:
    """Two to four epsilons with ratios to 10^4, 1 to 10^5 reports under each, log-uniform."""
    rng = np.random.default_rng([21, place])
    several, kind = int(rng.integers(2, 5)), ("bit", "number", "category", "number")[place % 4]
    ratio, low = 10 ** rng.uniform(0.1, 4), 10 ** rng.uniform(-2.7, 1)
    low = min(low, _MOST_EPSILON / ratio)
    drawn = [low, low * ratio, *(low * ratio ** rng.uniform(0, 1, several - 2))]
    epsilons = tuple(sorted({f"{one:.3g}" for one in drawn}, key=float))
    sizes = tuple(int(10 ** rng.uniform(0, 5)) for _ in epsilons)
    confidence = _CONFIDENCES[int(rng.integers(len(_CONFIDENCES)))]
    values = [*_ENDS, *(_BETWEEN if kind == "number" else ())]
    common = values[int(rng.integers(len(values)))]
    alike = rng.random() < 0.5
    each = tuple(common if alike else values[int(rng.integers(len(values)))] for _ in epsilons)
    return Mixture(kind, epsilons, sizes, common, each, confidence)


def people(one: Mixture, target: str, runs: int, seed: Sequence[int]) -> tuple[list[Array], float]:
    """The counts of each output in so many runs, under each epsilon, and the truth."""
    rng, drawn, total = np.random.default_rng(list(seed)), [], 0.0
    for of, size, values in zip(one.offered.channels, one.sizes, one.each, strict=True):
        counts = np.zeros((runs, len(of.used)))
        if target == REPORTERS:
            for x, (before, after) in _split(size, values):
                counts += rng.multinomial(after - before, _law(of.p, of.nodes, x), runs)
                total += x * (after - before)
        else:
            law = sum(weight * _law(of.p, of.nodes, x) for x, weight in one.common.items())
            counts += rng.multinomial(size, law, runs)
            total += size * sum(x * weight for x, weight in one.common.items())
        drawn.append(counts)
    return drawn, total / sum(one.sizes)


def _split(size: int, values: Values) -> Iterator[tuple[float, tuple[int, int]]]:
    """Each value, and from which person to which it is held."""
    before, share = 0, 0.0
    for x, weight in values.items():
        share += weight
        after = round(size * share)
        yield x, (before, after)
        before = after


def _law(p: Array, nodes: Array, x: float) -> Array:
    law = np.array([np.interp(x, nodes, column) for column in p.T])
    return np.asarray(law / law.sum())


def look(one: Mixture, target: str, runs: int = RUNS, seed: Sequence[int] = (), stretched: float = 1.0) -> Seen:
    """Both coverages of one cell by simulation; `stretched` is a factor on the uncorrected half-widths."""
    drawn, truth = people(one, target, runs, [*one.sizes, target == REPORTERS, *seed])
    method = one.methods[target]
    if not method.startswith("student-t"):  # valid at every n, and not changed
        held = holds(one.offered, (target, method), drawn, one.confidence, truth)
        return Seen(float(held.mean()), float(held.mean()), 1.0)
    gone, uncorrected, ratio = _errors(one, target, drawn, truth, stretched)
    return Seen(float(gone.mean()), float(uncorrected.mean()), float(ratio.mean()))


def _errors(
    one: Mixture, target: str, drawn: Sequence[Array], truth: float, stretched: float = 1.0
) -> tuple[Bools, Bools, Array]:
    runs = Runs.of(one.offered.channels, drawn, whole=one.whole)
    answered, error = float(target == REPORTERS), np.abs(runs.center - truth)
    smooth = student_halves(runs, one.confidence, answered, corrected=False)
    wide = student_halves(runs, one.confidence, answered)
    return error <= wide + SLACK, error <= stretched * smooth + SLACK, np.asarray(wide / smooth)


def exact(one: Mixture, stretched: float = 1.0) -> Seen:
    """The same for the reporters by summation over every pair of counts: two epsilons, two outputs each."""
    laws: list[Array] = []
    truth = 0.0
    for of, size, values in zip(one.offered.channels, one.sizes, one.each, strict=True):
        upper = round(size * values.get(1.0, 0.0))
        truth += upper
        ups, others = (
            stats.binom.pmf(np.arange(n + 1), n, p) for n, p in ((upper, of.p[-1, 1]), (size - upper, of.p[0, 1]))
        )
        laws.append(np.convolve(ups, others))
    mass = np.outer(*laws)
    counts = np.argwhere(mass > _NOTHING)
    drawn = [np.stack((size - k, k), axis=1).astype(float) for size, k in zip(one.sizes, counts.T, strict=True)]
    held, uncorrected, ratio = _errors(one, REPORTERS, drawn, truth / sum(one.sizes), stretched)
    weights: Array = mass[counts[:, 0], counts[:, 1]]
    return Seen(float(weights @ held), float(weights @ uncorrected), float(weights @ ratio))


_NOTHING = 1e-10


def standard_errors(coverage: float, confidence: float, runs: int) -> float:
    """By how many a coverage lies above what is claimed."""
    return (coverage - confidence) / sqrt(confidence * (1 - confidence) / runs)
