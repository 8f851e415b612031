"""`subset_selection`: how often each category was reported."""

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import categories
from hush_aggregator.estimate.estimates import Estimate
from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.estimate.mechanisms.analysis import Asked
from hush_aggregator.estimate.worst_case import Assumed, worst_counts
from hush_aggregator.tally import Tally
from hush_common.domain import CategoryDomain
from hush_common.mechanisms import SubsetSelection
from hush_common.mechanisms.subset_selection import WORD_BITS

__all__ = ["columns", "estimate", "fold", "in_words", "possible", "said", "spread", "worst"]


def columns(mechanism: SubsetSelection) -> int:
    return mechanism.categories


def fold(mechanism: SubsetSelection, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    bits = np.arange(WORD_BITS, dtype=np.int64)
    named = [int(count) for word in bodies.T for count in ((word[:, None] >> bits) & 1).sum(axis=0)]
    return tuple(named[: mechanism.categories])


def possible(mechanism: SubsetSelection, tally: Tally) -> bool:
    sums = tally.moments
    return min(sums) >= 0 and max(sums) <= tally.n and sum(sums) == tally.n * mechanism.size


def estimate(parts: Sequence[tuple[SubsetSelection, Tally]], asked: Asked) -> Estimate:
    labels = cast("CategoryDomain", asked.domain).labels
    return categories.estimate(parts, labels, asked.confidence, enrolled=asked.enrolled_of(parts))


def worst(mechanism: SubsetSelection, people: int, assumed: Assumed, more: int) -> tuple[float, tuple[int, ...]]:
    """The first category at its worst; who named which other one does not matter."""
    mean, counts = worst_counts(finite(mechanism), people, assumed)
    named = min(max(counts[-1] + more, 0), people)
    each, others = divmod(people * mechanism.size - named, mechanism.categories - 1)
    return mean, (named, *(each + (place < others) for place in range(mechanism.categories - 1)))


def said(_: SubsetSelection, __: CategoryDomain, bodies: NDArray[np.int64], place: int) -> NDArray[np.float64]:
    word, bit = divmod(place, WORD_BITS)
    return (bodies[:, word] >> bit & 1).astype(np.float64)


def spread(
    _: SubsetSelection, __: CategoryDomain, tally: Tally, place: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    named = tally.moments[place]
    return np.array([0.0, 1.0]), np.array([tally.n - named, named])


def in_words(mechanism: SubsetSelection, domain: CategoryDomain, bodies: NDArray[np.int64]) -> list[str]:
    """The labels that each report names."""
    named = bodies[:, :, None] >> np.arange(WORD_BITS) & 1
    rows = named.reshape(len(bodies), -1)[:, : mechanism.categories]
    return [" | ".join(domain.labels[place] for place in row.nonzero()[0]) for row in rows]
