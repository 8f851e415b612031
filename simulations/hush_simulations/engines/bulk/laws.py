"""The law of each mechanism, as the bulk engine draws from it: a class for each, and a line in `_LAWS`.

A law is that of `Mechanism.perturb`, with floats in place of certified integers: for simulations, never for devices.
Each probability is the exact one rounded once, and each coin of numpy compares it with a uniform number of 53 bits: a
report of c coins is within 2c·2^-53 of its law (total variation), and a tally of n reports within n times that;
`scatter` adds its own. Each class gives its c.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import Estimate
from hush_aggregator.estimate.mechanisms.laplace import LADDER
from hush_common.errors import OptionError
from hush_common.mechanisms import (
    Channel,
    Laplace,
    Mechanism,
    Multilevel,
    Offers,
    RandomizedResponse,
    SubsetSelection,
    Vector,
)
from hush_common.mechanisms.mechanism import FiniteLaw
from hush_common.mechanisms.subset_selection import WORD_BITS
from hush_simulations.engines.bulk.cells import Cells, Places
from hush_simulations.engines.bulk.draws import Counts, scatter, scatter_rows

Integers = NDArray[np.int64]
M_contra = TypeVar("M_contra", contravariant=True)

_MOST_SETS = 900_000_000  # at once: numpy draws hypergeometric numbers of fewer than 10^9 things
_LARGE_MEAN = float(1 << 31)
_NOT_DRAWN = "rests on more than the sum of the reports, which is all that was drawn"


@dataclass(frozen=True, slots=True)
class CoordinateTruth:
    """The true values of people whose values are drawn together with their reports."""

    sums: NDArray[np.float64]  # of each coordinate, shape (trials, coordinates)
    moved: Counts  # people with a value outside the domain, shape (trials,)


class Law(Generic[M_contra]):
    """How the reports of one mechanism are drawn."""

    is_complete: ClassVar[bool] = True
    """Whether `sums` returns all sums of a tally."""

    def sums(self, mechanism: M_contra, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
        """Draw the sums of a tally, or the first of them if the others have no law; shape (trials, sums).

        `indices` have shape (cells,), of a vector (cells, coordinates); `counts` of devices (trials, cells).
        """
        raise NotImplementedError

    def bodies(self, mechanism: M_contra, indices: Integers, rng: np.random.Generator) -> Integers:
        """Draw a report for each device, shape (devices, width), from the index of each."""
        raise NotImplementedError

    def extreme_body(self, mechanism: M_contra) -> tuple[int, ...]:
        """Return the valid report that moves the estimate up most: of the first category, or of all coordinates."""
        raise NotImplementedError

    def linear_levels(self, mechanism: M_contra) -> int | None:  # noqa: ARG002 - of those that are linear
        """Return G if the law of a report is linear in the index between each of G + 1 levels, else None.

        If it is linear, the index of a cell in `sums` and `independent_sums` may be a mean.
        """
        return None

    def independent_sums(
        self,
        mechanism: M_contra,
        coordinates: Sequence[Cells],  # noqa: ARG002 - of vectors
        people: Counts,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002
    ) -> tuple[Counts, CoordinateTruth]:
        """Draw vectors of independent coordinates for `people`, shape (trials,): the sums, and the truth."""
        raise TypeError(f"{type(mechanism).__name__} is not for vectors")

    def filled_sums(self, n: int, sums: tuple[int, ...]) -> tuple[int, ...]:  # noqa: ARG002 - of incomplete ones
        """Return all sums of a tally of n reports, with a possible value for each that `sums` does not draw."""
        return sums

    def without_filled(self, estimate: Estimate) -> Estimate:
        """Remove from an estimate what depends on sums that were filled; `failures` then names it."""
        return estimate


class _RandomizedResponse(Law[RandomizedResponse]):
    """The number of ones. One coin."""

    def sums(self, mechanism: RandomizedResponse, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
        found: Counts = rng.binomial(counts, self._ones(mechanism)[indices]).sum(axis=1, keepdims=True)
        return found

    def bodies(self, mechanism: RandomizedResponse, indices: Integers, rng: np.random.Generator) -> Integers:
        drawn = rng.random(len(indices))
        no, yes = self._ones(mechanism)  # two comparisons are quicker than an index
        ones: NDArray[np.bool_] = (drawn < no) | ((drawn < yes) & (indices != 0))
        return ones.astype(np.int64)[:, None]

    def extreme_body(self, mechanism: RandomizedResponse) -> tuple[int, ...]:  # noqa: ARG002 - the same for all
        return (1,)

    @staticmethod
    def _ones(mechanism: RandomizedResponse) -> NDArray[np.float64]:
        return np.array([float(p) for p in mechanism.probability_of_one])


_OnGrid = Multilevel | Channel


class _Finite(Law[_OnGrid]):
    """A number or a bit that is rounded to a level; each level has a law over a few outputs.

    The devices at index i divide into those that round down and those that round up (one coin a device), those of a
    level among its outputs (at most two coins and a scatter).
    """

    def sums(self, mechanism: _OnGrid, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
        """How often each output is reported."""
        levels = self.linear_levels(mechanism)
        return _outputs(mechanism, _at_levels(levels, mechanism.steps, indices, counts, rng), rng)

    def bodies(self, mechanism: _OnGrid, indices: Integers, rng: np.random.Generator) -> Integers:
        """The output that each device reports; three coins."""
        law = mechanism.law
        level, rest = np.divmod(indices * (len(law.rows) - 1), mechanism.steps)
        level += rng.integers(0, mechanism.steps, size=len(level)) < rest
        draws = rng.random(len(level))
        if law.even:
            true = draws < _truthful(law)
            return np.where(true, level, rng.integers(0, len(law.rows), size=len(level)))[:, None]
        below = np.cumsum(_rows(mechanism), axis=1)[:, :-1]
        found = np.zeros(len(level), dtype=np.int64)
        for output in range(below.shape[1]):
            found += draws >= below[level, output]
        return found[:, None]

    def extreme_body(self, mechanism: _OnGrid) -> tuple[int, ...]:
        positions = mechanism.law.positions
        return (positions.index(max(positions)),)

    def linear_levels(self, mechanism: _OnGrid) -> int:
        return len(mechanism.law.rows) - 1


@lru_cache(maxsize=32)
def _rows(mechanism: _OnGrid) -> NDArray[np.float64]:
    """The probability of each output at each level, each rounded once."""
    found = np.array([[float(p) for p in row] for row in mechanism.law.rows])
    found.flags.writeable = False  # all trials share it
    return found


def _truthful(law: FiniteLaw) -> float:
    """Of an even law: the probability to report the level itself; otherwise any of the outputs is as likely."""
    return float(law.rows[0][0] - law.rows[0][1])


def _at_levels(levels: int, steps: int, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
    """How many devices round to each level; shape (trials, levels + 1)."""
    level, rest = np.divmod(indices * levels, steps)
    up = rng.binomial(counts, rest / steps)
    stay, level = counts - up, level.astype(np.int64)
    if (np.diff(level) < 0).any():
        order = np.argsort(level, kind="stable")
        level, stay, up = level[order], stay[:, order], up[:, order]
    starts = np.flatnonzero(np.diff(level, prepend=-1))
    found = np.zeros((len(counts), levels + 2), dtype=np.int64)
    found[:, level[starts]] = np.add.reduceat(stay, starts, axis=1)
    found[:, level[starts] + 1] += np.add.reduceat(up, starts, axis=1)
    return found[:, :-1]


def _outputs(mechanism: _OnGrid, at: Counts, rng: np.random.Generator) -> Counts:
    """How often each output is reported by the devices at each level; shape (trials, outputs)."""
    law = mechanism.law
    if law.even:
        true = rng.binomial(at, _truthful(law))
        return true + scatter((at - true).sum(axis=1), np.ones(at.shape[1]), rng)
    each = scatter_rows(at.reshape(-1), _rows(mechanism), rng)
    found: Counts = each.reshape(len(at), len(law.rows), -1).sum(axis=1)
    return found


class _Laplace(Law[Laplace]):
    """The sum of the reports if tallies are drawn; all sums of a tally if devices are.

    The law is not linear in any part of the grid, so that cells are never merged for it.

    The sum of n noises is the difference of two negative binomials, Poisson numbers of means b·G and b·G' with G and G'
    gamma of shape n, b = 1/(e^h - 1) and h = epsilon/m. Above a mean of 2^31 a normal number replaces the Poisson one:
    it has the same mean and variance, and is added to a gamma number about b times as wide, so that the law of the sum
    is within 1/(b·sqrt(n)) of what it was. (There b·n is above 2^30; numpy's own Poisson numbers lose as much.) The
    window, which an honest report meets with probability 4e-18, is left out of the sum.

    No such law is known of Σk² together with Σk, nor of the winsorised sums: the estimate leaves out what needs them.

    A device's noise is floor(b·E) - floor(b·E') with b = 1/h and E, E' exponential, whose integer parts are geometric.
    """

    is_complete = False

    def sums(self, mechanism: Laplace, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
        """Σk alone."""
        n = counts.sum(axis=1)
        mean = 1 / np.expm1(float(1 / mechanism.scale))
        up, down = (mean * rng.standard_gamma(n) for _ in range(2))
        noise = _poisson_difference(up, down, rng)
        values = (counts * np.asarray(indices, dtype=np.int64)).sum(axis=1)  # exact: below 10^9 people at 2^20 each
        total: Counts = (values + noise)[:, None]
        return total

    def bodies(self, mechanism: Laplace, indices: Integers, rng: np.random.Generator) -> Integers:
        scale = float(mechanism.scale)
        noise, down = (rng.standard_exponential(len(indices)) for _ in range(2))
        for part in (noise, down):  # in place: the arrays of a block are few, and stay in the caches of a core
            np.multiply(part, scale, out=part)
            np.floor(part, out=part)
        noise -= down
        reported = noise.astype(np.int64)
        reported += indices
        ends = -mechanism.window, mechanism.steps + mechanism.window
        if len(reported) and (reported.min() < ends[0] or reported.max() > ends[1]):
            np.clip(reported, *ends, out=reported)
        return reported[:, None]

    def extreme_body(self, mechanism: Laplace) -> tuple[int, ...]:
        return (mechanism.steps + mechanism.window,)

    def filled_sums(self, n: int, sums: tuple[int, ...]) -> tuple[int, ...]:
        (total,) = sums
        return (total, -(-(total**2) // max(n, 1)), *((total, 0) * len(LADDER)))

    def without_filled(self, estimate: Estimate) -> Estimate:
        """Without the intervals that need a sample variance, the monitor and the winsorised mean."""
        part = estimate.single
        without = {target for target, method in part.methods.items() if "student" in method}
        intervals, methods, stderr = part.intervals, part.methods, part.stderr
        if without:
            intervals = {target: one for target, one in intervals.items() if target not in without}
            methods = {target: one for target, one in methods.items() if target not in without}
            stderr = {target: one for target, one in stderr.items() if target not in without}
        missing = dict.fromkeys((*sorted(without), "monitor", "winsorised"), _NOT_DRAWN)
        failures = {**part.failures, **missing}
        part = replace(part, intervals=intervals, methods=methods, stderr=stderr, failures=failures)
        return replace(estimate, parts=(part,), monitor=None, winsorised=None)


def _poisson_difference(up: NDArray[np.float64], down: NDArray[np.float64], rng: np.random.Generator) -> Integers:
    """The difference of two Poisson numbers of these means."""
    large = np.maximum(up, down) > _LARGE_MEAN
    wide = np.rint(up - down + np.sqrt(up + down) * rng.standard_normal(len(up)))
    few = [np.where(large, 0.0, mean) for mean in (up, down)]
    narrow = rng.poisson(few[0]) - rng.poisson(few[1])
    return np.where(large, wide, narrow).astype(np.int64)


class _SubsetSelection(Law[SubsetSelection]):
    """How often each category is named.

    P(S | x) is T/Z if x is in S, else L/Z: the same as, with probability L·C(k, w)/Z, any set of w categories, and else
    x with any w - 1 of the others. So only the truth of those who report it matters, and `count_members` counts both
    kinds. A report goes through a coin, at most k more, and two hypergeometric numbers in which it is one of the drawn.
    """

    def sums(self, mechanism: SubsetSelection, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
        truths = np.asarray(indices, dtype=np.int64)
        by_truth = np.array([np.bincount(truths, row, minlength=mechanism.categories) for row in counts])
        people = by_truth.astype(np.int64)
        free = rng.binomial(people, self._any(mechanism))
        return count_members(free.sum(axis=1), people - free, mechanism.size, rng)

    def bodies(self, mechanism: SubsetSelection, indices: Integers, rng: np.random.Generator) -> Integers:
        """A uniform set is that of the smallest of as many uniform numbers; a reported truth gets one below all."""
        devices, places = len(indices), np.arange(len(indices))
        keys = rng.random((devices, mechanism.categories))
        keys[places, indices] -= rng.random(devices) >= self._any(mechanism)
        chosen = np.argpartition(keys, mechanism.size - 1, axis=1)[:, : mechanism.size]
        bits = np.zeros((devices, mechanism.width * WORD_BITS), dtype=np.int64)
        np.put_along_axis(bits, chosen, 1, axis=1)
        return self._words(mechanism, bits)

    def extreme_body(self, mechanism: SubsetSelection) -> tuple[int, ...]:
        bits = np.zeros((1, mechanism.width * WORD_BITS), dtype=np.int64)
        bits[0, : mechanism.size] = 1
        return tuple(self._words(mechanism, bits)[0].tolist())

    @staticmethod
    def _any(mechanism: SubsetSelection) -> float:
        """The probability that a report is any set, whatever the truth is."""
        return float(Fraction(mechanism.lie * comb(mechanism.categories, mechanism.size), mechanism.total))

    @staticmethod
    def _words(mechanism: SubsetSelection, bits: Integers) -> Integers:
        words: Integers = bits.reshape(len(bits), mechanism.width, WORD_BITS) @ (1 << np.arange(WORD_BITS))
        return words


class _Vector(Law[Vector]):
    """For each coordinate how often each level is reported.

    A device draws its coordinates whatever its values are: `count_members` counts how many of those in a cell draw
    each, and given these counts each coordinate is a separate number (`_Finite`). As many coins as coordinates, and a
    few more.

    If the coordinates are independent, the values of those who draw one, and of those who do not, are counted for each
    coordinate separately: given who draws what, nothing else connects them.
    """

    def sums(self, mechanism: Vector, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
        drawn, places = self._drawing(mechanism, counts, rng), range(mechanism.coordinates)
        return np.concatenate(
            [_FINITE.sums(mechanism.part, indices[:, c], drawn[:, :, c], rng) for c in places], axis=1
        )

    def bodies(self, mechanism: Vector, indices: Integers, rng: np.random.Generator) -> Integers:
        keys = rng.random((len(indices), mechanism.coordinates))
        drawn = np.sort(np.argsort(keys, axis=1)[:, : mechanism.sampled], axis=1)
        values = np.take_along_axis(indices, drawn, axis=1)
        levels = _FINITE.bodies(mechanism.part, values.reshape(-1), rng).reshape(drawn.shape)
        found: Integers = np.stack((drawn, levels), axis=2).reshape(len(indices), -1)
        return found

    def extreme_body(self, mechanism: Vector) -> tuple[int, ...]:
        return tuple(number for c in range(mechanism.sampled) for number in (c, mechanism.levels))

    def linear_levels(self, mechanism: Vector) -> int:
        return mechanism.levels

    def independent_sums(
        self, mechanism: Vector, coordinates: Sequence[Cells], people: Counts, rng: np.random.Generator
    ) -> tuple[Counts, CoordinateTruth]:
        drawn = self._drawing(mechanism, people, rng)
        sums, values, moved = [], [], np.zeros_like(people)
        for place, cells in enumerate(coordinates):
            asking, asked = cells.drawn(drawn[:, place], rng)
            resting, others = cells.drawn(people - drawn[:, place], rng)
            sums.append(_FINITE.sums(mechanism.part, asking.indices, asked, rng))
            values.append((asked * asking.values).sum(axis=1) + (others * resting.values).sum(axis=1))
            moved = _either(moved, asked @ asking.moved + others @ resting.moved, people, rng)
        return np.concatenate(sums, axis=1), CoordinateTruth(np.stack(values, axis=1), moved)

    @staticmethod
    def _drawing(mechanism: Vector, counts: Counts, rng: np.random.Generator) -> Counts:
        """How many devices draw each coordinate; shape of `counts`, and one more axis for the coordinates."""
        free = counts.reshape(-1)
        none = np.zeros((len(free), mechanism.coordinates), dtype=np.int64)
        return count_members(free, none, mechanism.sampled, rng).reshape(*counts.shape, mechanism.coordinates)


def _either(some: Counts, others: Counts, people: Counts, rng: np.random.Generator) -> Counts:
    """How many people are in one of two groups that are independent of each other."""
    both = np.minimum(some, others)
    random = both > 0
    both[random] = rng.hypergeometric(some[random], (people - some)[random], others[random])
    return some + others - both


def count_members(free: Counts, bound: Counts, size: int, rng: np.random.Generator) -> Counts:
    """Draw how often each of some things is in a random set, without drawing the sets: exact.

    Go through the things in order. A set with u more members among r remaining things contains the next one with
    probability u/r, whatever it contains already: so a binomial number of the sets with u more members does, and only
    the number of sets for each u has to be stored.

    A set that contains a given thing (its truth) and is otherwise uniform has one member less to choose, from one thing
    less, until its truth is passed. Until then sets with different truths are exchangeable: at thing c, those with this
    truth are a random choice among all whose truth is not passed, a multivariate hypergeometric number for each u. They
    contain c, and continue as others do.

    Args:
        free: uniform sets of `size` things, shape (trials,).
        bound: sets that contain a given thing and are otherwise uniform, shape (trials, things).
        size: members of each set, 1 to the number of things.
        rng: the randomness.

    Returns:
        Shape (trials, things).
    """
    if bound.sum(axis=1).max(initial=0) > _MOST_SETS:
        some = bound // 2
        return count_members(free, some, size, rng) + count_members(np.zeros_like(free), bound - some, size, rng)
    trials, things = bound.shape
    found = np.zeros((trials, things), dtype=np.int64)
    after = np.zeros((trials, size + 1), dtype=np.int64)  # by members to come; their truth is passed, or they have none
    before = np.zeros((trials, size + 1), dtype=np.int64)
    after[:, size], before[:, size - 1] = free, bound.sum(axis=1)
    to_come = np.arange(size + 1)
    for thing in range(things):
        left = things - thing
        here = _of_this_truth(before, bound[:, thing], rng)
        before -= here
        moved = rng.binomial(after, np.minimum(to_come / left, 1.0))
        early = rng.binomial(before, np.minimum(to_come / max(left - 1, 1), 1.0))
        found[:, thing] = bound[:, thing] + moved.sum(axis=1) + early.sum(axis=1)
        after, before = _onward(after, moved) + here, _onward(before, early)
    return found


def _of_this_truth(before: Counts, wanted: Counts, rng: np.random.Generator) -> Counts:
    """Of the sets whose truth is yet to come, by members to come, those that have this one; shape as `before`."""
    drawn = np.zeros_like(before)
    if before.shape[1] <= 2 or not wanted.any():  # noqa: PLR2004 - sets of one thing: they are all alike
        drawn[:, 0] = wanted
        return drawn
    if len(wanted) <= before.shape[1]:
        for trial in np.nonzero(wanted)[0]:
            drawn[trial] = rng.multivariate_hypergeometric(before[trial], int(wanted[trial]), method="marginals")
        return drawn
    rest, wanted = before.sum(axis=1), wanted.copy()
    for to_come in range(before.shape[1]):  # the same for all trials at once
        here = before[:, to_come]
        drawn[:, to_come] = rng.hypergeometric(here, rest - here, wanted)
        rest, wanted = rest - here, wanted - drawn[:, to_come]
    return drawn


def _onward(sets: Counts, containing: Counts) -> Counts:
    """The sets after some of them got a member."""
    onward = sets - containing
    onward[:, :-1] += containing[:, 1:]
    return onward


AnyLaw = Law[Any]  # of the mechanism that it is looked up for
_FINITE = _Finite()

_LAWS: dict[type[Mechanism], AnyLaw] = {
    Laplace: _Laplace(),
    Multilevel: _FINITE,
    Channel: _FINITE,
    RandomizedResponse: _RandomizedResponse(),
    SubsetSelection: _SubsetSelection(),
    Vector: _Vector(),
}


def law_of(mechanism: Mechanism) -> AnyLaw:
    """Return how reports of a mechanism are drawn in bulk; raise OptionError if no law is known."""
    found = _LAWS.get(type(mechanism))
    if found is None:
        raise OptionError("engine", f"no bulk law of {mechanism.name!r} is known; choose mqtt or memory")
    return found


def extreme_body(randomizer: Mechanism | Offers) -> tuple[int, ...]:
    """Return the valid report that moves the estimate up most; of several epsilons under the largest."""
    if isinstance(randomizer, Offers):
        last = len(randomizer.parts) - 1
        return (last, *extreme_body(randomizer.parts[last]))
    return law_of(randomizer).extreme_body(randomizer)
