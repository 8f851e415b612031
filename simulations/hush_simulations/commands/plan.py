"""`hush plan`: compute sample size, epsilon or error from the other two, for the worst values or for one's own."""

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from hush_aggregator.publish.charts import shows_signs
from hush_common.domain import KINDS, Domain
from hush_common.epsilon import parse_epsilon
from hush_common.errors import OptionError
from hush_common.options import OUTPUT, Argument, Commands, Option
from hush_common.output import files_first, print_json
from hush_common.suggestion import meant
from hush_common.terminal import note, show
from hush_simulations.commands.options import (
    OWN_DATA,
    JsonOption,
    PlotOption,
    ThemeOption,
    check_theme,
    parse_bound,
    parse_confidence,
)
from hush_simulations.commands.own_data import CsvOptions, OwnData, scenario_of_file, sentinels
from hush_simulations.display.charts import charts_of_plan
from hush_simulations.display.files import prepare, write_all
from hush_simulations.display.plan_figure import picture_of_feasibility
from hush_simulations.display.plan_table import feasibility_blocks, plan_blocks
from hush_simulations.display.style import Theme
from hush_simulations.planning.asking import parse_error, parse_people
from hush_simulations.planning.feasibility import EPSILONS, GOAL, Feasibility, feasibility
from hush_simulations.planning.plan import OwnValues, Plan, PlanQuestion, own_values, solve
from hush_simulations.scenarios.population import Observed

_CONFIDENCE = 0.95
_MOST_PARTS = 1024

app: Commands = Commands()
feasible_app: Commands = Commands()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """The options about the value."""

    domain: Annotated[
        str | None,
        Option(values=KINDS, metavar="KIND", help="Kind of value: number (if not given), bit, category or vector."),
    ] = None
    lower: Annotated[str | None, Option(group=OWN_DATA, metavar="X", help="Smallest legal value of a number.")] = None
    upper: Annotated[str | None, Option(group=OWN_DATA, metavar="X", help="Largest legal value of a number.")] = None
    unit: Annotated[str, Option(group=OWN_DATA, metavar="TEXT", help="Unit of the numbers, for example cm.")] = ""
    categories: Annotated[int | None, Option(metavar="K", help="Number of categories, 2 to 1024.")] = None
    coordinates: Annotated[int | None, Option(metavar="D", help="Number of coordinates, 1 to 1024.")] = None

    @property
    def name(self) -> str:
        return next(iter(KINDS)) if self.domain is None else self.domain


@app.command()
def run(
    *,
    people: Annotated[str | None, Option(metavar="N", help="How many people answer.")] = None,
    epsilon: Annotated[str | None, Option(metavar="EPS", help="Epsilon of one report.")] = None,
    error: Annotated[
        str | None,
        Option(metavar="E|P%", help="Half-width of the confidence interval: in the unit, or as 5% of the range."),
    ] = None,
    confidence: Annotated[
        str | None, Option(metavar="P", help="Confidence level of the interval; 0.95 if not given.")
    ] = None,
    rms: Annotated[bool, Option("--rms", help="The error is a root mean square error, not a half-width.")] = False,
    kind: _Kind,
    own: CsvOptions,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """How many people, which epsilon, what error? Give two of them; the third follows, for every mechanism."""
    if sum(given is not None for given in (people, epsilon, error)) != 2:  # noqa: PLR2004 - of the three
        raise _not_two(people=people, epsilon=epsilon, error=error)
    if rms and confidence is not None:
        raise OptionError("--rms", f"a root mean square has no confidence; leave out --confidence {confidence}")
    asked, data, _ = _asked(kind, own)
    found = solve(
        PlanQuestion(
            domain=asked,
            people=None if people is None else parse_people(people, "--people"),
            epsilon=None if epsilon is None else parse_epsilon(epsilon, field="--epsilon"),
            error=None if error is None else parse_error(error, asked, "--error", bounded=kind.lower is not None),
            confidence=None if rms else parse_confidence(confidence or str(_CONFIDENCE)),
            data=data,
        )
    )
    _print(found, as_json=as_json, plot=plot is not None)


@feasible_app.command()
def feasible(
    file: Annotated[Path | None, Argument(metavar="[FILE]", help="Your own data: every row is a person.")] = None,
    *,
    people: Annotated[
        str | None, Option(metavar="N", help="How many people answer; as many as the file has rows if not given.")
    ] = None,
    epsilon: Annotated[
        str | None, Option(metavar="EPS,…", help="Epsilons of one report to compare; 0.25,0.5,1,2,4 if not given.")
    ] = None,
    error: Annotated[
        str | None,
        Option(metavar="E|P%", help="The half-width you want: in the unit, or 1% of the range if not given."),
    ] = None,
    confidence: Annotated[
        float, Option(metavar="P", help="Confidence level of the intervals.", parser=parse_confidence)
    ] = 0.95,
    kind: _Kind,
    own: CsvOptions,
    out: Annotated[
        Path | None, Option(group=OUTPUT, metavar="DIR", help="Directory to write feasible.json and the picture to.")
    ] = None,
    theme: ThemeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Can this be learned from these people, how precisely, at which epsilon? No simulation: the exact law."""
    check_theme(theme, out)
    if file is not None and own.csv is not None:
        raise OptionError("--csv", f"names a second file besides {file}; leave one of them out")
    own = own if file is None else replace(own, csv=file)
    directory = None if out is None else prepare(out)
    asked, data, rows = _asked(kind, own)
    count = rows if people is None else parse_people(people, "--people")
    if count is None and error is None:
        raise OptionError("--people", "is missing; name a FILE, or say how many people answer, as in --people 5000")
    found = feasibility(
        asked,
        people=count,
        epsilons=EPSILONS
        if epsilon is None
        else [parse_epsilon(one.strip(), field="--epsilon") for one in epsilon.split(",")],
        goal=GOAL if error is None else parse_error(error, asked, "--error", bounded=kind.lower is not None),
        confidence=confidence,
        data=data,
    )
    with files_first(directory, lambda place: _write(place, found, theme)):
        if as_json:
            print_json(found.to_document())
        else:
            show(feasibility_blocks(found))


def _write(directory: Path, found: Feasibility, theme: Theme | None) -> list[Path]:
    text = json.dumps(found.to_document(), indent=2, ensure_ascii=False)
    return write_all(directory, picture_of_feasibility(found), "feasible", text, theme or "light")


def _print(plan: Plan, *, as_json: bool, plot: bool) -> None:
    if as_json:
        print_json(plan.to_document())
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


def _asked(kind: _Kind, own: CsvOptions) -> tuple[Domain, OwnValues | None, int | None]:
    """Return the domain, the known values, and the number of rows."""
    if own.csv is None:
        own.check_unused()
        return _domain(kind), None, None
    for option, value in (
        ("--domain", kind.domain),
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
        note(hint)
    return asked, own_values(asked, people.values, people.to_document(), people.name), len(people.values)


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
            "--domain",
            f"{kind.name[:40]!r} is not a kind of value; write number, bit, category or vector"
            + meant(kind.name, KINDS),
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
