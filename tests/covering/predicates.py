"""For many runs at once: whether the interval of a method holds a truth.

Each is the definition of the method, written again for arrays; the grid holds them against `estimate` (`asked.check`).
A method that is not here is asked of `estimate` itself, run by run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise
from math import log

import numpy as np
from covering.asked import holding
from covering.cells import Array
from numpy.typing import NDArray
from scipy import stats
from single_intervals import FiniteChannel, chernoff

from hush_aggregator.estimate.intervals.chernoff import chernoff_rates
from hush_aggregator.estimate.intervals.lattice import lattices, widened

__all__ = ["Group", "Runs", "predicate", "student_halves"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Group:
    """Counts of each output that occurs, one run in a row, of one channel."""

    channel: FiniteChannel
    counts: Array

    @cached_property
    def n(self) -> int:
        return int(self.counts[0].sum())

    @cached_property
    def center(self) -> Array:
        return np.asarray(self.counts @ self.channel.a / max(self.n, 1))

    @cached_property
    def squares(self) -> Array:
        """Σ (a - mean)^2."""
        return np.asarray(np.maximum(self.counts @ self.channel.a**2 - self.n * self.center**2, 0))

    @cached_property
    def cubes(self) -> Array:
        """Σ (a - mean)^3."""
        a, center = self.channel.a, self.center
        return np.asarray(
            self.counts @ a**3
            - 3 * center * (self.counts @ a**2)
            + 3 * center**2 * (self.counts @ a)
            - self.n * center**3
        )


@dataclass(frozen=True)
class Runs:
    """All reports, by channel; as many of each channel in each run."""

    groups: tuple[Group, ...]
    whole: bool = False
    """Whether every value is 0 or 1."""

    @classmethod
    def of(cls, channels: Sequence[FiniteChannel], counts: Sequence[Array], *, whole: bool = False) -> "Runs":
        pairs = zip(channels, counts, strict=True)
        return cls(tuple(Group(channel, some) for channel, some in pairs if some[0].sum()), whole)

    @cached_property
    def n(self) -> int:
        return sum(group.n for group in self.groups)

    @cached_property
    def center(self) -> Array:
        return np.asarray(sum(group.n * group.center for group in self.groups) / self.n)

    @cached_property
    def variance(self) -> Array:
        """Of all reports, not below that of the noise."""
        squares = sum(group.squares + group.n * (group.center - self.center) ** 2 for group in self.groups)
        return np.maximum(np.asarray(squares) / max(self.n - 1, 1), self.weighed(lambda of: of.variances[0]))

    def weighed(self, of: Callable[[FiniteChannel], float]) -> float:
        """The mean over reports of something of their channel."""
        return sum(group.n * of(group.channel) for group in self.groups) / self.n

    def without(self, answered: float, doubt: float = 0.0) -> Array:
        """The variance, where that of the values counts but for those who answered.

        As many deviations below the largest noise as `doubt` says are no sign of less.
        """
        most = self.weighed(lambda of: float(of.noise.max()) if self.whole else of.variances[1])
        least = most - (doubt and doubt * np.sqrt(max(self.weighed(fourth_moment) - most**2, 0.0) / self.n))
        return self.variance - answered * np.where(self.variance > least, self.variance - most, 0)


@cache
def fourth_moment(of: FiniteChannel) -> float:
    """Of the error of a report of the noisiest value, on a grid of values."""
    x = np.linspace(0, 1, 6401)
    laws = np.array([np.interp(x, of.nodes, column) for column in of.p.T]).T
    errors = of.a - x[:, None]
    worst = int((laws * errors**2).sum(axis=1).argmax())
    return float(laws[worst] @ errors[worst] ** 4)


Predicate = Callable[[float], Bools]


def predicate(method: str, runs: Runs, confidence: float, answered: float = 0.0) -> Predicate | None:
    """Which runs hold a truth, as a function of it; None if this module does not know the method.

    Args:
        method: as `methods` says.
        runs: all of them.
        confidence: of the interval.
        answered: for those enrolled, the share of them that answered.
    """
    valid: dict[str, Predicate] = {
        "betting": lambda truth: betting_holds(runs, confidence, truth),
        "chernoff": lambda truth: chernoff_holds(runs, confidence, truth),
        "chernoff-betting": lambda truth: both_hold(runs, confidence, truth),
        "clopper-pearson": lambda truth: clopper_holds(runs, confidence, 0, truth),
        "clopper-pearson-hoeffding": lambda truth: clopper_holds(runs, confidence, 1, truth),
    }
    if method in valid:
        return valid[method]
    shares = {"": 0.0, "-capped": 1.0, "-enrolled": answered}
    for suffix, share in shares.items():
        if method == f"student-score{suffix}":
            return partial(score_holds, runs, confidence, share)
        if method == f"student-t{suffix}":
            return partial(student_holds, runs, confidence, share)
    return None


def student_holds(runs: Runs, confidence: float, answered: float, truth: float) -> Bools:
    half = student_halves(runs, confidence, answered)
    return holding(runs.center, runs.center - half, runs.center + half, truth)


def student_halves(runs: Runs, confidence: float, answered: float, *, corrected: bool = True) -> Array:
    """The half-width of each run; not `corrected`, as if the sum of the reports were smooth."""
    t = float(stats.t.isf((1 - confidence) / 2, runs.n - 1))
    half = t * np.sqrt(runs.without(answered) * runs.n)
    if corrected:
        sizes, seen = [(group.channel, group.n) for group in runs.groups], [group.counts for group in runs.groups]
        found = lattices(tuple(sizes), float(half.min()), seen=lambda: seen, answered=answered)
        half = widened(half, t, found)
    return np.asarray(half / runs.n)


def score_holds(runs: Runs, confidence: float, answered: float, truth: float) -> Bools:
    """The means that their distance from the center does not refuse, spanned (`estimate.score`)."""
    n, of, center = runs.n, runs.groups[0].channel, runs.center
    t, sampling = float(stats.t.isf((1 - confidence) / 2, n - 1)), 1 - answered
    skewness = (runs.groups[0].cubes / n) ** 2 / runs.variance**3
    loss = sampling * max(t**4 + 2 * t**2 - 3, 0) * skewness / (18 * n)
    half = t * np.sqrt(np.maximum(runs.without(answered, 2.5) * (1 + loss) ** 2, of.variances[0]) / n)
    low, high, k = center - half, center + half, t**2 / n
    for (x0, y0), (x1, y1) in pairwise(_hull(of, sampling)):
        slope = (y1 - y0) / (x1 - x0)
        square, middle = 1 + k * sampling, center + k * slope / 2
        inside = middle**2 - square * (center**2 - k * (y0 - slope * x0))
        root = np.sqrt(np.maximum(inside, 0))
        first, last = (middle - root) / square, (middle + root) / square
        here = (inside >= 0) & (first <= x1) & (last >= x0)
        low = np.where(here, np.minimum(low, np.maximum(first, x0)), low)
        high = np.where(here, np.maximum(high, np.minimum(last, x1)), high)
    smooth = (high - low) / 2
    longer = widened(smooth * n, t, lattices(((of, n),), float(smooth.min()) * n)) / n - smooth
    return holding(center, low - longer, high + longer, truth)


def _hull(of: FiniteChannel, sampling: float) -> list[tuple[float, float]]:
    """The lower hull of V + sampling·x^2 at the nodes: from each corner the flattest chord leads to the next."""
    x, y = of.nodes, of.noise + sampling * of.nodes**2
    at, corners = 0, [(float(x[0]), float(y[0]))]
    while at < len(x) - 1:
        slopes = (y[at + 1 :] - y[at]) / (x[at + 1 :] - x[at])
        at += len(slopes) - int(np.argmin(slopes[::-1]))
        corners.append((float(x[at]), float(y[at])))
    return corners


def clopper_holds(runs: Runs, confidence: float, apart: int, truth: float) -> Bools:
    """Clopper and Pearson's for the upper of two outputs, at least `apart` reports away from the count."""
    (group,) = runs.groups
    n, of, k = group.n, group.channel, group.counts[:, 1]
    tail = (1 - confidence) / 2
    low = np.where(k > 0, stats.beta.ppf(tail, np.maximum(k, 1), n - k + 1), 0.0)
    high = np.where(k < n, stats.beta.isf(tail, k + 1, np.maximum(n - k, 1)), 1.0)
    low, high = np.minimum(low, (k - apart) / n), np.maximum(high, (k + apart) / n)
    none, all_ = float(of.p[0, 1]), float(of.p[-1, 1])
    return holding(runs.center, (low - none) / (all_ - none), (high - none) / (all_ - none), truth)


