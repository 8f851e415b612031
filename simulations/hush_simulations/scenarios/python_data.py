"""Values that a Python program holds, in a list, an array, a series or a data frame: each is one client.

No value is ever part of a message: rows are named by their number, and what is wrong with them by its kind.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import NarwhalsError

from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, is_real, is_table, plain
from hush_common.errors import OptionError
from hush_common.formatting import whole
from hush_simulations.scenarios.csv_file import read_answers, read_column, read_columns
from hush_simulations.scenarios.csv_table import CsvRules, choose_column
from hush_simulations.scenarios.population import MOST_DEVICES, PARQUET, Observed, Treatment, Value, is_complete

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


_REMEDY = "pass the path of a CSV or Parquet file, or a data frame"


def parquet_table(data: str | Path) -> object:
    """Return the table of a Parquet file."""
    path = Path(data)
    if path.suffix.lower() not in PARQUET:
        raise OptionError("data", f"is text or a path, and names no .csv or .parquet file; {_REMEDY}")
    try:
        with path.open("rb") as file:
            return _read(path, file)
    except OSError as error:
        raise OptionError("data", f"{path} cannot be read ({error.strerror}); {_REMEDY}") from None


def _read(path: Path, file: object) -> object:
    try:
        reader = import_module("pyarrow.parquet")
    except ImportError:
        raise OptionError("data", f"{path} needs pyarrow; run pip install pyarrow, or pass a data frame") from None
    try:
        return reader.read_table(file)
    except (ValueError, OSError):  # pyarrow.ArrowInvalid is a ValueError; its message may show bytes of the file
        raise OptionError("data", f"{path} is not a Parquet file; {_REMEDY}") from None


CSV_FIELDS = ("delimiter", "encoding", "header", "decimal", "yes", "na", "fold_case")
"""What a program may say of a CSV file."""

_FIELD = "|".join(name.replace("_", "-") for name in CSV_FIELDS)
_WITH_VALUE = re.compile(rf"--({_FIELD}) (,|[^\s,;)]+)")
_ARGUMENT = re.compile(r"--(missing|column) ([^\s,;)]+)")
_ALONE = re.compile(rf"--({_FIELD})\b")
_OPTIONS = {"--csv": "data", "--column": "column", "--missing": "missing"}


def observed_in_csv(
    path: Path, domain: Domain, column: str | None, *, rules: CsvRules, yes: str | None = None
) -> Observed:
    """Return the values of a file for a domain; errors name command options.

    `yes` is the text that means yes; None for the usual ones (yes, no, true, false, 1, 0).
    """
    match domain:
        case BitDomain() if yes is not None:
            return read_answers(path, column, yes, rules=rules)
        case _ if yes is not None:
            raise OptionError("--yes", "is for a yes/no question; leave it out, or ask one")
        case BitDomain():
            return read_column(path, column, bits=True, rules=rules)
        case CategoryDomain(labels=labels, other=other):
            return read_column(path, column, labels=labels, other=other, rules=rules)
    if not domain.value_names:
        return read_column(path, column, rules=rules)
    if column is not None:
        raise OptionError("--column", "a vector takes the columns named as its coordinates; leave it out")
    return read_columns(path, domain.value_names, rules=rules)


def observed_by_program(
    path: Path, domain: Domain, column: str | None, missing: str | None, csv: Mapping[str, str]
) -> Observed:
    """Return the values of a file, as `hush.simulate` takes them; errors name its arguments."""
    for name in csv:
        if name not in CSV_FIELDS:
            raise OptionError("csv", f"{str(name)[:40]!r} is not one of its fields; write {', '.join(CSV_FIELDS)}")
    try:
        given = {name: text for name, text in csv.items() if name != "yes"}
        rules = CsvRules(**given, missing=missing)
        return observed_in_csv(path, domain, column, rules=rules, yes=csv.get("yes"))
    except OptionError as error:
        raise _in_words_of_python(error) from None


def _in_words_of_python(error: OptionError) -> OptionError:
    """Return the error with the arguments of `hush.simulate` in place of options."""
    option = _OPTIONS.get(error.option, f'csv["{error.option.removeprefix("--").replace("-", "_")}"]')
    text = _ARGUMENT.sub(r'\1="\2"', _WITH_VALUE.sub(r'csv={"\1": "\2"}', error.message))
    return OptionError(option, _ALONE.sub(r'csv["\1"]', text).replace("--labels", "a domain of labels"))


_EXACT = 1 << 53
"""Integers up to this are floats."""

_CSV = (".csv", ".tsv", ".txt")
_CONVERT = "convert the values, or state another domain"
_NUMPY_TIMES = (np.datetime64, np.timedelta64)  # whose `tolist` may be a bare number
_TIMES = (*_NUMPY_TIMES, date, time, timedelta)


class _MissingValueError(Exception):
    """None, NaN, or what a library has in their place."""


def observed(
    data: object,
    domain: Domain,
    column: str | None = None,
    treatment: Treatment | None = None,
    csv: Mapping[str, str] | None = None,
) -> Observed:
    """Return the values of `data`, in their order.

    Args:
        data: a sequence, a numpy array, a series, a data frame of any library that narwhals supports, or the path of a
            CSV or Parquet file.
        domain: of the task; a vector takes rows, or the columns named as its coordinates.
        column: of a data frame; None if there is one.
        treatment: what happens to rows without a value; None refuses them.
        csv: how to read a CSV file, by `CSV_FIELDS`.
    """
    if (file := _csv_file(data)) is not None:
        return observed_by_program(file, domain, column, treatment, csv or {})
    if csv is not None:
        raise OptionError("csv", "says how a CSV file is to be read; pass its path as data, or leave it out")
    table = parquet_table(data) if isinstance(data, str | Path) else data
    rows, name = _rows(table, domain, column)
    if not rows:
        raise OptionError("data", "has no values; every value is one client, pass at least one")
    if len(rows) > MOST_DEVICES:
        raise OptionError("data", f"{len(rows)} values are more than {MOST_DEVICES}; take a sample of them")
    values, missing = _alike(rows, domain, treatment) or _values(rows, _reader(domain, treatment), treatment)
    return Observed(values, name, missing, treatment if missing else None)


def _csv_file(data: object) -> Path | None:
    """Return the path of a CSV file, if data is one. A text is one only by its ending: it may be a value."""
    if not isinstance(data, str | Path):
        return None
    suffix = Path(data).suffix.lower()
    return Path(data) if suffix in _CSV or (isinstance(data, Path) and suffix not in PARQUET) else None


def _alike(rows: list[object], domain: Domain, treatment: Treatment | None) -> tuple[tuple[Value, ...], int] | None:
    """Return the values of rows that are of one simple type: one look at all of them, not at each.

    None for others, which `_values` reads, with what is wrong with them.
    """
    (kind, *others) = set(map(type, rows))
    if others:
        return None
    match domain:
        case CategoryDomain(labels=labels) if kind is str and set(rows) <= set(labels):
            return tuple(rows), 0  # type: ignore[arg-type] # they are texts
        case BitDomain() if kind is bool:
            return tuple(map(int, rows)), 0  # type: ignore[arg-type]
        case NumberDomain() if kind is float:
            return _floats(rows, treatment)  # type: ignore[arg-type]
        case NumberDomain() if kind is int and max(map(abs, rows)) <= _EXACT:  # type: ignore[arg-type]
            return tuple(map(float, rows)), 0  # type: ignore[arg-type]
    return None


def _floats(rows: list[float], treatment: Treatment | None) -> tuple[tuple[Value, ...], int] | None:
    numbers = np.array(rows)
    if np.isfinite(numbers).all():
        return tuple(rows), 0
    missing = int(np.isnan(numbers).sum())
    if treatment is None or missing == len(rows) or np.isinf(numbers).any():
        return None
    if treatment == "drop":
        return tuple(row for row in rows if not math.isnan(row)), missing
    return tuple(None if math.isnan(row) else row for row in rows), missing


def _values(
    rows: Sequence[object], read: Callable[[object], Value], treatment: Treatment | None
) -> tuple[tuple[Value, ...], int]:
    values: list[Value] = []
    missing: list[int] = []
    for place, row in enumerate(rows):
        try:
            value = read(row)
        except _MissingValueError:
            value = None
        except ValueError as error:
            raise OptionError("data", f"row {place} (counted from 0) is {error}") from None
        if not is_complete(value):
            missing.append(place)
        if value is not None or treatment == "replace":
            values.append(value)
    if missing and (treatment is None or len(missing) == len(rows)):
        count = f"{len(missing)} of {len(rows)} rows have no value (None or NaN)"
        remedy = 'pass missing="drop" or missing="replace"' if treatment is None else "at least one client needs one"
        raise OptionError("data", f"{count}, the first is row {missing[0]} (counted from 0); {remedy}")
    return tuple(values), len(missing)


def _rows(data: object, domain: Domain, column: str | None) -> tuple[list[object], str]:
    if not isinstance(data, np.ndarray) and not is_table(data):
        return _of_frame(data, domain, column)
    if isinstance(data, Mapping):
        raise OptionError("data", "is a mapping; pass a list, a numpy array or a data frame")
    if column is not None:
        raise OptionError("column", "chooses a column of a data frame, and data is none; leave it out")
    if isinstance(data, np.ndarray):
        return _of_array(data, domain), ""
    return list(data), ""  # type: ignore[call-overload]  # a sequence, by `is_table`


def _of_array(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]", domain: Domain) -> list[object]:
    rows_of_numbers = bool(domain.value_names)
    if array.ndim != 1 + rows_of_numbers and not (rows_of_numbers and array.dtype.hasobject and array.ndim == 1):
        wanted = "a row for each client and a column for each coordinate" if rows_of_numbers else "one dimension"
        raise OptionError("data", f"is an array of shape {array.shape}; pass one with {wanted}")
    return list(array) if array.dtype.kind in "mM" else array.tolist()


def _of_frame(data: object, domain: Domain, column: str | None) -> tuple[list[object], str]:
    try:
        table = nw.from_native(data, eager_only=True, allow_series=True)  # type: ignore[call-overload]  # or TypeError
    except TypeError:
        kind = type(data).__name__[:40]
        raise OptionError(
            "data", f"is of type {kind}; pass a list, a numpy array, a series or a data frame (a lazy one collected)"
        ) from None
    except NarwhalsError:
        raise OptionError("data", "has two columns of one name; rename one") from None
    if isinstance(table, nw.Series):
        if column is not None:
            raise OptionError("column", "chooses a column of a data frame, and data is a series; leave it out")
        name = str(table.name or "")
        return table.to_list(), "" if _is_value(name, domain) else name
    return _of_columns(table, domain, column)


def _of_columns(table: "nw.DataFrame[IntoDataFrame]", domain: Domain, column: str | None) -> tuple[list[object], str]:
    names = {str(name): name for name in table.columns}  # pandas admits any object as a name
    if not names:
        raise OptionError("data", "is a data frame without columns; pass one that has the values")
    if domain.value_names:
        if column is not None:
            raise OptionError("column", "a vector takes the columns named as its coordinates; leave it out")
        wanted = [_chosen(list(names), name, "domain.coordinates") for name in domain.value_names]
        return list(zip(*(table.get_column(names[name]).to_list() for name in wanted), strict=True)), ", ".join(wanted)
    chosen = _chosen(list(names), column, "column")
    if column is None and isinstance(names[chosen], str) and _is_value(chosen, domain):
        raise OptionError("data", "has a value where its header names the column; read the file as one without")
    return table.get_column(names[chosen]).to_list(), chosen


def _chosen(names: Sequence[str], column: str | None, option: str) -> str:
    return choose_column(names, column, table="data", header="header", option=option)


def _is_value(name: str, domain: Domain) -> bool:
    """Whether a column's name looks like a cell of a table that lost its header, which no title may show."""
    if domain.read(name, strict=False).coercion == "used":
        return True
    try:
        float(name)
    except ValueError:
        return False
    return True


