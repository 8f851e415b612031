"""How wide intervals will be: computed by the estimator itself, for the population that makes them widest.

An interval's length depends on n, epsilon and confidence, and with some methods on the reports. So a tally is made up
of n reports (`hush_aggregator.estimate.worst_case`) and given to `hush_aggregator.estimate`, which alone knows what it
would print. For the reporters of a share it is also that of the answer whose own reports vary most, given by nearly
all. If its interval is cut off at a bound of the range, a mean farther inside is tried as well, and the longer interval
counts.

Of values that are known it is the tally of people like those; where a bound cuts the interval off, its whole arm
counts, since of another sample less may be cut off.

Intervals are longer the more the sample varies, so that no more than 1 - `KEPT` of the samples give a longer one than
planned.
"""

from functools import lru_cache
from math import isclose

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.estimates import Intervals
from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.estimate.mechanisms import analysis_of
from hush_aggregator.estimate.worst_case import Assumed, Values, worst_people
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Mechanism, Offers
from hush_common.task import Task

__all__ = ["half_widths", "worst_shares"]

_TRIES = 3
_NEAR = 0.05
_COARSE = 20
_FEW, _REACH, _REACH_OF_FEW = 200, 2, 10

_Array = NDArray[np.float64]


@lru_cache(maxsize=4096)
def half_widths(task: Task, people: int, confidence: float, values: Values | None = None) -> dict[str, float]:
    """Half the length of the intervals of either target.

    Args:
        task: with one epsilon; its values lie in [0, 1], or in one of the categories.
        people: how many report.
        confidence: of the intervals.
        values: of people like those who will be asked; the worst ones if None.
    """
    if values is not None:
        return _known(task, people, confidence, values)
    worst, _, intervals = _intervals(task, people, confidence, None)
    noisiest = _noisiest(_mechanism(task))
    means: dict[str, tuple[float | None, ...]] = {REPORTERS: (None,), POPULATION: (None,)}
    if noisiest is not None and abs(worst - noisiest) > _NEAR:
        means[REPORTERS] = (None, noisiest)
    return {
        target: max(_longest(task, people, confidence, target, mean) for mean in means[target])
        for target in means
        if target in intervals
    }


def _known(task: Task, people: int, confidence: float, values: Values) -> dict[str, float]:
    longest: dict[str, float] = {}
    for more in _near(task, people):
        _, center, intervals = _intervals(task, people, confidence, values, more)
        for target in {REPORTERS, POPULATION} & intervals.keys():
            low, high = intervals[target]
            whole = [arm for arm, cut in ((high - center, low <= 0), (center - low, high >= 1)) if cut]
            half = min(max((high - low) / 2, *whole, 0.0), 0.5)
            longest[target] = max(longest.get(target, 0.0), half)
    return longest


def _near(task: Task, people: int) -> range:
    """How many reports of yes more or less to try: where reports are few, the length depends on the last one."""
    if not _mechanism(task).is_share:
        return range(1)
    reach = _REACH_OF_FEW if people <= _FEW else _REACH
    return range(-reach, reach + 1)


def _mechanism(task: Task) -> Mechanism:
    if isinstance(task.randomizer, Offers):
        raise TypeError("a plan is for one epsilon")
    return task.randomizer


def _noisiest(mechanism: Mechanism) -> float | None:
    """Of a share the answer whose reports vary more, if one does."""
    if not mechanism.is_share:
        return None
    no, yes = finite(mechanism).noise.tolist()
    return None if isclose(no, yes) else float(yes > no)


def _longest(task: Task, people: int, confidence: float, target: str, inside: float | None) -> float:
    """Half the length of one interval; where a bound cuts it off, from a mean so far inside that none does."""
    longest = 0.0
    for _ in range(_TRIES):
        mean, center, intervals = _intervals(task, people, confidence, inside)
        low, high = intervals[target]
        longest = max(longest, (high - low) / 2)
        if (low <= 0) == (high >= 1):
            break
        beyond = high - 2 * center if low <= 0 else low - 2 * center + 1
        inside = min(max(mean + beyond, 0.0), 1.0)
    if _step(_mechanism(task)) / people * _COARSE > longest:  # the length depends on the last report
        for more in _near(task, people):
            low, high = _intervals(task, people, confidence, inside, more)[2][target]
            longest = max(longest, (high - low) / 2)
    return longest


def _step(mechanism: Mechanism) -> float:
    """By how much one report more of a yes moves the sum, where the estimate is a share."""
    return float(finite(mechanism).a[1] - finite(mechanism).a[0]) if mechanism.is_share else 0.0


@lru_cache(maxsize=4096)
def _intervals(
    task: Task, people: int, confidence: float, assumed: Assumed, more: int = 0
) -> tuple[float, float, Intervals]:
    """The mean of the values, the known or the worst one, the estimate, and its intervals, with so many a yes more."""
    mechanism = _mechanism(task)
    x, sums = analysis_of(mechanism).worst(mechanism, people, assumed, more)
    result = estimate(task, Tally(people, sums), confidence)
    if result.categories:
        return x, result.categories[0].frequency, result.categories[0].intervals
    one = (result.coordinates or (result,))[0]
    return x, one.mean or 0.0, one.intervals


def worst_shares(task: Task) -> _Array:
    """The share of people at each level where the reports vary most; at 0, 1/2 and 1 of reports without a bound."""
    part = _mechanism(task).part
    return np.array([0.5, 0.0, 0.5]) if part.law is None else worst_people(finite(part), None)[1]
