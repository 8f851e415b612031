"""How numbers are written for people.

Every figure is rounded once, from the exact value, half to even, so that the text is within half a unit of its last
digit. Thousands are grouped by a space. A number below zero has a hyphen: people copy numbers from a terminal into
programs, which read no other sign. Pages and pictures show a minus sign in its place. `at_least`, `at_most` and
`percent_at_most` round in one direction only, for bounds and promises: the text is never better than the truth.
"""

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

Figure: TypeAlias = int | float | Fraction | Decimal
_Quotient: TypeAlias = tuple[int, int]

_SMALLEST_PLAIN, _LARGEST_PLAIN = -6, 8
"""Powers of ten of the first digit between which no exponent is needed."""
_LARGEST_EXACT = 15
_MOST_PLACES = 12


def significant(value: Figure, digits: int = 3, *, scale: int = 1) -> str:
    """Format `value`·`scale` with `digits` ≥ 1 significant digits, and at least all before the point.

    Zeros at the end of a fraction are left out, those of a whole number never: 200 is `"200"`, 0.1999 is `"0.2"`. Below
    1e-6 and from 1e9 on it has an exponent: `"1.23e-07"`. The multiplication is exact; `scale` is 100 for per cent.
    """
    if _is_endless(value):
        return str(value)
    x = _scaled(value, scale)
    if x[0] == 0:
        return "0"
    power = _power(x, digits)
    if _SMALLEST_PLAIN <= power <= _LARGEST_PLAIN:
        places = max(digits - 1 - power, 0)
        return _short(_pointed(_rounded(x, places), places))
    mantissa = _pointed(_rounded(x, digits - 1 - power), digits - 1)
    return f"{_short(mantissa)}e{power:+03d}"


def fixed(value: Figure, places: int, *, scale: int = 1, sign: bool = False) -> str:
    """Format `value`·`scale` with `places` digits after the point; with `sign`, a + before positive numbers."""
    if _is_endless(value):
        return str(value)
    units = _rounded(_scaled(value, scale), places)
    return ("+" if sign and units > 0 else "") + _pointed(units, places)


def whole(value: Figure) -> str:
    """Format a whole number: `"12 293"`."""
    return fixed(value, 0)


def ratio(value: Figure) -> str:
    """Format a ratio: `"1.17"`, and below one its inverse, `"1/25.6"`."""
    if not _is_endless(value) and 0 < value < 1:
        return f"1/{significant(1 / Fraction(value))}"
    return significant(value)


def exact(value: float, *, scale: int = 1) -> str:
    """Return the shortest text that reads back as `value`, times `scale`: for typed numbers, such as a bound."""
    text = typed(value, scale=scale)
    if "e" in text or not text.lstrip("-").replace(".", "").isdecimal():
        return text
    before, point, after = text.partition(".")
    minus, digits = before[: before.startswith("-")], before.lstrip("-")
    return f"{minus}{int(digits):,}".replace(",", " ") + point + after


def duration(time: timedelta) -> str:
    """Format a duration in its usual units: `"1 day"`, `"1 h 30 min"`, `"20 s"`."""
    minutes, seconds = divmod(Fraction(time // timedelta(microseconds=1), 10**6), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{whole(days)} {'day' if days == 1 else 'days'}"] if days else []
    parts += [f"{hours} h"] if hours else []
    parts += [f"{minutes} min"] if minutes else []
    parts += [f"{exact(float(seconds))} s"] if seconds or not parts else []
    return " ".join(parts)


def typed(value: float, *, scale: int = 1) -> str:
    """Return the same for programs: thousands are not grouped."""
    if isinstance(value, int):
        return str(value * scale)
    if _is_endless(value):
        return str(value)
    scaled = Decimal(repr(value)) * scale  # exact: 17 digits and those of the scale
    if not scaled:
        return "0"
    if _SMALLEST_PLAIN <= scaled.adjusted() <= _LARGEST_EXACT:
        return _short(f"{scaled:f}")
    mantissa, _, power = f"{scaled:e}".partition("e")
    return f"{_short(mantissa)}e{int(power):+03d}"


def at_least(value: Figure, places: int) -> str:
    """Round down: a lower bound remains one."""
    return _directed(value, places, math.floor)


def at_most(value: Figure, places: int) -> str:
    """Round up: an upper bound remains one."""
    return _directed(value, places, math.ceil)


def percent_at_most(share: Fraction) -> str:
    """Format a share of one in per cent, rounded up and never to 100 %: a promise must not be better than the truth."""
    for places in range(1, _MOST_PLACES):
        text = at_most(100 * share, places)
        if Fraction(text) < 100:  # noqa: PLR2004 - per cent
            return f"{text} %"
    return "more than 99.99999999 %"


def _is_endless(value: Figure) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _scaled(value: Figure, scale: int) -> _Quotient:
    numerator, denominator = value.as_integer_ratio()
    return numerator * scale, denominator


def _rounded(x: _Quotient, places: int) -> int:
    """Round to units of the last place (before the point if negative), half to even."""
    numerator, denominator = x
    if places < 0:
        denominator *= 10**-places
    else:
        numerator *= 10**places
    units, rest = divmod(numerator, denominator)
    return units + (2 * rest > denominator or (2 * rest == denominator and units % 2))


def _power(x: _Quotient, digits: int) -> int:
    """Return the power of ten of the first digit of x ≠ 0, after rounding to `digits`."""
    size = abs(x[0]), x[1]
    power = math.floor((size[0].bit_length() - size[1].bit_length() - 1) * math.log10(2))  # or one more
    while _rounded(size, digits - 1 - power) >= 10**digits:
        power += 1
    return power


def _directed(value: Figure, places: int, direction: Callable[[Fraction], int]) -> str:
    if _is_endless(value):
        return str(value)
    return _pointed(direction(Fraction(value) * 10**places), places)


def _pointed(units: int, places: int) -> str:
    """Format an integer of units of the last place, with its point and grouped thousands."""
    before, after = divmod(abs(units), 10**places)
    text = f"{before:,}".replace(",", " ") + (f".{after:0{places}d}" if places else "")
    return f"-{text}" if units < 0 else text


def _short(text: str) -> str:
    """Remove the zeros at the end of a fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text
