"""`randomized_response`: the number of ones."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import proportions
from hush_aggregator.estimate.estimates import Estimate
from hush_aggregator.estimate.mechanisms.analysis import EstimateRequest
from hush_aggregator.estimate.mechanisms.bounded import in_words, said
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import BitDomain
from hush_common.mechanisms import RandomizedResponse

__all__ = ["columns", "estimate", "estimate_many", "fold", "in_words", "possible", "said", "spread"]


def columns(_: RandomizedResponse) -> int:
    return 1


def fold(_: RandomizedResponse, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    return (int(bodies[:, 0].sum()),)


def possible(_: RandomizedResponse, tally: Tally) -> bool:
    return 0 <= tally.moments[0] <= tally.n


def estimate(parts: Sequence[tuple[RandomizedResponse, Tally]], request: EstimateRequest) -> Estimate:
    return proportions.estimate_proportion(parts, request.confidence, enrolled=request.enrolled_of(parts))


def estimate_many(
    samples: Sequence[Sequence[tuple[RandomizedResponse, Tally]]], request: EstimateRequest
) -> list[Estimate]:
    """The same of several tallies: together those of one epsilon that have the same number of reports."""
    if len(samples[0]) > 1:
        return [estimate(parts, request) for parts in samples]
    by_size: dict[int, list[int]] = {}
    for place, ((_, tally),) in enumerate(samples):
        by_size.setdefault(tally.n, []).append(place)
    found: dict[int, Estimate] = {}
    for n, places in by_size.items():
        mechanism, enrolled = samples[places[0]][0][0], request.enrolled_of(samples[places[0]])
        tallies = [samples[place][0][1] for place in places]
        made = proportions.estimate_each(mechanism, n, tallies, request.confidence, enrolled=enrolled)
        found.update(zip(places, made, strict=True))
    return [found[place] for place in range(len(samples))]


def spread(
    mechanism: RandomizedResponse, domain: BitDomain, tally: Tally, place: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    (yes,) = tally.moments
    return said(mechanism, domain, np.array([[0], [1]]), place), np.array([tally.n - yes, yes])
