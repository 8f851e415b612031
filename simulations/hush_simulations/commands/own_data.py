"""The options about a person's own CSV file, and the scenario that they make."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hush_common.domain import Domain
from hush_common.errors import OptionError
from hush_common.options import Option
from hush_common.task import make_task
from hush_simulations.commands.options import OWN_DATA, parse_bound
from hush_simulations.scenarios.population import PARQUET, Observed, Population
from hush_simulations.scenarios.scenario import FROM_PUBLIC_KNOWLEDGE, Scenario, scenario_of_data
from hush_simulations.scenarios.scenario_file import SCENARIOS, find_scenario

if TYPE_CHECKING:  # its expressions take a thirtieth of a second, which a scenario without a file does not need
    from hush_simulations.scenarios.csv_table import CsvRules


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFields:
    """The options about a CSV file, as given; None if left out."""

    csv: Annotated[
        Path | None,
        Option(group=OWN_DATA, metavar="FILE", help="Your own data, CSV (also gzip) or Parquet; - for standard input."),
    ] = None
    column: Annotated[str | None, Option(group=OWN_DATA, metavar="NAME", help="Column of the file.")] = None
    labels: Annotated[
        str | None, Option(group=OWN_DATA, metavar="A,B,…", help="Legal labels of a column of categories.")
    ] = None
    yes: Annotated[
        str | None,
        Option(group=OWN_DATA, metavar="VALUE", help="For a yes/no question: the text of a cell that means yes."),
    ] = None
    missing: Annotated[
        str | None,
        Option(
            group=OWN_DATA,
            values=["drop", "replace"],
            metavar="HOW",
            help="Rows without a value: drop them, or replace as devices do.",
        ),
    ] = None
    delimiter: Annotated[
        str | None, Option(group=OWN_DATA, metavar="SIGN", help="Of the file: comma, semicolon, tab, pipe or another.")
    ] = None
    encoding: Annotated[
        str | None, Option(group=OWN_DATA, metavar="NAME", help="Of the file, as cp1252 or utf-16.")
    ] = None
    header: Annotated[
        str | None, Option(group=OWN_DATA, metavar="yes|no", help="Whether the first line names columns.")
    ] = None
    decimal: Annotated[
        str | None, Option(group=OWN_DATA, metavar="SIGN", help="Before decimals in the file: . or ,")
    ] = None
    na: Annotated[
        str | None,
        Option(
            group=OWN_DATA, metavar="A,B,…", help="Texts that mark a missing value, besides NA, N/A, NaN, null and -."
        ),
    ] = None
    fold_case: Annotated[
        str | None,
        Option(
            group=OWN_DATA, metavar="yes|no", help="Whether capitals do not matter, in labels and in what means yes."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions(CsvFields):
    """The same, with a check."""

    def check_unused(self) -> None:
        """Reject options without a file that they are about."""
        for field in fields(self):
            if field.name != "scenario" and getattr(self, field.name) is not None:
                message = "describes a person's own data; name the file with --csv FILE as well"
                raise OptionError(f"--{field.name.replace('_', '-')}", message)


_KINDS: Mapping[str, tuple[str, ...]] = {
    "numbers": ("lower", "upper", "unit"),
    "categories": ("labels",),
    "a yes/no question": ("yes",),
}
_BOUNDS = f"state the smallest and the largest legal value with --lower and --upper, {FROM_PUBLIC_KNOWLEDGE}"
_QUESTIONS = {
    "numbers": _BOUNDS,
    "answers": "the cells are yes and no: write --yes VALUE with the text that means yes (or --lower 0 --upper 1 if "
    "they are numbers)",
    "text": "the cells are text: list the categories with --labels A,B,C, from public knowledge, or write --yes VALUE "
    "for a yes/no question",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnData(CsvOptions):
    """The options of `hush simulate` about a person's own data, as given; None if left out."""

    scenario: str | None = None
    lower: str | None = None
    upper: str | None = None
    unit: str | None = None

    @property
    def rules(self) -> "CsvRules":
        """How the file is to be read."""
        from hush_simulations.scenarios.csv_table import CsvRules  # noqa: PLC0415 - see above

        return CsvRules(**{field.name: getattr(self, field.name) for field in fields(CsvRules)})


