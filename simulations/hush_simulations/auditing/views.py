"""Views: functions of a report that an audit looks at: post-processing, which cannot add to epsilon."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import inf, isnan
from numbers import Real
from typing import Any

import numpy as np

from hush_common.domain import Domain
from hush_common.mechanisms import Mechanism

__all__ = ["View", "numeric", "views_of_mechanism", "views_of_reports"]


@dataclass(frozen=True, slots=True)
class View:
    """One way of looking at a report.

    Args:
        of: what is looked at, in words.
        look: from a report to a float, for numbers, or to anything else that can be compared, for names.
    """

    of: str
    look: Callable[[Any], Hashable]


def views_of_mechanism(part: Mechanism, domain: Domain) -> list[View]:
    """How to look at the bodies of a mechanism: as it says itself."""
    return [View(of, look) for of, look in part.aspects(domain).items()]


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
