"""`laplace`: the sum of the reports, where tallies are drawn at once; all of a tally where devices are.

All sums are integers: the law is linear in no stretch of the grid (`levels`), so that cells are never merged for it.

The sum of n noises is the difference of two negative binomials, Poisson numbers of means b·G and b·G' with G and G'
gamma of shape n, b = 1/(e^h - 1) and h = epsilon/m. Above a mean of 2^31 a normal number stands for the Poisson one: it
has the same mean and variance, and is added to a gamma number about b times as wide, so that the law of the sum is
within 1/(b·sqrt(n)) of what it was. (There b·n is above 2^30; numpy's own Poisson numbers lose as much.) The window,
which an honest report meets with probability 4e-18, is left out of the sum.

There is no such law of Σk² beside Σk, nor of the winsorised sums: what rests on them is left out of the estimate.

A device's noise is floor(b·E) - floor(b·E') with b = 1/h and E, E' exponential, whose integer parts are geometric.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import Estimate
from hush_aggregator.estimate.ladder import LADDER
from hush_common.mechanisms import Laplace
from hush_simulations.engines.bulk.cells import Places
from hush_simulations.engines.bulk.laws.whole import levels, of_coordinates
from hush_simulations.engines.bulk.scatter import Counts

__all__ = ["WHOLE", "bodies", "completed", "edge", "known", "levels", "of_coordinates", "sums"]

WHOLE = False

_LARGE = float(1 << 31)
_WITHOUT = "rests on more than the sum of the reports, which is all that was drawn"


def sums(mechanism: Laplace, indices: Places, counts: Counts, rng: np.random.Generator) -> Counts:
    """Σk alone."""
    n = counts.sum(axis=1)
    mean = 1 / np.expm1(float(1 / mechanism.scale))
    up, down = (mean * rng.standard_gamma(n) for _ in range(2))
    noise = _difference(up, down, rng)
    told = (counts * np.asarray(indices, dtype=np.int64)).sum(axis=1)  # exact: below 10^9 people at 2^20 each
    total: Counts = (told + noise)[:, None]
    return total


def _difference(up: NDArray[np.float64], down: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Of two Poisson numbers of these means."""
    large = np.maximum(up, down) > _LARGE
    wide = np.rint(up - down + np.sqrt(up + down) * rng.standard_normal(len(up)))
    few = [np.where(large, 0.0, mean) for mean in (up, down)]
    narrow = rng.poisson(few[0]) - rng.poisson(few[1])
    return np.where(large, wide, narrow).astype(np.int64)


def completed(_: Laplace, n: int, sums: tuple[int, ...]) -> tuple[int, ...]:
    (total,) = sums
    return (total, -(-(total**2) // max(n, 1)), *((total, 0) * len(LADDER)))


def known(estimate: Estimate) -> Estimate:
    """Without the intervals that a sample variance makes, the monitor and the winsorised mean."""
    without = {target for target, method in estimate.methods.items() if "student" in method}
    missing = dict.fromkeys((*sorted(without), "monitor", "winsorised"), _WITHOUT)
    return replace(
        estimate,
        intervals={target: one for target, one in estimate.intervals.items() if target not in without},
        methods={target: one for target, one in estimate.methods.items() if target not in without},
        stderr={target: one for target, one in estimate.stderr.items() if target not in without},
        monitor=None,
        winsorised=None,
        failures={**estimate.failures, **missing},
    )


def edge(mechanism: Laplace) -> tuple[int, ...]:
    return (mechanism.steps + mechanism.window,)


def bodies(mechanism: Laplace, indices: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
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
