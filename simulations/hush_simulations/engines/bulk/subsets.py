"""How often each of k things is named by n sets, each of which is drawn uniformly: exact, without drawing the sets.

Go through the things in order. A set that has u members to come, among r things that are left, names the next one with
probability u/r, whatever it named before: so a binomial number of those with u members to come does, and only how many
sets there are for each u has to be remembered.

A set that contains a given thing (its truth) and is uniform besides has one member less to come, and chooses among one
thing less until its truth is passed. Until then it does not matter which truth it has: sets with different truths are
exchangeable. So when thing c is reached, those whose truth it is are a random choice among all whose truth is yet to
come: a multivariate hypergeometric number of them for each u. They name c, and go on as any other.
"""

import numpy as np

from hush_simulations.engines.bulk.scatter import Counts

__all__ = ["named"]

_MOST = 900_000_000
"""Sets at once: numpy draws hypergeometric numbers of fewer than 10^9 things."""


def named(free: Counts, bound: Counts, size: int, rng: np.random.Generator) -> Counts:
    """How often each thing is named.

    Args:
        free: in each trial, how many sets are any of `size` things; shape (trials,).
        bound: in each trial, how many sets contain a certain thing, and are uniform besides; shape (trials, things).
        size: members of each set, 1 to the number of things.
        rng: the randomness.

    Returns:
        Shape (trials, things).
    """
    if bound.sum(axis=1).max(initial=0) > _MOST:
        some = bound // 2
        return named(free, some, size, rng) + named(np.zeros_like(free), bound - some, size, rng)
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
    if before.shape[1] <= 2 or not wanted.any():  # noqa: PLR2004 - sets of one thing: they differ in nothing
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


def _onward(sets: Counts, naming: Counts) -> Counts:
    """After some of them have named a thing."""
    onward = sets - naming
    onward[:, :-1] += naming[:, 1:]
    return onward
