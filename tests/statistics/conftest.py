"""What the statistical tests share: a goodness-of-fit verdict, a repeatable Rng, and one that takes every path."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats

FALSE_ALARM = 1e-9
"""How often a goodness-of-fit verdict condemns the right law, over all seeds."""

_SMALLEST_CELL = 10


class SeededRng:
    """Repeatable integers, for tests only."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a test wants the same draws every time

    def randbelow(self, n: int, /) -> int:
        return self._random.randrange(n)

    def token_bytes(self, count: int, /) -> bytes:
        return self._random.randbytes(count)


class CutOffError(Exception):
    """This path has become too improbable to be followed further."""


@dataclass
class PathRng:
    """Replays the outcomes of a path, then takes outcome 0 at every draw; keeps the exact weight of the path."""

    path: list[int]
    cut_off: Fraction
    sizes: list[int] = field(default_factory=list)
    weight: Fraction = Fraction(1)

    def randbelow(self, n: int, /) -> int:
        if self.weight / n < self.cut_off:
            raise CutOffError
        self.weight /= n
        return self._next(n)

    def flip(self, p: Fraction) -> bool:
        """True with probability `p`, as one draw of two outcomes."""
        outcome = self._next(2)
        self.weight *= p if outcome else 1 - p
        if self.weight < self.cut_off:
            raise CutOffError
        return outcome == 1

    def token_bytes(self, count: int, /) -> bytes:
        raise NotImplementedError

    def _next(self, size: int) -> int:
        self.sizes.append(size)
        if len(self.sizes) > len(self.path):
            self.path.append(0)
        return self.path[len(self.sizes) - 1]


def paths(draw: Callable[[PathRng], int], cut_off: Fraction) -> Iterator[tuple[int, Fraction]]:
    """Every result of `draw` whose path is at least as probable as `cut_off`, with the exact weight of the path."""
    path: list[int] = []
    while True:
        rng = PathRng(path, cut_off)
        try:
            result = draw(rng)
        except CutOffError:
            pass
        else:
            yield result, rng.weight
        while path and path[-1] == rng.sizes[len(path) - 1] - 1:
            path.pop()
        if not path:
            return
        path[-1] += 1


def enumerate_law(draw: Callable[[PathRng], int], cut_off: Fraction) -> tuple[dict[int, Fraction], Fraction]:
    """Lower bounds of P(result), exact, and the mass of the paths that were cut off: what the bounds may lack."""
    law: dict[int, Fraction] = {}
    for result, weight in paths(draw, cut_off):
        law[result] = law.get(result, Fraction(0)) + weight
    return law, 1 - sum(law.values(), Fraction(0))


def fits(observed: ArrayLike, probabilities: ArrayLike) -> bool:
    """Whether counts agree with cell probabilities, by Pearson's chi-squared, with a false alarm of `FALSE_ALARM`.

    Two-sided: counts that agree *too well* to be random are refused as well.

    Raises:
        ValueError: the cells have different shapes, the probabilities do not sum to 1, or a cell expects fewer than 10.
    """
    counts, law = np.asarray(observed, dtype=float), np.asarray(probabilities, dtype=float)
    expected = law * counts.sum()
    if counts.shape != law.shape or abs(law.sum() - 1) > FALSE_ALARM or expected.min() < _SMALLEST_CELL:
        raise ValueError(f"no chi-squared test: {counts.shape}, {law.shape}, sum {law.sum()}, least {expected.min()}")
    statistic = float(((counts - expected) ** 2 / expected).sum())
    judge = stats.chi2(counts.size - 1)
    return bool(judge.isf(1 - FALSE_ALARM / 2) <= statistic <= judge.isf(FALSE_ALARM / 2))


@pytest.fixture(name="fits")
def _fits() -> Callable[[ArrayLike, ArrayLike], bool]:
    return fits


@pytest.fixture(name="seeded")
def _seeded() -> Callable[[int], SeededRng]:
    return SeededRng


@pytest.fixture(name="enumerate_law")
def _enumerate_law() -> Callable[[Callable[[PathRng], int], Fraction], tuple[dict[int, Fraction], Fraction]]:
    return enumerate_law
