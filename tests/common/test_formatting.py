"""Every number that hush prints reads back as the number that it was, to half a unit of its last digit."""

import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from hush_common.formatting import Figure, at_least, at_most, exact, fixed, percent_at_most, ratio, significant, whole

SIGNIFICANT = ((1, 1), (2, 1), (2, 100), (3, 1), (3, 100), (6, 1), (6, 100), (12, 1))
"""Digits and scales in use."""
FIXED = ((0, 1), (2, 1), (3, 100), (12, 1), (12, 100))
MANY = pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.large)])


def numbers(count: int) -> Iterator[Figure]:
    """All that may be printed, and what is hardest to print among it."""
    yield from (0, 0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, sys.float_info.max, 10**400 + 1, -(10**5000))
    yield from (sign * 10 * tens for tens in range(10, 101) for sign in (1, -1, 1.0))  # 100 to 1000, ending in 0
    every = 1 if count > 10_000 else 10
    for power in range(-300, 301, every):
        yield from (10.0**power, math.nextafter(10.0**power, 0))
    yield from (float(f"{nines}e{power}") for power in range(-12, 13) for nines in ("9.995", "9.9949999", "99.96"))
    yield from (Fraction(9995 + step, 10**places) for places in range(12) for step in (-1, 0, 1))  # ties
    source = random.Random(8)  # noqa: S311 - numbers to print
    for _ in range(count):
        match source.randrange(6):
            case 0:
                yield source.choice((1, -1)) * source.uniform(1, 10) * 10.0 ** source.randint(-300, 300)
            case 1 | 2 | 3:
                yield source.choice((1, -1)) * source.uniform(1, 10) * 10.0 ** source.randint(-8, 10)
            case 4:
                yield source.randint(-(10 ** source.randint(1, 40)), 10 ** source.randint(1, 40))
            case _:
                yield Fraction(source.randint(-(10**9), 10**9), source.randint(1, 10**9))


def read(text: str) -> Fraction:
    return Fraction(text.replace(" ", ""))


def half_a_unit(text: str) -> Decimal:
    """Of the last digit that is shown."""
    return Decimal((0, (5,), int(Decimal(text.replace(" ", "")).as_tuple().exponent) - 1))


def is_near(text: str, number: Figure, scale: int, digits: int) -> bool:
    """Whether it reads back within half a unit of the last digit shown, and of the last of `digits` asked for."""
    shown = Decimal(text.replace(" ", ""))
    numerator, denominator = number.as_integer_ratio()
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 80, 10**6, -(10**6)  # ties are ties: they have no more digits
        x = Decimal(numerator) * scale / denominator
        up = abs(x) < abs(shown) and shown.as_tuple().digits[1:].count(0) == len(shown.as_tuple().digits) - 1
        up = up and shown.as_tuple().digits[0] == 1  # to the next power of ten
        asked = Decimal((0, (5,), shown.adjusted() - up - digits)) if shown else Decimal(0)
        return abs(shown - x) <= min(asked, half_a_unit(text))


def missed(write: Callable[[Figure, int, int], str], some: Iterable[Figure]) -> list[Figure]:
    """The numbers that do not read back, with each of the digits in turn."""
    found = []
    for place, number in enumerate(some):
        digits, scale = SIGNIFICANT[place % len(SIGNIFICANT)]
        if not is_near(write(number, digits, scale), number, scale, digits):
            found.append(number)
    return found


@MANY
def test_a_number_reads_back_to_half_a_unit_of_its_last_digit(count: int) -> None:
    assert missed(lambda number, digits, scale: significant(number, digits, scale=scale), numbers(count)) == []


def test_zeros_stripped_from_whole_numbers_would_not_read_back() -> None:
    """The formatter of plans as it once was: 200 g became 2 g."""

    def stripped(number: Figure, digits: int, scale: int) -> str:
        value = float(number) * scale
        text = f"{value:.{max(0, digits - 1 - math.floor(math.log10(value)))}f}".rstrip("0").rstrip(".")
        return text if value < 1000 else f"{value:,.0f}".replace(",", " ")

    assert len(missed(stripped, (tens * 10 for tens in range(10, 100)))) > 10


@MANY
def test_a_number_of_fixed_places_reads_back_to_half_a_unit(count: int) -> None:
    for place, number in enumerate(numbers(count)):
        places, scale = FIXED[place % len(FIXED)]
        text = fixed(number, places, scale=scale) if abs(Fraction(number)) < 10**40 else "0"
        assert abs(read(text) - Fraction(number) * scale) <= Fraction(half_a_unit(text)) or text == "0"
        assert len(text.partition(".")[2]) == places or text == "0"


def test_an_exact_number_reads_back_as_itself() -> None:
    for number in numbers(1000):
        if isinstance(number, float):
            assert float(exact(number).replace(" ", "")) == number
            assert read(exact(number, scale=100)) == Fraction(repr(number)) * 100
        elif isinstance(number, int) and abs(number) < 10**4000:
            assert int(exact(number).replace(" ", "")) == number


def test_a_bound_of_the_truth_stays_one() -> None:
    for number in numbers(1000):
        x, unit = Fraction(number), Fraction(1, 10**4)
        if Fraction(1, 10**9) < abs(x) < 10**40:
            assert x - unit < read(at_least(number, 4)) <= x <= read(at_most(number, 4)) < x + unit


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (200, "200"),
        (200.0, "200"),
        (0.1999, "0.2"),
        (99.96, "100"),
        (999.6, "1 000"),
        (12_293, "12 293"),
        (9.996e-7, "0.000001"),
        (1.234e-7, "1.23e-07"),
        (999_999_999.6, "1e+09"),
        (-0.05, "-0.05"),
        (0.0, "0"),
        (math.inf, "inf"),
    ],
)
def test_three_digits_look_like_this(number: float, text: str) -> None:
    assert significant(number) == text


def test_each_kind_of_figure_looks_like_this() -> None:
    assert (whole(12_293), whole(-1_000_000.4)) == ("12 293", "-1 000 000")
    assert (fixed(0.125, 2), fixed(-0.001, 2, sign=True), fixed(0.5, 1, scale=100)) == ("0.12", "0.00", "50.0")
    assert (exact(0.9999999, scale=100), exact(1_234_567.0), exact(1e300)) == ("99.99999", "1 234 567", "1e+300")
    assert (ratio(1.1712), ratio(1 / 25.6), ratio(3074)) == ("1.17", "1/25.6", "3 074")
    assert percent_at_most(Fraction(731_058_579, 10**9)) == "73.2 %"
