"""The answer of `hush plan` for a person."""

from collections.abc import Iterator
from fractions import Fraction

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_aggregator.estimate.worst_case import KEPT
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import at_most_sure, decimal_text
from hush_common.figures import exact, percent_at_most, ratio, significant, whole
from hush_simulations.display.number_format import say
from hush_simulations.planning.plan import Amount, Plan, PlanLine, PlanQuestion, Unknown

__all__ = ["print_plan"]

_NARROWEST = 100  # columns in a pipe, where nobody says how wide it is
_NARROW = 84  # below, there is no room for parameters
_VISIBLE = 1.005  # times as dear, from which on it is told


def print_plan(plan: Plan, console: Console) -> None:
    """Print a plan as a table and a few sentences."""
    if not console.is_terminal:
        console.width = max(console.width, _NARROWEST)
    console.print()
    say(console, _heading(plan.question), "bold")
    console.print(_table(plan, narrow=console.width < _NARROW))
    for sentence in _sentences(plan):
        say(console, sentence)
    console.print()


def _heading(question: PlanQuestion) -> str:
    known = []
    if question.people is not None:
        known.append(f"{whole(question.people)} people")
    if question.epsilon is not None:
        known.append(f"epsilon {decimal_text(question.epsilon)}")
    confidence = None if question.confidence is None else f"at {exact(question.confidence, scale=100)} %"
    if question.error_in_unit is not None:
        error = _error(question.domain, question.error_in_unit)
        known.append(f"an error of {error} {confidence or '(root mean square)'}")
    else:
        known.append("root mean square" if confidence is None else f"intervals {confidence}")
    asked = {"people": "How many people?", "epsilon": "Which epsilon?", "error": "What error?"}[question.unknown]
    return f"{asked}  {_domain(question.domain)}; {', '.join(known)}"


def _domain(domain: Domain) -> str:
    match domain:
        case BitDomain():
            return "the share of yes"
        case CategoryDomain(labels=labels):
            return f"the share of each of {len(labels)} categories"
        case VectorDomain(coordinates=coordinates):
            return f"the mean of each of {len(coordinates)} numbers{_bounds(coordinates[0])}"
        case NumberDomain():
            return f"the mean of a number{_bounds(domain)}"


def _bounds(number: NumberDomain) -> str:
    if _is_share(number):
        return ", in per cent of its range"
    return f" from {exact(number.lower)} to {exact(number.upper)} {number.unit}".rstrip()


def _is_share(number: NumberDomain) -> bool:
    """Whether nobody gave bounds, so that an error is one of the range."""
    return (number.lower, number.upper, number.unit) == (0, 1, "")


def _table(plan: Plan, *, narrow: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=True)
    for name in ("mechanism",) if narrow else ("mechanism", "parameters"):
        table.add_column(name, overflow="fold")
    unit = "epsilon" if plan.question.unknown == "epsilon" else "people"
    for name in (REPORTERS, POPULATION, f"times the {unit}"):
        table.add_column(name, justify="right", min_width=len("people") if name.startswith("times") else len(name))
    for line in plan.mechanisms:
        chosen = line.mechanism == plan.auto
        parameters = ", ".join(f"{name} {value}" for name, value in line.parameters.items())
        name = line.mechanism + (" (auto)" if chosen else "")
        table.add_row(*(name, parameters)[: 2 - narrow], *_cells(plan, line), style="bold" if chosen else "")
    table.add_section()
    for line in plan.for_comparison:
        table.add_row(*(line.mechanism, "not offered")[: 2 - narrow], *_cells(plan, line), style="dim")
    trusted = plan.trusted_collector
    table.add_row(*(trusted.mechanism, "central laplace")[: 2 - narrow], *_cells(plan, trusted))
    return table


def _cells(plan: Plan, line: PlanLine) -> Iterator[str]:
    for target in (REPORTERS, POPULATION):
        yield _amount(plan.question.domain, line.amounts[target]) if target in line.amounts else "out of reach"
    comparable = not (line is plan.trusted_collector and plan.question.unknown == "error")
    yield "" if line.relative is None or not comparable else ratio(line.relative)


def _amount(domain: Domain, amount: Amount) -> str:
    match amount:
        case int():
            return whole(amount)
        case Fraction():
            return decimal_text(amount)
        case _:
            return f"± {_error(domain, amount)}"


def _error(domain: Domain, value: float) -> str:
    """An error in the unit of the value, and in per cent of its range where that is another number."""
    match domain:
        case BitDomain() | CategoryDomain():
            points = significant(value, scale=100)
            return f"{points} {'point' if points == '1' else 'points'}"
        case VectorDomain(coordinates=coordinates):
            return _error_of_number(coordinates[0], value)
        case NumberDomain():
            return _error_of_number(domain, value)


def _error_of_number(number: NumberDomain, value: float) -> str:
    if _is_share(number):
        return f"{significant(value, scale=100)} %"
    share = Fraction(value) / (Fraction(number.upper) - Fraction(number.lower))
    return f"{significant(value)} {number.unit}".rstrip() + f" ({significant(share, scale=100)} %)"


def _sentences(plan: Plan) -> Iterator[str]:
    yield from _choice(plan)
    price, epsilon = plan.price_of_no_trust, plan.question.epsilon
    if price is not None and price > 1:
        yield _price(plan.question.unknown, price)
    if epsilon is not None:
        sure = percent_at_most(at_most_sure(epsilon))
        yield f"Epsilon {decimal_text(epsilon)}: whoever was 50/50 about a person becomes at most {sure} sure."
    yield "reporters: those who answer, noise alone. population: those of whom they are a random sample."
    yield "trusted collector: sees every value and adds noise to the mean, once. Every figure is for worst-case values."
    if plan.question.confidence is not None:
        kept = exact(KEPT, scale=100)
        yield f"In {kept} % of samples, whatever the values, no interval that hush prints is wider than planned."


def _choice(plan: Plan) -> Iterator[str]:
    if plan.auto is None:
        yield "No mechanism achieves this error: ask more people, or accept a larger one."
        return
    dearer = [
        (line.mechanism, line.relative)
        for line in (*plan.mechanisms, *plan.for_comparison)
        if line.mechanism != plan.auto and line.relative is not None and line.relative > _VISIBLE
    ]
    costs = [f"{name} {ratio(relative)} times" for name, relative in dearer]
    if costs:
        much = "the epsilon" if plan.question.unknown == "epsilon" else "as many people"
        same = " for the same error" if plan.question.unknown == "error" else ""
        name, relative = dearer[0]
        costs[0] = f"{name} needs {ratio(relative)} times {much}{same}"
    yield f"auto picks {plan.auto}" + ("; " + ", ".join(costs) if costs else "") + "."


def _price(unknown: Unknown, price: float) -> str:
    much = {"people": "as many people", "epsilon": "the epsilon", "error": "the error"}[unknown]
    return f"Cost of local versus central DP: {ratio(price)} times {much}."
