"""Mixtures of normal distributions, and the difference of two people drawn from one.

The difference of two independent people of components i and j is normal with mean mu_i - mu_j and variance s_i² + s_j².
So the law of |x - x'| is a mixture of folded normal distributions, with closed forms for everything here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import erf, exp, pi, sqrt

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class NormalComponent:
    """A normal distribution, and its share of the people."""

    weight: float
    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class NormalMixture:
    """A mixture of normal distributions, whose weights add up to 1."""

    parts: tuple[NormalComponent, ...]

    @property
    def mean(self) -> float:
        """Of one person."""
        return sum(part.weight * part.mean for part in self.parts)

    @property
    def sd(self) -> float:
        """Of one person."""
        return sqrt(sum(part.weight * (part.sd**2 + (part.mean - self.mean) ** 2) for part in self.parts))

    def density(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """At each x."""
        return np.asarray(sum(part.weight * density(x, part) for part in self.parts))

    def draws(self, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """N independent people."""
        which = rng.choice(len(self.parts), n, p=[part.weight for part in self.parts])
        means, sds = (np.array([getattr(part, name) for part in self.parts]) for name in ("mean", "sd"))
        return np.asarray(rng.normal(means[which], sds[which]))

    @property
    def mean_difference(self) -> float:
        """E|x - x'| of two people."""
        return self._averaged(lambda m, s: s * sqrt(2 / pi) * exp(-(m**2) / (2 * s**2)) + m * erf(m / (s * sqrt(2))))

    @property
    def sd_of_difference(self) -> float:
        """Standard deviation of |x - x'|."""
        return sqrt(2 * self.sd**2 - self.mean_difference**2)

    def share_farther_apart(self, distance: float) -> float:
        """P(|x - x'| > distance)."""

        def beyond(m: float, s: float) -> float:
            return 1 - (erf((distance - m) / (s * sqrt(2))) + erf((distance + m) / (s * sqrt(2)))) / 2

        return self._averaged(beyond)

    def _averaged(self, of: Callable[[float, float], float]) -> float:
        return sum(weight * of(mean, sd) for weight, mean, sd in self._differences())

    def _differences(self) -> Iterator[tuple[float, float, float]]:
        for one in self.parts:
            for other in self.parts:
                yield one.weight * other.weight, one.mean - other.mean, sqrt(one.sd**2 + other.sd**2)


def density(x: NDArray[np.float64], part: NormalComponent) -> NDArray[np.float64]:
    """Of one normal distribution, at each x; its weight left out."""
    return np.asarray(np.exp(-(((x - part.mean) / part.sd) ** 2) / 2) / (part.sd * sqrt(2 * pi)))


HEIGHTS = NormalMixture((NormalComponent(0.5, 178.0, 7.0), NormalComponent(0.5, 162.0, 6.5)))
"""Adult men and women in equal numbers, in cm: the population of the notebook."""
