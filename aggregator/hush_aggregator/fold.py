"""Moments: what of a batch of reports is kept, as exact integers, for each mechanism.

    laplace              Σk, Σk², then for each rung r of `LADDER`: Σ of k moved into [-t, m + t], and how many were
                         moved, t = `threshold(mechanism, r)`
    randomized_response  the number of ones
    multilevel           how often each level 0 … G was reported
    table                how often each output was reported
    subset_selection     how often each category was named
    vector               for each coordinate how often each level was reported
    several epsilons     for each offer the number of reports, and then the moments of its mechanism

Each is a sum over reports, so tallies of shards add up. From these sums alone every number of an estimate is made.
"""

from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.tally import Tally
from hush_common.mechanisms import (
    Channel,
    Laplace,
    Multilevel,
    Offers,
    RandomizedResponse,
    Single,
    SubsetSelection,
    Vector,
)

__all__ = ["LADDER", "check", "columns", "fold", "rung", "split", "threshold"]

LADDER = range(1, 25)
"""Winsorising thresholds, in noise scales beyond the grid. The last is enough for e^24 reports."""

_SAFE = 1 << 62
_WORD = 32


def threshold(mechanism: Laplace, rung: int) -> int:
    """How far beyond the grid, in steps, rung `rung` lets a report lie."""
    return ceil(rung * mechanism.scale)


def rung(n: int) -> int:
    """The rung for n reports: the smallest that is at least ln n, so that honest noise loses at most b/(2n)."""
    return min(max(ceil(log(max(n, 1))), LADDER[0]), LADDER[-1])


def columns(randomizer: Single | Offers) -> int:  # noqa: PLR0911 - one return a mechanism
    """How many moments a tally of this mechanism has."""
    match randomizer:
        case Offers(parts=parts):
            return sum(1 + columns(part) for part in parts)
        case Laplace():
            return 2 + 2 * len(LADDER)
        case RandomizedResponse():
            return 1
        case Multilevel(levels=levels):
            return levels + 1
        case Channel(positions=positions):
            return len(positions)
        case SubsetSelection(categories=categories):
            return categories
        case Vector(coordinates=coordinates, levels=levels):
            return coordinates * (levels + 1)


def fold(randomizer: Single | Offers, bodies: NDArray[np.int64]) -> Tally:
    """The tally of a batch.

    Args:
        randomizer: of the task.
        bodies: admitted bodies, shape (count, width).
    """
    if len(bodies) == 0:
        return Tally()
    return Tally(len(bodies), _sums(randomizer, bodies))


def split(randomizer: Offers, tally: Tally) -> list[Tally]:
    """The tally of each offer; all empty if nothing was counted."""
    if not tally.moments:
        return [Tally() for _ in randomizer.parts]
    parts, start = [], 0
    for part in randomizer.parts:
        stop = start + 1 + columns(part)
        parts.append(Tally(tally.moments[start], tally.moments[start + 1 : stop]))
        start = stop
    return parts


def check(randomizer: Single | Offers, tally: Tally) -> None:
    """Refuse a tally that reports of this mechanism cannot have given.

    Raises:
        ValueError: another number of sums, or sums that contradict n; as a rule a tally of another task.
    """
    if len(tally.moments) != columns(randomizer) or not _possible(randomizer, tally):
        raise ValueError(
            f"a tally of {tally.n} reports and {len(tally.moments)} sums is none of this {randomizer.name} task"
        )


def _possible(randomizer: Single | Offers, tally: Tally) -> bool:
    sums = tally.moments
    match randomizer:
        case Offers(parts=parts):
            offers = split(randomizer, tally)
            return sum(offer.n for offer in offers) == tally.n and all(
                _possible(part, offer) for part, offer in zip(parts, offers, strict=True)
            )
        case Laplace():
            return tally.n * sums[1] >= sums[0] ** 2 and all(0 <= moved <= tally.n for moved in sums[3::2])
        case RandomizedResponse():
            return 0 <= sums[0] <= tally.n
        case Multilevel() | Channel():
            return min(sums) >= 0 and sum(sums) == tally.n
        case SubsetSelection(size=size):
            return min(sums) >= 0 and max(sums) <= tally.n and sum(sums) == tally.n * size
        case Vector(sampled=sampled):
            return min(sums) >= 0 and sum(sums) == tally.n * sampled


def _sums(randomizer: Single | Offers, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    match randomizer:
        case Offers(parts=parts):
            return tuple(number for offer, part in enumerate(parts) for number in _offer(part, bodies, offer))
        case Laplace():
            return _laplace(randomizer, bodies[:, 0])
        case RandomizedResponse():
            return (int(bodies[:, 0].sum()),)
        case Multilevel() | Channel():
            return _counts(bodies[:, 0], columns(randomizer))
        case SubsetSelection():
            return _named(randomizer, bodies)
        case Vector(levels=levels):
            return _counts((bodies[:, ::2] * (levels + 1) + bodies[:, 1::2]).ravel(), columns(randomizer))


def _offer(part: Single, bodies: NDArray[np.int64], offer: int) -> tuple[int, ...]:
    chosen = bodies[bodies[:, 0] == offer, 1:]
    return (len(chosen), *(_sums(part, chosen) if len(chosen) else (0,) * columns(part)))


def _counts(cells: NDArray[np.int64], size: int) -> tuple[int, ...]:
    return tuple(np.bincount(cells, minlength=size).tolist())


def _named(mechanism: SubsetSelection, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    """Category c is bit c mod 32 of word floor(c/32)."""
    bits = np.arange(_WORD, dtype=np.int64)
    named = [int(count) for word in bodies.T for count in ((word[:, None] >> bits) & 1).sum(axis=0)]
    return tuple(named[: mechanism.categories])


def _laplace(mechanism: Laplace, reported: NDArray[np.int64]) -> tuple[int, ...]:
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
