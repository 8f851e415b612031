"""From what a task says to the one parameter object that device and aggregator share."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from hush_common.domain import Domain
from hush_common.errors import TaskError
from hush_common.mechanisms.mechanism import Mechanism
from hush_common.mechanisms.offers import Offers
from hush_common.mechanisms.parameters import Parameters, Table
from hush_common.mechanisms.registry import fitting, named

__all__ = ["assemble", "best", "choose", "complete"]


def complete(name: str, domain: Domain, epsilons: Sequence[Fraction], given: Parameters) -> Parameters:
    """Fill in the best parameters where a task file leaves them out: once, when it is published.

    Args:
        name: the mechanism; where it does not fit the domain nothing is filled in.
        domain: the domain.
        epsilons: loss of one report under each offer.
        given: what the task file says.

    Raises:
        TaskError: what is given leaves no choice that is legal.
    """
    kind = named(name)
    return given if kind is None or not isinstance(domain, kind.fits) else kind.complete(domain, epsilons, given)


def assemble(name: str, domain: Domain, epsilons: Sequence[Fraction], parameters: Parameters) -> Mechanism | Offers:
    """The parameter object of a task, at the epsilon of one report.

    Args:
        name: the mechanism.
        domain: the domain.
        epsilons: loss of one report under each offer, ascending.
        parameters: complete.

    Raises:
        TaskError: the mechanism does not fit the domain, or a parameter is missing, out of range or superfluous.
    """
    kind = named(name)
    if kind is None or not isinstance(domain, kind.fits):
        choices = ", ".join(repr(other.name) for other in fitting(domain))
        raise TaskError("mechanism", f"{name!r} does not fit {domain.in_words}; use {choices} or, in a draft, 'auto'")
    parameters.check(name, kind.takes, kind.optional, offers=len(epsilons))
    parts = tuple(kind.build(domain, epsilon, parameters, offer) for offer, epsilon in enumerate(epsilons))
    return parts[0] if len(parts) == 1 else Offers(parts)


def best(kind: type[Mechanism], domain: Domain, epsilon: Fraction) -> Mechanism:
    """A mechanism with the parameters that hush would choose, for one epsilon from `kind.smallest` on."""
    return kind.build(domain, epsilon, kind.complete(domain, [epsilon], Parameters()), 0)


def choose(domain: Domain, epsilons: Sequence[Fraction]) -> tuple[str, Table | None]:
    """What `mechanism = "auto"` means: decided by public parameters alone, in exact arithmetic, never by data.

    A bit, a category and a vector have one mechanism each. A number has whichever has the smaller worst-case variance:
    the shipped table of the nearest grid point below, or `multilevel`, which also serves several offers at once. Both
    bound what a lying device can do. (`laplace`, the third, has the largest variance at every epsilon.)

    Args:
        domain: the domain.
        epsilons: loss of one report under each offer.
    """
    able = [kind for kind in fitting(domain) if kind.auto and kind.serves(epsilons)]
    chosen = able[0] if len(able) == 1 else min(able, key=lambda kind: _worst(kind, domain, epsilons[-1]))
    return chosen.name, chosen.complete(domain, epsilons, Parameters()).table


@lru_cache(maxsize=64)
def _worst(kind: type[Mechanism], domain: Domain, epsilon: Fraction) -> Fraction:
    return best(kind, domain, epsilon).exact_worst_variance
