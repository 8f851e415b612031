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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations
from math import comb, isqrt, perm
from struct import Struct
from typing import ClassVar

from hush_common.domain import CategoryDomain, Domain, Readable
from hush_common.epsilon import WEIGHT_OF_TRUTH, weight_of_lie
from hush_common.mechanisms.mechanism import Aspects, FiniteLaw, Mechanism
from hush_common.mechanisms.parameters import Parameters, within
from hush_common.rng import Rng

_LARGEST = 1024  # elements
_FEW = 8  # from here on single elements cost more than coins; these set the speed alone, not the law
_MOST_PLACES = 6
_TRY, _WORD_COSTS, _DIGIT = 220, 40, 180  # what trying an element, a word and a digit cost, where a random bit costs 1
_SIXTEEN_BITS = 1 << 16
_SINGLE = tuple(1 << c for c in range(_LARGEST))


# A plan of coins makes a large subset in a few operations on integers of n bits. To draw elements until there are
# enough different ones would take a dozen lines, and up to nine times longer: `tests/benchmarks/bench_perturb.py`.


def draw_subset(n: int, size: int, rng: Rng) -> int:
    """Return a uniform subset of `size` of {0, …, n - 1}, exactly, as bits: element by element if there are few."""
    if size == 1:
        return 1 << rng.randbelow(n)
    if 2 * size > n:
        return (1 << n) - 1 ^ draw_subset(n, n - size, rng)  # the complement is smaller, and as uniform
    if size > _FEW:
        return _by_coins(n, size, rng)
    return sum([1 << element for element in floyd(rng.randbelow(_sequences(n, size)), n, size)])


_sequences = lru_cache(maxsize=256)(perm)  # the number of sequences of `size` different elements of n


def floyd(draw: int, n: int, size: int) -> list[int]:
    """Return a uniform subset of `size` of {0, …, n - 1}, from one uniform integer below n!/(n - size)!.

    Floyd's algorithm (Bentley and Floyd 1987). Its draws, below n - size + 1, …, n, are the digits of the one draw in
    these mixed bases, and hence independent and uniform.
    """
    chosen: list[int] = []
    for last in range(n - size, n):
        draw, digit = divmod(draw, last + 1)
        chosen.append(last if digit in chosen else digit)
    return chosen


def _by_coins(n: int, size: int, rng: Rng) -> int:
    """Flip a coin for each element, with one probability near size/n; then draw single elements until there are `size`.

    Exact for any probability: the coins give every set of k elements with the same probability. Adding a uniform one of
    those outside, or removing a uniform one of those inside, keeps it so; both are found by drawing independent and
    uniform elements until one is of that kind. (In short: renaming the elements changes no law here, so every set of
    the size has the same probability.) Nothing depends on anyone's value.
    """
    plan = _best_plan(n, size)
    flips, words = plan.draw(rng)
    chosen, every, limit = 0, plan.every, plan.limit
    for digit in plan.digits:
        chosen = chosen | flips & every if digit else chosen & flips
        flips >>= n
    lack = size - chosen.bit_count()
    while lack:
        for word in words:
            if word >= limit:  # one of the last few, fewer than n: with them the remainders would not be uniform
                continue
            bit = _SINGLE[word % n]
            if lack > 0:
                if not chosen & bit:
                    chosen |= bit
                    lack -= 1
            elif chosen & bit:
                chosen ^= bit
                lack += 1
            if not lack:
                return chosen
        _, words = plan.draw(rng)
    return chosen


@dataclass(frozen=True)
class _Plan:
    """The parameters of `_by_coins`. They set the speed only, not the law."""

    n: int  # elements
    digits: tuple[int, ...]  # of the coins' probability, binary, the last one first
    words: int  # of 16 bits, one for each single element: usually enough

    @cached_property
    def every(self) -> int:
        return (1 << self.n) - 1

    @cached_property
    def limit(self) -> int:
        """The largest multiple of n up to 2^16."""
        return _SIXTEEN_BITS - _SIXTEEN_BITS % self.n

    @cached_property
    def _layout(self) -> Struct:
        return Struct(f"<{(self.n * len(self.digits) + 7) // 8}s{self.words}H")

    def draw(self, rng: Rng) -> tuple[int, Iterable[int]]:
        """Return fair bits, n for each digit (and some more), and uniform words."""
        bits, *words = self._layout.unpack(rng.token_bytes(self._layout.size))
        return int.from_bytes(bits, "little"), words


@lru_cache(maxsize=256)
def _best_plan(n: int, size: int) -> _Plan:
    """Return the probability whose coins, and the single elements after them, have the least expected time."""
    return min((plan for places in range(_MOST_PLACES + 1) for plan in _plans(n, size, places)), key=_cost)[1]


def _cost(plan: tuple[int, _Plan]) -> int:
    tried, coins = plan
    return tried * _TRY + coins.words * _WORD_COSTS + len(coins.digits) * (coins.n + _DIGIT)


def _plans(n: int, size: int, places: int) -> Iterator[tuple[int, _Plan]]:
    """Yield about how many elements will be tried, for every probability of that many binary digits."""
    unit = 1 << places
    for share in range(places and 1, unit, 2):
        lack = (size * unit - n * share) // unit
        root = isqrt(lack**2 + n * share * (unit - share) * 16 // (25 * unit**2))  # E|lack|, all but exactly
        tried = (root + lack) * n // (2 * (n - size)) + (root - lack) * n // (2 * size) + 1
        yield tried, _Plan(n, tuple(share >> place & 1 for place in range(places)), 3 * tried // 2 + 2)


WORD_BITS = 32
"""Categories that one integer of a body says named or not: category c is bit c mod 32 of integer floor(c/32)."""

_SEEN_WHOLE = 12  # categories: at most C(12, 6) = 924 sets


@dataclass(frozen=True)
class SubsetSelection(Mechanism):
    """The parameters of the mechanism, built once from a task."""

    epsilon: Fraction  #: loss of one report, exact
    categories: int  #: k, 2 to 1024; indices are 0 to k - 1
    size: int  #: w, 1 to k - 1, how many categories a report names

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
        """Return the body of a report, a set of w categories as bits; ValueError if `index` is outside [0, k)."""
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
        for named in combinations(range(self.categories), self.size):
            yield self._words(sum(1 << c for c in named))

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
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
