"""The Laplace distribution as textbooks have it: continuous, in floating point. For figures; nothing private is drawn.

    density       f(x) = e^(-|x - mu|/b)/(2b)
    distribution  F(x) = e^((x - mu)/b)/2 below mu, 1 - e^(-(x - mu)/b)/2 above
    inverse       F^-1(p) = mu + b·ln(2p) for p ≤ 1/2, mu - b·ln(2(1 - p)) above

Mean and median are mu, the variance is 2b², E|x - mu| is b and P(|x - mu| > t·b) is e^-t: b is a scale, and neither
the variance nor a shape.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LaplaceLaw:
    """Lap(location, scale).

    Args:
        location: mu, mean and median.
        scale: b, above 0.
    """

    location: float = 0.0
    scale: float = 1.0

    def density(self, x: _Array) -> _Array:
        """Of each x."""
        return np.asarray(np.exp(-np.abs(x - self.location) / self.scale) / (2 * self.scale))

    def distribution(self, x: _Array) -> _Array:
        """F of each x."""
        tail = np.exp(-np.abs(x - self.location) / self.scale) / 2
        return np.asarray(np.where(x < self.location, tail, 1 - tail))

    def inverse(self, p: _Array) -> _Array:
        """The x at which F is p, for each p in (0, 1)."""
        tail = np.log(2 * np.minimum(p, 1 - p))
        return np.asarray(self.location + self.scale * np.where(p <= 0.5, tail, -tail))  # noqa: PLR2004 - the median

    def draws(self, n: int, rng: np.random.Generator) -> _Array:
        """Independent draws, n of them, by the inverse of uniform numbers."""
        return self.inverse(uniform(n, rng))

    @property
    def variance(self) -> float:
        """2b²."""
        return 2 * self.scale**2


def uniform(n: int, rng: np.random.Generator) -> _Array:
    """Independent uniform numbers, n of them, none of which is 0: the inverse of 0 is infinite."""
    return np.asarray(rng.uniform(np.nextafter(0, 1), 1, n))
