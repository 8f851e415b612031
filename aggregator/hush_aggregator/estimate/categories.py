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

from hush_aggregator.estimate.bits import coin_estimate
from hush_aggregator.estimate.bounded import Group
from hush_aggregator.estimate.bounded import estimate as pooled_estimate
from hush_aggregator.estimate.finite import finite
from hush_aggregator.estimate.honesty import OK, finite_monitor, worst_case_bias
from hush_aggregator.estimate.result import Estimate
from hush_aggregator.estimate.span import Span
from hush_aggregator.tally import Tally
from hush_common.mechanisms import SubsetSelection

__all__ = ["estimate", "simplex"]


def estimate(parts: Sequence[tuple[SubsetSelection, Tally]], labels: Sequence[str], confidence: float) -> Estimate:
    """The frequency of each label, from n ≥ 1 reports under one epsilon or several."""
    parts = [part for part in parts if part[1].n]
    n, k = sum(tally.n for _, tally in parts), len(labels)
    joint_confidence = min(1 - (1 - confidence) / k, 1 - 2**-53)  # the largest float below 1
    single = [_one(parts, place, confidence, k) for place in range(k)]
    joint = [_one(parts, place, joint_confidence, k) for place in range(k)]
    monitors = [
        finite_monitor(finite(mechanism), (tally.n - named, named), k)
        for mechanism, tally in parts
        for named in tally.moments
    ]
    said = [verdict for verdict in monitors if verdict is not None]
    return Estimate(
        n=n,
        methods=single[0].methods,
        worst_case_bias=worst_case_bias(n, max(finite(mechanism).reach for mechanism, _ in parts)),
        monitor=next((verdict for verdict in said if verdict != OK), OK if said else None),
        categories=[
            {
                "label": label,
                "frequency": one.mean,
                "stderr": one.stderr,
                "intervals": one.intervals,
                "joint_intervals": all_.intervals,
            }
            for label, one, all_ in zip(labels, single, joint, strict=True)
        ],
        consistent=simplex([one.mean or 0.0 for one in single]),
    )


def _one(parts: Sequence[tuple[SubsetSelection, Tally]], place: int, confidence: float, k: int) -> Estimate:
    if len(parts) > 1:
        groups = [
            Group(finite(mechanism), (tally.n - tally.moments[place], tally.moments[place]))
            for mechanism, tally in parts
        ]
        return pooled_estimate(groups, Span(), confidence)
    ((mechanism, tally),) = parts
    return coin_estimate(mechanism.support, tally.n, tally.moments[place], confidence, alike=k)


def simplex(frequencies: Sequence[float]) -> list[float]:
    """The nearest frequencies that are not negative and sum to 1: all less one threshold, and no less than 0."""
    f = np.array(frequencies)
    descending = np.sort(f)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(f) + 1)
    threshold = excess[np.nonzero(descending > excess)[0][-1]]
    projected: list[float] = np.maximum(f - threshold, 0).tolist()
    return projected
