"""`vector`: a few of d coordinates, sampled independently of the data, each reported by `multilevel`.

Specification. A uniform subset of s of the d coordinates is drawn, exactly and whatever the values are; for each
drawn coordinate, in ascending order, the report holds its number and the level that `multilevel` gives it at epsilon/s.
Up to s = 8 all of it is made of one uniform integer, whose digits in mixed bases are independent and uniform: one
below d!/(d-s)! for the subset, and s that make a level each.

Privacy. The subset has the same law for every vector, so P(y|x)/P(y|x') is the product over the s drawn coordinates
of ratios of at most e^(epsilon/s) each: e^epsilon.

Estimator. Coordinate j is estimated from the reports that drew it, as `multilevel` is: they are a simple random
sample of the reports, so that the estimate is unbiased, with the variance V(epsilon/s) of one decoded level plus that
of the values, over the number that drew it (n·s/d on average). Asking for all coordinates at once, with Laplace noise
of scale d/epsilon on each, costs a variance of 2d^2/epsilon^2 a coordinate instead of d/s·V(epsilon/s): about d times
more.

Sources: Duchi, Jordan and Wainwright 2018 (sampling coordinates); Wang et al. 2019 (how many).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import chain, combinations, pairwise, product
from math import comb, perm
from typing import ClassVar, cast

from hush_common.domain import GRID_STEPS, Domain, Readable, VectorDomain
from hush_common.mechanisms.mechanism import Aspects, Mechanism
from hush_common.mechanisms.multilevel import MOST_LEVELS, Multilevel, best_levels
from hush_common.mechanisms.parameters import Parameters, within
from hush_common.mechanisms.subset_selection import draw_subset, floyd
from hush_common.rng import Rng
from hush_common.wire import BODY_LIMIT

_FEW = 8
_EVEN = Fraction(1, 12)  # variance of an even spread over the unit interval
_MOST_TRIED = 20
_MOST_SAMPLED = (BODY_LIMIT - 1) // 2  # an offer, and two integers a coordinate, must fit into a body


@dataclass(frozen=True)
class Vector(Mechanism):
    """The parameters of the mechanism, built once from a task."""

    epsilon: Fraction  #: loss of one report, exact
    steps: int  #: grid steps of every coordinate
    coordinates: int  #: d ≥ 1
    sampled: int  #: s, 1 to d, coordinates in a report
    levels: int  #: G ≥ 1 of each

    name = "vector"
    fits: ClassVar[type[Readable]] = VectorDomain
    takes: ClassVar[frozenset[str]] = frozenset({"levels", "sampled"})
    auto = True
    described: ClassVar[tuple[str, ...]] = ("coordinates", "sampled", "levels")

    @classmethod
    def complete(cls, domain: VectorDomain, epsilons: Sequence[Fraction], given: Parameters) -> Parameters:
        d = len(domain.coordinates)
        sampled = _sampled(best_sampled(epsilons[-1], d) if given.sampled is None else given.sampled, d)
        levels = given.levels or tuple(best_levels(epsilon / sampled) for epsilon in epsilons)
        return replace(given, sampled=sampled, levels=levels)

    @classmethod
    def build(cls, domain: VectorDomain, epsilon: Fraction, parameters: Parameters, offer: int) -> "Vector":
        d = len(domain.coordinates)
        sampled = _sampled(cast("int", parameters.sampled), d)
        return cls(epsilon, domain.steps, d, sampled, within("levels", parameters.levels[offer], MOST_LEVELS))

    @cached_property
    def part(self) -> Multilevel:
        """The mechanism of one drawn coordinate."""
        return Multilevel(self.epsilon / self.sampled, self.steps, self.levels)

    @property
    def drawn(self) -> float:
        return self.sampled / self.coordinates

    @property
    def worst_variance(self) -> float:
        """The largest variance of one decoded level, times the d/s reports that it takes for one of a coordinate."""
        return self.coordinates / self.sampled * self.part.worst_variance

    @property
    def width(self) -> int:
        """Integers in a body: a coordinate and a level for each that was drawn."""
        return 2 * self.sampled

    @cached_property
    def _draws(self) -> tuple[int, int]:
        """How many draws make a subset, and how many a whole report."""
        subsets = perm(self.coordinates, self.sampled)
        return subsets, subsets * self.part.draws**self.sampled

    def perturb(self, index: tuple[int, ...], rng: Rng) -> tuple[int, ...]:
        """Return the body: coordinate and level for each drawn one; ValueError if `index` is not d grid indices."""
        if len(index) != self.coordinates or min(index) < 0 or max(index) > self.steps:
            raise ValueError(f"the index is not a vector of {self.coordinates} integers in [0, {self.steps}]")
        if self.sampled > _FEW:
            return self._one_by_one(index, rng)
        part, (subsets, every) = self.part, self._draws
        draw, subset = divmod(rng.randbelow(every), subsets)
        body: list[int] = []
        for c in sorted(floyd(subset, self.coordinates, self.sampled)):
            draw, one = divmod(draw, part.draws)
            body += (c, part.level_of(index[c], one))
        return tuple(body)

    def _one_by_one(self, index: tuple[int, ...], rng: Rng) -> tuple[int, ...]:
        """Many coordinates: the digits of one huge integer would take longer than separate integers."""
        drawn = draw_subset(self.coordinates, self.sampled, rng)
        places = [c for c in range(self.coordinates) if drawn >> c & 1]
        return tuple(number for c in places for number in (c, *self.part.perturb(index[c], rng)))

    def admits(self, body: tuple[int, ...]) -> bool:
        drawn = body[::2]
        return (
            len(body) == self.width
            and drawn[0] >= 0
            and drawn[-1] < self.coordinates
            and all(a < b for a, b in pairwise(drawn))
            and all(0 <= level <= self.levels for level in body[1::2])
        )

    def outputs(self) -> Iterator[tuple[int, ...]]:
        for drawn in combinations(range(self.coordinates), self.sampled):
            for levels in product(range(self.levels + 1), repeat=self.sampled):
                yield tuple(chain.from_iterable(zip(drawn, levels, strict=True)))

    def probability(self, body: tuple[int, ...], index: tuple[int, ...], digits: int = 60) -> Decimal:
        with localcontext() as context:
            context.prec = digits + 10
            result = 1 / Decimal(comb(self.coordinates, self.sampled))
            for c, level in zip(body[::2], body[1::2], strict=True):
                result *= self.part.probability((level,), index[c], digits + 10)
            context.prec = digits
            return +result

    def aspects(self, domain: Domain) -> Aspects:  # noqa: ARG002 - levels have no unit
        """How many coordinates are at either end, and the first one that was drawn."""
        return {
            "(levels at top, at bottom)": lambda body: (body[1::2].count(self.levels), body[1::2].count(0)),
            "(first coordinate drawn, its level)": lambda body: tuple(body[:2]),
        }


def _sampled(sampled: int, coordinates: int) -> int:
    return within("sampled", sampled, min(coordinates, _MOST_SAMPLED))


def best_sampled(epsilon: Fraction, coordinates: int) -> int:
    """The s of least variance of a coordinate at equal n, d/s·(V(epsilon/s) + 1/12), for values spread evenly.

    It is 1 up to an epsilon of about 5. Made once, when a task is published; it travels in the task.
    """

    def variance(sampled: int) -> Fraction:
        part = epsilon / sampled
        noise = Multilevel(part, GRID_STEPS, best_levels(part)).exact_worst_variance
        return (noise + _EVEN) / sampled

    return min(range(1, min(coordinates, _MOST_TRIED) + 1), key=variance)
