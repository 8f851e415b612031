"""The answer of `hush plan`, as the JSON object that it prints."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import decimal_text, posterior
from hush_common.mechanisms.tables import choose
from hush_simulations.planning.costs import Family, central, offered, references
from hush_simulations.planning.precision import (
    TARGETS,
    Target,
    epsilon_for,
    error_of,
    people_for,
    sampling_error,
)
from hush_simulations.planning.worst_case import KEPT

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
    lines = [_line(question, name, family) for name, family in offered(question.domain).items()]
    lines = [line for line in lines if line["mechanism"] != "table" or len(line) > 1]  # none for this epsilon
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


def _solved(question: Question, family: Family, target: Target) -> Iterator[tuple[str, Any]]:
    """The unknown under the name of `target`, and the parameters where there is one epsilon to have them at."""
    epsilon = question.epsilon
    if epsilon is None and question.people is not None and question.error is not None:
        if target == "population" and sampling_error(question.people, question.confidence) > question.error:
            return  # and so no epsilon reaches it: do not search
        epsilon = epsilon_for(family, target, question.people, question.error, question.confidence)
        if epsilon is not None:
            yield target, decimal_text(epsilon)
    line = None if epsilon is None else family(epsilon)
    if line is None:
        return
    if line.parameters and (question.epsilon is not None or target == "reporters"):
        yield "parameters", dict(line.parameters)
    if question.people is None and question.error is not None:
        people = people_for(line, target, question.error, question.confidence)
        if people is not None:
            yield target, people
    elif question.error is None and question.people is not None:
        yield target, error_of(line, target, question.people, question.confidence) * _range(question.domain)


def _auto(question: Question, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The line that `mechanism = "auto"` means; where epsilon is asked for, the one that needs least of it."""
    if question.epsilon is None:
        able = [line for line in lines if "reporters" in line and line["mechanism"] != "laplace"]
        return min(able, key=lambda line: Fraction(line["reporters"]), default=lines[0])
    names = {line["mechanism"]: line for line in lines}
    return names[choose(question.domain, [question.epsilon])[0]]


def _relative(question: Question, line: dict[str, Any], chosen: dict[str, Any]) -> dict[str, float]:
    if "reporters" not in line or "reporters" not in chosen:
        return {}
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
            return {"kind": "bit"}
        case CategoryDomain(labels=labels):
            return {"kind": "category", "categories": len(labels)}
        case VectorDomain(coordinates=coordinates):
            first = coordinates[0]
            size = {"coordinates": len(coordinates)}
            return {"kind": "vector", **size, "lower": first.lower, "upper": first.upper, "unit": first.unit}
        case NumberDomain():
            return {"kind": "number", "lower": domain.lower, "upper": domain.upper, "unit": domain.unit}


def _range(domain: Domain) -> float:
    match domain:
        case NumberDomain():
            return domain.upper - domain.lower
        case VectorDomain(coordinates=coordinates):
            return coordinates[0].upper - coordinates[0].lower
        case _:
            return 1.0
