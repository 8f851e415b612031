"""The Laplace mechanism of a trusted collector: the answer about a whole data set, plus noise of scale Delta/epsilon.

The collector releases f(D) + Lap(Delta/epsilon), which is epsilon-differentially private (Dwork, McSherry, Nissim and
Smith 2006, proposition 1; Dwork and Roth 2014, theorem 3.6). Here the answer is put on a grid first, so that the noise
can be drawn exactly, by the sampler that a device uses: floating-point noise would give the answer away.

Privacy. An answer is rounded to the nearest multiple of `step`. Two answers that are at most Delta apart are then at
most m = floor(Delta/step) + 1 steps apart (m = Delta/step where all answers are multiples already). The noise is
discrete Laplace of scale m/epsilon steps: P(k | a)/P(k | b) ≤ e^(epsilon·|a - b|/m) ≤ e^epsilon.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import log, sinh, sqrt

from hush_common.mechanisms.laplace import discrete_laplace
from hush_common.rng import Rng


@dataclass(frozen=True, slots=True)
class CentralLaplace:
    """Laplace noise on the answer of a trusted collector.

    Args:
        sensitivity: Delta, in the unit of the answer; above 0.
        epsilon: above 0.
        step: of the grid, in the unit of the answer; above 0. The answers lie on it if `exact`.
        exact: whether every answer is a multiple of `step` already.

    Raises:
        ValueError: one of them is not above 0, or an exact grid that the sensitivity does not fit.
    """

    sensitivity: Fraction
    epsilon: Fraction
    step: Fraction
    exact: bool = False

    def __post_init__(self) -> None:
        for name in ("sensitivity", "epsilon", "step"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")
        if self.exact and (self.sensitivity / self.step).denominator != 1:
            raise ValueError(f"step: answers that are multiples of {self.step} cannot be {self.sensitivity} apart")

    @property
    def steps(self) -> int:
        """How many steps two neighbouring answers can be apart."""
        return self.sensitivity // self.step + (not self.exact)

    @property
    def scale(self) -> Fraction:
        """Scale of the noise in the unit of the answer: Delta/epsilon, and a step/epsilon where answers are rounded."""
        return self.steps * self.step / self.epsilon

    @property
    def variance(self) -> float:
        """Of the noise, in the unit of the answer squared: 2·scale² as the step goes to 0, and less than that."""
        return (float(self.step) / sinh(float(self.step / self.scale) / 2)) ** 2 / 2

    @property
    def rmse(self) -> float:
        """Root of the mean squared error of a release, but for the rounding to the grid, which adds step/2 at most."""
        return sqrt(self.variance)

    def release(self, answer: Fraction | float, rng: Rng) -> Fraction:
        """The answer, rounded to the grid, with noise."""
        scale = self.scale / self.step
        noise = discrete_laplace(scale.denominator, scale.numerator, rng)
        return self.step * (round(Fraction(answer) / self.step) + noise)


def largest_with_probability(scale: float, d: int, beta: float) -> float:
    """What the largest of d noises exceeds with a probability of at most beta: scale·(ln d + ln(1/beta))."""
    return scale * (log(d) + log(1 / beta))


def expected_largest(scale: float, d: int) -> float:
    """The mean of the largest of d absolute noises, exactly: scale·(1 + 1/2 + … + 1/d), at most scale·(ln d + 1).

    Absolute values of Laplace noise are exponential; the largest of d of them is the sum of independent spacings of
    mean scale/d, …, scale/1 (Rényi 1953).
    """
    return scale * float(sum(1 / j for j in range(1, d + 1)))
