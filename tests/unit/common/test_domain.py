"""A value becomes an index exactly, before any random draw, or it is an error that does not repeat it."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hush_common.domain import GRID_STEPS, BitDomain, CategoryDomain, Coordinate, NumberDomain, VectorDomain
from hush_common.errors import DomainError, TaskError

HEIGHTS = NumberDomain(120.0, 220.0, "cm")
SECRET = 172.34567


@pytest.mark.parametrize(
    "value", [170, 170.0, Decimal(170), Fraction(170), np.float64(170), np.float32(170), np.int64(170)], ids=repr
)
def test_every_kind_of_real_number_is_welcome(value: object) -> None:
    assert HEIGHTS.index(value).index == GRID_STEPS // 2


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        "12",
        b"12",
        1j,
        [1],
        math.nan,
        math.inf,
        -math.inf,
        Decimal("nan"),
        Decimal("inf"),
        Decimal("1e999"),
    ],
)
def test_what_is_no_finite_number_is_refused(value: object) -> None:
    with pytest.raises(DomainError):
        HEIGHTS.index(value)


@pytest.mark.parametrize(
    ("value", "end"),
    [(119.999, 0), (-1e300, 0), (10**400, GRID_STEPS), (220.0001, GRID_STEPS)],
)
def test_a_value_outside_is_clamped_and_said_to_be(value: object, end: int) -> None:
    assert HEIGHTS.index(value).index == end
    assert HEIGHTS.index(value).clamped


def test_the_bounds_themselves_are_inside() -> None:
    assert HEIGHTS.index(120.0).index == 0
    assert HEIGHTS.index(220.0).index == GRID_STEPS
    assert not HEIGHTS.index(120.0).clamped
    assert not HEIGHTS.index(220.0).clamped


def test_a_task_may_refuse_values_outside_and_the_error_does_not_repeat_the_value() -> None:
    strict = NumberDomain(0.0, 100.0, "cm", outside="refuse")
    with pytest.raises(DomainError, match=r"outside \[0, 100\] cm") as caught:
        strict.index(SECRET)
    assert str(SECRET) not in str(caught.value)


@given(st.floats(120, 220))
def test_rounding_moves_a_value_by_at_most_half_a_step(value: float) -> None:
    moved = HEIGHTS.value_of(HEIGHTS.index(value).scalar) - Fraction(value)
    assert abs(moved) <= HEIGHTS.step / 2


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_the_index_is_inside_and_monotone_for_any_two_floats(one: float, other: float) -> None:
    low, high = HEIGHTS.index(min(one, other)).scalar, HEIGHTS.index(max(one, other)).scalar
    assert 0 <= low <= high <= GRID_STEPS


def test_the_narrowest_and_the_widest_ranges_index_exactly() -> None:
    for lower, upper in ((0.0, 5e-324), (-8e307, 8e307), (1e16, 1e16 + 2)):
        domain = NumberDomain(lower, upper)
        assert domain.index(upper).index == GRID_STEPS
        assert domain.value_of(GRID_STEPS) == Fraction(upper)


@pytest.mark.parametrize(
    ("lower", "upper", "field"),
    [
        (1.0, 1.0, "domain.lower"),
        (2.0, 1.0, "domain.lower"),
        (math.nan, 1.0, "domain.lower"),
        (0.0, math.inf, "domain.upper"),
        (-1e308, 1e308, "domain.upper"),
    ],
)
def test_bounds_that_make_no_range_are_refused_by_name(lower: float, upper: float, field: str) -> None:
    with pytest.raises(TaskError) as caught:
        NumberDomain(lower, upper)
    assert caught.value.field == field


@pytest.mark.parametrize(("value", "index"), [(True, 1), (False, 0), (1, 1), (0, 0)])
def test_a_bit_is_yes_or_no(value: object, index: int) -> None:
    assert BitDomain().index(value).index == index


@pytest.mark.parametrize("value", [2, -1, 1.0, "yes", None, np.True_])
def test_anything_else_is_no_bit(value: object) -> None:
    with pytest.raises(DomainError, match="not yes or no"):
        BitDomain().index(value)


# ---- categories

COLOURS = CategoryDomain(("red", "green", "blue"))


def test_a_label_becomes_its_place() -> None:
    assert [COLOURS.index(label).index for label in COLOURS.labels] == [0, 1, 2]
    assert not COLOURS.index("red").clamped


@pytest.mark.parametrize("value", ["Red", "red ", "", "secret", 0, None, True, b"red", ["red"], ("red",)], ids=repr)
def test_what_is_no_label_is_refused_without_being_repeated(value: object) -> None:
    with pytest.raises(DomainError) as caught:
        COLOURS.index(value)
    assert "secret" not in str(caught.value)
    assert "Red" not in str(caught.value)


# ---- vectors

BODY = VectorDomain((Coordinate(0.0, 1.0, name="x"), Coordinate(-10.0, 10.0, outside="refuse", name="y")))


@pytest.mark.parametrize(
    "value",
    [[0.5, 10], (Decimal("0.5"), 10.0), {"y": 10, "x": 0.5}, {"x": Fraction(1, 2), "y": np.float64(10)}],
    ids=repr,
)
def test_a_vector_becomes_an_index_for_each_coordinate(value: object) -> None:
    assert BODY.index(value).index == (GRID_STEPS // 2, GRID_STEPS)


def test_one_coordinate_outside_its_bounds_is_told() -> None:
    assert BODY.index([2, 0]).clamped
    assert not BODY.index([1, 0]).clamped
    with pytest.raises(DomainError, match="outside"):
        BODY.index([0, 11])


def test_an_index_of_several_integers_is_no_scalar() -> None:
    with pytest.raises(TypeError):
        _ = BODY.index([0, 0]).scalar


@pytest.mark.parametrize(
    "value",
    [
        None,
        0.5,
        "0.5,1",
        b"01",
        [],
        [0.5],
        [0.5, 1, 2],
        [0.5, math.nan],
        [None, 1],
        [[0.5], [1]],
        {"x": 0.5},
        {"x": 0.5, "z": 1},
        {0.5, 1},
        iter([0.5, 1]),
    ],
    ids=str,
)
def test_what_is_no_vector_of_the_task_is_refused(value: object) -> None:
    with pytest.raises(DomainError) as caught:
        BODY.index(value)
    assert "0.5" not in str(caught.value)
