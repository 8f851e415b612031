"""`subset_selection`: how often each category was reported."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.diagnostics import finite_monitors, worst_verdict
from hush_aggregator.estimate.estimates import Estimate
from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.estimate.mechanisms.analysis import EstimateRequest
from hush_aggregator.estimate.proportions import pooled_proportions, proportions
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import CategoryDomain
from hush_common.mechanisms import Mechanism, SubsetSelection
from hush_common.mechanisms.subset_selection import WORD_BITS

_Part = tuple[Mechanism, Tally]


def estimate_frequencies(
    parts: Sequence[_Part], labels: Sequence[str], confidence: float, *, enrolled: int | None = None
) -> Estimate:
    """The frequency of each label, from n ≥ 1 reports under one epsilon or several."""
    parts = [part for part in parts if part[1].n]
    n, k = sum(tally.n for _, tally in parts), len(labels)
    joint_confidence = min(1 - (1 - confidence) / k, 1 - 2**-53)  # the largest float below 1
    confidences = (confidence, joint_confidence)
    if len(parts) == 1:
        ((mechanism, tally),) = parts
        found = proportions(finite(mechanism).of_yes, n, tally.moments, confidences, enrolled=enrolled)
    else:
        found = pooled_proportions(
            [(finite(mechanism), tally.n, tally.moments) for mechanism, tally in parts], confidences, enrolled=enrolled
        )
    reach = max(finite(mechanism).reach for mechanism, _ in parts)
    return replace(found.estimate(n, reach, _monitor(parts), labels), consistent=simplex(found.mean))


def _monitor(parts: Sequence[_Part]) -> str | None:
    verdicts: list[str] = []
    for mechanism, tally in parts:
        named = np.array(tally.moments)
        verdicts += finite_monitors(finite(mechanism), np.stack((tally.n - named, named), axis=1))
    return worst_verdict(verdicts)


def simplex(frequencies: Sequence[float]) -> tuple[float, ...]:
    """The nearest frequencies that are not negative and sum to 1: all less one threshold, and no less than 0."""
    f = np.array(frequencies)
    descending = np.sort(f)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(f) + 1)
    threshold = excess[np.nonzero(descending > excess)[0][-1]]
    return tuple(np.maximum(f - threshold, 0).tolist())


def columns(mechanism: SubsetSelection) -> int:
    return mechanism.categories


def fold(mechanism: SubsetSelection, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    bits = np.arange(WORD_BITS, dtype=np.int64)
    named = [int(count) for word in bodies.T for count in ((word[:, None] >> bits) & 1).sum(axis=0)]
    return tuple(named[: mechanism.categories])


def possible(mechanism: SubsetSelection, tally: Tally) -> bool:
    sums = tally.moments
    return min(sums) >= 0 and max(sums) <= tally.n and sum(sums) == tally.n * mechanism.size


def estimate(parts: Sequence[tuple[SubsetSelection, Tally]], request: EstimateRequest) -> Estimate:
    labels = [part.name for part in request.domain.parts]
    return estimate_frequencies(parts, labels, request.confidence, enrolled=request.enrolled_of(parts))


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
