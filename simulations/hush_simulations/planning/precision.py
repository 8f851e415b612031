"""Planning one mechanism: sample size, epsilon or error from the other two.

Error, at a confidence: half the length of the interval that `hush_aggregator.estimate` would print, for the worst
people and all but unlikely samples of them (`hush_simulations.planning.worst_case`). As a root mean square:
sqrt((noise + spread)/n). The trusted collector has no interval of hush's: its error is the exact quantile of its noise,
z times the deviation of the sampling in quadrature.

Errors fall as n or epsilon rises, but where an interval changes its method they may jump. So each search starts from
what normal intervals of the same variance would need, which is nearly what hush needs where reports are many, and
walks to the nearest place where the error becomes small enough.
"""

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from itertools import count
from math import exp, inf, isqrt, log, sqrt
from typing import Literal

from hush_aggregator.estimate.numerics.quantiles import normal_quantile
from hush_common.epsilon import SMALLEST
from hush_simulations.planning.costs import EVEN, Family, MechanismCost
from hush_simulations.planning.worst_case import half_widths

__all__ = [
    "LARGEST_PLANNED",
    "MOST_PEOPLE",
    "TARGETS",
    "Target",
    "epsilon_for",
    "error_of",
    "people_for",
    "sampling_error",
]

Target = Literal["reporters", "population"]
TARGETS: tuple[Target, Target] = ("reporters", "population")
"""The mean of those who answer, and of the people they are a random sample of."""

MOST_PEOPLE = 10**15
LARGEST_PLANNED = Fraction(16)
"""No epsilon above it is proposed: it would hide nothing."""

_SLACK = 1 + 1e-9  # an error that equals the target but for its rounding meets it
_STRIDE = 64  # first step of a search: so many-th part of where it starts
_DECADE = 9000  # numbers of four digits


def error_of(line: MechanismCost, target: Target, people: int, confidence: float | None) -> float:
    """Half the length of the interval of a mean at `confidence`; for None, its root mean square error."""
    if confidence is None or line.task is None:
        return _normal_error(line, target, people, confidence)
    laws = line.values or (None,)
    return max(half_widths(line.task, people, confidence, values).get(target, inf) for values in laws)


def _normal_error(line: MechanismCost, target: Target, people: int, confidence: float | None) -> float:
    """By the largest variance and the normal law; of a trusted collector's noise by its own."""
    z = 1.0 if confidence is None else normal_quantile(confidence)
    sampling = z**2 * line.spread / people if target == "population" else 0.0
    if line.mechanism != "trusted collector":
        return sqrt(z**2 * line.noise / people + sampling)
    quantile = sqrt(2) if confidence is None else -log(1 - confidence)
    return sqrt(line.noise / 2 * (quantile / people) ** 2 + sampling)


def sampling_error(people: int, confidence: float | None, variance: float = EVEN) -> float:
    """The error of `people` answers without any noise, for `population`: no epsilon goes below it.

    Args:
        people: how many answer.
        confidence: of the interval; None for the root mean square.
        variance: of one person's value; the largest there is unless it is known.
    """
    return sqrt(variance / people) * (1.0 if confidence is None else normal_quantile(confidence))


def people_for(line: MechanismCost, target: Target, error: float, confidence: float | None) -> int | None:
    """The fewest people whose error is at most `error`; None above `MOST_PEOPLE`."""
    guess = _first(lambda people: _normal_error(line, target, people, confidence), error, 1, MOST_PEOPLE)
    if guess is None or confidence is None or line.task is None:
        return guess
    return _first(lambda people: error_of(line, target, people, confidence), error, guess, MOST_PEOPLE)


def epsilon_for(family: Family, target: Target, people: int, error: float, confidence: float | None) -> Fraction | None:
    """The smallest epsilon, to four digits and rounded up, at which the error of `people` is at most `error`.

    None if none up to `LARGEST_PLANNED` will do.
    """

    def by(measure: Callable[[MechanismCost, Target, int, float | None], float]) -> Callable[[int], float]:
        def at(place: int) -> float:
            line = family(_epsilon(place))
            return inf if line is None else measure(line, target, people, confidence)

        return at

    most = _place(LARGEST_PLANNED)
    z = 1.0 if confidence is None else normal_quantile(confidence)
    usual = min(max(Fraction(2 * z / error) / isqrt(people), SMALLEST), LARGEST_PLANNED)  # noise is about 4/epsilon^2
    guess = _first(by(_normal_error), error, _place(usual), most)
    place = guess if guess is None else _first(by(error_of), error, guess, most)
    return None if place is None else _epsilon(place)


def _epsilon(place: int) -> Fraction:
    """The numbers of four digits, from the smallest epsilon on, by their place from 1."""
    decade, digits = divmod(place - 1, _DECADE)
    return SMALLEST * Fraction((1000 + digits) * 10**decade, 1000)


def _place(epsilon: Fraction) -> int:
    """Where the first number of four digits that is not below it stands."""
    return bisect_left(range(1, 9 * _DECADE), epsilon, key=_epsilon) + 1


def _first(error: Callable[[int], float], limit: float, guess: int, most: int) -> int | None:
    """The place near `guess`, from 1 to `most`, from which on the error is at most `limit`; None if there is none."""
    limit *= _SLACK
    stride, low, high = max(guess // _STRIDE, 1), 0, guess
    if error(guess) > limit:
        while error(high := min(guess + stride, most)) > limit:
            if high == most:
                return None
            guess, stride = high, 2 * stride
        low = guess
    else:
        while (low := max(high - stride, 0)) and error(low) <= limit:
            high, stride = low, 2 * stride
    for turn in count():
        if high - low <= 1:
            break
        middle = _crossing((low, error(low)), (high, error(high)), limit) if low and turn % 3 else (low + high) // 2
        if error(middle) > limit:
            low = middle
        else:
            high = middle
    return high


def _crossing(low: tuple[int, float], high: tuple[int, float], limit: float) -> int:
    """Where a power law through two errors, above and not above the limit, reaches it; strictly between them."""
    if not low[1] > high[1] > 0 or low[1] == inf:
        return (low[0] + high[0]) // 2
    share = log(low[1] / limit) / log(low[1] / high[1])
    middle = round(exp(log(low[0]) + share * log(high[0] / low[0])))
    return min(max(middle, low[0] + 1), high[0] - 1)
