"""Yes-or-no questions under several epsilons: Chernoff's bound at the candidate, with Berry and Esseen's factor.

Group c has n_c of N reports; each decodes to a_0 or a_1 = a_0 + w, the upper one with probability q for the value 0
and p for 1. M_0(l) and M_1(l) are the means of e^(l·a) there; between, M is linear. Let S be the sum of all.

For l, k > 0 put h_c = max(log M_0, log M_1 - k), so that M(l | x) ≤ e^(h_c)·(1 + x·(e^k - 1)) for every x in [0, 1],
and at 0 and 1 also M(l | x) ≤ e^(h_c + k·x). Hence, for candidates mu of the mean value,

    P(S ≥ s) ≤ e^(Σ n_c·h_c - l·s)·(e^k)^(N·mu)            people with values 0 and 1
    P(S ≥ s) ≤ e^(Σ n_c·h_c - l·s)·(1 + mu·(e^k - 1))^N    any values (inequality of means), or a random sample

independently of who chose which epsilon (Chernoff 1952; by Maclaurin also for a random subset of finitely many people).
All mu whose right side is at most alpha/2 are refused: the lower limit is the largest of closed forms over a grid of l
and k. The best k are the log M_1/M_0 of the groups. Unlike a bound that is uniform in the values, this one uses that
people at mu = 0 answer as those who do not have the trait.

The factor. Under the law tilted by l, S is again a sum of independent reports, of variance v and third absolute
moments r. Then P(S ≥ s) is E[e^(l·(s - S)); S ≥ s] of that law times the product of the transforms, and that mean is at
most 1, and at most 1/(l·sqrt(2·pi·v)) + 2·0.56·r/v^(3/2) (the density of a normal variable; Berry and Esseen's theorem
for unequal summands, Shevtsova 2010). It does not depend on mu, for v and r are bounded over all values. So the limits
hold at every n and confidence; they are between those of a normal law with known variances and Chernoff's.

The upper limit is the lower one of the mirrored question, 1 - a for 1 - x.
"""

from collections.abc import Sequence
from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.finite_channel import FiniteChannel

_Array = NDArray[np.float64]

_RATES = 56
_ESSEEN = 0.56
_LARGEST = 60.0  # exponents l·w
_PROBES = 33
_BETWEEN = 5


def tilted_limits(
    sizes: Sequence[tuple[FiniteChannel, int]], centers: _Array, confidences: Sequence[float], *, whole: bool
) -> tuple[_Array, _Array]:
    """Lower and upper limits for each confidence and center; not clipped.

    Args:
        sizes: channels with two outputs, and their reports.
        centers: means of the decoded reports of all groups.
        confidences: in (0, 1).
        whole: whether the target is the mean of the values of those who reported, all of them 0 or 1.
    """
    n = np.array([size for _, size in sizes], dtype=float)
    q, p = (np.array([float(channel.rows[x][channel.used[1]]) for channel, _ in sizes]) for x in (0, -1))
    no_q, no_p = (np.array([float(channel.rows[x][channel.used[0]]) for channel, _ in sizes]) for x in (0, -1))
    low = _lower(n, (q, no_q), (p, no_p), centers, confidences, whole=whole)
    high = 1 - _lower(n, (no_p, p), (no_q, q), 1 - centers, confidences, whole=whole)
    return low, high