def _reader(domain: Domain, treatment: Treatment | None) -> Callable[[object], Value]:
    """Return the function that reads one row; it raises `_MissingValueError`, or a ValueError that names the fault."""
    if domain.value_names:
        return _vector(domain.value_names, partly=treatment == "replace")
    match domain:
        case BitDomain():
            return _bit
        case CategoryDomain():
            return _label(domain)
        case _:
            return _number


def _number(value: object, wanted: str = "a number") -> float:
    value = _present(value)
    if isinstance(value, _NUMPY_TIMES) or not is_real(value):
        raise ValueError(f"{_kind(value)}, and {wanted} is asked for; {_CONVERT}")
    try:
        number = float(value)  # type: ignore[arg-type]  # a real number
    except (OverflowError, ValueError):  # 10**400, a signalling NaN
        raise ValueError("a number that no float can hold; leave it out, or bring it within the bounds") from None
    if math.isnan(number):
        raise _MissingValueError
    if math.isinf(number):
        raise ValueError("infinite; leave it out, or bring it within the bounds")
    return number


def _bit(value: object) -> int:
    value = _present(value)
    number = int(value) if isinstance(value, bool) else _number(value, "yes or no (True, False, 1 or 0)")
    if number not in (0, 1):
        raise ValueError(f"a number other than 0 and 1, and yes or no is asked for; {_CONVERT}")
    return int(number)


