"""Plan a question: sample size, epsilon or error from the other two, for each mechanism.

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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import count
from math import ceil, erfc, exp, floor, inf, isclose, isqrt, log, pi, sqrt
from operator import itemgetter
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.estimates import Intervals
from hush_aggregator.estimate.finite_channel import KEPT, Assumed, Values, finite, largest_variance, worst_people
from hush_aggregator.estimate.mechanisms import analysis_of
from hush_aggregator.estimate.mechanisms.analysis import PlannedAnalysis
from hush_aggregator.estimate.numerics.quantiles import binomial_chances, normal_quantile
from hush_aggregator.estimate.proportions import proportions
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import SMALLEST, at_most_sure, decimal_text, float_at_most
from hush_common.mechanisms import Laplace, Mechanism, Offers, SubsetSelection
from hush_common.mechanisms.parameters import Parameters
from hush_common.mechanisms.registry import choose, fitting
from hush_common.task import Task
from hush_simulations.planning.clamping import Clamping, clampings
from hush_simulations.shown import Shown

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
    """Return the same question about values in [0, 1], or in as many categories."""
    return type(domain).of_size(len(domain.parts))


def _laplace(name: str, parts: int, known: Known, epsilon: Fraction) -> MechanismCost | None:
    cost = _family(Laplace, _UNIT, known)(epsilon / parts)
    return None if cost is None else replace(cost, mechanism=name)


@lru_cache(maxsize=256)
def _one_category(name: str, domain: Domain, known: Known, epsilon: Fraction) -> MechanismCost:
    cost = _cost(SubsetSelection, domain, epsilon, Parameters(size=(1,)), known)
    return replace(cost, mechanism=name)


@lru_cache(maxsize=64)
def _family(kind: type[Mechanism], domain: Domain, known: Known) -> Family:
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

_Array = NDArray[np.float64]


@lru_cache(maxsize=4096)
def half_widths(task: Task, people: int, confidence: float, values: Values | None = None) -> dict[str, float]:
    """Return half the length of the intervals of either target, for the population that makes them longest.

    Of intervals for one look at the end, not of those that hold at any time. Longer ones are printed for at most 1 -
    `KEPT` of the samples of people, whatever their values are, or for values distributed like `values`.

    - Of a share the length is a function of the count of yes, and the count is binomial: the quantile of the lengths
      by that law, for the mean that makes it largest (`_half_widths_of_share`).
    - Otherwise a tally of n reports is made whose variance is at its quantile `KEPT`
      (`hush_aggregator.estimate.finite_channel`), and the estimator itself computes the interval. If it is cut off at a
      bound of the range, a mean farther inside is tried as well, and the longer interval counts. If values are known,
      its whole arm counts, since another sample may lose less of it.

    Values are in [0, 1], or in one of the categories.
    """
    if _mechanism(task).is_share:
        return _half_widths_of_share(task, people, confidence, values)
    if values is not None:
        return _half_widths_of_known(task, people, confidence, values)
    targets = _intervals(task, people, confidence, None)[2].keys() & set(TARGETS)
    return {target: _longest(task, people, confidence, target) for target in targets}


def _half_widths_of_known(task: Task, people: int, confidence: float, values: Values) -> dict[str, float]:
    _, center, intervals = _intervals(task, people, confidence, values)
    longest: dict[str, float] = {}
    for target in intervals.keys() & set(TARGETS):
        low, high = intervals[target]
        whole = [arm for arm, cut in ((high - center, low <= 0), (center - low, high >= 1)) if cut]
        longest[target] = min(max((high - low) / 2, *whole, 0.0), 0.5)
    return longest


_FEW_HAVE_IT = (0.0, 0.02, 0.1)
_COUNTS, _DEVIATIONS = 128, 4.5
_A_POINT = 0.25  # people: the interval is one count, next to an estimate just outside the range
_GOLDEN = (sqrt(5) - 1) / 2


def _half_widths_of_share(task: Task, people: int, confidence: float, values: Values | None) -> dict[str, float]:
    mechanism = _mechanism(task)
    channel = finite(mechanism)
    no, yes = map(float, channel.of_yes)
    noisiest = min(max((0.5 - no) / (yes - no), 0.0), 1.0)
    means = {noisiest, *_FEW_HAVE_IT} | (set() if isclose(no + yes, 1) else {1 - share for share in _FEW_HAVE_IT})
    laws = [_likely(people, no + mean * (yes - no)) for mean in (means if values is None else [values.mean])]
    counts = np.unique(np.concatenate([some for some, _ in laws]))
    alike = len(task.domain.parts)
    made = proportions(channel.of_yes, people, counts.tolist(), [confidence], alike=alike).intervals[0]
    longest: dict[str, float] = {}
    for target in made[0].keys() & set(TARGETS):
        halves = np.array([(one[target][1] - one[target][0]) / 2 for one in made])
        halves[people * halves < _A_POINT] = 0.0
        longest[target] = max(_kept(halves[np.searchsorted(counts, some)], chances) for some, chances in laws)
    return longest


def _likely(n: int, chance: float) -> tuple[NDArray[np.int64], _Array]:
    """Return counts that are likely of n reports, and their binomial probabilities; of very many counts some."""
    reach = 1 + _DEVIATIONS * sqrt(n * chance * (1 - chance))
    low, high = max(floor(n * chance - reach), 0), min(ceil(n * chance + reach), n)
    counts = np.arange(low, min(high, low + 2 * _COUNTS) + 1)
    if high - low >= 2 * _COUNTS:  # one in each of equal parts, nowhere at one phase of a lattice
        places = np.arange(_COUNTS)
        counts = low + ((places + places * _GOLDEN % 1) / _COUNTS * (high - low)).astype(np.int64)
    return counts, binomial_chances(n, counts, chance)


def _kept(halves: _Array, chances: _Array) -> float:
    """Return the smallest half-width that at most 1 - `KEPT` of the samples exceed."""
    order = np.argsort(halves)
    below = np.cumsum(chances[order])
    return float(halves[order][np.searchsorted(below, KEPT * below[-1] * (1 - 1e-12))])


def _mechanism(task: Task) -> Mechanism:
    if isinstance(task.randomizer, Offers):
        raise TypeError("a plan is for one epsilon")
    return task.randomizer


def _longest(task: Task, people: int, confidence: float, target: str) -> float:
    """Half the length of one interval; if a bound cuts it off, for a mean so far inside that none does."""
    longest, inside = 0.0, None
    for _ in range(_TRIES):
        mean, center, intervals = _intervals(task, people, confidence, inside)
        low, high = intervals[target]
        longest = max(longest, (high - low) / 2)
        if (low <= 0) == (high >= 1):
            break
        beyond = high - 2 * center if low <= 0 else low - 2 * center + 1
        inside = min(max(mean + beyond, 0.0), 1.0)
    return longest


@lru_cache(maxsize=4096)
def _intervals(task: Task, people: int, confidence: float, assumed: Assumed) -> tuple[float, float, Intervals]:
    """The mean of the (known or worst) values, the estimate and its intervals."""
    mechanism = _mechanism(task)
    analysis = analysis_of(mechanism)
    if not isinstance(analysis, PlannedAnalysis):
        raise TypeError(f"{mechanism.name} cannot be planned: its analysis has no `worst`")
    x, sums = analysis.worst(mechanism, people, assumed)
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

TOLERANCE = 0.02
"""By how much an interval may be longer than planned: the tally that stands for the others is not exact."""

MOST_PEOPLE = 10**15
LARGEST_PLANNED = Fraction(16)
"""No larger epsilon is proposed: it would hide nothing."""

_SLACK = 1 + 1e-9  # an error that equals the target but for its rounding meets it
_STRIDE = 64  # the first step of a search is its start divided by this
_DECADE = 9000  # numbers of four digits
_HALVINGS = 60
_RATIO, _SHORTER = Fraction(33, 32), Fraction(3, 4)
_FAR = 30.0  # deviations
_NEGLIGIBLE = 1e-9  # a deviation, next to a scale: it changes a tail by about its square
_NEXT, _PARTS, _BANDS = 24, 32, 6


def error_of(line: MechanismCost, target: Target, people: int, confidence: float | None) -> float:
    """Return half the length of the interval of a mean at `confidence`; for None, its root mean square error.

    At a confidence: of the interval that `hush_aggregator.estimate` returns for the worst people and all but unlikely
    samples of them (`half_widths`). As a root mean square: sqrt((noise + spread)/n). The trusted collector has no
    interval: its error is the exact quantile of its noise plus a normal error of the sampling.
    """
    if confidence is None:
        return _normal_error(line, target, people, None)
    if line.task is None:  # of no interval: none is wider than the range
        return min(_normal_error(line, target, people, confidence), 0.5)
    laws = line.values or (None,)
    return max(half_widths(line.task, people, confidence, values).get(target, inf) for values in laws)


def _normal_error(line: MechanismCost, target: Target, people: int, confidence: float | None) -> float:
    """By the largest variance and the normal law; of a trusted collector by the law of its noise."""
    trusted = line.mechanism == "trusted collector"
    noise = line.noise / people ** (2 if trusted else 1)
    sampling = line.spread / people if target == "population" else 0.0
    if confidence is None:
        return sqrt(noise + sampling)
    if trusted:
        return _laplace_and_normal(sqrt(noise / 2), sqrt(sampling), confidence)
    return normal_quantile(confidence) * sqrt(noise + sampling)


@lru_cache(maxsize=4096)
def _laplace_and_normal(scale: float, deviation: float, confidence: float) -> float:
    """Return the t with P(|L + N| > t) = 1 - `confidence`, L of Laplace's law and N normal, by bisection."""
    low, high = 0.0, scale * -log((1 - confidence) / 2) + deviation * normal_quantile((1 + confidence) / 2)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _beyond(middle, scale, deviation) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _beyond(t: float, scale: float, deviation: float) -> float:
    """P(|L + N| > t): of the normal part alone, and e^(r²/2)·(e^(-t/b)·Φ(t/s - r) - e^(t/b)·Φ(-t/s - r)), r = s/b."""
    if deviation < _NEGLIGIBLE * scale:
        return exp(-t / scale)
    at, ratio = t / deviation, deviation / scale
    alone = erfc(at / sqrt(2))
    above = _scaled(at + ratio)
    if at < ratio:
        return alone + exp(-(at**2) / 2) * (_scaled(ratio - at) - above)
    return alone + exp(ratio**2 / 2 - t / scale) * erfc((ratio - at) / sqrt(2)) / 2 - exp(-(at**2) / 2) * above