def scenario_of_file(own: OwnData, file: Path) -> Scenario:
    """Return the question, put to the people of a file."""
    from hush_simulations.scenarios.csv_file import kind_of_column, read_answers, read_column  # noqa: PLC0415 - see above

    if own.scenario is not None:
        return _of_shipped(own, own.scenario, file)
    asked = [kind for kind, options in _KINDS.items() if any(getattr(own, option) is not None for option in options)]
    if len(asked) > 1:
        option = next(option for option in _KINDS[asked[0]] if getattr(own, option) is not None)
        other = _KINDS[asked[1]][0]
        raise OptionError(f"--{option}", f"is for {asked[0]}, and --{other} for {asked[1]}; leave one of them out")
    if file.suffix.lower() in PARQUET:
        return _of_parquet(own, file)
    rules, reveal = own.rules, sys.stderr.isatty()
    if own.labels is not None:
        labels = tuple(label.strip() for label in own.labels.split(","))
        data = read_column(file, own.column, labels=labels, rules=rules, reveal=reveal)
        return scenario_of_data(data, {"kind": "category", "labels": list(labels)})
    if own.yes is not None:
        data = read_answers(file, own.column, own.yes.strip(), rules=rules, reveal=reveal)
        return scenario_of_data(data, {"kind": "bit"})
    if own.lower is None and own.upper is None:
        raise OptionError("--csv", f"{_QUESTIONS[kind_of_column(file, own.column, rules=rules)]}")
    domain = _numbers(own)
    return scenario_of_data(read_column(file, own.column, rules=rules, reveal=reveal), domain)


def _numbers(own: OwnData) -> dict[str, object]:
    """Return the domain of numbers between the bounds that a person stated."""
    lower, upper = (_bound(option, getattr(own, option)) for option in ("lower", "upper"))
    if not lower < upper:
        raise OptionError("--lower", f"{own.lower} is not below --upper {own.upper}; swap or widen the bounds")
    return {"kind": "number", "lower": lower, "upper": upper, "unit": own.unit or ""}


def _of_parquet(own: OwnData, file: Path) -> Scenario:
    """Return the question, put to the people of a Parquet file, whose cells have types."""
    from hush_simulations.scenarios.python_data import observed, parquet_table  # noqa: PLC0415 - few files are of Parquet

    for option in ("delimiter", "encoding", "header", "decimal", "na", "fold_case", "yes"):
        if getattr(own, option) is not None:
            raise OptionError(f"--{option.replace('_', '-')}", f"is for CSV, and {file} is Parquet; leave it out")
    if own.labels is not None:
        domain: dict[str, object] = {"kind": "category", "labels": [label.strip() for label in own.labels.split(",")]}
    elif own.lower is None and own.upper is None:
        raise OptionError("--csv", f"{_BOUNDS}, or list the categories with --labels A,B,C")
    else:
        domain = _numbers(own)
    task = make_task({"id": "own-data", "epsilon": "1", "domain": domain})
    try:
        people = observed(parquet_table(file), task.domain, own.column, own.rules.treatment)
    except OptionError as error:
        option = {"data": "--csv", "missing": "--missing", "column": "--column"}.get(error.option, error.option)
        message = error.message.replace('missing="drop"', "--missing drop").replace(
            'missing="replace"', "--missing replace"
        )
        raise OptionError(option, message) from None
    return scenario_of_data(people, domain)


def _of_shipped(own: OwnData, name: str, file: Path) -> Scenario:
    from hush_simulations.scenarios.csv_file import read_answers, read_column  # noqa: PLC0415 - see above

    scenario = find_scenario(name)
    if scenario.document["domain"] != SCENARIOS["survey"].document["domain"]:
        raise OptionError("SCENARIO", f"{name} has its own people; leave it out to use --csv")
    for option in ("labels", "lower", "upper", "unit"):
        if getattr(own, option) is not None:
            raise OptionError(f"--{option}", f"does not fit {name}, which is a yes/no question; leave one of them out")
    rules, reveal = own.rules, sys.stderr.isatty()
    if own.yes is None:
        data = read_column(file, own.column, bits=True, rules=rules, reveal=reveal)
    else:
        data = read_answers(file, own.column, own.yes.strip(), rules=rules, reveal=reveal)
    return replace(scenario, population=data, clients=len(data.values))


def sentinels(people: Population, domain: Domain) -> Iterator[str]:
    """Sentences about numbers of a person's own data that may be codes for a missing value, with the remedy."""
    if isinstance(people, Observed):
        from hush_simulations.scenarios.python_data import MARK_IN_A_COMMAND, hints  # noqa: PLC0415 - narwhals takes a fiftieth of a second

        for hint in hints(people, domain):
            yield f"{hint}; {MARK_IN_A_COMMAND}"


def _bound(option: str, text: str | None) -> float:
    if text is None:
        side = "smallest" if option == "lower" else "largest"
        raise OptionError(f"--{option}", f"is missing; state the {side} legal value {FROM_PUBLIC_KNOWLEDGE}")
    return parse_bound(f"--{option}", text)
