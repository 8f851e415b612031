"""Numbers as the page shows them: with a minus sign (U+2212). Attributes for programs keep the hyphen."""

import re

from hush_aggregator.presentation import NumberFormat
from hush_common.formatting import exact

_MINUS = "\N{MINUS SIGN}"


class PageNumberFormat(NumberFormat):
    """A number format that writes a minus sign."""

    __slots__ = ()

    def number(self, value: float) -> str:
        return with_minus(super().number(value))


def with_minus(number: str) -> str:
    """Return the text of a number with minus signs in the place of hyphens."""
    return number.replace("-", _MINUS)


def unbroken(sentence: str) -> str:
    """Return a sentence whose numbers do not end a line between their thousands."""
    return re.sub(r"(?<=[0-9]) (?=[0-9]{3})", "\N{NO-BREAK SPACE}", sentence)


def shown_exact(value: float, *, scale: int = 1) -> str:
    """Return a typed number, such as a bound, times `scale`."""
    return with_minus(exact(value, scale=scale))
