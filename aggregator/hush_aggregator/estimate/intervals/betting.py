"""The betting interval: means of bounded reports at every n, whatever the distribution of the values is.

Reports a_1, …, a_n lie in [lo, hi] and have mean mu. A bet l ≥ 0 with l·(mu - lo) ≤ 1 pays 1 + l·(a - mu) ≥ 0, and 1 on
average; so the product over all reports, averaged over bets l_1, …, l_K of fixed weights, is a variable of mean at
most 1, and exceeds 2/alpha with probability at most alpha/2 (Markov). All mu where it does not are kept; the mirror
image gives the upper limit. (Waudby-Smith and Ramdas 2024, with constant bets: then the order of the reports does not
matter, and counts are enough.)

It holds as well for the mean of finitely many people, and where they report under different epsilons: given their
values x_i the noise leaves the product of 1 + l·(x_i - mu), which is at most 1 (inequality of means; no factor is
negative). If a random subset of them reports, as a coordinate of a vector is drawn, its mean over subsets is at most
that of independent draws, which is 1 (Maclaurin's inequality). And nothing is assumed about who chose which epsilon.

The bets are those that were best if the variance of a report were one of K values spread evenly, on the scale of its
logarithm, from the smallest that the noise allows to the largest that the values can add. So the interval adapts to
the reports, which a bound by the largest variance cannot; what K costs is log K in the threshold. No bet stakes more
than `STAKE` of what it can lose. Each factor falls as mu grows, also where the stake is what limits the bet, so that
the mu that are kept form an interval.

For the mean of those who answered there is one more bet, e^(l·Σ(a_i - mu) - Σ n_c·G_c(l)): Chernoff's, whose mean is at
most 1 too, with the rate l that is best for the noise alone (`chernoff`). It has half of the weight. The other half is
shared evenly by bets for 3 variances up to the largest that noise has: where values add more, Chernoff's bet pays. All
of it is a mean of variables of mean at most 1, so it holds at every n and for all values.
"""

from collections.abc import Callable, Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.finite_channel import FiniteChannel
from hush_aggregator.estimate.intervals.chernoff import Rates
from hush_aggregator.estimate.numerics.guard import underflow

_BETS = 5
_BETS_ON_NOISE = 3
_TILT = 0.35  # weights grow as variance^0.35: a wide interval is the one that a shorter one helps most
STAKE = 0.9
"""The most of what it can lose that a bet stakes."""
_CLOSE = 1e-10
_LEAST = 1e-300
_AROUND = np.array([1.5, 1.15, 1.0, 0.92, 0.8])  # of the first guess of how far a limit is

_Array = NDArray[np.float64]
_Bets = tuple[_Array, ...]
"""In rows: the bets, the logarithms of their weights, and what the logarithm of the wealth must not exceed. Of
Chernoff's bet, with its weight: the logarithm of what it pays for a mean error of 0, and its growth with the error."""

Reports = tuple[tuple[FiniteChannel, tuple[int, ...]], ...]
"""Of each channel, how often each of its outputs came."""


def half_as_often(confidence: float) -> float:
    """Of an interval that is wrong half as often; below 1."""
    return min(1 - (1 - confidence) / 2, 1 - 2**-53)


def betting_limits(asked: Sequence[tuple[Reports, float]]) -> list[tuple[float, float]]:
    """All means that no bet refuses, rounded outwards, of samples with at least one report.

    Both limits lie between the least and the largest report.
    """
    samples = [reports for reports, _ in asked]
    return _solved(samples, _bets(samples, [one for _, one in asked]))


def noise_limits(asked: Sequence[tuple[Reports, float, Rates]]) -> list[tuple[float, float]]:
    """All means of those who answered that neither a bet nor Chernoff's bound refuses.

    Args:
        asked: samples, confidences, and `chernoff_rates` of the noise at a confidence that is wrong `half_as_often`.
    """
    samples = [reports for reports, _, _ in asked]
    return _solved(samples, _bets_on_noise(samples, [one for _, one, _ in asked], [rates for _, _, rates in asked]))


