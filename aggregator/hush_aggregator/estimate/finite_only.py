"""Finite only: no NaN or infinity leaves an estimate; what was left out is named in `failures`.

A mean that is no number leaves nothing to trust. An interval or a second view that is none leaves the rest.
"""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, replace
from math import isfinite

from hush_aggregator.estimate.estimates import CategoryEstimate, CoordinateEstimate, Estimate, Interval, Intervals
from hush_aggregator.estimate.numerics.guard import NOT_FINITE

__all__ = ["finite_only"]


def finite_only(made: Estimate) -> Estimate | None:
    """The same estimate if all its numbers are finite, else what is left; None if a mean or a frequency is not."""
    means = (made.mean, *(one.mean for one in made.coordinates), *(one.frequency for one in made.categories))
    if not all(isfinite(mean) for mean in means if mean is not None):
        return None
    sound = _estimate(made)
    return made if sound == made else sound


class _Sieve:
    """Lets finite numbers through, and notes under its name what held others."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        self.failures = dict(failures)

    def passes(self, name: str, numbers: Iterable[float] | None) -> bool:
        if numbers is None or all(map(isfinite, numbers)):
            return True
        self.failures[name] = NOT_FINITE
        return False

    def by_name(self, name: str, numbers: Mapping[str, float]) -> Mapping[str, float]:
        return numbers if self.passes(name, numbers.values()) else {}

    def intervals(self, given: Intervals) -> dict[str, Interval]:
        return {target: ends for target, ends in given.items() if self.passes(target, ends)}

    def bounds(self, name: str, given: Interval | None) -> Interval | None:
        return given if self.passes(name, given) else None


def _estimate(made: Estimate) -> Estimate:
    sieve = _Sieve(made.failures)
    intervals = sieve.intervals(made.intervals)
    pooled, winsorised = made.pooled, made.winsorised
    pooled_numbers = None if pooled is None else (pooled.mean, *pooled.weights.values())
    winsorised_numbers = None if winsorised is None else astuple(winsorised)
    return replace(
        made,
        stderr=sieve.by_name("stderr", made.stderr),
        stderr_plug_in=sieve.by_name("stderr_plug_in", made.stderr_plug_in),
        intervals=intervals,
        methods=_methods(made, intervals),
        worst_case_bias=sieve.by_name("worst_case_bias", made.worst_case_bias),
        replacement_bias=sieve.by_name("replacement_bias", made.replacement_bias),
        winsorised=winsorised if sieve.passes("winsorised", winsorised_numbers) else None,
        pooled=pooled if sieve.passes("pooled", pooled_numbers) else None,
        consistent=made.consistent if sieve.passes("consistent", made.consistent) else (),
        manski=sieve.bounds("manski", made.manski),
        categories=tuple(map(_category, made.categories)),
        coordinates=tuple(map(_coordinate, made.coordinates)),
        failures=sieve.failures,
    )


def _category(one: CategoryEstimate) -> CategoryEstimate:
    sieve = _Sieve(one.failures)
    return replace(
        one,
        stderr=sieve.by_name("stderr", one.stderr),
        stderr_plug_in=sieve.by_name("stderr_plug_in", one.stderr_plug_in),
        intervals=sieve.intervals(one.intervals),
        joint_intervals=sieve.intervals(one.joint_intervals),
        manski=sieve.bounds("manski", one.manski),
        failures=sieve.failures,
    )


def _coordinate(one: CoordinateEstimate) -> CoordinateEstimate:
    sieve = _Sieve(one.failures)
    intervals = sieve.intervals(one.intervals)
    return replace(
        one,
        stderr=sieve.by_name("stderr", one.stderr),
        stderr_plug_in=sieve.by_name("stderr_plug_in", one.stderr_plug_in),
        intervals=intervals,
        methods=_methods(one, intervals),
        joint_intervals=sieve.intervals(one.joint_intervals),
        worst_case_bias=sieve.by_name("worst_case_bias", one.worst_case_bias),
        replacement_bias=sieve.by_name("replacement_bias", one.replacement_bias),
        manski=sieve.bounds("manski", one.manski),
        failures=sieve.failures,
    )


def _methods(one: Estimate | CoordinateEstimate, kept: Intervals) -> dict[str, str]:
    """Those of the intervals that are left; of categories, whose intervals are with each of them, all."""
    return {target: method for target, method in one.methods.items() if target in kept or target not in one.intervals}