def betting_holds(runs: Runs, confidence: float, truth: float) -> Bools:
    low, high = betting_sides(runs, confidence, truth)
    return low & high


def chernoff_holds(runs: Runs, confidence: float, truth: float) -> Bools:
    above, below = chernoff(tuple((group.channel, group.n) for group in runs.groups), confidence)
    return holding(runs.center, runs.center - above, runs.center + below, truth)


def both_hold(runs: Runs, confidence: float, truth: float) -> Bools:
    """Bets on the noise and Chernoff's, averaged."""
    low, high = betting_sides(runs, confidence, truth, noise=True)
    return low & high


def betting_sides(runs: Runs, confidence: float, truth: float, *, noise: bool = False) -> tuple[Bools, Bools]:
    """Which of the two averaged wealths stay below 2/alpha at the truth: the lower end, and the upper one, hold it."""
    sizes = tuple((group.channel, group.n) for group in runs.groups)
    a = np.concatenate([group.channel.a for group in runs.groups])
    counts = np.concatenate([group.counts for group in runs.groups], axis=1)
    least = runs.weighed(lambda of: of.variances[0])
    variances = np.geomspace(
        least, runs.weighed(lambda of: of.variances[1] if noise else of.second_moment), 5 - 2 * noise
    )
    weights = np.full(3, 1 / 6) if noise else variances**0.35 / (variances**0.35).sum()
    needed = log(2 / (1 - confidence))
    bets = np.sqrt(2 * (needed + log(6 if noise else 5)) / (runs.n * variances))
    *_, above, below = chernoff_rates([(sizes, 1 - (1 - confidence) / 2)])[0]

    def chernoffs(sign: int, errors: Array) -> Array:
        """The logarithm of half of Chernoff's bet for each sum of errors; nothing for the population."""
        rate = sign * (above if sign > 0 else below)
        exponent = sum(n * float(of.noise_exponent(np.array([rate]))[0]) for of, n in sizes)
        return log(0.5) + rate * errors - exponent if noise else np.full(len(errors), -np.inf)

    def wealth(side: Array, rows: Array, mu: Array) -> Array:
        """Its logarithm: rows of counts, each at its own candidate."""
        sign = 1 if side is a else -1
        stakes = np.minimum(bets, (0.9 / (mu - side.min()))[:, None])
        gains = np.log1p(stakes[:, :, None] * (side - mu[:, None])[:, None, :])
        logs = np.einsum("rbo,ro->rb", gains, rows) + np.log(weights)
        logs = np.column_stack((logs, chernoffs(sign, sign * (rows @ side - runs.n * mu))))
        top = logs.max(axis=1)
        return np.asarray(top + np.log(np.exp(logs - top[:, None]).sum(axis=1)))

    kept = []
    for side, mu in ((a, truth), (-a, -truth)):
        stakes = np.minimum(bets, 0.9 / (mu - side.min()))
        logs = counts @ np.log1p(np.outer(side - mu, stakes)) + np.log(weights)
        logs = np.column_stack((logs, chernoffs(1 if side is a else -1, counts @ a - runs.n * truth)))
        top = logs.max(axis=1)
        refused = top + np.log(np.exp(logs - top[:, None]).sum(axis=1)) >= needed
        # Beyond the range the estimate takes its inner arm along: the candidate moves with it.
        beyond = np.maximum(runs.center - 1, 0) if side is a else np.maximum(-runs.center, 0)
        outside = np.flatnonzero(refused & (beyond > 0))
        for some in np.array_split(outside, len(outside) // 2000 + 1):
            refused[some] = wealth(side, counts[some], mu + beyond[some]) >= needed
        kept.append(~refused)
    return kept[0], kept[1]