def _lower(
    n: _Array,
    none: tuple[_Array, _Array],
    all_: tuple[_Array, _Array],
    centers: _Array,
    confidences: Sequence[float],
    *,
    whole: bool,
) -> _Array:
    (q, no_q), (p, no_p) = none, all_
    w = 1 / (p - q)
    needed = [log(2 / (1 - one)) for one in confidences]
    noise = n @ (w**2 * np.minimum(q * no_q, p * no_p))
    widest = n @ (w**2 * np.maximum(q * no_q, p * no_p)) + n.sum() * (not whole) / 4
    first, last = sqrt(2 * min(needed) / widest) / 2, 4 * sqrt(2 * max(needed) / noise)
    largest = _LARGEST / float(w.max())
    rates = np.geomspace(min(first, largest / 2), min(last, largest), _RATES)
    factor, tilt = _factor(n, w, none, all_, rates), rates[:, None] * w
    base = -tilt * q
    log_0, log_1 = base + np.log1p(q * np.expm1(tilt)), base + np.log1p(p * np.expm1(tilt))
    slopes = log_1 - log_0  # shape (rates, groups): each is a k
    if not whole and len(n) > 1:  # between the slopes the best k may lie, too
        slopes = np.concatenate((slopes, np.linspace(slopes.min(axis=1), slopes.max(axis=1), _BETWEEN, axis=1)), axis=1)
    above = np.maximum(log_0[:, None, :], log_1[:, None, :] - slopes[:, :, None]) @ n
    found = []
    for one in needed:
        offset = (above + one + factor[:, None]) / n.sum()
        found.append(_largest(rates, slopes, offset, centers, whole=whole))
    return np.array(found)


def _largest(rates: _Array, slopes: _Array, offset: _Array, centers: _Array, *, whole: bool) -> _Array:
    """The largest refused candidate for each center. For many, only the rates that are best somewhere are tried."""
    rate, slope, less = np.repeat(rates, slopes.shape[1]), slopes.ravel(), offset.ravel()

    def refused(x: _Array, chosen: NDArray[np.intp]) -> _Array:
        y = rate[chosen, None] * x - less[chosen, None]
        if not whole:
            # at y > k the candidate lies beyond 1, where the limit is clipped, and at y < 0 below 0
            y = np.clip(y, -1, slope[chosen, None])
            return np.asarray(np.expm1(y) / np.expm1(slope[chosen, None]))
        return np.asarray(y / slope[chosen, None])

    chosen = np.arange(len(rate))
    if len(centers) > _PROBES:
        probes = np.linspace(centers.min(), centers.max(), _PROBES)
        chosen = np.unique(refused(probes, chosen).argmax(axis=0))
    return np.asarray(refused(centers, chosen).max(axis=0))


def _factor(n: _Array, w: _Array, none: tuple[_Array, _Array], all_: tuple[_Array, _Array], rates: _Array) -> _Array:
    """The logarithm of the factor of this module's docstring at each rate, at most 0."""
    lift = np.expm1(rates[:, None] * w)
    ends = []
    for yes, no in (none, all_):
        share = 1 + yes * lift
        ends.append((yes * (1 + lift) / share, no / share))
    (low, no_low), (high, no_high) = ends
    at_ends = low * no_low, high * no_high
    least = np.minimum(*at_ends)
    most = np.where((low < 1 / 2) & (high > 1 / 2), 1 / 4, np.maximum(*at_ends))
    mass, third = n * w**2, w * (1 - 2 * least)
    variance = (mass * least).sum(axis=1)
    ratio = _largest_ratio(mass * least, mass * most, third)
    return np.asarray(np.minimum(np.log(1 / (rates * np.sqrt(2 * pi * variance)) + 2 * _ESSEEN * ratio), 0))


def _largest_ratio(least: _Array, most: _Array, third: _Array) -> _Array:
    """The largest Σ a·t/(Σ a)^1.5 for a between `least` and `most`.

    It grows with one a only if its t is above 1.5 times the average: at the largest, those of the largest t are at
    `most`, and the others at `least`.
    """
    best = np.zeros(len(least))
    order = np.argsort(-third, axis=1)
    least, most, third = (np.take_along_axis(x, order, axis=1) for x in (least, most, third))
    for count in range(third.shape[1] + 1):
        a = np.concatenate((most[:, :count], least[:, count:]), axis=1)
        best = np.maximum(best, (a * third).sum(axis=1) / a.sum(axis=1) ** 1.5)
    return best
