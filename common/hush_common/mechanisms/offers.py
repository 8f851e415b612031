"""Several epsilons offered by one task: a device picks one, and its report says which.

The body is the number of the offer, then the body of the mechanism at that epsilon. A device must choose without
looking at its value (from its own limits, say): then the choice says nothing about the value, and a report under offer
c is epsilon_c-LDP. The aggregator keeps one tally for each offer and pools their estimates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from hush_common.domain import Index
from hush_common.mechanisms.mechanism import Mechanism
from hush_common.rng import Rng

__all__ = ["Offers", "perturb"]


@dataclass(frozen=True)
class Offers:
    """The mechanisms of one task at each epsilon it offers, ascending.

    Args:
        parts: two or more, of one kind and one body length.
    """

    parts: tuple[Mechanism, ...]

    @property
    def name(self) -> str:
        return self.parts[0].name

    @property
    def epsilon(self) -> Fraction:
        """Loss of the dearest offer."""
        return self.parts[-1].epsilon

    @property
    def width(self) -> int:
        """Integers in a body: the offer, and the body of its mechanism."""
        return 1 + self.parts[0].width

    def perturb(self, index: int | tuple[int, ...], rng: Rng, offer: int) -> tuple[int, ...]:
        """The body of a report under offer number `offer`, which must not depend on the value."""
        return (offer, *self.parts[offer].perturb(index, rng))

    def admits(self, body: tuple[int, ...]) -> bool:
        """Whether a device that follows the mechanism can send `body`."""
        return len(body) == self.width and 0 <= body[0] < len(self.parts) and self.parts[body[0]].admits(body[1:])

    def outputs(self) -> Iterator[tuple[int, ...]]:
        """Every body that can be sent, offer by offer."""
        return ((offer, *body) for offer, part in enumerate(self.parts) for body in part.outputs())

    def probability(self, body: tuple[int, ...], index: int | tuple[int, ...], digits: int = 60) -> Decimal:
        """P(body | index, the offer in it), to `digits` significant digits."""
        return self.parts[body[0]].probability(body[1:], index, digits)


def perturb(randomizer: Mechanism | Offers, index: Index, rng: Rng, offer: int) -> tuple[int, ...]:
    """The body of a report: what every device calls.

    Args:
        randomizer: of a task (`Task.randomizer`).
        index: what the task's domain made of the value.
        rng: the randomness.
        offer: which of several epsilons; the device chose it without looking at the value.
    """
    if isinstance(randomizer, Offers):
        return randomizer.perturb(index.index, rng, offer)
    return randomizer.perturb(index.index, rng)
