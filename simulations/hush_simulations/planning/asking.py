"""Read the numbers of a question about sample size, epsilon or error, from an option or an argument."""

import math
import re
from fractions import Fraction

from hush_common.domain import Domain
from hush_common.errors import OptionError
from hush_common.formatting import significant
from hush_simulations.planning.plan import MOST_PEOPLE, range_of

_PEOPLE = re.compile(r"[0-9][0-9 _]*([eE][0-9]{1,2})?")
_ERROR = re.compile(r"(?P<number>[0-9.]+([eE]-?[0-9]+)?)\s*(?P<percent>%?)")


def _written(field: str, text: str) -> str:
    """Return how a person gives this value to an option or an argument."""
    return f"{field} {text}" if field.startswith("--") else f"{field}={text if text.isdecimal() else repr(text)}"


def parse_people(text: str, field: str) -> int:
    """Return a number of people, written as `5000`, `5 000`, `5_000` or `1e6`.

    Raises:
        OptionError: another text, or a number outside 1 to `MOST_PEOPLE`.
    """
    if not _PEOPLE.fullmatch(text.strip()):
        raise OptionError(
            field, f"{text[:40]!r} is not a number of people; write for example {_written(field, '5000')}"
        )
    count = int(Fraction(text.strip().replace("_", "").replace(" ", "")))
    if not 1 <= count <= MOST_PEOPLE:
        raise OptionError(
            field, f"{text[:40]} is outside 1 to {significant(MOST_PEOPLE, 1)}; write how many people answer"
        )
    return count


def parse_error(text: str, domain: Domain, field: str, *, bounded: bool = True) -> float:
    """Return an error as a share of the range: `5%` of it, or a number in the unit of the value.

    Args:
        text: the error.
        domain: of the value.
        field: its name, for messages.
        bounded: whether somebody gave the bounds of the domain; without them only a share of the range has a meaning.

    Raises:
        OptionError: not a positive error of this domain.
    """
    match = _ERROR.fullmatch(text.strip())
    try:
        value = math.nan if match is None else float(match["number"])
    except ValueError:
        value = math.nan
    if match is None or not 0 < value < math.inf:
        raise OptionError(
            field, f"{text[:40]!r} is not a positive error; write {_written(field, '5%')}, or 2.5 in the unit"
        )
    if match["percent"]:
        return value / 100
    if domain.is_share:
        if value >= 1:
            raise OptionError(
                field,
                f"{text} is not the error of a share; write {text}%, or {significant(Fraction(value) / 100, 12)}",
            )
        return value
    if not bounded:
        raise OptionError(field, f"{text} is in the unit of the value: add --lower and --upper, or write it as 5%")
    return value / range_of(domain)
