"""Places on axes, and round numbers for them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hush_common.axis import Axis, Ticks, step_above, step_below

STEPS = [Fraction(digit) * Fraction(10) ** power for power in range(-9, 10) for digit in (1, 2, 5)]


@pytest.mark.medium
@given(st.floats(1e-8, 1e8))
def test_steps_are_the_nearest_on_both_sides(size: float) -> None:
    assert step_above(size) == min(step for step in STEPS if step >= Fraction(size) * (1 - Fraction(1, 10**9)))
    assert step_below(size) == max(step for step in STEPS if step <= Fraction(size) * (1 + Fraction(1, 10**9)))


@pytest.mark.parametrize("size", [0.1, 0.2, 0.5, 3 * 0.1 - 0.1, 1e-7, 5e6, 1e22])
def test_a_rounded_step_is_its_own_step(size: float) -> None:
    assert float(step_above(size)) == float(step_below(size)) == pytest.approx(size, rel=1e-12)


@pytest.mark.parametrize(
    ("low", "high", "values", "decimals"),
    [
        (127.3, 190.6, [120, 140, 160, 180, 200], 0),
        (0.0, 14.0, [0, 5, 10, 15], 0),
        (-0.07, 0.11, [-0.1, -0.05, 0.0, 0.05, 0.1, 0.15], 2),
        (0.1 + 0.2, 0.7, [0.3, 0.4, 0.5, 0.6, 0.7], 1),  # 0.30000000000000004
        (1e9, 1e9 + 1, [1e9, 1e9 + 0.2, 1e9 + 0.4, 1e9 + 0.6, 1e9 + 0.8, 1e9 + 1], 1),
    ],
)
def test_ticks_enclose_two_numbers(low: float, high: float, values: list[float], decimals: int) -> None:
    ticks = Ticks.around(low, high, 6)
    assert ticks.values == values
    assert ticks.decimals == decimals


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e12), st.integers(3, 12))
def test_ticks_are_few_and_enclose_the_numbers_closely(low: float, size: float, most: int) -> None:
    high = low + size
    ticks = Ticks.around(low, high, most)
    assert 2 <= len(ticks.values) <= most
    slack = ticks.step / 10**8
    assert ticks.first * ticks.step - slack <= Fraction(low) < Fraction(high) <= ticks.last * ticks.step + slack
    assert Fraction(low) < (ticks.first + 1) * ticks.step + slack
    assert Fraction(high) > (ticks.last - 1) * ticks.step - slack


def test_a_number_beyond_an_axis_is_at_its_end() -> None:
    axis = Axis(-1e308, 1e308)
    assert [axis.place(value, 80) for value in (float("-inf"), -1e308, 0.0, 1e308, float("inf"))] == [0, 0, 40, 80, 80]
    assert [Axis(1.0, 100.0, logarithmic=True).place(value, 10) for value in (0.1, 1, 10, 1000)] == [0, 0, 5, 10]


def test_a_band_is_never_too_thin_to_see() -> None:
    axis = Axis(0.0, 10.0)
    assert axis.span((2.0, 4.0), 1000, 4) == (200, 200)
    assert axis.span((10.0, 10.0), 1000, 4) == (996, 4)


def test_an_axis_has_room_around_its_numbers() -> None:
    assert Axis.around([0.0, 100.0, 50.0], 0.08) == Axis(-8.0, 108.0)
    assert Axis.around([], 0.08) is Axis.around([3.0, 3.0], 0.08) is Axis.around([-1e308, 1e308], 0.08) is None
