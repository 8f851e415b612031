"""Local randomizers: the randomized maps from an index to the body of a report.

Each has one frozen parameter object, made once from the task (`Task.randomizer`), which both sides use: the device
perturbs with it, the aggregator estimates with it. Nobody recomputes a probability or a scale.
"""

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol

from hush_common.mechanisms.channel import Channel
from hush_common.mechanisms.laplace import Laplace
from hush_common.mechanisms.multilevel import Multilevel
from hush_common.mechanisms.offers import Offers, Single, perturb
from hush_common.mechanisms.randomized_response import RandomizedResponse
from hush_common.mechanisms.subset_selection import SubsetSelection
from hush_common.mechanisms.vector import Vector
from hush_common.rng import Rng

__all__ = [
    "Channel",
    "Laplace",
    "Mechanism",
    "Multilevel",
    "Offers",
    "RandomizedResponse",
    "Single",
    "SubsetSelection",
    "Vector",
    "perturb",
]


class Mechanism(Protocol):
    """What every randomizer has; an index is an integer, of a vector a tuple of them (`hush_common.domain.Index`)."""

    @property
    def name(self) -> str: ...

    @property
    def epsilon(self) -> Fraction:
        """Loss of one report, exact."""
        ...

    @property
    def width(self) -> int:
        """Integers in a body: public, so that the length of a report says nothing."""
        ...

    @property
    def worst_variance(self) -> float:
        """The largest variance of one decoded report over all values, on the unit interval, from the noise alone."""
        ...

    def perturb(self, index: Any, rng: Rng, /) -> tuple[int, ...]:  # noqa: ANN401 - int or tuple, by the domain
        """The body of a report: the only place where a value meets randomness."""
        ...

    def admits(self, body: tuple[int, ...], /) -> bool:
        """Whether a device that follows the mechanism can send `body`."""
        ...

    def outputs(self) -> Iterator[tuple[int, ...]]:
        """Every body that can be sent."""
        ...

    def probability(self, body: tuple[int, ...], index: Any, /, digits: int = 60) -> Decimal:  # noqa: ANN401 - as above
        """P(body | index): the exact table that tests enumerate."""
        ...
