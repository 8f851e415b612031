"""The same mechanism for an aggregator: how often each category was reported."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from toy.kary import KaryResponse

from hush_aggregator import Estimate
from hush_aggregator.estimate.mechanisms import subset_selection
from hush_aggregator.estimate.mechanisms.analysis import EstimateRequest
from hush_aggregator.estimate.mechanisms.bounded import occurrences, possible
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import CategoryDomain

__all__ = ["columns", "estimate", "fold", "in_words", "possible", "said", "spread"]


def columns(mechanism: KaryResponse) -> int:
    return mechanism.categories


def fold(mechanism: KaryResponse, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    return occurrences(bodies[:, 0], mechanism.categories)


def estimate(parts: Sequence[tuple[KaryResponse, Tally]], request: EstimateRequest) -> Estimate:
    assert isinstance(request.domain, CategoryDomain)
    return subset_selection.estimate_frequencies(
        parts, request.domain.labels, request.confidence, enrolled=request.enrolled_of(parts)
    )


def said(_: KaryResponse, __: CategoryDomain, bodies: NDArray[np.int64], place: int) -> NDArray[np.float64]:
    named: NDArray[np.float64] = (bodies[:, 0] == place).astype(np.float64)
    return named


def spread(
    _: KaryResponse, __: CategoryDomain, tally: Tally, place: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    named = tally.moments[place]
    return np.array([0.0, 1.0]), np.array([tally.n - named, named])


def in_words(_: KaryResponse, domain: CategoryDomain, bodies: NDArray[np.int64]) -> list[str]:
    return [domain.labels[place] for place in bodies[:, 0].tolist()]
