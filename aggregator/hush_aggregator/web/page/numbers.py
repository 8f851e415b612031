"""Numbers in sentences of the page."""

import re

from hush_aggregator.publish.presentation import with_minus
from hush_common.formatting import exact


def unbroken(sentence: str) -> str:
    """Return a sentence whose numbers do not end a line between their thousands or before a per cent sign."""
    return re.sub(r"(?<=[0-9]) (?=[0-9]{3}|%)", "\N{NO-BREAK SPACE}", sentence)


def shown_exact(value: float, *, scale: int = 1) -> str:
    """Return a typed number, such as a bound, times `scale`."""
    return with_minus(exact(value, scale=scale))
