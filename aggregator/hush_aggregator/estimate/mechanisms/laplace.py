"""`laplace`: Σk, Σk², then for each rung r of `LADDER` the winsorised sums.

These are Σ of k moved into [-t, m + t], and how many were moved, t = `threshold(mechanism, r)`.
"""

from collections.abc import Sequence
from math import sqrt
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import laplace
from hush_aggregator.estimate.estimates import Estimate
from hush_aggregator.estimate.ladder import LADDER, threshold
from hush_aggregator.estimate.mechanisms.analysis import Asked
from hush_aggregator.estimate.mechanisms.bounded import in_words_of
from hush_aggregator.estimate.worst_case import quantile
from hush_aggregator.tally import Tally
from hush_common.domain import NumberDomain
from hush_common.mechanisms import Laplace

__all__ = ["columns", "estimate", "fold", "in_words", "possible", "said", "worst"]

_SAFE = 1 << 62


def columns(_: Laplace) -> int:
    return 2 + 2 * len(LADDER)


def possible(_: Laplace, tally: Tally) -> bool:
    sums = tally.moments
    return tally.n * sums[1] >= sums[0] ** 2 and all(0 <= moved <= tally.n for moved in sums[3::2])


def estimate(parts: Sequence[tuple[Laplace, Tally]], asked: Asked) -> Estimate:
    return laplace.estimate(parts, cast("NumberDomain", asked.domain), asked.confidence, asked.enrolled_of(parts))


def said(_: Laplace, domain: NumberDomain, bodies: NDArray[np.int64], __: int) -> NDArray[np.float64]:
    return domain.lower + bodies[:, 0].astype(np.float64) * float(domain.step)


def in_words(mechanism: Laplace, domain: NumberDomain, bodies: NDArray[np.int64]) -> list[str]:
    return in_words_of(said(mechanism, domain, bodies, 0))


def worst(mechanism: Laplace, people: int, mean: float | None, _: int) -> tuple[float, tuple[int, ...]]:
    """Values at the bounds, half at either if no mean is given; the winsorised sums as if no report lay outside."""
    mean = 0.5 if mean is None else mean
    b2, values = mechanism.worst_variance / 2, mean * (1 - mean)
    raw = {2: values, 4: values * (1 - 3 * values), 6: values * (1 - 5 * values * (1 - values))}  # about the mean
    variance = values + 2 * b2
    fourth = raw[4] + 6 * values * 2 * b2 + 24 * b2**2
    sixth = raw[6] + 15 * raw[4] * 2 * b2 + 15 * values * 24 * b2**2 + 720 * b2**3
    third = sixth - 3 * variance * fourth + 2 * variance**3
    deviation = sqrt((fourth - variance**2) / people)
    sample = variance + quantile(third / people**2 / deviation**3) * deviation
    total = round(people * mean * mechanism.steps)
    squares = round((people - 1) * sample * mechanism.steps**2) + -(-(total**2) // people)
    return mean, (total, squares, *((total, 0) * len(LADDER)))


def fold(mechanism: Laplace, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    reported = bodies[:, 0]
    beyond = max(-int(reported.min()), int(reported.max()) - mechanism.steps)
    total = _sum(reported)
    sums = [total, _sum_of_squares(reported)]
    for step in LADDER:
        reach = threshold(mechanism, step)
        if reach >= beyond:
            sums += [total, 0]
            continue
        moved = np.clip(reported, -reach, mechanism.steps + reach)
        sums += [_sum(moved), int((moved != reported).sum())]
    return tuple(sums)


def _sum(reported: NDArray[np.int64]) -> int:
    """An exact sum: in 64 bits where it cannot overflow, in Python's integers where it could."""
    largest = max(abs(int(reported.max())), abs(int(reported.min())))
    if largest * len(reported) < _SAFE:
        return int(reported.sum())
    return sum(reported.tolist())


def _sum_of_squares(reported: NDArray[np.int64]) -> int:
    """An exact sum of squares."""
    largest = max(abs(int(reported.max())), abs(int(reported.min())))
    if largest * largest * len(reported) < _SAFE:
        return int((reported * reported).sum())
    return sum(k * k for k in reported.tolist())
