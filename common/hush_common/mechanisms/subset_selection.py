"""`subset_selection`: a category hidden in a random set of categories.

Specification. Of k categories a report names a set S of exactly w. With weights T = 2^128 and
L = floor(2^128 · e^-epsilon) + 1, each set that contains the truth weighs T and each other set L:

    P(S | x) = T/Z if x in S, else L/Z,    Z = T·C(k-1, w-1) + L·C(k-1, w)    (the same Z for every x).

There are w/(k-w) times as many sets with x as without, so one uniform integer below T·w + L·(k-w) decides whether S
contains x: if it is below T·w. The rest of S is a uniform subset, drawn exactly. w = 1 is generalised randomized
response.

Privacy. Z does not depend on x, so P(S|x)/P(S|x') ≤ T/L ≤ e^epsilon, exactly.

Estimator. A category is in S with probability p = T·w/(T·w + L·(k-w)) if it is the truth; all others are alike, and S
has w members, so each of them is in S with q = (w - p)/(k - 1). With N reports of n naming it, f = (N/n - q)/(p - q)
is unbiased. Variance of f over n reports: c(1 - c)/(n(p - q)^2), c = f·p + (1 - f)·q. `best_size` takes the w that
makes it least at f = 0, where categories are many: close to k/(e^epsilon + 1).

Wire. S as a bit set: category c is bit c mod 32 of integer floor(c/32), so that every body has the same length.

Sources: Ye and Barg 2018; Wang, Huang, Wang, Nie, Xu, Yang, Li and Qiao 2016 (the optimal size).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import comb
from struct import Struct
from typing import ClassVar

from hush_common.domain import CategoryDomain, Domain
from hush_common.epsilon import WEIGHT_OF_TRUTH, weight_of_lie
from hush_common.mechanisms.mechanism import Aspects, FiniteLaw, Mechanism
from hush_common.mechanisms.parameters import Parameters, within
from hush_common.mechanisms.subsets import draw_subset
from hush_common.reading import Readable
from hush_common.rng import Rng

__all__ = ["WORD_BITS", "SubsetSelection", "best_size"]

WORD_BITS = 32
"""Categories that one integer of a body says named or not: category c is bit c mod 32 of integer floor(c/32)."""

_SEEN_WHOLE = 12  # categories: at most C(12, 6) = 924 sets


@dataclass(frozen=True)
class SubsetSelection(Mechanism):
    """The parameters of the mechanism, built once from a task.

    Args:
        epsilon: loss of one report, exact.
        categories: k, 2 to 1024; indices are 0 to k - 1.
        size: w, 1 to k - 1, how many categories a report names.
    """

    epsilon: Fraction
    categories: int
    size: int

    name = "subset_selection"
    fits: ClassVar[type[Readable]] = CategoryDomain
    takes: ClassVar[frozenset[str]] = frozenset({"size"})
    auto = True
    is_share = True
    described: ClassVar[tuple[str, ...]] = ("categories", "size")

    @classmethod
    def complete(cls, domain: CategoryDomain, epsilons: Sequence[Fraction], given: Parameters) -> Parameters:
        if given.size:
            return given
        return replace(given, size=tuple(best_size(epsilon, len(domain.labels)) for epsilon in epsilons))

    @classmethod
    def build(cls, domain: CategoryDomain, epsilon: Fraction, parameters: Parameters, offer: int) -> "SubsetSelection":
        categories = len(domain.labels)
        return cls(epsilon, categories, within("size", parameters.size[offer], categories - 1))

    @cached_property
    def law(self) -> FiniteLaw:
        """That of one category, 0 unnamed and 1 named."""
        return FiniteLaw.of_coin(*self.support)

    @cached_property
    def width(self) -> int:
        """Integers in a body."""
        return -(-self.categories // WORD_BITS)

    @cached_property
    def lie(self) -> int:
        """Weight of a set without the truth; one with it weighs 2^128."""
        return weight_of_lie(self.epsilon)

    @cached_property
    def total(self) -> int:
        """Weight of all sets together."""
        k, w = self.categories, self.size
        return WEIGHT_OF_TRUTH * comb(k - 1, w - 1) + self.lie * comb(k - 1, w)

    @cached_property
    def _odds(self) -> tuple[int, int]:
        """All sets with the truth, and all sets: their weights, without the factor that these have in common."""
        with_truth = WEIGHT_OF_TRUTH * self.size
        return with_truth, with_truth + self.lie * (self.categories - self.size)

    @cached_property
    def support(self) -> tuple[Fraction, Fraction]:
        """(q, p): probability that a report names a category which is not, and which is, the truth; exact."""
        p = Fraction(*self._odds)
        return (self.size - p) / (self.categories - 1), p

    @cached_property
    def worst_variance(self) -> float:
        """The largest variance of one decoded report, for any category: of those who have it, and who do not."""
        return float(max(self.law.noise))

    def perturb(self, index: int, rng: Rng) -> tuple[int, ...]:
        """The body of a report: a set of w categories, as bits.

        Raises:
            ValueError: `index` outside [0, k).
        """
        if not 0 <= index < self.categories:
            raise ValueError(f"the index is outside [0, {self.categories})")
        with_truth, total = self._odds
        draw = rng.randbelow(total)
        if draw < with_truth:
            return self._words(_inserted(draw_subset(self.categories - 1, self.size - 1, rng), index, 1))
        if self.size == 1:
            other = 1 << (draw - with_truth) // self.lie  # the draw itself names the other category
            return self._words(_inserted(other, index, 0))
        return self._words(_inserted(draw_subset(self.categories - 1, self.size, rng), index, 0))

    def _words(self, bits: int) -> tuple[int, ...]:
        if self.width == 1:
            return (bits,)
        return self._layout.unpack(bits.to_bytes(self._layout.size, "little"))

    @cached_property
    def _layout(self) -> Struct:
        return Struct(f"<{self.width}I")

    def admits(self, body: tuple[int, ...]) -> bool:
        """Whether a device that follows the mechanism can send `body`."""
        if len(body) != self.width or not all(0 <= word < 1 << WORD_BITS for word in body):
            return False
        last = self.categories - WORD_BITS * (self.width - 1)
        return body[-1] < 1 << last and sum(word.bit_count() for word in body) == self.size

    @staticmethod
    def names(body: tuple[int, ...], category: int) -> int:
        """1 if a report names the category, else 0."""
        word, bit = divmod(category, WORD_BITS)
        return body[word] >> bit & 1

    def outputs(self) -> Iterator[tuple[int, ...]]:
        """Every body that can be sent; C(k, w) of them."""
        for named in combinations(range(self.categories), self.size):
            yield self._words(sum(1 << c for c in named))

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        """P(body | index), to `digits` significant digits: the table that tests enumerate."""
        named = self.names(body, index)
        with localcontext() as context:
            context.prec = digits
            return Decimal(WEIGHT_OF_TRUTH if named else self.lie) / Decimal(self.total)

    def aspects(self, domain: Domain) -> Aspects:  # noqa: ARG002 - a set says nothing of labels
        """Whether the first and the last category are named; the set too, where there are few of them."""
        last = self.categories - 1
        ends: Aspects = {"(first named, last named)": lambda body: (self.names(body, 0), self.names(body, last))}
        return {**ends, "the body": tuple} if self.size == 1 or self.categories <= _SEEN_WHOLE else ends


def _inserted(bits: int, place: int, bit: int) -> int:
    """`bits` with one more bit at `place`; those from there on move up."""
    above = bits >> place
    return bits ^ (above << place) | (above << 1 | bit) << place


def best_size(epsilon: Fraction, categories: int) -> int:
    """The w of least variance at f = 0, compared in fractions; on a tie the smaller.

    Made once, when a task is published; it travels in the task.
    """
    lie = weight_of_lie(epsilon)
    guess = categories * lie // (WEIGHT_OF_TRUTH + lie)
    candidates = {1, *range(max(1, guess - 1), min(categories - 1, guess + 2) + 1)}
    best: int = min(sorted(candidates), key=lambda w: SubsetSelection(epsilon, categories, w).law.noise[0])
    return best