def _label(domain: CategoryDomain) -> Callable[[object], str]:
    known = frozenset(domain.labels)

    def read(value: object) -> str:
        value = _present(value)
        if is_real(value):
            _number(value)  # NaN is what pandas has for a missing text
        if not isinstance(value, str):
            raise ValueError(f"{_kind(value)}, and a label is asked for; {_CONVERT}")  # noqa: TRY004 - told with its row
        if value in known:
            return str(value)
        if domain.other is None:
            raise ValueError("not one of the labels, which must be spelled exactly; correct it, or add the label")
        return domain.other

    return read


def _vector(names: Sequence[str], *, partly: bool) -> Callable[[object], tuple[float | None, ...]]:
    def number(value: object) -> float | None:
        try:
            return _number(value)
        except _MissingValueError:
            if not partly:
                raise
            return None

    def read(value: object) -> tuple[float | None, ...]:
        value = _present(value)
        if not is_table(value):
            raise ValueError(f"{_kind(value)}, and {len(names)} numbers are asked for; {_CONVERT}")
        numbers = [value.get(name) for name in names] if isinstance(value, Mapping) else list(value)  # type: ignore[call-overload]
        if len(numbers) != len(names):
            raise ValueError(f"of {len(numbers)} numbers, and {len(names)} are asked for; pass one for each coordinate")
        return tuple(map(number, numbers))

    return read


