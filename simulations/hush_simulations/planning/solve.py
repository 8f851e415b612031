"""From a question to its plan: sample size, epsilon or error from the other two."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_common.mechanisms.build import choose
from hush_common.mechanisms.registry import fitting
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
    chosen = _auto(question, lines)

    def compared(line: PlanLine) -> PlanLine:
        ratio = _ratio(line, chosen)
        if ratio is None or question.unknown != "error" or line is trusted:
            return replace(line, relative=ratio)
        return replace(line, relative=ratio**2)  # an error half as large takes four times the people

    return Plan(
        question=question,
        mechanisms=tuple(map(compared, lines)),
        for_comparison=tuple(map(compared, others)),
        trusted_collector=compared(trusted),
        auto=chosen.mechanism if REPORTERS in chosen.amounts else None,
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


def _auto(question: PlanQuestion, lines: Sequence[PlanLine]) -> PlanLine:
    """The line that `mechanism = "auto"` means; where epsilon is asked for, the one that needs least of it."""
    if question.epsilon is None:
        names = [kind.name for kind in fitting(question.domain) if kind.auto]
        able = [line for line in lines if REPORTERS in line.amounts and line.mechanism in names]
        best = min(able, key=lambda line: line.amounts[REPORTERS], default=lines[0])
        return next((line for line in able if _is_auto(question, line)), best) if question.data else best
    by_name = {line.mechanism: line for line in lines}
    return by_name[choose(question.domain, [question.epsilon])[0]]


def _is_auto(question: PlanQuestion, line: PlanLine) -> bool:
    """Whether `auto` means this mechanism at its epsilon: that is decided by public parameters, not by the data."""
    epsilon = line.amounts[REPORTERS]
    return isinstance(epsilon, Fraction) and choose(question.domain, [epsilon])[0] == line.mechanism


def _ratio(line: PlanLine, chosen: PlanLine) -> float | None:
    """How many times the amount of `auto`; None where one of them has none, or so large an epsilon makes it 0."""
    if REPORTERS not in line.amounts or not chosen.amounts.get(REPORTERS):
        return None
    return float(Fraction(line.amounts[REPORTERS]) / Fraction(chosen.amounts[REPORTERS]))
