"""How each mechanism is folded, estimated and planned: a module for each, and one line here."""

from collections.abc import Iterator
from contextlib import contextmanager

from hush_aggregator.estimate.mechanisms import bounded, laplace, randomized_response, subset_selection, vector
from hush_aggregator.estimate.mechanisms.analysis import Analysis
from hush_common.mechanisms import (
    Channel,
    Laplace,
    Mechanism,
    Multilevel,
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
    """What is done with the reports of a mechanism.

    Raises:
        TypeError: it is registered with the devices of this process, and not with its aggregator.
    """
    found = _ANALYSES.get(type(mechanism))
    if found is None:
        raise TypeError(f"no analysis of {mechanism.name}; register it in hush_aggregator.estimate.mechanisms as well")
    return found


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
