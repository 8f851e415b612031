"""`hush plan`: compute sample size, epsilon or error from the other two, for the worst values or for one's own."""

import json
import math
import re
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Annotated

import typer

from hush_aggregator.charts import shows_signs
from hush_common.domain import KINDS, Domain
from hush_common.epsilon import parse_epsilon
from hush_common.errors import OptionError
from hush_common.formatting import significant
from hush_common.terminal import show
from hush_simulations.commands.options import (
    PlotOption,
    parse_bound,
    parse_confidence,
    say,
    value_option,
    with_options_of,
)
from hush_simulations.commands.own_data import CsvOptions, OwnData, scenario_of_file, sentinels
from hush_simulations.display.charts import charts_of_plan
from hush_simulations.display.plan_table import plan_blocks
from hush_simulations.planning.plan import MOST_PEOPLE, OwnValues, Plan, PlanQuestion, own_values, range_of, solve
from hush_simulations.scenarios.population import Observed

_PEOPLE = re.compile(r"[0-9][0-9 _]*([eE][0-9]{1,2})?")
_ERROR = re.compile(r"(?P<number>[0-9.]+([eE]-?[0-9]+)?)\s*(?P<percent>%?)")
_CONFIDENCE = 0.95
_MOST_PARTS = 1024

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class _Kind:
    """The options about the value."""

    given: str | None
    lower: str | None
    upper: str | None
    unit: str
    categories: int | None
    coordinates: int | None

    @property
    def name(self) -> str:
        return next(iter(KINDS)) if self.given is None else self.given


