"""Exact laws, by ways that the product does not take: sums of Laplace variables, of coins, and of lattice positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi, sqrt

import numpy as np
from covering.cells import Array
from scipy import special, stats

__all__ = ["Window", "answered_sum", "coin_sum", "laplace_below", "mixed_below", "outcomes"]

_EVERY = 1 << 17
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)


def laplace_below(n: int, x: Array) -> Array:
    """P(S ≤ x) for the sum S of n Laplace(1): a difference of two Gamma(n), integrated over one of them."""
    top = n + 9 * sqrt(n) + 40
    low = max(0.0, n - 9 * sqrt(n) - 40)
    y = low + (top - low) * (_NODES + 1) / 2
    weights = np.exp(special.xlogy(n - 1, y) - y - special.gammaln(n)) * _WEIGHTS * (top - low) / 2
    beyond = special.gammaincc(n, y[None, :] + np.abs(np.atleast_1d(x))[:, None]) @ weights
    return np.asarray(np.where(np.atleast_1d(x) > 0, 1 - beyond, beyond))


def mixed_below(scales: Sequence[tuple[float, int]], x: Array) -> Array:
    """P(X ≤ x) for X = Σ b_c·(sum of n_c Laplace(1)): Gil-Pelaez along the real axis by the midpoint rule.

    The rule's error is the mass beyond 2·pi/step; the integral ends where the transform is below 1e-10.
    """
    scales = [(b, n) for b, n in scales if n]
    if len(scales) == 1:
        ((b, n),) = scales
        return laplace_below(n, np.asarray(x) / b)
    largest = max(b for b, _ in scales)
    deviation = sqrt(sum(2 * n * b**2 for b, n in scales))
    x = np.atleast_1d(np.asarray(x, dtype=float))
    period = 2 * max(float(np.abs(x).max()), 0.0) + 60 * largest + 20 * deviation
    step, end = 2 * pi / period, 1 / deviation
    while sum(n * log(1 + (b * end) ** 2) for b, n in scales) + log(end * period) < 23:
        end *= 1.2
    nodes = min(int(end / step) + 1, 4_000_000)
    result = np.full(len(x), 0.5)
    for start in range(0, nodes, _EVERY // max(len(x), 1) + 1):
        t = (np.arange(start, min(start + _EVERY // max(len(x), 1) + 1, nodes)) + 0.5) * step
        logs = -sum(n * np.log1p((b * t) ** 2) for b, n in scales)
        result += np.sin(np.outer(x, t)) @ (np.exp(logs) / t) * step / pi
    return np.asarray(result)


@dataclass(frozen=True)
class Window:
    """A law on {low, low + 1, …}, but for a mass of less than 1e-14 outside."""

    low: int
    pmf: Array


def binomial(n: int, p: float) -> Window:
    """Within ten deviations and thirty counts."""
    reach = 10 * sqrt(n * p * (1 - p)) + 30
    low, high = max(int(n * p - reach), 0), min(int(n * p + reach) + 1, n)
    return Window(low, np.asarray(stats.binom.pmf(np.arange(low, high + 1), n, p)))


def coin_sum(coins: Sequence[tuple[int, float]]) -> Window:
    """The law of a sum of independent binomial counts."""
    total = Window(0, np.ones(1))
    for count, p in coins:
        one = binomial(count, p)
        total = Window(total.low + one.low, np.convolve(total.pmf, one.pmf))
    return total


def answered_sum(people: Sequence[tuple[int, float]], n: int) -> Window:
    """The count of a random n of the people, of one kind or of two: each kind has its probability to be counted."""
    if len(people) == 1:
        ((_, p),) = people
        return binomial(n, p)
    (first, p), (second, q) = people
    x = np.arange(max(0, n - second), min(n, first) + 1)
    mass = stats.hypergeom.pmf(x, first + second, first, n)
    likely = mass > 1e-13
    pmf = np.zeros(n + 1)
    for count, weight in zip(x[likely].tolist(), mass[likely].tolist(), strict=True):
        one = coin_sum([(count, p), (n - count, q)])
        pmf[one.low : one.low + len(one.pmf)] += weight * one.pmf
    return Window(0, pmf)


def outcomes(n: int, kinds: int) -> Array:
    """All ways to distribute n reports over `kinds` outputs, one in a row."""
    if kinds == 1:
        return np.full((1, 1), n)
    rows = [
        np.column_stack((np.full(len(rest), first), rest))
        for first in range(n + 1)
        for rest in [outcomes(n - first, kinds - 1)]
    ]
    return np.concatenate(rows)
