"""Bands that may be watched: P(the target is outside at *any* time) ≤ alpha, from running sums only.

**Mixture** (target: the reporters). Let psi_i(l) bound the log of E e^(l·e_i) for the error e_i of report i, whatever
its value. With D_t the sum of the first t errors, e^(l·D_t - Σ psi_i(l)) is a nonnegative supermartingale of mean at
most 1, and so is its average over fixed l_k. By Ville's inequality the average ever reaches 2/alpha with probability
at most alpha/2. On either side the band ends where it does: at the d with Σ_k w_k·exp(l_k·d - Σ psi_i(l_k)) =
2/alpha, over t. The order of reports does not matter, several epsilons only add their psi, and merged tallies give
the same band. (Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021. The grid of l is geometric: a constant factor
from the fixed-n interval over six orders of magnitude in t.)

**Beta mixture** (target: the population; bits and categories: `binomial.beta_band`). Of t independent reports K are
ones, each with probability c. The likelihood ratio of the Beta(1/2, 1/2) mixture, B(K + 1/2, t - K + 1/2)/(B(1/2,
1/2)·c^K (1-c)^(t-K)), is a martingale of mean 1 at the true c; the band is all c where it is below 1/alpha (Ville;
Robbins 1970).

Neither covers a sequence of *rounds* of the same devices.
"""

from math import log

import numpy as np
from numpy.typing import NDArray

__all__ = ["RATES", "mixture_deviation"]

Array = NDArray[np.float64]

RATES: Array = 2.0 ** (-np.arange(25) / 2)
"""The grid of l, relative to the largest."""

_STEPS = 60
_LEAST = 1e-300


def mixture_deviation(rates: Array, exponents: Array, confidence: float) -> float:
    """The d where the mixture reaches 2/alpha: the error of the *sum* of all reports stays below it, at all times.

    Newton's method on a convex, increasing function from the right of its root: every iterate is a valid bound.

    Args:
        rates: l_k > 0.
        exponents: Σ psi_i(l_k).
        confidence: 1 - alpha.
    """
    target = log(2 * len(rates) / max(1 - confidence, _LEAST))
    d = float(((target + exponents) / rates).min())
    for _ in range(_STEPS):
        logs = rates * d - exponents
        top = float(logs.max())
        weights = np.exp(logs - top)
        total = float(weights.sum())
        step = (top + log(total) - target) / (float(weights @ rates) / total)
        d -= max(step, 0.0)
        if step <= 1e-9 * d:
            break
    return d
