"""What the intervals of a plan will be: asked of the estimator itself, for the people who make them widest.

An interval's length depends on n, epsilon and confidence, and with some methods on the reports. So a tally is made up
of n reports and given to `hush_aggregator.estimate`, which alone knows what it would print.

Whose reports. Of all distributions of values the one whose reports vary most: on two of the levels between which the
second moment of a report is linear, at the mean where the chord of the second moments lies highest above the square
of the mean. (With Laplace noise: half at either bound.) For the reporters of a yes or no also the answer whose own
reports vary most, given by nearly all. If its interval is cut off at a bound of the range, a mean
farther inside is tried as well, and the longer interval counts.

Which of their reports. Samples differ. The tally is the expected one, given that the sample variance (and of a vector
the number that drew the coordinate, at its worst along with it) lies at its quantile `KEPT`: with psi = (a - mu)^2 -
sigma^2 for a report a, its deviation is that of the mean of n psi's, corrected for skewness (Cornish and Fisher), and
the expected share of an output moves by z·psi·share/sqrt(n·Var psi). Intervals are longer the more the sample varies,
so that no more than 1 - `KEPT` of the samples give a longer one than planned.
"""

from functools import lru_cache
from itertools import combinations_with_replacement
from math import isclose, sqrt

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.finite_channel import FiniteChannel, finite
from hush_aggregator.estimate.numerics.quantiles import normal_quantile
from hush_aggregator.estimate.result import Intervals
from hush_aggregator.fold import columns
from hush_aggregator.tally import Tally
from hush_common.mechanisms import (
    Laplace,
    Offers,
    RandomizedResponse,
    Single,
    SubsetSelection,
    Vector,
)
from hush_common.task import Task

__all__ = ["KEPT", "half_widths", "largest_variance", "worst_shares"]

KEPT = 0.95
"""In so many of all samples an interval is no longer than planned, however the values are distributed."""

_Z = normal_quantile(2 * KEPT - 1)

_NONE = 1e-30
_TRIES = 3
_NEAR = 0.05
_COARSE = 20
_FEW, _REACH, _REACH_OF_FEW = 200, 2, 10

_Array = NDArray[np.float64]


@lru_cache(maxsize=4096)
def half_widths(task: Task, people: int, confidence: float) -> dict[str, float]:
    """Half the length of the intervals of either target.

    Args:
        task: with one epsilon; its values lie in [0, 1], or in one of the categories.
        people: how many report.
        confidence: of the intervals.
    """
    worst, _, intervals = _intervals(task, people, confidence, None)
    noisiest = _noisiest(task.randomizer)
    means: dict[str, tuple[float | None, ...]] = {REPORTERS: (None,), POPULATION: (None,)}
    if noisiest is not None and abs(worst - noisiest) > _NEAR:
        means[REPORTERS] = (None, noisiest)
    return {
        target: max(_longest(task, people, confidence, target, mean) for mean in means[target])
        for target in means
        if target in intervals
    }


def _noisiest(mechanism: Single | Offers) -> float | None:
    """Of a coin the answer whose reports vary more, if one does."""
    if not isinstance(mechanism, RandomizedResponse | SubsetSelection):
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
    if _step(task.randomizer) / people * _COARSE > longest:  # the length depends on the last report
        reach = _REACH_OF_FEW if people <= _FEW else _REACH
        for more in range(-reach, reach + 1):
            low, high = _intervals(task, people, confidence, inside, more)[2][target]
            longest = max(longest, (high - low) / 2)
    return longest


def _step(mechanism: Single | Offers) -> float:
    """By how much one report more of a yes moves the sum."""
    if isinstance(mechanism, RandomizedResponse | SubsetSelection):
        return float(finite(mechanism).a[1] - finite(mechanism).a[0])
    return 0.0


@lru_cache(maxsize=4096)
def _intervals(
    task: Task, people: int, confidence: float, mean: float | None, more: int = 0
) -> tuple[float, float, Intervals]:
    """The mean of the values, this or the worst one, the estimate, and its intervals, with so many a yes more."""
    x, sums = _reports(task.randomizer, people, mean, more)
    result = estimate(task, Tally(people, sums), confidence)
    if result.categories:
        return x, result.categories[0].frequency, result.categories[0].intervals
    one = (result.coordinates or (result,))[0]
    return x, one.mean or 0.0, one.intervals


def _reports(mechanism: Single | Offers, people: int, mean: float | None, more: int) -> tuple[float, tuple[int, ...]]:
    """The mean of the values, and the moments of their reports, as `hush_aggregator.fold` keeps them."""
    match mechanism:
        case Laplace():
            mean = 0.5 if mean is None else mean
            return mean, _laplace(mechanism, people, mean)
        case Vector(coordinates=coordinates, sampled=sampled, levels=levels):
            mean, counts = _counts(finite(mechanism.part), people, mean, drawn=sampled / coordinates)
            rest = [0] * (coordinates - 1) * (levels + 1)
            if rest:
                rest[0] = people * sampled - sum(counts)  # who drew what else does not matter
            return mean, (*counts, *rest)
        case Offers():
            raise TypeError("a plan is for one epsilon")
    channel = finite(mechanism)
    mean, counts = _counts(channel, people, mean)
    ones = min(max(counts[-1] + more, 0), people)
    match mechanism:
        case RandomizedResponse():
            return mean, (ones,)
        case SubsetSelection(categories=categories, size=size):
            each, others = divmod(people * size - ones, categories - 1)
            return mean, (ones, *(each + (place < others) for place in range(categories - 1)))
    by_output = dict(zip(channel.used, counts, strict=True))
    return mean, tuple(by_output.get(output, 0) for output in range(columns(mechanism)))


