"""`multilevel`: a number rounded at random to one of G + 1 levels, and that level sometimes replaced by another.

Specification. A value at index i of {0, …, m} becomes level j = floor(i·G/m) plus one with probability
(i·G mod m)/m, drawn exactly. With weights T = 2^128 for the truth and L = floor(2^128 · e^-epsilon) + 1 for each lie
(a uniform integer below T + G·L decides), the report z in {0, …, G} has

    P(z = j | j) = T/(T + G·L),    P(z = j' | j) = L/(T + G·L) for every other level j'.

Privacy. P(z|i) mixes P(z|j) over j, so P(z|i)/P(z|i') ≤ max_j P(z|j)/min_j' P(z|j') = T/L ≤ e^epsilon, exactly.

Estimator. With r = (T - L)/(T + G·L), E[z/G | i] = r·i/m + (1 - r)/2, so v = (z/G - (1 - r)/2)/r is unbiased for i/m.
Variance of v at x = i/m, f = frac(x·G), mu2 = (2G + 1)/(6G):
    V(x) = (r·(x^2 + f(1 - f)/G^2) + (1 - r)·mu2 - (r·x + (1 - r)/2)^2)/r^2,
on each cell a concave parabola, so its maximum over x is known exactly. `best_levels` takes the G that makes it least.
G = 1 is the one-bit mechanism (Duchi, Jordan and Wainwright 2018; Ding, Kulkarni and Yekhanin 2017).

Source: Waudby-Smith, Wu and Ramdas 2023 (NPRR), with the extremal weights of Kairouz, Oh and Viswanath 2016.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar, TypeVar

from hush_common.domain import NumberDomain, Readable
from hush_common.epsilon import WEIGHT_OF_TRUTH, weight_of_lie
from hush_common.errors import TaskError
from hush_common.mechanisms.mechanism import FiniteLaw, LevelMechanism
from hush_common.mechanisms.parameters import Parameters, within
from hush_common.rng import Rng

MOST_LEVELS = 1024


@dataclass(frozen=True)
class Multilevel(LevelMechanism):
    """The parameters of the mechanism, built once from a task."""

    epsilon: Fraction  #: loss of one report, exact
    steps: int  #: grid steps m ≥ 1 of the value; indices are 0 to m
    levels: int  #: G ≥ 1; reports are 0 to G

    name = "multilevel"
    fits: ClassVar[type[Readable]] = NumberDomain
    takes: ClassVar[frozenset[str]] = frozenset({"levels"})
    auto = True
    described: ClassVar[tuple[str, ...]] = ("levels",)
    width = 1

    @classmethod
    def complete(cls, domain: NumberDomain, epsilons: Sequence[Fraction], given: Parameters) -> Parameters:  # noqa: ARG003 - a share of any range
        return given if given.levels else replace(given, levels=tuple(map(best_levels, epsilons)))

    @classmethod
    def build(cls, domain: NumberDomain, epsilon: Fraction, parameters: Parameters, offer: int) -> "Multilevel":
        return cls(epsilon, domain.steps, within("levels", parameters.levels[offer], MOST_LEVELS))

    @classmethod
    def levels_of(cls, parameters: Parameters) -> int:
        levels = parameters.levels
        if len(levels) != 1 or levels[0] < 1:
            raise TaskError("levels", f"{list(levels)} is not the one positive number that a sticky task needs")
        return levels[0]

    @classmethod
    def sticky(cls, total: Fraction, rounds: int, given: Parameters) -> Parameters:
        return given if given.levels else replace(given, levels=(best_sticky_levels(total, rounds),))

    @property
    def span(self) -> tuple[int, int]:
        return 0, self.levels

    @property
    def grid(self) -> tuple[int, int]:
        return self.steps, self.levels

    @property
    def of_levels(self) -> "Multilevel":
        return Multilevel(self.epsilon, self.levels, self.levels)

    @cached_property
    def law(self) -> FiniteLaw:
        """At level j output j has the weight of the truth, and each other one that of a lie."""
        truth, lie = Fraction(self.total - self.levels * self.lie, self.total), Fraction(self.lie, self.total)
        rows = tuple((lie,) * j + (truth,) + (lie,) * (self.levels - j) for j in range(self.levels + 1))
        return FiniteLaw(tuple(self.unit_value(Fraction(z)) for z in range(self.levels + 1)), rows, even=True)

    @cached_property
    def lie(self) -> int:
        """Weight of each other level; the truth weighs 2^128."""
        return weight_of_lie(self.epsilon)

    @cached_property
    def total(self) -> int:
        """Weight of all levels together."""
        return WEIGHT_OF_TRUTH + self.levels * self.lie

    @cached_property
    def draws(self) -> int:
        """A report is made of one uniform integer below it: that is two, independent, below `steps` and `total`."""
        return self.steps * self.total

    @cached_property
    def contrast(self) -> Fraction:
        """r: how much of a report is the truth, in (0, 1)."""
        return Fraction(WEIGHT_OF_TRUTH - self.lie, self.total)

    def perturb(self, index: int, rng: Rng) -> tuple[int, ...]:
        """Return the body of a report, one level in [0, G]; ValueError if `index` is outside [0, m]."""
        if not 0 <= index <= self.steps:
            raise ValueError(f"the index is outside [0, {self.steps}]")
        return (self.level_of(index, rng.randbelow(self.draws)),)

    def level_of(self, index: int, draw: int) -> int:
        """The level reported for an index in [0, m] by a uniform integer below `draws`."""
        level, rest = divmod(index * self.levels, self.steps)
        rounding, draw = divmod(draw, self.total)
        level += rounding < rest
        if draw < WEIGHT_OF_TRUTH:
            return level
        other = (draw - WEIGHT_OF_TRUTH) // self.lie
        return other + (other >= level)

    def admits(self, body: tuple[int, ...]) -> bool:
        return len(body) == 1 and 0 <= body[0] <= self.levels

    def outputs(self) -> Iterator[tuple[int, ...]]:
        return ((z,) for z in range(self.levels + 1))

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        level, rest = divmod(index * self.levels, self.steps)
        below = WEIGHT_OF_TRUTH if body[0] == level else self.lie
        above = WEIGHT_OF_TRUTH if body[0] == level + 1 else self.lie
        with localcontext() as context:
            context.prec = digits
            return Decimal(below * (self.steps - rest) + above * rest) / Decimal(self.total * self.steps)

    def unit_value(self, level: Fraction) -> Fraction:
        """The unbiased position in [0, 1] of a (mean) level: exact, and outside [0, 1] for the extreme levels."""
        return (level / self.levels - (1 - self.contrast) / 2) / self.contrast

    @cached_property
    def exact_worst_variance(self) -> Fraction:
        return _worst_variance(self.contrast, 1 - self.contrast, self.levels)

    @property
    def worst_variance(self) -> float:
        return float(self.exact_worst_variance)


_Real = TypeVar("_Real", float, Fraction)


def _worst_variance(r: _Real, rest: _Real, levels: int) -> _Real:
    """The largest V(x) over [0, 1] at contrast r, `rest` = 1 - r, in closed form.

    On the cell with middle c, r^2·V is a parabola with its vertex at x = 1/2 + (c - 1/2)/r, farther out than c. If the
    vertex is in the cell, that is if |c - 1/2|·2G ≤ r/(1 - r), the largest value in the cell is
    (1 - r)·((c - 1/2)^2 - 1/4 + mu2) + r/4G^2; if not, it is that of the outer end of the cell,
    (1 - r)·(r·(x - 1/2)^2 - 1/4 + mu2). Both rise outwards, so that two candidates are left: the outermost cell with
    its vertex inside (|c - 1/2|·2G is an integer of the parity of G - 1), and the ends of [0, 1]. Here
    mu2 - 1/4 = (G + 2)/12G.
    """
    square = levels * levels
    largest = rest * r / 4 + rest * (levels + 2) / (12 * levels)
    outermost = levels - 1 if r >= rest * (levels - 1) else int(r / rest)
    outermost -= (levels - 1 - outermost) % 2
    if outermost >= 0:
        inside = rest * (3 * outermost * outermost + square + 2 * levels) / (12 * square) + r / (4 * square)
        largest = max(largest, inside)
    return largest / r**2


@lru_cache(maxsize=256)
def best_levels(epsilon: Fraction) -> int:
    """The G of least worst-case variance; on a tie the smaller. It is 1 up to epsilon = ln 3, then about e^(epsilon/3).

    G is tried in ascending order, up to 1024 and while it can be better: V(1) > (1 - r)/12r^2, which rises with G. Each
    takes a microsecond, by the closed form in floats; those within 1e-9 of the least are compared in fractions, so that
    every machine chooses alike. The choice is made once, when a task is published, and travels in the task.
    """
    odds = WEIGHT_OF_TRUTH / weight_of_lie(epsilon)
    least, about = float("inf"), {}
    for levels in range(1, MOST_LEVELS + 1):
        if (levels + 1) * (odds + levels) > 12.001 * least * (odds - 1) ** 2:
            break
        about[levels] = _worst_variance((odds - 1) / (odds + levels), (levels + 1) / (odds + levels), levels)
        least = min(least, about[levels])
    near = [levels for levels, worst in about.items() if worst <= least * (1 + 1e-9)]
    return min(near, key=lambda levels: Multilevel(epsilon, 1, levels).exact_worst_variance)


def best_sticky_levels(epsilon: Fraction, rounds: int) -> int:
    """The G of least worst-case variance if `epsilon` is the total: more levels round less, and share it among more.

    On a tie the smaller, and at most T - 2. It is 1 up to epsilon = 5.28. Like `best_levels`, decided once, by public
    numbers.
    """
    best, least = 1, Multilevel(epsilon / 2, 1, 1).exact_worst_variance
    for levels in range(2, min(rounds - 2, MOST_LEVELS) + 1):
        worst = Multilevel(epsilon / (levels + 1), levels, levels).exact_worst_variance
        if worst < least:
            best, least = levels, worst
        elif levels > 2 * best + 8:  # the worst variance has one minimum
            break
    return best
