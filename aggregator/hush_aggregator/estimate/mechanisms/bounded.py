"""`multilevel` and `table`: how often each of a few outputs about one number was reported."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.bounded_mean import Sample, estimate_samples, groups_of
from hush_aggregator.estimate.estimates import Estimate
from hush_aggregator.estimate.finite_channel import Assumed, finite, worst_counts
from hush_aggregator.estimate.mechanisms.analysis import EstimateRequest
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.estimate.units import Units
from hush_common.domain import Domain
from hush_common.mechanisms import Mechanism


def columns(mechanism: Mechanism) -> int:
    return len(finite(mechanism).positions)


def fold(mechanism: Mechanism, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    return occurrences(bodies[:, 0], columns(mechanism))


def occurrences(outputs: NDArray[np.int64], columns: int) -> tuple[int, ...]:
    """How often each output occurs."""
    return tuple(np.bincount(outputs, minlength=columns).tolist())


def possible(_: Mechanism, tally: Tally) -> bool:
    """Whether the counts of the outputs are those of n reports."""
    return min(tally.moments) >= 0 and sum(tally.moments) == tally.n


def estimate(parts: Sequence[tuple[Mechanism, Tally]], request: EstimateRequest) -> Estimate:
    """The mean, from how often each output came."""
    (made,) = estimate_many([parts], request)
    return made


def estimate_many(samples: Sequence[Sequence[tuple[Mechanism, Tally]]], request: EstimateRequest) -> list[Estimate]:
    """The same of several tallies, whose intervals are solved together."""
    columns = [
        groups_of(finite(mechanism), [parts[offer][1].moments for parts in samples])
        for offer, (mechanism, _) in enumerate(samples[0])
    ]
    found = [Sample([group for group in groups if group.n]) for groups in zip(*columns, strict=True)]
    return estimate_samples(found, Units.of_domain(request.domain), request.confidence, enrolled=request.enrolled)


def worst(mechanism: Mechanism, people: int, assumed: Assumed) -> tuple[float, tuple[int, ...]]:
    channel = finite(mechanism)
    mean, counts = worst_counts(channel, people, assumed)
    found = dict(zip(channel.used, counts, strict=True))
    return mean, tuple(found.get(output, 0) for output in range(columns(mechanism)))


def said(
    mechanism: Mechanism,
    domain: Domain,
    bodies: NDArray[np.int64],
    _: int,
) -> NDArray[np.float64]:
    """The position of each output as a number of the domain: itself for a bit."""
    units = Units.of_domain(domain)
    return np.array([units.value(position) for position in finite(mechanism).positions])[bodies[:, 0]]


def spread(
    mechanism: Mechanism, domain: Domain, tally: Tally, place: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The position of each output, and how often it was reported."""
    outputs = np.arange(len(tally.moments))[:, None]
    return said(mechanism, domain, outputs, place), np.array(tally.moments)


def in_words(mechanism: Mechanism, domain: Domain, bodies: NDArray[np.int64]) -> list[str]:
    """Each report as a number of the domain."""
    return in_words_of(said(mechanism, domain, bodies, 0))


def in_words_of(numbers: NDArray[np.float64]) -> list[str]:
    """Numbers with all their digits."""
    return [repr(number) for number in numbers.tolist()]
