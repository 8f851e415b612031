"""Estimates from subsets of categories: the frequency of each label.

A report names w of k categories, category c with probability p if it is the truth and q if not. So for each category
the reports are those of a bit, and everything of `bits` holds: unbiased frequency, exact intervals for both targets,
and the beta mixture to watch. `intervals` are for one category looked at alone; `joint_intervals` hold for all k at
once, each at confidence 1 - alpha/k (Bonferroni). Frequencies are not clipped and may be negative; their sum is 1
exactly.

`consistent` is the nearest point of the simplex (Euclid): a second view, biased upwards near 0, without error bars.
Never use it for sums of categories.

Up to 128 categories the intervals for the reporters are inverted exactly, "binomial-inversion", at every n. Above, the
reporters get the interval of the population, "clopper-pearson-hoeffding", which is wider and valid for them too
(Hoeffding 1956), if it is at least one report away from the count.

Under several epsilons: `pooled`, for all categories at once.
"""

from collections.abc import Sequence

import numpy as np

from hush_aggregator.estimate.diagnostics import finite_monitors, worst_case_bias, worst_verdict
from hush_aggregator.estimate.estimates import CategoryEstimate, Estimate
from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.estimate.pooled import pooled_proportions
from hush_aggregator.estimate.proportions import Proportions, proportions
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Mechanism

__all__ = ["estimate", "simplex"]

_Part = tuple[Mechanism, Tally]


def estimate(
    parts: Sequence[_Part], labels: Sequence[str], confidence: float, *, enrolled: int | None = None
) -> Estimate:
    """The frequency of each label, from n ≥ 1 reports under one epsilon or several."""
    parts = [part for part in parts if part[1].n]
    n, k = sum(tally.n for _, tally in parts), len(labels)
    joint_confidence = min(1 - (1 - confidence) / k, 1 - 2**-53)  # the largest float below 1
    confidences = (confidence, joint_confidence)
    if len(parts) == 1:
        ((mechanism, tally),) = parts
        found = proportions(finite(mechanism).of_yes, n, tally.moments, confidences, enrolled=enrolled)
    else:
        found = pooled_proportions(
            [(finite(mechanism), tally.n, tally.moments) for mechanism, tally in parts], confidences, enrolled=enrolled
        )
    return Estimate(
        n=n,
        methods=found.methods,
        worst_case_bias=worst_case_bias(n, max(finite(mechanism).reach for mechanism, _ in parts)),
        monitor=_monitor(parts),
        categories=_categories(labels, found),
        consistent=simplex(found.mean),
        failures=found.failures,
    )


def _categories(labels: Sequence[str], found: Proportions) -> tuple[CategoryEstimate, ...]:
    alone, joint = found.intervals
    return tuple(
        CategoryEstimate(
            label=label,
            frequency=found.mean[place],
            stderr=found.stderr[place],
            stderr_plug_in=found.stderr_plug_in[place],
            intervals=alone[place],
            joint_intervals=joint[place],
        )
        for place, label in enumerate(labels)
    )


def _monitor(parts: Sequence[_Part]) -> str | None:
    verdicts: list[str] = []
    for mechanism, tally in parts:
        named = np.array(tally.moments)
        verdicts += finite_monitors(finite(mechanism), np.stack((tally.n - named, named), axis=1))
    return worst_verdict(verdicts)


def simplex(frequencies: Sequence[float]) -> tuple[float, ...]:
    """The nearest frequencies that are not negative and sum to 1: all less one threshold, and no less than 0."""
    f = np.array(frequencies)
    descending = np.sort(f)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(f) + 1)
    threshold = excess[np.nonzero(descending > excess)[0][-1]]
    return tuple(np.maximum(f - threshold, 0).tolist())
