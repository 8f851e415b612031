"""Tallies of one task, under one epsilon or several: what sums they have, and which are possible.

Under several epsilons a tally has for each offer the number of reports, and then the sums of its mechanism.
"""

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.mechanisms import analysis_of
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Mechanism, Offers


def columns(randomizer: Mechanism | Offers) -> int:
    """How many sums a tally of this mechanism has."""
    if isinstance(randomizer, Offers):
        return sum(1 + columns(part) for part in randomizer.parts)
    return analysis_of(randomizer).columns(randomizer)


def sums(randomizer: Mechanism | Offers, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    """The sums over at least one admitted body, shape (count, width)."""
    if isinstance(randomizer, Offers):
        return tuple(number for offer, part in enumerate(randomizer.parts) for number in _offer(part, bodies, offer))
    return analysis_of(randomizer).fold(randomizer, bodies)


def _offer(part: Mechanism, bodies: NDArray[np.int64], offer: int) -> tuple[int, ...]:
    chosen = bodies[bodies[:, 0] == offer, 1:]
    return (len(chosen), *(sums(part, chosen) if len(chosen) else (0,) * columns(part)))


def parts_of(randomizer: Mechanism | Offers, tally: Tally) -> list[tuple[Mechanism, Tally]]:
    """The mechanism and the tally of each offer; all tallies are empty if nothing was counted."""
    if not isinstance(randomizer, Offers):
        return [(randomizer, tally)]
    if not tally.moments:
        return [(part, Tally()) for part in randomizer.parts]
    parts, start = [], 0
    for part in randomizer.parts:
        stop = start + 1 + columns(part)
        parts.append((part, Tally(tally.moments[start], tally.moments[start + 1 : stop])))
        start = stop
    return parts


def check(randomizer: Mechanism | Offers, tally: Tally) -> None:
    """Refuse a tally that reports of this mechanism cannot have given.

    Raises:
        ValueError: another number of sums, or sums that contradict n; as a rule a tally of another task.
    """
    if len(tally.moments) != columns(randomizer) or not _possible(randomizer, tally):
        raise ValueError(
            f"a tally of {tally.n} reports and {len(tally.moments)} sums does not belong to this {randomizer.name} task"
        )


def _possible(randomizer: Mechanism | Offers, tally: Tally) -> bool:
    parts = parts_of(randomizer, tally)
    return sum(part.n for _, part in parts) == tally.n and all(
        analysis_of(mechanism).possible(mechanism, part) for mechanism, part in parts
    )


def fold(randomizer: Mechanism | Offers, bodies: NDArray[np.int64]) -> Tally:
    """The tally of a batch.

    Args:
        randomizer: of the task.
        bodies: admitted bodies, shape (count, width).
    """
    if len(bodies) == 0:
        return Tally()
    return Tally(len(bodies), sums(randomizer, bodies))
