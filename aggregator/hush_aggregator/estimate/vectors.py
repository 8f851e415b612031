"""Estimates from vectors of which each report drew a few coordinates.

Coordinate j is estimated from the n_j reports that drew it, as `multilevel` is (`bounded`). The devices that drew it
are a random subset of the reporters, whatever the values are, so that the mean is unbiased for both targets; and for
both the error has two sources, noise and who drew. Hence both intervals are those of the population. (If every report
holds every coordinate, the reporters have their own.) n_j = 0 gives no mean.

`intervals` are for one coordinate looked at alone; `joint_intervals` hold for all d at once, each at confidence
1 - alpha/d (Bonferroni), and their method may be another one, `joint_methods`.
"""

from collections.abc import Sequence
from dataclasses import replace

from hush_aggregator.estimate.batches import Batches
from hush_aggregator.estimate.bounded_mean import IntervalSet, around, intervals
from hush_aggregator.estimate.diagnostics import worst_case_bias, worst_verdict
from hush_aggregator.estimate.estimates import CoordinateEstimate, Estimate
from hush_aggregator.estimate.finite_channel import finite
from hush_aggregator.estimate.sample import Group, Sample
from hush_aggregator.estimate.units import Units
from hush_aggregator.tally import Tally
from hush_common.domain import Coordinate, VectorDomain
from hush_common.mechanisms import Vector

__all__ = ["estimate"]


def estimate(
    parts: Sequence[tuple[Vector, Tally]], domain: VectorDomain, confidence: float, enrolled: int | None = None
) -> Estimate:
    """Each coordinate of n ≥ 1 reports, under one epsilon or several."""
    parts = [part for part in parts if part[1].n]
    n = sum(tally.n for _, tally in parts)
    joint = min(1 - (1 - confidence) / len(domain.coordinates), 1 - 2**-53)  # the largest float below 1
    joint = max(joint, confidence)  # rounding makes 0 of a tiny one
    sampled = parts[0][0].sampled < parts[0][0].coordinates
    reach = max(finite(mechanism.part).reach for mechanism, _ in parts)
    batches, pending = Batches(), []
    for place, coordinate in enumerate(domain.coordinates):
        groups = [_group(mechanism, tally, place) for mechanism, tally in parts]
        sample, units = Sample(tuple(group for group in groups if group.n)), Units.of(coordinate)
        made = [
            intervals(sample, units, one, batches, sampled=sampled, enrolled=enrolled)
            for one in (confidence, joint)
            if sample.groups
        ]
        pending.append((coordinate, sample, units, made))
    found, monitors = [], []
    for coordinate, sample, units, made in pending:
        if not made:
            found.append(CoordinateEstimate(name=coordinate.name, unit=coordinate.unit))
            continue
        alone, jointly = (make() for make in made)
        one = around(sample, units, alone, sampled=sampled, enrolled=enrolled)
        bias = worst_case_bias(sample.n, units.length(reach), of=n)
        found.append(replace(_coordinate(coordinate, one, jointly), worst_case_bias=bias))
        monitors.append(one.monitor)
    return Estimate(n=n, coordinates=tuple(found), monitor=worst_verdict(monitors))


def _coordinate(coordinate: Coordinate, one: Estimate, jointly: IntervalSet) -> CoordinateEstimate:
    return CoordinateEstimate(
        name=coordinate.name,
        unit=coordinate.unit,
        n=one.n,
        mean=one.mean,
        stderr=one.stderr,
        stderr_plug_in=one.stderr_plug_in,
        intervals=one.intervals,
        methods=one.methods,
        joint_intervals=jointly.intervals,
        joint_methods=jointly.methods,
        failures={**one.failures, **{f"joint_{name}": why for name, why in jointly.failures.items()}},
    )


def _group(mechanism: Vector, tally: Tally, place: int) -> Group:
    width = mechanism.levels + 1
    return Group(finite(mechanism.part), tally.moments[place * width : (place + 1) * width])
