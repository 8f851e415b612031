"""What hush plan and hush audit print."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from math import exp, floor, log10
from operator import itemgetter

from hush_aggregator.estimate import POPULATION
from hush_aggregator.estimate.finite_channel import KEPT
from hush_common.domain import Domain, NumberDomain
from hush_common.epsilon import at_most_sure, decimal_text
from hush_common.formatting import at_least, exact, fixed, percent_at_most, ratio, significant, whole
from hush_common.terminal import TIE, Cell, Column, Fact, Facts, Renderable, Row, Sentence, Styled, Table
from hush_simulations.auditing.audit import Finding, Tested
from hush_simulations.display.clamping import clamping_blocks
from hush_simulations.planning.feasibility import Feasibility, FeasibleLine
from hush_simulations.planning.plan import (
    TARGETS,
    TOLERANCE,
    Amount,
    OwnValues,
    Plan,
    PlanLine,
    PlanQuestion,
    Target,
    Unknown,
    range_of,
)


def error_in_words(domain: Domain, value: float) -> str:
    """An error in the unit of the value, and in per cent of its range where that is another number."""
    if domain.is_share:
        points = significant(value, scale=100)
        return f"{points}{TIE}{'point' if points == '1' else 'points'}"
    number = domain.numbers[0]
    if is_share(number):
        return f"{significant(value, scale=100)} %"
    share = Fraction(value) / (Fraction(number.upper) - Fraction(number.lower))
    return f"{significant(value)}{TIE}{number.unit}".rstrip() + f" ({significant(share, scale=100)} %)"


def is_share(number: NumberDomain) -> bool:
    """Whether nobody gave bounds, so that an error is one of the range."""
    return (number.lower, number.upper, number.unit) == (0, 1, "")


_SHORTER = 0.9  # than asked for, from which on a sentence tells it
_VISIBLE = 1.005  # times as dear, or as cheap, from which on a sentence tells it
_NEEDS: Mapping[Unknown, str] = {
    "people": "{} times as many people",
    "epsilon": "{} times the epsilon",
    "error": "about {} times as many people for the same error",
}
_TIMES: Mapping[Unknown, str] = {
    "people": "people, as a multiple of what auto needs.",
    "epsilon": "epsilon, as a multiple of what auto needs.",
    "error": "people for the same error, as a multiple of what auto needs: the square of the ratio of the errors.",
}


def plan_blocks(plan: Plan) -> Iterator[Renderable]:
    """The question, a line for each mechanism, and what follows."""
    yield from _clamping(plan.question.data)
    yield Sentence("")
    yield Sentence(heading_of(plan.question), "bold", hanging=2)
    yield Sentence("")
    yield _table(plan)
    yield Sentence("")
    yield from (Sentence(words, hanging=2) for words in _sentences(plan))
    yield Sentence("")


def _clamping(data: OwnValues | None) -> Iterator[Renderable]:
    """Yield first of all that the bounds cut off values."""
    if data is not None and data.clamping is not None:
        yield Sentence("")
        yield from clamping_blocks([data.clamping])


def heading_of(question: PlanQuestion) -> str:
    """Return the question of a plan in one line."""
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
    return f"{asked} {_asked(question.domain)}; {', '.join(known)}"


def _asked(domain: Domain) -> str:
    estimand = domain.estimand
    return estimand[0].upper() + estimand[1:] + "".join(map(_bounds, domain.numbers[:1]))


def _bounds(number: NumberDomain) -> str:
    if is_share(number):
        return ", in per cent of its range"
    return f" from {exact(number.lower)} to {exact(number.upper)} {number.unit}".rstrip()


def _table(plan: Plan) -> Table:
    columns = [Column("mechanism"), Column("parameters")]
    for target in TARGETS:
        columns += [Column(target, right=True), Column(f"× {target}", right=True)]  # noqa: RUF001
    rows = [_row(plan, line) for line in plan.mechanisms] + [Row()]
    rows += [Row([line.mechanism, "not offered", *_cells(plan, line)], "dim") for line in plan.for_comparison]
    trusted = plan.trusted_collector
    rows.append(Row([trusted.mechanism, "central laplace", *_cells(plan, trusted)]))
    return Table(columns, rows)


def _row(plan: Plan, line: PlanLine) -> Row:
    is_chosen = line.mechanism in plan.auto.values()
    parameters = ", ".join(f"{name} {whole(value)}" for name, value in line.parameters.items())
    name = line.mechanism + (" (auto)" if is_chosen else "")
    return Row([name, parameters, *_cells(plan, line)], "bold" if is_chosen else "")


def _cells(plan: Plan, line: PlanLine) -> Iterator[str]:
    comparable = not (line is plan.trusted_collector and plan.question.unknown == "error")
    for target in TARGETS:
        yield amount_in_words(plan.question.domain, line.amounts[target]) if target in line.amounts else "out of reach"
        yield ratio(line.relative[target]) if comparable and target in line.relative else ""


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
    epsilon = plan.question.epsilon
    prices = plan.price_of_no_trust.items()
    if costs := [f"{ratio(price)} times for the {target}" for target, price in prices if price > 1]:
        yield f"Cost of local versus central DP, in {plan.question.unknown}: {' and '.join(costs)}."
    if epsilon is not None:
        sure = percent_at_most(at_most_sure(epsilon))
        yield f"Epsilon {decimal_text(epsilon)}: an observer at 50/50 about a person becomes at most {sure} sure."
    yield "reporters: those who answer, noise alone. population: those of whom they are a random sample."
    yield f"× reporters, × population: {_TIMES[plan.question.unknown]}"  # noqa: RUF001
    data = plan.question.data
    basis = "Every figure is for worst-case values." if data is None else _basis(data, plan.question.domain)
    yield f"trusted collector: sees every value and adds noise to the mean, once. {basis}"
    if plan.question.confidence is not None:
        yield _promise("planned", data)


def _promise(than: str, data: OwnValues | None) -> str:
    """Return which intervals are no wider, in how many samples."""
    values = ", whatever the values" if data is None else " of such values"
    return (
        f"In {exact(KEPT, scale=100)} % of samples{values}, the intervals for the reporters and for the population are "
        f"at most {significant(TOLERANCE, scale=100)} % wider than {than}; those at any time are wider."
    )


def _basis(data: OwnValues, domain: Domain) -> str:
    column = f" of the column {data.column}" if data.column else " of the file"
    deviation = "" if data.deviation is None else f", standard deviation {error_in_words(domain, data.deviation)}"
    return (
        f"Every figure is for values like those{column}{deviation}, not for worst-case values, and tells something "
        "about them: it is not private."
    )


def _choice(plan: Plan) -> Iterator[str]:
    names = set(plan.auto.values())
    if len(names) == 1:
        yield f"auto picks {names.pop()}."
    elif names:
        yield f"auto picks {' and '.join(f'{name} for the {target}' for target, name in plan.auto.items())}."
    elif not plan.cheapest:
        yield f"No mechanism achieves this error: {_remedy(plan.question)}."
        return
    for target in TARGETS:
        yield from _compared(plan, target)
    yield from _shorter(plan)


def _shorter(plan: Plan) -> Iterator[str]:
    """Yield where `auto` needs so many people because the method of the interval changes there to a narrower one."""
    room = plan.question.room
    error = None if plan.question.domain.is_share or room is None else room * range_of(plan.question.domain)
    for line in plan.mechanisms:
        for target, half in line.half_widths.items():
            people = int(line.amounts[target])
            if line.mechanism != plan.auto.get(target) or error is None or half > _SHORTER * error or people == 1:
                continue
            wanted, found = (error_in_words(plan.question.domain, one) for one in (error, half))
            yield (
                f"With {whole(people)} people the interval for the {target} is ± {found}, with {whole(people - 1)} it "
                f"is wider than ± {wanted}: from {whole(people)} reports on its method is another one."
            )


def _remedy(question: PlanQuestion) -> str:
    if question.room is not None and question.room <= 0:
        return "the bounds alone make a larger one; widen them"
    return "ask more people, or accept a larger one"


def _compared(plan: Plan, target: Target) -> Iterator[str]:
    if target not in plan.cheapest:
        yield f"For the {target}, no mechanism achieves this error: {_remedy(plan.question)}."
        return
    if target not in plan.auto:
        yield f"For the {target}, auto does not achieve this error; {plan.cheapest[target]} does."
        return
    others = [line for line in (*plan.mechanisms, *plan.for_comparison) if line.mechanism != plan.auto[target]]
    found = [(line.mechanism, line.relative[target]) for line in others if target in line.relative]
    cheaper = sorted((one for one in found if one[1] * _VISIBLE < 1), key=itemgetter(1))
    dearer = [one for one in found if one[1] > _VISIBLE]
    if not cheaper and not dearer:
        return
    (name, relative), *rest = [*cheaper, *dearer]
    costs = [f"{name} needs {_NEEDS[plan.question.unknown].format(significant(relative))}"]
    costs += [f"{name} {significant(relative)} times" for name, relative in rest]
    offered = {line.mechanism for line in plan.mechanisms}
    remark = "auto is not the cheapest: " if any(name in offered for name, _ in cheaper) else ""
    yield f"For the {target}, {remark}{', '.join(costs)}."


def feasibility_blocks(found: Feasibility) -> Iterator[Renderable]:
    """Yield the question, a line for each epsilon, and what follows."""
    yield from _clamping(found.data)
    yield Sentence("")
    yield Sentence(feasibility_heading(found), "bold", hanging=2)
    yield Sentence("")
    yield _feasibility_table(found)
    yield Sentence("")
    yield from (Sentence(words, hanging=2) for words in _feasibility_sentences(found))
    yield Sentence("")


def feasibility_heading(found: Feasibility) -> str:
    """Return the question in one line."""
    return f"Is it feasible? {feasibility_asked(found)}; {half_width_in_words(found)}; goal {goal_in_words(found)}"


def feasibility_asked(found: Feasibility) -> str:
    """Return what is asked, and of how many people."""
    people = "" if found.people is None else f", {whole(found.people)} {'person' if found.people == 1 else 'people'}"
    return _asked(found.domain) + people


def half_width_in_words(found: Feasibility) -> str:
    """Return what a half-width is in, and how sure it is."""
    unit = unit_of(found.domain)
    return f"±{TIE}{f'in {unit} ' if unit else ''}at {exact(found.confidence, scale=100)} %"


def goal_in_words(found: Feasibility) -> str:
    """Return the wanted half-width."""
    return f"±{TIE}{error_in_words(found.domain, found.goal)}"


def _feasibility_table(found: Feasibility) -> Table:
    epsilon = Column("epsilon", right=True, point=True, named=True)
    columns = [epsilon, Column("observer", right=True), Column("mechanism")]
    if found.people is not None:
        columns += [Column(f"± {target}", right=True, point=True) for target in (*TARGETS, "trusted")]
    columns.append(Column("people for the goal", right=True))
    return Table(columns, [_feasible_row(found, line) for line in found.lines])


def _feasible_row(found: Feasibility, line: FeasibleLine) -> Row:
    share = found.domain.is_share or is_share(found.domain.numbers[0])

    def number(of: Mapping[str, float], target: str) -> str:
        return significant(of[target], scale=100 if share else 1)

    cells: list[Cell] = [decimal_text(line.epsilon), percent_at_most(line.observer), line.mechanism]
    if found.people is not None:
        cells += [number(line.half_widths, target) for target in TARGETS] + [number(line.trusted, POPULATION)]
    needed = line.people.get(POPULATION)
    return Row([*cells, "out of reach" if needed is None else whole(needed)])


def unit_of(domain: Domain) -> str:
    """Return the unit of an error."""
    if domain.is_share:
        return "points"
    number = domain.numbers[0]
    return "% of the range" if is_share(number) else number.unit


def _feasibility_sentences(found: Feasibility) -> Iterator[str]:
    if found.people is not None:
        line = found.reaching(POPULATION)
        if found.room <= 0:
            yield "No number of people reaches the goal: the bounds alone make a larger error. Widen them."
        elif line is not None:
            yield f"From epsilon {decimal_text(line.epsilon)} on, these people reach the goal for the population."
        else:
            yield "At none of these epsilons do these people reach the goal for the population."
        yield "± reporters: those who answer, noise alone. ± population: those of whom they are a random sample."
        yield (
            "± trusted: what a trusted collector would have for the population, who sees every value and adds noise to "
            "the mean, once."
        )
    yield "observer: how sure somebody at 50/50 about a person becomes at most, who sees that person's report."
    yield f"people for the goal: how many have to answer, for the population{_in_the_room(found)}."
    yield "Every figure is for worst-case values." if found.data is None else _basis(found.data, found.domain)
    yield _promise("this", found.data)


def _in_the_room(found: Feasibility) -> str:
    """Return what people may reach where the bounds leave less of the goal."""
    if not 0 < found.room < found.goal:
        return ""
    return f": an interval of ± {error_in_words(found.domain, found.room)}, since the bounds take the rest"


_LABELS = len("measured")
_PLACES = 4  # of an epsilon, rounded down
_SHARES = 2


def audit_blocks(findings: Sequence[Finding], confidence: float) -> Iterator[Renderable]:
    """Yield each finding, and what a verdict means; `confidence` is of all verdicts together."""
    for one in findings:
        yield Sentence(one.name, "bold", indent=0, hanging=2)
        yield Facts([*_facts(one)], least=_LABELS)
        yield Sentence("")
    chance = f"{significant(1 - Decimal(repr(confidence)), 2, scale=100)} %"
    together = " (all verdicts together)" if len(findings) > 1 else ""
    claims = any(one.declared is not None for one in findings)
    mistake = "of a false VIOLATION" if claims else "that a measured epsilon is above the true one"
    yield Sentence(f"The probability {mistake} is at most {chance}{together}.", indent=0)
    if any(one.verdict is not None and not one.is_violation for one in findings):
        yield Sentence(
            "Consistent is not a proof: it means that these reports show no more than the claimed epsilon.", indent=0
        )


def _facts(one: Finding) -> Iterator[Fact]:
    found = one.measured
    if one.declared is not None:
        most = percent_at_most(at_most_sure(one.declared))
        yield Fact("claimed", f"epsilon {decimal_text(one.declared)}: no observer is right more often than {most}")
    least = f"{at_least(100 / (1 + exp(-found.bound)), _SHARES)} %"
    bound = f"epsilon ≥ {at_least(found.bound, _PLACES)}"
    yield Fact(
        "measured", f"{bound}: an observer is right in at least {least}, at {_sure(found.confidence)} confidence"
    )
    if one.verdict is not None:
        verdict: Cell = Styled(one.verdict.upper(), "red") if one.is_violation else Styled(one.verdict, "green")
        yield Fact("verdict", verdict)
    label, best = "observer", found.best
    for value, words in one.rule(best):
        yield Fact(label, f"guesses {value} if {words}")
        label = ""
    if not best.guesses:
        yield Fact(label, "no report favours either input")
        return
    yield Fact("", f"{_guesses(best)}, on {whole(found.samples)} reports")
    for test in found.tests:
        if test is not best:
            result = f"{_guesses(test)}, epsilon ≥ {at_least(test.bound, _PLACES)}" if test.guesses else "no guess"
            yield Fact("other rule", f"{test.kind}: {result}")
    yield Fact(
        "limit", f"{whole(one.samples)} reports of each value can show epsilon {at_least(one.highest_bound, 2)} at most"
    )


def _guesses(test: Tested) -> str:
    share = fixed(Fraction(test.right, test.guesses), _SHARES, scale=100)
    return f"{whole(test.right)} of {whole(test.guesses)} guesses were right ({share} %)"


def _sure(confidence: float) -> str:
    """Return a confidence in per cent, rounded down: of several audits it is a fraction with no end."""
    places = max(_SHARES, 1 - floor(log10(100 * (1 - confidence))))
    return f"{exact(float(at_least(Decimal(repr(confidence)) * 100, places)))} %"
