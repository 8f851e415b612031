"""Estimates from vectors of which each report drew a few coordinates.

Coordinate j is estimated from the n_j reports that drew it, as `multilevel` is (`bounded`). The devices that drew it
are a random subset of the reporters, whatever the values are, so that the mean is unbiased for both targets; and for
both the error has two sources, noise and who drew. Hence both intervals are those of the population. (If every report
holds every coordinate, the reporters have their own.) n_j = 0 gives no mean. Intervals are for one coordinate looked
at alone.
"""

from collections.abc import Sequence
from typing import Any

from hush_aggregator.estimate.bounded import Group
from hush_aggregator.estimate.bounded import estimate as bounded_estimate
from hush_aggregator.estimate.finite import finite
from hush_aggregator.estimate.honesty import manski, worst_case_bias, worst_verdict
from hush_aggregator.estimate.result import REPORTERS, Estimate
from hush_aggregator.estimate.span import Span
from hush_aggregator.tally import Tally
from hush_common.domain import VectorDomain
from hush_common.mechanisms import Vector

__all__ = ["estimate"]


def estimate(
    parts: Sequence[tuple[Vector, Tally]], domain: VectorDomain, confidence: float, enrolled: int | None = None
) -> Estimate:
    """Each coordinate of n ≥ 1 reports, under one epsilon or several."""
    parts = [part for part in parts if part[1].n]
    n = sum(tally.n for _, tally in parts)
    coordinates: list[dict[str, Any]] = []
    monitors: list[str | None] = []
    for place, coordinate in enumerate(domain.coordinates):
        groups = [_group(mechanism, tally, place) for mechanism, tally in parts]
        fact: dict[str, Any] = {"name": coordinate.name}
        if coordinate.unit:
            fact["unit"] = coordinate.unit
        drawn = sum(group.n for group in groups)
        fact["n"] = drawn
        if drawn:
            mechanism = parts[0][0]
            span = Span.of(coordinate)
            one = bounded_estimate(groups, span, confidence, sampled=mechanism.sampled < mechanism.coordinates)
            reach = span.length(max(finite(mechanism.part).reach for mechanism, _ in parts))
            fact |= {"mean": one.mean, "stderr": one.stderr, "intervals": one.intervals, "methods": one.methods}
            fact["worst_case_bias"] = worst_case_bias(drawn, reach, of=n)
            monitors.append(one.monitor)
            if enrolled is not None:
                fact["manski"] = manski(n, enrolled, one.intervals[REPORTERS], coordinate.lower, coordinate.upper)
        coordinates.append(fact)
    return Estimate(
        n=n,
        coordinates=coordinates,
        monitor=worst_verdict(monitors),
    )


def _group(mechanism: Vector, tally: Tally, place: int) -> Group:
    width = mechanism.levels + 1
    return Group(finite(mechanism.part), tally.moments[place * width : (place + 1) * width])
