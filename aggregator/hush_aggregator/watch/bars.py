"""Bars: a band on an axis, in as many columns as there are."""

import math

__all__ = ["bar"]

_RULE, _BAND, _VALUE, _BELOW, _ABOVE = "─", "━", "●", "◂", "▸"


def bar(
    low: float, high: float, value: float | None, axis: tuple[float, float], width: int, *, rule: str = _RULE
) -> str:
    """A band from `low` to `high` with its estimate; an arrow at the end where the estimate lies beyond the axis.

    Args:
        low: lower end of the band.
        high: upper end.
        value: the estimate; None for a band alone.
        axis: what the first column begins with and the last one ends with.
        width: columns, at least 1.
        rule: what the axis is drawn with.
    """
    first, last = axis
    signs = [rule] * width
    begin, end = _place(low, axis, width), _place(high, axis, width)
    signs[begin : end + 1] = [_BAND] * (end + 1 - begin)
    if value is not None:
        sign = _BELOW if value < first else _ABOVE if value > last else _VALUE
        signs[_place(value, axis, width)] = sign
    return "".join(signs)


def _place(value: float, axis: tuple[float, float], width: int) -> int:
    first, last = axis
    if not last > first:
        return 0
    share = (value - first) / (last - first)
    return min(max(math.floor(share * width), 0), width - 1) if math.isfinite(share) else 0