def _present(value: object) -> object:
    """Return the value, unwrapped from numpy and pandas."""
    if isinstance(value, _NUMPY_TIMES) and not np.isnat(value):
        return value
    value = plain(value)
    if value is None:
        raise _MissingValueError
    return value


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, str):
        return "text"
    if isinstance(value, _TIMES):
        return "a date or a time"
    return "a number" if is_real(value) else f"of type {type(value).__name__[:40]}"


_CODES = frozenset(
    sign * code
    for sign in (1, -1)
    for code in (
        *(0, 1, 7, 8, 9, 66, 77, 88, 97, 98, 99, 99.9, 666, 777, 888, 997, 998, 999, 999.9),
        *(7777, 8888, 9997, 9998, 9999, 9999.9, 77777, 88888, 99999, 888888, 999999),
    )
) - {1}
_LEAST_ROWS = 3
_LEAST_SHARE, _LEAST_SHARE_UNNAMED = 0.001, 0.01
_FAR = 0.1  # of the width of the bounds
_FAR_AT_LEAST = 2.5  # 8 is not far from 6 on a scale from 1 to 10
_SHORT = 10  # a code of one digit is a value wherever the bounds admit it
_MOST = 3


@dataclass(frozen=True, slots=True)
class _Sentinel:
    """A value that may be a code for a missing one: the code if it is a usual one, and how many rows have it."""

    code: float | None
    rows: int
    is_beyond: bool


