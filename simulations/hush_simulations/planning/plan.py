"""Plan a question: sample size, epsilon or error from the other two."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import sqrt
from operator import itemgetter
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_aggregator.estimate.finite_channel import KEPT, Values
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain
from hush_common.epsilon import at_most_sure, decimal_text, float_at_most
from hush_common.mechanisms.registry import choose, fitting
from hush_simulations.planning.costs import (
    TARGETS,
    Family,
    Known,
    MechanismCost,
    Target,
    central,
    epsilon_for,
    error_of,
    offered,
    people_for,
    references,
    sampling_error,
    sampling_variance,
)

Unknown: TypeAlias = Literal["people", "epsilon", "error"]
Amount: TypeAlias = int | float | Fraction
"""The unknown: people, an error in the unit of the value, or an epsilon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnValues:
    """Known values, whose variance replaces the worst one. They are never shown."""

    known: Known = field(repr=False)
    rows: Mapping[str, object]
    column: str
    deviation: float | None

    def to_document(self) -> dict[str, Any]:
        """Return what a plan says about them."""
        deviation = {} if self.deviation is None else {"standard_deviation": self.deviation}
        return {"column": self.column, **self.rows, **deviation}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """A question; exactly one of people, epsilon and error is None: the unknown.

    The error is a share of the range; without a confidence it is a root mean square. Without data it assumes the worst.
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
    """One mechanism, or a reference.

    `amounts` has what it takes, by target; unreachable targets are absent. `relative` is the ratio of people (or of
    epsilons, if unknown) to those of `auto`; of the trusted collector that of errors, if they are the unknown.
    """

    mechanism: str
    amounts: Mapping[str, Amount] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    relative: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every mechanism that fits, the choice of `auto`, and a trusted collector.

    `auto` names a mechanism by target: the same for both unless epsilon is the unknown; unreachable targets are absent.
    """

    question: PlanQuestion
    mechanisms: tuple[PlanLine, ...]
    for_comparison: tuple[PlanLine, ...]
    trusted_collector: PlanLine
    auto: Mapping[str, str]

    @property
    def price_of_no_trust(self) -> Mapping[str, float]:
        """By target, how many times as much it takes without a trusted collector."""
        return {target: 1 / relative for target, relative in self.trusted_collector.relative.items()}

    @property
    def cheapest(self) -> Mapping[str, str]:
        """By target, the mechanism of hush that needs the least; `auto` if it needs no more than another."""
        found = {}
        for target in (REPORTERS, POPULATION):
            able = [line for line in self.mechanisms if target in line.amounts]
            if able:
                auto = self.auto.get(target)
                best = min(able, key=lambda line: (line.amounts[target], line.mechanism != auto))
                found[target] = best.mechanism
        return found

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object, without unknown fields."""
        document = {"unknown": self.question.unknown, **_known(self.question)}
        if self.auto:
            document["auto"] = dict(self.auto)
        if self.cheapest:
            document["cheapest"] = dict(self.cheapest)
        document |= {
            "mechanisms": [_line_document(self.question, line) for line in self.mechanisms],
            "for_comparison": [_line_document(self.question, line) for line in self.for_comparison],
            "trusted_collector": _line_document(self.question, self.trusted_collector),
        }
        if self.price_of_no_trust:
            document["price_of_no_trust"] = dict(self.price_of_no_trust)
        return document


def range_of(domain: Domain) -> float:
    """Return the width of the domain, or of the first coordinate; 1 for shares."""
    lower, upper = domain.parts[0].axis
    return upper - lower


def _line_document(question: PlanQuestion, line: PlanLine) -> dict[str, Any]:
    """The parameters come before the first target that has them."""
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
    document: dict[str, Any] = {"kind": domain.kind}
    if domain.parts_field:
        document[domain.parts_field] = len(domain.parts)
    for first in domain.numbers[:1]:
        document |= {"lower": first.lower, "upper": first.upper, "unit": first.unit}
    return document


_GRID = 1025
"""Places that represent all values between the bounds, for people who have none and answer with any."""


def own_values(domain: Domain, values: Sequence[object], rows: Mapping[str, object], column: str) -> OwnValues:
    """Return how the values of a column are distributed; a number beyond a bound counts as the bound, as on a device.

    None is a device without a value, which answers with any valid one. `rows` has the counts of the table's rows.
    """
    present = [value for value in values if value is not None]
    absent = 1 - len(present) / len(values)
    match domain:
        case NumberDomain(lower=lower, upper=upper):
            places = (np.clip(np.array(present, dtype=np.float64), lower, upper) - lower) / (upper - lower)
            known: tuple[Values, ...] = (_mixed(places, np.linspace(0, 1, _GRID), absent),)
        case BitDomain():
            known = (_mixed(np.array(present, dtype=np.float64), np.array([0.0, 1.0]), absent),)
        case CategoryDomain(labels=labels):
            counts = {label: present.count(label) for label in labels}
            shares = [(1 - absent) * count / max(len(present), 1) + absent / len(labels) for count in counts.values()]
            known = tuple(Values(np.array([0.0, 1.0]), np.array([1 - share, share])) for share in shares)
        case _:
            raise TypeError("a plan from data is about one column")
    deviation = sqrt(known[0].moment(2)) * range_of(domain) if len(known) == 1 else None
    return OwnValues(known=known, rows=rows, column=column, deviation=deviation)


def _mixed(places: NDArray[np.float64], any_of: NDArray[np.float64], absent: float) -> Values:
    """The values, and a share spread evenly over others."""
    found, counts = np.unique(places, return_counts=True)
    shares = (1 - absent) * counts / max(len(places), 1)
    if not absent:
        return Values(found, shares)
    return Values(np.concatenate((found, any_of)), np.concatenate((shares, np.full(len(any_of), absent / len(any_of)))))


def solve(question: PlanQuestion) -> Plan:
    """Every mechanism that fits, what `auto` would pick, and a collector who is trusted."""
    known = () if question.data is None else question.data.known
    lines = list(_offered(question, known))
    others = [_line(question, name, family) for name, family in references(question.domain, known).items()]
    trusted = _line(question, "trusted collector", central(question.domain, known))
    auto = {target: found for target in TARGETS if (found := _auto(question, known, lines, target)) is not None}

    def compared(line: PlanLine) -> PlanLine:
        found = {target: _ratio(line, amount, target) for target, (_, amount) in auto.items()}
        squared = question.unknown == "error" and line is not trusted  # half the error takes four times the people
        relative: dict[str, float] = {
            target: one**2 if squared else one for target, one in found.items() if one is not None
        }
        return replace(line, relative=relative)

    return Plan(
        question=question,
        mechanisms=tuple(map(compared, lines)),
        for_comparison=tuple(map(compared, others)),
        trusted_collector=compared(trusted),
        auto={target: name for target, (name, _) in auto.items()},
    )


def _offered(question: PlanQuestion, known: Known) -> Iterator[PlanLine]:
    """The lines of hush's mechanisms that exist at this epsilon."""
    kinds = {kind.name: kind for kind in fitting(question.domain)}
    for name, family in offered(question.domain, known).items():
        line = _line(question, name, family)
        if line.amounts or line.parameters or not kinds[name].smallest():
            yield line


