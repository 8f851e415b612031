"""An error in words: in the unit of the value, and in per cent of its range."""

from fractions import Fraction

from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.formatting import significant
from hush_common.terminal import TIE


def error_in_words(domain: Domain, value: float) -> str:
    """An error in the unit of the value, and in per cent of its range where that is another number."""
    match domain:
        case BitDomain() | CategoryDomain():
            points = significant(value, scale=100)
            return f"{points}{TIE}{'point' if points == '1' else 'points'}"
        case VectorDomain(coordinates=coordinates):
            return _of_number(coordinates[0], value)
        case NumberDomain():
            return _of_number(domain, value)


def is_share(number: NumberDomain) -> bool:
    """Whether nobody gave bounds, so that an error is one of the range."""
    return (number.lower, number.upper, number.unit) == (0, 1, "")


def _of_number(number: NumberDomain, value: float) -> str:
    if is_share(number):
        return f"{significant(value, scale=100)} %"
    share = Fraction(value) / (Fraction(number.upper) - Fraction(number.lower))
    return f"{significant(value)}{TIE}{number.unit}".rstrip() + f" ({significant(share, scale=100)} %)"
