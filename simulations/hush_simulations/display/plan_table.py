"""The answer of `hush plan` for a person."""

from collections.abc import Iterator
from fractions import Fraction

from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_aggregator.estimate.worst_case import KEPT
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import at_most_sure, decimal_text
from hush_common.figures import exact, percent_at_most, ratio, whole
from hush_common.terminal.screen import Block
from hush_common.terminal.table import Column, Row, Table
from hush_common.terminal.words import Sentence
from hush_simulations.display.error_words import error_in_words, is_share
from hush_simulations.planning.plan import Amount, OwnValues, Plan, PlanLine, PlanQuestion, Unknown

__all__ = ["amount_in_words", "blocks"]

_VISIBLE = 1.005  # times as dear, from which on it is told


def blocks(plan: Plan) -> Iterator[Block]:
    """The question, a line for each mechanism, and what follows."""
    yield Sentence("")
    yield Sentence(_heading(plan.question), "bold", hanging=2)
    yield Sentence("")
    yield _table(plan)
    yield Sentence("")
    yield from (Sentence(words, hanging=2) for words in _sentences(plan))
    yield Sentence("")


def _heading(question: PlanQuestion) -> str:
    known = []
    if question.people is not None:
        known.append(f"{whole(question.people)} people")
    if question.epsilon is not None:
        known.append(f"epsilon {decimal_text(question.epsilon)}")
    confidence = None if question.confidence is None else f"at {exact(question.confidence, scale=100)} %"
    if question.error_in_unit is not None:
        error = error_in_words(question.domain, question.error_in_unit)
        known.append(f"an error of {error} {confidence or '(root mean square)'}")
    else:
        known.append("root mean square" if confidence is None else f"half-width of the interval {confidence}")
    asked = {"people": "How many people?", "epsilon": "Which epsilon?", "error": "What error?"}[question.unknown]
    return f"{asked} {_domain(question.domain)}; {', '.join(known)}"


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
    if is_share(number):
        return ", in per cent of its range"
    return f" from {exact(number.lower)} to {exact(number.upper)} {number.unit}".rstrip()


def _table(plan: Plan) -> Table:
    unit = "epsilon" if plan.question.unknown == "epsilon" else "people"
    columns = [Column("mechanism"), Column("parameters")]
    columns += [Column(name, right=True) for name in (REPORTERS, POPULATION, f"× {unit}")]  # noqa: RUF001
    rows = [_row(plan, line) for line in plan.mechanisms] + [Row()]
    rows += [Row([line.mechanism, "not offered", *_cells(plan, line)], "dim") for line in plan.for_comparison]
    trusted = plan.trusted_collector
    rows.append(Row([trusted.mechanism, "central laplace", *_cells(plan, trusted)]))
    return Table(columns, rows)


def _row(plan: Plan, line: PlanLine) -> Row:
    is_chosen = line.mechanism == plan.auto
    parameters = ", ".join(f"{name} {whole(value)}" for name, value in line.parameters.items())
    name = line.mechanism + (" (auto)" if is_chosen else "")
    return Row([name, parameters, *_cells(plan, line)], "bold" if is_chosen else "")


def _cells(plan: Plan, line: PlanLine) -> Iterator[str]:
    for target in (REPORTERS, POPULATION):
        yield amount_in_words(plan.question.domain, line.amounts[target]) if target in line.amounts else "out of reach"
    comparable = not (line is plan.trusted_collector and plan.question.unknown == "error")
    yield "" if line.relative is None or not comparable else ratio(line.relative)


def amount_in_words(domain: Domain, amount: Amount) -> str:
    match amount:
        case int():
            return whole(amount)
        case Fraction():
            return decimal_text(amount)
        case _:
            return f"± {error_in_words(domain, amount)}"


def _sentences(plan: Plan) -> Iterator[str]:
    yield from _choice(plan)
    price, epsilon = plan.price_of_no_trust, plan.question.epsilon
    if price is not None and price > 1:
        yield _price(plan.question.unknown, price)
    if epsilon is not None:
        sure = percent_at_most(at_most_sure(epsilon))
        yield f"Epsilon {decimal_text(epsilon)}: whoever was 50/50 about a person becomes at most {sure} sure."
    yield "reporters: those who answer, noise alone. population: those of whom they are a random sample."
    data = plan.question.data
    basis = "Every figure is for worst-case values." if data is None else _basis(data, plan.question.domain)
    yield f"trusted collector: sees every value and adds noise to the mean, once. {basis}"
    if plan.question.confidence is not None:
        kept = exact(KEPT, scale=100)
        values = ", whatever the values" if data is None else " of such values"
        yield f"In {kept} % of samples{values}, no interval that hush prints is wider than planned."


def _basis(data: OwnValues, domain: Domain) -> str:
    """Whose values a plan is for, where they are somebody's own."""
    column = f" of the column {data.column}" if data.column else " of the file"
    deviation = "" if data.deviation is None else f", standard deviation {error_in_words(domain, data.deviation)}"
    return (
        f"Every figure is for values like those{column}{deviation}, not for worst-case values, and tells something "
        "about them: it is not private."
    )


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
