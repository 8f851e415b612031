"""Mechanisms: the randomized maps from an index to the body of a report.

Each has one frozen parameter object, built once from the task (`hush_common.mechanisms.build`), which both sides use:
the device perturbs with it, the aggregator estimates with it. Nobody recomputes a probability or a scale.
"""

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Protocol

from hush_common.mechanisms.laplace import Laplace
from hush_common.mechanisms.randomized_response import RandomizedResponse
from hush_common.rng import Rng

__all__ = ["Laplace", "Mechanism", "RandomizedResponse"]


class Mechanism(Protocol):
    """What every mechanism offers. Immutable, so that one object may serve ten thousand devices."""

    @property
    def name(self) -> str: ...

    @property
    def epsilon(self) -> Fraction:
        """Loss of one report."""
        ...

    @property
    def width(self) -> int:
        """Integers in a body; a public constant, so that the length of a report says nothing."""
        ...

    def perturb(self, index: int, rng: Rng) -> tuple[int, ...]:
        """Draw a body for `index`. The only place where a value meets randomness."""
        ...

    def admits(self, body: tuple[int, ...]) -> bool: ...

    def outputs(self) -> Iterator[tuple[int, ...]]: ...

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal: ...
