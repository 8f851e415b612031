"""`randomized_response`: a bit that is sometimes flipped.

Specification. Two integer weights over a common total decide the report y of a bit x with one uniform integer draw:

    y = 1  iff  draw < ones[x],    draw uniform in [0, total),    P(y = 1 | x) = ones[x]/total.

Privacy. All four ratios P(y|x)/P(y|x') are ratios of integers, so the loss is computed, never assumed:
epsilon = ln max(ones[1]/ones[0], ones[0]/ones[1], zeros[0]/zeros[1], zeros[1]/zeros[0]).

- Optimal form (`from_epsilon`; Warner 1965): truth weighs 2^128, a lie floor(2^128 · e^-epsilon) + 1, so that the ratio
  is at most e^epsilon exactly and less by one part in 2^128 · e^-epsilon.
- Two-coin form (`from_coins`): with probability `truth` answer truthfully, else answer yes with probability `yes`.
  P(1|1) = a + (1-a)h and P(1|0) = (1-a)h. Fair coins give ln 3: the optimal form at epsilon = ln 3 is the same law.

Estimator. theta = (ybar - p0)/(p1 - p0), p_x = ones[x]/total. Unbiased, because E y = p0 + x(p1 - p0).
Variance given the bits: p_x(1 - p_x)/(p1 - p0)^2; e^epsilon/(e^epsilon - 1)^2 for the optimal form, whatever the bit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import ClassVar

from hush_common.domain import BitDomain, Readable
from hush_common.epsilon import WEIGHT_OF_TRUTH, decimal_text, weight_of_lie
from hush_common.errors import TaskError
from hush_common.mechanisms.mechanism import FiniteLaw, LevelMechanism
from hush_common.mechanisms.parameters import Coins, Parameters
from hush_common.rng import Rng


@dataclass(frozen=True)
class RandomizedResponse(LevelMechanism):
    """The parameters of the mechanism, built once from a task."""

    epsilon: Fraction  #: loss of one report, exact, never below the true one
    ones: tuple[int, int]  #: (weight of reporting 1 for a 0, weight of reporting 1 for a 1)
    total: int  #: weight of both reports together

    name = "randomized_response"
    fits: ClassVar[type[Readable]] = BitDomain
    takes: ClassVar[frozenset[str]] = frozenset({"coins"})
    optional: ClassVar[frozenset[str]] = frozenset({"coins"})
    auto = True
    is_share = True
    width = 1
    span: ClassVar[tuple[int, int]] = (0, 1)
    grid: ClassVar[tuple[int, int]] = (1, 1)

    @classmethod
    def build(
        cls,
        domain: BitDomain,  # noqa: ARG003 - there is one
        epsilon: Fraction,
        parameters: Parameters,
        offer: int,  # noqa: ARG003 - no more to know
    ) -> "RandomizedResponse":
        coins = parameters.coins
        if coins is None:
            return cls.from_epsilon(epsilon)
        _check_cost(epsilon, coins)
        return cls.from_coins(epsilon, coins.truth, coins.yes)

    @classmethod
    def levels_of(cls, parameters: Parameters) -> int:  # noqa: ARG003 - of a bit it is always
        return 1

    @property
    def of_levels(self) -> "RandomizedResponse":
        return self

    @cached_property
    def law(self) -> FiniteLaw:
        return FiniteLaw.of_coin(*self.probability_of_one)

    @classmethod
    def from_epsilon(cls, epsilon: Fraction) -> "RandomizedResponse":
        """The optimal form: no other mechanism on a bit has a smaller variance at this epsilon."""
        lie = weight_of_lie(epsilon)
        return cls(epsilon, (lie, WEIGHT_OF_TRUTH), WEIGHT_OF_TRUTH + lie)

    @classmethod
    def from_coins(cls, epsilon: Fraction, truth: Fraction, yes: Fraction) -> "RandomizedResponse":
        """The two-coin form; `epsilon` is its loss rounded up (`build` checks that)."""
        lie = (1 - truth) * yes
        total = lcm(lie.denominator, truth.denominator)
        return cls(epsilon, (int(lie * total), int((truth + lie) * total)), total)

    @property
    def probability_of_one(self) -> tuple[Fraction, Fraction]:
        """P(report 1 | 0) and P(report 1 | 1), exactly."""
        return Fraction(self.ones[0], self.total), Fraction(self.ones[1], self.total)

    @property
    def worst_variance(self) -> float:
        """The larger variance of one decoded report: the same for both bits in the optimal form."""
        return float(max(self.law.noise))

    def perturb(self, index: int, rng: Rng) -> tuple[int, ...]:
        """Return the body of a report, 0 or 1; ValueError if `index` is neither."""
        if index not in (0, 1):
            raise ValueError("the index is neither 0 nor 1")
        return (int(rng.randbelow(self.total) < self.ones[index]),)

    def admits(self, body: tuple[int, ...]) -> bool:
        return body in ((0,), (1,))

    def outputs(self) -> Iterator[tuple[int, ...]]:
        return iter(((0,), (1,)))

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        weight = self.ones[index] if body == (1,) else self.total - self.ones[index]
        with localcontext() as context:
            context.prec = digits
            return Decimal(weight) / Decimal(self.total)


def _check_cost(epsilon: Fraction, coins: Coins) -> None:
    """The declared epsilon of two coins is theirs, rounded up: neither less nor more."""
    right = coins.epsilon()
    if right != epsilon:
        raise TaskError(
            "epsilon",
            f"{decimal_text(epsilon)} a report is not what these coins cost; write {decimal_text(right)!r} a round",
        )
