"""`subset_selection`: a category hidden in a random set of categories.

Specification. Of k categories a report names a set S of exactly w. With weights T = 2^128 and
L = floor(2^128 · e^-epsilon) + 1, each set that contains the truth weighs T and each other set L:

    P(S | x) = T/Z if x in S, else L/Z,    Z = T·C(k-1, w-1) + L·C(k-1, w)    (the same Z for every x).

One uniform integer below Z decides whether S contains x; the rest of S is a uniform subset, drawn exactly.
w = 1 is generalised randomized response.

Privacy. Z does not depend on x, so P(S|x)/P(S|x') ≤ T/L ≤ e^epsilon, exactly.

Estimator. A category is in S with probability p = T·C(k-1, w-1)/Z if it is the truth, and else with
q = (T·C(k-2, w-2) + L·C(k-2, w-1))/Z. With N reports of n naming it, f = (N/n - q)/(p - q) is unbiased.
Variance of f over n reports: c(1 - c)/(n(p - q)^2), c = f·p + (1 - f)·q. `best_size` takes the w that makes it least at
f = 0, where categories are many: close to k/(e^epsilon + 1).

Wire. S as a bit set: category c is bit c mod 32 of integer floor(c/32), so that every body has the same length.

Sources: Ye and Barg 2018; Wang, Huang, Wang, Nie, Xu, Yang, Li and Qiao 2016 (the optimal size).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import comb, prod
from struct import Struct

from hush_common.epsilon import WEIGHT_OF_TRUTH, weight_of_lie
from hush_common.rng import Rng

__all__ = ["MOST_CATEGORIES", "SubsetSelection", "best_size", "draw_subset"]

MOST_CATEGORIES = 1024
_WORD = 32
_FEW = 8  # from here on single elements cost more than coins; these three set the speed alone, not the law
_COINS = 4
_CANDIDATES = 8


@dataclass(frozen=True)
class SubsetSelection:
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

    @cached_property
    def width(self) -> int:
        """Integers in a body."""
        return -(-self.categories // _WORD)

    @cached_property
    def lie(self) -> int:
        """Weight of a set without the truth; one with it weighs 2^128."""
        return weight_of_lie(self.epsilon)

    @cached_property
    def _with_truth(self) -> int:
        return WEIGHT_OF_TRUTH * comb(self.categories - 1, self.size - 1)

    @cached_property
    def total(self) -> int:
        """Weight of all sets together."""
        return self._with_truth + self.lie * comb(self.categories - 1, self.size)

    @cached_property
    def support(self) -> tuple[Fraction, Fraction]:
        """(q, p): probability that a report names a category which is not, and which is, the truth; exact."""
        k, w = self.categories, self.size
        other = (WEIGHT_OF_TRUTH * comb(k - 2, w - 2) if w > 1 else 0) + self.lie * comb(k - 2, w - 1)
        return Fraction(other, self.total), Fraction(self._with_truth, self.total)

    @cached_property
    def worst_variance(self) -> float:
        """The largest variance of one decoded report, for any category: of those who have it, and who do not."""
        q, p = self.support
        return float(max(c * (1 - c) for c in (q, p)) / (p - q) ** 2)

    def perturb(self, index: int, rng: Rng) -> tuple[int, ...]:
        """The body of a report: a set of w categories, as bits.

        Raises:
            ValueError: `index` outside [0, k).
        """
        if not 0 <= index < self.categories:
            raise ValueError(f"the index is outside [0, {self.categories})")
        draw = rng.randbelow(self.total)
        if draw < self._with_truth:
            return self._words(_inserted(draw_subset(self.categories - 1, self.size - 1, rng), index, 1))
        if self.size == 1:
            other = 1 << (draw - self._with_truth) // self.lie  # the draw itself names the other category
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
        if len(body) != self.width or not all(0 <= word < 1 << _WORD for word in body):
            return False
        last = self.categories - _WORD * (self.width - 1)
        return body[-1] < 1 << last and sum(word.bit_count() for word in body) == self.size

    def outputs(self) -> Iterator[tuple[int, ...]]:
        """Every body that can be sent; C(k, w) of them."""
        for named in combinations(range(self.categories), self.size):
            yield self._words(sum(1 << c for c in named))

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        """P(body | index), to `digits` significant digits: the table that tests enumerate."""
        named = body[index // _WORD] >> index % _WORD & 1
        with localcontext() as context:
            context.prec = digits
            return Decimal(WEIGHT_OF_TRUTH if named else self.lie) / Decimal(self.total)


def draw_subset(n: int, size: int, rng: Rng) -> int:
    """A uniform subset of `size` of {0, …, n - 1}, exactly, as bits: element by element if there are few."""
    if size == 1:
        return 1 << rng.randbelow(n)
    if 2 * size > n:
        return (1 << n) - 1 ^ draw_subset(n, n - size, rng)  # those left out are fewer, and as uniform
    return _by_elements(n, size, rng) if size <= _FEW else _by_coins(n, size, rng)


def _by_elements(n: int, size: int, rng: Rng) -> int:
    """Floyd's algorithm (Bentley and Floyd 1987); its draws below n - size + 1, …, n are digits of one draw."""
    chosen = 0
    bases = range(n - size + 1, n + 1)
    digits = rng.randbelow(prod(bases))
    for base in bases:
        digits, digit = divmod(digits, base)
        bit = 1 << digit
        chosen |= 1 << base - 1 if chosen & bit else bit
    return chosen


def _by_coins(n: int, size: int, rng: Rng) -> int:
    """A coin for each element, all with one probability just below size/n; then single elements until there are `size`.

    The coins give every set of as many elements with the same probability. Adding a uniform one of those outside, or
    removing a uniform one of those inside, keeps it so; both are found by drawing elements until one is of that kind.
    """
    share = (size << _COINS) // n
    first = (share & -share).bit_length() - 1 if share else _COINS
    flips, every, chosen = rng.randbelow(1 << n * (_COINS - first)), (1 << n) - 1, 0
    for place in range(first, _COINS):  # the binary digits of the probability, the last one first
        chosen = chosen | flips & every if share >> place & 1 else chosen & flips
        flips >>= n
    lack = size - chosen.bit_count()
    while lack:
        digits = rng.randbelow(n**_CANDIDATES)
        for _ in range(_CANDIDATES):
            digits, digit = divmod(digits, n)
            bit = 1 << digit
            if lack > 0 and not chosen & bit:
                chosen, lack = chosen | bit, lack - 1
            elif lack < 0 and chosen & bit:
                chosen, lack = chosen ^ bit, lack + 1
    return chosen


def _inserted(bits: int, place: int, bit: int) -> int:
    """`bits` with one more bit at `place`; those from there on move up."""
    above = bits >> place
    return bits ^ (above << place) | (above << 1 | bit) << place


def best_size(epsilon: Fraction, categories: int) -> int:
    """The w of least variance at f = 0. Made once, when a task is published; it travels in the task."""
    guess = int(categories / (WEIGHT_OF_TRUTH / weight_of_lie(epsilon) + 1))
    candidates = {1, *range(max(1, guess - 1), min(categories - 1, guess + 2) + 1)}
    best: int = min(sorted(candidates), key=lambda w: _variance_at_zero(SubsetSelection(epsilon, categories, w)))
    return best


def _variance_at_zero(mechanism: SubsetSelection) -> Fraction:
    q, p = mechanism.support
    return q * (1 - q) / (p - q) ** 2
