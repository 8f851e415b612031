"""The answer of `hush plan`, as the JSON object that it prints."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from hush_aggregator.estimate.worst_case import KEPT
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import decimal_text, posterior
from hush_common.mechanisms.build import choose
from hush_common.mechanisms.registry import fitting
from hush_simulations.planning.costs import Family, MechanismCost, central, offered, references
from hush_simulations.planning.precision import (
    TARGETS,
    Target,
    epsilon_for,
    error_of,
    people_for,
    sampling_error,
)

__all__ = ["Question", "answer"]

_Unknown = Literal["people", "epsilon", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is known; exactly one of people, epsilon and error is None.

    Args:
        domain: what is asked for.
        people: how many answer.
        epsilon: loss of one answer.
        error: as a share of the range.
        confidence: of the error bar; None where the error is a root mean square.
    """

    domain: Domain
    people: int | None
    epsilon: Fraction | None
    error: float | None
    confidence: float | None

    @property
    def unknown(self) -> _Unknown:
        if self.people is None:
            return "people"
        return "epsilon" if self.epsilon is None else "error"


def answer(question: Question) -> dict[str, Any]:
    """Every mechanism that fits, what `auto` would pick, and a collector who is trusted.

    `relative` is how many times the people (or epsilon, where that is asked for) of `auto` a line takes, for
    `reporters`. A target that no epsilon or number of people reaches is left out of its line.
    """
    lines = list(_offered(question))
    others = [_line(question, name, family) for name, family in references(question.domain).items()]
    trusted = _line(question, "trusted collector", central(question.domain))
    chosen = _auto(question, lines)
    for line in (*lines, *others, trusted):
        line.update(_relative(question, line, chosen))
    found: dict[str, Any] = {"unknown": question.unknown, **_known(question)}
    if "reporters" in chosen:
        found["auto"] = chosen["mechanism"]
    found |= {"mechanisms": lines, "for_comparison": others, "trusted_collector": trusted}
    if "relative" in trusted:
        found["price_of_no_trust"] = 1 / trusted["relative"]
    return found


def _line(question: Question, name: str, family: Family) -> dict[str, Any]:
    line: dict[str, Any] = {"mechanism": name}
    for target in TARGETS:
        line |= dict(_solved(question, family, target))
    return line


def _offered(question: Question) -> Iterator[dict[str, Any]]:
    """The lines of hush's own mechanisms, but of one that is not there for every epsilon, and is none for this."""
    kinds = {kind.name: kind for kind in fitting(question.domain)}
    for name, family in offered(question.domain).items():
        line = _line(question, name, family)
        if len(line) > 1 or not kinds[name].smallest():
            yield line


def _solved(question: Question, family: Family, target: Target) -> Iterator[tuple[str, Any]]:
    """The unknown under the name of `target`, and the parameters where there is one epsilon to have them at."""
    epsilon = question.epsilon
    if epsilon is None:
        epsilon = _least_epsilon(question, family, target)
        if epsilon is None:
            return
        yield target, decimal_text(epsilon)
    line = family(epsilon)
    if line is None:
        return
    if line.parameters and (question.epsilon is not None or target == "reporters"):
        yield "parameters", dict(line.parameters)
    value = _people_or_error(question, line, target)
    if value is not None:
        yield target, value


def _least_epsilon(question: Question, family: Family, target: Target) -> Fraction | None:
    if question.people is None or question.error is None:
        return None
    if target == "population" and sampling_error(question.people, question.confidence) > question.error:
        return None  # no epsilon reaches it: do not search
    return epsilon_for(family, target, question.people, question.error, question.confidence)


def _people_or_error(question: Question, line: MechanismCost, target: Target) -> float | None:
    """The one that is unknown; None if it is neither, or beyond reach."""
    if question.people is None:
        return None if question.error is None else people_for(line, target, question.error, question.confidence)
    if question.error is None:
        return error_of(line, target, question.people, question.confidence) * _range(question.domain)
    return None


def _auto(question: Question, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The line that `mechanism = "auto"` means; where epsilon is asked for, the one that needs least of it."""
    if question.epsilon is None:
        names = [kind.name for kind in fitting(question.domain) if kind.auto]
        able = [line for line in lines if "reporters" in line and line["mechanism"] in names]
        return min(able, key=lambda line: Fraction(line["reporters"]), default=lines[0])
    by_name = {line["mechanism"]: line for line in lines}
    return by_name[choose(question.domain, [question.epsilon])[0]]


def _relative(question: Question, line: dict[str, Any], chosen: dict[str, Any]) -> dict[str, float]:
    if "reporters" not in line or "reporters" not in chosen:
        return {}
    if not chosen["reporters"]:
        return {}  # so large an epsilon that the interval is a point
    ratio = float(Fraction(line["reporters"]) / Fraction(chosen["reporters"]))
    if question.unknown != "error":
        return {"relative": ratio}
    return {"relative": ratio if line["mechanism"] == "trusted collector" else ratio**2}


def _known(question: Question) -> dict[str, Any]:
    known: dict[str, Any] = {"domain": _kind(question.domain)}
    if question.people is not None:
        known["people"] = question.people
    if question.epsilon is not None:
        known["epsilon"] = decimal_text(question.epsilon)
        known["observer_at_most_sure"] = posterior(question.epsilon)
    if question.error is not None:
        known["error"] = question.error * _range(question.domain)
        known["error_of_range"] = question.error
    if question.confidence is None:
        return known | {"error_is": "root mean square"}
    return known | {"error_is": "half-width", "confidence": question.confidence, "kept_in": KEPT}


def _kind(domain: Domain) -> dict[str, Any]:
    match domain:
        case BitDomain():
            return {"kind": domain.kind}
        case CategoryDomain(labels=labels):
            return {"kind": domain.kind, "categories": len(labels)}
        case VectorDomain(coordinates=coordinates):
            first = coordinates[0]
            size = {"coordinates": len(coordinates)}
            return {"kind": domain.kind, **size, "lower": first.lower, "upper": first.upper, "unit": first.unit}
        case NumberDomain():
            return {"kind": domain.kind, "lower": domain.lower, "upper": domain.upper, "unit": domain.unit}


def _range(domain: Domain) -> float:
    match domain:
        case NumberDomain():
            return domain.upper - domain.lower
        case VectorDomain(coordinates=coordinates):
            return coordinates[0].upper - coordinates[0].lower
        case _:
            return 1.0
