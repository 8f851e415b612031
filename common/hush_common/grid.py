"""A grid: from a real number to the integer that stands for it, in integers alone."""

from decimal import Decimal
from math import isfinite, isnan, nan
from numbers import Rational

__all__ = ["Grid"]


class Grid:
    """The points lower + k·(upper - lower)/steps, k = 0 to `steps`.

    Both bounds are binary fractions. Over a common denominator they are integers, computed once, and a number n/u lies
    at (n·unit - low·u)·steps / (span·u) steps: one division with a remainder, which says the point and on which side.
    How long that takes grows with the digits of n and u: a number that is tiny beside its domain, such as 1e-300,
    takes longer than one of its size, and one beyond a bound saves the division.

    Args:
        lower: finite.
        upper: finite, above `lower`.
        steps: at least 1.
    """

    __slots__ = ("_low", "_span", "_steps", "_unit")

    def __init__(self, lower: float, upper: float, steps: int) -> None:
        (low, low_unit), (high, high_unit) = lower.as_integer_ratio(), upper.as_integer_ratio()
        self._unit = max(low_unit, high_unit)  # powers of two: the larger is a multiple of the other
        self._low = low * (self._unit // low_unit)
        self._span = high * (self._unit // high_unit) - self._low
        self._steps = steps

    def index(self, value: object) -> tuple[int | None, bool]:
        """The point next to a real number, ties to the even one, and whether it was moved; (None, False) for NaN.

        Exact and bounded: a Decimal is taken as the nearest binary64, so that no exponent is ever expanded, and the
        work on any other number is linear in its digits.

        Args:
            value: of a type that `hush_common.reading.is_real` admits.
        """
        try:
            found = value.as_integer_ratio() if type(value) is float and isfinite(value) else _ratio(value)
        except BaseException:  # noqa: BLE001 - whatever the methods of a value raise: it must not decide
            return None, False
        if isinstance(found, float):  # NaN or infinite
            return (None, False) if isnan(found) else (self._steps if found > 0 else 0, True)
        number, unit = found
        above, whole = number * self._unit - self._low * unit, self._span * unit
        if above < 0:
            return 0, True
        if above > whole:
            return self._steps, True
        index, rest = divmod(above * self._steps, whole)
        rest += rest
        return index + (rest > whole or (rest == whole and index & 1)), False

    def number(self, index: int) -> float:
        """The float nearest to a point, of the grid or beyond it: the quotient of integers is rounded once.

        Raises:
            OverflowError: it is beyond all floats.
        """
        return (self._low * self._steps + self._span * index) / (self._unit * self._steps)


def _ratio(value: object) -> tuple[int, int] | float:
    """An exact fraction with a positive denominator; a float only if it is none."""
    kind = type(value)
    if issubclass(kind, int):
        return int.__int__(value), 1  # type: ignore[arg-type]  # of an int
    if issubclass(kind, Decimal):
        decimal = Decimal(value)  # type: ignore[arg-type]  # of a Decimal
        number = nan if decimal.is_nan() else float(decimal)
    elif issubclass(kind, Rational):
        numerator, denominator = int(value.numerator), int(value.denominator)  # type: ignore[attr-defined]
        if denominator == 0:
            return nan
        return (-numerator, -denominator) if denominator < 0 else (numerator, denominator)
    else:
        number = float(value)  # type: ignore[arg-type]  # a Real has one
    return number.as_integer_ratio() if isfinite(number) else number
