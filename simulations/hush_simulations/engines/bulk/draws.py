"""Random streams of the bulk engine, multinomials for many trials, and the rounds that it draws."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.tally import Tally

Counts = NDArray[np.int64]


def people_of(entropy: int, cell: int, chunk: int) -> np.random.Generator:
    """Return the random stream of the people of one piece of work.

    A piece is a cell of a sweep (0 if there is no sweep) and a chunk of its devices. Its seed does not depend on
    workers: the same seed gives the same integers with any number of them, and the same version of numpy.
    """
    return _stream(entropy, cell, chunk, 0)


def noise_of(entropy: int, cell: int, chunk: int, round_: int) -> np.random.Generator:
    """Return the stream of the devices' noise in one round, or of their sticky answers (round 0)."""
    return _stream(entropy, cell, chunk, 1 + round_)


def _stream(entropy: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(entropy, spawn_key=key)))


@dataclass(frozen=True, slots=True)
class Truth:
    """The true values of the people who answer in one round."""

    sums: tuple[float, ...]  # of their values for each coordinate; the number of people with each label
    known: tuple[int, ...]  # the number of values in each sum
    people: int  # their number
    moved: int  # devices that move a value into the domain
    groups: "tuple[Truth, ...]" = ()  # the truth of each group

    @property
    def means(self) -> tuple[float | None, ...]:
        """The mean of each coordinate, the share of each label, or one number; None if nobody has a value."""
        return tuple(total / n if n else None for total, n in zip(self.sums, self.known, strict=True))

    def emptied(self) -> "Truth":
        """The same shape for no people."""
        nothing = tuple(one.emptied() for one in self.groups)
        return Truth((0.0,) * len(self.sums), (0,) * len(self.known), 0, 0, nothing)


@dataclass(frozen=True, slots=True)
class SimulatedRounds:
    """The tally and the truth of each round."""

    tallies: tuple[Tally, ...]
    truths: tuple[Truth, ...]

    @property
    def truth(self) -> tuple[float | None, ...]:
        """The means of the last round."""
        return self.truths[-1].means

    @property
    def together(self) -> tuple[float | None, ...]:
        """The means over the answers of all rounds."""
        return _pooled(self.truths).means


def merged(parts: Iterable[SimulatedRounds]) -> SimulatedRounds:
    """Add up the rounds of several groups of devices. The order does not matter: sums are exact, then rounded once."""
    every = list(parts)
    return SimulatedRounds(
        tuple(reduce(Tally.merge, tallies) for tallies in zip(*(part.tallies for part in every), strict=True)),
        tuple(_pooled(truths) for truths in zip(*(part.truths for part in every), strict=True)),
    )


def _pooled(truths: Sequence[Truth]) -> Truth:
    grouped = [one.groups for one in truths if one.groups]
    return Truth(
        tuple(math.fsum(column) for column in zip(*(one.sums for one in truths), strict=True)),
        tuple(sum(column) for column in zip(*(one.known for one in truths), strict=True)),
        sum(one.people for one in truths),
        sum(one.moved for one in truths),
        tuple(_pooled(of_one) for of_one in zip(*grouped, strict=True)),
    )


def scatter(counts: Counts, weights: NDArray[np.float64], rng: np.random.Generator) -> Counts:
    """Draw multinomials of one law: how many of n things fall into each of many cells, for many trials.

    Of the things in a range of cells a binomial number falls into its left half, and so on. Sequential binomials, as in
    numpy, subtract each probability from the remainder, so that the probabilities of the last of a million cells are
    mostly rounding error. Here each is a ratio of two sums of positive numbers, which are added pairwise: at most
    2 + log2(cells) coins choose the cell of a device, each within (4 + log2(cells))·2^-53 of its probability. So the
    law of one device is within 500·2^-53 of the true one for 2^20 cells (total variation), and that of a tally of n
    devices within n times that: 6e-5 for n = 10^9.

    `counts` have shape (trials,), `weights` (cells,): they need not add up to 1. The result has shape (trials, cells).
    """
    return scatter_rows(counts, weights[None], rng)


def scatter_rows(counts: Counts, weights: NDArray[np.float64], rng: np.random.Generator) -> Counts:
    """Draw multinomials as `scatter` does, of several laws in turn: weights of shape (laws, cells).

    There are as many trials of each law. The first trial is of the first law, and after the last one it begins again.
    """
    laws, cells = weights.shape
    sums = [_even(weights)]
    while sums[-1].shape[1] > 1:
        pairs = sums[-1].reshape(laws, -1, 2)
        sums.append(_even(pairs.sum(axis=2)))
    found = counts.reshape(-1, 1)
    for level in reversed(sums[:-1]):
        left = level[:, ::2]
        whole = left + level[:, 1::2]
        shares = np.divide(left, whole, out=np.zeros_like(left), where=whole > 0)
        found = _halves(found[:, : left.shape[1]], np.minimum(shares, 1.0), rng)
    return found[:, :cells]


def _halves(found: Counts, shares: NDArray[np.float64], rng: np.random.Generator) -> Counts:
    """How many of the things in each range fall into its left half and its right one; laws are repeated."""
    halves = np.zeros((*found.shape, 2), dtype=np.int64)
    if 2 * np.count_nonzero(found) < found.size:  # no coin is thrown for a range without things: the draws are the same
        some = np.flatnonzero(found)
        things, pairs = found.reshape(-1)[some], halves.reshape(-1, 2)
        taken = rng.binomial(things, shares.reshape(-1)[some % shares.size])
        pairs[some, 0], pairs[some, 1] = taken, things - taken
    else:
        by_law = halves.reshape(-1, *shares.shape, 2)
        by_law[..., 0] = rng.binomial(found.reshape(-1, *shares.shape), shares)
        np.subtract(found, halves[..., 0], out=halves[..., 1])
    return halves.reshape(len(found), 2 * found.shape[1])


def _even(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pad to an even number of columns, unless there is only one."""
    if weights.shape[1] % 2 == 0 or weights.shape[1] == 1:
        return weights
    return np.concatenate((weights, np.zeros((len(weights), 1))), axis=1)
