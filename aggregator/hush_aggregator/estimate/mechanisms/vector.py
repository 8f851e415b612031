"""`vector`: for each coordinate how often each level was reported."""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import vectors
from hush_aggregator.estimate.estimates import Estimate
from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.estimate.mechanisms.analysis import Asked
from hush_aggregator.estimate.mechanisms.bounded import occurrences
from hush_aggregator.estimate.worst_case import Assumed, worst_counts
from hush_aggregator.tally import Tally
from hush_common.domain import VectorDomain
from hush_common.mechanisms import Vector

__all__ = ["columns", "estimate", "fold", "in_words", "possible", "said", "spread", "worst"]


def columns(mechanism: Vector) -> int:
    return mechanism.coordinates * (mechanism.levels + 1)


def fold(mechanism: Vector, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    cells = bodies[:, ::2] * (mechanism.levels + 1) + bodies[:, 1::2]
    return occurrences(cells.ravel(), columns(mechanism))


def possible(mechanism: Vector, tally: Tally) -> bool:
    return min(tally.moments) >= 0 and sum(tally.moments) == tally.n * mechanism.sampled


def estimate(parts: Sequence[tuple[Vector, Tally]], asked: Asked) -> Estimate:
    domain = cast("VectorDomain", asked.domain)
    return vectors.estimate(parts, domain, asked.confidence, asked.enrolled_of(parts))


def worst(mechanism: Vector, people: int, assumed: Assumed, _: int) -> tuple[float, tuple[int, ...]]:
    """The first coordinate at its worst; who drew what else does not matter."""
    mean, counts = worst_counts(finite(mechanism.part), people, assumed, drawn=mechanism.drawn)
    rest = [0] * (mechanism.coordinates - 1) * (mechanism.levels + 1)
    if rest:
        rest[0] = people * mechanism.sampled - sum(counts)
    return mean, (*counts, *rest)


def said(mechanism: Vector, _: VectorDomain, bodies: NDArray[np.int64], place: int) -> NDArray[np.float64]:
    levels: NDArray[np.float64] = bodies[:, 1::2][bodies[:, ::2] == place] / mechanism.levels
    return levels


def spread(
    mechanism: Vector, _: VectorDomain, tally: Tally, place: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    levels = np.arange(mechanism.levels + 1)
    start = place * len(levels)
    return levels / mechanism.levels, np.array(tally.moments[start : start + len(levels)])


def in_words(mechanism: Vector, domain: VectorDomain, bodies: NDArray[np.int64]) -> list[str]:
    """The coordinates that each report drew, and their values."""
    return [" | ".join(_drawn(mechanism, domain, body)) for body in bodies.tolist()]


def _drawn(mechanism: Vector, domain: VectorDomain, body: Sequence[int]) -> Iterator[str]:
    for place, level in zip(body[::2], body[1::2], strict=True):
        coordinate = domain.coordinates[place]
        position = finite(mechanism.part).positions[level]
        yield f"{coordinate.name} = {float(coordinate.value_of(position * coordinate.steps))!r}"
