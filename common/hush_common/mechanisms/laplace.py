"""`laplace`: a number on a grid plus exact discrete Laplace noise.

Specification. With m grid steps, epsilon = a/c and q = e^(-a/(c·m)), a value at index i in {0, …, m} is reported as

    k = clamp(i + Z, -W, m + W),    P(Z = z) = (1 - q)/(1 + q) · q^|z|,    W = ceil(40·m/epsilon).

Privacy. (1) Before the clamp P(k|i)/P(k|i') = q^(|k-i| - |k-i'|) ≤ q^(-|i-i'|) by the triangle inequality.
(2) |i - i'| ≤ m, because the index is an integer inside the domain, so the ratio is at most q^(-m) = e^epsilon.
(3) The clamp reads k alone: post-processing (Dwork and Roth 2014, proposition 2.1). Pure epsilon-LDP, no delta and no
floating-point term: the sampler below draws this law exactly.

Estimator. E k = i, up to the clamp, which moves it by at most q^(W+1)/(1-q^2) < e^-40 · (m/epsilon + 1) steps.
Variance. Var Z = 2q/(1-q)^2 = 1/(2·sinh(epsilon/2m)^2) steps squared, whatever the value is.

Sources: Ghosh, Roughgarden and Sundararajan 2009 (geometric mechanism); Canonne, Kamath and Steinke 2020,
algorithms 1 and 2 (the exact sampler).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from math import ceil, sinh
from typing import ClassVar

from hush_common.domain import Domain, NumberDomain, Readable
from hush_common.mechanisms.mechanism import Aspects, Mechanism
from hush_common.mechanisms.parameters import Parameters
from hush_common.rng import Rng

_WINDOW = 40  # in noise scales: an honest report meets the clamp with probability 4e-18


@dataclass(frozen=True)
class Laplace(Mechanism):
    """The parameters of the mechanism, built once from a task."""

    epsilon: Fraction  #: loss of one report, exact
    steps: int  #: grid steps m ≥ 1; indices are 0 to m

    name = "laplace"
    fits: ClassVar[type[Readable]] = NumberDomain
    width = 1

    @classmethod
    def build(cls, domain: NumberDomain, epsilon: Fraction, parameters: Parameters, offer: int) -> "Laplace":  # noqa: ARG003 - it has none
        return cls(epsilon, domain.steps)

    @cached_property
    def scale(self) -> Fraction:
        """Scale of the noise, m/epsilon grid steps."""
        return self.steps / self.epsilon

    @cached_property
    def _ratio(self) -> tuple[int, int]:
        return self.scale.denominator, self.scale.numerator

    @cached_property
    def window(self) -> int:
        """How far outside the grid a report can lie, in steps."""
        return ceil(_WINDOW * self.scale)

    @cached_property
    def variance(self) -> float:
        """Variance of one report in steps squared; by sinh, because 2q/(1-q)^2 cancels where epsilon/m is small."""
        return 0.5 / sinh(float(1 / self.scale) / 2) ** 2

    @property
    def span(self) -> tuple[int, int]:
        return -self.window, self.steps + self.window

    @property
    def worst_variance(self) -> float:
        """Variance of one report on the unit interval, whatever the value is."""
        return self.variance / self.steps**2

    def perturb(self, index: int, rng: Rng) -> tuple[int, ...]:
        """Return the body of a report, one integer in [-W, m + W]; ValueError if `index` is outside [0, m].

        That is checked before the draw: privacy depends on it.
        """
        if not 0 <= index <= self.steps:
            raise ValueError(f"the index is outside [0, {self.steps}]")
        noisy, window = index + discrete_laplace(*self._ratio, rng), self.window
        if -window <= noisy <= self.steps + window:
            return (noisy,)
        return (-window if noisy < 0 else self.steps + window,)

    def admits(self, body: tuple[int, ...]) -> bool:
        return len(body) == 1 and -self.window <= body[0] <= self.steps + self.window

    def outputs(self) -> Iterator[tuple[int, ...]]:
        return ((k,) for k in range(-self.window, self.steps + self.window + 1))

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        (k,) = body
        with localcontext() as context:
            context.prec = digits + 10
            q = (-Decimal(self.scale.denominator) / Decimal(self.scale.numerator)).exp()
            power = (-Decimal(self.scale.denominator * abs(k - index)) / Decimal(self.scale.numerator)).exp()
            at_end = k in (-self.window, self.steps + self.window)
            result = power * (1 if at_end else 1 - q) / (1 + q)
            context.prec = digits
            return +result

    def aspects(self, domain: Domain) -> Aspects:
        """The report, in the unit of the domain."""
        (number,) = domain.numbers
        lower, step = number.lower, float(number.step)
        unit = f" ({number.unit})" if number.unit else ""
        return {f"the report{unit}": lambda body: lower + step * body[0]}


def bernoulli_exp(numerator: int, denominator: int, rng: Rng) -> bool:
    """True with probability exactly e^(-numerator/denominator), 0 ≤ numerator ≤ denominator (CKS 2020, algorithm 1)."""
    k = 1 + (numerator == denominator)  # a draw below 1 out of 1 is certain
    bound = denominator * k
    while rng.randbelow(bound) < numerator:
        k += 1
        bound += denominator
    return k % 2 == 1


def discrete_laplace(s: int, t: int, rng: Rng) -> int:
    """An exact draw of discrete Laplace noise of scale t/s: P(z) ∝ e^(-|z|·s/t) (CKS 2020, algorithm 2).

    |z| = floor((U + t·V)/s), where U + t·V is geometric with ratio e^(-1/t), drawn as a uniform residue U accepted
    with e^(-U/t) and a geometric quotient V; a fair sign (drawn with U), with the negative zero rejected. The running
    time varies with the noise: send at a time that does not depend on it.
    """
    while True:
        residue, negative = divmod(rng.randbelow(2 * t), 2)
        if not bernoulli_exp(residue, t, rng):
            continue
        quotient = 0
        while bernoulli_exp(1, 1, rng):
            quotient += 1
        magnitude = (residue + t * quotient) // s
        if negative and magnitude == 0:
            continue
        return -magnitude if negative else magnitude
