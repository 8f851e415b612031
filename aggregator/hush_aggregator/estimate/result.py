"""What estimating gives."""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["ANYTIME", "POPULATION", "REPORTERS", "Estimate"]

REPORTERS = "reporters"
"""Target: the mean of the values of the devices that reported. Only their noise is uncertain."""

POPULATION = "population"
"""Target: the mean of the distribution that the reporting devices are a random sample of. Noise and sampling."""

ANYTIME = "anytime"
"""Not a target: an interval that may be watched as reports arrive. Its method starts with the target it answers."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An unbiased estimate with its error bars, keyed `"reporters"`, `"population"` and, for intervals, `"anytime"`.

    Args:
        n: reports counted.
        mean: the estimate in the unit of the domain, or the proportion of ones. Never clipped, since clipping would
            bias it: it may lie outside the domain. None when n = 0, and for categories and vectors.
        stderr: standard error for each target.
        intervals: (lower, upper) for each target, clipped to the domain.
        methods: how each interval was made.
        worst_case_bias: by how much 1 liar, or liars who are 1 % or 5 % of the reports, can move the mean at most.
        replacement_bias: by how much the mean, or any frequency, moves at most if 1 % of the reporters had no value.
        monitor: `"ok"`, `"too_little_noise"` or `"outliers"`; None below 100 reports, which say nothing.
        winsorised: for Laplace reports a mean that single reports cannot dominate: `"mean"`, `"threshold"` (how far
            beyond the bounds a report counts), `"touched"` (reports moved there) and `"bias_bound"` (what honest
            noise loses).
        pooled: with several epsilons, the mean of least variance, which `intervals["population"]` is about.
        categories: label, frequency, stderr, intervals, joint_intervals of each category.
        consistent: the frequencies projected on the simplex: a second view, biased near 0, without error bars.
        coordinates: name and estimate of each number of a vector.
        manski: bounds of the mean of all enrolled devices, whatever the silent ones would have said.
        failures: intervals that could not be made, by target, with the reason (`guard`); they are absent.
    """

    n: int
    mean: float | None = None
    stderr: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    worst_case_bias: dict[str, float] = field(default_factory=dict)
    replacement_bias: dict[str, float] = field(default_factory=dict)
    monitor: str | None = None
    winsorised: dict[str, float] | None = None
    pooled: dict[str, Any] | None = None
    categories: list[dict[str, Any]] = field(default_factory=list)
    consistent: list[float] = field(default_factory=list)
    coordinates: list[dict[str, Any]] = field(default_factory=list)
    manski: tuple[float, float] | None = None
    failures: dict[str, str] = field(default_factory=dict)
