"""Finite channels: whatever a bounded mechanism reports, as decoded positions and their probabilities.

A value x in [0, 1] becomes output y with probability P(y | x), linear in x between nodes 0 = x_0 < … < x_L = 1, and
output y has the position a_y with E[a_y | x] = x. `multilevel`, `table`, a bit (L = 1) and one category of a
subset (named or not) are all of this kind. From it come, exactly or as certified bounds:

- the variance of one report V(x) = E[a^2 | x] - x^2, on each cell a concave parabola;
- `noise_exponent`, G(l) = max_x (log E[e^(l·a) | x] - l·x): on a cell the first term is the logarithm of something
  linear, so the whole is concave and its vertex is known;
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from math import gcd, lcm, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.numerics.guard import underflow
from hush_aggregator.estimate.numerics.quantiles import normal_quantile
from hush_common.mechanisms import Mechanism

RATES: NDArray[np.float64] = 2.0 ** (-np.arange(25) / 2)
"""The grid of l, relative to the largest."""


Array = NDArray[np.float64]

_LEAST = 1e-300
_RATES = 2048  # at which a peak of the modulus is looked for
_FASTEST = 4.0  # largest rate of the anytime mixture, over the reach of an error


@dataclass(frozen=True, eq=False)
class FiniteChannel:
    """A finite channel. Compared by identity: `finite` makes one for each mechanism.

    `positions` are the a_y, and `rows` the P(y | x_j), one row for each of L + 1 evenly spaced nodes; all are exact.
    """

    positions: tuple[Fraction, ...]
    rows: tuple[tuple[Fraction, ...], ...]

    @cached_property
    def used(self) -> tuple[int, ...]:
        """Outputs that occur at all, by ascending position."""
        some = [y for y in range(len(self.positions)) if any(row[y] for row in self.rows)]
        return tuple(sorted(some, key=lambda y: self.positions[y]))

    @property
    def of_yes(self) -> tuple[Fraction, Fraction]:
        """Of a reported yes or no: the exact probability of a yes where it is false, and where it is true."""
        return self.rows[0][1], self.rows[-1][1]

    @cached_property
    def scaled(self) -> tuple[tuple[int, ...], int]:
        """The positions as integers over one unit: sums of many are made of these."""
        unit = lcm(*(a.denominator for a in self.positions))
        return tuple(int(a * unit) for a in self.positions), unit

    @cached_property
    def a(self) -> Array:
        return np.array([float(self.positions[y]) for y in self.used])

    @cached_property
    def p(self) -> Array:
        """Probabilities, shape (nodes, outputs used)."""
        return np.array([[float(row[y]) for y in self.used] for row in self.rows])

    @cached_property
    def step(self) -> float:
        """The distance of two points of the lattice on which every sum of reports lies."""
        over, unit = self.scaled
        places = [over[y] for y in self.used]
        return gcd(*(place - places[0] for place in places)) / unit

    @cached_property
    def near_steps(self) -> tuple[float, ...]:
        """The step of a coarser lattice that reports stay near, if there is one: their modulus peaks at its rate.

        A table for a small epsilon reports either of two clusters of outputs, far apart.
        """
        fastest = pi / self.step  # beyond it the modulus repeats
        rates = np.linspace(0, fastest, _RATES)[1:]
        modulus = self.modulus(rates)
        peaks = 1 + np.flatnonzero((modulus[1:-1] > modulus[:-2]) & (modulus[1:-1] >= modulus[2:]))
        return (2 * pi / float(rates[peaks[modulus[peaks].argmax()]]),) if len(peaks) else ()

    @cached_property
    def parted(self) -> Array:
        """The law of a report where half of the people are at either bound."""
        return np.asarray((self.p[0] + self.p[-1]) / 2)

    @cached_property
    def nodes(self) -> Array:
        return np.linspace(0, 1, len(self.rows))

    @cached_property
    def reach(self) -> float:
        """The largest error of one report: max |a_y - x|."""
        return float(max(self.a[-1], 1 - self.a[0]))

    @cached_property
    def noise(self) -> Array:
        """V(x_j) at each node, by squares of differences: at large epsilon it is far below the rounding of E[a^2]."""
        return np.asarray((self.p * (self.a - self.nodes[:, None]) ** 2).sum(axis=1))

    @cached_property
    def variances(self) -> tuple[float, float]:
        """The smallest and the largest V(x)."""
        return float(self.noise.min()), self._noisiest[1]

    @cached_property
    def _noisiest(self) -> tuple[float, float]:
        """The x of the largest V(x), and that. On a cell V is the chord of `noise` plus (x - x_j)(x_(j+1) - x)."""
        x, noise = self.nodes, self.noise
        vertex = np.clip((x[:-1] + x[1:]) / 2 + np.diff(noise) / np.diff(x) / 2, x[:-1], x[1:])
        chord = noise[:-1] + np.diff(noise) / np.diff(x) * (vertex - x[:-1])
        variances = chord + (vertex - x[:-1]) * (x[1:] - vertex)
        most = int(variances.argmax())
        return float(vertex[most]), float(variances[most])

    @cached_property
    def fourth_moment(self) -> float:
        """E[(a - x)^4 | x] at the x of the largest variance."""
        x, _ = self._noisiest
        cell = min(int(x * (len(self.nodes) - 1)), len(self.nodes) - 2)
        low, high = self._mean_at(cell, (self.a - x) ** 4), self._mean_at(cell + 1, (self.a - x) ** 4)
        return low + (high - low) * (x * (len(self.nodes) - 1) - cell)

    def _mean_at(self, node: int, of_output: Array) -> float:
        return float(self.p[node] @ of_output)

    @cached_property
    def second_moment(self) -> float:
        """The largest E[(a - 1/2)^2 | x]: no distribution of values gives a report a larger variance."""
        return float((self.p @ (self.a - 0.5) ** 2).max())

    @cached_property
    def extremes(self) -> tuple[Array, Array]:
        """The smallest and the largest probability of each output used, over all values."""
        return self.p.min(axis=0), self.p.max(axis=0)

    @cached_property
    def extreme_deviations(self) -> tuple[Array, Array]:
        """The standard deviations of one indicator of each output at its `extremes`."""
        least, most = self.extremes
        return np.sqrt(least * (1 - least)), np.sqrt(most * (1 - most))

    def transform(self, rates: Array) -> tuple[Array, Array]:
        """E[e^(l·(a - c)) | x_j], shape (rates, nodes), and l·c, c such that nothing overflows."""
        exponents = np.outer(rates, self.a)
        shift = exponents.max(axis=1)
        with underflow("the transform of a channel"):
            return np.exp(exponents - shift[:, None]) @ self.p.T, shift

    def modulus(self, rates: Array) -> Array:
        """The largest |E[e^(i·l·a) | x]| over all values, for each rate l: one between two nodes is not larger."""
        means = np.exp(1j * np.outer(rates, self.a)) @ self.p.T
        return np.asarray(np.clip(np.abs(means).max(axis=1), _LEAST, 1))

    def noise_exponent(self, rates: Array) -> Array:
        """G(l) for each rate l ≠ 0 of either sign."""
        at_nodes, shift = self.transform(rates)
        x = self.nodes
        slope = np.diff(at_nodes, axis=1) * (len(x) - 1)
        bent = np.abs(slope) > _LEAST  # elsewhere an end of the cell is the top: the left one where l > 0
        vertex = x[:-1] + 1 / rates[:, None] - at_nodes[:, :-1] / np.where(bent, slope, 1.0)
        vertex = np.clip(np.where(bent, vertex, rates[:, None] < 0), x[:-1], x[1:])
        chord = at_nodes[:, :-1] + (vertex - x[:-1]) * slope
        least = np.minimum(at_nodes[:, :-1], at_nodes[:, 1:])  # where digits cancel
        peaks = np.log(np.maximum(chord, least)) - rates[:, None] * vertex
        return np.asarray(peaks.max(axis=1) + shift)

    @cached_property
    def fastest(self) -> float:
        """The largest rate of the anytime mixture."""
        return _FASTEST / self.reach

    @cached_property
    def symmetric(self) -> bool:
        """Whether 1 - a has at 1 - x the law that a has at x: then G(-l) is G(l)."""
        pairs = zip(self.used, reversed(self.used), strict=True)
        mirrored = all(self.positions[y] + self.positions[z] == 1 for y, z in pairs)
        return mirrored and np.array_equal(self.p, self.p[::-1, ::-1])

    @lru_cache(maxsize=16)  # noqa: B019 - a handful of channels live as long as the process
    def mixture_exponents(self, fastest: float) -> tuple[Array, Array]:
        """G at the rates of the anytime mixture, and at their negatives."""
        rates = fastest * RATES
        above = self.noise_exponent(rates)
        return above, above if self.symmetric else self.noise_exponent(-rates)


class _Levels(FiniteChannel):
    """A channel with an even law: at node j output j is the truth, and all others are equal lies.

    With up to 1025 nodes and outputs a table of a million is not made of what two numbers say.
    """

    @cached_property
    def used(self) -> tuple[int, ...]:
        return tuple(range(len(self.positions)))

    @cached_property
    def near_steps(self) -> tuple[float, ...]:
        return ()  # evenly spaced levels

    @cached_property
    def symmetric(self) -> bool:
        return True  # evenly spaced levels

    @cached_property
    def _chances(self) -> tuple[float, float]:
        """Of the truth beyond that of a lie, and of a lie."""
        return float(self.rows[0][0] - self.rows[0][1]), float(self.rows[0][1])

    @cached_property
    def p(self) -> Array:
        _, lie = self._chances
        table = np.full((len(self.nodes), len(self.nodes)), lie)
        np.fill_diagonal(table, float(self.rows[0][0]))
        return table

    @cached_property
    def parted(self) -> Array:
        more, lie = self._chances
        law = np.full(len(self.nodes), lie)
        law[[0, -1]] += more / 2
        return law

    @cached_property
    def noise(self) -> Array:
        more, lie = self._chances
        away = self.a - self.nodes
        total = (self.a**2).sum() - 2 * self.nodes * self.a.sum() + len(self.a) * self.nodes**2
        return np.asarray(lie * total + more * away**2)

    def _mean_at(self, node: int, of_output: Array) -> float:
        more, lie = self._chances
        return float(lie * of_output.sum() + more * of_output[node])

    @cached_property
    def second_moment(self) -> float:
        more, lie = self._chances
        squares = (self.a - 0.5) ** 2
        return float(lie * squares.sum() + more * squares.max())

    @cached_property
    def extremes(self) -> tuple[Array, Array]:
        return np.full(len(self.a), self._chances[1]), np.full(len(self.a), float(self.rows[0][0]))

    def transform(self, rates: Array) -> tuple[Array, Array]:
        more, lie = self._chances
        exponents = np.outer(rates, self.a)
        shift = exponents.max(axis=1)
        with underflow("the transform of a channel"):
            terms = np.exp(exponents - shift[:, None])
            return lie * terms.sum(axis=1)[:, None] + more * terms, shift

    def modulus(self, rates: Array) -> Array:
        """At most what the truth and the lies have together: exact for a value in the middle."""
        more, lie = self._chances
        lies = np.abs(np.exp(1j * np.outer(rates, self.a)).sum(axis=1))
        return np.asarray(np.minimum(more + lie * lies, 1))


@lru_cache(maxsize=256)
def finite(mechanism: Mechanism) -> FiniteChannel:
    """The channel of a bounded mechanism; of categories that of one of them, 0 unnamed and 1 named."""
    law = mechanism.law
    if law is None:
        raise TypeError(f"{mechanism.name} is not a finite channel of one value")
    return (_Levels if law.even else FiniteChannel)(law.positions, law.rows)


KEPT = 0.95
"""The share of samples in which an interval is no longer than planned, however the values are distributed."""

_Z = normal_quantile(2 * KEPT - 1)
_NONE = 1e-30

_Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Values:
    """Distinct values in [0, 1] and the shares of people who have them; compared by identity, as a key of caches."""

    places: _Array
    shares: _Array

    @cached_property
    def mean(self) -> float:
        return float(self.shares @ self.places)

    def moment(self, order: int) -> float:
        """About the mean; the second is the variance."""
        return _moment(self, order)

    def at(self, nodes: _Array) -> _Array:
        """The share of people rounded to each ascending node: up or down, so that the mean of a value is the value."""
        places, shares, products = self._ascending
        ends = np.searchsorted(places, nodes[1:-1], side="right")
        starts = np.concatenate(([0], ends))
        some = starts < np.concatenate((ends, [len(places)]))
        people, sums = np.zeros(len(starts)), np.zeros(len(starts))
        people[some] = np.add.reduceat(shares, starts[some])
        sums[some] = np.add.reduceat(products, starts[some])
        upwards = np.clip((sums - nodes[:-1] * people) / (nodes[1:] - nodes[:-1]), 0.0, people)
        found: _Array = np.append(people - upwards, 0.0) + np.append(0.0, upwards)
        return found

    @cached_property
    def _ascending(self) -> tuple[_Array, _Array, _Array]:
        order = np.argsort(self.places, kind="stable")
        places, shares = self.places[order], self.shares[order]
        return places, shares, shares * places


@lru_cache(maxsize=256)
def _moment(values: Values, order: int) -> float:
    return float(values.shares @ (values.places - values.mean) ** order)


Assumed = Values | float | None
"""Of the values: who has which, or their mean alone, or nothing. What is not known is the worst there is."""


def largest_variance(channel: FiniteChannel) -> float:
    """Of a report of a person drawn from a population, whatever that is."""
    x, people = worst_people(channel, None)
    return float(people @ channel.p @ channel.a**2 - x**2)


@lru_cache(maxsize=256)
def worst_people(channel: FiniteChannel, assumed: Assumed) -> tuple[float, _Array]:
    """The mean of the worst values, the given one if any, and which share of them lies at each node."""
    if isinstance(assumed, Values):
        return assumed.mean, assumed.at(channel.nodes)
    mean = assumed
    squares, x = (channel.p @ channel.a**2).tolist(), channel.nodes.tolist()
    most, best = -1.0, (0, 0, 0.0)
    for i, j in combinations_with_replacement(range(len(x)), 2):
        slope = (squares[j] - squares[i]) / (x[j] - x[i]) if i < j else 0.0
        at = min(max(slope / 2 if mean is None else mean, x[i]), x[j])
        variance = squares[i] + slope * (at - x[i]) - at**2
        if variance > most and (mean is None or at == mean):
            most, best = variance, (i, j, at)
    i, j, at = best
    people = np.zeros(len(x))
    people[i] = 1 - ((at - x[i]) / (x[j] - x[i]) if i < j else 0.0)
    people[j] += 1 - people[i] if i < j else 0.0
    return at, people


def worst_counts(channel: FiniteChannel, people: int, assumed: Assumed, drawn: float = 1.0) -> tuple[float, list[int]]:
    """The mean of the values, and how often each used output came, of those whom chance drew.

    Whose reports. Where the values are known (`Values`), theirs. Else of all distributions of values the one whose
    reports vary most: on two of the levels between which the second moment of a report is linear, at the mean where the
    chord of the second moments lies highest above the square of the mean.

    Which of their reports. Samples differ. The tally is the expected one, given that the sample variance (and of a
    vector the number that drew the coordinate, at its worst along with it) lies at its quantile `KEPT`: with psi = (a -
    mu)^2 - sigma^2 for a report a, its deviation is that of the mean of n psi's, corrected for skewness (Cornish and
    Fisher), and the expected share of an output moves by z·psi·share/sqrt(n·Var psi).
    """
    mu, people_at = worst_people(channel, assumed)
    share = people_at @ channel.p
    squares = (channel.a - mu) ** 2
    psi = squares / float(share @ squares) - 1
    n, missed = people * drawn, 1 - drawn  # psi's mean less the relative excess of those drawn, at its quantile:
    variance = (float(share @ psi**2) + missed) / n
    third = (float(share @ psi**3) - missed * (missed - drawn)) / n**2
    if variance > _NONE:
        z = quantile(third / variance**1.5)
        likely = np.maximum(share * (1 + z * psi / n / sqrt(variance)), 0)
        n *= 1 - z * missed / n / sqrt(variance)
        fair = len(share) == 2 and (likely[0] > likely[1]) != (share[0] > share[1])  # noqa: PLR2004 - a coin
        share = share if fair else likely / likely.sum()  # a coin that chance may make fair varies as one does
    return mu, _rounded(share, max(round(n), 1))


def quantile(skewness: float) -> float:
    """At `KEPT`, of a deviation whose skewness, beyond what the expansion is good for, counts as 1."""
    return _Z + min(max(skewness, -1.0), 1.0) * (_Z**2 - 1) / 6


def _rounded(share: _Array, n: int) -> list[int]:
    """Integers of sum n, by largest remainders."""
    exact = [float(one) * n for one in share]
    counts = [int(one) for one in exact]
    by_rest = sorted(range(len(counts)), key=lambda place: counts[place] - exact[place])
    for turn in range(n - sum(counts)):
        counts[by_rest[turn % len(by_rest)]] += 1
    return counts