def _scaled(u: float) -> float:
    """e^(u²/2)·Φ(-u) for u ≥ 0: where that overflows, by its asymptotic series."""
    if u < _FAR:
        return exp(u**2 / 2) * erfc(u / sqrt(2)) / 2
    return (1 - 1 / u**2 + 3 / u**4 - 15 / u**6) / (u * sqrt(2 * pi))


def sampling_error(people: int, confidence: float | None, variance: float = EVEN) -> float:
    """Return the error of `people` answers without noise, for the population: no epsilon goes below it."""
    return sqrt(variance / people) * (1.0 if confidence is None else normal_quantile(confidence))


def people_for(line: MechanismCost, target: Target, error: float, confidence: float | None) -> int | None:
    """Return the fewest people such that the error of these, and of more, is at most `error`; None above `MOST_PEOPLE`.

    Errors fall as n rises, but with one more report they may jump: where an interval changes its method, and where the
    ends of an interval are whole counts. So the search starts from what normal intervals of the same variance would
    need, which is close if reports are many, and walks to the nearest place where the error becomes small enough. Then
    it tries more people (`_more`, `_more_of_share`): if some of them get a longer interval, it goes on from there.
    """
    guess = _first(lambda people: _normal_error(line, target, people, confidence), error, 1, MOST_PEOPLE)
    if guess is None or confidence is None or line.task is None:
        return guess

    def at(people: int) -> float:
        return error_of(line, target, people, confidence)

    found = _first(at, error, guess, MOST_PEOPLE)
    more = _more_of_share if _mechanism(line.task).is_share else _more
    while found is not None:
        longer = next((people for people in more(found, error) if at(people) > error * _SLACK), None)
        if longer is None:
            break
        found = _first(at, error, longer, MOST_PEOPLE)
    return found


