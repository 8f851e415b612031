"""The mechanisms that `hush plan` compares, each as a task, with the largest variance of its reports.

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from operator import itemgetter
from typing import cast

from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.estimate.worst_case import Values, largest_variance
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import SMALLEST
from hush_common.mechanisms import Laplace, Mechanism, SubsetSelection
from hush_common.mechanisms.parameters import Parameters
from hush_common.mechanisms.registry import fitting
from hush_common.task import Task

__all__ = ["EVEN", "Family", "Known", "MechanismCost", "central", "offered", "references", "sampling_variance"]

EVEN = 0.25
"""Variance of a fair bit: the largest on the unit interval."""

Known = tuple[Values, ...]
"""What is known of the values: of a number or of yes and no one law; one for each category; empty if nothing is."""

_UNIT = NumberDomain(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class MechanismCost:
    """One way to ask, at one epsilon.

    Args:
        mechanism: its name in a task file, or of a reference line what it is.
        noise: largest variance of one decoded report given the value; of the central model the variance of n times
            the error.
        spread: what a random sample of people adds to it at most.
        task: the question, with values in [0, 1]; None where hush asks none such, as the central model.
        parameters: that a task would hold.
        values: of those who will be asked, where they are known; of categories those whose shares vary most.
    """

    mechanism: str
    noise: float
    spread: float
    task: Task | None
    parameters: Mapping[str, int] = field(default_factory=dict)
    values: Known = ()


Family = Callable[[Fraction], MechanismCost | None]
"""A way to ask at every epsilon; None where there is none."""


def sampling_variance(known: Known) -> float:
    """Of one person's value, drawn at random: that of the known values, or the largest there is."""
    return max((values.moment(2) for values in known), default=EVEN)


def offered(domain: Domain, known: Known = ()) -> dict[str, Family]:
    """Every mechanism that fits a domain, by name; the default of a task file last."""
    return {kind.name: _family(kind, _unit(domain), known) for kind in reversed(fitting(domain))}


def references(domain: Domain, known: Known = ()) -> dict[str, Family]:
    """What one could do instead without a collector to trust, and hush does not: for comparison."""
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
    """The mean, or all shares or means together, from a collector who is trusted with every value.

    One person moves one mean by 1/n, the shares of k categories by 2/n together, and d means by d/n.
    """
    sensitivity = 1
    if isinstance(domain, CategoryDomain):
        sensitivity = 2
    elif isinstance(domain, VectorDomain):
        sensitivity = len(domain.coordinates)
    spread = sampling_variance(known)
    return lambda epsilon: MechanismCost("trusted collector", 2 * float(sensitivity / epsilon) ** 2, spread, None)


def _unit(domain: Domain) -> Domain:
    """The same question about values in [0, 1], or in as many categories."""
    match domain:
        case NumberDomain():
            return _UNIT
        case CategoryDomain(labels=labels):
            return CategoryDomain(tuple(map(str, range(len(labels)))))
        case VectorDomain(coordinates=coordinates):
            return VectorDomain(tuple(Coordinate(0.0, 1.0, name=str(place)) for place in range(len(coordinates))))
    return domain


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
