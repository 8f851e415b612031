"""Confidence sequences, valid at any time: P(the target is ever outside) ≤ alpha; running sums suffice.

**Mixture** (target: the reporters, or the population). Let psi_i(l) bound the log of E e^(l·e_i) for the error e_i of
report i, whatever its value. With D_t the sum of the first t errors, e^(l·D_t - Σ psi_i(l)) is a nonnegative
supermartingale of mean at most 1, and so is its average over fixed l_k. By Ville's inequality the average ever reaches
2/alpha with probability at most alpha/2. On either side the band ends where it does: at the d with Σ_k w_k·exp(l_k·d -
Σ psi_i(l_k)) = 2/alpha, over t. The order of reports does not matter, several epsilons only add their psi, and merged
tallies give the same band. (Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021. The grid of l is geometric: a
constant factor from the fixed-n interval over six orders of magnitude in t.)

Where psi_i bounds the error on both sides, as of symmetric noise, the mean of the two supermartingales for l and -l is
one too: the average of cosh(l_k·d)·exp(-Σ psi_i(l_k)) over k reaches 1/alpha with probability at most alpha, and the
band ends on either side where it does. That is shorter than two sides at alpha/2: at most one of them can be far out.

For the population the error of report i is its noise and x_i - mu, the value of a random person less the mean. In a
range of width R the latter adds at most l^2 R^2/8 to psi_i(l) (Hoeffding 1963), on both sides, and whatever the
epsilon that a device of that value prefers: psi_i is subtracted for the one it took.

**Beta mixture** (target: the population; bits and categories: `quantiles.beta_band`). Of t independent reports K are
ones, each with probability c. The likelihood ratio of the Beta(1/2, 1/2) mixture, B(K + 1/2, t - K + 1/2)/(B(1/2,
1/2)·c^K (1-c)^(t-K)), is a martingale of mean 1 at the true c; the band is all c where it is below 1/alpha (Ville;
Robbins 1970).

Neither covers a sequence of *rounds* of the same devices.
"""

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STEPS = 60
_CLOSE = 1e-9
_LEAST = 1e-300
_FAR = -700.0  # the exponential of less would underflow, and is negligible next to 1


def mixture_deviations(rates: Array, exponents: Array, confidences: Sequence[float]) -> Array:
    """The d where the mixture reaches 2/alpha: the error of the *sum* of all reports stays below it, at all times.

    Newton's method on a convex, increasing function from the right of its root: every iterate is a valid bound.

    Args:
        rates: l_k > 0, a row for each mixture.
        exponents: Σ psi_i(l_k), of the same shape.
        confidences: 1 - alpha of each row.
    """
    targets = [log(2 * rates.shape[1] / max(1 - one, _LEAST)) for one in confidences]
    return _reached(rates, -exponents, np.array(targets), two_sided=False)


def symmetric_mixture_deviation(rates: Array, exponents: Array, confidence: float) -> float:
    """The same where the exponents bound the error on both sides: where the mixture of cosh reaches 1/alpha.

    Args:
        rates: l_k > 0.
        exponents: Σ psi_i(l_k), an upper bound at -l_k too.
        confidence: 1 - alpha.
    """
    target = log(2 * len(rates) / max(1 - confidence, _LEAST))
    return float(_reached(rates[None], -exponents[None], np.array([target]), two_sided=True)[0])


def _reached(rates: Array, offsets: Array, targets: Array, *, two_sided: bool) -> Array:
    """Of each row the d ≥ 0 where log Σ exp(offsets)·(exp(rates·d), or 2·cosh(rates·d)) is its target."""
    d = np.asarray(((targets[:, None] - offsets) / rates).min(axis=1))
    for _ in range(_STEPS):
        # exp(l·d)·(1 + mirrored) is 2·cosh(l·d), and l·(1 - mirrored)/(1 + mirrored) the slope of its logarithm.
        logs, slopes = rates * d[:, None] + offsets, rates
        if two_sided:
            mirrored = np.exp(np.maximum(-2 * rates * d[:, None], _FAR))
            logs, slopes = logs + np.log1p(mirrored), rates * (1 - mirrored) / (1 + mirrored)
        top = logs.max(axis=1)
        weights = np.exp(np.maximum(logs - top[:, None], _FAR))
        total = weights.sum(axis=1)
        step = (top + np.log(total) - targets) * total / (weights * slopes).sum(axis=1)
        d = d - np.maximum(step, 0.0)
        if (step <= _CLOSE * d).all():
            break
    return d