def _solved(samples: Sequence[Reports], bets: tuple[_Bets, _Bets]) -> list[tuple[float, float]]:
    """The limits, by the bets for the lower ones and for the upper ones."""
    kept = []
    for reports in samples:
        a = np.concatenate([channel.a for channel, _ in reports])
        seen = np.array([counts[y] for channel, counts in reports for y in channel.used], dtype=float)
        some = seen > 0
        kept.append((a[some], seen[some]))
    shape = len(kept), max(len(a) for a, _ in kept)
    positions, counted = np.empty(shape), np.zeros(shape)
    for row, (a, seen) in enumerate(kept):
        positions[row, : len(a)], positions[row, len(a) :], counted[row, : len(a)] = a, a[-1], seen
    ends = np.array([_ends([channel for channel, _ in reports]) for reports in samples]).T
    low, high = _limits(positions, counted, (ends[0], ends[1]), bets)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _ends(channels: Sequence[FiniteChannel]) -> tuple[float, float]:
    """The least and the largest report that there can be."""
    return min(float(channel.a[0]) for channel in channels), max(float(channel.a[-1]) for channel in channels)


def _bets(samples: Sequence[Reports], confidences: Sequence[float]) -> tuple[_Bets, _Bets]:
    """For the population; the same for both limits."""
    n, least, most = _variances(samples, lambda channel: channel.second_moment)
    variances = least * (most / least) ** np.linspace(0, 1, _BETS)
    weights = variances**_TILT
    needed = _needed(confidences)
    bets = np.sqrt(2 * (needed[:, None] + log(_BETS)) / (n * variances))
    none = np.full(len(needed), -np.inf), np.zeros(len(needed))
    both = bets, np.log(weights / weights.sum(axis=1, keepdims=True)), needed, *none
    return both, both


def _bets_on_noise(
    samples: Sequence[Reports], confidences: Sequence[float], rates: Sequence[Rates]
) -> tuple[_Bets, _Bets]:
    """For those who answered."""
    n, least, most = _variances(samples, lambda channel: channel.variances[1])
    variances = least * (most / least) ** np.linspace(0, 1, _BETS_ON_NOISE)
    needed = _needed(confidences)
    bets = np.sqrt(2 * (needed[:, None] + log(2 * _BETS_ON_NOISE)) / (n * variances))
    weights = np.full(bets.shape, -log(2 * _BETS_ON_NOISE))
    above, below, rate_above, rate_below = (np.array(one) for one in zip(*rates, strict=True))
    at_bound = _needed([half_as_often(one) for one in confidences]) - log(2)  # of its logarithm, with its weight
    totals = n[:, 0]

    def with_rate(rate: _Array, bound: _Array) -> _Bets:
        return bets, weights, needed, at_bound - totals * rate * bound, totals * rate

    return with_rate(rate_above, above), with_rate(rate_below, below)


def _needed(confidences: Sequence[float]) -> _Array:
    return np.array([log(2 / (1 - one)) for one in confidences])


def _variances(samples: Sequence[Reports], largest: Callable[[FiniteChannel], float]) -> tuple[_Array, _Array, _Array]:
    """Columns: the reports of each sample, and the smallest and the largest mean variance of one."""
    sizes = [[(channel, sum(counts)) for channel, counts in reports] for reports in samples]
    n = np.array([[sum(size for _, size in one)] for one in sizes], dtype=float)
    least = np.array([[sum(size * channel.variances[0] for channel, size in one)] for one in sizes]) / n
    most = np.array([[sum(size * largest(channel) for channel, size in one)] for one in sizes]) / n
    return n, least, most


def _limits(a: _Array, seen: _Array, ends: tuple[_Array, _Array], bets: tuple[_Bets, _Bets]) -> tuple[_Array, _Array]:
    """Lower and upper limits of each row; an upper limit is the lower one of the mirrored reports."""
    least = np.concatenate((ends[0], -ends[1]))
    both = tuple(np.concatenate(pair) for pair in zip(*bets, strict=True))
    low, high = _lower(np.concatenate((a, -a)), np.concatenate((seen, seen)), least, both).reshape(2, -1)
    return low, -high


