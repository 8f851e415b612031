"""From what a task says to the one parameter object that device and aggregator share."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from hush_common.codec import BODY_LIMIT
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import decimal_text
from hush_common.errors import TaskError
from hush_common.mechanisms.channel import Channel
from hush_common.mechanisms.laplace import Laplace
from hush_common.mechanisms.multilevel import MOST_LEVELS, Multilevel, best_levels
from hush_common.mechanisms.offers import Offers, Single
from hush_common.mechanisms.parameters import MechanismName, Parameters
from hush_common.mechanisms.randomized_response import RandomizedResponse
from hush_common.mechanisms.subset_selection import SubsetSelection, best_size
from hush_common.mechanisms.vector import Vector, best_sampled

__all__ = ["assemble", "complete", "fitting"]

_MOST_SAMPLED = (BODY_LIMIT - 1) // 2  # an offer, and two integers a coordinate, must fit into a body


def fitting(domain: Domain) -> tuple[MechanismName, ...]:
    """The mechanisms for a domain; the first is the default."""
    match domain:
        case NumberDomain():
            return ("laplace", "multilevel", "table")
        case BitDomain():
            return ("randomized_response",)
        case CategoryDomain():
            return ("subset_selection",)
        case VectorDomain():
            return ("vector",)


def complete(name: MechanismName, domain: Domain, epsilons: Sequence[Fraction], given: Parameters) -> Parameters:
    """Fill in the best parameters where a task file leaves them out: once, when it is published.

    Args:
        name: the mechanism.
        domain: the domain.
        epsilons: loss of one report under each offer.
        given: what the task file says.

    Raises:
        TaskError: a vector is to sample no coordinate, or too many.
    """
    match name, domain:
        case "multilevel", _ if not given.levels:
            return replace(given, levels=tuple(best_levels(epsilon) for epsilon in epsilons))
        case "subset_selection", CategoryDomain(labels=labels) if not given.size:
            return replace(given, size=tuple(best_size(epsilon, len(labels)) for epsilon in epsilons))
        case "vector", VectorDomain(coordinates=coordinates):
            sampled = best_sampled(epsilons[-1], len(coordinates)) if given.sampled is None else given.sampled
            _within("sampled", sampled, min(len(coordinates), _MOST_SAMPLED))
            levels = given.levels or tuple(best_levels(epsilon / sampled) for epsilon in epsilons)
            return replace(given, sampled=sampled, levels=levels)
        case _:
            return given


def assemble(
    name: MechanismName, domain: Domain, epsilons: Sequence[Fraction], parameters: Parameters
) -> Single | Offers:
    """The parameter object of a task, at the epsilon of one report.

    Args:
        name: the mechanism.
        domain: the domain.
        epsilons: loss of one report under each offer, ascending.
        parameters: complete.

    Raises:
        TaskError: the mechanism does not fit the domain, or a parameter is missing, out of range or superfluous.
    """
    if name not in fitting(domain):
        choices = " or ".join(repr(other) for other in fitting(domain))
        raise TaskError("mechanism", f"{name!r} does not fit {_KINDS[type(domain)]}; use {choices}")
    _check_parameters(name, parameters, offers=len(epsilons))
    parts = tuple(_single(name, domain, epsilon, parameters, offer) for offer, epsilon in enumerate(epsilons))
    return parts[0] if len(parts) == 1 else Offers(parts)


_KINDS: dict[type[Domain], str] = {
    NumberDomain: "a number",
    BitDomain: "a bit",
    CategoryDomain: "a category",
    VectorDomain: "a vector",
}
_HAS: dict[MechanismName, frozenset[str]] = {
    "laplace": frozenset(),
    "randomized_response": frozenset({"coins"}),
    "multilevel": frozenset({"levels"}),
    "subset_selection": frozenset({"size"}),
    "vector": frozenset({"levels", "sampled"}),
    "table": frozenset({"table"}),
}


def _check_parameters(name: MechanismName, parameters: Parameters, offers: int) -> None:
    for field in ("levels", "size", "sampled", "coins", "table"):
        value = getattr(parameters, field)
        given = value is not None and value != ()
        if given and field not in _HAS[name]:
            raise TaskError(field, f"{name!r} has no {field}; drop it, or choose another mechanism")
        if not given and field in _HAS[name] and field != "coins":
            raise TaskError(field, f"is missing; {name!r} needs it")
    for field in ("levels", "size"):
        count = len(getattr(parameters, field))
        if count not in (0, offers):
            raise TaskError(field, f"{count} numbers for {offers} epsilons; write one for each")
    if offers > 1 and (parameters.coins or parameters.table):
        raise TaskError("offers", "coins and tables have one epsilon, their own; offer one")


def _single(name: MechanismName, domain: Domain, epsilon: Fraction, parameters: Parameters, offer: int) -> Single:  # noqa: PLR0911 - one return a mechanism
    match name, domain:
        case "laplace", NumberDomain(steps=steps):
            return Laplace(epsilon, steps)
        case "multilevel", NumberDomain(steps=steps):
            return Multilevel(epsilon, steps, _within("levels", parameters.levels[offer], MOST_LEVELS))
        case "table", NumberDomain(steps=steps) if parameters.table is not None:
            table = parameters.table
            return Channel(epsilon, steps, table.positions, table.unit, table.weights)
        case "randomized_response", _ if parameters.coins is not None:
            _check_coins(epsilon, parameters)
            return RandomizedResponse.from_coins(epsilon, parameters.coins.truth, parameters.coins.yes)
        case "randomized_response", _:
            return RandomizedResponse.from_epsilon(epsilon)
        case "subset_selection", CategoryDomain(labels=labels):
            size = _within("size", parameters.size[offer], len(labels) - 1)
            return SubsetSelection(epsilon, len(labels), size)
        case "vector", VectorDomain(coordinates=coordinates) as vector if parameters.sampled is not None:
            sampled = _within("sampled", parameters.sampled, min(len(coordinates), _MOST_SAMPLED))
            levels = _within("levels", parameters.levels[offer], MOST_LEVELS)
            return Vector(epsilon, vector.steps, len(coordinates), sampled, levels)
        case _:  # pragma: no cover - `fitting` and `_check_parameters` leave nothing else
            raise TypeError(f"{name} does not fit {domain}")


def _within(field: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise TaskError(field, f"{value} is outside 1 to {most}")
    return value


def _check_coins(epsilon: Fraction, parameters: Parameters) -> None:
    """The declared epsilon of two coins is theirs, rounded up: neither less nor more."""
    right = None if parameters.coins is None else parameters.coins.epsilon()
    if right is not None and right != epsilon:
        raise TaskError(
            "epsilon",
            f"{decimal_text(epsilon)} a report is not what these coins cost; write {decimal_text(right)!r} a round",
        )
