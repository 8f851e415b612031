"""A further mechanism on the device: k-ary randomized response, the true category or, now and then, another one."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

from hush_common.domain import CategoryDomain
from hush_common.epsilon import WEIGHT_OF_TRUTH, weight_of_lie
from hush_common.mechanisms.mechanism import FiniteLaw, Mechanism
from hush_common.mechanisms.parameters import Parameters
from hush_common.rng import Rng

__all__ = ["KaryResponse"]


@dataclass(frozen=True)
class KaryResponse(Mechanism):
    epsilon: Fraction
    categories: int

    name = "kary_response"
    fits = CategoryDomain
    is_share = True
    described = ("categories",)
    width = 1

    @classmethod
    def build(cls, domain: CategoryDomain, epsilon: Fraction, parameters: Parameters, offer: int) -> "KaryResponse":  # noqa: ARG003 - it has none
        return cls(epsilon, len(domain.labels))

    @property
    def lie(self) -> int:
        return weight_of_lie(self.epsilon)

    @property
    def total(self) -> int:
        return WEIGHT_OF_TRUTH + (self.categories - 1) * self.lie

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        return Fraction(self.lie, self.total), Fraction(WEIGHT_OF_TRUTH, self.total)

    @property
    def law(self) -> FiniteLaw:
        return FiniteLaw.of_coin(*self.support)

    @property
    def span(self) -> tuple[int, int]:
        return 0, self.categories - 1

    @property
    def worst_variance(self) -> float:
        return float(max(self.law.noise))

    def perturb(self, index: int, rng: Rng) -> tuple[int, ...]:
        if not 0 <= index < self.categories:
            raise ValueError("no category")
        draw = rng.randbelow(self.total)
        if draw < WEIGHT_OF_TRUTH:
            return (index,)
        other = (draw - WEIGHT_OF_TRUTH) // self.lie
        return (other + (other >= index),)

    def admits(self, body: tuple[int, ...]) -> bool:
        return len(body) == 1 and 0 <= body[0] < self.categories

    def outputs(self) -> Iterator[tuple[int, ...]]:
        return ((category,) for category in range(self.categories))

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        with localcontext() as context:
            context.prec = digits
            return Decimal(WEIGHT_OF_TRUTH if body[0] == index else self.lie) / Decimal(self.total)
