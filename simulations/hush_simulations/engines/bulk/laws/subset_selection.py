"""`subset_selection`: how often each category is named.

P(S | x) is T/Z if x is in S, else L/Z: the same as, with probability L·C(k, w)/Z, any set of w categories, and else x
with any w - 1 of the others. So only the truth of those who speak it matters, and `named` counts both kinds. A report
goes through a coin, at most k more, and two hypergeometric numbers in which it is one of those drawn.
"""

from fractions import Fraction
from math import comb

import numpy as np
from numpy.typing import NDArray

from hush_common.mechanisms import SubsetSelection
from hush_common.mechanisms.subset_selection import WORD_BITS
from hush_simulations.engines.bulk.cells import Places
from hush_simulations.engines.bulk.laws.whole import WHOLE, completed, known, levels, of_coordinates
from hush_simulations.engines.bulk.scatter import Counts
from hush_simulations.engines.bulk.subsets import named

__all__ = ["WHOLE", "bodies", "completed", "edge", "known", "levels", "of_coordinates", "sums"]


def _any(mechanism: SubsetSelection) -> float:
    """The probability that a report is any set, whatever the truth is."""
    return float(Fraction(mechanism.lie * comb(mechanism.categories, mechanism.size), mechanism.total))


def sums(mechanism: SubsetSelection, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
    truths = np.asarray(indices, dtype=np.int64)
    by_truth = np.array([np.bincount(truths, row, minlength=mechanism.categories) for row in counts])
    people = by_truth.astype(np.int64)
    free = rng.binomial(people, _any(mechanism))
    return named(free.sum(axis=1), people - free, mechanism.size, rng)


def edge(mechanism: SubsetSelection) -> tuple[int, ...]:
    bits = np.zeros((1, mechanism.width * WORD_BITS), dtype=np.int64)
    bits[0, : mechanism.size] = 1
    return tuple(_words(mechanism, bits)[0].tolist())


def bodies(mechanism: SubsetSelection, indices: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A uniform set is that of the least of as many uniform numbers; the truth, where it is told, is less than all."""
    devices, places = len(indices), np.arange(len(indices))
    keys = rng.random((devices, mechanism.categories))
    keys[places, indices] -= rng.random(devices) >= _any(mechanism)
    chosen = np.argpartition(keys, mechanism.size - 1, axis=1)[:, : mechanism.size]
    bits = np.zeros((devices, mechanism.width * WORD_BITS), dtype=np.int64)
    np.put_along_axis(bits, chosen, 1, axis=1)
    return _words(mechanism, bits)


def _words(mechanism: SubsetSelection, bits: NDArray[np.int64]) -> NDArray[np.int64]:
    words: NDArray[np.int64] = bits.reshape(len(bits), mechanism.width, WORD_BITS) @ (1 << np.arange(WORD_BITS))
    return words