@app.command()
@with_options_of(CsvOptions, last=True)
def run(
    own: CsvOptions,
    *,
    people: Annotated[str | None, value_option("N", "How many people answer.")] = None,
    epsilon: Annotated[str | None, value_option("EPS", "Epsilon of one report.")] = None,
    error: Annotated[
        str | None, value_option("E|P%", "Half-width of the confidence interval: in the unit, or as 5% of the range.")
    ] = None,
    confidence: Annotated[str | None, value_option("P", "Confidence level of the interval; 0.95 if not given.")] = None,
    rms: Annotated[
        bool, typer.Option("--rms", help="The error is a root mean square error, not a half-width.")
    ] = False,
    domain: Annotated[
        str | None, value_option("KIND", "Kind of value: number (if not given), bit, category or vector.")
    ] = None,
    lower: Annotated[str | None, value_option("X", "Smallest legal value of a number.")] = None,
    upper: Annotated[str | None, value_option("X", "Largest legal value of a number.")] = None,
    unit: Annotated[str, value_option("TEXT", "Unit of the numbers, for example cm.")] = "",
    categories: Annotated[int | None, value_option("K", "Number of categories, 2 to 1024.")] = None,
    coordinates: Annotated[int | None, value_option("D", "Number of coordinates, 1 to 1024.")] = None,
    plot: PlotOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """How many people, which epsilon, what error? Give two of them; the third follows, for every mechanism."""
    if sum(given is not None for given in (people, epsilon, error)) != 2:  # noqa: PLR2004 - of the three
        raise _not_two(people=people, epsilon=epsilon, error=error)
    if rms and confidence is not None:
        raise OptionError("--rms", f"a root mean square has no confidence; leave out --confidence {confidence}")
    asked, data = _asked(_Kind(domain, lower, upper, unit, categories, coordinates), own)
    found = solve(
        PlanQuestion(
            domain=asked,
            people=None if people is None else _people(people),
            epsilon=None if epsilon is None else parse_epsilon(epsilon, field="--epsilon"),
            error=None if error is None else _error(error, asked, bounded=lower is not None),
            confidence=None if rms else parse_confidence(confidence or str(_CONFIDENCE)),
            data=data,
        )
    )
    _print(found, as_json=as_json, plot=plot is not None)


def _print(plan: Plan, *, as_json: bool, plot: bool) -> None:
    if as_json:
        print(json.dumps(plan.to_document(), indent=2, ensure_ascii=False))
    else:
        show([*plan_blocks(plan), *(charts_of_plan(plan, signs=shows_signs()) if plot else ())])


def _not_two(**given: str | None) -> OptionError:
    names = [f"--{name}" for name, value in given.items() if value is not None]
    if len(names) == len(given):
        return OptionError("--people, --epsilon, --error", "two of them give the third; leave one out")
    missing = " or ".join(f"--{name}" for name, value in given.items() if value is None)
    if not names:
        return OptionError("--people, --epsilon, --error", "give two of them, as in --epsilon 1 --error 5%")
    return OptionError(names[0], f"alone gives nothing; add {missing}")


def _people(text: str) -> int:
    if not _PEOPLE.fullmatch(text.strip()):
        raise OptionError("--people", f"{text[:40]!r} is not a number of people; write for example --people 5000")
    count = int(Fraction(text.strip().replace("_", "").replace(" ", "")))
    if not 1 <= count <= MOST_PEOPLE:
        raise OptionError(
            "--people", f"{text[:40]} is outside 1 to {significant(MOST_PEOPLE, 1)}; write how many people answer"
        )
    return count


def _error(text: str, domain: Domain, *, bounded: bool) -> float:
    match = _ERROR.fullmatch(text.strip())
    try:
        value = math.nan if match is None else float(match["number"])
    except ValueError:
        value = math.nan
    if match is None or not 0 < value < math.inf:
        raise OptionError("--error", f"{text[:40]!r} is not a positive error; write --error 5%, or 2.5 in the unit")
    if match["percent"]:
        return value / 100
    if domain.is_share:
        if value >= 1:
            raise OptionError(
                "--error",
                f"{text} is not the error of a share; write {text}%, or {significant(Fraction(value) / 100, 12)}",
            )
        return value
    if not bounded:
        raise OptionError("--error", f"{text} is in the unit of the value: add --lower and --upper, or write it as 5%")
    return value / range_of(domain)


def _asked(kind: _Kind, own: CsvOptions) -> tuple[Domain, OwnValues | None]:
    if own.csv is None:
        own.check_unused()
        return _domain(kind), None
    for option, value in (
        ("--domain", kind.given),
        ("--categories", kind.categories),
        ("--coordinates", kind.coordinates),
    ):
        if value is not None:
            raise OptionError(option, "follows from the other options where there is a file; leave it out")
    given = {field.name: getattr(own, field.name) for field in fields(own)}
    mine = OwnData(lower=kind.lower, upper=kind.upper, unit=kind.unit or None, **given)
    scenario = scenario_of_file(mine, own.csv)
    asked, people = scenario.task().domain, scenario.population
    if not isinstance(people, Observed):
        raise TypeError("a file has the values of people who were observed")
    for hint in sentinels(people, asked):
        say(hint)
    return asked, own_values(asked, people.values, people.to_document(), people.name)


def _domain(kind: _Kind) -> Domain:
    numbers = [name for name, one in KINDS.items() if not one.is_share]
    counts = {one.parts_field: [name] for name, one in KINDS.items()}
    for option, value, names in (
        ("--lower", kind.lower, numbers),
        ("--upper", kind.upper, numbers),
        ("--unit", kind.unit or None, numbers),
        ("--categories", kind.categories, counts["categories"]),
        ("--coordinates", kind.coordinates, counts["coordinates"]),
    ):
        if value is not None and kind.name not in names:
            raise OptionError(option, f"is for --domain {' or '.join(names)}; leave it out, or change --domain")
    asked = KINDS.get(kind.name)
    if asked is None:
        raise OptionError(
            "--domain", f"{kind.name[:40]!r} is not a kind of value; write number, bit, category or vector"
        )
    lower, upper = _bounds(kind)
    size = 1
    if asked.parts_field:
        fewest = 2 if asked.is_share else 1  # one category is not a question
        size = _parts(f"--{asked.parts_field}", getattr(kind, asked.parts_field), fewest)
    return asked.of_size(size, lower, upper, kind.unit)


def _bounds(kind: _Kind) -> tuple[float, float]:
    """Return the bounds; 0 and 1 without any, since only shares of the range matter then."""
    if kind.lower is None and kind.upper is None:
        return 0.0, 1.0
    if kind.lower is None or kind.upper is None:
        missing = "--lower" if kind.lower is None else "--upper"
        raise OptionError(missing, "is missing; give both bounds of a legal value, or neither")
    lower, upper = parse_bound("--lower", kind.lower), parse_bound("--upper", kind.upper)
    if not lower < upper:
        raise OptionError("--lower", f"{kind.lower} is not below --upper {kind.upper}; swap or widen the bounds")
    return lower, upper


def _parts(option: str, count: int | None, fewest: int) -> int:
    if count is None:
        raise OptionError(option, f"is missing; write how many, as in {option} 8")
    if not fewest <= count <= _MOST_PARTS:
        raise OptionError(option, f"{count} is outside {fewest} to {_MOST_PARTS}")
    return count
