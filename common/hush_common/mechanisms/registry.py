"""The registry of mechanisms: one line for each.

A task names its mechanism, and every reader refuses one that is not here. No task, file, environment variable or
installed package adds a line; only a program can, for its own process, with `registered`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from hush_common.domain import Domain
from hush_common.errors import TaskError
from hush_common.mechanisms.channel import Channel
from hush_common.mechanisms.laplace import Laplace
from hush_common.mechanisms.mechanism import Mechanism
from hush_common.mechanisms.multilevel import Multilevel
from hush_common.mechanisms.parameters import ChannelTable, Parameters
from hush_common.mechanisms.randomized_response import RandomizedResponse
from hush_common.mechanisms.subset_selection import SubsetSelection
from hush_common.mechanisms.vector import Vector
from hush_common.rng import Rng
from hush_common.suggestion import meant

_KINDS: list[type[Mechanism]] = [
    Laplace,  # the first that fits a domain is the default of a task file
    Multilevel,
    Channel,
    RandomizedResponse,
    SubsetSelection,
    Vector,
]


def known() -> tuple[type[Mechanism], ...]:
    """Return every mechanism of this process."""
    return tuple(_KINDS)


def named(name: str) -> type[Mechanism] | None:
    """Return the mechanism of that name, or None."""
    return next((kind for kind in _KINDS if kind.name == name), None)


def fitting(domain: Domain) -> tuple[type[Mechanism], ...]:
    """Return the mechanisms for a domain; the first is the default."""
    return tuple(kind for kind in _KINDS if isinstance(domain, kind.fits))


@contextmanager
def registered(kind: type[Mechanism]) -> Iterator[None]:
    """Add a mechanism to this process during the context.

    A device that does so answers tasks that name it: its programmer is responsible for the proof of privacy. The
    aggregator's side of it is `hush_aggregator.estimate.mechanisms.registered`.

    Raises:
        ValueError: there is one of that name; none can be replaced.
    """
    if named(kind.name) is not None:
        raise ValueError(f"a mechanism {kind.name!r} is already registered; give yours another name")
    _KINDS.append(kind)
    try:
        yield
    finally:
        _KINDS.remove(kind)


@dataclass(frozen=True)
class Offers:
    """The mechanisms of one task at each epsilon it offers, ascending: a device picks one, and its report says which.

    The body is the number of the offer, then the body of the mechanism at that epsilon. A device must choose
    independently of its value (for example from its own limits): then the choice reveals nothing about the value, and a
    report under offer c is epsilon_c-LDP. The aggregator keeps one tally for each offer and pools their estimates.
    """

    parts: tuple[Mechanism, ...]  # two or more, of one kind and one body length

    @property
    def name(self) -> str:
        return self.parts[0].name

    @property
    def epsilon(self) -> Fraction:
        """Loss of the largest offer."""
        return self.parts[-1].epsilon

    @property
    def width(self) -> int:
        """Integers in a body: the offer, and the body of its mechanism."""
        return 1 + self.parts[0].width

    def perturb(self, index: int | tuple[int, ...], rng: Rng, offer: int) -> tuple[int, ...]:
        """Return the body of a report under offer number `offer`, which must not depend on the value."""
        return (offer, *self.parts[offer].perturb(index, rng))

    def admits(self, body: tuple[int, ...]) -> bool:
        return len(body) == self.width and 0 <= body[0] < len(self.parts) and self.parts[body[0]].admits(body[1:])

    def outputs(self) -> Iterator[tuple[int, ...]]:
        return ((offer, *body) for offer, part in enumerate(self.parts) for body in part.outputs())

    def probability(self, body: tuple[int, ...], index: int | tuple[int, ...], digits: int = 60) -> Decimal:
        """P(body | index, the offer in it), to `digits` significant digits."""
        return self.parts[body[0]].probability(body[1:], index, digits)


def complete(name: str, domain: Domain, epsilons: Sequence[Fraction], given: Parameters) -> Parameters:
    """Return the parameters of a task file, completed by `Mechanism.complete`."""
    kind = named(name)
    return given if kind is None or not isinstance(domain, kind.fits) else kind.complete(domain, epsilons, given)


def assemble(name: str, domain: Domain, epsilons: Sequence[Fraction], parameters: Parameters) -> Mechanism | Offers:
    """Return the parameter object of a task, at the epsilon of one report.

    Raises:
        TaskError: the mechanism does not fit the domain, or a parameter is missing, out of range or superfluous.
    """
    kind = named(name)
    if kind is None or not isinstance(domain, kind.fits):
        choices = ", ".join(repr(other.name) for other in fitting(domain))
        hint = "" if kind is not None else meant(name, [*(other.name for other in fitting(domain)), "auto"])
        raise TaskError(
            "mechanism", f"{name!r} does not fit {domain.in_words}; use {choices} or, in a draft, 'auto'{hint}"
        )
    parameters.check(name, kind.takes, kind.optional, offers=len(epsilons))
    parts = tuple(kind.build(domain, epsilon, parameters, offer) for offer, epsilon in enumerate(epsilons))
    return parts[0] if len(parts) == 1 else Offers(parts)


def best(kind: type[Mechanism], domain: Domain, epsilon: Fraction) -> Mechanism:
    """Return a mechanism with the parameters that hush chooses, for one epsilon from `kind.smallest` on."""
    return kind.build(domain, epsilon, kind.complete(domain, [epsilon], Parameters()), 0)


def choose(domain: Domain, epsilons: Sequence[Fraction]) -> tuple[str, ChannelTable | None]:
    """Return what `mechanism = "auto"` means: decided by public parameters only, in exact arithmetic, never by data.

    A bit, a category and a vector have one mechanism each. A number has the one of smaller worst-case variance: the
    shipped table of the nearest grid point below, or `multilevel`, which also serves several offers. Both bound the
    influence of a lying device. (`laplace`, the third, has the largest variance at every epsilon.)
    """
    able = [kind for kind in fitting(domain) if kind.auto and kind.serves(epsilons)]
    chosen = able[0] if len(able) == 1 else min(able, key=lambda kind: _worst(kind, domain, epsilons[-1]))
    return chosen.name, chosen.complete(domain, epsilons, Parameters()).table


@lru_cache(maxsize=64)
def _worst(kind: type[Mechanism], domain: Domain, epsilon: Fraction) -> Fraction:
    return best(kind, domain, epsilon).exact_worst_variance
