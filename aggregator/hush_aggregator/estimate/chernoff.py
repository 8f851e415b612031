"""Bounds of the noise of a mean that are uniform in the values: Chernoff's at one n, and its mixture at all n.

P(error ≥ d) ≤ exp(Σ n_c·G_c(l) - l·N·d) for every l > 0, with G the noise exponent of group c: the least d over a fixed
grid of l. Both are known before anyone has reported.
"""

from functools import lru_cache
from math import log, sqrt

import numpy as np

from hush_aggregator.estimate.anytime import RATES, mixture_deviation
from hush_aggregator.estimate.finite import Finite
from hush_aggregator.estimate.guard import underflow

__all__ = ["Sizes", "band", "chernoff"]

Sizes = tuple[tuple[Finite, int], ...]

_GRID = 2.0 ** (np.arange(-24, 33) / 4)


@lru_cache(maxsize=1024)
def chernoff(sizes: Sizes, confidence: float) -> tuple[float, float]:
    """How far the mean error can lie above 0, and below: each bound fails with probability at most alpha/2."""
    n = sum(size for _, size in sizes)
    needed = log(2 / (1 - confidence)) / n
    variance = sum(size * channel.variances[1] for channel, size in sizes) / n
    rates = np.asarray(sqrt(2 * needed / variance) * _GRID)  # around the best for normal errors; large ones for few

    def bound(sign: int) -> float:
        exponents = sum(size / n * channel.noise_exponent(sign * rates) for channel, size in sizes)
        return float(((needed + exponents) / rates).min())

    return bound(1), bound(-1)


def band(sizes: Sizes, confidence: float, *, sampling: bool) -> tuple[float, float]:
    """How far the mean may lie below and above the estimate, at all times at once.

    Args:
        sizes: channels, and their reports so far.
        confidence: that it is never wrong.
        sampling: whether the values are those of a random sample, whose mean is meant.
    """
    n = sum(size for _, size in sizes)
    fastest = min(channel.fastest for channel, _ in sizes)
    rates = fastest * RATES
    exponents = [channel.mixture_exponents(fastest) for channel, _ in sizes]
    values = n * rates**2 / 8 * sampling
    above = sum(size * pair[0] for (_, size), pair in zip(sizes, exponents, strict=True)) + values
    below = sum(size * pair[1] for (_, size), pair in zip(sizes, exponents, strict=True)) + values
    with underflow("the mixture of a band"):
        return mixture_deviation(rates, above, confidence) / n, mixture_deviation(rates, below, confidence) / n
