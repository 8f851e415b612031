"""Epsilon as an exact fraction, and certified integer bounds of e^±epsilon.

A privacy parameter is never a float here: it enters as decimal text, is held as a `Fraction`, is charged as a
`Fraction`, and every probability threshold made of it is an integer whose rounding is directed so that the true loss
never exceeds it.
"""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, floor, inf, nextafter

from hush_common.errors import EpsilonError

SMALLEST = Fraction(1, 10**6)
LARGEST = Fraction(50)
WEAK_ABOVE = Fraction(4)
"""Above this, an observer who was 50/50 becomes more than 98 % sure: legal, but worth a warning."""

WEIGHT_OF_TRUTH = 1 << 128
"""Weight of a true answer in every extremal mechanism; a lie weighs `weight_of_lie(epsilon)`."""

_DECIMAL = re.compile(r"[0-9]{1,3}(\.[0-9]{1,18})?([eE]-?[0-9])?")
_BEYOND = re.compile(r"-[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?|[1-9][0-9]{3,}(\.[0-9]+)?")
"""What is a decimal number, too, and outside whatever it says: a negative one, or one of four digits or more."""
_LONGEST = 40  # decimal places: 18 typed, 27 with an exponent
_PRECISION = 512  # bits after the binary point: 2^-512 leaves > 300 bits after e^50 · 2^128


def parse_epsilon(text: object, *, field: str = "epsilon") -> Fraction:
    """Read an epsilon exactly.

    Args:
        text: decimal text such as `"0.5"` or `"1e-3"`, or an integer. Floats are refused: 0.1 is not one tenth.
        field: what to call it in an error.

    Raises:
        EpsilonError: not a decimal number, or outside [1e-6, 50].
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise EpsilonError(field, f'{text!r} is not exact; write a decimal string such as "0.5", or an integer')
    epsilon = decimal_fraction(text) if isinstance(text, str) else Fraction(text)
    if epsilon is not None and SMALLEST <= epsilon <= LARGEST:
        return epsilon
    shown = str(text)[:40]
    if epsilon is None and not _BEYOND.fullmatch(shown):
        raise EpsilonError(field, f'{shown!r} is not a decimal number; write for example "0.5"')
    raise EpsilonError(field, f"{shown} is outside [0.000001, 50]; 0.1 to 4 is usual, smaller is more private")


def decimal_fraction(text: str) -> Fraction | None:
    """The number that is written `"0.5"` or `"1e-3"`, exactly; None if it has another form, or four digits or more."""
    return Fraction(text) if _DECIMAL.fullmatch(text) else None


def decimal_text(epsilon: Fraction) -> str:
    """The shortest exact decimal text of `epsilon` (`"0.5"`), or `"1/3"` where there is none."""
    for places in range(_LONGEST):
        scaled = epsilon * 10**places
        if scaled.denominator == 1:
            digits = str(scaled.numerator).rjust(places + 1, "0")
            return f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return f"{epsilon.numerator}/{epsilon.denominator}"


def posterior(epsilon: Fraction) -> float:
    """The largest posterior of an observer who was 50/50 between two values: e^epsilon / (1 + e^epsilon).

    For people to read; no probability of a device is made of it.
    """
    return 1 / (1 + exp(-float(epsilon)))


def at_most_sure(epsilon: Fraction, prior: Fraction = Fraction(1, 2)) -> Fraction:
    """An upper bound, within 2^-300, of an observer's posterior: p·e^epsilon/(p·e^epsilon + 1 - p).

    Args:
        epsilon: the loss of all reports together; beyond 64 the bound is 1.
        prior: p, the observer's probability of a value before, against any other one; in [0, 1].
    """
    if epsilon > 64:  # noqa: PLR2004 - as far as `certified_exp` goes
        return Fraction(prior > 0)
    odds = prior * certified_exp(epsilon)[1]
    return odds / (odds + 1 - prior)


def float_at_most(share: Fraction) -> float:
    """A share of one as a float, rounded up, and never above 1."""
    return min(nextafter(float(share), inf), 1.0)


def certified_exp(x: Fraction) -> tuple[Fraction, Fraction]:
    """Rational bounds lower ≤ e^x ≤ upper, for 0 ≤ x ≤ 64, at most 2^-400 apart.

    Taylor's series in fixed point, once with every term rounded down and once up. After the last term J > 2x the
    remainder is below the last term, because each further term is less than half of the one before.
    """
    if not 0 <= x <= 64:  # noqa: PLR2004 - stated in the docstring
        raise ValueError(f"{x} is outside [0, 64]")
    one = 1 << _PRECISION
    low_term = high_term = low = high = one
    j = 0
    while high_term > 1 or j <= 2 * x:
        j += 1
        low_term = low_term * x.numerator // (x.denominator * j)
        high_term = -(-high_term * x.numerator // (x.denominator * j))
        low, high = low + low_term, high + high_term
    return Fraction(low, one), Fraction(high + high_term, one)


@lru_cache(maxsize=256)
def weight_of_lie(epsilon: Fraction) -> int:
    """The integer floor(2^128 · e^-epsilon) + 1: never below 2^128 · e^-epsilon, so truth : lie ≤ e^epsilon exactly.

    The surplus is below one part in 2^128 · e^-epsilon: the true loss is epsilon less 1.2e-39 at epsilon = 1 and
    less 4e-18 at epsilon = 50.
    """
    low, high = certified_exp(epsilon)
    above, below = WEIGHT_OF_TRUTH / low, WEIGHT_OF_TRUTH / high
    if floor(above) != floor(below):  # pragma: no cover - 300 bits of room; e^x is irrational
        raise ArithmeticError(f"precision exhausted at epsilon {epsilon}")
    return floor(below) + 1


def log_ceiling(ratio: Fraction) -> Fraction:
    """The smallest decimal of six places that is not below ln(ratio), 1 < ratio ≤ e^50: certified, by bisection.

    Raises:
        ValueError: ratio ≤ 1 or above e^50.
    """
    unit = 10**6
    if ratio <= 1:
        raise ValueError(f"a ratio of {ratio} has no positive logarithm")
    low, high = 0, ceil(LARGEST) * unit
    if certified_exp(Fraction(high, unit))[0] < ratio:
        raise ValueError("the ratio exceeds e^50")
    while high - low > 1:
        middle = (low + high) // 2
        if certified_exp(Fraction(middle, unit))[0] >= ratio:
            high = middle
        else:
            low = middle
    return Fraction(high, unit)
