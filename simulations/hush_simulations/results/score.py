"""Score: the truth of a simulation, which only a simulation knows, and whether the intervals cover it."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hush_aggregator.estimate import ANYTIME, POPULATION, REPORTERS, Estimate
from hush_aggregator.estimate.estimates import ByTarget, Intervals
from hush_common.domain import Domain
from hush_simulations.scenarios.population import Value

Covered = Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """An estimate next to the truth, by target.

    `covered` says whether each interval holds its truth, `joint` the same of simultaneous ones; `error` is the estimate
    less the truth. Of categories and vectors the whole has only `parts` and `joint`.
    """

    truth: ByTarget = field(default_factory=dict)
    covered: Covered = field(default_factory=dict)
    error: ByTarget = field(default_factory=dict)
    joint: Covered = field(default_factory=dict)
    parts: Mapping[str, "Score"] = field(default_factory=dict)


def score(
    domain: Domain,
    estimate: Estimate,
    values: Sequence[Value],
    population_mean: float | tuple[float, ...] | None,
) -> Score:
    """Compare the estimate of a round with the devices' true values, before any clamping."""
    return score_of_truth(domain, estimate, truths(domain, values), population_mean)


def score_of_truth(
    domain: Domain,
    estimate: Estimate,
    truths: Sequence[float | None],
    population_mean: float | tuple[float, ...] | None,
) -> Score:
    """Compare the estimate of a round with the mean of each coordinate or the share of each label."""
    known = [{} if mean is None else {REPORTERS: mean} for mean in truths]
    if domain.parts_field:
        return _of_parts(domain, estimate, _with_population(known, population_mean))
    mean = None if isinstance(population_mean, tuple) else population_mean
    about = known[0] | ({} if mean is None else {POPULATION: mean})
    return Score(
        truth=about,
        covered=covered(estimate.intervals, estimate.methods, about),
        error=errors(estimate.mean, about),
    )


def truths(domain: Domain, values: Sequence[Value]) -> list[float | None]:
    """Return the mean of the values, of each coordinate, or the share of each label; None without values."""
    if domain.value_names:
        columns = list(zip(*_vectors(values), strict=True)) or [()] * len(domain.parts)
        return [_mean([number for number in column if number is not None]) for column in columns]
    if domain.parts_field:
        counts = Counter(value for value in values if value is not None)
        n = counts.total()
        return [counts[part.name] / n if n else None for part in domain.parts]
    return [_mean([value for value in values if isinstance(value, float | int)])]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def covered(intervals: Intervals, methods: Mapping[str, str], truths: ByTarget) -> dict[str, bool]:
    """Return for each interval whose truth is known whether it holds it, ends included."""
    about = {name: _watched(name, methods) if name.startswith(ANYTIME) else name for name in intervals}
    return {
        name: intervals[name][0] <= truths[target] <= intervals[name][1]
        for name, target in about.items()
        if target in truths
    }


def _watched(band: str, methods: Mapping[str, str]) -> str:
    """Return the target of an anytime interval: its key says it, or else its method starts with it."""
    return band.removeprefix(ANYTIME).removeprefix("_") or methods.get(band, "").partition("-")[0]


def errors(estimate: float | None, truths: ByTarget) -> dict[str, float]:
    """Return the estimate less each truth; empty without an estimate."""
    return {} if estimate is None else {target: estimate - mean for target, mean in truths.items()}


def _with_population(
    truths: Sequence[dict[str, float]], population: float | tuple[float, ...] | None
) -> list[dict[str, float]]:
    if not isinstance(population, tuple):
        return list(truths)
    return [known | {POPULATION: mean} for known, mean in zip(truths, population, strict=True)]


def _of_parts(domain: Domain, estimate: Estimate, truths: Sequence[ByTarget]) -> Score:
    parts = {part.name: Score(truth=known) for part, known in zip(domain.parts, truths, strict=True)}
    for one in estimate.parts:
        known = parts[one.name].truth
        parts[one.name] = Score(
            truth=known,
            covered=covered(one.intervals, one.methods, known),
            error=errors(one.mean, known),
            joint=covered(one.joint_intervals, one.methods, known),
        )
    return Score(parts=parts, joint=_all_of([parts[one.name].joint for one in estimate.parts if one.n]))


def _all_of(verdicts: Sequence[Covered]) -> dict[str, bool]:
    """Return for each interval that all parts have whether all are covered at once: the promise of joint ones."""
    return {
        target: all(verdict[target] for verdict in verdicts)
        for target in (verdicts[0] if verdicts else ())
        if all(target in verdict for verdict in verdicts)
    }


def _vectors(values: Sequence[Value]) -> Iterator[tuple[float | None, ...]]:
    return (value for value in values if isinstance(value, tuple))