def _more(people: int, _: float) -> list[int]:
    """Return numbers of people up to half as many more, descending: all of the next ones, and evenly spaced ones."""
    spaced = {people + people * part // _PARTS for part in range(1, _PARTS // 2 + 1)}
    found = spaced.union(range(people + 1, people + _NEXT + 1)) - {people}
    return sorted((one for one in found if one <= MOST_PEOPLE), reverse=True)


def _more_of_share(people: int, error: float) -> list[int]:
    """Return the numbers of people of whom one more count in the interval makes it too long, descending.

    The reporters' interval of n people is i/n long, i whole and rising with n. It is too long where i > 2n·error: if it
    is for some n, then also for the last one before i ≤ 2n·error.
    """
    first = floor(2 * people * error) + 1
    found = {ceil(counts / (2 * error)) - 1 for counts in range(first, first + _BANDS)}
    return sorted((one for one in found if people < one <= MOST_PEOPLE), reverse=True)


def epsilon_for(family: Family, target: Target, people: int, error: float, confidence: float | None) -> Fraction | None:
    """Return the smallest epsilon, to four digits and rounded up, at which the error of `people` is at most `error`.

    None if none up to `LARGEST_PLANNED` suffices. A larger epsilon may give a longer interval: where the method of the
    interval changes, or the parameters of the mechanism. So smaller ones are tried, `_RATIO` apart, from below what
    normal intervals would need.
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
    if guess is None or confidence is None:
        return None if guess is None else _epsilon(guess)
    place, limit, low = _first(by(error_of), error, guess, most), error * _SLACK, 0
    for smaller in _ascending(_SHORTER * _epsilon(guess), most if place is None else place):
        if by(error_of)(smaller) <= limit:
            place = _halved(by(error_of), limit, low, smaller)
            break
        low = smaller
    return None if place is None else _epsilon(place)


def _ascending(epsilon: Fraction, end: int) -> Iterator[int]:
    """Yield places of epsilons, each `_RATIO` times the one before, below `end`."""
    while (place := _place(epsilon)) < end:
        yield place
        epsilon *= _RATIO


def _epsilon(place: int) -> Fraction:
    """The numbers of four digits, from the smallest epsilon on, by their place from 1."""
    decade, digits = divmod(place - 1, _DECADE)
    return SMALLEST * Fraction((1000 + digits) * 10**decade, 1000)


def _place(epsilon: Fraction) -> int:
    """Return the place of the first number of four digits that is not below epsilon."""
    return bisect_left(range(1, 9 * _DECADE), epsilon, key=_epsilon) + 1


def _first(error: Callable[[int], float], limit: float, guess: int, most: int) -> int | None:
    """Return the first place near `guess`, from 1 to `most`, with an error of at most `limit`, or None."""
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
    return _halved(error, limit, low, high)


def _halved(error: Callable[[int], float], limit: float, low: int, high: int) -> int:
    """Return a place from `low` (excluded: 0, or the error is too large) to `high` (it is not) where it gets small."""
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
    """Return the place strictly between two at which a power law through their errors reaches the limit."""
    if not low[1] > high[1] > 0 or low[1] == inf:
        return (low[0] + high[0]) // 2
    share = log(low[1] / limit) / log(low[1] / high[1])
    middle = round(exp(log(low[0]) + share * log(high[0] / low[0])))
    return min(max(middle, low[0] + 1), high[0] - 1)


Unknown: TypeAlias = Literal["people", "epsilon", "error"]
Amount: TypeAlias = int | float | Fraction
"""The unknown: people, an error in the unit of the value, or an epsilon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnValues:
    """Known values, whose variance replaces the worst one. They are never shown."""

    known: Known = field(repr=False)
    rows: Mapping[str, object]
    column: str
    deviation: float | None
    clamping: Clamping | None = None

    @property
    def bias(self) -> float:
        """The error of the mean that the bounds make, in the unit of the value; 0 if no value is beyond them."""
        return 0.0 if self.clamping is None else abs(self.clamping.error)

    def to_document(self) -> dict[str, Any]:
        """Return what a plan says about them."""
        deviation = {} if self.deviation is None else {"standard_deviation": self.deviation}
        clamping = {} if self.clamping is None else {"clamping": self.clamping.to_document()}
        return {"column": self.column, **self.rows, **deviation, **clamping}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """A question; exactly one of people, epsilon and error is None: the unknown.

    The error is a share of the range; without a confidence it is a root mean square. Without data it assumes the worst.
    """

    domain: Domain
    people: int | None
    epsilon: Fraction | None
    error: float | None
    confidence: float | None
    data: OwnValues | None = None

    @property
    def unknown(self) -> Unknown:
        if self.people is None:
            return "people"
        return "epsilon" if self.epsilon is None else "error"

    @property
    def room(self) -> float | None:
        """What the bounds leave of the error: as much as noise and sampling may make. Not positive if nothing."""
        if self.error is None or self.data is None:
            return self.error
        bias = self.data.bias / range_of(self.domain)
        return self.error - bias if self.confidence is not None or bias > self.error else sqrt(self.error**2 - bias**2)

    @property
    def error_in_unit(self) -> float | None:
        """The error in the unit of the value."""
        return None if self.error is None else self.error * range_of(self.domain)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One mechanism, or a reference.

    `amounts` has what it takes, by target; unreachable targets are absent. `half_widths` are those of the intervals of
    so many people, if people are the unknown. `relative` is the ratio of people (or of epsilons, if unknown) to those
    of `auto`; of the trusted collector that of errors, if they are the unknown.
    """

    mechanism: str
    amounts: Mapping[str, Amount] = field(default_factory=dict)
    half_widths: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    relative: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(Shown):
    """Every mechanism that fits, the choice of `auto`, and a trusted collector.

    `auto` names a mechanism by target: the same for both unless epsilon is the unknown; unreachable targets are absent.
    """

    question: PlanQuestion
    mechanisms: tuple[PlanLine, ...]
    for_comparison: tuple[PlanLine, ...]
    trusted_collector: PlanLine
    auto: Mapping[str, str]

    @property
    def price_of_no_trust(self) -> Mapping[str, float]:
        """By target, how many times as much it takes without a trusted collector."""
        return {target: 1 / relative for target, relative in self.trusted_collector.relative.items()}

    @property
    def cheapest(self) -> Mapping[str, str]:
        """By target, the mechanism of hush that needs the least; `auto` if it needs no more than another."""
        found = {}
        for target in (REPORTERS, POPULATION):
            able = [line for line in self.mechanisms if target in line.amounts]
            if able:
                auto = self.auto.get(target)
                best = min(able, key=lambda line: (line.amounts[target], line.mechanism != auto))
                found[target] = best.mechanism
        return found

    def columns(self) -> dict[str, list[object]]:
        """Return a row for each mechanism and reference; amounts are people, epsilons or errors, as `unknown` says."""
        offered = len(self.mechanisms)
        lines = (*self.mechanisms, *self.for_comparison, self.trusted_collector)
        found: dict[str, list[object]] = {
            "mechanism": [line.mechanism for line in lines],
            "offered": [place < offered for place in range(len(lines))],
            "unknown": [self.question.unknown] * len(lines),
        }
        for target in TARGETS:
            amounts = [line.amounts.get(target) for line in lines]
            found[target] = [float(one) if isinstance(one, Fraction) else one for one in amounts]
            found[f"{target}_relative"] = [line.relative.get(target) for line in lines]
        return found

    def in_short(self) -> str:
        return f"Plan: {self.question.unknown} by {len(self.mechanisms)} mechanisms"

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object, without unknown fields."""
        document = {"unknown": self.question.unknown, **_known(self.question)}
        if self.auto:
            document["auto"] = dict(self.auto)
        if self.cheapest:
            document["cheapest"] = dict(self.cheapest)
        document |= {
            "mechanisms": [_line_document(self.question, line) for line in self.mechanisms],
            "for_comparison": [_line_document(self.question, line) for line in self.for_comparison],
            "trusted_collector": _line_document(self.question, self.trusted_collector),
        }
        if self.price_of_no_trust:
            document["price_of_no_trust"] = dict(self.price_of_no_trust)
        return document


def range_of(domain: Domain) -> float:
    """Return the width of the domain, or of the first coordinate; 1 for shares."""
    lower, upper = domain.parts[0].axis
    return upper - lower


def _line_document(question: PlanQuestion, line: PlanLine) -> dict[str, Any]:
    """The parameters come before the first target that has them."""
    targets = {
        target: decimal_text(amount) if isinstance(amount, Fraction) else amount
        for target, amount in line.amounts.items()
    }
    parameters = {"parameters": dict(line.parameters)} if line.parameters else {}
    document: dict[str, Any] = {"mechanism": line.mechanism}
    if question.unknown == "epsilon":
        first = {target: targets[target] for target in (REPORTERS,) if target in targets}
        document |= first | parameters | {target: targets[target] for target in (POPULATION,) if target in targets}
    else:
        document |= parameters | targets
    if line.half_widths:
        document["half_width"] = dict(line.half_widths)
    return document | ({"relative": dict(line.relative)} if line.relative else {})


def _known(question: PlanQuestion) -> dict[str, Any]:
    known: dict[str, Any] = {"domain": _domain(question.domain)}
    if question.data is not None:
        known |= {"values": "of the data", "data": question.data.to_document()}
    if question.people is not None:
        known["people"] = question.people
    if question.epsilon is not None:
        known["epsilon"] = decimal_text(question.epsilon)
        known["observer_at_most_sure"] = float_at_most(at_most_sure(question.epsilon))
    if question.error is not None:
        known["error"] = question.error_in_unit
        known["error_of_range"] = question.error
    if question.confidence is None:
        return known | {"error_is": "root mean square"}
    return known | {
        "error_is": "half-width",
        "confidence": question.confidence,
        "kept_in": KEPT,
        "tolerance": TOLERANCE,
    }


def _domain(domain: Domain) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": domain.kind}
    if domain.parts_field:
        document[domain.parts_field] = len(domain.parts)
    for first in domain.numbers[:1]:
        document |= {"lower": first.lower, "upper": first.upper, "unit": first.unit}
    return document


_GRID = 1025
"""Places that represent all values between the bounds, for people who have none and answer with any."""


def own_values(domain: Domain, values: Sequence[object], rows: Mapping[str, object], column: str) -> OwnValues:
    """Return how the values of a column are distributed; a number beyond a bound counts as the bound, as on a device.

    None is a device without a value, which answers with any valid one. `rows` has the counts of the table's rows.
    """
    present = [value for value in values if value is not None]
    absent = 1 - len(present) / len(values)
    match domain:
        case NumberDomain(lower=lower, upper=upper):
            places = (np.clip(np.array(present, dtype=np.float64), lower, upper) - lower) / (upper - lower)
            known: tuple[Values, ...] = (_mixed(places, np.linspace(0, 1, _GRID), absent),)
        case BitDomain():
            known = (_mixed(np.array(present, dtype=np.float64), np.array([0.0, 1.0]), absent),)
        case CategoryDomain(labels=labels):
            counts = Counter(present)
            shares = [(1 - absent) * counts[label] / max(len(present), 1) + absent / len(labels) for label in labels]
            known = tuple(Values(np.array([0.0, 1.0]), np.array([1 - share, share])) for share in shares)
        case _:
            raise TypeError("a plan from data is about one column")
    deviation = sqrt(known[0].moment(2)) * range_of(domain) if len(known) == 1 else None
    clamping = next(iter(clampings(domain, values)), None)
    return OwnValues(known=known, rows=rows, column=column, deviation=deviation, clamping=clamping)


def _mixed(places: NDArray[np.float64], any_of: NDArray[np.float64], absent: float) -> Values:
    found, counts = np.unique(places, return_counts=True)
    shares = (1 - absent) * counts / max(len(places), 1)
    if not absent:
        return Values(found, shares)
    return Values(np.concatenate((found, any_of)), np.concatenate((shares, np.full(len(any_of), absent / len(any_of)))))


def solve(question: PlanQuestion) -> Plan:
    """Every mechanism that fits, what `auto` would pick, and a collector who is trusted."""
    known = () if question.data is None else question.data.known
    lines = list(_offered(question, known))
    others = [_line(question, name, family) for name, family in references(question.domain, known).items()]
    trusted = _line(question, "trusted collector", central(question.domain, known))
    auto = {target: found for target in TARGETS if (found := _auto(question, known, lines, target)) is not None}

    def compared(line: PlanLine) -> PlanLine:
        found = {target: _ratio(line, amount, target) for target, (_, amount) in auto.items()}
        squared = question.unknown == "error" and line is not trusted  # half the error takes four times the people
        relative: dict[str, float] = {
            target: one**2 if squared else one for target, one in found.items() if one is not None
        }
        return replace(line, relative=relative)

    return Plan(
        question=question,
        mechanisms=tuple(map(compared, lines)),
        for_comparison=tuple(map(compared, others)),
        trusted_collector=compared(trusted),
        auto={target: name for target, (name, _) in auto.items()},
    )


def _offered(question: PlanQuestion, known: Known) -> Iterator[PlanLine]:
    """The lines of hush's mechanisms that exist at this epsilon."""
    kinds = {kind.name: kind for kind in fitting(question.domain)}
    for name, family in offered(question.domain, known).items():
        line = _line(question, name, family)
        if line.amounts or line.parameters or not kinds[name].smallest():
            yield line


def _line(question: PlanQuestion, name: str, family: Family) -> PlanLine:
    line = PlanLine(mechanism=name)
    for target in TARGETS:
        line = _solved(question, family, target, line)
    return line


def _solved(question: PlanQuestion, family: Family, target: Target, line: PlanLine) -> PlanLine:
    epsilon = question.epsilon
    if epsilon is None:
        epsilon = _least_epsilon(question, family, target)
        if epsilon is None:
            return line
        line = replace(line, amounts={**line.amounts, target: epsilon})
    cost = family(epsilon)
    if cost is None:
        return line
    if question.epsilon is not None or target == REPORTERS:
        line = replace(line, parameters=cost.parameters)
    amount = _people_or_error(question, cost, target)
    if amount is None:
        return line
    if isinstance(amount, int) and question.confidence is not None:
        half = error_of(cost, target, amount, question.confidence) * range_of(question.domain)
        line = replace(line, half_widths={**line.half_widths, target: half})
    return replace(line, amounts={**line.amounts, target: amount})


def _least_epsilon(question: PlanQuestion, family: Family, target: Target) -> Fraction | None:
    room = question.room
    if question.people is None or room is None or room <= 0:
        return None
    variance = sampling_variance(() if question.data is None else question.data.known)
    if target == POPULATION and sampling_error(question.people, question.confidence, variance) > room:
        return None  # no epsilon reaches it: do not search
    return epsilon_for(family, target, question.people, room, question.confidence)


def _people_or_error(question: PlanQuestion, cost: MechanismCost, target: Target) -> Amount | None:
    room = question.room
    if question.people is None:
        return None if room is None or room <= 0 else people_for(cost, target, room, question.confidence)
    if room is None:
        return error_of(cost, target, question.people, question.confidence) * range_of(question.domain)
    return None


def _auto(question: PlanQuestion, known: Known, lines: Sequence[PlanLine], target: Target) -> tuple[str, Amount] | None:
    """The mechanism that `mechanism = "auto"` chooses, and what it needs; None if it cannot reach the error.

    Public parameters alone decide it, not the data. Where epsilon is asked for, it is the smallest one that suffices
    for the mechanism that `auto` means at that epsilon.
    """
    reached = {line.mechanism: line.amounts[target] for line in lines if target in line.amounts}
    if question.epsilon is not None:
        name, _ = choose(question.domain, [question.epsilon])
        return (name, reached[name]) if name in reached else None
    own = [(name, at) for name, at in reached.items() if choose(question.domain, [Fraction(at)])[0] == name]
    if own:
        return min(own, key=itemgetter(1))
    families = offered(question.domain, known)
    epsilon = _least_epsilon(question, lambda at: families[choose(question.domain, [at])[0]](at), target)
    return None if epsilon is None else (choose(question.domain, [epsilon])[0], epsilon)


def _ratio(line: PlanLine, auto: Amount, target: Target) -> float | None:
    """Return the ratio to the amount of `auto`; None without an amount, or if a large epsilon makes that 0."""
    if target not in line.amounts or not auto:
        return None
    return float(Fraction(line.amounts[target]) / Fraction(auto))
