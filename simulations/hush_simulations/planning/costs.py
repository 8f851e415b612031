"""The ways to ask that `hush plan` compares: each as the task it would be, and the largest variance of its reports.

Everything is in units of the range R of the value (of one share, for bits and categories). A report of one person has,
once decoded, a variance of at most `noise` given that person's value, whatever it is; and of at most `noise` + `spread`
when the person is drawn at random from a population, whatever that is. Both are exact suprema:

- a mechanism whose variance does not depend on the value (laplace, the optimal randomized response): spread = 1/4, the
  largest variance that a number in [0, 1] can have (Popoviciu 1935);
- multilevel, table and one category of subset_selection: between two input levels the second moment is linear in the
  value, so that the largest total variance over all populations is that of a population on two levels, a parabola in
  its mean. One-bit reports have spread 0: they look the same whatever the population looks like.

The reference line is the central model: a collector who sees all values and adds Laplace noise of scale 1/(n·epsilon)
to their mean (Dwork, McSherry, Nissim and Smith 2006). Its n goes as 1/(error·epsilon), a local one as the square.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import cast

from hush_aggregator.estimate.finite_channel import finite
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import SMALLEST
from hush_common.mechanisms import Laplace, Single, Vector
from hush_common.mechanisms.build import complete
from hush_common.mechanisms.parameters import MechanismName, Parameters
from hush_common.mechanisms.tables import grid, shipped_at
from hush_common.task import Task
from hush_simulations.planning.worst_case import largest_variance

__all__ = ["EVEN", "Family", "MechanismCost", "central", "offered", "references", "table"]

EVEN = 0.25
"""Variance of a fair bit: the largest on the unit interval."""

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
    """

    mechanism: str
    noise: float
    spread: float
    task: Task | None
    parameters: Mapping[str, int] = field(default_factory=dict)


Family = Callable[[Fraction], MechanismCost | None]
"""A way to ask at every epsilon; None where there is none."""


def offered(domain: Domain) -> dict[str, Family]:
    """Every mechanism that fits a domain, by name; what `auto` prefers first."""
    match domain:
        case NumberDomain():
            return {"table": table, "multilevel": _multilevel, "laplace": _laplace}
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
    return lambda epsilon: MechanismCost("trusted collector", 2 * float(sensitivity / epsilon) ** 2, EVEN, None)


def _task(name: MechanismName, domain: Domain, epsilon: Fraction, given: Parameters | None = None) -> Task:
    parameters = complete(name, domain, [epsilon], given or Parameters())
    return Task(id="plan", epsilon=epsilon, mechanism=name, domain=domain, parameters=parameters)


@lru_cache(maxsize=256)
def _laplace(epsilon: Fraction, name: str = "laplace") -> MechanismCost:
    task = _task("laplace", _UNIT, epsilon) if epsilon >= SMALLEST else None
    return MechanismCost(name, Laplace(epsilon, _UNIT.steps).worst_variance, EVEN, task)


@lru_cache(maxsize=256)
def _multilevel(epsilon: Fraction) -> MechanismCost:
    task = _task("multilevel", _UNIT, epsilon)
    return _bounded(task, {"levels": task.parameters.levels[0]})


@lru_cache(maxsize=256)
def table(epsilon: Fraction) -> MechanismCost | None:
    """The shipped table of the nearest grid point below, where there is one."""
    if epsilon < grid()[0]:
        return None
    chosen = shipped_at(epsilon)
    return _bounded(_task("table", _UNIT, epsilon, Parameters(table=chosen)), {"outputs": len(chosen.positions)})


def _bounded(task: Task, parameters: Mapping[str, int]) -> MechanismCost:
    mechanism = cast("Single", task.randomizer)
    noise = mechanism.worst_variance
    return MechanismCost(task.mechanism, noise, max(largest_variance(finite(mechanism)) - noise, 0.0), task, parameters)


@lru_cache(maxsize=256)
def _randomized_response(epsilon: Fraction) -> MechanismCost:
    return _bounded(_task("randomized_response", BitDomain(), epsilon), {})


@lru_cache(maxsize=256)
def _subset(
    epsilon: Fraction, categories: int, size: int | None = None, name: str = "subset_selection"
) -> MechanismCost:
    domain = CategoryDomain(tuple(map(str, range(categories))))
    task = _task("subset_selection", domain, epsilon, None if size is None else Parameters(size=(size,)))
    return replace(_bounded(task, {"size": task.parameters.size[0]}), mechanism=name)


@lru_cache(maxsize=256)
def _vector(epsilon: Fraction, coordinates: int) -> MechanismCost:
    """One coordinate: the reports that drew it are s/d of all, and a random sample of them even where all answer."""
    domain = VectorDomain(tuple(Coordinate(0.0, 1.0, name=str(place)) for place in range(coordinates)))
    task = _task("vector", domain, epsilon)
    mechanism = cast("Vector", task.randomizer)
    alone, share = mechanism.part.worst_variance, mechanism.sampled / coordinates
    total = largest_variance(finite(mechanism.part))
    noise = min(total, alone + (1 - share) * EVEN)
    parameters = {"sampled": mechanism.sampled, "levels": mechanism.levels}
    return MechanismCost("vector", noise / share, (total - noise) / share, task, parameters)
