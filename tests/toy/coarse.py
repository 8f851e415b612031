"""A further mechanism on the device: a number rounded at random to one of its bounds, and that sometimes a lie."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

from hush_common.domain import NumberDomain
from hush_common.epsilon import WEIGHT_OF_TRUTH, weight_of_lie
from hush_common.mechanisms.mechanism import FiniteLaw, Mechanism
from hush_common.mechanisms.parameters import Parameters
from hush_common.rng import Rng

__all__ = ["Coarse"]


@dataclass(frozen=True)
class Coarse(Mechanism):
    epsilon: Fraction
    steps: int

    name = "coarse"
    fits = NumberDomain
    width = 1
    span = (0, 1)

    @classmethod
    def build(cls, domain: NumberDomain, epsilon: Fraction, parameters: Parameters, offer: int) -> "Coarse":  # noqa: ARG003 - it has none
        return cls(epsilon, domain.steps)

    @property
    def lie(self) -> int:
        return weight_of_lie(self.epsilon)

    @property
    def total(self) -> int:
        return WEIGHT_OF_TRUTH + self.lie

    @property
    def law(self) -> FiniteLaw:
        return FiniteLaw.of_coin(Fraction(self.lie, self.total), Fraction(WEIGHT_OF_TRUTH, self.total))

    @property
    def worst_variance(self) -> float:
        contrast = Fraction(WEIGHT_OF_TRUTH - self.lie, self.total)
        return float(1 / (4 * contrast**2))

    def perturb(self, index: int, rng: Rng) -> tuple[int, ...]:
        if not 0 <= index <= self.steps:
            raise ValueError("no step of the grid")
        upper = rng.randbelow(self.steps) < index
        return (int(upper ^ (rng.randbelow(self.total) >= WEIGHT_OF_TRUTH)),)

    def admits(self, body: tuple[int, ...]) -> bool:
        return body in ((0,), (1,))

    def outputs(self) -> Iterator[tuple[int, ...]]:
        return iter(((0,), (1,)))

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        truth, lie = (index, self.steps - index) if body == (1,) else (self.steps - index, index)
        with localcontext() as context:
            context.prec = digits
            return Decimal(WEIGHT_OF_TRUTH * truth + self.lie * lie) / Decimal(self.total * self.steps)
