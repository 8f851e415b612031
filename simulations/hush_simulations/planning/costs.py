"""The mechanisms that `hush plan` compares: the variance of their reports, and what error, people or epsilon follow.

Everything is in units of the range R of the value (of one share, for bits and categories). A report of one person has,
once decoded, a variance of at most `noise` given that person's value, whatever it is; and of at most `noise` + `spread`
when the person is drawn at random from a population, whatever that is. Both are exact suprema:

- a mechanism whose variance does not depend on the value (laplace, the optimal randomized response): spread = 1/4, the
  largest variance that a number in [0, 1] can have (Popoviciu 1935);
- multilevel, table and one category of subset_selection: between two input levels the second moment is linear in the
  value, so that the largest total variance over all populations is that of a population on two levels, a parabola in
  its mean. One-bit reports have spread 0: they look the same whatever the population looks like.

Of values that are known both are those of these values: the mean of the noise, and their variance.

The reference line is the central model: a collector who sees all values and adds Laplace noise of scale 1/(n·epsilon)
to their mean (Dwork, McSherry, Nissim and Smith 2006). Its n goes as 1/(error·epsilon), a local one as the square.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import count
from math import exp, inf, isclose, isqrt, log, sqrt
from operator import itemgetter
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.estimates import Intervals
from hush_aggregator.estimate.finite_channel import Assumed, Values, finite, largest_variance, worst_people
from hush_aggregator.estimate.mechanisms import analysis_of
from hush_aggregator.estimate.numerics.quantiles import normal_quantile
from hush_aggregator.tally import Tally
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import SMALLEST
from hush_common.mechanisms import Laplace, Mechanism, Offers, SubsetSelection
from hush_common.mechanisms.parameters import Parameters
from hush_common.mechanisms.registry import fitting
from hush_common.task import Task

EVEN = 0.25
"""Variance of a fair bit: the largest on the unit interval."""

Known = tuple[Values, ...]
"""The known distribution of the values: one of a number or a bit, one for each category; empty if unknown."""

_UNIT = NumberDomain(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class MechanismCost:
    """A mechanism at one epsilon.

    `noise` is the largest variance of one decoded report given the value; of the central model the variance of n times
    the error. `spread` is what a random sample of people adds to it at most. `task` is the question about values in
    [0, 1]; None for the central model. `values` are the known values, of categories those whose shares vary most.
    """

    mechanism: str
    noise: float
    spread: float
    task: Task | None
    parameters: Mapping[str, int] = field(default_factory=dict)
    values: Known = ()


Family = Callable[[Fraction], MechanismCost | None]
"""A mechanism at every epsilon; None if it does not exist at that epsilon."""


def sampling_variance(known: Known) -> float:
    """Return the variance of a random person's value: that of the known values, or the largest possible."""
    return max((values.moment(2) for values in known), default=EVEN)


def offered(domain: Domain, known: Known = ()) -> dict[str, Family]:
    """Return every mechanism that fits a domain, by name; the default of a task file last."""
    return {kind.name: _family(kind, _unit(domain), known) for kind in reversed(fitting(domain))}


def references(domain: Domain, known: Known = ()) -> dict[str, Family]:
    """Return other local mechanisms that hush does not offer, for comparison."""
    match domain:
        case BitDomain():
            return {"laplace on the bit": partial(_laplace, "laplace on the bit", 1, known)}
        case CategoryDomain():
            return {"one category named": partial(_one_category, "one category named", _unit(domain), known)}
        case VectorDomain(coordinates=coordinates) if len(coordinates) > 1:
            return {
                "laplace on each coordinate": partial(_laplace, "laplace on each coordinate", len(coordinates), known)
            }
        case _:
            return {}


def central(domain: Domain, known: Known = ()) -> Family:
    """Return the central model: a trusted collector adds noise to the mean, or to all shares or means together.

    One person moves one mean by 1/n, the shares of k categories by 2/n together, and d means by d/n.
    """
    spread = sampling_variance(known)
    moved = domain.sensitivity
    return lambda epsilon: MechanismCost("trusted collector", 2 * float(moved / epsilon) ** 2, spread, None)


def _unit(domain: Domain) -> Domain:
    """The same question about values in [0, 1], or in as many categories."""
    return type(domain).of_size(len(domain.parts))


def _laplace(name: str, parts: int, known: Known, epsilon: Fraction) -> MechanismCost | None:
    """Noise on each of so many numbers."""
    cost = _family(Laplace, _UNIT, known)(epsilon / parts)
    return None if cost is None else replace(cost, mechanism=name)


