"""Sentinels: numbers of somebody's data that may be codes for a missing value, such as 999 or -99.

Nothing is changed for such a code: a person reads the hint and decides. Only codes that surveys and instruments use are
shown; of another value only that rows share it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hush_common.domain import Domain, NumberDomain, VectorDomain
from hush_common.formatting import whole
from hush_simulations.scenarios.population import Observed

__all__ = ["hints"]

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
    """A value that may be a code.

    Args:
        code: the value, where it is one of the usual codes; else None.
        rows: how many have it.
        is_beyond: whether it is beyond the bounds.
    """

    code: float | None
    rows: int
    is_beyond: bool


def hints(people: Observed, domain: Domain) -> Iterator[str]:
    """Sentences about numbers that may be codes, without the remedy; at most three for a column.

    Args:
        people: the rows.
        domain: what is asked; only numbers have codes that can be taken for values.
    """
    if isinstance(domain, NumberDomain):
        columns = [(people.name, domain.lower, domain.upper, people.values)]
    elif isinstance(domain, VectorDomain):
        rows = [row if isinstance(row, tuple) else (None,) * len(domain.coordinates) for row in people.values]
        parts = zip(domain.coordinates, zip(*rows, strict=True), strict=True)
        columns = [(part.name, part.lower, part.upper, column) for part, column in parts]
    else:
        return
    for name, lower, upper, values in columns:
        numbers = [value for value in values if isinstance(value, int | float)]
        for found in _found(numbers, lower, upper)[:_MOST]:
            yield _sentence(found, f"{name}: " if name else "", people.rows)


def _sentence(found: _Sentinel, column: str, rows: int) -> str:
    what = "one and the same number" if found.code is None else f"{found.code:g}"
    where = "beyond the bounds" if found.is_beyond else "far from all others"
    return f"{column}{whole(found.rows)} of {whole(rows)} rows have {what}, {where}"


def _found(numbers: Sequence[float], lower: float, upper: float) -> list[_Sentinel]:
    """What may be a code, the most frequent first."""
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
    """How far the next ordinary value is on either side, where there is one; `ordinary` ascends."""
    below, above = np.searchsorted(ordinary, value, "left"), np.searchsorted(ordinary, value, "right")
    return [float(abs(one - value)) for one in (*ordinary[:below][-1:], *ordinary[above:][:1])]
