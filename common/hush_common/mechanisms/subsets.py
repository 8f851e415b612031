"""Uniform subsets, exactly and fast: what `subset_selection` and `vector` draw, whatever the value is.

A plan of coins makes a large subset in a few operations on integers of n bits. To draw elements until there are enough
different ones is a dozen lines instead, and took 3 microseconds where this takes 2 (17 of 63), 11 where it takes 3 (69
of 255), and 93 where it takes 10 (275 of 1023): `tests/benchmarks/bench_perturb.py` has both.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isqrt, perm
from struct import Struct

from hush_common.rng import Rng

__all__ = ["draw_subset", "floyd"]

_LARGEST = 1024  # elements
_FEW = 8  # from here on single elements cost more than coins; these set the speed alone, not the law
_MOST_PLACES = 6
_TRY, _WORD_COSTS, _DIGIT = 220, 40, 180  # what trying an element, a word and a digit cost, where a random bit costs 1
_SIXTEEN_BITS = 1 << 16
_SINGLE = tuple(1 << c for c in range(_LARGEST))


def draw_subset(n: int, size: int, rng: Rng) -> int:
    """A uniform subset of `size` of {0, …, n - 1}, exactly, as bits: element by element if there are few."""
    if size == 1:
        return 1 << rng.randbelow(n)
    if 2 * size > n:
        return (1 << n) - 1 ^ draw_subset(n, n - size, rng)  # those left out are fewer, and as uniform
    return _by_elements(n, size, rng) if size <= _FEW else _by_coins(n, size, rng)


def _by_elements(n: int, size: int, rng: Rng) -> int:
    """`floyd`, as bits."""
    chosen = 0
    for element in floyd(rng.randbelow(_sequences(n, size)), n, size):
        chosen |= 1 << element
    return chosen


@lru_cache(maxsize=256)
def _sequences(n: int, size: int) -> int:
    """n·(n - 1)·…·(n - size + 1): as many as there are sequences of different elements."""
    return perm(n, size)


def floyd(draw: int, n: int, size: int) -> list[int]:
    """A uniform subset of `size` of {0, …, n - 1}, from one uniform integer below n!/(n - size)!.

    Floyd's algorithm (Bentley and Floyd 1987). Its draws, below n - size + 1, …, n, are the digits of the one draw in
    these mixed bases, and hence independent and uniform.
    """
    chosen: list[int] = []
    for last in range(n - size, n):
        draw, digit = divmod(draw, last + 1)
        chosen.append(last if digit in chosen else digit)
    return chosen


def _by_coins(n: int, size: int, rng: Rng) -> int:
    """A coin for each element, all with one probability near size/n; then single elements until there are `size`.

    Exact, whatever that probability is: the coins give every set of as many elements with the same probability. Adding
    a uniform one of those outside, or removing a uniform one of those inside, keeps it so; both are found by drawing
    elements, independent and uniform, until one is of that kind. (In short: to rename the elements changes the law of
    nothing here, so every set of the size has the same probability.) Nothing depends on anyone's value.
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
    """How `_by_coins` goes about it. It sets the speed alone, not the law.

    Args:
        n: elements.
        digits: of the coins' probability, binary, the last one first.
        words: of 16 bits, for as many single elements: enough as a rule.
    """

    n: int
    digits: tuple[int, ...]
    words: int

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
        """Fair bits, n for each digit (and some more), and uniform words."""
        bits, *words = self._layout.unpack(rng.token_bytes(self._layout.size))
        return int.from_bytes(bits, "little"), words


@lru_cache(maxsize=256)
def _best_plan(n: int, size: int) -> _Plan:
    """The probability whose coins, and the single elements after them, are expected to cost least time."""
    return min((plan for places in range(_MOST_PLACES + 1) for plan in _plans(n, size, places)), key=_cost)[1]


def _cost(plan: tuple[int, _Plan]) -> int:
    tried, coins = plan
    return tried * _TRY + coins.words * _WORD_COSTS + len(coins.digits) * (coins.n + _DIGIT)


def _plans(n: int, size: int, places: int) -> Iterator[tuple[int, _Plan]]:
    """How many elements will be tried, about, for every probability of as many binary digits."""
    unit = 1 << places
    for share in range(places and 1, unit, 2):
        lack = (size * unit - n * share) // unit
        root = isqrt(lack**2 + n * share * (unit - share) * 16 // (25 * unit**2))  # E|lack|, all but exactly
        tried = (root + lack) * n // (2 * (n - size)) + (root - lack) * n // (2 * size) + 1
        yield tried, _Plan(n, tuple(share >> place & 1 for place in range(places)), 3 * tried // 2 + 2)
