"""Widen a normal interval whose sum falls on the few points of a lattice.

Under one epsilon the sum of the decoded reports lies on a lattice: its points are one step w apart, the distance of two
outputs. Where half a step shows next to the standard deviation, an interval misses more than it says. A table may have
a fine lattice, and outputs in two clusters far apart: its sum stays near a coarse one, as far as n reports do not
smooth it. Few noisy reports next to many precise ones give a sum with points far apart, which the precise ones smooth
too little. A normal interval of half-length h then covers as many points as happen to lie in it: .36 instead of .5.

The edge of an interval counts to the middle between the last point inside and the first outside (the continuity
correction; Esseen 1945). With u = h/w and the lattice f steps off the truth, the edges count at h + w·S(u - f) and
h + w·S(u + f), with the sawtooth S(x) = 1/2 - frac(x) = Σ sin(2·pi·m·x)/(pi·m). The other groups smooth it: term m has
their characteristic function at 2·pi·m/w as a factor, which is at most exp(-2·pi^2·m^2·tau^2) for the tau found here.

The phase f depends on the values, which nobody knows. So h becomes the least length at which the two edges suffice for
the worst phase,

    h + w/2·(S(u - f) + S(u + f)) - z·w^2/(8·sigma)·(S(u - f) - S(u + f))^2 ≥ z·sigma    for all f,

where the square is what an interval off the middle of a normal law loses. Without smoothing this rounds 2·h up to whole
steps: at worst it adds half a step, on average a quarter. Where n values in [0, 1] cannot move the lattice by a whole
step, n < w, f is restricted to what they can do.

Under one epsilon nothing else smooths: 2·h is rounded up to whole steps, and a little more for what is off the middle.

Several lattices are corrected from the coarsest to the finest, each as if its phase were the worst. A finer group is a
smoother of a coarser lattice only as far as it is spread: where it has few lies, a share of the sum is not moved at
all, and every term counts; where it has many, the terms at which its own lattice resonates are corrected with its own.

Known: n, the channels, and for the population the reports, because the spread of the values smooths as well.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import pi

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.finite_channel import FiniteChannel
from hush_aggregator.estimate.intervals.chernoff import Sizes

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Seen = Sequence[Array]
"""Counts of the outputs used, for each channel: shape (questions, outputs)."""

_POINTS = 256
"""Of a table: one step of the lattice."""
_TERMS = np.arange(1, _POINTS // 2 + 1)
_TAUS = np.array([0.0, 0.02, 0.04, 0.07, 0.1, 0.14, 0.19, 0.25, 0.32, 0.4, 0.5, 0.65])
"""Smoothing in steps; from the last on, nothing is left to correct (2.4e-4 of the first term)."""
_SHARPEST = 1 / 200
_MARGIN = 3  # points: 2.5 deviations of the sharpest smoothing
_LOOKED_AT = np.arange(1, 9)  # terms; the others are at most 1/9 of the first
_SPREAD = 2.5  # variance in steps from which a finer lattice has many points
_NEGLIGIBLE = 5e-3  # of the half-length: a step that costs at most a 400th of it
_FLATTEST, _OCTAVE = 2.0**-7, 4  # of the loss off the middle, which is rounded up to quarters of a doubling
_RADII = 32  # of the phases, in a step: few tables for many questions
_DRIFTS = 2.0  # deviations by which people who choose their epsilon by their value move the phase
_HALF_OF_ALL = 0.25  # a radius of all phases
_KEYS = 2048
_LEAST = 1e-300
_FAR = -700.0  # the exponential of less would underflow, and is negligible next to 1


@dataclass(frozen=True)
class Lattice:
    """The lattice of the sum of the reports under one epsilon."""

    step: float  # distance of two points
    least: Array  # smoothing by all other reports in steps, at least; for each question, or for all
    most: Array  # the same, at most
    phases: NDArray[np.int64]  # first and last of f in points of a table; a row for each question, or one for all


@dataclass(frozen=True)
class _Plain:
    """The same by noise alone: the terms looked at, the logarithms of their factors, and what n values can move."""

    place: int
    step: float
    terms: NDArray[np.intp]
    damped: Array
    variance: float
    center: float
    radius: float | None


def lattices(
    sizes: Sizes, shortest: float, *, seen: "Callable[[], Seen | Spread] | None" = None, answered: float = 1.0
) -> list[Lattice]:
    """The lattices of the sum of all reports that show, the coarsest first.

    Args:
        sizes: channels and their reports; several channels are those of evenly spaced outputs.
        shortest: the least half-length that is to be widened.
        seen: gives the reports or their `Spread`, where the spread of the values counts.
        answered: the share of the values that does not count; 1 for the reporters and 0 for the population.
    """
    plain = [one for one in _of_noise(tuple(sizes)) if one.step > _NEGLIGIBLE * shortest]
    if not plain or seen is None or answered == 1 or len(sizes) == 1:
        return [_lattice(one, one.damped[None], np.array([one.variance]), np.zeros(1)) for one in plain]
    spread, share = seen(), 1 - answered
    if not isinstance(spread, Spread):
        spread = Spread(sizes, spread)
    drift = np.zeros(1)
    if any(one.radius is not None and one.radius < _HALF_OF_ALL for one in plain):
        drift = share * spread.drift
    return [
        _lattice(one, one.damped + share * more, one.variance + share * variance, drift)
        for one in plain
        for more, variance in [spread.of(one)]
    ]


class Spread:
    """What the spread of the values adds to the smoothing by noise: computed once for all intervals of some reports."""

    def __init__(self, sizes: Sizes, reports: Seen) -> None:
        self._sizes, self._reports = sizes, reports
        self._known: dict[int, tuple[Array, Array]] = {}

    def of(self, one: "_Plain") -> tuple[Array, Array]:
        """By how much the logarithms of the factors fall, and by how much the variance grows, for each question."""
        if one.place not in self._known:
            damped, variance = np.zeros((1, len(one.terms))), np.zeros(1)
            for other, (of, count) in enumerate(self._sizes):
                if other != one.place:
                    logs, turned = _resonance(of, one.step)
                    modulus = np.abs(self._reports[other] @ turned[:, one.terms]) / count
                    more = count * (np.log(np.clip(modulus, _LEAST, 1)) - logs[one.terms])
                    damped = damped + np.minimum(more, 0)
                    variance = variance + np.maximum(self._squares[other] - count * of.variances[1], 0)
            self._known[one.place] = damped, variance
        return self._known[one.place]

    @cached_property
    def _squares(self) -> list[Array]:
        """For each channel: of each question the sum of squares around its mean."""
        found = []
        for (channel, _), counts in zip(self._sizes, self._reports, strict=True):
            n = counts.sum(axis=1)
            found.append(np.asarray(counts @ channel.a**2 - (counts @ channel.a) ** 2 / n))
        return found

    @cached_property
    def drift(self) -> Array:
        """How far, in people, the means of the groups may move the sum, if the value decides who has which epsilon."""
        n = np.array([[size] for _, size in self._sizes], dtype=float)
        means = np.stack(
            [
                np.clip(counts @ channel.a / size, 0, 1)
                for (channel, size), counts in zip(self._sizes, self._reports, strict=True)
            ]
        )
        between = (n * (means - (n * means).sum(axis=0) / n.sum()) ** 2).sum(axis=0)
        return np.asarray(_DRIFTS * np.sqrt(between))


@lru_cache(maxsize=1024)
def _of_noise(sizes: Sizes) -> list[_Plain]:
    """The lattices that noise alone does not smooth for sure, the coarsest first."""
    many = [channel.step for channel, size in sizes if size * channel.variances[0] >= _SPREAD * channel.step**2]
    coarsest = max(channel.step for channel, _ in sizes)
    found = []
    for place, channel, size, step in _steps(sizes):
        own = [m == 1 or not any(round(m * one / step) for one in many if one < step) for m in _LOOKED_AT]
        terms = np.flatnonzero(own)
        near = step != channel.step
        smoothing = [(of, count) for other, (of, count) in enumerate(sizes) if other != place or near]
        damped = sum((count * _resonance(of, step)[0][terms] for of, count in smoothing), np.zeros(len(terms)))
        if _smoothing(damped, terms).min() < _TAUS[-1]:
            variance = sum(count * of.variances[1] for of, count in smoothing)
            center = (size * float(channel.a[0]) - size / 2) / step
            radius = size / 2 / step if step == coarsest else None
            found.append(_Plain(place, step, terms, damped, variance, center, radius))
    return sorted(found, key=lambda one: -one.step)


def _steps(sizes: Sizes) -> Iterator[tuple[int, FiniteChannel, int, float]]:
    """Each lattice that the reports of one channel lie on, or stay near."""
    for place, (channel, size) in enumerate(sizes):
        for step in (channel.step, *channel.near_steps):
            yield place, channel, size, step


def _smoothing(damped: Array, terms: NDArray[np.intp]) -> Array:
    """The largest tau with every factor below that of a normal law."""
    return np.asarray(np.sqrt(np.maximum((-damped / (2 * pi**2 * _LOOKED_AT[terms] ** 2)).min(axis=-1), 0)))


def _lattice(one: _Plain, damped: Array, variance: Array, drift: Array) -> Lattice:
    least = _smoothing(damped, one.terms)
    phases = np.array([[0, _POINTS // 2]])
    if one.radius is not None:
        phases = _phases(one.center, one.radius + drift / one.step)
    return Lattice(one.step, least, np.maximum(np.sqrt(variance) / one.step, least), phases)


@lru_cache(maxsize=1024)
def _resonance(of: FiniteChannel, step: float) -> tuple[Array, Complex]:
    """Of a report at the rates of a lattice: the logarithm of `modulus`, and e^(i·l·a) of every output."""
    rates = np.asarray(2 * pi / step * _LOOKED_AT, dtype=float)
    return np.log(of.modulus(rates)), np.exp(1j * np.outer(of.a, rates))


def _phases(center: float, radius: Array) -> NDArray[np.int64]:
    """From center - radius to center + radius, rounded outwards; half a step is all, for f and -f are alike."""
    radius = np.ceil(radius * _RADII) / _RADII
    low, high = np.floor((center % 1 - radius) * _POINTS), np.ceil((center % 1 + radius) * _POINTS)
    every = high - low >= _POINTS // 2
    return np.stack((np.where(every, 0, low), np.where(every, _POINTS // 2, high)), axis=1).astype(np.int64)


def widened(halves: Array, z: float, found: Sequence[Lattice]) -> Array:
    """The half-lengths at which normal intervals for a sum cover as they say, at the worst phase of each lattice."""
    ends = halves
    for one in found:
        first = np.broadcast_to(np.searchsorted(_TAUS, one.least, side="right") - 1, halves.shape)
        last = np.broadcast_to(np.minimum(np.searchsorted(_TAUS, one.most), len(_TAUS) - 1), halves.shape)
        losses = np.log2(np.maximum(z**2 * one.step / (4 * halves), _FLATTEST)) * _OCTAVE
        losses = np.ceil(losses).astype(np.int64)
        low, high = np.broadcast_to(one.phases.T, (2, len(halves)))
        longer = ends.copy()
        for kind, rows in _alike(first, last, losses, low, high):
            if kind[0] < len(_TAUS) - 1:
                longer[rows] = one.step * _inverse(_edges(*kind), ends[rows] / one.step)
        ends = np.where(halves < one.step, np.maximum(longer, ends), longer)  # as good as nothing is asked for
    return ends


def _alike(*columns: NDArray[np.int64]) -> Iterator[tuple[tuple[int, ...], NDArray[np.intp]]]:
    """Rows of small integers, and the position of each."""
    if len(columns[0]) == 1:
        yield tuple(int(column[0]) for column in columns), np.array([0])
        return
    keys = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        keys = keys * _KEYS + column + _KEYS // 2
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    for kind, place in enumerate(first.tolist()):
        yield tuple(int(column[place]) for column in columns), np.flatnonzero(which == kind)


@lru_cache(maxsize=len(_TAUS))
def _sawtooth(place: int) -> Array:
    """S at the points of one step, smoothed."""
    tau = max(float(_TAUS[place]), _SHARPEST)
    x = np.arange(_POINTS) / _POINTS
    return np.asarray(
        np.sin(2 * pi * np.outer(x, _TERMS)) @ (np.exp(np.maximum(-2 * (pi * tau * _TERMS) ** 2, _FAR)) / (pi * _TERMS))
    )


def _missing(place: int, loss: int, low: int, high: int) -> Array:
    """By how much u is too long for what it covers, at the worst phase, for each u of one step."""
    if (low, high) == (0, _POINTS // 2):
        return _missing_anywhere(place, loss)
    return _worst(place, loss, low, high)


@lru_cache(maxsize=256)
def _missing_anywhere(place: int, loss: int) -> Array:
    """The same for all phases: a table of no task."""
    return _worst(place, loss, 0, _POINTS // 2)


def _worst(place: int, loss: int, low: int, high: int) -> Array:
    saw, f, u = _sawtooth(place), np.arange(low, high + 1), np.arange(_POINTS)[:, None]
    above, below = saw[(u - f) % _POINTS], saw[(u + f) % _POINTS]
    worst = (2.0 ** (loss / _OCTAVE) * (above - below) ** 2 - above - below).max(axis=1) / 2
    return np.asarray(np.max([np.roll(worst, shift) for shift in range(_MARGIN + 1)], axis=0))


@lru_cache(maxsize=256)
def _edges(first: int, last: int, loss: int, low: int, high: int) -> Array:
    """Where the edge of an interval of length u counts for sure, for u of two steps: never falling."""
    worst = np.max([_missing(place, loss, low, high) for place in range(first, last + 1)], axis=0)
    edges = np.arange(3 * _POINTS) / _POINTS - np.tile(worst, 3)
    return np.asarray(np.minimum.accumulate(edges[::-1])[::-1][: 2 * _POINTS])


def _inverse(edges: Array, lengths: Array) -> Array:
    """The shortest u whose edge is at least each length."""
    whole = np.floor(lengths - edges[0])
    return np.asarray(whole + np.searchsorted(edges, lengths - whole) / _POINTS)