@lru_cache(maxsize=256)
def _one_category(name: str, domain: Domain, known: Known, epsilon: Fraction) -> MechanismCost:
    cost = _cost(SubsetSelection, domain, epsilon, Parameters(size=(1,)), known)
    return replace(cost, mechanism=name)


@lru_cache(maxsize=64)
def _family(kind: type[Mechanism], domain: Domain, known: Known) -> Family:
    """A mechanism with hush's own parameters."""

    @lru_cache(maxsize=256)
    def at(epsilon: Fraction) -> MechanismCost | None:
        if not kind.serves([epsilon]):
            return None
        return _cost(kind, domain, epsilon, kind.complete(domain, [epsilon], Parameters()), known)

    return at


def _cost(
    kind: type[Mechanism], domain: Domain, epsilon: Fraction, parameters: Parameters, known: Known
) -> MechanismCost:
    task = None
    if epsilon >= SMALLEST:
        task = Task(id="plan", epsilon=epsilon, mechanism=kind.name, domain=domain, parameters=parameters)
    mechanism = kind.build(domain, epsilon, parameters, 0) if task is None else cast("Mechanism", task.randomizer)
    if not known:
        return MechanismCost(kind.name, *_variances(mechanism), task, mechanism.chosen)
    found = [(*_variances_of(mechanism, values), values) for values in known]
    noisy, varied = max(found, key=itemgetter(0)), max(found, key=lambda one: one[0] + one[1])
    kept = tuple(dict.fromkeys((noisy[2], varied[2])))
    spread = max(varied[0] + varied[1] - noisy[0], 0.0)
    return MechanismCost(kind.name, noisy[0], spread, task, mechanism.chosen, kept)


def _variances_of(mechanism: Mechanism, values: Values) -> tuple[float, float]:
    """The same, of people with these values."""
    spread = values.moment(2)
    if mechanism.law is None:
        return mechanism.worst_variance, spread
    channel = finite(mechanism)
    squares = float(values.at(channel.nodes) @ channel.p @ channel.a**2)
    return max(squares - values.mean**2 - spread, 0.0), spread


def _variances(mechanism: Mechanism) -> tuple[float, float]:
    """Of one report, decoded: by its noise, and what a random sample of people adds.

    Of a vector those of one coordinate: the reports that drew it are some of all, and a random sample of them even
    where all answer.
    """
    part, share = mechanism.part, mechanism.drawn
    if part.law is None:
        return part.worst_variance, EVEN
    total, noise = largest_variance(finite(part)), part.worst_variance
    if part is mechanism:
        return noise, max(total - noise, 0.0)
    noise = min(total, noise + (1 - share) * EVEN)
    return noise / share, (total - noise) / share


_TRIES = 3
_NEAR = 0.05
_COARSE = 20
_FEW, _REACH, _REACH_OF_FEW = 200, 2, 10

_Array = NDArray[np.float64]


