"""The registry of mechanisms: one line for each.

A task names its mechanism, and what is not in here is refused by whoever reads the task. No task, file, variable of the
environment or installed package adds a line: `registered` is called by a program, about itself, or by nobody.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from hush_common.domain import Domain
from hush_common.mechanisms.channel import Channel
from hush_common.mechanisms.laplace import Laplace
from hush_common.mechanisms.mechanism import Mechanism
from hush_common.mechanisms.multilevel import Multilevel
from hush_common.mechanisms.randomized_response import RandomizedResponse
from hush_common.mechanisms.subset_selection import SubsetSelection
from hush_common.mechanisms.vector import Vector

__all__ = ["fitting", "known", "named", "registered"]

_KINDS: list[type[Mechanism]] = [
    Laplace,  # the first that fits a domain is the default of a task file
    Multilevel,
    Channel,
    RandomizedResponse,
    SubsetSelection,
    Vector,
]


def known() -> tuple[type[Mechanism], ...]:
    """Every mechanism of this process."""
    return tuple(_KINDS)


def named(name: str) -> type[Mechanism] | None:
    """The mechanism of that name, or None."""
    return next((kind for kind in _KINDS if kind.name == name), None)


def fitting(domain: Domain) -> tuple[type[Mechanism], ...]:
    """The mechanisms for a domain; the first is the default."""
    return tuple(kind for kind in _KINDS if isinstance(domain, kind.fits))


@contextmanager
def registered(kind: type[Mechanism]) -> Iterator[None]:
    """One mechanism more, in this process and as long as the context lasts.

    A device that does so answers tasks that name it: whoever registers one vouches for its proof of privacy. The
    aggregator's side of it is `hush_aggregator.estimate.mechanisms.registered`.

    Raises:
        ValueError: there is one of that name; none can be replaced.
    """
    if named(kind.name) is not None:
        raise ValueError(f"there already is a mechanism {kind.name!r}; give yours another name")
    _KINDS.append(kind)
    try:
        yield
    finally:
        _KINDS.remove(kind)