MARK_IN_PYTHON = (
    'if that is a code for a missing value, put None there (in a CSV file: csv={"na": ...}) and pass missing="drop"'
)
MARK_IN_A_COMMAND = (
    "if that is a code for a missing value, name it with --na (in a Parquet file: empty those cells) and write "
    "--missing drop"
)
"""Remedies for what `hints` are about, in the words of either face."""


def hints(people: Observed, domain: Domain) -> Iterator[str]:
    """Yield sentences about numbers that may be codes, without the remedy; at most three for a column."""
    names: tuple[str, ...] = (people.name,)
    columns: tuple[Sequence[Value], ...] = (people.values,)
    if domain.value_names:
        rows = [row if isinstance(row, tuple) else (None,) * len(domain.sizes) for row in people.values]
        names, columns = domain.value_names, tuple(zip(*rows, strict=True))
    for name, one, values in zip(names, domain.numbers, columns, strict=False):  # a share is not of numbers
        numbers = [value for value in values if isinstance(value, int | float)]
        for found in _found(numbers, one.lower, one.upper)[:_MOST]:
            yield _sentence(found, f"{name}: " if name else "", people.rows)


def _sentence(found: _Sentinel, column: str, rows: int) -> str:
    what = "one and the same number" if found.code is None else f"{found.code:g}"
    where = "beyond the bounds" if found.is_beyond else "far from all others"
    return f"{column}{whole(found.rows)} of {whole(rows)} rows have {what}, {where}"


def _found(numbers: Sequence[float], lower: float, upper: float) -> list[_Sentinel]:
    unique, counts = np.unique(np.asarray(numbers, dtype=float), return_counts=True)
    usual = np.isin(unique, list(_CODES))
    ordinary = unique[~usual]
    far = max(_FAR * (upper - lower), _FAR_AT_LEAST)
    found: list[_Sentinel] = []
    for place in np.flatnonzero(counts >= max(_LEAST_ROWS, _LEAST_SHARE * len(numbers))).tolist():
        value, rows, is_code = float(unique[place]), int(counts[place]), bool(usual[place])
        is_beyond = not lower <= value <= upper
        gaps = _gaps(value, ordinary if is_code else unique)
        if not gaps:
            continue  # nothing to compare it with
        is_far, is_extreme = min(gaps) > far, len(gaps) == 1
        if is_code and is_beyond:
            suspect = is_far or value < 0 <= min(lower, float(ordinary[0]))
        elif is_code:
            suspect = is_far and is_extreme and abs(value) >= _SHORT
        else:
            suspect = is_beyond and is_far and is_extreme and rows >= _LEAST_SHARE_UNNAMED * len(numbers)
        if suspect:
            found.append(_Sentinel(value if is_code else None, rows, is_beyond))
    return sorted(found, key=lambda one: -one.rows)


def _gaps(value: float, ordinary: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> list[float]:
    """Return the distances to the next ordinary values on either side; `ordinary` ascends."""
    below, above = np.searchsorted(ordinary, value, "left"), np.searchsorted(ordinary, value, "right")
    return [float(abs(one - value)) for one in (*ordinary[:below][-1:], *ordinary[above:][:1])]
