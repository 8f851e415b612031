"""`vector`: for each coordinate how often each level was reported."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.bounded_mean import Batches, Group, IntervalSet, Sample, SampleDesign
from hush_aggregator.estimate.diagnostics import worst_case_bias, worst_verdict
from hush_aggregator.estimate.estimates import Estimate, PartEstimate
from hush_aggregator.estimate.finite_channel import Assumed, finite, worst_counts
from hush_aggregator.estimate.mechanisms.analysis import EstimateRequest
from hush_aggregator.estimate.mechanisms.bounded import occurrences
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.estimate.units import Units
from hush_common.domain import Domain, DomainPart, VectorDomain
from hush_common.mechanisms import Vector

_Asked = tuple[SampleDesign, Callable[[], IntervalSet]]


def estimate_coordinates(
    parts: Sequence[tuple[Vector, Tally]], domain: Domain, confidence: float, enrolled: int | None = None
) -> Estimate:
    """Each coordinate of n ≥ 1 reports, under one epsilon or several."""
    parts = [part for part in parts if part[1].n]
    n = sum(tally.n for _, tally in parts)
    joint = min(1 - (1 - confidence) / len(domain.parts), 1 - 2**-53)  # the largest float below 1
    joint = max(joint, confidence)  # rounding makes 0 of a tiny one
    sampled = parts[0][0].sampled < parts[0][0].coordinates
    reach = max(finite(mechanism.part).reach for mechanism, _ in parts)
    batches = Batches()
    pending: list[tuple[DomainPart, Units, Sample | None, list[_Asked]]] = []
    for place, (coordinate, number) in enumerate(zip(domain.parts, domain.numbers, strict=True)):
        groups = [_group(mechanism, tally, place) for mechanism, tally in parts]
        groups, units = [group for group in groups if group.n], Units.of(number)
        if not groups:
            pending.append((coordinate, units, None, []))
            continue
        sample = Sample(groups)
        both = [
            SampleDesign(sample.sizes, units, one, batches, sampled=sampled, enrolled=enrolled)
            for one in (confidence, joint)
        ]
        pending.append((coordinate, units, sample, [(design, design.ask(sample)) for design in both]))
    found, monitors = [], []
    for coordinate, units, seen, asked in pending:
        if seen is None:
            found.append(PartEstimate(name=coordinate.name, unit=coordinate.unit))
            continue
        alone, jointly = (make() for _, make in asked)
        one = asked[0][0].part(seen, alone, name=coordinate.name, unit=coordinate.unit)
        found.append(
            replace(
                one,
                joint_intervals=jointly.intervals,
                joint_methods=jointly.methods,
                worst_case_bias=worst_case_bias(seen.n, units.length(reach), of=n),
                failures={**one.failures, **{f"joint_{name}": why for name, why in jointly.failures.items()}},
            )
        )
        monitors.append(seen.monitor)
    return Estimate(n, tuple(found), worst_verdict(monitors))


def _group(mechanism: Vector, tally: Tally, place: int) -> Group:
    width = mechanism.levels + 1
    return Group(finite(mechanism.part), tally.moments[place * width : (place + 1) * width])


def columns(mechanism: Vector) -> int:
    return mechanism.coordinates * (mechanism.levels + 1)


def fold(mechanism: Vector, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    cells = bodies[:, ::2] * (mechanism.levels + 1) + bodies[:, 1::2]
    return occurrences(cells.ravel(), columns(mechanism))


def possible(mechanism: Vector, tally: Tally) -> bool:
    return min(tally.moments) >= 0 and sum(tally.moments) == tally.n * mechanism.sampled


def estimate(parts: Sequence[tuple[Vector, Tally]], request: EstimateRequest) -> Estimate:
    return estimate_coordinates(parts, request.domain, request.confidence, request.enrolled_of(parts))


def worst(mechanism: Vector, people: int, assumed: Assumed) -> tuple[float, tuple[int, ...]]:
    """The first coordinate at its worst; who drew what else does not matter."""
    mean, counts = worst_counts(finite(mechanism.part), people, assumed, drawn=mechanism.drawn)
    rest = [0] * (mechanism.coordinates - 1) * (mechanism.levels + 1)
    if rest:
        rest[0] = people * mechanism.sampled - sum(counts)
    return mean, (*counts, *rest)


def said(mechanism: Vector, _: VectorDomain, bodies: NDArray[np.int64], place: int) -> NDArray[np.float64]:
    levels: NDArray[np.float64] = bodies[:, 1::2][bodies[:, ::2] == place] / mechanism.levels
    return levels


def spread(
    mechanism: Vector, _: VectorDomain, tally: Tally, place: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    levels = np.arange(mechanism.levels + 1)
    start = place * len(levels)
    return levels / mechanism.levels, np.array(tally.moments[start : start + len(levels)])


def in_words(mechanism: Vector, domain: VectorDomain, bodies: NDArray[np.int64]) -> list[str]:
    """The coordinates that each report drew, and their values."""
    return [" | ".join(_drawn(mechanism, domain, body)) for body in bodies.tolist()]


def _drawn(mechanism: Vector, domain: VectorDomain, body: Sequence[int]) -> Iterator[str]:
    for place, level in zip(body[::2], body[1::2], strict=True):
        coordinate = domain.coordinates[place]
        position = finite(mechanism.part).positions[level]
        yield f"{coordinate.name} = {float(coordinate.value_of(position * coordinate.steps))!r}"
