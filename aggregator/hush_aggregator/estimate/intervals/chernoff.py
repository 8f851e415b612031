"""Bounds on the noise of a mean, uniform in the values: Chernoff's at one n, and its mixture at all n.

P(error ≥ d) ≤ exp(Σ n_c·G_c(l) - l·N·d) for every l > 0, with G the noise exponent of group c: the least d over a fixed
grid of l. Both are known before anyone has reported.
"""

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.finite_channel import RATES, FiniteChannel
from hush_aggregator.estimate.intervals.anytime import mixture_deviations
from hush_aggregator.estimate.numerics.guard import underflow

Sizes = tuple[tuple[FiniteChannel, int], ...]
Rates = tuple[float, float, float, float]
"""How far the mean error can lie above 0 and below; and the rate l that gives each bound."""
Array = NDArray[np.float64]
Places = NDArray[np.intp]

_GRID = 2.0 ** (np.arange(-24, 33) / 4)
_COARSE = np.arange(0, len(_GRID), 8)
_FINER = np.array([-6, -4, -2, 2, 4, 6]), np.array([-1, 1])


def chernoff_rates(asked: Sequence[tuple[Sizes, float]]) -> list[Rates]:
    """How far the mean error can lie above 0 and below, and the rate l that gives each bound.

    Each bound fails with probability at most alpha/2.

    (Σ G + needed)/l has one valley, for G is convex: of the grid every eighth rate is tried, then every second one
    around the best of them, and then its neighbours.
    """
    totals = np.array([sum(size for _, size in sizes) for sizes, _ in asked], dtype=float)
    needed = np.array([log(2 / (1 - one)) for _, one in asked]) / totals
    variances = [sum(size * channel.variances[1] for channel, size in sizes) for sizes, _ in asked]
    scale = np.sqrt(2 * needed * totals / variances)
    shares = _shares([sizes for sizes, _ in asked], totals)

    def bounds(sign: int, places: Places) -> Array:
        rates = scale[:, None] * _GRID[places]  # around the best for normal errors; large ones for few
        total = np.broadcast_to(needed[:, None], rates.shape)
        for channel, share in shares:
            total = total + share * channel.noise_exponent(sign * rates.ravel()).reshape(rates.shape)
        return np.asarray(total / rates)

    def least(sign: int) -> tuple[list[float], list[float]]:
        places = np.broadcast_to(_COARSE, (len(asked), len(_COARSE)))
        found, every = bounds(sign, places), np.arange(len(asked))
        for around in _FINER:
            best = found.argmin(axis=1)
            near = np.clip(places[every, best][:, None] + around, 0, len(_GRID) - 1)
            found = np.concatenate((found[every, best][:, None], bounds(sign, near)), axis=1)
            places = np.concatenate((places[every, best][:, None], near), axis=1)
        best = found.argmin(axis=1)
        return found[every, best].tolist(), (scale * _GRID[places[every, best]]).tolist()

    above = least(1)
    below = above if all(channel.symmetric for channel, _ in shares) else least(-1)
    return list(zip(above[0], below[0], above[1], below[1], strict=True))


def _shares(asked: Sequence[Sizes], totals: Array) -> list[tuple[FiniteChannel, Array]]:
    """Of each channel the share of the reports that it has, in each question: a column."""
    found: dict[FiniteChannel, Array] = {}
    for place, sizes in enumerate(asked):
        for channel, size in sizes:
            found.setdefault(channel, np.zeros((len(asked), 1)))[place] += size / totals[place]
    return list(found.items())


def bands(asked: Sequence[tuple[Sizes, float, bool]]) -> list[tuple[float, float]]:
    """How far the mean may lie below and above the estimate, at all times at once.

    Args:
        asked: channels and their reports so far, the confidence that the band is never wrong, and whether the values
            are those of a random sample, whose mean is meant.
    """
    totals = np.array([sum(size for _, size in sizes) for sizes, _, _ in asked], dtype=float)
    fastest = [min(channel.fastest for channel, _ in sizes) for sizes, _, _ in asked]
    columns: dict[tuple[FiniteChannel, float], Array] = {}
    for place, (sizes, _, _) in enumerate(asked):
        for channel, size in sizes:
            columns.setdefault((channel, fastest[place]), np.zeros((len(asked), 1)))[place] += size
    confidences = [one for _, one, _ in asked]
    rates = np.multiply.outer(fastest, RATES)
    values = (totals * [sampling for _, _, sampling in asked])[:, None] * rates**2 / 8
    exponents = [(channel.mixture_exponents(rate), sizes) for (channel, rate), sizes in columns.items()]

    def ends(side: int) -> list[float]:
        total = values + sum(sizes * pair[side] for pair, sizes in exponents)
        with underflow("the mixture of a band"):
            return [float(one) for one in mixture_deviations(rates, total, confidences) / totals]

    below = ends(0)
    return list(zip(below, below if all(channel.symmetric for channel, _ in columns) else ends(1), strict=True))
