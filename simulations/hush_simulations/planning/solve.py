"""From a question to its plan: sample size, epsilon or error from the other two."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from operator import itemgetter

from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_common.mechanisms.registry import choose, fitting
from hush_simulations.planning.costs import (
    Family,
    Known,
    MechanismCost,
    central,
    offered,
    references,
    sampling_variance,
)
from hush_simulations.planning.plan import Amount, Plan, PlanLine, PlanQuestion, range_of
from hush_simulations.planning.precision import (
    TARGETS,
    Target,
    epsilon_for,
    error_of,
    people_for,
    sampling_error,
)

__all__ = ["solve"]


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
    """The lines of hush's own mechanisms, but of one that is not there for every epsilon, and is none for this."""
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
    """The line with the unknown for `target`, and the parameters where there is one epsilon to have them at."""
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
    """The one that is unknown; None if it is neither, or beyond reach."""
    if question.people is None:
        return None if question.error is None else people_for(cost, target, question.error, question.confidence)
    if question.error is None:
        return error_of(cost, target, question.people, question.confidence) * range_of(question.domain)
    return None


def _auto(question: PlanQuestion, known: Known, lines: Sequence[PlanLine], target: Target) -> tuple[str, Amount] | None:
    """The mechanism that `mechanism = "auto"` means, and what it takes; None where that reaches no such error.

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
    """How many times the amount of `auto`; None where the line has none, or so large an epsilon makes that 0."""
    if target not in line.amounts or not auto:
        return None
    return float(Fraction(line.amounts[target]) / Fraction(auto))