@lru_cache(maxsize=4096)
def half_widths(task: Task, people: int, confidence: float, values: Values | None = None) -> dict[str, float]:
    """Return half the length of the intervals of either target, for the population that makes them longest.

    An interval's length depends on n, epsilon and confidence, and with some methods on the reports. So a tally of n
    reports is made (`hush_aggregator.estimate.finite_channel`), and the estimator itself computes the interval. For the
    reporters of a share it is also that of the answer whose reports vary most, given by nearly all. If its interval is
    cut off at a bound of the range, a mean farther inside is tried as well, and the longer interval counts.

    If values are known, it is the tally of people like those; where a bound cuts the interval off, its whole arm
    counts, since another sample may lose less of it.

    Intervals are longer the more the sample varies, so that at most 1 - `KEPT` of the samples give a longer one.

    Values are in [0, 1], or in one of the categories.
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
    """How many more or fewer reports of yes to try: with few reports the length depends on the last one."""
    if not _mechanism(task).is_share:
        return range(1)
    reach = _REACH_OF_FEW if people <= _FEW else _REACH
    return range(-reach, reach + 1)


def _mechanism(task: Task) -> Mechanism:
    if isinstance(task.randomizer, Offers):
        raise TypeError("a plan is for one epsilon")
    return task.randomizer


def _noisiest(mechanism: Mechanism) -> float | None:
    """The answer to a bit whose reports vary more, if one does."""
    if not mechanism.is_share:
        return None
    no, yes = finite(mechanism).noise.tolist()
    return None if isclose(no, yes) else float(yes > no)


def _longest(task: Task, people: int, confidence: float, target: str, inside: float | None) -> float:
    """Half the length of one interval; if a bound cuts it off, for a mean so far inside that none does."""
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
    """By how much one more report of yes moves the sum, if the estimate is a share."""
    return float(finite(mechanism).a[1] - finite(mechanism).a[0]) if mechanism.is_share else 0.0


@lru_cache(maxsize=4096)
def _intervals(
    task: Task, people: int, confidence: float, assumed: Assumed, more: int = 0
) -> tuple[float, float, Intervals]:
    """The mean of the (known or worst) values, the estimate and its intervals, with `more` reports of yes."""
    mechanism = _mechanism(task)
    x, sums = analysis_of(mechanism).worst(mechanism, people, assumed, more)
    result = estimate(task, Tally(people, sums), confidence)
    one = result.parts[0]
    return x, one.mean or 0.0, one.intervals


def worst_shares(task: Task) -> _Array:
    """Return the share of people at each level for which reports vary most; at 0, 1/2 and 1 if unbounded."""
    part = _mechanism(task).part
    return np.array([0.5, 0.0, 0.5]) if part.law is None else worst_people(finite(part), None)[1]


Target = Literal["reporters", "population"]
TARGETS: tuple[Target, Target] = ("reporters", "population")
"""The mean of the people who answer, and of the population they are a random sample of."""

MOST_PEOPLE = 10**15
LARGEST_PLANNED = Fraction(16)
"""No larger epsilon is proposed: it would hide nothing."""

_SLACK = 1 + 1e-9  # an error that equals the target but for its rounding meets it
_STRIDE = 64  # the first step of a search is its start divided by this
_DECADE = 9000  # numbers of four digits


def error_of(line: MechanismCost, target: Target, people: int, confidence: float | None) -> float:
    """Return half the length of the interval of a mean at `confidence`; for None, its root mean square error.

    At a confidence: of the interval that `hush_aggregator.estimate` returns for the worst people and all but unlikely
    samples of them (`half_widths`). As a root mean square: sqrt((noise + spread)/n). The trusted collector has no
    interval: its error is the exact quantile of its noise, with z deviations of the sampling in quadrature.
    """
    if confidence is None or line.task is None:
        return _normal_error(line, target, people, confidence)
    laws = line.values or (None,)
    return max(half_widths(line.task, people, confidence, values).get(target, inf) for values in laws)


def _normal_error(line: MechanismCost, target: Target, people: int, confidence: float | None) -> float:
    """By the largest variance and the normal law; of a trusted collector by the law of its noise."""
    z = 1.0 if confidence is None else normal_quantile(confidence)
    sampling = z**2 * line.spread / people if target == "population" else 0.0
    if line.mechanism != "trusted collector":
        return sqrt(z**2 * line.noise / people + sampling)
    quantile = sqrt(2) if confidence is None else -log(1 - confidence)
    return sqrt(line.noise / 2 * (quantile / people) ** 2 + sampling)


def sampling_error(people: int, confidence: float | None, variance: float = EVEN) -> float:
    """Return the error of `people` answers without noise, for the population: no epsilon goes below it."""
    return sqrt(variance / people) * (1.0 if confidence is None else normal_quantile(confidence))


def people_for(line: MechanismCost, target: Target, error: float, confidence: float | None) -> int | None:
    """Return the fewest people whose error is at most `error`; None above `MOST_PEOPLE`.

    Errors fall as n or epsilon rises, but where an interval changes its method they may jump. So each search starts
    from what normal intervals of the same variance would need, which is close if reports are many, and walks to the
    nearest place where the error becomes small enough.
    """
    guess = _first(lambda people: _normal_error(line, target, people, confidence), error, 1, MOST_PEOPLE)
    if guess is None or confidence is None or line.task is None:
        return guess
    return _first(lambda people: error_of(line, target, people, confidence), error, guess, MOST_PEOPLE)


def epsilon_for(family: Family, target: Target, people: int, error: float, confidence: float | None) -> Fraction | None:
    """Return the smallest epsilon, to four digits and rounded up, at which the error of `people` is at most `error`.

    None if none up to `LARGEST_PLANNED` suffices.
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
    """The first place near `guess`, from 1 to `most`, where the error is at most `limit`; None if there is none."""
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
    """The place strictly between two at which a power law through their errors reaches the limit."""
    if not low[1] > high[1] > 0 or low[1] == inf:
        return (low[0] + high[0]) // 2
    share = log(low[1] / limit) / log(low[1] / high[1])
    middle = round(exp(log(low[0]) + share * log(high[0] / low[0])))
    return min(max(middle, low[0] + 1), high[0] - 1)
