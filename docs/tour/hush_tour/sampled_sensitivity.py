"""Sensitivity sampled from pairs of neighbours (Rubinstein and Aldà 2017, algorithm 1): what it is, and what it is not.

m pairs of neighbouring data sets are drawn from a distribution that one has to know, and the k-th smallest of the m
differences is called the sensitivity. By the inequality of Dvoretzky, Kiefer and Wolfowitz, for any rho in (0, gamma),

    m ≥ ln(1/rho)/(2·(gamma - rho)²),    k = ceil(m·(1 - gamma + rho + sqrt(ln(1/rho)/(2m))))

make it, with probability 1 - rho, an upper bound for all but a share gamma of *random* pairs. That is (epsilon, delta,
gamma)-random differential privacy, a promise about typical pairs. Differential privacy is about every pair.
"""

from dataclasses import dataclass
from math import ceil, exp, log, sqrt

import numpy as np

from hush_tour.mixtures import NormalMixture

_ROUNDS = 200  # of a bisection: far more than a float has bits


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """How many pairs are drawn, and which of their differences is taken.

    Args:
        gamma: share of random pairs for which the result may be too small.
        rho: probability that the result is too small for more of them.
        m: pairs.
        k: which of the m differences in ascending order, counted from 1.
    """

    gamma: float
    rho: float
    m: int
    k: int


def best_plan(gamma: float) -> SamplingPlan:
    """The plan with the fewest pairs: rho = e^(W(-gamma/(2·sqrt(e))) + 1/2), W Lambert's function, branch -1.

    Raises:
        ValueError: gamma outside (0, 1).
    """
    if not 0 < gamma < 1:
        raise ValueError(f"gamma: {gamma} is outside (0, 1)")
    return plan(gamma, exp(_lambert(-gamma / (2 * sqrt(exp(1)))) + 0.5))


def plan(gamma: float, rho: float) -> SamplingPlan:
    """The plan for a rho in (0, gamma)."""
    m = ceil(log(1 / rho) / (2 * (gamma - rho) ** 2))
    k = ceil(m * (1 - gamma + rho + sqrt(log(1 / rho) / (2 * m))) - 1e-9)  # rounding alone must not ask for pair m + 1
    return SamplingPlan(gamma, rho, m, k)


def sampled(population: NormalMixture, chosen: SamplingPlan, rng: np.random.Generator) -> tuple[float, float]:
    """The sampled sensitivity of one person's value, and the mean of all m differences."""
    differences = np.sort(np.abs(population.draws(chosen.m, rng) - population.draws(chosen.m, rng)))
    return float(differences[chosen.k - 1]), float(differences.mean())


def law_of_largest(population: NormalMixture, m: int, at: float) -> float:
    """The probability that the largest of m differences is at most `at`."""
    return float((1 - population.share_farther_apart(at)) ** m)


def _lambert(x: float) -> float:
    """W of branch -1: the w ≤ -1 with w·e^w = x, for -1/e ≤ x < 0; by bisection."""
    low, high = -700.0, -1.0  # w·e^w falls from 0 to -1/e between them
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * exp(middle) > x else (low, middle)
    return high
