"""Views: what an audit looks at in a report. Whatever it is, it is post-processing and cannot add to epsilon."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import inf, isnan
from numbers import Real
from typing import Any

import numpy as np

from hush_common.domain import Domain, NumberDomain
from hush_common.mechanisms import Laplace, Single, SubsetSelection, Vector

__all__ = ["View", "numeric", "views_of_mechanism", "views_of_reports"]

_JUDGED_WHOLE = 12  # categories: at most C(12, 6) = 924 sets, each a cell


@dataclass(frozen=True, slots=True)
class View:
    """One way of looking at a report.

    Args:
        of: what is looked at, in words.
        look: from a report to a float, for numbers, or to anything else that can be compared, for names.
    """

    of: str
    look: Callable[[Any], Hashable]


def views_of_mechanism(part: Single, domain: Domain) -> list[View]:
    """How to look at the bodies of a mechanism: at what its likelihood ratio depends on, and at the whole if small."""
    match part, domain:
        case SubsetSelection(categories=categories), _:
            first, last = (0, 0), divmod(categories - 1, 32)
            both = View("(first named, last named)", lambda body: (_bit(body, *first), _bit(body, *last)))
            return [both, View("the body", tuple)] if part.size == 1 or categories <= _JUDGED_WHOLE else [both]
        case Vector(levels=levels), _:
            ends = View("(levels at top, at bottom)", lambda body: _ends(body, levels))
            return [ends, View("(first coordinate drawn, its level)", lambda body: tuple(body[:2]))]
        case Laplace(), NumberDomain(lower=lower, step=step):
            width = float(step)
            return [View("the report", lambda body: lower + width * body[0])]
        case _:
            return [View("the report", lambda body: float(body[0]))]


def _bit(body: Sequence[int], word: int, bit: int) -> int:
    return body[word] >> bit & 1


def _ends(body: Sequence[int], levels: int) -> tuple[int, int]:
    drawn = tuple(body[1::2])
    return drawn.count(levels), drawn.count(0)


def numeric(report: object) -> float | None:
    """A report as a float, or None if it is no number. What floats cannot tell apart is one; NaN is infinity."""
    if not isinstance(report, Real | Decimal | np.bool_):
        return None
    try:
        number = float(report)
    except OverflowError:  # beyond all floats
        number = inf if isinstance(report, int | Fraction) and report > 0 else -inf
    return inf if isnan(number) else number


def views_of_reports(reports: Sequence[object]) -> list[View]:
    """How to look at reports of unknown make: numbers as such; of tuples the whole, and every part.

    Raises:
        TypeError: reports that are neither numbers nor can be compared.
    """
    if all(numeric(one) is not None for one in reports) and not all(isinstance(one, bool) for one in reports):
        return [View("the report", numeric)]
    hash(reports[0])  # what cannot be compared says so
    views = [View("the report", _whole)]
    if all(isinstance(one, tuple) for one in reports):
        shortest = min(len(one) for one in reports if isinstance(one, tuple))
        for place in range(shortest):
            parts = [one[place] for one in reports if isinstance(one, tuple)]
            as_numbers = all(numeric(part) is not None for part in parts)
            views.append(View(f"part {place + 1} of the report", _part(place, as_numbers=as_numbers)))
    return views


def _whole(report: object) -> Hashable:
    hash(report)
    return report


def _part(place: int, *, as_numbers: bool) -> Callable[[object], Hashable]:
    def look(report: object) -> Hashable:
        part = report[place] if isinstance(report, tuple) and len(report) > place else None
        number = numeric(part) if as_numbers else None
        return number if as_numbers and number is not None else _whole(part)

    return look
