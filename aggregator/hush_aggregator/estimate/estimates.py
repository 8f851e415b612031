"""Estimates as types: means, frequencies, intervals and diagnostics of one round."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from math import isfinite
from typing import TypeAlias

from hush_aggregator.estimate.numerics.guard import NOT_FINITE

Interval: TypeAlias = tuple[float, float]
"""Lower and upper end."""

Intervals: TypeAlias = Mapping[str, Interval]
"""By target, and the bands that may be watched by `ANYTIME` and `ANYTIME_POPULATION`."""

ByTarget: TypeAlias = Mapping[str, float]

REPORTERS = "reporters"
"""Target: the mean of the values of the devices that reported. Only their noise is uncertain."""

POPULATION = "population"
"""Target: the mean of the distribution that the reporting devices are a random sample of. Noise and sampling."""

ENROLLED = "enrolled"
"""Target: the mean of all enrolled devices, if those that reported are a random subset of them. Noise, and sampling
without replacement: once all have reported only the noise is left."""

ANYTIME = "anytime"
"""Not a target: an interval that may be watched as reports arrive. Its method starts with the target it answers."""

ANYTIME_POPULATION = "anytime_population"
"""Such an interval for the population, where `ANYTIME` is about the reporters."""


@dataclass(frozen=True, slots=True)
class WinsorisedMean:
    """A mean that single Laplace reports cannot dominate."""

    mean: float  #: with reports moved to at most `threshold` beyond the bounds
    touched: int  #: reports moved there
    threshold: float  #: how far beyond the bounds a report counts, in the unit of the domain
    bias_bound: float  #: what honest noise loses at most


@dataclass(frozen=True, slots=True)
class PooledMean:
    """The mean of least variance of reports under several epsilons."""

    mean: float  #: in the unit of the domain
    weights: Mapping[str, float]  #: of each epsilon in it, by its decimal text; they sum to 1
    assumes: str  #: what has to hold for it to be unbiased, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEstimate:
    """The mean of one number: the number of a task, its bit (the share of yes), one category, or one coordinate."""

    name: str = ""  #: the label of a category or the name of a coordinate; empty for a number and a bit
    unit: str = ""  #: of the mean; may be empty
    #: Reports about it: all of the round, but of a coordinate those that drew it. Without any there is no mean.
    n: int = 0
    #: The estimate in the unit of the domain, or the share. Never clipped, because clipping would bias it: it can lie
    #: outside the domain.
    mean: float | None = None
    #: Standard error for each target. Bits and categories: at the estimate. Bounded numbers: for the reporters an upper
    #: bound, because the noise depends on the values.
    stderr: ByTarget = field(default_factory=dict)
    #: Of bounded reports, all of it at the estimate: to plot and to combine estimates with. It is too small at small n,
    #: and no interval is made of it.
    stderr_plug_in: ByTarget = field(default_factory=dict)
    #: (lower, upper) for each target, clipped to the domain; of several parts for each part alone.
    intervals: Intervals = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)  #: how each of them was made
    #: Of several parts, intervals that hold for all of them at once.
    joint_intervals: Intervals = field(default_factory=dict)
    #: How each of those was made, where `methods` does not tell.
    joint_methods: Mapping[str, str] = field(default_factory=dict)
    #: By how much 1 false report, or 1 % or 5 % of the reports, can move the mean at most.
    worst_case_bias: Mapping[str, float] = field(default_factory=dict)
    #: By how much the mean moves at most if 1 % of the reporters had no value.
    replacement_bias: Mapping[str, float] = field(default_factory=dict)
    #: Bounds of the mean of all enrolled devices, whatever the silent ones would have said.
    manski: Interval | None = None
    #: Intervals that could not be made, by target (joint ones with `joint_` before it), with the reason.
    failures: Mapping[str, str] = field(default_factory=dict)


_NO_PART = PartEstimate()


@dataclass(frozen=True, slots=True)
class Estimate:
    """An unbiased estimate with its error bars, of one number or of several.

    Error bars are keyed `"reporters"`, `"population"` and `"enrolled"`; intervals `"anytime"` and
    `"anytime_population"` too.
    """

    n: int  #: reports counted
    #: What was estimated: one part of a number or a bit, one for each category or coordinate in the order of the task;
    #: none where n = 0 or the estimate failed.
    parts: tuple[PartEstimate, ...] = ()
    #: `"ok"`, `"too_little_noise"` or `"outliers"`; None below 100 reports, which say nothing.
    monitor: str | None = None
    winsorised: WinsorisedMean | None = None  #: for Laplace reports a second view of the mean
    pooled: PooledMean | None = None  #: with several epsilons, the mean that `intervals["population"]` is about
    #: The frequencies projected on the simplex: a second view, biased near 0, without error bars.
    consistent: tuple[float, ...] = ()
    #: What could not be made of the estimate, or of none of its parts, with the reason (`guard`).
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def single(self) -> PartEstimate:
        """The part of a number or a bit; an empty one where there are several, or none."""
        return self.parts[0] if len(self.parts) == 1 and not self.parts[0].name else _NO_PART

    @property
    def mean(self) -> float | None:
        """The mean of a number or a bit; None where there is none."""
        return self.single.mean

    @property
    def stderr(self) -> ByTarget:
        """Standard errors of a number or a bit, by target."""
        return self.single.stderr

    @property
    def intervals(self) -> Intervals:
        """Intervals of a number or a bit, by target."""
        return self.single.intervals

    @property
    def methods(self) -> Mapping[str, str]:
        """How the intervals of a number or a bit were made."""
        return self.single.methods

    @property
    def all_failures(self) -> dict[str, str]:
        """What could not be made, of the whole and of every part."""
        merged = dict(self.failures)
        for part in self.parts:
            merged |= part.failures
        return merged


def finite_only(made: Estimate) -> Estimate | None:
    """The same estimate if all its numbers are finite, else what is left; None if a mean is not finite.

    A mean that is not a number leaves nothing to trust. An interval or a second view that is not finite leaves the
    rest; `failures` names what was left out.
    """
    if not all(isfinite(part.mean) for part in made.parts if part.mean is not None):
        return None
    sound = _sound(made)
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


def _sound(made: Estimate) -> Estimate:
    sieve = _Sieve(made.failures)
    pooled, winsorised = made.pooled, made.winsorised
    pooled_numbers = None if pooled is None else (pooled.mean, *pooled.weights.values())
    winsorised_numbers = None if winsorised is None else astuple(winsorised)
    return replace(
        made,
        parts=tuple(map(_sound_part, made.parts)),
        winsorised=winsorised if sieve.passes("winsorised", winsorised_numbers) else None,
        pooled=pooled if sieve.passes("pooled", pooled_numbers) else None,
        consistent=made.consistent if sieve.passes("consistent", made.consistent) else (),
        failures=sieve.failures,
    )


def _sound_part(part: PartEstimate) -> PartEstimate:
    sieve = _Sieve(part.failures)
    intervals, joint = sieve.intervals(part.intervals), sieve.intervals(part.joint_intervals)
    kept = intervals if part.joint_methods else {**intervals, **joint}  # of categories one method serves both
    return replace(
        part,
        stderr=sieve.by_name("stderr", part.stderr),
        stderr_plug_in=sieve.by_name("stderr_plug_in", part.stderr_plug_in),
        intervals=intervals,
        methods={
            target: method for target, method in part.methods.items() if target in kept or target not in part.intervals
        },
        joint_intervals=joint,
        worst_case_bias=sieve.by_name("worst_case_bias", part.worst_case_bias),
        replacement_bias=sieve.by_name("replacement_bias", part.replacement_bias),
        manski=part.manski if sieve.passes("manski", part.manski) else None,
        failures=sieve.failures,
    )
