"""How each mechanism is folded, estimated and planned: a module for each, and one line here.

Under several epsilons a tally has for each offer the number of reports, and then the sums of its mechanism.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.estimates import Estimate
from hush_aggregator.estimate.mechanisms import bounded, laplace, randomized_response, subset_selection, vector
from hush_aggregator.estimate.mechanisms.analysis import Analysis, BatchAnalysis, EstimateRequest
from hush_aggregator.estimate.tally import Tally
from hush_common.mechanisms import (
    Channel,
    Laplace,
    Mechanism,
    Multilevel,
    Offers,
    RandomizedResponse,
    SubsetSelection,
    Vector,
)

_ANALYSES: dict[type[Mechanism], Analysis] = {
    Laplace: laplace,
    Multilevel: bounded,
    Channel: bounded,
    RandomizedResponse: randomized_response,
    SubsetSelection: subset_selection,
    Vector: vector,
}


def analysis_of(mechanism: Mechanism) -> Analysis:
    """Return the analysis of a mechanism; TypeError if it is registered on the devices' side alone."""
    found = _ANALYSES.get(type(mechanism))
    if found is None:
        raise TypeError(f"no analysis of {mechanism.name}; register it in hush_aggregator.estimate.mechanisms as well")
    return found


def estimate_many(samples: Sequence[Sequence[tuple[Mechanism, Tally]]], request: EstimateRequest) -> list[Estimate]:
    """Return the estimate of each sample: the mechanism and tally of each epsilon, the same mechanisms in all."""
    analysis = analysis_of(samples[0][0][0])
    if len(samples) > 1 and isinstance(analysis, BatchAnalysis):
        return analysis.estimate_many(samples, request)
    return [analysis.estimate(parts, request) for parts in samples]


@contextmanager
def registered(kind: type[Mechanism], analysis: Analysis) -> Iterator[None]:
    """One analysis more, in this process and as long as the context lasts.

    It lets no device answer anything: that is `hush_common.mechanisms.registry.registered`. What makes estimates in
    processes of their own (`ProcessEstimator`) does not know it there.

    Raises:
        ValueError: the mechanism has one; none can be replaced.
    """
    if kind in _ANALYSES:
        raise ValueError(f"there already is an analysis of {kind.name!r}")
    _ANALYSES[kind] = analysis
    try:
        yield
    finally:
        del _ANALYSES[kind]


def columns(randomizer: Mechanism | Offers) -> int:
    """How many sums a tally of this mechanism has."""
    if isinstance(randomizer, Offers):
        return sum(1 + columns(part) for part in randomizer.parts)
    return analysis_of(randomizer).columns(randomizer)


def sums(randomizer: Mechanism | Offers, bodies: NDArray[np.int64]) -> tuple[int, ...]:
    """The sums over at least one admitted body, shape (count, width)."""
    if isinstance(randomizer, Offers):
        return tuple(number for offer, part in enumerate(randomizer.parts) for number in _offer(part, bodies, offer))
    return analysis_of(randomizer).fold(randomizer, bodies)


def _offer(part: Mechanism, bodies: NDArray[np.int64], offer: int) -> tuple[int, ...]:
    chosen = bodies[bodies[:, 0] == offer, 1:]
    return (len(chosen), *(sums(part, chosen) if len(chosen) else (0,) * columns(part)))


def parts_of(randomizer: Mechanism | Offers, tally: Tally) -> list[tuple[Mechanism, Tally]]:
    """The mechanism and the tally of each offer; all tallies are empty if nothing was counted."""
    if not isinstance(randomizer, Offers):
        return [(randomizer, tally)]
    if not tally.moments:
        return [(part, Tally()) for part in randomizer.parts]
    parts, start = [], 0
    for part in randomizer.parts:
        stop = start + 1 + columns(part)
        parts.append((part, Tally(tally.moments[start], tally.moments[start + 1 : stop])))
        start = stop
    return parts


def check(randomizer: Mechanism | Offers, tallies: Iterable[Tally]) -> None:
    """Raise ValueError for a tally that this mechanism's reports cannot give: as a rule another task's."""
    expected = columns(randomizer)
    for tally in tallies:
        if len(tally.moments) != expected or not _possible(randomizer, tally):
            raise ValueError(
                f"a tally of {tally.n} reports and {len(tally.moments)} sums does not belong to this "
                f"{randomizer.name} task"
            )


def _possible(randomizer: Mechanism | Offers, tally: Tally) -> bool:
    if not isinstance(randomizer, Offers):
        return analysis_of(randomizer).possible(randomizer, tally)
    parts = parts_of(randomizer, tally)
    return sum(part.n for _, part in parts) == tally.n and all(
        analysis_of(mechanism).possible(mechanism, part) for mechanism, part in parts
    )


def fold(randomizer: Mechanism | Offers, bodies: NDArray[np.int64]) -> Tally:
    """The tally of a batch."""
    if len(bodies) == 0:
        return Tally()
    return Tally(len(bodies), sums(randomizer, bodies))
