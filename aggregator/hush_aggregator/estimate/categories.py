"""Estimates from subsets of categories: the frequency of each label.

A report names w of k categories, category c with probability p if it is the truth and q if not. So for each category
the reports are those of a bit, and everything of `bits` holds: unbiased frequency, exact intervals for both targets,
and the beta mixture to watch. `intervals` are for one category looked at alone; `joint_intervals` hold for all k at
once, each at confidence 1 - alpha/k (Bonferroni). Frequencies are not clipped and may be negative; their sum is 1
exactly.

`consistent` is the nearest point of the simplex (Euclid): a second view, biased upwards near 0, without error bars.
Never use it for sums of categories.

The exact inversion for the reporters costs O(n log n) a category, so it is made where n·k ≤ 10 000; above, the
reporters get the interval of the population, "clopper-pearson-hoeffding", which is wider and valid for them too
(Hoeffding 1956), if it is at least one report away from the count; and above n = 10 000 the "normal" one.

Under several epsilons: each category is a finite channel with two outputs, pooled as in `bounded`.
"""

from collections.abc import Sequence

import numpy as np

from hush_aggregator.estimate.bits import Coins, coins
from hush_aggregator.estimate.bounded import Group
from hush_aggregator.estimate.bounded import estimate as pooled_estimate
from hush_aggregator.estimate.finite import finite
from hush_aggregator.estimate.honesty import finite_monitors, worst_case_bias, worst_verdict
from hush_aggregator.estimate.result import Estimate
from hush_aggregator.estimate.span import Span
from hush_aggregator.tally import Tally
from hush_common.mechanisms import SubsetSelection

__all__ = ["estimate", "simplex"]

_Part = tuple[SubsetSelection, Tally]


def estimate(parts: Sequence[_Part], labels: Sequence[str], confidence: float) -> Estimate:
    """The frequency of each label, from n ≥ 1 reports under one epsilon or several."""
    parts = [part for part in parts if part[1].n]
    n, k = sum(tally.n for _, tally in parts), len(labels)
    joint_confidence = min(1 - (1 - confidence) / k, 1 - 2**-53)  # the largest float below 1
    found = _shares(parts, k, (confidence, joint_confidence))
    return Estimate(
        n=n,
        methods=found.methods,
        worst_case_bias=worst_case_bias(n, max(finite(mechanism).reach for mechanism, _ in parts)),
        monitor=_monitor(parts),
        categories=[
            {"label": label, "frequency": mean, "stderr": stderr, "intervals": single, "joint_intervals": joint}
            for label, mean, stderr, single, joint in zip(
                labels, found.mean, found.stderr, *found.intervals, strict=True
            )
        ],
        consistent=simplex(found.mean),
    )


def _shares(parts: Sequence[_Part], k: int, confidences: Sequence[float]) -> Coins:
    if len(parts) == 1:
        ((mechanism, tally),) = parts
        return coins(mechanism.support, tally.n, tally.moments, confidences)
    pooled = [[_pooled(parts, place, confidence) for place in range(k)] for confidence in confidences]
    return Coins(
        mean=[one.mean or 0.0 for one in pooled[0]],
        stderr=[one.stderr for one in pooled[0]],
        intervals=[[one.intervals for one in at] for at in pooled],
        methods=pooled[0][0].methods,
    )


def _pooled(parts: Sequence[_Part], place: int, confidence: float) -> Estimate:
    groups = [
        Group(finite(mechanism), (tally.n - tally.moments[place], tally.moments[place])) for mechanism, tally in parts
    ]
    return pooled_estimate(groups, Span(), confidence)


def _monitor(parts: Sequence[_Part]) -> str | None:
    verdicts: list[str] = []
    for mechanism, tally in parts:
        named = np.array(tally.moments)
        verdicts += finite_monitors(finite(mechanism), np.stack((tally.n - named, named), axis=1))
    return worst_verdict(verdicts)


def simplex(frequencies: Sequence[float]) -> list[float]:
    """The nearest frequencies that are not negative and sum to 1: all less one threshold, and no less than 0."""
    f = np.array(frequencies)
    descending = np.sort(f)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(f) + 1)
    threshold = excess[np.nonzero(descending > excess)[0][-1]]
    projected: list[float] = np.maximum(f - threshold, 0).tolist()
    return projected
