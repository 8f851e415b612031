"""What estimating gives."""

from dataclasses import dataclass, field

__all__ = ["POPULATION", "REPORTERS", "Estimate"]

REPORTERS = "reporters"
"""Target: the mean of the values of the devices that reported. Only their noise is uncertain."""

POPULATION = "population"
"""Target: the mean of the distribution that the reporting devices are a random sample of. Noise and sampling."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An unbiased estimate with its error bars, one for each target (`"reporters"`, `"population"`).

    Args:
        n: reports counted.
        mean: the estimate in the unit of the domain, or the proportion of ones. Never clipped, since clipping would
            bias it: it may lie outside the domain. None when n = 0.
        stderr: standard error for each target; empty when n = 0.
        intervals: (lower, upper) for each target, clipped to the domain; empty when n = 0.
        methods: how each interval was made; empty when n = 0.
    """

    n: int
    mean: float | None = None
    stderr: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
