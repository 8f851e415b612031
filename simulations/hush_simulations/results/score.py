"""Score: the truth of a simulation, which only a simulation knows, and whether the error bars cover it."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hush_aggregator.estimate import ANYTIME, POPULATION, REPORTERS
from hush_common.domain import CategoryDomain, Domain, VectorDomain
from hush_simulations.scenarios.population import Value

__all__ = ["Score", "covered", "errors", "score", "truth"]

Truth = Mapping[str, float]
_KINDS = ("intervals", "joint_intervals")


@dataclass(frozen=True, slots=True)
class Score:
    """A result beside the truth.

    For a number or a bit each is keyed by target. For categories and vectors each has a list `"categories"` or
    `"coordinates"` of such objects, each with its `"label"` or `"name"`.

    Args:
        truth: what the error bars are about.
        covered: whether each interval holds its truth; for categories `"joint"` says whether all of the joint ones do.
        error: estimate less truth.
    """

    truth: dict[str, Any]
    covered: dict[str, Any]
    error: dict[str, Any]


def score(
    domain: Domain,
    result: Mapping[str, Any],
    values: Sequence[Value],
    population_mean: float | tuple[float, ...] | None,
) -> Score:
    """Judge the result document of a round.

    Args:
        domain: of the task.
        result: the document.
        values: the true values of the devices that reported, before any clamping.
        population_mean: mean of the distribution they were drawn from, or None where nobody knows it.
    """
    match domain:
        case CategoryDomain(labels=labels):
            counts, n = Counter(values), len(values)
            shares = [{REPORTERS: counts[label] / n} if n else {} for label in labels]
            return _parts(("categories", "label"), labels, result, _with_population(shares, population_mean))
        case VectorDomain(coordinates=coordinates):
            names = [coordinate.name for coordinate in coordinates]
            columns = list(zip(*_vectors(values), strict=True)) or [()] * len(names)
            means = [truth(column, None) for column in columns]
            return _parts(("coordinates", "name"), names, result, _with_population(means, population_mean))
    mean = None if isinstance(population_mean, tuple) else population_mean
    truths = truth([value for value in values if isinstance(value, float | int)], mean)
    return Score(dict(truths), dict(covered(result, truths)), errors(result.get("mean"), truths))


def truth(values: Sequence[float], population_mean: float | None) -> dict[str, float]:
    """What the two error bars are about.

    Args:
        values: the true values of the devices that reported, before any clamping.
        population_mean: mean of the distribution they were drawn from, or None where nobody knows it.

    Returns:
        `"reporters"`, the mean of the values (absent if nobody reported), and `"population"` if it is known.
    """
    known = {} if population_mean is None else {POPULATION: population_mean}
    return ({REPORTERS: math.fsum(values) / len(values)} if values else {}) | known


def covered(result: Mapping[str, Any], truths: Truth, kind: str = "intervals") -> dict[str, bool]:
    """For each interval whose truth is known, whether it holds it, ends included.

    Args:
        result: a result document, or a part of one (`intervals`: target → [lower, upper]); `methods` says which truth
            the interval `"anytime"` is about.
        truths: as `truth` returns them.
        kind: `"intervals"`, or `"joint_intervals"` of categories.
    """
    intervals: Mapping[str, Sequence[float]] = result.get(kind, {})
    methods = result.get("methods", {})
    about = {name: _watched(name, methods) if name.startswith(ANYTIME) else name for name in intervals}
    return {
        name: intervals[name][0] <= truths[target] <= intervals[name][1]
        for name, target in about.items()
        if target in truths
    }


def _watched(band: str, methods: Mapping[str, str]) -> str:
    """The target of a band: its name says it, `anytime_population`, or else its method starts with it."""
    return band.removeprefix(ANYTIME).removeprefix("_") or str(methods.get(band, "")).partition("-")[0]


def errors(estimate: float | None, truths: Truth) -> dict[str, float]:
    """The estimate less each truth; nothing where there is no estimate."""
    return {} if estimate is None else {target: estimate - mean for target, mean in truths.items()}


def _with_population(
    truths: Sequence[dict[str, float]], population: float | tuple[float, ...] | None
) -> list[dict[str, float]]:
    if not isinstance(population, tuple):
        return list(truths)
    return [known | {POPULATION: mean} for known, mean in zip(truths, population, strict=True)]


def _parts(words: tuple[str, str], names: Sequence[str], result: Mapping[str, Any], truths: Sequence[Truth]) -> Score:
    many, one = words
    facts: Sequence[Mapping[str, Any]] = result.get(many) or [{}] * len(names)
    methods = result.get("methods", {})
    found = [
        {kind: covered({"methods": methods, **fact}, about, kind) for kind in _KINDS if kind in fact}
        for fact, about in zip(facts, truths, strict=True)
    ]
    off = [errors(fact.get("frequency", fact.get("mean")), about) for fact, about in zip(facts, truths, strict=True)]
    joint = _all_of([verdict["joint_intervals"] for verdict in found if "joint_intervals" in verdict])
    return Score(
        {many: _named(one, names, truths)},
        {many: _named(one, names, found)} | ({"joint": joint} if joint else {}),
        {many: _named(one, names, off)},
    )


def _named(one: str, names: Sequence[str], facts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{one: name, **fact} for name, fact in zip(names, facts, strict=True)]


def _all_of(verdicts: Sequence[Mapping[str, bool]]) -> dict[str, bool]:
    """For each interval that all categories have, whether all are covered at once: what the joint ones promise."""
    return {
        target: all(verdict[target] for verdict in verdicts)
        for target in (verdicts[0] if verdicts else ())
        if all(target in verdict for verdict in verdicts)
    }


def _vectors(values: Sequence[Value]) -> Iterator[tuple[float, ...]]:
    return (value for value in values if isinstance(value, tuple))
