"""Planning: of how many people, which epsilon and what error, any two give the third.

Everything is in units of the range R of the value (of one share, for bits and categories). A report of one person has,
once decoded, a variance of at most `noise` given that person's value, whatever it is; and of at most `noise` + `spread`
when the person is drawn at random from a population, whatever that is. Both are exact suprema:

- a mechanism whose variance does not depend on the value (laplace, the optimal randomized response): spread = 1/4, the
  largest variance that a number in [0, 1] can have (Popoviciu 1935);
- multilevel and table: between two input levels the second moment is linear in the value, so that the largest total
  variance over all populations is that of a population on two levels, a parabola in its mean. One-bit reports have
  spread 0: they look the same whatever the population looks like;
- subset_selection: the count of a category is at its most variable at the share nearest to c = 1/2 (MATHS of the
  mechanism's docstring); given the values it is the larger of p(1 - p) and q(1 - q).

Error, at a confidence: the half-width of the interval of a mean of n reports. By the normal law z·sqrt(noise/n); for
Laplace noise by its exact quantile; the spread is added in quadrature, as `hush_aggregator.estimate` does. As a root
mean square: sqrt((noise + spread)/n). Every error falls as n or epsilon rises, so the inverse questions are bisections.

The reference line is the central model: a collector who sees all values and adds Laplace noise of scale 1/(n·epsilon)
to their mean (Dwork, McSherry, Nissim and Smith 2006). Its n goes as 1/(error·epsilon), a local one as the square.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import ceil, log, log10, sqrt
from typing import Literal

from hush_aggregator.estimate.quantiles import laplace_mean_quantile, normal_quantile
from hush_common.domain import GRID_STEPS, BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import SMALLEST
from hush_common.mechanisms import Channel, Laplace, Multilevel, RandomizedResponse, SubsetSelection
from hush_common.mechanisms.multilevel import best_levels
from hush_common.mechanisms.subset_selection import best_size
from hush_common.mechanisms.tables import grid, grid_point, shipped_at
from hush_common.mechanisms.vector import best_sampled

__all__ = [
    "LARGEST_PLANNED",
    "MOST_PEOPLE",
    "TARGETS",
    "Line",
    "Target",
    "central",
    "epsilon_for",
    "error_of",
    "offered",
    "people_for",
    "references",
    "sampling_error",
]

Target = Literal["reporters", "population"]
TARGETS: tuple[Target, Target] = ("reporters", "population")
"""The mean of those who answer, and of the people they are a random sample of."""

MOST_PEOPLE = 10**15
LARGEST_PLANNED = Fraction(16)
"""No epsilon above it is proposed: it would hide nothing."""

_DIGITS = 4  # of a proposed epsilon
_SLACK = 1 + 1e-9  # an error that equals the target but for its rounding meets it
_EVEN = 0.25  # variance of a fair bit: the largest on the unit interval


@dataclass(frozen=True, slots=True)
class Line:
    """One way to ask, at one epsilon.

    Args:
        mechanism: its name in a task file, or of a reference line what it is.
        noise: largest variance of one decoded report given the value; of the central model the variance of n times
            the error.
        spread: what a random sample of people adds to it at most.
        law: of the noise of a mean; `"central"` noise falls as 1/n, not as 1/sqrt(n).
        parameters: that a task would hold.
    """

    mechanism: str
    noise: float
    spread: float
    law: Literal["normal", "laplace", "central"] = "normal"
    parameters: Mapping[str, int] = field(default_factory=dict)


Family = Callable[[Fraction], Line | None]
"""A way to ask at every epsilon; None where there is none."""


def error_of(line: Line, target: Target, people: int, confidence: float | None) -> float:
    """The half-width of the interval of a mean at `confidence`; for None, its root mean square error."""
    factor = 1.0 if confidence is None else normal_quantile(confidence)
    sampling = factor**2 * line.spread / people if target == "population" else 0.0
    return sqrt(_noise_error(line, people, confidence) ** 2 + sampling)


def _noise_error(line: Line, people: int, confidence: float | None) -> float:
    deviation = sqrt(line.noise / (people**2 if line.law == "central" else people))
    if confidence is None:
        return deviation
    match line.law:
        case "normal":
            return deviation * normal_quantile(confidence)
        case "laplace":
            return sqrt(line.noise / 2) * laplace_mean_quantile(people, confidence)
        case "central":
            return deviation / sqrt(2) * -log(1 - confidence)


def sampling_error(people: int, confidence: float | None) -> float:
    """The error of `people` answers without any noise, for `population`, at its worst: no epsilon goes below it."""
    return sqrt(_EVEN / people) * (1.0 if confidence is None else normal_quantile(confidence))


def people_for(line: Line, target: Target, error: float, confidence: float | None) -> int | None:
    """The fewest people whose error is at most `error`; None above `MOST_PEOPLE`."""
    high = 1
    while error_of(line, target, high, confidence) > error * _SLACK:
        high *= 2
        if high > MOST_PEOPLE:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if error_of(line, target, middle, confidence) > error * _SLACK:
            low = middle
        else:
            high = middle
    return high


def epsilon_for(family: Family, target: Target, people: int, error: float, confidence: float | None) -> Fraction | None:
    """The smallest epsilon, to four digits and rounded up, at which the error of `people` is at most `error`.

    None if none up to `LARGEST_PLANNED` will do.
    """

    def enough(epsilon: Fraction) -> bool:
        line = family(epsilon)
        return line is not None and error_of(line, target, people, confidence) <= error * _SLACK

    if enough(SMALLEST):
        return SMALLEST
    high = SMALLEST
    while not enough(high):
        if high == LARGEST_PLANNED:
            return None
        high = min(2 * high, LARGEST_PLANNED)
    low = max(high / 2, SMALLEST)
    unit = Fraction(10) ** (ceil(log10(high)) - _DIGITS)
    below, above = int(low / unit), ceil(high / unit)
    while above - below > 1:
        middle = (below + above) // 2
        if enough(middle * unit):
            above = middle
        else:
            below = middle
    return above * unit


def offered(domain: Domain) -> dict[str, Family]:
    """Every mechanism that fits a domain, by name; what `auto` prefers first."""
    match domain:
        case NumberDomain():
            return {"table": _table, "multilevel": _multilevel, "laplace": _laplace}
        case BitDomain():
            return {"randomized_response": _randomized_response}
        case CategoryDomain(labels=labels):
            return {"subset_selection": lambda epsilon: _subset(epsilon, len(labels))}
        case VectorDomain(coordinates=coordinates):
            return {"vector": lambda epsilon: _vector(epsilon, len(coordinates))}


def references(domain: Domain) -> dict[str, Family]:
    """What one could do instead without a collector to trust, and hush does not: for comparison."""
    match domain:
        case BitDomain():
            return {"laplace on the bit": lambda epsilon: _laplace(epsilon, name="laplace on the bit")}
        case CategoryDomain(labels=labels):
            name = "one category named"
            return {name: lambda epsilon: _subset(epsilon, len(labels), size=1, name=name)}
        case VectorDomain(coordinates=coordinates) if len(coordinates) > 1:
            name, d = "laplace on each coordinate", len(coordinates)
            return {name: lambda epsilon: _laplace(epsilon / d, name=name)}
        case _:
            return {}


def central(domain: Domain) -> Family:
    """The mean, or all shares or means together, from a collector who is trusted with every value.

    One person moves one mean by 1/n, the shares of k categories by 2/n together, and d means by d/n.
    """
    sensitivity = 1
    if isinstance(domain, CategoryDomain):
        sensitivity = 2
    elif isinstance(domain, VectorDomain):
        sensitivity = len(domain.coordinates)
    return lambda epsilon: Line("trusted collector", 2 * float(sensitivity / epsilon) ** 2, _EVEN, "central")


def _laplace(epsilon: Fraction, name: str = "laplace") -> Line:
    return Line(name, Laplace(epsilon, GRID_STEPS).worst_variance, _EVEN, "laplace")


@lru_cache(maxsize=256)
def _multilevel(epsilon: Fraction) -> Line:
    mechanism = Multilevel(epsilon, GRID_STEPS, best_levels(epsilon))
    noise = mechanism.worst_variance
    return Line(
        "multilevel", noise, _spread(noise, _second_moments(mechanism)), parameters={"levels": mechanism.levels}
    )


def _second_moments(mechanism: Multilevel) -> Iterator[tuple[float, float]]:
    """Of each level its position and the second moment of a decoded report from there, E[v^2 | x]."""
    r, top = float(mechanism.contrast), mechanism.levels
    even = (2 * top + 1) / (6 * top)
    for level in (0, top):  # between them squares are convex, so that no population needs the others
        x = level / top
        yield x, (r * x * x + (1 - r) * even - (r * x + (1 - r) / 2) ** 2) / r**2 + x * x


def _table(epsilon: Fraction) -> Line | None:
    return None if epsilon < grid()[0] else _table_at(grid_point(epsilon))


@lru_cache(maxsize=256)
def _table_at(epsilon: Fraction) -> Line:
    table = shipped_at(epsilon)
    channel = Channel(epsilon, GRID_STEPS, table.positions, table.unit, table.weights)
    squares = [Fraction(a, channel.unit) ** 2 for a in channel.positions]
    moments = (
        (j / channel.levels, float(sum(w * s for w, s in zip(row, squares, strict=True)) / channel.total))
        for j, row in enumerate(channel.weights)
    )
    noise = channel.worst_variance
    return Line("table", noise, _spread(noise, moments), parameters={"outputs": len(table.positions)})


def _spread(noise: float, moments: Iterator[tuple[float, float]]) -> float:
    """The largest total variance of a population on two of the levels, less `noise`.

    On levels a < b, at mean x in [a, b], it is the chord of their second moments at x less x^2.
    """
    largest = noise
    for (a, low), (b, high) in combinations(moments, 2):
        slope = (high - low) / (b - a)
        x = min(max(slope / 2, a), b)
        largest = max(largest, low + slope * (x - a) - x * x)
    return largest - noise


def _randomized_response(epsilon: Fraction) -> Line:
    return Line("randomized_response", RandomizedResponse.from_epsilon(epsilon).worst_variance, _EVEN)


@lru_cache(maxsize=256)
def _subset(epsilon: Fraction, categories: int, size: int | None = None, name: str = "subset_selection") -> Line:
    mechanism = SubsetSelection(epsilon, categories, size or best_size(epsilon, categories))
    q, p = mechanism.support
    count = min(max(Fraction(1, 2), q), p)
    spread = float(count * (1 - count) / (p - q) ** 2) - mechanism.worst_variance
    return Line(name, mechanism.worst_variance, spread, parameters={"size": mechanism.size})


@lru_cache(maxsize=256)
def _vector(epsilon: Fraction, coordinates: int) -> Line:
    """One coordinate: the reports that drew it are s/d of all, and a random sample of them even where all answer."""
    sampled = best_sampled(epsilon, coordinates)
    part = _multilevel(epsilon / sampled)
    share = sampled / coordinates
    total = part.noise + part.spread
    noise = min(total, part.noise + (1 - share) * _EVEN)
    parameters = {"sampled": sampled, **part.parameters}
    return Line("vector", noise / share, (total - noise) / share, parameters=parameters)
