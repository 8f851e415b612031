"""What the shipped `estimate` says, before and after an interval is clipped to its domain."""

from collections.abc import Callable

import numpy as np
from covering.cells import SLACK, Array
from numpy.typing import NDArray
from single_intervals import unclipped

from hush import Task
from hush_aggregator import Estimate
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.tally import Tally

__all__ = ["about", "arms", "check", "holding", "limits_of", "monotone"]

Bools = NDArray[np.bool_]
CHECKED = 2
CLOSE = 1e-6
"""Of a limit that is found by iteration."""


def about(task: Task, tally: Tally, confidence: float) -> Estimate:
    """The estimate with the ends of its intervals as they are."""
    with unclipped():
        return estimate(task, tally, confidence)


def arms(task: Task, tally: Tally, confidence: float, target: str) -> tuple[float, float]:
    """How far an interval whose width does not depend on the reports reaches below and above its center."""
    given = about(task, tally, confidence)
    low, high = given.intervals[target]
    center = given.pooled.mean if given.pooled and target == "population" else given.mean
    if center is None:
        raise TypeError(task.id)
    return center - low, high - center


def holding(center: Array, low: Array, high: Array, truth: float) -> Bools:
    """Whether the truth lies in the interval, clipped to [0, 1] by the rule of `Units.around`."""
    low, high = low - np.maximum(center - 1, 0), high - np.minimum(center, 0)
    held = (np.clip(low, 0, 1) - SLACK <= truth) & (truth <= np.clip(high, 0, 1) + SLACK)
    return np.asarray(held)


def limits_of(task: Task, tally: Tally, confidence: float, target: str) -> tuple[float, float]:
    """As published; of a vector for its first coordinate, of categories for the first of them."""
    given = estimate(task, tally, confidence)
    low, high = given.parts[0].intervals[target]
    return float(low), float(high)


def monotone(center: Array, limits: Callable[[int], tuple[float, float]], truth: float) -> Bools:
    """Which runs hold the truth, where both limits rise with the center: two edges, found by bisection.

    Args:
        center: of each run.
        limits: of a run, by its number.
        truth: what they ought to hold.
    """
    values, first = np.unique(np.round(center, 12), return_index=True)

    def edge(accepts: Callable[[tuple[float, float]], bool]) -> int:
        """The first of the ascending centers that is accepted, or how many there are."""
        low, high = 0, len(values)
        while low < high:
            middle = (low + high) // 2
            if accepts(limits(int(first[middle]))):
                high = middle
            else:
                low = middle + 1
        return low

    least = edge(lambda pair: pair[1] + SLACK >= truth)
    most = edge(lambda pair: pair[0] - SLACK > truth)
    place = np.searchsorted(values, np.round(center, 12))
    return np.asarray((place >= least) & (place < most))


def check(
    center: Array, held: Bools, limits: Callable[[int], tuple[float, float]], truth: float, about_what: object
) -> None:
    """Hold the runs at the edges of what is held against what is published.

    Raises:
        AssertionError: one of them is not what `estimate` says.
    """
    order = np.argsort(np.abs(center - truth), kind="stable")
    for run in (*order[held[order]][-CHECKED:].tolist(), *order[~held[order]][:CHECKED].tolist()):
        low, high = limits(run)
        near = min(abs(low - truth), abs(high - truth)) < CLOSE
        if (low - SLACK <= truth <= high + SLACK) != held[run] and not near:
            raise AssertionError((about_what, truth, float(center[run]), low, high, bool(held[run])))
