"""Estimates as types: means, frequencies, intervals and diagnostics of one round."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = [
    "ANYTIME",
    "ANYTIME_POPULATION",
    "ENROLLED",
    "POPULATION",
    "REPORTERS",
    "ByTarget",
    "CategoryEstimate",
    "CoordinateEstimate",
    "Estimate",
    "Interval",
    "Intervals",
    "PooledMean",
    "WinsorisedMean",
]

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
    """A mean that single Laplace reports cannot dominate.

    Args:
        mean: with reports moved to at most `threshold` beyond the bounds.
        touched: reports moved there.
        threshold: how far beyond the bounds a report counts, in the unit of the domain.
        bias_bound: what honest noise loses at most.
    """

    mean: float
    touched: int
    threshold: float
    bias_bound: float


@dataclass(frozen=True, slots=True)
class PooledMean:
    """The mean of least variance of reports under several epsilons.

    Args:
        mean: in the unit of the domain.
        weights: of each epsilon in it, by its decimal text; they sum to 1.
        assumes: what has to hold for it to be unbiased, in words.
    """

    mean: float
    weights: Mapping[str, float]
    assumes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryEstimate:
    """The frequency of one category; the fields are those of `Estimate`.

    Args:
        label: its name.
        frequency: unbiased, and so perhaps negative.
        stderr: by target.
        stderr_plug_in: by target.
        intervals: for this category looked at alone.
        joint_intervals: for all categories at once.
        manski: bounds among all enrolled devices.
        failures: by target.
    """

    label: str
    frequency: float
    stderr: ByTarget = field(default_factory=dict)
    stderr_plug_in: ByTarget = field(default_factory=dict)
    intervals: Intervals = field(default_factory=dict)
    joint_intervals: Intervals = field(default_factory=dict)
    manski: Interval | None = None
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinateEstimate:
    """The mean of one coordinate of a vector; the fields are those of `Estimate`.

    Args:
        name: of the coordinate.
        unit: of the coordinate; may be empty.
        n: reports that drew it; without any there is nothing else.
        mean: in its unit.
        stderr: by target.
        stderr_plug_in: by target.
        intervals: for this coordinate looked at alone.
        methods: how each of them was made.
        joint_intervals: for all coordinates at once.
        joint_methods: how each of those was made.
        worst_case_bias: by liars among the reporters.
        replacement_bias: by reporters without a value.
        manski: bounds of the mean of all enrolled devices.
        failures: by target; those of joint intervals have `joint_` before it.
    """

    name: str
    unit: str = ""
    n: int = 0
    mean: float | None = None
    stderr: ByTarget = field(default_factory=dict)
    stderr_plug_in: ByTarget = field(default_factory=dict)
    intervals: Intervals = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    joint_intervals: Intervals = field(default_factory=dict)
    joint_methods: Mapping[str, str] = field(default_factory=dict)
    worst_case_bias: Mapping[str, float] = field(default_factory=dict)
    replacement_bias: Mapping[str, float] = field(default_factory=dict)
    manski: Interval | None = None
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An unbiased estimate with its error bars.

    They are keyed `"reporters"`, `"population"` and `"enrolled"`; intervals `"anytime"` and `"anytime_population"` too.

    Args:
        n: reports counted.
        mean: the estimate in the unit of the domain, or the proportion of ones. Never clipped, since clipping would
            bias it: it may lie outside the domain. None when n = 0, and for categories and vectors.
        stderr: standard error for each target. Bits and categories: at the estimate. Bounded numbers: for the reporters
            an upper bound, because the noise depends on the values.
        stderr_plug_in: of bounded reports, all of it at the estimate: to plot and to combine estimates with. It is too
            small at small n, and no interval is made of it.
        intervals: (lower, upper) for each target, clipped to the domain.
        methods: how each interval was made.
        worst_case_bias: by how much 1 false report, or 1 % or 5 % of the reports, can move the mean at most.
        replacement_bias: by how much the mean, or any frequency, moves at most if 1 % of the reporters had no value.
        monitor: `"ok"`, `"too_little_noise"` or `"outliers"`; None below 100 reports, which say nothing.
        winsorised: for Laplace reports a second view of the mean.
        pooled: with several epsilons, the mean that `intervals["population"]` is about.
        categories: of a categorical question, in the order of its labels.
        consistent: the frequencies projected on the simplex: a second view, biased near 0, without error bars.
        coordinates: of a vector, in its order.
        manski: bounds of the mean of all enrolled devices, whatever the silent ones would have said.
        failures: intervals that could not be made, by target, with the reason (`guard`); they are absent.
    """

    n: int
    mean: float | None = None
    stderr: ByTarget = field(default_factory=dict)
    intervals: Intervals = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    worst_case_bias: Mapping[str, float] = field(default_factory=dict)
    replacement_bias: Mapping[str, float] = field(default_factory=dict)
    monitor: str | None = None
    winsorised: WinsorisedMean | None = None
    pooled: PooledMean | None = None
    categories: tuple[CategoryEstimate, ...] = ()
    consistent: tuple[float, ...] = ()
    coordinates: tuple[CoordinateEstimate, ...] = ()
    manski: Interval | None = None
    failures: Mapping[str, str] = field(default_factory=dict)
    stderr_plug_in: ByTarget = field(default_factory=dict)
