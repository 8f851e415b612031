"""Categories and coordinates as tables and pictures show them."""

from dataclasses import dataclass, field

from hush_aggregator.estimate.estimates import ByTarget, Intervals
from hush_aggregator.presentation import NumberFormat
from hush_simulations.results.run import PooledRounds, Round
from hush_simulations.results.score import Score

_DIGITS = 2  # of the standard error: a row has to fit into 80 columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One category or coordinate, as it is shown.

    Args:
        name: its label or name.
        score: its comparison with the truth.
        wording: the format of its numbers.
        estimate: its frequency or mean, or None.
        intervals: individual ones.
        stderr: by target.
        unit: of a coordinate.
        bounds: the smallest and the largest legal value.
    """

    name: str
    score: Score
    wording: NumberFormat
    estimate: float | None = None
    intervals: Intervals = field(default_factory=dict)
    stderr: ByTarget = field(default_factory=dict)
    unit: str = ""
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def is_outside(self) -> bool:
        """Return whether the estimate is outside the bounds, as an unbiased one may be."""
        return self.estimate is not None and not self.bounds[0] <= self.estimate <= self.bounds[1]


def parts_of(done: Round | PooledRounds) -> list[Part]:
    """Return the parts of a round, in the order of the task; without an estimate only the truth."""
    scores, domain = done.score.parts, done.result.task.domain

    def wording(error: float | None) -> NumberFormat:
        return NumberFormat.share(error, _DIGITS) if domain.is_share else NumberFormat.measured("", error, _DIGITS)

    found = [
        Part(
            name=one.name,
            score=scores[one.name],
            wording=wording(_largest(one.stderr)),
            estimate=one.mean,
            intervals=one.intervals,
            stderr=one.stderr,
            unit=one.unit,
            bounds=of.axis,
        )
        for one, of in zip(done.result.parts, domain.parts, strict=False)
    ]
    return found or [Part(name=name, score=score, wording=wording(None)) for name, score in scores.items()]


def _largest(stderr: ByTarget) -> float | None:
    return max(stderr.values(), default=None)
