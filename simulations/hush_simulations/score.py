"""Score: the truth of a simulation, which only a simulation knows, and whether the error bars cover it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hush_common.refusal import Refusal
from hush_simulations.population import Value

__all__ = ["covered", "judged", "truth"]


def truth(values: Sequence[Value], population_mean: float | None) -> dict[str, float]:
    """What the two error bars are about.

    Args:
        values: the true values of the devices that reported, before any clamping.
        population_mean: mean of the distribution they were drawn from, or None where nobody knows it.

    Returns:
        `"reporters"`, the mean of the values (absent if nobody reported), and `"population"` if it is known.
    """
    known = {} if population_mean is None else {"population": population_mean}
    return ({"reporters": math.fsum(values) / len(values)} if values else {}) | known


def covered(result: Mapping[str, Any], truths: Mapping[str, float]) -> dict[str, bool]:
    """For each truth that is known and has an interval, whether it lies in the interval, ends included.

    Args:
        result: the result document of a round (`intervals`: target → [lower, upper]).
        truths: as `truth` returns them.
    """
    intervals: Mapping[str, Sequence[float]] = result.get("intervals", {})
    return {
        target: intervals[target][0] <= mean <= intervals[target][1]
        for target, mean in truths.items()
        if target in intervals
    }


def judged(accepted: int, refused: Mapping[str, int] | Mapping[Refusal, int]) -> int:
    """How many different reports were accepted or refused.

    A redelivery is refused as a duplicate, but it is no further report: counted in, it would hide one that was lost.
    """
    return accepted + sum(count for reason, count in refused.items() if reason != Refusal.DUPLICATE)
