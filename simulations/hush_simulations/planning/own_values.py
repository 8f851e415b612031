"""Values that somebody has, as a plan needs them: how they are distributed over the domain."""

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.worst_case import Values
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain
from hush_simulations.planning.plan import OwnValues, range_of

__all__ = ["own_values"]

_GRID = 1025
"""Places that stand for all values between the bounds, of those who have none and answer with any."""


def own_values(domain: Domain, values: Sequence[object], rows: Mapping[str, object], column: str) -> OwnValues:
    """How the values of a column are distributed.

    Args:
        domain: a number, yes or no, or categories. A number beyond a bound counts as the bound, as on a device.
        values: at least one; None stands for a device without one, which answers with any legal value.
        rows: what became of the rows of the table, as a result tells it.
        column: its name.

    Raises:
        TypeError: the domain is a vector's.
    """
    present = [value for value in values if value is not None]
    absent = 1 - len(present) / len(values)
    match domain:
        case NumberDomain(lower=lower, upper=upper):
            places = (np.clip(np.array(present, dtype=np.float64), lower, upper) - lower) / (upper - lower)
            known: tuple[Values, ...] = (_mixed(places, np.linspace(0, 1, _GRID), absent),)
        case BitDomain():
            known = (_mixed(np.array(present, dtype=np.float64), np.array([0.0, 1.0]), absent),)
        case CategoryDomain(labels=labels):
            counts = {label: present.count(label) for label in labels}
            shares = [(1 - absent) * count / max(len(present), 1) + absent / len(labels) for count in counts.values()]
            known = tuple(Values(np.array([0.0, 1.0]), np.array([1 - share, share])) for share in shares)
        case _:
            raise TypeError("a plan from one's own data is about one column")
    deviation = sqrt(known[0].moment(2)) * range_of(domain) if len(known) == 1 else None
    return OwnValues(known=known, rows=rows, column=column, deviation=deviation)


def _mixed(places: NDArray[np.float64], any_of: NDArray[np.float64], absent: float) -> Values:
    """The values, and a share spread evenly over others."""
    found, counts = np.unique(places, return_counts=True)
    shares = (1 - absent) * counts / max(len(places), 1)
    if not absent:
        return Values(found, shares)
    return Values(np.concatenate((found, any_of)), np.concatenate((shares, np.full(len(any_of), absent / len(any_of)))))
