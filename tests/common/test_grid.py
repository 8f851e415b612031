"""The grid in integers is the grid in fractions: every index, for every kind of number, bit for bit."""

import math
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hush_common.domain import GRID_STEPS, NumberDomain, ValueGrid

LARGEST = sys.float_info.max
SMALLEST = 5e-324
SETTLED = st.sampled_from(
    [
        *((120.0, 220.0), (0.0, 1.0), (-1.0, 1.0), (0.0, SMALLEST), (-SMALLEST, SMALLEST), (0.1, 0.3)),
        *((1.0, math.nextafter(1.0, 2.0)), (-LARGEST / 2, LARGEST / 2), (0.0, LARGEST), (-1e300, 1e-300)),
        (1e15, 1e15 + 1),
    ]
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
BOUNDS = SETTLED | st.tuples(FINITE, FINITE).filter(lambda pair: pair[0] < pair[1])
STEPS = st.sampled_from([1, 2, 3, 7, 1000, GRID_STEPS - 1, GRID_STEPS])


class Count(int):
    """An integer with a name."""


class Reach(float):
    """A float with a name."""


def by_definition(value: object, lower: float, upper: float, steps: int) -> tuple[int | None, bool]:
    """Clamped into the bounds, then the number of steps above the lower one, ties to the even one, all in fractions."""
    if isinstance(value, Decimal):
        value = math.nan if value.is_nan() else float(value)
    number = value if isinstance(value, int | Fraction) else float(value)  # type: ignore[arg-type]  # one of numpy's
    if number != number:  # noqa: PLR0124 - NaN alone
        return None, False
    if number in (math.inf, -math.inf):
        return (steps if number > 0 else 0), True
    exact, low, high = Fraction(number), Fraction(lower), Fraction(upper)
    inside = min(max(exact, low), high)
    return round((inside - low) / ((high - low) / steps)), inside != exact


def near_the_ties(lower: float, upper: float, steps: int, place: int) -> list[float]:
    """The float next to the middle between two points, and its neighbours."""
    step = (Fraction(upper) - Fraction(lower)) / steps
    middle = float(Fraction(lower) + (place % steps + Fraction(1, 2)) * step)
    return [math.nextafter(middle, -math.inf), middle, math.nextafter(middle, math.inf)]


@pytest.mark.medium
@given(BOUNDS, STEPS, FINITE, st.integers(min_value=0, max_value=GRID_STEPS))
@example((120.0, 220.0), GRID_STEPS, SMALLEST, 1)
@example((-LARGEST / 2, LARGEST / 2), GRID_STEPS, -LARGEST, 0)
def test_a_float_has_the_index_of_the_definition(
    bounds: tuple[float, float], steps: int, value: float, place: int
) -> None:
    lower, upper = bounds
    grid = ValueGrid(lower, upper, steps)
    ends = [math.nextafter(end, way) for end in bounds for way in (-math.inf, math.inf)]
    inside = lower + (upper / 2 - lower / 2) * (place / GRID_STEPS)
    values = [value, -value, 0.0, -0.0, SMALLEST, lower, upper, inside, *ends, math.inf, -math.inf, math.nan]
    for one in [*values, *near_the_ties(lower, upper, steps, place)]:
        found = grid.index(one)
        assert found == by_definition(one, lower, upper, steps), one
        assert found[0] is None or type(found[0]) is int
        assert type(found[1]) is bool


@pytest.mark.medium
@given(
    BOUNDS,
    STEPS,
    st.one_of(
        st.integers(),
        st.integers(min_value=-(10**400), max_value=10**400),
        st.booleans(),
        st.fractions(),
        st.decimals(),
        st.integers().map(Count),
        FINITE.map(Reach),
        FINITE.map(np.float64),
        st.floats(width=32).map(np.float32),
        st.integers(min_value=-(2**63), max_value=2**63 - 1).map(np.int64),
    ),
)
@example((0.0, LARGEST), GRID_STEPS, Decimal("1e999999"))
@example((120.0, 220.0), GRID_STEPS, Decimal("172.300000000000000000000000000000000001"))
@example((0.0, 2.0), 1, Fraction(1) + Fraction(1, 10**400))
@example((0.0, 2.0), 1, 1)
def test_every_other_number_has_that_index_too(bounds: tuple[float, float], steps: int, value: object) -> None:
    lower, upper = bounds
    assert ValueGrid(lower, upper, steps).index(value) == by_definition(value, lower, upper, steps)


@pytest.mark.medium
@given(BOUNDS, STEPS, st.integers(min_value=-(10**9), max_value=10**9))
def test_a_point_is_shown_by_the_float_nearest_to_it(bounds: tuple[float, float], steps: int, k: int) -> None:
    domain = NumberDomain(*bounds, steps=steps) if math.isfinite(bounds[1] - bounds[0]) else NumberDomain(0.0, 1.0)
    try:
        nearest = float(domain.value_of(k))
    except OverflowError:
        with pytest.raises(OverflowError):
            domain.number_at(k)
        return
    assert domain.number_at(k) == nearest
