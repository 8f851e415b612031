"""Plan: the answer of `hush plan`, and the JSON object that it prints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_aggregator.estimate.worst_case import KEPT
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import at_most_sure, decimal_text, float_at_most
from hush_simulations.planning.costs import Known

__all__ = ["Amount", "OwnValues", "Plan", "PlanLine", "PlanQuestion", "Unknown", "range_of"]

Unknown: TypeAlias = Literal["people", "epsilon", "error"]
Amount: TypeAlias = int | float | Fraction
"""Of what is unknown: people, an error in the unit of the value, or an epsilon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnValues:
    """Values that somebody has, whose variance takes the place of the worst one. They never show.

    Args:
        known: how they are distributed.
        rows: what became of the rows of the table, as a result tells it.
        column: that they are from.
        deviation: their standard deviation, in the unit of the value; None for categories, which have several.
    """

    known: Known = field(repr=False)
    rows: Mapping[str, object]
    column: str
    deviation: float | None

    def to_document(self) -> dict[str, Any]:
        """What a plan tells of them."""
        deviation = {} if self.deviation is None else {"standard_deviation": self.deviation}
        return {"column": self.column, **self.rows, **deviation}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """What is known; exactly one of people, epsilon and error is None.

    Args:
        domain: what is asked for.
        people: how many answer.
        epsilon: loss of one answer.
        error: as a share of the range.
        confidence: of the error bar; None where the error is a root mean square.
        data: whose values it is planned for; the worst ones if None.
    """

    domain: Domain
    people: int | None
    epsilon: Fraction | None
    error: float | None
    confidence: float | None
    data: OwnValues | None = None

    @property
    def unknown(self) -> Unknown:
        if self.people is None:
            return "people"
        return "epsilon" if self.epsilon is None else "error"

    @property
    def error_in_unit(self) -> float | None:
        """The error in the unit of the value."""
        return None if self.error is None else self.error * range_of(self.domain)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One way to ask.

    Args:
        mechanism: its name in a task file, or of a reference what it is.
        amounts: what it takes, by target; a target that no epsilon or number of people reaches is left out.
        parameters: that a task would hold, where there is one epsilon to have them at.
        relative: by target, how many times the people (or epsilon, where that is asked for) of `auto` it takes; of the
            trusted collector how many times the error, where that is asked for. A target that this line or `auto` does
            not reach is left out.
    """

    mechanism: str
    amounts: Mapping[str, Amount] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    relative: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every mechanism that fits, what `auto` would pick, and a collector who is trusted.

    Args:
        question: what was known.
        mechanisms: that hush has.
        for_comparison: others.
        trusted_collector: who sees every value.
        auto: by target, the mechanism that a task file means by `auto`. It is the same for both targets unless epsilon
            is asked for. A target for which it does not reach what is asked for is left out.
    """

    question: PlanQuestion
    mechanisms: tuple[PlanLine, ...]
    for_comparison: tuple[PlanLine, ...]
    trusted_collector: PlanLine
    auto: Mapping[str, str]

    @property
    def price_of_no_trust(self) -> Mapping[str, float]:
        """By target, how many times as much it takes not to have to trust the collector."""
        return {target: 1 / relative for target, relative in self.trusted_collector.relative.items()}

    @property
    def cheapest(self) -> Mapping[str, str]:
        """By target, the mechanism of hush that needs the least; `auto` where it needs no more than another."""
        found = {}
        for target in (REPORTERS, POPULATION):
            able = [line for line in self.mechanisms if target in line.amounts]
            if able:
                auto = self.auto.get(target)
                best = min(able, key=lambda line: (line.amounts[target], line.mechanism != auto))
                found[target] = best.mechanism
        return found

    def to_document(self) -> dict[str, Any]:
        """The JSON object; what is not known is left out."""
        document = {"unknown": self.question.unknown, **_known(self.question)}
        if self.auto:
            document["auto"] = dict(self.auto)
        if self.cheapest:
            document["cheapest"] = dict(self.cheapest)
        document |= {
            "mechanisms": [_line(self.question, line) for line in self.mechanisms],
            "for_comparison": [_line(self.question, line) for line in self.for_comparison],
            "trusted_collector": _line(self.question, self.trusted_collector),
        }
        if self.price_of_no_trust:
            document["price_of_no_trust"] = dict(self.price_of_no_trust)
        return document


def range_of(domain: Domain) -> float:
    """The width of the domain, or of the first coordinate; 1 where an error is one of a share."""
    match domain:
        case NumberDomain():
            return domain.upper - domain.lower
        case VectorDomain(coordinates=coordinates):
            return coordinates[0].upper - coordinates[0].lower
        case _:
            return 1.0


def _line(question: PlanQuestion, line: PlanLine) -> dict[str, Any]:
    """The parameters stand before the first target that has them."""
    targets = {
        target: decimal_text(amount) if isinstance(amount, Fraction) else amount
        for target, amount in line.amounts.items()
    }
    parameters = {"parameters": dict(line.parameters)} if line.parameters else {}
    document: dict[str, Any] = {"mechanism": line.mechanism}
    if question.unknown == "epsilon":
        first = {target: targets[target] for target in (REPORTERS,) if target in targets}
        document |= first | parameters | {target: targets[target] for target in (POPULATION,) if target in targets}
    else:
        document |= parameters | targets
    return document | ({"relative": dict(line.relative)} if line.relative else {})


def _known(question: PlanQuestion) -> dict[str, Any]:
    known: dict[str, Any] = {"domain": _domain(question.domain)}
    if question.data is not None:
        known |= {"values": "of the data", "data": question.data.to_document()}
    if question.people is not None:
        known["people"] = question.people
    if question.epsilon is not None:
        known["epsilon"] = decimal_text(question.epsilon)
        known["observer_at_most_sure"] = float_at_most(at_most_sure(question.epsilon))
    if question.error is not None:
        known["error"] = question.error_in_unit
        known["error_of_range"] = question.error
    if question.confidence is None:
        return known | {"error_is": "root mean square"}
    return known | {"error_is": "half-width", "confidence": question.confidence, "kept_in": KEPT}


def _domain(domain: Domain) -> dict[str, Any]:
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
