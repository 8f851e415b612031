"""The answer of `hush plan` for a person."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from hush_common.domain import BitDomain, CategoryDomain, VectorDomain
from hush_common.epsilon import at_most_sure
from hush_common.figures import exact, percent_at_most, ratio, significant, whole
from hush_simulations.display.number_format import say

__all__ = ["print_plan"]

_NARROWEST = 100  # columns in a pipe, where nobody says how wide it is
_NARROW = 84  # below, there is no room for parameters


def print_plan(found: Mapping[str, Any], console: Console) -> None:
    """Print the object of `hush_simulations.planning.answer` as a table and a few sentences."""
    if not console.is_terminal:
        console.width = max(console.width, _NARROWEST)
    console.print()
    say(console, _heading(found), "bold")
    console.print(_table(found, narrow=console.width < _NARROW))
    for sentence in _sentences(found):
        say(console, sentence)
    console.print()


def _heading(found: Mapping[str, Any]) -> str:
    known = []
    if "people" in found:
        known.append(f"{whole(found['people'])} people")
    if "epsilon" in found:
        known.append(f"epsilon {found['epsilon']}")
    if "error" in found:
        known.append(f"an error of {_error(found, found['error'])} {_error_kind(found)}")
    else:
        known.append(f"error bars {_error_kind(found)}" if "confidence" in found else "root mean square")
    asked = {"people": "How many people?", "epsilon": "Which epsilon?", "error": "What error?"}[found["unknown"]]
    return f"{asked}  {_domain(found['domain'])}; {', '.join(known)}"


def _error_kind(found: Mapping[str, Any]) -> str:
    return f"at {exact(found['confidence'], scale=100)} %" if "confidence" in found else "(root mean square)"


def _domain(domain: Mapping[str, Any]) -> str:
    match domain["kind"]:
        case BitDomain.kind:
            return "the share of yes"
        case CategoryDomain.kind:
            return f"the share of each of {domain['categories']} categories"
        case VectorDomain.kind:
            return f"the mean of each of {domain['coordinates']} numbers{_bounds(domain)}"
    return f"the mean of a number{_bounds(domain)}"


def _bounds(domain: Mapping[str, Any]) -> str:
    if _is_share(domain):
        return ", in per cent of its range"
    return f" from {exact(domain['lower'])} to {exact(domain['upper'])} {domain['unit']}".rstrip()


def _is_share(domain: Mapping[str, Any]) -> bool:
    """Whether nobody gave bounds, so that an error is one of the range."""
    return (domain["lower"], domain["upper"], domain["unit"]) == (0, 1, "")


def _table(found: Mapping[str, Any], *, narrow: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=True)
    for name in ("mechanism",) if narrow else ("mechanism", "parameters"):
        table.add_column(name, overflow="fold")
    unit = "epsilon" if found["unknown"] == "epsilon" else "people"
    for name in ("reporters", "population", f"times the {unit}"):
        table.add_column(name, justify="right", min_width=len("people") if name.startswith("times") else len(name))
    for line in found["mechanisms"]:
        chosen = line["mechanism"] == found.get("auto")
        parameters = ", ".join(f"{name} {value}" for name, value in line.get("parameters", {}).items())
        name = line["mechanism"] + (" (auto)" if chosen else "")
        table.add_row(*(name, parameters)[: 2 - narrow], *_cells(found, line), style="bold" if chosen else "")
    table.add_section()
    for line in found["for_comparison"]:
        table.add_row(*(line["mechanism"], "not offered")[: 2 - narrow], *_cells(found, line), style="dim")
    trusted = found["trusted_collector"]
    table.add_row(*(trusted["mechanism"], "central laplace")[: 2 - narrow], *_cells(found, trusted))
    return table


def _cells(found: Mapping[str, Any], line: Mapping[str, Any]) -> Iterator[str]:
    for target in ("reporters", "population"):
        yield _value(found, line[target]) if target in line else "out of reach"
    comparable = "relative" in line and not (line is found["trusted_collector"] and found["unknown"] == "error")
    yield ratio(line["relative"]) if comparable else ""


def _value(found: Mapping[str, Any], value: Any) -> str:  # noqa: ANN401 - a count, a decimal text or an error
    if found["unknown"] == "people":
        return whole(value)
    return str(value) if found["unknown"] == "epsilon" else f"± {_error(found, value)}"


def _error(found: Mapping[str, Any], value: float) -> str:
    """An error in the unit of the value, and in per cent of its range where that is another number."""
    domain = found["domain"]
    if domain["kind"] in (BitDomain.kind, CategoryDomain.kind):
        points = significant(value, scale=100)
        return f"{points} {'point' if points == '1' else 'points'}"
    if _is_share(domain):
        return f"{significant(value, scale=100)} %"
    share = Fraction(value) / (Fraction(domain["upper"]) - Fraction(domain["lower"]))
    return f"{significant(value)} {domain['unit']}".rstrip() + f" ({significant(share, scale=100)} %)"


def _sentences(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _choice(found)
    if found.get("price_of_no_trust", 0) > 1:
        yield _price(found)
    if "observer_at_most_sure" in found:
        sure = percent_at_most(at_most_sure(Fraction(found["epsilon"])))
        yield f"Epsilon {found['epsilon']}: whoever was 50/50 about a person becomes at most {sure} sure."
    yield "reporters: of those who answer, noise alone. population: of those they are a random sample of."
    yield "trusted collector: sees every value and adds noise to the mean, once. Every figure is for the worst values."
    if "kept_in" in found:
        kept = exact(found["kept_in"], scale=100)
        yield f"In {kept} % of samples, whatever the values are, no error bar that hush prints is longer than planned."


def _choice(found: Mapping[str, Any]) -> Iterator[str]:
    if "auto" not in found:
        yield "No mechanism reaches this error: ask more people, or accept a larger one."
        return
    dearer = [
        line
        for line in (*found["mechanisms"], *found["for_comparison"])
        if line["mechanism"] != found["auto"] and line.get("relative", 1) > 1.005  # noqa: PLR2004 - visible
    ]
    costs = [f"{line['mechanism']} {ratio(line['relative'])} times" for line in dearer]
    if costs:
        much = "the epsilon" if found["unknown"] == "epsilon" else "as many people"
        same = " for the same error" if found["unknown"] == "error" else ""
        costs[0] = costs[0].replace(dearer[0]["mechanism"], dearer[0]["mechanism"] + " needs") + f" {much}{same}"
    yield f"auto picks {found['auto']}" + ("; " + ", ".join(costs) if costs else "") + "."


def _price(found: Mapping[str, Any]) -> str:
    price = ratio(found["price_of_no_trust"])
    match found["unknown"]:
        case "people":
            return f"The price of not having to trust the collector: {price} times as many people."
        case "epsilon":
            return f"The price of not having to trust the collector: {price} times the epsilon."
    return f"The price of not having to trust the collector: {price} times the error."
