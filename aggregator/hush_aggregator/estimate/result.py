"""What estimating gives."""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["ANYTIME", "ANYTIME_POPULATION", "ENROLLED", "POPULATION", "REPORTERS", "Estimate"]

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
class Estimate:
    """An unbiased estimate with its error bars.

    They are keyed `"reporters"`, `"population"` and `"enrolled"`; intervals `"anytime"` and `"anytime_population"` too.

    Args:
        n: reports counted.
        mean: the estimate in the unit of the domain, or the proportion of ones. Never clipped, since clipping would
            bias it: it may lie outside the domain. None when n = 0, and for categories and vectors.
        stderr: standard error for each target; of bounded reports an upper bound where their values are unknown.
        stderr_plug_in: the same with the estimated frequencies in place of the worst ones: to plot and to combine
            estimates with. It is too small at small n, and no interval is made of it.
        intervals: (lower, upper) for each target, clipped to the domain.
        methods: how each interval was made.
        worst_case_bias: by how much 1 false report, or 1 % or 5 % of the reports, can move the mean at most.
        replacement_bias: by how much the mean, or any frequency, moves at most if 1 % of the reporters had no value.
        monitor: `"ok"`, `"too_little_noise"` or `"outliers"`; None below 100 reports, which say nothing.
        winsorised: for Laplace reports a mean that single reports cannot dominate: `"mean"`, `"threshold"` (how far
            beyond the bounds a report counts), `"touched"` (reports moved there) and `"bias_bound"` (what honest
            noise loses).
        pooled: with several epsilons, the mean of least variance, which `intervals["population"]` is about.
        categories: label, frequency, stderr, stderr_plug_in, intervals, joint_intervals of each category.
        consistent: the frequencies projected on the simplex: a second view, biased near 0, without error bars.
        coordinates: name, estimate and joint_intervals of each number of a vector.
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
    stderr_plug_in: dict[str, float] = field(default_factory=dict)