def worst_shares(task: Task) -> _Array:
    """The share of people at each level where the reports vary most; of Laplace noise at 0, 1/2 and 1."""
    match task.randomizer:
        case Laplace():
            return np.array([0.5, 0.0, 0.5])
        case Vector() as vector:
            return _worst(finite(vector.part), None)[1]
        case Offers():
            raise TypeError("a plan is for one epsilon")
        case mechanism:
            return _worst(finite(mechanism), None)[1]


def largest_variance(channel: FiniteChannel) -> float:
    """Of a report of a person drawn from a population, whatever that is."""
    x, people = _worst(channel, None)
    return float(people @ channel.p @ channel.a**2 - x**2)


@lru_cache(maxsize=256)
def _worst(channel: FiniteChannel, mean: float | None) -> tuple[float, _Array]:
    """The mean of the worst values, the given one if any, and which share of them lies at each node."""
    squares, x = (channel.p @ channel.a**2).tolist(), channel.nodes.tolist()
    most, best = -1.0, (0, 0, 0.0)
    for i, j in combinations_with_replacement(range(len(x)), 2):
        slope = (squares[j] - squares[i]) / (x[j] - x[i]) if i < j else 0.0
        at = min(max(slope / 2 if mean is None else mean, x[i]), x[j])
        variance = squares[i] + slope * (at - x[i]) - at**2
        if variance > most and (mean is None or at == mean):
            most, best = variance, (i, j, at)
    i, j, at = best
    people = np.zeros(len(x))
    people[i] = 1 - ((at - x[i]) / (x[j] - x[i]) if i < j else 0.0)
    people[j] += 1 - people[i] if i < j else 0.0
    return at, people


def _counts(channel: FiniteChannel, people: int, mean: float | None, drawn: float = 1.0) -> tuple[float, list[int]]:
    """The mean of the values, and how often each used output came, of those whom chance drew."""
    mu, people_at = _worst(channel, mean)
    share = people_at @ channel.p
    squares = (channel.a - mu) ** 2
    psi = squares / float(share @ squares) - 1
    n, missed = people * drawn, 1 - drawn  # psi's mean less the relative excess of those drawn, at its quantile:
    variance = (float(share @ psi**2) + missed) / n
    third = (float(share @ psi**3) - missed * (missed - drawn)) / n**2
    if variance > _NONE:
        z = _quantile(third / variance**1.5)
        likely = np.maximum(share * (1 + z * psi / n / sqrt(variance)), 0)
        n *= 1 - z * missed / n / sqrt(variance)
        fair = len(share) == 2 and (likely[0] > likely[1]) != (share[0] > share[1])  # noqa: PLR2004 - a coin
        share = share if fair else likely / likely.sum()  # a coin that chance may make fair varies as one does
    return mu, _rounded(share, max(round(n), 1))


def _quantile(skewness: float) -> float:
    """Of a deviation whose skewness, beyond what the expansion is good for, counts as 1."""
    return _Z + min(max(skewness, -1.0), 1.0) * (_Z**2 - 1) / 6


def _rounded(share: _Array, n: int) -> list[int]:
    """Integers of sum n, by largest remainders."""
    exact = [float(one) * n for one in share]
    counts = [int(one) for one in exact]
    by_rest = sorted(range(len(counts)), key=lambda place: counts[place] - exact[place])
    for turn in range(n - sum(counts)):
        counts[by_rest[turn % len(by_rest)]] += 1
    return counts


def _laplace(mechanism: Laplace, people: int, mean: float) -> tuple[int, ...]:
    """Values at the bounds; the sums of the winsorised mean as if no report lay outside."""
    b2, values = mechanism.worst_variance / 2, mean * (1 - mean)
    raw = {2: values, 4: values * (1 - 3 * values), 6: values * (1 - 5 * values * (1 - values))}  # about the mean
    variance = values + 2 * b2
    fourth = raw[4] + 6 * values * 2 * b2 + 24 * b2**2
    sixth = raw[6] + 15 * raw[4] * 2 * b2 + 15 * values * 24 * b2**2 + 720 * b2**3
    third = sixth - 3 * variance * fourth + 2 * variance**3
    deviation = sqrt((fourth - variance**2) / people)
    sample = variance + _quantile(third / people**2 / deviation**3) * deviation
    total = round(people * mean * mechanism.steps)
    squares = round((people - 1) * sample * mechanism.steps**2) + -(-(total**2) // people)
    return (total, squares, *((total, 0) * ((columns(mechanism) - 2) // 2)))