def _line(question: PlanQuestion, name: str, family: Family) -> PlanLine:
    line = PlanLine(mechanism=name)
    for target in TARGETS:
        line = _solved(question, family, target, line)
    return line


def _solved(question: PlanQuestion, family: Family, target: Target, line: PlanLine) -> PlanLine:
    """The line with the unknown for `target`, and the parameters if epsilon is known."""
    epsilon = question.epsilon
    if epsilon is None:
        epsilon = _least_epsilon(question, family, target)
        if epsilon is None:
            return line
        line = replace(line, amounts={**line.amounts, target: epsilon})
    cost = family(epsilon)
    if cost is None:
        return line
    if question.epsilon is not None or target == REPORTERS:
        line = replace(line, parameters=cost.parameters)
    amount = _people_or_error(question, cost, target)
    return line if amount is None else replace(line, amounts={**line.amounts, target: amount})


def _least_epsilon(question: PlanQuestion, family: Family, target: Target) -> Fraction | None:
    if question.people is None or question.error is None:
        return None
    variance = sampling_variance(() if question.data is None else question.data.known)
    if target == POPULATION and sampling_error(question.people, question.confidence, variance) > question.error:
        return None  # no epsilon reaches it: do not search
    return epsilon_for(family, target, question.people, question.error, question.confidence)


def _people_or_error(question: PlanQuestion, cost: MechanismCost, target: Target) -> Amount | None:
    """The unknown one; None if it is neither, or out of reach."""
    if question.people is None:
        return None if question.error is None else people_for(cost, target, question.error, question.confidence)
    if question.error is None:
        return error_of(cost, target, question.people, question.confidence) * range_of(question.domain)
    return None


def _auto(question: PlanQuestion, known: Known, lines: Sequence[PlanLine], target: Target) -> tuple[str, Amount] | None:
    """The mechanism that `mechanism = "auto"` chooses, and what it needs; None if it cannot reach the error.

    Public parameters alone decide it, not the data. Where epsilon is asked for, it is the smallest one that suffices
    for the mechanism that `auto` means at that epsilon.
    """
    reached = {line.mechanism: line.amounts[target] for line in lines if target in line.amounts}
    if question.epsilon is not None:
        name, _ = choose(question.domain, [question.epsilon])
        return (name, reached[name]) if name in reached else None
    own = [(name, at) for name, at in reached.items() if choose(question.domain, [Fraction(at)])[0] == name]
    if own:
        return min(own, key=itemgetter(1))
    families = offered(question.domain, known)
    epsilon = _least_epsilon(question, lambda at: families[choose(question.domain, [at])[0]](at), target)
    return None if epsilon is None else (choose(question.domain, [epsilon])[0], epsilon)


def _ratio(line: PlanLine, auto: Amount, target: Target) -> float | None:
    """The ratio to the amount of `auto`; None if the line has none, or if a large epsilon makes that 0."""
    if target not in line.amounts or not auto:
        return None
    return float(Fraction(line.amounts[target]) / Fraction(auto))
