"""Shapes of populations of numbers that are no mixture of normal ones: skewed, and of a few points."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hush_common.errors import OptionError

__all__ = ["MOST_POINTS", "Lognormal", "Points", "zipf_numbers", "zipf_weights"]

MOST_POINTS = 1_000_000
"""Numbers that a population of points has at most."""

_MOST_SIGMA = 5.0
_MOST_EXPONENT = 20.0


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Numbers whose logarithm is normal: incomes, durations, sizes of files.

    Args:
        median: half of the people are below, in the unit of the task; above 0.
        sigma: the standard deviation of the natural logarithm, above 0 and at most 5.
    """

    median: float
    sigma: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.median) and self.median > 0):
            raise OptionError("population.median", f"{self.median} is not above 0; write the middle one of the values")
        if not 0 < self.sigma <= _MOST_SIGMA:
            raise OptionError(
                "population.sigma", f"{self.sigma} is not above 0 and at most {_MOST_SIGMA:g}; write that of logarithms"
            )
        if not math.isfinite(self.mean):
            raise OptionError("population.median", f"{self.median} makes a mean beyond all floats; use a larger unit")

    @property
    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)

    def numbers(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """`count` values, shape (count,)."""
        return self.median * np.exp(self.sigma * rng.standard_normal(count))

    def draw(self, count: int, rng: np.random.Generator) -> Sequence[float]:
        values: list[float] = self.numbers(count, rng).tolist()
        return values


@dataclass(frozen=True, slots=True)
class Points:
    """Numbers of which there are a few, such as how many children people have.

    Args:
        values: ascending, in the unit of the task.
        weights: of each; shares, whatever they add up to.
    """

    values: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def shares(self) -> NDArray[np.float64]:
        """The weights, scaled to add up to one."""
        weights = np.array(self.weights)
        shares: NDArray[np.float64] = weights / math.fsum(self.weights)
        return shares

    @property
    def mean(self) -> float:
        total = math.fsum(self.weights)
        return math.fsum(w * x for w, x in zip(self.weights, self.values, strict=True)) / total

    def numbers(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """`count` values, shape (count,)."""
        return rng.choice(np.array(self.values), size=count, p=self.shares)

    def draw(self, count: int, rng: np.random.Generator) -> Sequence[float]:
        values: list[float] = self.numbers(count, rng).tolist()
        return values


def zipf_numbers(exponent: float, largest: int) -> Points:
    """The numbers 1 to `largest`, k with a weight of k^-exponent.

    Raises:
        OptionError: an exponent that is negative or above 20, or numbers that are none or too many.
    """
    if not 1 <= largest <= MOST_POINTS:
        raise OptionError("population.largest", f"{largest} is outside 1 to {MOST_POINTS}; write the largest number")
    return Points(tuple(map(float, range(1, largest + 1))), zipf_weights(exponent, largest))


def zipf_weights(exponent: float, count: int) -> tuple[float, ...]:
    """1, 2^-s, 3^-s and so on: the law of Zipf, for `count` things from the most frequent on.

    Raises:
        OptionError: the exponent s is negative or above 20.
    """
    if not 0 <= exponent <= _MOST_EXPONENT:
        raise OptionError("population.exponent", f"{exponent} is not from 0 to {_MOST_EXPONENT:g}; write 1.0 or so")
    weights: list[float] = (np.arange(1, count + 1) ** -float(exponent)).tolist()
    return tuple(weights)