def _lower(a: _Array, seen: _Array, least: _Array, bets: _Bets) -> _Array:
    """The largest mu known to be refused, of each row of reports.

    The wealth falls from mu = `least`, where everything pays, to the largest report, where nothing does. It is looked
    at around a first guess; and then, in each round, in the middle of the bracket and close around the root of the
    chord. How close: the chord errs by the square of the bracket over the scale on which the wealth bends.
    """
    largest = np.where(seen > 0, a, least[:, None]).max(axis=1)
    close = _CLOSE * np.maximum(largest - least, 1.0)
    found, low = least.copy(), least + close
    rows = np.flatnonzero(largest > low)
    a, seen, least, close = a[rows], seen[rows], least[rows], close[rows]
    bets = tuple(one[rows] for one in bets)
    mean, gap = _guess(a, seen, least, bets)
    inside = np.clip(mean[:, None] - gap[:, None] * _AROUND, low[rows, None], largest[rows, None])
    mus = np.concatenate((low[rows, None], inside, largest[rows, None]), axis=1)
    heights = _excess(mus, a, seen, least, bets)
    open_ = heights[:, 0] >= 0
    while True:
        if not open_.all():
            rows, mus, heights, gap = rows[open_], mus[open_], heights[open_], gap[open_]
            a, seen, least, close = a[open_], seen[open_], least[open_], close[open_]
            bets = tuple(one[open_] for one in bets)
        at, every = (heights[:, 1:-1] >= 0).sum(axis=1), np.arange(len(rows))
        left, right, top, bottom = mus[every, at], mus[every, at + 1], heights[every, at], heights[every, at + 1]
        found[rows] = left
        width = right - left
        open_ = width > close
        if not open_.any():
            return found
        root = right + width * bottom / (top - bottom)
        near = np.maximum(np.minimum(width / 16, width**2 / (8 * gap)), close / 4)
        mus = np.array((left, root - near, root + near, (left + right) / 2, right)).T
        mus = np.sort(np.clip(mus, left[:, None], right[:, None]), axis=1)
        inside = _excess(mus[:, 1:-1], a, seen, least, bets)
        heights = np.concatenate((top[:, None], inside, bottom[:, None]), axis=1)


def _guess(a: _Array, seen: _Array, least: _Array, bets: _Bets) -> tuple[_Array, _Array]:
    """The mean of each row, and about how far below it the limit lies: what two terms of log(1 + x) say."""
    stakes, weights, needed, at_none, slope = bets
    n = seen.sum(axis=1)
    mean = (a * seen).sum(axis=1) / n
    variance = ((a - mean[:, None]) ** 2 * seen).sum(axis=1) / n
    stakes = np.minimum(stakes, STAKE / (mean - least)[:, None])
    gaps = np.expm1((needed[:, None] - weights) / n[:, None]) / stakes + stakes * variance[:, None] / 2
    line = np.where(slope > 0, (needed - at_none) / np.maximum(slope, _LEAST), np.inf)
    return mean, np.minimum(gaps.min(axis=1), line)


def _excess(mu: _Array, a: _Array, seen: _Array, least: _Array, bets: _Bets) -> _Array:
    """By how much the logarithm of the wealth exceeds what is needed, at each mu of each row."""
    stakes, weights, needed, at_none, slope = bets
    line = at_none[:, None] + slope[:, None] * (((a * seen).sum(axis=1) / seen.sum(axis=1))[:, None] - mu)
    stakes = np.minimum(stakes[:, None], STAKE / (mu - least[:, None])[..., None])  # rows, mus, bets
    wealth = stakes[..., None] * (a[:, None] - mu[..., None])[:, :, None]
    np.log1p(wealth, out=wealth)
    total = np.einsum("sikm,sm->sik", wealth, seen) + weights[:, None]
    top = np.maximum(total.max(axis=2), line)
    with underflow("the wealth of the other bets"):
        wealth = np.exp(total - top[..., None]).sum(axis=2) + np.exp(line - top)
        return np.asarray(top + np.log(wealth) - needed[:, None])
