"""The score interval: Student's, with the variance that a candidate mean makes certain.

A t-interval believes the sample variance. With few reports of a bounded mechanism it must not: equal reports have
none. But a mean mu is possible only together with some variance, at least

- of a report: h(mu) - mu^2, h the lower convex hull of (x, E[a^2 | x]), for the distribution of values of mean mu that
  varies least;
- of the noise alone: the lower convex hull of (x, V(x)) at mu, for the n values of mean mu that are noisiest least.

So mu is kept if (center - mu)^2 ≤ t^2·max(s^2, that)/n, as Wilson (1927) did for coins. Both functions are linear
between nodes (V is concave there, so that the nodes alone decide), but for the term mu^2: the limits are roots of
quadratics. What is kept may have gaps; the interval spans them.

Where a random n of N people report, the sampling part of the variance counts g = 1 - n/N: h is the hull of V + g·x^2,
less g·mu^2. g = 1 is the population, and g = 0 the noise alone.

**The noise alone.** Given the values x_i, the error of the mean has the variance v/n, v the mean of the V(x_i). It is
at most max V, and E s^2 ≥ v, because s^2 has the spread of the values in it as well. min(s^2, max V) is not an estimate
of v, though: where v is max V it is too small on average, and where reports are skew it is too small just when the mean
is off to one side. So the variance is max V unless s^2 is more than 2.5 deviations below it, the deviation of s^2 where
every report is as noisy as it can be, a number that no report changes. With v = max V this is the interval that knows
the variance, but for one sample in about 160; with a smaller v it is Student's, or longer.

**Skewness.** Where s^2 counts in full (population), s^2 and the mean deviate together: an interval for reports of
skewness gamma is too short by the share (t^4 + 2t^2 - 3)·gamma^2/(18n) (Edgeworth; Hall 1992, section 2.6), and is made
longer by it, gamma being that of the sample. The same expansion has a term of kurtosis, by which it is too short by
the share kappa·(3 - t^2)/(12n). That is left out: with kappa between -2 and reach^2/V - 3, and n·V at least
`enough`·reach^2, it is below 1/48 at every confidence.

**The lattice.** Every sum of reports of one channel lies on a lattice, or stays near one, and at the worst value an
interval loses half a step at each end: both are moved by as much as `lattice` says.

**Assumed and approximate.** The three are terms of one expansion of the law of the mean, to the order 1/n for skewness
and 1/sqrt(n) for the lattice; what follows them is not bounded. The tail of a mean of n reports of skewness up to gamma
differs from the normal one by the factor 1 + O(gamma·z^3/sqrt(n)), and gamma is at most reach/sqrt(V): so `enough`
grows as z^6. docs/coverage.md says how far values, sizes and epsilons were searched for the worst.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import sqrt

from hush_aggregator.estimate.finite_channel import FiniteChannel
from hush_aggregator.estimate.numerics.quantiles import normal_quantile

_ENOUGH = 12.0
_USUAL = 1.96

_Points = tuple[tuple[float, float], ...]


@lru_cache(maxsize=256)
def enough(confidence: float) -> float:
    """From which n·V/reach^2 on a mean of n reports of least variance V is close enough to normal."""
    return _ENOUGH * max(1.0, normal_quantile(confidence) / _USUAL) ** 6


def skewness_loss(t: float, squared_skewness: float) -> float:
    """By what share a t-interval of a mean of this squared skewness, that of a report over n, is too short."""
    return max(t**4 + 2 * t**2 - 3, 0.0) * squared_skewness / 18


def score_of(
    channel: FiniteChannel, n: int, t: float, *, sampling: float
) -> Callable[[float, float], tuple[float, float]]:
    """What gives all means that their distance from the mean of the reports does not refuse.

    It takes that mean, and the sample variance; for the noise alone, an estimate of its variance.

    Args:
        channel: of the reports.
        n: reports, at least 2.
        t: Student's quantile of n - 1 degrees of freedom.
        sampling: by how much the spread of the values counts: 1 for the population, 0 for those who reported.
    """
    k, least = t**2 / n, channel.variances[0]
    square, pieces = 1 + k * sampling, []
    for (x0, y0), (x1, y1) in pairwise(_hull(channel, sampling)):
        slope = (y1 - y0) / (x1 - x0)
        pieces.append((x0, x1, k * slope / 2, k * (y0 - slope * x0)))

    def ends(center: float, variance: float) -> tuple[float, float]:
        half = t * sqrt(max(variance, least) / n)  # some length also where no mean inside is kept
        low, high, squared = center - half, center + half, center**2
        for x0, x1, shift, spread in pieces:
            # (center - mu)^2 ≤ k·(y0 + slope·(mu - x0) - sampling·mu^2)
            middle = center + shift
            inside = middle**2 - square * (squared - spread)
            if inside < 0:
                continue
            root = sqrt(inside)
            first, last = (middle - root) / square, (middle + root) / square
            if first <= x1 and last >= x0:
                low, high = min(low, max(first, x0)), max(high, min(last, x1))
        return low, high

    return ends


@lru_cache(maxsize=256)
def _hull(channel: FiniteChannel, sampling: float) -> _Points:
    spread = channel.noise + sampling * channel.nodes**2
    return _lower_hull([(float(x), float(y)) for x, y in zip(channel.nodes, spread, strict=True)])


def _lower_hull(points: Sequence[tuple[float, float]]) -> _Points:
    """The corners of the largest convex function below points of ascending x (Andrew 1979)."""
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (x1 - x0) * (y - y0) > (y1 - y0) * (x - x0):
                break
            hull.pop()
        hull.append((x, y))
    return tuple(hull)
