"""The people of a CSV file, for a question whose domain is known: one of a scenario file, or of a program."""

import re
from collections.abc import Mapping
from pathlib import Path

from hush_common.domain import BitDomain, CategoryDomain, Domain, VectorDomain
from hush_common.errors import OptionError
from hush_simulations.scenarios.csv_file import read_answers, read_column, read_columns
from hush_simulations.scenarios.csv_rules import CsvRules
from hush_simulations.scenarios.population import Observed

__all__ = ["CSV_FIELDS", "observed_by_program", "observed_in_csv"]

CSV_FIELDS = ("delimiter", "encoding", "header", "decimal", "yes")
"""What a program may say of a CSV file."""

_FIELD = "|".join(CSV_FIELDS)
_WITH_VALUE = re.compile(rf"--({_FIELD}) (,|[^\s,;)]+)")
_ARGUMENT = re.compile(r"--(missing|column) ([^\s,;)]+)")
_ALONE = re.compile(rf"--({_FIELD})\b")
_OPTIONS = {"--csv": "data", "--column": "column", "--missing": "missing"}


def observed_in_csv(
    path: Path, domain: Domain, column: str | None, *, rules: CsvRules, yes: str | None = None
) -> Observed:
    """The values of a file, each legal for the domain or beyond its bounds.

    Args:
        path: of the file.
        domain: what is asked; a vector takes the columns that are named as its coordinates.
        column: of any other domain; may be left out if the file has only one.
        rules: how the file is to be read, as far as that is known.
        yes: of a yes/no question the text that means yes; None for the usual ones (yes, no, true, false, 1, 0).

    Raises:
        OptionError: in the words of the command line.
    """
    if yes is not None and not isinstance(domain, BitDomain):
        raise OptionError("--yes", "is for a yes/no question; leave it out, or ask one")
    match domain:
        case VectorDomain(coordinates=coordinates):
            if column is not None:
                raise OptionError("--column", "a vector takes the columns named as its coordinates; leave it out")
            return read_columns(path, [coordinate.name for coordinate in coordinates], rules=rules)
        case CategoryDomain(labels=labels, other=other):
            return read_column(path, column, labels=labels, other=other, rules=rules)
        case BitDomain() if yes is not None:
            return read_answers(path, column, yes, rules=rules)
        case _:
            return read_column(path, column, bits=isinstance(domain, BitDomain), rules=rules)


def observed_by_program(
    path: Path, domain: Domain, column: str | None, missing: str | None, csv: Mapping[str, str]
) -> Observed:
    """The values of a file, as `hush.simulate` takes them.

    Args:
        path: of the file.
        domain: what is asked.
        column: of the file; may be left out if there is only one.
        missing: "drop", "replace" or None.
        csv: what is known about the file, by `CSV_FIELDS`.

    Raises:
        OptionError: in the words of the arguments.
    """
    for name in csv:
        if name not in CSV_FIELDS:
            raise OptionError("csv", f"{str(name)[:40]!r} is none of its fields; write {', '.join(CSV_FIELDS)}")
    try:
        given = {name: text for name, text in csv.items() if name != "yes"}
        rules = CsvRules(**given, missing=missing)
        return observed_in_csv(path, domain, column, rules=rules, yes=csv.get("yes"))
    except OptionError as error:
        raise _in_words_of_python(error) from None


def _in_words_of_python(error: OptionError) -> OptionError:
    """The same with the arguments of `hush.simulate` in place of options."""
    option = _OPTIONS.get(error.option, f'csv["{error.option.removeprefix("--")}"]')
    text = _ARGUMENT.sub(r'\1="\2"', _WITH_VALUE.sub(r'csv={"\1": "\2"}', error.message))
    return OptionError(option, _ALONE.sub(r'csv["\1"]', text).replace("--labels", "a domain of labels"))
