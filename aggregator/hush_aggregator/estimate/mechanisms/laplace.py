"""`laplace`: Σk, Σk², then for each rung r of `LADDER` the winsorised sums.

These are Σ of k moved into [-t, m + t], and how many were moved, t = `threshold(mechanism, r)`.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import sqrt
from operator import ne
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import laplace
from hush_aggregator.estimate.estimates import Estimate
from hush_aggregator.estimate.ladder import LADDER, threshold
from hush_aggregator.estimate.mechanisms.analysis import Asked
from hush_aggregator.estimate.mechanisms.bounded import in_words_of
from hush_aggregator.estimate.worst_case import Assumed, Values, quantile
from hush_aggregator.tally import Tally
from hush_common.domain import NumberDomain
from hush_common.mechanisms import Laplace

__all__ = ["columns", "estimate", "fold", "in_words", "possible", "said", "spread", "worst"]

_SAFE = 1 << 62
_FEW = 8
_EXACT = 1 << 53  # floats below it are exact integers


def columns(_: Laplace) -> int:
    return 2 + 2 * len(LADDER)


def possible(_: Laplace, tally: Tally) -> bool:
    sums = tally.moments
    return tally.n * sums[1] >= sums[0] ** 2 and all(0 <= moved <= tally.n for moved in sums[3::2])


def estimate(parts: Sequence[tuple[Laplace, Tally]], asked: Asked) -> Estimate:
    return laplace.estimate(parts, cast("NumberDomain", asked.domain), asked.confidence, asked.enrolled_of(parts))


def said(_: Laplace, domain: NumberDomain, bodies: NDArray[np.int64], __: int) -> NDArray[np.float64]:
    return domain.lower + bodies[:, 0].astype(np.float64) * float(domain.step)


def spread(_: Laplace, __: NumberDomain, ___: Tally, ____: int) -> None:
    """None: of reports without number a tally has sums."""


def in_words(mechanism: Laplace, domain: NumberDomain, bodies: NDArray[np.int64]) -> list[str]:
    return in_words_of(said(mechanism, domain, bodies, 0))


def worst(mechanism: Laplace, people: int, assumed: Assumed, _: int) -> tuple[float, tuple[int, ...]]:
    """Values at the bounds, half at either if nothing is known; the winsorised sums as if no report lay outside."""
    if isinstance(assumed, Values):
        mean, raw = assumed.mean, {order: assumed.moment(order) for order in (2, 4, 6)}
    else:
        mean = 0.5 if assumed is None else assumed
        two = mean * (1 - mean)
        raw = {2: two, 4: two * (1 - 3 * two), 6: two * (1 - 5 * two * (1 - two))}  # about the mean
    b2, values = mechanism.worst_variance / 2, raw[2]
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
    if len(reported) <= _FEW:
        return _fold_few(mechanism, reported.tolist())
    total = _sum(reported)
    sums = [total, _sum_of_squares(reported)]
    reaches = _reaches(mechanism)
    above = _beyond(reported[reported > mechanism.steps + int(reaches[0])], -mechanism.steps, 1, reaches)
    below = _beyond(reported[reported < -int(reaches[0])], 0, -1, reaches)
    for over, under, reach in zip(above, below, reaches.tolist(), strict=True):
        sums += [total - (over[1] - over[0] * reach) + (under[1] - under[0] * reach), over[0] + under[0]]
    return tuple(sums)


def _fold_few(mechanism: Laplace, reported: list[int]) -> tuple[int, ...]:
    """The same of a few reports, without arrays: a batch may have one report of each of thousands of tasks."""
    total, steps, sums = sum(reported), mechanism.steps, [sum(reported), sum(k * k for k in reported)]
    nearest = threshold(mechanism, LADDER[0])
    if -nearest <= min(reported) and max(reported) <= steps + nearest:
        return (*sums, *((total, 0) * len(LADDER)))
    for reach in _reaches(mechanism).tolist():
        moved = [min(max(k, -reach), steps + reach) for k in reported]
        sums += [sum(moved), sum(map(ne, moved, reported))]
    return tuple(sums)


@lru_cache(maxsize=64)
def _reaches(mechanism: Laplace) -> NDArray[np.int64]:
    return np.array([threshold(mechanism, step) for step in LADDER])


def _beyond(far: NDArray[np.int64], shift: int, sign: int, reaches: NDArray[np.int64]) -> list[tuple[int, int]]:
    """How many of the far reports k lie beyond each reach, sign·(k + shift) out, and the sum of how far they do."""
    if len(far) == 0:
        return [(0, 0)] * len(reaches)
    if max(abs(int(far.max())), abs(int(far.min()))) * len(far) >= _EXACT:
        out = [sign * (k + shift) for k in far.tolist()]
        return [(sum(k > reach for k in out), sum(k for k in out if k > reach)) for reach in reaches.tolist()]
    out_by = sign * (far + shift)
    rungs = np.searchsorted(reaches, out_by)  # how many reaches it exceeds
    counts, sums = (np.bincount(rungs, weights, minlength=len(reaches) + 1) for weights in (None, out_by))
    beyond = (column[:0:-1].cumsum()[::-1].astype(np.int64).tolist() for column in (counts, sums))
    return list(zip(*beyond, strict=True))


def _sum(reported: NDArray[np.int64]) -> int:
    """An exact sum: in 64 bits where it cannot overflow, in Python's integers where it could."""
    largest = max(abs(int(reported.max())), abs(int(reported.min())))
    if largest * len(reported) < _SAFE:
        return int(reported.sum())
    return sum(reported.tolist())


def _sum_of_squares(reported: NDArray[np.int64]) -> int:
    """An exact sum of squares: of as many at a time as cannot overflow."""
    largest = max(abs(int(reported.max())), abs(int(reported.min())), 1)
    together = _SAFE // largest**2
    if together < _FEW:
        return sum(k * k for k in reported.tolist())
    squares = reported * reported
    return sum(np.add.reduceat(squares, np.arange(0, len(squares), together)).tolist())
